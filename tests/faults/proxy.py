"""A proxy between clients and a real server that loses, holds or cuts what a test tells it to.

It reads both directions as frames of the protocol (RESP2), one request and then its reply on each connection, so a
fault meets exactly the request it was planned for. Every connection has a thread; `close` ends them all.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from io import BufferedReader
from typing import Self

HOST = "127.0.0.1"
WAIT = 10.0  # seconds that any one step may take before a test counts as failed

Address = str | tuple[str, int]
"""Where a server listens: the path of a unix socket, or host and port."""


class Kind(Enum):
    """What happens to the request a fault meets, or to its reply."""

    LOSE_REPLY = "the server acts, its reply is dropped and the connection cut"
    LOSE_REQUEST = "the request never arrives and the connection is cut"
    CUT_REPLY = "the server acts, and half of its reply arrives"
    CUT_REQUEST = "half of the request arrives"
    HOLD_REPLY = "the server acts, and its reply waits for `release`"
    HOLD_REQUEST = "the connection is cut and the request waits in the network for `deliver`"
    SWALLOW = "the request waits in the network for `deliver`, and the connection stays silent until `release`"


class Fault:
    """One planned fault. ``met`` is set as soon as it is in effect (for a held reply: the server has acted)."""

    def __init__(self, kind: Kind, command: bytes, nth: int, connect: Callable[[], socket.socket]) -> None:
        self.kind, self.command = kind, command
        self.left = nth
        self.met = threading.Event()
        self.request = self.reply = b""
        self._go = threading.Event()
        self._connect = connect

    def await_met(self) -> None:
        """Wait until the fault is in effect."""
        assert self.met.wait(WAIT), f"no request met the fault: {self.kind.value}"

    def release(self) -> None:
        """Let a held reply go on its way."""
        self._go.set()

    def deliver(self) -> bytes:
        """Let a held request arrive at last, and give the server's reply to it."""
        self.await_met()
        with self._connect() as connection, connection.makefile("rb") as replies:
            connection.sendall(self.request)
            return read_frame(replies)

    def await_release(self) -> None:
        """Hold the reply; called by the proxy."""
        self._go.wait(WAIT)


class Proxy:
    """Listen on a port of 127.0.0.1 and forward to a server, except where a fault is planned."""

    def __init__(self, target: Address) -> None:
        self.target = target
        self.requests = 0
        self._faults: list[Fault] = []
        self._sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._closing = False
        self._listener = socket.create_server((HOST, 0))
        self.port: int = self._listener.getsockname()[1]
        self._start(self._accept)

    @property
    def url(self) -> str:
        """The URL to give to a client."""
        return f"redis://{HOST}:{self.port}/0"

    def plan(self, kind: Kind, *, nth: int = 1, command: str = "EVALSHA") -> Fault:
        """Plan one fault for the nth request of this command from now on, on whatever connection."""
        fault = Fault(kind, command.encode(), nth, self._connect)
        with self._lock:
            self._faults.append(fault)
        return fault

    def cut(self) -> None:
        """Cut every connection of the moment."""
        with self._lock:
            for each in self._sockets:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Cut everything, stop listening, and wait for the threads."""
        self._closing = True
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listener.close()
        for fault in self._faults:
            fault.release()
        self.cut()
        for thread in self._threads:
            thread.join(WAIT)
            assert not thread.is_alive(), "a thread of the proxy did not end"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self, act: Callable[[], None]) -> None:
        thread = threading.Thread(target=act, name="proxy", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._start(lambda client=client: self._serve(client))  # type: ignore[misc]

    def _connect(self) -> socket.socket:
        if isinstance(self.target, str):
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.connect(self.target)
            return connection
        connection = socket.create_connection(self.target)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def _serve(self, client: socket.socket) -> None:
        """Carry one connection until either side, or a fault, ends it."""
        with suppress(OSError, EOFError), client, self._connect() as server:
            with self._lock:
                self._sockets |= {client, server}
            try:
                with client.makefile("rb") as requests, server.makefile("rb") as replies:
                    while not self._closing and self._carry(client, server, requests, replies):
                        pass
            finally:
                with self._lock:
                    self._sockets -= {client, server}

    def _carry(
        self, client: socket.socket, server: socket.socket, requests: BufferedReader, replies: BufferedReader
    ) -> bool:
        """Carry one request and its reply, and tell whether the connection goes on."""
        request = read_frame(requests)
        fault = self._meeting(request)
        kind = fault.kind if fault else None
        if fault and kind in (Kind.LOSE_REQUEST, Kind.HOLD_REQUEST, Kind.CUT_REQUEST, Kind.SWALLOW):
            if kind is Kind.CUT_REQUEST:
                server.sendall(request[: len(request) // 2])
            fault.met.set()
            if kind is Kind.SWALLOW:
                fault.await_release()
            return False
        server.sendall(request)
        reply = read_frame(replies)
        if fault:
            fault.reply = reply
            fault.met.set()
            if kind is Kind.CUT_REPLY:
                client.sendall(reply[: len(reply) // 2])
            if kind is not Kind.HOLD_REPLY:
                return False
            fault.await_release()
        client.sendall(reply)
        return True

    def _meeting(self, request: bytes) -> Fault | None:
        """Give the fault that this request meets, if any."""
        command = request.split(b"\r\n", 3)[2].upper()
        with self._lock:
            self.requests += 1
            for fault in self._faults:
                if fault.command == command and fault.left > 0:
                    fault.left -= 1
                    if not fault.left:
                        fault.request = request
                        return fault
        return None


def read_frame(stream: BufferedReader) -> bytes:
    """Read one frame, a request or a reply, and give its very bytes."""
    line = stream.readline()
    if not line.endswith(b"\r\n"):
        raise EOFError
    size = int(line[1:]) if line[:1] in b"$*" else -1
    if line[:1] == b"$" and size >= 0:
        body = stream.read(size + 2)
        if len(body) < size + 2:
            raise EOFError
        return line + body
    if line[:1] == b"*":
        return line + b"".join(read_frame(stream) for _ in range(max(size, 0)))
    return line
