"""``kind_limit``, an operator's move: at most so many jobs of a kind run at a time over the whole profile."""

from __future__ import annotations

import random
from typing import Any

import pytest

from shampoo_queue import Client
from shampoo_queue.contract import JobClaimResult
from tests.contract.cast import PROJECT, last_event, raw, refused
from tests.contract.idle import Idle
from tests.queue import Clock, Queue

BY_HAND = ("operator", "host/1", "~abcdefghijkl.0.1", "abcdefghijkl.0", "0123456789abcdef01234567", "")


def claims(client: Client, count: int = 100, **given: Any) -> list[JobClaimResult]:
    """Claim until there is nothing more."""
    found: list[JobClaimResult] = []
    while len(found) < count and (claim := client.job_claim(**given)):
        found.append(claim)
    return found


def test_no_more_run_than_the_limit_says_and_an_end_makes_room(queue: Queue, clock: Clock) -> None:
    conductor, worker = queue.principal("c", PROJECT, conductor=True), queue.principal("w", PROJECT)
    assert queue.shampoo.ops.limit_kind("k", 2) is True
    assert queue.shampoo.ops.kind_limits() == {"k": 2}
    jobs = queue.create(conductor, 4, project=PROJECT)
    first, second = claims(worker, kind="k")
    assert [first.job_id, second.job_id] == jobs[:2]
    assert claims(conductor) == []
    worker.complete(first)
    (third,) = claims(conductor)
    assert third.job_id == jobs[2]
    clock.advance(1)
    worker.release(second)
    assert [claim.job_id for claim in claims(worker)] == [jobs[3]]  # it has stood longer
    queue.shampoo.ops.cancel(jobs[2], "enough")
    assert [claim.job_id for claim in claims(worker)] == [jobs[1]]


def test_a_limit_is_told_in_history_and_only_when_it_changes(queue: Queue, clock: Clock) -> None:
    assert queue.shampoo.ops.limit_kind("k", 3)
    before = raw(queue)
    assert queue.shampoo.ops.limit_kind("k", 3) is False
    assert queue.shampoo.ops.limit_kind("never", None) is False
    assert {key: value for key, value in raw(queue).items() if b":replay:" not in key} == {
        key: value for key, value in before.items() if b":replay:" not in key
    }
    assert queue.shampoo.ops.limit_kind("k", None)
    assert queue.shampoo.ops.kind_limits() == {}
    event = last_event(queue, "k")
    assert event.pop("holder")
    assert event == {"event": "kind.limited", "entity_id": "k", "actor": "operator", "from": "3", "to": ""}
    assert queue.events("k") == ["kind.limited", "kind.limited"]


@pytest.mark.parametrize("most", [0, -1, 1.5, "4", True, 1_000_001, float("nan")], ids=str)
def test_a_limit_that_is_no_whole_number_from_one_on_is_refused(queue: Queue, most: Any) -> None:
    refused(queue, "invalid_argument", queue.shampoo.ops.limit_kind, "k", most)


@pytest.mark.parametrize("kind", ["", "x" * 65, "a\n", "\ud800", None, 5], ids=repr)
def test_a_kind_that_no_job_can_have_is_refused(queue: Queue, kind: Any) -> None:
    refused(queue, "invalid_argument", queue.shampoo.ops.limit_kind, kind, 1)


