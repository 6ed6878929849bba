"""A real server of the doors in this process, and a client that can send any bytes to it."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any, Self

from starlette.routing import Router

from shampoo_queue.server import health, rest
from shampoo_queue.server.desk import Desk
from shampoo_queue.server.guard import Guard, Rules
from shampoo_queue.server.serve import Place, Server, bind

SECONDS = 10.0


@dataclass
class Reply:
    """An answer as it came."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> tuple[int, str]:
        """The status and the code of a refusal, whose body must have the one form."""
        found = self.json
        assert set(found) == {"error"} and set(found["error"]) == {"code", "message"}, found
        return self.status, found["error"]["code"]


class Door:
    """The routes of the tools and of health behind their guard, served by uvicorn in a thread of its own."""

    def __init__(self, target: str, rules: Rules | None = None, place: Place | None = None, **options: Any) -> None:
        self.desk = Desk(target, **options)
        rules = rules or Rules()
        routes = [*rest.routes(self.desk), *health.routes(self.desk, open_metrics=rules.open_metrics)]
        self.guard = Guard(Router(routes, redirect_slashes=False), self.desk, rules)
        self._socket = bind(Place(port=0))
        self.port = int(self._socket.getsockname()[1])
        self._ready = threading.Event()
        self._failed: BaseException | None = None
        self.server = Server(self.guard, place or Place(port=0), self._ready.set)
        self._thread = threading.Thread(target=self._run, name="door")

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=self.server.config.get_loop_factory()) as runner:
                runner.run(self._main())
        except BaseException as error:
            self._failed = error
        finally:
            self._ready.set()

    async def _main(self) -> None:
        self.loop = asyncio.get_running_loop()
        async with self.desk:
            await self.server._serve([self._socket])

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(SECONDS)
        if self._failed:
            raise self._failed
        return self

    def __exit__(self, *_: object) -> None:
        def leave() -> None:
            self.guard.leave()
            self.server.should_exit = True

        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(leave)
        self._thread.join(SECONDS)
        assert not self._thread.is_alive(), "the server does not stop"
        self._socket.close()

    def soon(self, act: Callable[[], object]) -> None:
        """Let the server's loop do something."""
        self.loop.call_soon_threadsafe(act)

    # Asking ---------------------------------------------------------------------------------------------------

    @contextmanager
    def connected(self) -> Iterator[socket.socket]:
        with socket.create_connection(("127.0.0.1", self.port), SECONDS) as connection:
            yield connection

    def send(self, raw: bytes) -> Reply:
        """Send bytes as they are on a connection of their own, and read one answer."""
        with self.connected() as connection:
            connection.sendall(raw)
            return answer(connection)

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | list[tuple[str, str]] | None = None,
        token: str | None = None,
    ) -> Reply:
        return self.send(self.spelled(method, path, body, headers, token))

    def spelled(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | list[tuple[str, str]] | None = None,
        token: str | None = None,
    ) -> bytes:
        """Write a request as it goes over the wire."""
        pairs = list(headers.items() if isinstance(headers, Mapping) else headers or [])
        names = {name.lower() for name, _ in pairs}
        if "host" not in names:
            pairs.append(("Host", f"127.0.0.1:{self.port}"))
        if token is not None:
            pairs.append(("Authorization", f"Bearer {token}"))
        if body is not None and "content-length" not in names and "transfer-encoding" not in names:
            pairs.append(("Content-Length", str(len(body))))
        if body is not None and "content-type" not in names:
            pairs.append(("Content-Type", "application/json"))
        head = "".join(f"{name}: {value}\r\n" for name, value in pairs)
        return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + (body or b"")

    def call(self, tool: str, arguments: Any, token: str | None, **headers: str) -> Reply:
        """Call a tool; a header's name is written with underscores."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.ask("POST", f"/v1/tools/{tool}", json.dumps(arguments).encode(), named, token)


def answer(connection: socket.socket) -> Reply:
    """Read one answer; interim ones are passed over."""
    return answers(connection, 1)[0]


def answers(connection: socket.socket, count: int) -> list[Reply]:
    """Read so many answers."""
    with connection.makefile("rb") as stream:
        return [_read(stream) for _ in range(count)]


def _read(stream: IO[bytes]) -> Reply:
    while line := stream.readline():
        status, headers = int(line.split()[1]), {}
        while (line := stream.readline().strip()) != b"":
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.lower()] = value.strip()
        if status >= 200:
            return Reply(status, headers, stream.read(int(headers.get("content-length", 0))))
    raise ConnectionError("closed without an answer")
