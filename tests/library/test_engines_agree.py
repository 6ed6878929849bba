"""The same run on the in-memory engine and on real servers: the same answers, and the same keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from shampoo_queue import contract
from tests.conftest import _start
from tests.library.flavours import Flavour
from tests.library.script import Names, stored, told
from tests.queue import Engine, Queue

KINDS = ("redis7", "embedded", "memory")


@pytest.fixture
def queues(engines: dict[str, Engine], tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Queue]]:
    """One fresh profile on each kind of engine."""
    opened = []
    for name in KINDS:
        if name not in engines:
            engines[name] = _start(name, tmp_path_factory.mktemp(name))
        opened.append(Queue(engines[name]))
    yield opened
    for queue in opened:
        found = queue.problems()
        queue.close()
        assert not found, "\n".join(found)


def test_one_long_run_gives_the_same_answers_and_the_same_keys_on_every_engine(
    queues: list[Queue], flavour: Flavour
) -> None:
    """Field report 38: what the in-memory engine answers and stores is what real servers answer and store."""
    told_by: list[list[Any]] = []
    keys: list[list[Any]] = []
    for queue in queues:
        clock = queue.stop_clock()
        names = Names(queue.profile)
        told_by.append(names.plain(told(flavour.open(queue, operator="op"), clock)))
        keys.append(stored(queue, names))
    for name, told_here, kept_here in zip(KINDS[1:], told_by[1:], keys[1:], strict=True):
        for step, (there, here) in enumerate(zip(told_by[0], told_here, strict=True)):
            assert here == there, f"step {step} on {name}"
        for there, here in zip(keys[0], kept_here, strict=True):
            assert here == there, f"on {name}"


def test_the_long_run_meets_every_tool_and_nearly_every_refusal(queues: list[Queue], flavour: Flavour) -> None:
    """Field report 38: a run that left something out would prove little; this one says what it saw."""
    queue = queues[2]
    clock = queue.stop_clock()
    text = repr(told(flavour.open(queue), clock))
    assert all(tool.result.__name__ in text for tool in contract.TOOLS)
    seen = set(queue.events())
    assert set(contract.EVENT_FACTS) == seen
    for refusal in (
        *("JobNotFound", "JobNotClaimed", "LeaseExpired", "JobAlreadyTerminal", "LaneNotFound", "ProjectMismatch"),
        *("UnknownLane", "QuorumNotOpen", "UnknownClient", "TaskNotFound", "DependencyNotInQuorum", "Denied"),
        *("IllegalLaneTransition", "ReviewClosed", "NothingUnderReview", "LaneNotMergeable", "RequestIdReused"),
        *("Unauthenticated", "InvalidArgument", "UnknownPrincipal", "PrincipalExists", "UnknownTask"),
        *("JobNotRequeueable", "UnknownToken", "TokenNotLive"),
    ):
        assert f"'{refusal}'" in text, refusal
