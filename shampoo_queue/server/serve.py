"""Run the doors in this process: bind, serve, drain at a signal, and hold slow clients off."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import ipaddress
import logging
import signal
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import uvicorn

from ..errors import ConfigurationError
from . import protocols
from .guard import Guard

if TYPE_CHECKING:
    from .desk import Desk

log = logging.getLogger("shampoo_queue.server")

# Seconds that a client may take to send a request's head and its body, and to take its answer.
SLOWEST = {"head": 10.0, "body": 60.0, "answer": 60.0}
KEEP_ALIVE_SECONDS = 75
_FAREWELL_SECONDS = 2
_DESCRIPTORS = 65_536


@dataclass(frozen=True)
class Place:
    """Where to listen, how long running calls get at a stop, and how slow a client may be."""

    host: str = "127.0.0.1"
    port: int = 8080
    tls_cert: str | None = None
    tls_key: str | None = None
    behind_proxy: bool = False
    grace_seconds: float = 20.0
    slowest: Mapping[str, float] = field(default_factory=lambda: SLOWEST)


# Binding --------------------------------------------------------------------------------------------------------


def bind(place: Place) -> socket.socket:
    """Bind the address; raise `ConfigurationError` when that cannot be, or would send tokens in the clear."""
    _check_tls(place)
    try:
        found = socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise ConfigurationError("the host to listen on cannot be found") from None
    family, _, _, _, address = min(found, key=lambda one: one[0] != socket.AF_INET)
    if not (ipaddress.ip_address(address[0]).is_loopback or place.tls_cert or place.behind_proxy):
        raise ConfigurationError(
            "refusing to listen beyond this machine without encryption: tokens would travel in the clear; "
            "give --tls-cert and --tls-key, or --behind-proxy when a proxy in front does TLS"
        )
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
    except OSError as error:
        listening.close()
        raise ConfigurationError(f"cannot listen on port {place.port}: {error.strerror}") from None
    listening.setblocking(False)
    return listening


def _check_tls(place: Place) -> None:
    if bool(place.tls_cert) != bool(place.tls_key):
        raise ConfigurationError("--tls-cert and --tls-key go together")
    if place.tls_cert:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(place.tls_cert, place.tls_key, password="")
        except OSError as error:
            reason = "they do not fit together" if isinstance(error, ssl.SSLError) else error.strerror
            raise ConfigurationError(f"the certificate and its key cannot be used: {reason}") from None


def url(place: Place, listening: socket.socket) -> str:
    """Give the URL under which the server is reached."""
    address, port = listening.getsockname()[:2]
    shown = f"[{address}]" if ":" in address else address
    return f"{'https' if place.tls_cert else 'http'}://{shown}:{port}"


def speed() -> str:
    """Say which event loop and parser serve: those of the extra `fast` when they are installed."""
    return f"{'uvloop' if _has('uvloop') else 'asyncio'} and {'httptools' if _has('httptools') else 'h11'}"


def _has(name: str) -> bool:
    return find_spec(name) is not None


# Serving --------------------------------------------------------------------------------------------------------


def serve(
    desk: Desk,
    guard: Guard,
    place: Place,
    listening: socket.socket,
    *,
    started: Callable[[], None],
    at_once: Callable[[], None],
) -> None:
    """Serve until a signal, then drain and come back; ``at_once`` is called at a second signal and ends the process.

    Raises `EngineError` when Redis cannot serve at the start.
    """
    server = Server(guard, place, started, at_once)
    _raise_descriptors()
    with asyncio.Runner(loop_factory=server.config.get_loop_factory()) as runner:
        runner.run(_serve(desk, server, listening))


async def _serve(desk: Desk, server: Server, listening: socket.socket) -> None:
    async with desk:
        await server.serve([listening])


class Server(uvicorn.Server):
    """uvicorn with a drain before its shutdown, and an eye on clients that are too slow."""

    def __init__(
        self,
        guard: Guard,
        place: Place,
        started: Callable[[], None] = lambda: None,
        at_once: Callable[[], None] = lambda: None,
    ) -> None:
        self._guard, self._place = guard, place
        self._announce, self._at_once = started, at_once
        self._since: dict[Any, tuple[object, float]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        config = uvicorn.Config(
            guard,
            http=protocols.fast() if _has("httptools") else protocols.Plain,
            ws="none",
            interface="asgi3",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=_FAREWELL_SECONDS,
            ssl_certfile=place.tls_cert,
            ssl_keyfile=place.tls_key,
        )
        super().__init__(config)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._tasks.append(asyncio.ensure_future(self._watch()))
        # What is loaded stays for good: without it the collector's long passes stall nobody.
        gc.collect()
        gc.freeze()
        self._announce()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Drain at the first signal and end at once at the second, instead of raising it again after a clean end."""
        loop, numbers = asyncio.get_running_loop(), (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        for number in numbers:
            loop.add_signal_handler(number, self.leave)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)

    def leave(self) -> None:
        """Take no new work, and stop when what runs has ended; asked again, end at once."""
        if self._guard.leaving.is_set():
            self._at_once()
            return
        log.info("stopping: %d calls run, no new ones are taken", self._guard.open)
        self._guard.leave()
        self._tasks.append(asyncio.ensure_future(self._drain()))

    async def _drain(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._place.grace_seconds):
                while self._guard.open:
                    await asyncio.sleep(0.02)
        self.should_exit = True

    async def _watch(self) -> None:
        """Look every second for clients that are too slow, and let them go."""
        while True:
            await asyncio.sleep(1.0)
            moment, since = asyncio.get_running_loop().time(), self._since
            self._since = {}
            connections: list[Any] = list(self.server_state.connections)
            for connection in connections:
                phase, mark = _phase(connection)
                if not phase:
                    continue
                known, began = since.get(connection, (None, moment))
                began = began if known == mark else moment
                if moment - began >= self._place.slowest[phase]:
                    connection.let_go()
                else:
                    self._since[connection] = mark, began


def _phase(connection: Any) -> tuple[str, object]:
    """Tell what a connection's client keeps the server waiting for, if anything, and since which request."""
    cycle = connection.cycle
    if cycle is None or cycle.response_complete:
        return ("head" if connection.timeout_keep_alive_task is None else ""), ("head", id(cycle))
    if cycle.more_body:
        return "body", ("body", id(cycle))
    return ("answer" if connection.flow.write_paused else ""), ("answer", id(cycle))


def _raise_descriptors() -> None:
    """Let the process have more connections than the usual 1,024 files, as far as the system lets it."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
