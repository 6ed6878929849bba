"""A tool call is one round trip: one EVALSHA, whatever the tool, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import REAL
from tests.faults.cases import WRITES, Case, Stage
from tests.faults.flavours import Asyncio, Blocking
from tests.faults.proxy import Proxy
from tests.queue import Clock, Queue

pytestmark = pytest.mark.parametrize("engine", REAL, indirect=True)

LISTING = Case(
    "lane_list",
    Stage.opened,
    lambda flavour, stage: flavour.tool("c", "lane_list"),
    lambda stage: None,
    (),
)


@pytest.fixture
def stage(queue: Queue, clock: Clock) -> Stage:
    stage = Stage(queue)
    stage.load_scripts()
    return stage


def calls(queue: Queue) -> dict[str, int]:
    """How often the server ran each command since its statistics were reset."""
    lines = queue.command("INFO", "commandstats").decode().splitlines()
    found = (line.removeprefix("cmdstat_").split(":calls=") for line in lines if line.startswith("cmdstat_"))
    return {name: int(rest.split(",")[0]) for name, rest in found}


@pytest.mark.parametrize("case", [*WRITES, LISTING], ids=lambda case: case.name)
def test_every_call_is_one_evalsha(
    case: Case, stage: Stage, proxy: Proxy, connect: Callable[..., Blocking | Asyncio]
) -> None:
    """Counted by the server, and by a proxy between, for a command that fails early is in no statistics."""
    case.prepare(stage)
    flavour: Any = connect(stage.queue, proxy.url)
    flavour.tool("c", "lane_list")  # opens the connection
    stage.queue.command("CONFIG", "RESETSTAT")
    before = proxy.requests
    case.act(flavour, stage)
    assert calls(stage.queue)["evalsha"] == 1
    assert proxy.requests - before == 1
