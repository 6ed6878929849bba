"""A way to the tools of a fresh profile."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.mcp.serving import WAYS, Agents, Serving, agents
from tests.queue import Queue


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, queue: Queue) -> Iterator[Agents]:
    """Each way in turn: inside this process, over HTTP, over standard input and output, and over the bridge."""
    road, era = request.param
    with agents(queue, road, era) as opened:
        yield opened


@pytest.fixture
def serving(queue: Queue) -> Iterator[Serving]:
    """The doors over HTTP."""
    with Serving(queue.engine.url) as started:
        yield started
