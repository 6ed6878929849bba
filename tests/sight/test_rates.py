"""Events by minute, held against a history that is known."""

from __future__ import annotations

from typing import Any

import pytest

from shampoo_queue.errors import InvalidArgument
from shampoo_queue.tools import iso
from tests.conftest import REAL
from tests.queue import Clock, Queue
from tests.sight.looks import Looks, people

real = pytest.mark.parametrize("engine", REAL, indirect=True)
MINUTE = 60_000


def test_a_known_history_is_told_exactly(queue: Queue, clock: Clock) -> None:
    begun = clock.now - clock.now % MINUTE
    clock.set(begun)
    called = people(queue)
    registered = len(queue.shampoo.history(limit=1000))
    clock.set(begun + 3 * MINUTE)
    queue.create(called["boss"], 4, project="a")
    clock.set(begun + 4 * MINUTE - 1)
    first = called["a"].job_claim()
    clock.set(begun + 4 * MINUTE)
    called["a"].complete(first)
    second = called["a"].job_claim()
    clock.set(begun + 6 * MINUTE + 1_000)
    called["a"].fail(second)
    told = Looks(queue, "star").queue_rates()
    assert told["available"] and len(told["minutes"]) == 60
    nothing: dict[str, Any] = {
        "events": 0,
        "sampled": 0,
        "created": 0.0,
        "claimed": 0.0,
        "completed": 0.0,
        "failed": 0.0,
    }
    nothing |= {"wait_ms": None, "run_ms": None}
    expected: dict[int, dict[str, Any]] = {
        0: {"events": registered, "sampled": registered},
        3: {"events": 5, "sampled": 5, "created": 4.0, "claimed": 1.0, "wait_ms": 59_999.0},
        4: {"events": 2, "sampled": 2, "completed": 1.0, "claimed": 1.0, "wait_ms": 60_000.0, "run_ms": 1.0},
        6: {"events": 1, "sampled": 1, "failed": 1.0, "run_ms": 121_000.0},
    }
    for n, minute in enumerate(told["minutes"][-7:]):
        assert minute == {"at": iso(begun + n * MINUTE), **nothing, **expected.get(n, {})}
    assert all(minute["events"] == 0 for minute in told["minutes"][:-7])
    assert Looks(queue, "star").queue_rates(minutes=4)["minutes"] == told["minutes"][-4:]


@real
def test_a_busy_minute_is_counted_exactly_and_estimated_otherwise(queue: Queue, clock: Clock) -> None:
    called = people(queue)
    clock.advance(120)
    jobs = called["boss"].create_many([{"kind": "k", "project": "a"}] * 300)
    for claim in called["a"].claim_many(100):
        called["a"].complete(claim)
    minute = Looks(queue, "star").queue_rates(minutes=2)["minutes"][-1]
    assert len(jobs) == 300 and minute["events"] == 500 and minute["sampled"] == 32
    assert minute["created"] + minute["claimed"] + minute["completed"] == pytest.approx(500)
    assert minute["created"] == pytest.approx(300, abs=20)
    assert minute["completed"] == pytest.approx(100, abs=20)


@real
def test_an_estimate_does_not_fall_in_with_a_rhythm(queue: Queue, clock: Clock) -> None:
    called = people(queue)
    called["boss"].create_many([{"kind": "k", "project": "a"}] * 256)
    clock.advance(60)
    for _ in range(256):  # claimed, completed, claimed, completed: 512 events, so every sixteenth is read
        called["a"].complete(called["a"].job_claim())
    minute = Looks(queue, "star").queue_rates(minutes=1)["minutes"][0]
    assert (minute["events"], minute["sampled"]) == (512, 32)
    assert minute["claimed"] == pytest.approx(256, rel=0.25)
    assert minute["completed"] == pytest.approx(256, rel=0.25)


@real
def test_an_empty_or_a_quiet_queue_has_rates_too(queue: Queue) -> None:
    queue.principal("star", "*")
    minutes = Looks(queue, "star").queue_rates(minutes=3)["minutes"]
    assert sum(minute["events"] for minute in minutes) == 2  # the principal and its grant
    for wrong in ("3", True, 1.5):
        with pytest.raises(InvalidArgument):
            Looks(queue, "star").queue_rates(minutes=wrong)


@real
def test_whoever_does_not_cover_all_is_told_no_rates(queue: Queue) -> None:
    queue.create(people(queue)["boss"], project="a")
    told = Looks(queue, "a").queue_rates()
    assert (told["available"], told["minutes"]) == (False, [])
