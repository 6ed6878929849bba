"""``shampoo mcp`` as a process: its streams, its signals, and how it ends."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from shampoo_queue.contract import TOOLS
from shampoo_queue.extensions import EXTENSIONS
from shampoo_queue.server.answers import BODY_LIMIT
from tests.mcp.serving import EMBEDDED, PROGRAM
from tests.queue import Queue

pytestmark = EMBEDDED

HELLO = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}
READY = {"jsonrpc": "2.0", "method": "notifications/initialized"}
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


def call(number: int, tool: str, **arguments: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}


class Process:
    """The program with pipes for its streams."""

    def __init__(self, started: subprocess.Popen[bytes]) -> None:
        self.started = started
        assert started.stdin is not None
        assert started.stdout is not None
        self.stdin, self.stdout = started.stdin, started.stdout

    def send(self, *messages: dict[str, Any] | bytes) -> None:
        for message in messages:
            self.stdin.write((message if isinstance(message, bytes) else json.dumps(message).encode()) + b"\n")
        self.stdin.flush()

    def answer(self) -> dict[str, Any]:
        ready, _, _ = select.select([self.stdout], [], [], 20)
        assert ready, "no answer came"
        found: dict[str, Any] = json.loads(self.stdout.readline())
        return found

    def ask(self, message: dict[str, Any] | bytes) -> dict[str, Any]:
        self.send(message)
        return self.answer()

    def end(self) -> tuple[int, str]:
        """Close the input, and give the status and what stands on standard error."""
        _, errors = self.started.communicate(timeout=20)
        return self.started.returncode, errors.decode()


@contextmanager
def program(queue: Queue, *options: str, line: Sequence[str] = PROGRAM, **environment: str) -> Iterator[Process]:
    """Start the program as the principal boss, by its word unless a token is given."""
    given = {"PATH": os.environ["PATH"], "SHAMPOO_URL": queue.engine.url, "SHAMPOO_PROFILE": queue.profile}
    whole = [*line, "mcp", *options]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(whole, env=given | environment, **pipes) as started:
        try:
            yield Process(started)
        finally:
            started.kill()


@pytest.fixture
def boss(queue: Queue) -> None:
    queue.principal("boss", "", conductor=True)


@pytest.mark.usefixtures("boss")
def test_whoever_pipes_requests_in_gets_all_answers_and_status_0(queue: Queue) -> None:
    with program(queue, "--as", "boss") as process:
        process.send(HELLO, READY, *(call(n, "job_create", kind="k", payload=str(n)) for n in range(1, 21)))
        process.stdin.close()
        answers = {answer["id"]: answer for answer in map(json.loads, process.stdout.readlines())}
        assert process.started.wait(20) == 0
    assert set(answers) == set(range(21))
    assert queue.events().count("job.created") == 20
    holders = {event["holder"] for event in queue.shampoo.history(limit=100) if event["event"] == "job.created"}
    assert len(holders) == 1  # host and process, so that people can tell who called
    assert holders.pop().endswith(f"/{process.started.pid}")


@pytest.mark.usefixtures("boss")
def test_odd_lines_are_answered_and_the_connection_goes_on(queue: Queue) -> None:
    with program(queue, "--as", "boss") as process:
        assert process.ask(HELLO)["result"]["serverInfo"]["name"] == "shampoo-queue"
        process.send(READY, b"", b"  ")
        parse, request = -32700, -32600
        for line, code in (
            (b"no json", parse),
            (b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"ping"}', parse),
            (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}', parse),
            (b"\xff\xfe", parse),
            (b"[" * 100_000, parse),
            (b"[]", parse),
            (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', request),
            (b'{"jsonrpc":"2.0","id":"\\ud800","method":"ping"}', request),
            (b'{"jsonrpc":"2.0","id":1,"method":"' + b"x" * (BODY_LIMIT + 10) + b'"}', request),
        ):
            answered = process.ask(line)
            assert (answered["id"], answered["error"]["code"]) == (None, code)
            assert "xxxx" not in answered["error"]["message"]
        refused = process.ask(
            rb'{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"job_create",'
            rb'"arguments":{"kind":"k","payload":"\ud800"}}}'
        )
        assert json.loads(refused["result"]["content"][0]["text"])["error"]["code"] == "invalid_argument"
        nul = process.ask(call(4, "job_create", kind="k", payload="\x00" * 1_048_576))
        assert nul["result"]["structuredContent"]["state"] == "queued"
        assert process.ask({"jsonrpc": "2.0", "id": 5, "method": "ping"})["result"] == {}
        assert process.end() == (0, "")


@pytest.mark.usefixtures("boss")
def test_extension_tools_come_with_their_option(queue: Queue) -> None:
    with program(queue, "--as", "boss", "--with-extensions", "--holder", "desk 4") as process:
        process.ask(HELLO)
        listed = process.ask({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})["result"]["tools"]
        assert [tool["name"] for tool in listed] == [tool.name for tool in (*TOOLS, *EXTENSIONS)]
        process.ask(call(2, "job_create", kind="k"))
    assert [event["holder"] for event in queue.shampoo.history(limit=100) if event["event"] == "job.created"] == [
        "desk 4"
    ]


@pytest.mark.usefixtures("boss")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_at_once_while_the_client_holds_the_line(queue: Queue, number: signal.Signals) -> None:
    with program(queue, "--as", "boss") as process:
        process.ask(HELLO)
        began = time.monotonic()
        process.started.send_signal(number)
        assert process.started.wait(5) == 128 + number
        assert time.monotonic() - began < 2
        assert process.stdout.read() == b""
        assert process.started.stderr is not None
        assert process.started.stderr.read() == b""


@pytest.mark.usefixtures("boss")
def test_a_client_that_stops_reading_ends_it_quietly(queue: Queue) -> None:
    with program(queue, "--as", "boss") as process:
        process.ask(HELLO)
        process.stdout.close()
        process.send(READY, {"jsonrpc": "2.0", "id": 1, "method": "ping"})
        assert process.started.wait(20) == 0
        assert process.started.stderr is not None
        assert process.started.stderr.read() == b""


@pytest.mark.usefixtures("boss")
def test_a_cancelled_call_leaves_the_connection_and_the_queue_whole(queue: Queue) -> None:
    with program(queue, "--as", "boss") as process:
        process.ask(HELLO)
        process.send(READY)
        queue.command("CLIENT", "PAUSE", 300, "ALL")
        process.send(call(7, "job_create", kind="k"))
        process.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}})
        for number in range(8, 12):
            assert process.ask({"jsonrpc": "2.0", "id": number, "method": "ping"})["id"] == number
        made = process.ask(call(20, "job_create", kind="k"))
        assert made["id"] == 20
        began = time.monotonic()
        assert process.end() == (0, "")
        assert time.monotonic() - began < 5
    assert queue.events().count("job.created") in (1, 2)


PLANTED = """
import sys
from shampoo_queue.server import visitor
async def broken(self, *_, **__):
    print("stray", flush=True)
    raise RuntimeError("planted-5c2e")
