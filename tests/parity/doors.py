"""Every way in, behind one form: a tool, its arguments as JSON text, and what travels beside them.

The text goes to each door as it stands, as far as the door takes JSON at all, so that a case may hold what no Python
object does. What comes back is what the caller learns: the result with what stands beside it, or the refusal.
"""

from __future__ import annotations

import asyncio
import base64
import json
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import quote

import httpx2

from shampoo_queue import AsyncShampoo
from shampoo_queue.errors import Refusal
from tests.cli.conftest import PROGRAM, Cli
from tests.parity.serving import Serve, environment
from tests.queue import Queue

HANDSHAKE, MODERN = "2025-06-18", "2026-07-28"
ENVELOPE = {"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {}}


@dataclass(frozen=True)
class Heard:
    """What a caller learns of one call."""

    code: str
    message: str = ""
    result: Any = None
    fence: int | None = None
    replayed: bool = False


@dataclass(frozen=True)
class Beside:
    """What may travel beside the arguments."""

    request_id: str | None = None
    fence: int | None = None
    holder: str | None = None

    def given(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if value is not None}


NOTHING = Beside()


@dataclass
class Door:
    """One way in to one profile. ``credential`` says that callers prove who they are before anything else."""

    queue: Queue
    serving: Serve | None
    cleanup: ExitStack = field(default_factory=ExitStack)
    tokens: dict[str, str] = field(default_factory=dict)
    credential = True

    def token(self, client_id: str) -> str:
        """Give the token of a principal, issued when it is first asked for."""
        if client_id not in self.tokens:
            self.tokens[client_id] = self.queue.shampoo.registry.issue_token(client_id).token
        return self.tokens[client_id]

    def call(self, client_id: str, tool: str, arguments: str, beside: Beside = NOTHING) -> Heard:
        raise NotImplementedError

    def close(self) -> None:
        self.cleanup.close()


def _called(call: Callable[[], Any]) -> Heard:
    try:
        answer = call()
    except Refusal as refusal:
        return Heard(refusal.code, refusal.message)
    return Heard("ok", "", dict(answer), answer.meta.fence, answer.meta.replayed)


class Python(Door):
    credential = False

    def call(self, client_id: str, tool: str, arguments: str, beside: Beside = NOTHING) -> Heard:
        client = self.queue.shampoo.client(client_id, holder="h")
        return _called(lambda: client.call(tool, json.loads(arguments), **beside.given()))


class AsyncPython(Door):
    credential = False

    def __init__(self, queue: Queue, serving: Serve | None) -> None:
        super().__init__(queue, serving)
        self._runner = self.cleanup.enter_context(asyncio.Runner())
        self._shampoo = AsyncShampoo.connect(queue.engine.url, profile=queue.profile, operator="operator")
        self.cleanup.callback(lambda: self._runner.run(self._shampoo.close()))

    def call(self, client_id: str, tool: str, arguments: str, beside: Beside = NOTHING) -> Heard:
        client = self._shampoo.client(client_id, holder="h")
        return _called(lambda: self._runner.run(client.call(tool, json.loads(arguments), **beside.given())))


class CommandLine(Door):
    credential = False

    def call(self, client_id: str, tool: str, arguments: str, beside: Beside = NOTHING) -> Heard:
        options = [f"--{name.replace('_', '-')}={value}" for name, value in beside.given().items()]
        options += [] if beside.holder is not None else ["--holder=h"]
        # A large one goes through a pipe, as no argument of a process may be longer than 128 KiB.
        words = ["call", tool, "--as", client_id, "--args", "-", "--meta", *options]
        ended = Cli(self.queue).run(*words, input=arguments.encode())
        if ended.status == 0:
            meta = ended.json["meta"]
            return Heard("ok", "", ended.json["result"], meta["fence"], meta["replayed"])
        assert ended.out == b""
        # A server that keeps nothing on disk is warned of in a line before.
        (line,) = [line for line in ended.err.split("\n") if line and not line.startswith("warning: redis://")]
        code, _, message = line.partition(": ")
        return Heard(code, message)


class Http(Door):
    def __init__(self, queue: Queue, serving: Serve | None) -> None:
        super().__init__(queue, serving)
        self.http = self.cleanup.enter_context(httpx2.Client(trust_env=False, timeout=30))

    def call(self, client_id: str, tool: str, arguments: str, beside: Beside = NOTHING) -> Heard:
        names = {"request_id": "Idempotency-Key", "fence": "Shampoo-Fence", "holder": "Shampoo-Holder"}
        given = {names[name]: str(value) for name, value in {"holder": "h", **beside.given()}.items()}
        answer = self.post(f"/v1/tools/{quote(tool, safe='')}", arguments.encode(), self.token(client_id), given)
        if answer.status_code == 200:
            fence = answer.headers.get("shampoo-fence")
            replayed = answer.headers.get("idempotency-replayed") == "true"
            return Heard("ok", "", answer.json(), None if fence is None else int(fence), replayed)
        heard = refusal_in(answer.json(), answer.status_code)
        if heard.code == "invalid_argument":  # which names the header that holds what is wrong
            for name, header in names.items():
                heard = replace(heard, message=heard.message.replace(header, name))
        return heard

    def post(self, path: str, body: bytes, token: str | None, headers: Mapping[str, str]) -> httpx2.Response:
        assert self.serving is not None
        given = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **headers}
        if token is not None:
            given["Authorization"] = f"Bearer {token}"
        return self.http.post(f"{self.serving.url}{path}", content=body, headers=given)


