"""Events by minute, held against a history that is known."""

from __future__ import annotations

from typing import Any

import pytest

from shampoo_queue.errors import InvalidArgument
from shampoo_queue.moves import Operation
from shampoo_queue.rates import Kept, Tally, last_minutes
from shampoo_queue.sight import SightOperations
from shampoo_queue.tools import Caller, iso
from tests.conftest import REAL
from tests.queue import Clock, Queue
from tests.sight.looks import Looks, people
from tests.sight.test_bounds import spent

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


def busy(queue: Queue, clock: Clock, created: int, completed: int, failed: int) -> None:
    """Create so many jobs within half a minute, and end some of them at once, claim by claim."""
    called = people(queue)
    clock.set(clock.now - clock.now % MINUTE + MINUTE)
    for _ in range(0, created, created // 20):
        called["boss"].create_many([{"kind": "k", "project": "a"}] * (created // 20))
        clock.advance(1)
    ended, every = 0, (completed + failed) / failed
    while ended < completed + failed:
        for claim in called["a"].claim_many(min(100, completed + failed - ended)):
            ended += 1
            move = called["a"].fail if int(ended / every) > int((ended - 1) / every) else called["a"].complete
            move(claim)
        clock.advance(0.5)


KNOWN = [
    pytest.param(4_000, 361, 19, id="4,000"),
    pytest.param(20_000, 1_801, 93, id="20,000", marks=pytest.mark.slow),
]


@real
@pytest.mark.parametrize(("created", "completed", "failed"), KNOWN)
def test_a_busy_minute_is_counted_exactly_and_what_is_rare_with_it(
    queue: Queue, clock: Clock, created: int, completed: int, failed: int
) -> None:
    busy(queue, clock, created, completed, failed)
    told = {"created": created, "claimed": completed + failed, "completed": completed, "failed": failed}
    minute = Looks(queue, "star", Kept()).queue_rates(minutes=2)["minutes"][-1]
    assert {name: minute[name] for name in told} == told
    assert minute["events"] == minute["sampled"] == sum(told.values())


@real
@pytest.mark.parametrize(("created", "completed", "failed"), KNOWN)
def test_what_there_is_no_time_to_read_is_reckoned_from_a_thousand_events(
    queue: Queue, clock: Clock, created: int, completed: int, failed: int
) -> None:
    busy(queue, clock, created, completed, failed)
    look = SightOperations(Caller("star"))._look
    told = queue.shampoo._wire.run(last_minutes(look, 1, Kept(), spare=0))
    (minute,) = told["minutes"]
    assert minute["events"] == created + 2 * (completed + failed) and minute["sampled"] == 1_000
    assert minute["created"] == pytest.approx(created, rel=0.05)
    assert minute["claimed"] == pytest.approx(completed + failed, rel=0.25)
    assert minute["completed"] == pytest.approx(completed, rel=0.25)
    assert 0 < minute["failed"] < 3 * failed
    exact = Looks(queue, "star", Kept()).queue_rates(minutes=1)["minutes"][0]
    assert minute["wait_ms"] == pytest.approx(exact["wait_ms"], rel=0.2)


@real
def test_a_sample_does_not_fall_in_with_a_rhythm(queue: Queue, clock: Clock) -> None:
    called = people(queue)
    called["boss"].create_many([{"kind": "k", "project": "a"}] * 1_000)
    clock.advance(60)
    for _ in range(20):  # 50 claims, then 50 ends
        for claim in called["a"].claim_many(50):
            called["a"].complete(claim)
    look = SightOperations(Caller("star"))._look
    (minute,) = queue.shampoo._wire.run(last_minutes(look, 1, Kept(), spare=0))["minutes"]
    assert (minute["events"], minute["sampled"]) == (2_000, 1_000)
    assert minute["claimed"] == pytest.approx(1_000, rel=0.15)
    assert minute["completed"] == pytest.approx(1_000, rel=0.15)


# What is kept ----------------------------------------------------------------------------------------------------


@real
def test_only_what_is_new_is_read_again(queue: Queue, clock: Clock) -> None:
    called, looks = people(queue), Looks(queue, "star", Kept())
    for _ in range(5):
        clock.advance(60)
        queue.create(called["boss"], 20, project="a")
    first = looks.queue_rates()
    ran, calls, _ = spent(queue, lambda: looks.queue_rates())
    assert ran == 1, calls
    queue.create(called["boss"], 3, project="a")
    ran, calls, _ = spent(queue, lambda: looks.queue_rates())
    assert ran == 2, "the minutes, and three events of the present one"
    last = looks.queue_rates()["minutes"]
    assert last[:-1] == first["minutes"][:-1] and (last[-1]["created"], last[-1]["sampled"]) == (23.0, 23)
    assert looks.queue_rates() == Looks(queue, "star", Kept()).queue_rates()


@real
def test_a_long_row_is_read_by_one_look_after_another(queue: Queue, clock: Clock) -> None:
    busy(queue, clock, 4_000, 361, 19)
    clock.advance(60)
    look, kept, sampled = SightOperations(Caller("star"))._look, Kept(), []
    for _ in range(6):
        minute = queue.shampoo._wire.run(last_minutes(look, 2, kept, spare=2))["minutes"][0]
        sampled.append(minute["sampled"])
        assert minute["events"] == 4_760 and minute["created"] == pytest.approx(4_000, rel=0.1)
    assert sampled == [1_000] * 4 + [4_760] * 2


@real
def test_what_is_kept_is_shown_to_nobody_who_does_not_cover_all(queue: Queue, clock: Clock) -> None:
    queue.create(people(queue)["boss"], 5, project="a")
    kept = Kept()
    for name, available in (("star", True), ("a", False), ("star", True)):
        assert Looks(queue, name, kept).queue_rates()["available"] is available
    queue.shampoo.registry.revoke("star", "*")
    assert Looks(queue, "star", kept).queue_rates()["minutes"] == []


@real
def test_a_grant_revoked_in_the_middle_of_a_look_ends_it(queue: Queue, clock: Clock) -> None:
    queue.create(people(queue)["boss"], 5, project="a")
    steps = last_minutes(SightOperations(Caller("star"))._look, 2, Kept())

    def revoking() -> Operation[Any]:
        reply = yield next(steps)
        queue.shampoo.registry.revoke("star", "*")
        return (yield from _rest(steps, reply))

    assert queue.shampoo._wire.run(revoking()) == {"minutes": [], "available": False, "now": iso(clock.now)}


def _rest(steps: Operation[Any], reply: Any) -> Operation[Any]:
    while True:
        try:
            step = steps.send(reply)
        except StopIteration as ended:
            return ended.value
        reply = yield step


@real
def test_profiles_do_not_share_what_is_kept_nor_does_one_that_began_anew(queue: Queue, clock: Clock) -> None:
    other = Queue(queue.engine)
    other.stop_clock(clock.now)
    kept = Kept()
    for one, count in ((queue, 3), (other, 8)):
        boss = people(one)["boss"]
        Clock(one, clock.now + MINUTE)
        one.create(boss, count, project="a")
    for _ in range(2):
        assert Looks(queue, "star", kept).queue_rates(minutes=1)["minutes"][0]["created"] == 3
        assert Looks(other, "star", kept).queue_rates(minutes=1)["minutes"][0]["created"] == 8
    other.close()
    again = Queue(queue.engine)
    again.shampoo.close()
    again.profile = other.profile
    again.shampoo = again.connect()
    again.stop_clock(clock.now)
    boss = people(again)["boss"]
    Clock(again, clock.now + MINUTE)
    again.create(boss, 4, project="a")
    assert Looks(again, "star", kept).queue_rates(minutes=1)["minutes"][0]["created"] == 4
    again.close()


def test_what_is_kept_is_bounded_and_the_oldest_goes() -> None:
    kept = Kept(3)
    for n in range(5):
        kept.put(Tally(n), "p", n)
        kept.get("p", 2)
    assert len(kept) == 3
    assert [n for n in range(5) if kept.get("p", n)] == [2, 3, 4]


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
