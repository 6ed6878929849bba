"""A receiver of deliveries on this machine that notes all it gets, and misbehaves by path in every way known.

It speaks on raw sockets, since a proper HTTP server would refuse to do most of this.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Received:
    """One whole request, and when its last byte came on the monotonic clock."""

    method: str
    target: str
    headers: dict[str, str]
    raw_headers: bytes
    body: bytes
    at: float

    @property
    def job_id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def attempt(self) -> int:
        return int(self.headers["shampoo-attempt"])

    @property
    def fence(self) -> int:
        return int(self.headers["shampoo-fence"])


Behaviour = Callable[[Received, asyncio.StreamWriter], Awaitable[None]]


class Sink:
    """A server in a thread of its own; use it in a ``with``."""

    def __init__(self, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> None:
        self._tls, self._host = tls, host
        self._behaviours: dict[str, list[Behaviour]] = {}
        self.impatient: set[str] = set()  # paths answered before the body is read
        self._change = threading.Condition()
        self._calls: set[asyncio.Task[None]] = set()
        self.requests: list[Received] = []
        self.connections = 0
        self.sent: Counter[str] = Counter()
        self.most_at_once = 0
        self.open_now = 0

    def on(self, path: str, *behaviours: Behaviour | int) -> str:
        """Answer requests for a path so, one behaviour after the other and then the last for ever; give the URI."""
        self._behaviours[path] = [status(one) if isinstance(one, int) else one for one in behaviours]
        return self.uri(path)

    def uri(self, path: str = "/") -> str:
        return f"{'https' if self._tls else 'http'}://{self._host}:{self.port}{path}"

    def got(self, path: str) -> list[Received]:
        """The requests for a path so far."""
        with self._change:
            return [request for request in self.requests if request.target == path]

    def wait_for(self, count: int, path: str | None = None, seconds: float = 20.0) -> list[Received]:
        """Wait until so many requests came (for a path), and give them."""
        with self._change:
            ready = self._change.wait_for(lambda: len(self._matching(path)) >= count, seconds)
            assert ready, f"{len(self._matching(path))} of {count} requests came"
            return self._matching(path)

    def _matching(self, path: str | None) -> list[Received]:
        return [request for request in self.requests if path is None or request.target == path]

    def __enter__(self) -> Self:
        started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(started)), name="sink")
        self._thread.start()
        assert started.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)
        assert not self._thread.is_alive()

    async def _serve(self, started: threading.Event) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._connected, self._host, 0, ssl=self._tls)
        self.port: int = server.sockets[0].getsockname()[1]
        started.set()
        await self._stop.wait()
        server.close()
        for call in self._calls:
            call.cancel()
        await asyncio.gather(*self._calls, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        call = asyncio.current_task()
        assert call is not None
        self._calls.add(call)
        self.connections += 1
        self.open_now += 1
        self.most_at_once = max(self.most_at_once, self.open_now)
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                await self._serve_one(reader, writer)
        except asyncio.CancelledError:
            pass  # the test is over; asyncio's server would report it
        finally:
            self.open_now -= 1
            self._calls.discard(call)
            writer.transport.abort()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await _read(reader, self.impatient)
        behaviours = self._behaviours.get(request.target, [status(200)])
        behaviour = behaviours.pop(0) if len(behaviours) > 1 else behaviours[0]
        with self._change:
            self.requests.append(request)
            self._change.notify_all()
        acting = asyncio.ensure_future(behaviour(request, _Counting(writer, self.sent, request.target)))  # type: ignore[arg-type]
        gone = asyncio.ensure_future(_drain(reader))
        try:
            await asyncio.wait({acting, gone}, return_when=asyncio.FIRST_COMPLETED)
            if request.target in self.impatient:
                await gone  # a door closed on unread bytes would take the answer back
            if acting.done():
                await acting
        finally:
            acting.cancel()
            gone.cancel()
            await asyncio.gather(acting, gone, return_exceptions=True)


async def _drain(reader: asyncio.StreamReader) -> None:
    """Read until the other side goes away."""
    while await reader.read(65_536):
        pass


@contextmanager
def nobody() -> Iterator[str]:
    """Give a URI at which nobody listens, and hold its port so that nobody begins to."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}/"


class _Counting:
    """A writer that counts what it sends by path, and waits so that it never buffers without bound."""

    def __init__(self, writer: asyncio.StreamWriter, sent: Counter[str], target: str) -> None:
        self._writer, self._sent, self._target = writer, sent, target
        self.transport = writer.transport

    async def say(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()
        self._sent[self._target] += len(data)


async def _read(reader: asyncio.StreamReader, impatient: Collection[str]) -> Received:
    head = await reader.readuntil(b"\r\n\r\n")
    line, *fields = head.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    method, target, _ = line.split(" ")
    pairs = [field.split(": ", 1) for field in fields]
    headers = {name.lower(): value for name, value in pairs}
    assert len(headers) == len(pairs), "a header came twice"
    body = b"" if target in impatient else await reader.readexactly(int(headers["content-length"]))
    return Received(method, target, headers, head, body, time.monotonic())


async def say(writer: asyncio.StreamWriter, data: bytes) -> None:
    await writer.say(data)  # type: ignore[attr-defined]


def _behaviour(steps: Callable[[asyncio.StreamWriter], Awaitable[None]]) -> Behaviour:
    async def behave(_: Received, writer: asyncio.StreamWriter) -> None:
        await steps(writer)

    return behave


def status(code: int, headers: Sequence[str] = (), body: bytes = b"") -> Behaviour:
    """Answer properly."""
    lines = [f"HTTP/1.1 {code} Whatever", f"Content-Length: {len(body)}", *headers, "", ""]
    return _behaviour(lambda writer: say(writer, "\r\n".join(lines).encode() + body))


def raw(*pieces: bytes, pause: float = 0.0) -> Behaviour:
    """Send these bytes, with a pause after each piece, and close."""

    async def steps(writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            await say(writer, piece)
            await asyncio.sleep(pause)

    return _behaviour(steps)


def endless(head: bytes, piece: bytes, pause: float = 0.0, most_bytes: float = float("inf")) -> Behaviour:
    """Send a head, then a piece over and over until the other side goes away."""

    async def steps(writer: asyncio.StreamWriter) -> None:
        await say(writer, head)
        sent = 0
        while sent < most_bytes:
            await say(writer, piece)
            sent += len(piece)
            await asyncio.sleep(pause)

    return _behaviour(steps)


async def _forever(_: asyncio.StreamWriter) -> None:
    await asyncio.sleep(3600)


silence = _behaviour(_forever)


def after(seconds: float, then: Behaviour | int) -> Behaviour:
    """Wait before behaving."""

    async def behave(request: Received, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(seconds)
        await (status(then) if isinstance(then, int) else then)(request, writer)

    return behave