def refusal_in(body: Any, status: int | None = None) -> Heard:
    """Read a refusal in the one form that all doors spell it in."""
    from shampoo_queue.errors import DOOR_ERRORS, REFUSALS

    assert set(body) == {"error"}
    assert set(body["error"]) == {"code", "message"}
    code, message = body["error"]["code"], body["error"]["message"]
    kind = (REFUSALS | DOOR_ERRORS)[code]
    assert status in (None, kind.http_status)
    assert message.startswith(kind.words)
    return Heard(code, message)


def heard_over_mcp(answer: Any) -> Heard:
    """Read what an agent learns of a call: a result, a refusal as a result, or a protocol error."""
    if "error" in answer:
        assert answer["error"]["code"] == -32602, answer
        return Heard("unknown_tool", answer["error"]["message"])
    result = answer["result"]
    (block,) = result["content"]
    told, meta = json.loads(block["text"]), result.get("_meta", {})
    if result.get("isError"):
        assert "structuredContent" not in result
        return refusal_in(told)
    assert told == result["structuredContent"]
    return Heard("ok", "", told, meta.get("shampoo/fence"), meta.get("shampoo/replayed", False))


def message(number: int, era: str, tool: str, arguments: str, beside: Beside) -> bytes:
    """Spell a call as a JSON-RPC message, with the arguments' text as it stands."""
    meta = {f"shampoo/{name}": value for name, value in {"holder": "h", **beside.given()}.items()}
    meta |= ENVELOPE if era == MODERN else {}
    params = f'{{"name":{json.dumps(tool)},"arguments":{arguments},"_meta":{json.dumps(meta)}}}'
    return f'{{"jsonrpc":"2.0","id":{number},"method":"tools/call","params":{params}}}'.encode()


class McpHttp(Http):
    era = HANDSHAKE

    def call(self, client_id: str, tool: str, arguments: str, beside: Beside = NOTHING) -> Heard:
        headers = {"MCP-Protocol-Version": self.era}
        name = f"=?base64?{base64.b64encode(tool.encode()).decode()}?="  # as any text goes into a header
        headers |= {"Mcp-Method": "tools/call", "Mcp-Name": name} if self.era == MODERN else {}
        sent = message(1, self.era, tool, arguments, beside)
        answer = self.post("/mcp", sent, self.token(client_id), headers)
        if answer.status_code == 401:
            return refusal_in(answer.json(), 401)
        return heard_over_mcp(answer.json())


class McpHttpModern(McpHttp):
    era = MODERN


class McpStdio(Door):
    """``shampoo mcp``, one process a principal."""

    era = HANDSHAKE

    def __init__(self, queue: Queue, serving: Serve | None) -> None:
        super().__init__(queue, serving)
        self._agents: dict[str, Agent] = {}

    def call(self, client_id: str, tool: str, arguments: str, beside: Beside = NOTHING) -> Heard:
        if client_id not in self._agents:
            agent = Agent(self.queue.engine.url, self.token(client_id), self.era)
            self._agents[client_id] = self.cleanup.enter_context(agent.running())
        return heard_over_mcp(self._agents[client_id].ask(tool, arguments, beside))


class McpStdioModern(McpStdio):
    era = MODERN


class Agent:
    """One ``shampoo mcp`` and the end of its pipe."""

    def __init__(self, target: str, token: str, era: str) -> None:
        self.era, self.err = era, b""
        self._process = subprocess.Popen(
            [*PROGRAM, "mcp", "--url", target],
            env=environment(SHAMPOO_TOKEN=token),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._number = 0

    @contextmanager
    def running(self) -> Iterator[Agent]:
        listening = threading.Thread(target=self._listen)
        listening.start()
        try:
            if self.era == HANDSHAKE:
                self._greet()
            yield self
        finally:
            assert self._process.stdin and self._process.stdout and self._process.stderr
            self._process.stdin.close()
            self._process.wait(30)
            listening.join(30)
            self._process.stdout.close()
            self._process.stderr.close()

    def _listen(self) -> None:
        assert self._process.stderr
        self.err = self._process.stderr.read()

    def _greet(self) -> None:
        client = {"protocolVersion": HANDSHAKE, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
        hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": client}
        assert self.send(json.dumps(hello).encode())["result"]["protocolVersion"] == HANDSHAKE
        self._put(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')

    def ask(self, tool: str, arguments: str, beside: Beside) -> Any:
        self._number += 1
        return self.send(message(self._number, self.era, tool, arguments, beside))

    def send(self, line: bytes) -> Any:
        """Send one message and read one answer."""
        self._put(line)
        assert self._process.stdout
        return json.loads(self._process.stdout.readline())

    def _put(self, line: bytes) -> None:
        assert self._process.stdin
        self._process.stdin.write(line + b"\n")
        self._process.stdin.flush()


DOORS: dict[str, type[Door]] = {
    "python": Python,
    "asyncio": AsyncPython,
    "command line": CommandLine,
    "http": Http,
    "mcp-http-2025": McpHttp,
    "mcp-http-2026": McpHttpModern,
    "mcp-stdio-2025": McpStdio,
    "mcp-stdio-2026": McpStdioModern,
}
