"""The library's two flavours, and servers that a test may stop, pause and start again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.library.flavours import FLAVOURS, Flavour
from tests.queue import Engine, Queue
from tests.servers import Server, redis, valkey


@pytest.fixture(params=FLAVOURS)
def flavour(request: pytest.FixtureRequest) -> Iterator[Flavour]:
    """Blocking, then asyncio."""
    opened = Flavour(request.param)
    yield opened
    opened.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server of the test's own, which keeps its data over a restart."""
    with Server(redis() or valkey(), tmp_path, "--appendonly", "yes", "--appendfsync", "always") as started:
        yield started


@pytest.fixture
def own(server: Server) -> Iterator[Queue]:
    """A fresh, audited profile on the test's own server."""
    opened = Queue(Engine("own", server.url, lambda: None))
    yield opened
    found = opened.problems()
    opened.close()
    assert not found, "\n".join(found)
