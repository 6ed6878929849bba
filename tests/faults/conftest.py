"""Real servers that a test may hurt, a proxy before a shared one, and the library in both flavours."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest

from shampoo_queue import Shampoo
from tests.conftest import IN_CI
from tests.faults.flavours import FLAVOURS, Asyncio, Blocking
from tests.faults.processes import Nursery
from tests.faults.proxy import Address, Proxy
from tests.queue import Engine, Queue
from tests.servers import Cluster, SentinelTrio, Server, redis, valkey, wait_until


@pytest.fixture(scope="session")
def _held() -> Iterator[dict[str, Shampoo]]:
    held: dict[str, Shampoo] = {}
    yield held
    for shampoo in held.values():
        shampoo.close()


@pytest.fixture(autouse=True)
def _keep_the_embedded_server(request: pytest.FixtureRequest, _held: dict[str, Shampoo]) -> None:
    """Hold the embedded server for all tests here, rather than let the end of each test stop it."""
    if "engine" in request.fixturenames:
        engine: Engine = request.getfixturevalue("engine")
        if engine.name == "embedded" and engine.url not in _held:
            _held[engine.url] = Shampoo.connect(engine.url)


@pytest.fixture(scope="session")
def _nursery() -> Iterator[Nursery]:
    with Nursery() as nursery:
        yield nursery


@pytest.fixture
def nursery(_nursery: Nursery) -> Iterator[Nursery]:
    """Fork processes that know the library; they end with the test."""
    yield _nursery
    _nursery.clear()


class Start(Protocol):
    """Start one more server of the same binary."""

    def __call__(self, *options: str) -> Server: ...


class Open(Protocol):
    """Open a fresh profile behind a URL, audited after the test."""

    def __call__(self, url: str) -> Queue: ...


@pytest.fixture(params=["valkey", "redis"])
def binary(request: pytest.FixtureRequest) -> str:
    """The path of each server program in turn."""
    found = valkey() if request.param == "valkey" else redis()
    if found is None:
        assert not IN_CI, "redis-server is always there in CI"
        pytest.skip("there is no redis-server on PATH: apt-get install redis-server")
    return found


@pytest.fixture
def start(binary: str, tmp_path: Path) -> Iterator[Start]:
    """Start servers for this test alone, which it may hurt."""
    started: list[Server] = []

    def start(*options: str) -> Server:
        server = Server(binary, tmp_path, *options)
        server.start()
        started.append(server)
        return server

    yield start
    for server in started:
        server.kill()


@pytest.fixture
def opened() -> Iterator[Open]:
    """Open fresh profiles on servers that outlive the test's end; what the test leaves there is audited."""
    queues: list[Queue] = []

    def open_(url: str) -> Queue:
        queues.append(Queue(Engine("own", url, lambda: None)))
        return queues[-1]

    yield open_
    for queue in queues:
        found = queue.problems()
        queue.close()
        assert not found, "\n".join(found)


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SentinelTrio]:
    """A primary, a replica and three sentinels, for the tests of one file."""
    with SentinelTrio(valkey(), tmp_path_factory.mktemp("trio")) as trio:
        yield trio
    gc.collect()  # unclosed connections complain when they are collected, which must not happen in a compiler run


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes that share the slots, for the tests of one file."""
    with Cluster(valkey(), tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster
    gc.collect()


@contextmanager
def closing_all_of(servers: Sequence[Server]) -> Iterator[None]:
    """Hold what happens inside to closing every connection that it opens."""

    def connections() -> int:
        return sum(str(server.call("CLIENT", "LIST")).count("lib-name=redis-py") for server in servers)

    before = connections()
    gc.disable()  # what is merely forgotten does not count as closed
    try:
        yield
        wait_until(lambda: connections() <= before, "every connection is closed", 1)
    finally:
        gc.enable()


def address(queue: Queue) -> Address:
    """Where the server of a profile listens."""
    known: dict[str, Any] = queue.shampoo._wire._pool.connection_kwargs
    return str(known["path"]) if "path" in known else (str(known["host"]), int(known["port"]))


@pytest.fixture
def proxy(queue: Queue) -> Iterator[Proxy]:
    """A proxy before the server of the profile."""
    with Proxy(address(queue)) as proxy:
        yield proxy


@pytest.fixture(params=["sync", "async"])
def connect(request: pytest.FixtureRequest) -> Iterator[Callable[..., Blocking | Asyncio]]:
    """Open a profile through a URL in each flavour of the library in turn."""
    flavours: list[Blocking | Asyncio] = []

    def connect(queue: Queue, url: str, **options: Any) -> Blocking | Asyncio:
        flavours.append(FLAVOURS[request.param](queue, url, **options))
        return flavours[-1]

    yield connect
    for flavour in flavours:
        flavour.close()
