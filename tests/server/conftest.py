"""One server of the doors for each engine, and tokens for principals of a fresh profile."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.queue import Engine, Queue
from tests.server.door import Door


@pytest.fixture(scope="session")
def doors() -> Iterator[dict[str, Door]]:
    started: dict[str, Door] = {}
    yield started
    for door in started.values():
        door.__exit__()


@pytest.fixture
def door(engine: Engine, doors: dict[str, Door]) -> Door:
    """A server that serves every profile of the engine."""
    if engine.name not in doors:
        doors[engine.name] = Door(engine.url, failed_per_minute=1_000_000).__enter__()
    return doors[engine.name]


@pytest.fixture
def conductor(queue: Queue) -> str:
    """The token of a conductor with project p and untagged work."""
    return token(queue, "boss", conductor=True)


@pytest.fixture
def worker(queue: Queue) -> str:
    """The token of a principal with project p and untagged work."""
    return token(queue, "worker")


def token(queue: Queue, client_id: str, *, scope: str = "tools", conductor: bool = False) -> str:
    """Register a principal and give a token of it."""
    queue.principal(client_id, "", "p", conductor=conductor)
    return queue.shampoo.registry.issue_token(client_id, scope=scope).token
