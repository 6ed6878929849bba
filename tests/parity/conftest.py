"""One server process for all profiles of the engine, and each door to a profile of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.parity.doors import DOORS, Door
from tests.parity.serving import Serve
from tests.queue import Engine, Queue

Open = Callable[[str], Door]


@pytest.fixture(scope="session")
def servers() -> Iterator[dict[str, Serve]]:
    started: dict[str, Serve] = {}
    yield started
    for server in started.values():
        assert server.stop() == 0
        assert "Traceback" not in server.err


@pytest.fixture
def serving(engine: Engine, servers: dict[str, Serve]) -> Serve:
    """``shampoo serve`` on the engine."""
    if engine.name not in servers:
        servers[engine.name] = Serve(engine.url, "--failed-logins-per-minute", "1000000", "--log-level", "warning")
    assert servers[engine.name].url
    return servers[engine.name]


@pytest.fixture
def opened(engine: Engine, serving: Serve) -> Iterator[Open]:
    """Open a door by its name, on a fresh profile that is audited afterwards."""
    doors: list[Door] = []

    def opening(name: str) -> Door:
        doors.append(DOORS[name](Queue(engine), serving))
        return doors[-1]

    yield opening
    found: list[str] = []
    for door in doors:
        door.close()
        found += door.queue.problems()
        door.queue.close()
    assert not found, "\n".join(found)
