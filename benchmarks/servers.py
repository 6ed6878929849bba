"""Start private servers for one measurement, and read what they count."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import redis

from shampoo_queue import Shampoo
from shampoo_queue.embedded import EmbeddedServer

HOST = "127.0.0.1"
STARTUP = 20.0  # seconds
FLOOR_SCRIPT = "return 1"


@dataclass(frozen=True)
class Server:
    """One running server: the URL that a queue connects to, and where its raw commands go."""

    engine: str
    url: str
    address: tuple[str, int] | str

    @property
    def version(self) -> str:
        with self.client() as client:
            facts = client.info("server")
        name = "valkey" if "valkey_version" in facts else "redis"
        return f"{name.title()} {facts[f'{name}_version']}"

    def client(self) -> redis.Redis:
        if isinstance(self.address, str):
            return redis.Redis(unix_socket_path=self.address, decode_responses=True)
        return redis.Redis(*self.address, decode_responses=True)

    def flush(self) -> None:
        with self.client() as client:
            client.flushall()


@contextmanager
def started(engine: str) -> Iterator[Server]:
    """Run a server until the end of the block: ``redis``, which keeps nothing on disk, or ``embedded``, which does."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-"))
        if engine == "redis":
            yield Server(engine, *stack.enter_context(_redis(folder)))
        else:
            yield Server(engine, *stack.enter_context(_embedded(folder)))


@contextmanager
def _redis(folder: str) -> Iterator[tuple[str, tuple[str, int]]]:
    binary = shutil.which("redis-server")
    if binary is None:
        raise RuntimeError("redis-server is not on PATH")
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port = probe.getsockname()[1]
    options = ["--port", str(port), "--bind", HOST, "--dir", folder, "--save", "", "--appendonly", "no"]
    process = subprocess.Popen([binary, *options], stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        _await_answer(process, port)
        yield f"redis://{HOST}:{port}/0", (HOST, port)
    finally:
        process.kill()
        process.wait()


def _await_answer(process: subprocess.Popen[bytes], port: int) -> None:
    until = time.monotonic() + STARTUP
    with redis.Redis(HOST, port) as client:
        while True:
            try:
                client.ping()
                return
            except redis.RedisError:
                if process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError(f"redis-server did not answer on port {port}") from None
                time.sleep(0.02)


@contextmanager
def _embedded(folder: str) -> Iterator[tuple[str, str]]:
    path = Path(folder, "data")
    url = f"embedded://{path}"
    with Shampoo.connect(url):
        yield url, EmbeddedServer(path).socket_path


def floor_ms(server: Server, seconds: float) -> float:
    """Give the milliseconds of one no-op script on one connection of redis-py, called one after the other."""
    with server.client() as client:
        sha = client.script_load(FLOOR_SCRIPT)
        client.evalsha(sha, 0)
        calls, began = 0, time.perf_counter()
        while (taken := time.perf_counter() - began) < seconds:
            for _ in range(20):
                client.evalsha(sha, 0)
            calls += 20
    return taken / calls * 1000


class Monitor:
    """Count what clients send and what scripts call, by command, as MONITOR tells, until the end of the block."""

    def __init__(self, server: Server) -> None:
        self.sent: Counter[str] = Counter()
        self.inner: Counter[str] = Counter()
        self._socket = socket.socket(socket.AF_UNIX if isinstance(server.address, str) else socket.AF_INET)
        self._socket.connect(server.address)
        self._lines = self._socket.makefile("rb")
        self._thread = threading.Thread(target=self._count, daemon=True)

    def __enter__(self) -> Self:
        self._socket.sendall(b"MONITOR\r\n")
        self._lines.readline()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._lines.close()
        self._socket.close()

    def _count(self) -> None:
        for line in self._lines:
            # +1700000000.000000 [0 127.0.0.1:50000] "BLPOP" ...; a script's calls have [0 lua] there
            where, _, what = line.partition(b"] ")
            counter = self.inner if where.endswith((b" lua", b" script")) else self.sent
            counter[what.split(b'"')[1].decode().lower()] += 1