visitor.Visitor._called = broken
from shampoo_queue.cli import main
sys.exit(main())
"""


@pytest.mark.usefixtures("boss")
@pytest.mark.parametrize("era", ["handshake", "modern"])
def test_a_defect_and_a_stray_print_reach_no_client(queue: Queue, era: str) -> None:
    with program(queue, "--as", "boss", line=[sys.executable, "-c", PLANTED]) as process:
        asked = call(1, "job_create", kind="k")
        if era == "handshake":
            process.ask(HELLO)
            process.send(READY)
        else:
            asked["params"]["_meta"] = ENVELOPE
        text = json.dumps(process.ask(asked))
        assert "internal error" in text
        assert "planted" not in text
        assert "RuntimeError" not in text
        status, errors = process.end()
    assert status == 0
    assert errors.startswith("stray\n")
    assert "planted" not in errors
    assert "Traceback" not in errors


@pytest.mark.usefixtures("boss")
def test_why_it_does_not_start_is_one_line_without_the_token(queue: Queue) -> None:
    issued = queue.shampoo.registry.issue_token("boss")

    def ended(*options: str, **environment: str) -> tuple[int, str]:
        with program(queue, *options, line=PROGRAM, **environment) as process:
            status, errors = process.end()
        assert issued.token not in errors
        assert "Traceback" not in errors
        return status, errors

    assert ended()[0] == 2
    assert ended("--as", "nobody") == (1, "unauthenticated: unauthenticated\n")
    status, errors = ended("--as", "boss", SHAMPOO_TOKEN=issued.token)
    assert (status, errors.count("\n")) == (2, 1)
    # The token names the profile.
    assert ended(SHAMPOO_TOKEN=issued.token, SHAMPOO_PROFILE="elsewhere") == (0, "")
    queue.shampoo.registry.revoke_token(issued.token_id)
    assert ended(SHAMPOO_TOKEN=issued.token) == (1, "unauthenticated: unauthenticated\n")
    away, errors = ended("--url", "redis://127.0.0.1:1", "--as", "boss")
    assert (away, errors.count("\n")) == (3, 1)


LOADED = """
import sys
from shampoo_queue.cli.program import run
run(sys.argv[1:])
loaded = {name.partition(".")[0] for name in sys.modules} & {"mcp", "mcp_types", "starlette", "httpx2"}
sys.stderr.write(repr(loaded))
"""


def test_help_and_other_commands_do_not_load_the_protocol(queue: Queue) -> None:
    for line in (["--help"], ["mcp", "--help"], ["tools"]):
        done = subprocess.run([sys.executable, "-c", LOADED, *line], capture_output=True, text=True, check=False)
        assert done.stderr == "set()"