def test_a_kind_is_taken_to_the_letter(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    kinds = ["K", " k", "k:", "%6B", "{k}", "*", "\U0001f600" * 64, "k"]
    for kind in kinds:
        queue.create(conductor, 2, kind=kind, project=PROJECT)
        if kind != "k":
            queue.shampoo.ops.limit_kind(kind, 1)
    found = claims(conductor)
    assert sorted(claim.kind for claim in found) == sorted([*kinds, "k"])
    assert len(claims(conductor, kind="*")) == 0


def test_fifty_kinds_may_have_a_limit(queue: Queue, clock: Clock) -> None:
    limit = queue.shampoo.ops.limit_kind
    for n in range(50):
        limit(f"k{n}", 1)
    refused(queue, "limit_reached", limit, "one more", 1)
    assert limit("k7", 2)
    assert limit("k7", None)
    assert limit("one more", 1)
    refused(queue, "limit_reached", limit, "k7", 1)
    assert len(queue.shampoo.ops.kind_limits()) == 50


def test_a_repeat_changes_no_later_limit(queue: Queue, clock: Clock) -> None:
    assert queue.move("kind_limit", *BY_HAND, "k", "4") == 1
    queue.shampoo.ops.limit_kind("k", 9)
    before = raw(queue)
    assert queue.move("kind_limit", *BY_HAND, "k", "4") == 1
    assert raw(queue) == before
    refused(queue, "request_id_reused", queue.move, "kind_limit", *BY_HAND[:4], "f" * 24, "", "k", "5")


def test_lowering_a_limit_stops_nothing_that_runs(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    queue.create(conductor, 6, project=PROJECT)
    running = claims(conductor, 4)
    queue.shampoo.ops.limit_kind("k", 2)
    for claim in running[:2]:
        conductor.renew(claim)
        assert claims(conductor) == []
        conductor.complete(claim)
    assert claims(conductor) == []
    conductor.complete(running[2])
    assert len(claims(conductor)) == 1


def test_a_lapsed_lease_makes_room_in_that_very_millisecond(queue: Queue, clock: Clock) -> None:
    conductor, worker = queue.principal("c", PROJECT, conductor=True), queue.principal("w", PROJECT)
    queue.shampoo.ops.limit_kind("k", 1)
    lapsing, waiting = queue.create(conductor, 2, project=PROJECT)
    late = conductor.job_claim(lease_seconds=10)
    assert late.job_id == lapsing
    clock.advance(9.999)
    assert claims(worker) == []
    clock.advance(0.001)
    assert [claim.job_id for claim in claims(worker)] == [waiting]
    refused(queue, "lease_expired", conductor.renew, late)


def test_a_lapsed_last_attempt_makes_room_too(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    queue.create(conductor, project=PROJECT)
    for _ in range(4):
        conductor.release(conductor.job_claim())
    queue.shampoo.ops.limit_kind("k", 1)
    assert conductor.job_claim(lease_seconds=10).attempts == 5
    (behind,) = queue.create(conductor, project=PROJECT)
    assert claims(conductor) == []
    clock.advance(10)
    assert [claim.job_id for claim in claims(conductor)] == [behind]


def test_renewing_keeps_the_place(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    queue.shampoo.ops.limit_kind("k", 1)
    queue.create(conductor, 2, project=PROJECT)
    claim = conductor.job_claim(lease_seconds=10)
    for _ in range(3):
        clock.advance(9.999)
        conductor.renew(claim)
        assert claims(conductor) == []
    clock.advance(10)
    assert len(claims(conductor)) == 1


@pytest.mark.parametrize("grants", [(PROJECT, "q"), ("*",)], ids=str)
@pytest.mark.parametrize("kind", [None, "free"])
@pytest.mark.parametrize("held", [1, 50])
def test_a_held_kind_is_passed_over_and_others_are_served(
    queue: Queue, clock: Clock, grants: tuple[str, ...], kind: str | None, held: int
) -> None:
    conductor, worker = queue.principal("c", PROJECT, "q", conductor=True), queue.principal("w", *grants)
    for n in range(held):
        queue.shampoo.ops.limit_kind(f"h{n}", 1)
        queue.create(conductor, 2, kind=f"h{n}", project=PROJECT)
    assert len(claims(conductor)) == held
    clock.advance(1)
    free, elsewhere = (queue.create(conductor, kind="free", project=project)[0] for project in (PROJECT, "q"))
    assert {claim.job_id for claim in claims(worker, kind=kind)} == {free, elsewhere}
    for n in range(held):
        assert not worker.job_claim(kind=f"h{n}")


def test_held_work_of_many_projects_hides_nothing_from_a_star(queue: Queue, clock: Clock) -> None:
    held = [f"h{n:03}" for n in range(150)]
    conductor, star = queue.principal("c", *held, "free", conductor=True), queue.principal("s", "*")
    queue.shampoo.ops.limit_kind("k", 1)
    conductor.create_many([{"kind": "k", "project": project} for project in held])
    assert conductor.job_claim(lease_seconds=3600)
    clock.advance(1)
    (free,) = queue.create(conductor, kind="l", project="free")
    assert [claim.job_id for claim in claims(star)] == [free]


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["embedded", "redis7"], indirect=True)
def test_behind_thousands_of_projects_with_held_work_a_star_finds_the_rest_with_the_clock(
    queue: Queue, clock: Clock
) -> None:
    held = [f"h{n:04}" for n in range(2_500)]
    for part in range(0, len(held), 500):
        conductor = queue.principal(f"c{part}", *held[part : part + 500], "free", conductor=True)
        conductor.create_many([{"kind": "k", "project": project} for project in held[part : part + 500]])
    star = queue.principal("s", "*")
    queue.shampoo.ops.limit_kind("k", 1)
    assert conductor.job_claim(lease_seconds=3600)
    clock.advance(1)
    (free,) = queue.create(conductor, kind="l", project="free")
    found = ""
    for _ in range(3_000):
        clock.advance(0.001)
        found = found or star.job_claim().job_id
    assert found == free


def test_a_held_job_keeps_its_project_out_of_the_turns(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", "a", "b", conductor=True)
    queue.shampoo.ops.limit_kind("k", 1)
    queue.create(conductor, 2, project="a")
    conductor.job_claim()
    b1, b2 = queue.create(conductor, 2, project="b", kind="l")
    assert [claim.job_id for claim in claims(conductor)] == [b1, b2]


@pytest.mark.parametrize("lifted", [2, None])
def test_raising_and_lifting_a_limit_wakes_who_waits(queue: Queue, clock: Clock, lifted: int | None) -> None:
    conductor, worker = queue.principal("c", PROJECT, conductor=True), queue.principal("w", PROJECT)
    queue.shampoo.ops.limit_kind("k", 1)
    queue.create(conductor, 2, project=PROJECT)
    conductor.job_claim()
    idle = Idle(queue)
    assert idle.waits("w", "one", "k")
    queue.shampoo.ops.limit_kind("k", lifted)
    assert idle.signed("one") == 1
    assert claims(worker, kind="k")


def test_an_end_wakes_who_waits_for_the_place_in_whatever_project(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, "q", conductor=True)
    for name, grant in (("p", PROJECT), ("q", "q")):
        queue.principal(name, grant)
    queue.shampoo.ops.limit_kind("k", 1)
    queue.create(conductor, project=PROJECT)
    running = conductor.job_claim()
    queue.create(conductor, project="q")
    idle = Idle(queue)
    assert idle.waits("p", "of p", "k")
    assert idle.waits("q", "of q")
    conductor.complete(running)
    assert (idle.signed("of p"), idle.signed("of q")) == (0, 1)


def test_an_end_of_an_unlimited_kind_wakes_nobody(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    queue.create(conductor, project=PROJECT)
    claim = conductor.job_claim()
    idle = Idle(queue)
    assert idle.waits("c", "one")
    conductor.complete(claim)
    assert idle.signed("one") == 0


def test_a_job_given_back_for_later_leaves_its_place_to_another(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    queue.shampoo.ops.limit_kind("k", 1)
    _, second = queue.create(conductor, 2, project=PROJECT)
    claim = conductor.job_claim()
    idle = Idle(queue)
    assert idle.waits("c", "one", "k")
    conductor.release(claim, delay_seconds=3600)
    assert idle.signed("one") == 1
    assert conductor.job_claim().job_id == second


@pytest.mark.parametrize("edited", ["abc", "", "-5", "0", "1e9", "nan"])
def test_a_limit_edited_by_hand_breaks_no_claim(queue: Queue, clock: Clock, edited: str) -> None:
    conductor, star = queue.principal("c", PROJECT, conductor=True), queue.principal("s", "*")
    queue.command("HSET", queue.key("limits"), "k", edited)
    for client in (conductor, star):
        queue.create(conductor, project=PROJECT)
        (free,) = queue.create(conductor, project=PROJECT, kind="free")
        assert free in [claim.job_id for claim in claims(client)]
        client.job_claim(kind="k")
    assert set(queue.shampoo.ops.kind_limits()) == {"k"}
    queue.command("HDEL", queue.key("limits"), "k")
    claims(conductor)
    assert not queue.command("EXISTS", queue.key("damaged"))


@pytest.mark.parametrize("broken", ["lost", "stray", "late"])
def test_expire_mends_what_counts_as_running(queue: Queue, clock: Clock, broken: str) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    queue.shampoo.ops.limit_kind("k", 1)
    queue.create(conductor, 2, project=PROJECT)
    claim = conductor.job_claim()
    sound, key = raw(queue), queue.key("running", "k")
    if broken == "lost":
        queue.command("DEL", key)
    elif broken == "stray":
        queued = next(job for job in queue.create(conductor, project=PROJECT))
        sound = raw(queue)
        queue.command("ZADD", key, clock.now + 10**6, queued)
    else:
        queue.command("ZADD", key, clock.now + 10**6, claim.job_id)
    assert queue.shampoo.ops.expire().put_back == 1
    assert raw(queue) == sound
    assert queue.shampoo.ops.expire().put_back == 0
    assert claims(conductor) == []


@pytest.mark.parametrize("seed", [1, 2])
def test_whatever_happens_no_more_live_leases_than_the_limit(queue: Queue, clock: Clock, seed: int) -> None:
    """Claims, ends, renewals and lapses at random; the live leases are counted from the jobs themselves."""
    chance = random.Random(seed)
    conductor = queue.principal("c", "", "a", "b", conductor=True)
    callers = [conductor, queue.principal("w", "a"), queue.principal("s", "*")]
    queue.shampoo.ops.limit_kind("k", 3)
    queue.shampoo.ops.limit_kind("l", 1)
    held: list[tuple[Client, JobClaimResult, int]] = []
    most = {"k": 0, "l": 0}
    for step in range(250):
        clock.advance(chance.choice((0, 0.001, 0.5, 1)))
        if step % 3 == 0:
            queue.create(conductor, kind=chance.choice("kkl"), project=chance.choice(("", "a", "b")))
        caller = chance.choice(callers)
        if claim := caller.job_claim(kind=chance.choice((None, "k", "l")), lease_seconds=chance.choice((1, 2, 30))):
            held.append((caller, claim, clock.now + 1000 * (claim.meta.lease_seconds or 0)))
        held = [each for each in held if each[2] > clock.now]
        for kind, limit in (("k", 3), ("l", 1)):
            running = sum(claim.kind == kind for _, claim, _ in held)
            most[kind] = max(most[kind], running)
            assert running <= limit
        if held and chance.random() < 0.4:
            caller, claim, _ = held.pop(chance.randrange(len(held)))
            act = chance.choice((caller.complete, caller.release, caller.fail, caller.renew))
            act(claim)
            if act == caller.renew:
                held.append((caller, claim, clock.now + 1000 * (claim.meta.lease_seconds or 0)))
    assert most == {"k": 3, "l": 1}
