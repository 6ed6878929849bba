"""The doors on a free port, and an agent that comes to the tools by any of the ways that MCP offers."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest
import uvicorn
from mcp.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult

from shampoo_queue.server.app import build as app_of
from shampoo_queue.server.desk import Desk
from shampoo_queue.server.mcp import build
from tests.queue import Queue

PROGRAM = [sys.executable, "-m", "shampoo_queue.cli"]
MODERN, HANDSHAKE = "auto", "legacy"
# How the messages travel, and in which of the protocol's two eras.
SLOW_WAYS = (("stdio", HANDSHAKE), ("bridge", HANDSHAKE))  # a process a test, and the era changes little there
WAYS = [
    pytest.param(way, id="-".join(way), marks=[pytest.mark.slow] if way in SLOW_WAYS else [])
    for way in itertools.product(("inside", "http", "stdio", "bridge"), (MODERN, HANDSHAKE))
]
EMBEDDED = pytest.mark.parametrize("engine", ["embedded"], indirect=True)
REAL = pytest.mark.parametrize("engine", ["embedded", "redis7"], indirect=True)


class Serving:
    """The doors of one desk under uvicorn, in a thread of this process.

    ``unlocked`` is a token for whoever brings none: some clients can send no header of their own.
    """

    def __init__(self, target: str, unlocked: str | None = None, **options: Any) -> None:
        self.desk = Desk(target, **options)
        app = app_of(self.desk)
        config = uvicorn.Config(
            app if unlocked is None else _with_token(app, unlocked),
            port=0,
            log_config=None,
            lifespan="on",
            timeout_graceful_shutdown=5,
        )
        self._server = uvicorn.Server(config)
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        try:
            async with self.desk:
                serving = asyncio.ensure_future(self._server.serve())
                while not self._server.started and not serving.done():
                    await asyncio.sleep(0.005)
                self._started.set()
                await serving
        finally:
            self._started.set()

    def __enter__(self) -> Serving:
        self._thread.start()
        self._started.wait()
        assert self._server.started, "the server did not start"
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join()

    @property
    def url(self) -> str:
        """Where the doors are, without a slash at the end."""
        port = self._server.servers[0].sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}"


def _with_token(app: Any, token: str) -> Any:
    async def unlocked(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and not any(name == b"authorization" for name, _ in scope["headers"]):
            scope["headers"] = [*scope["headers"], (b"authorization", f"Bearer {token}".encode())]
        await app(scope, receive, send)

    return unlocked


@dataclass(frozen=True)
class Answered:
    """One call's answer as a program sees it: the result or the refusal, and what came beside it."""

    result: CallToolResult

    @property
    def body(self) -> Any:
        """The result object, which text and structured content agree on."""
        assert not self.result.is_error, self.text
        assert json.loads(self.text) == self.result.structured_content
        return self.result.structured_content

    @property
    def refusal(self) -> str:
        """The code of the refusal; its message is `message`."""
        assert self.result.is_error
        assert self.result.structured_content is None
        return str(json.loads(self.text)["error"]["code"])

    @property
    def message(self) -> str:
        assert self.refusal
        return str(json.loads(self.text)["error"]["message"])

    @property
    def text(self) -> str:
        (block,) = self.result.content
        return str(getattr(block, "text", None))

    def beside(self, name: str) -> Any:
        return (self.result.meta or {}).get(f"shampoo/{name}")


@dataclass
class Agent:
    """An MCP client that is connected."""

    client: Client

    async def call(self, tool: str, /, _beside: dict[str, Any] | None = None, **arguments: Any) -> Answered:
        """Call a tool; ``_beside`` has the request id, the fence and the holder."""
        meta: Any = {f"shampoo/{name}": value for name, value in (_beside or {}).items()} or None
        return Answered(await self.client.call_tool(tool, arguments, meta=meta))


@dataclass
class Agents:
    """Agents of one profile, all by the same way."""

    queue: Queue
    road: str
    era: str
    serving: Serving | None = None
    options: dict[str, Any] = field(default_factory=dict)

    def token(self, client_id: str, scope: str = "tools") -> str:
        return self.queue.shampoo.registry.issue_token(client_id, scope=scope).token

    @asynccontextmanager
    async def agent(self, client_id: str, token: str | None = None) -> AsyncIterator[Agent]:
        """Connect as a principal."""
        token = token or self.token(client_id)
        match self.road:
            case "inside":
                async with Desk(self.queue.engine.url, **self.options) as desk:
                    server = build(desk.offered, await desk.admit(token))
                    async with Client(server, mode=self.era) as client:
                        yield Agent(client)
            case "http":
                assert self.serving is not None
                async with over_http(self.serving.url, token, self.era) as agent:
                    yield agent
            case "stdio":
                async with over_stdio(["--url", self.queue.engine.url], token, self.era) as agent:
                    yield agent
            case "bridge":
                assert self.serving is not None
                async with over_stdio(["--remote", self.serving.url], token, self.era) as agent:
                    yield agent


@asynccontextmanager
async def over_http(url: str, token: str, era: str) -> AsyncIterator[Agent]:
    """Connect over streamable HTTP."""
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=30, trust_env=False) as http,
        Client(streamable_http_client(f"{url}/mcp", http_client=http), mode=era) as client,
    ):
        yield Agent(client)


@asynccontextmanager
async def over_stdio(options: list[str], token: str, era: str) -> AsyncIterator[Agent]:
    """Start ``shampoo mcp`` and connect to it."""
    command, *rest = PROGRAM
    environment = {"PATH": os.environ["PATH"], "SHAMPOO_TOKEN": token}
    started = StdioServerParameters(command=command, args=[*rest, "mcp", *options], env=environment)
    async with Client(stdio_client(started), mode=era) as client:
        yield Agent(client)


@contextmanager
def agents(queue: Queue, road: str, era: str, **options: Any) -> Iterator[Agents]:
    """Open one way to a profile."""
    if road in ("http", "bridge"):
        with Serving(queue.engine.url, **options) as serving:
            yield Agents(queue, road, era, serving)
    else:
        yield Agents(queue, road, era, None, options)


def run(story: Callable[[], Awaitable[None]]) -> None:
    """Run an asynchronous story to its end."""

    async def bounded() -> None:
        async with asyncio.timeout(60):
            await story()

    asyncio.run(bounded())
