"""``job_create``: the conductor puts one unit of work into the queue."""

from __future__ import annotations

import re
from typing import Any

import pytest

from shampoo_queue.tools import immutable, iso
from tests.contract.cast import (
    MISSING,
    PROJECT,
    cast,
    everybody,
    lane,
    last_event,
    not_remembered,
    odd_ids,
    outcome,
    quorum_with,
    refused,
    refused_alike,
    repeats,
)
from tests.queue import Clock, Queue

PAYLOADS = (
    "{}",
    "[]",
    '{"n": 9007199254740993, "e": 1e400, "a": []}',
    " not trimmed\n",
    "nul \0 and \r\n and \x1f",
    "null",
    "e\u0301 \u00e9 \U0001f600 \u2028 \ufeff",
    "%s {0} $1 \\ud800 \\0",
)


def test_a_job_is_created_queued_and_waits_for_a_claim(queue: Queue, clock: Clock) -> None:
    conductor, worker = queue.principal("c", PROJECT, conductor=True), queue.principal("w", PROJECT)
    answer = conductor.call("job_create", {"kind": "delivery", "payload": '{"uri":"x"}', "project": PROJECT})
    job_id = answer["job_id"]
    assert answer == {"job_id": job_id, "state": "queued"}
    assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", job_id)
    assert queue.shampoo.ops.job(job_id) == {
        "job_id": job_id,
        "kind": "delivery",
        "project": PROJECT,
        "standing": "queued",
        "attempts": 0,
        "created_at": "2027-01-15T08:00:00.000Z",
        "changed_at": "2027-01-15T08:00:00.000Z",
    }
    assert last_event(queue, job_id) == {
        "event": "job.created",
        "entity_id": job_id,
        "project": PROJECT,
        "actor": "c",
        "holder": "h",
        "to": "queued",
        "digest": immutable(job_id, "delivery", "", '{"uri":"x"}'),
    }
    assert worker.job_claim(kind="delivery").job_id == job_id


def test_a_payload_comes_back_byte_for_byte(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    for payload in PAYLOADS:
        job_id = conductor.job_create(kind="k", project=PROJECT, payload=payload).job_id
        claim = conductor.job_claim()
        assert (claim.job_id, claim.payload) == (job_id, payload)
        assert queue.shampoo.ops.payload(job_id) == payload


def test_an_absent_and_an_empty_payload_are_the_same(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    for payload in (None, ""):
        job_id = conductor.job_create(kind="k", project=PROJECT, payload=payload).job_id
        assert queue.key("payload", job_id) not in queue.facts()
        assert conductor.job_claim().payload == ""


def test_every_role_gets_its_answer(queue: Queue) -> None:
    callers = cast(queue)
    tagged = {role: outcome(c.job_create, kind="k", project=PROJECT) for role, c in callers.items()}
    assert tagged == everybody("denied", conductor="done")
    untagged = {role: outcome(c.job_create, kind="k") for role, c in callers.items()}
    assert untagged == everybody("denied")


def test_a_disabled_conductor_is_unauthenticated(queue: Queue) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    queue.shampoo.registry.disable_principal("c")
    refused(queue, "unauthenticated", conductor.job_create, kind="k", project=PROJECT)
    queue.shampoo.registry.enable_principal("c")
    conductor.job_create(kind="k", project=PROJECT)


def test_a_worker_is_denied_whatever_it_names(queue: Queue) -> None:
    conductor, worker = queue.principal("c", PROJECT, conductor=True), queue.principal("w", PROJECT, "*")
    existing = lane(queue, conductor)
    named = [{}, {"project": PROJECT}, {"project": "q"}, {"lane_id": existing}, {"lane_id": MISSING}]
    refused_alike(queue, "denied", worker, "job_create", [{"kind": "k", **facts} for facts in named])


def test_a_star_is_no_explicit_grant(queue: Queue) -> None:
    conductor = queue.principal("c", "*", conductor=True)
    for project in (PROJECT, "", None):
        refused(queue, "denied", conductor.job_create, kind="k", project=project)
    queue.shampoo.registry.grant("c", PROJECT)
    conductor.job_create(kind="k", project=PROJECT)


@pytest.mark.parametrize("given", [{}, {"project": ""}, {"project": None}], ids=str)
def test_untagged_work_needs_the_empty_grant(queue: Queue, given: dict[str, str]) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    refused(queue, "denied", conductor.call, "job_create", {"kind": "k", **given})
    queue.shampoo.registry.grant("c", "")
    job_id = conductor.call("job_create", {"kind": "k", **given})["job_id"]
    assert (queue.shampoo.ops.job(job_id) or {})["project"] == ""


def test_a_star_is_no_project_for_anyone(queue: Queue) -> None:
    callers = cast(queue) | {"c": queue.principal("c", "*", "p", conductor=True)}
    for caller in callers.values():
        refused(queue, "invalid_argument", caller.job_create, kind="k", project="*", lane_id=MISSING)
    everything = queue.principal("e", "**", "a*", conductor=True)
    queue.create(everything, project="**")
    queue.create(everything, project="a*")


def test_a_lane_that_names_nothing_is_not_found(queue: Queue) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    existing = lane(queue, conductor)
    names = [name for name in odd_ids(existing) if 0 < len(name) <= 128]
    refused_alike(
        queue, "lane_not_found", conductor, "job_create", [{"kind": "k", "project": "q", "lane_id": n} for n in names]
    )


def test_a_lane_comes_before_the_project_and_the_project_before_the_grant(queue: Queue) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    elsewhere = lane(queue, queue.principal("d", "q", conductor=True), quorum_id=quorum_with(queue, project="q"))
    refused(queue, "lane_not_found", conductor.job_create, kind="k", lane_id=MISSING, project="r")
    refused(queue, "project_mismatch", conductor.job_create, kind="k", lane_id=elsewhere, project="r")
    refused(queue, "project_mismatch", conductor.job_create, kind="k", lane_id=elsewhere, project=PROJECT)
    refused(queue, "denied", conductor.job_create, kind="k", lane_id=elsewhere, project="q")
    refused(queue, "denied", conductor.job_create, kind="k", lane_id=elsewhere)


def test_a_job_inherits_the_project_of_its_lane(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    of_lane = lane(queue, conductor)
    for project in (None, "", PROJECT):
        job_id = conductor.job_create(kind="k", lane_id=of_lane, project=project, payload="x").job_id
        job = queue.shampoo.ops.job(job_id) or {}
        assert (job["project"], job["lane_id"]) == (PROJECT, of_lane)
        assert last_event(queue, job_id)["digest"] == immutable(job_id, "k", of_lane, "x")


def test_a_job_of_an_untagged_lane_is_untagged(queue: Queue) -> None:
    conductor = queue.principal("c", PROJECT, "", conductor=True)
    untagged = lane(queue, conductor, quorum_id=quorum_with(queue, project=""))
    job_id = conductor.job_create(kind="k", lane_id=untagged).job_id
    assert last_event(queue, job_id)["project"] == ""
    refused(queue, "project_mismatch", conductor.job_create, kind="k", lane_id=untagged, project=PROJECT)


def test_a_lane_is_looked_at_once_and_never_moved(queue: Queue) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    quorum_id = quorum_with(queue)
    ended = lane(queue, conductor, state="cancelled", quorum_id=quorum_id)
    queue.shampoo.registry.close_quorum(quorum_id)
    before = queue.shampoo.ops.lane(ended)
    job_id = conductor.job_create(kind="k", lane_id=ended).job_id
    assert conductor.job_claim().job_id == job_id
    conductor.job_complete(job_id=job_id, outcome="completed")
    assert queue.shampoo.ops.lane(ended) == before


def test_a_repeat_creates_nothing(queue: Queue) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    call = {"kind": "k", "project": PROJECT, "payload": "x"}
    repeats(
        queue,
        conductor,
        "job_create",
        call,
        call | {"kind": "l"},
        call | {"payload": "y"},
        call | {"project": "q"},
        call | {"lane_id": MISSING},
        {"kind": "k", "project": PROJECT},
    )
    assert queue.events().count("job.created") == 1


def test_what_is_the_same_as_absent_is_the_same_call(queue: Queue) -> None:
    conductor = queue.principal("c", "", conductor=True)
    spellings: list[dict[str, Any]] = [
        {"kind": "k"},
        {"kind": "k", "payload": ""},
        {"kind": "k", "project": "", "payload": None},
        {"lane_id": None, "kind": "k"},
    ]
    answers = [conductor.call("job_create", call, request_id="r")["job_id"] for call in spellings]
    assert len(set(answers)) == 1


def test_a_refused_creation_is_not_remembered(queue: Queue) -> None:
    conductor = queue.principal("c", conductor=True)
    again = not_remembered(queue, "denied", conductor, "job_create", {"kind": "k", "project": PROJECT})
    queue.shampoo.registry.grant("c", PROJECT)
    again()


def test_a_conductor_who_lost_its_grant_still_hears_what_became_of_its_call(queue: Queue) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    first = conductor.job_create(kind="k", project=PROJECT, request_id="r")
    queue.shampoo.registry.revoke("c", PROJECT)
    queue.shampoo.registry.set_conductor("c", False)
    assert conductor.job_create(kind="k", project=PROJECT, request_id="r").job_id == first.job_id
    refused(queue, "denied", conductor.job_create, kind="k", project=PROJECT)
    queue.shampoo.registry.disable_principal("c")
    refused(queue, "unauthenticated", conductor.job_create, kind="k", project=PROJECT, request_id="r")


# Delays, the library's own -------------------------------------------------------------------------------------


def test_a_delayed_job_is_claimable_from_the_very_millisecond_it_is_due(queue: Queue, clock: Clock) -> None:
    conductor, worker = queue.principal("c", PROJECT, conductor=True), queue.principal("w", PROJECT)
    star = queue.principal("s", "*")
    job_id = conductor.job_create(kind="k", project=PROJECT, delay_seconds=1.5).job_id
    assert (queue.shampoo.ops.job(job_id) or {})["due_at"] == iso(clock.now + 1_500)
    assert "due_at" not in last_event(queue, job_id)
    for seconds in (0, 1, 0.499):
        clock.advance(seconds)
        for client in (conductor, worker, star):
            assert not client.job_claim()
            assert not client.job_claim(kind="k")
    clock.advance(0.001)
    assert worker.job_claim().job_id == job_id
    assert "due_at" not in (queue.shampoo.ops.job(job_id) or {})


def test_a_fraction_of_a_millisecond_is_waited_for(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    conductor.job_create(kind="k", project=PROJECT, delay_seconds=0.0001)
    assert not conductor.job_claim()
    clock.advance(0.001)
    assert conductor.job_claim()


@pytest.mark.parametrize("seconds", [0, 0.0, -0.0])
def test_no_delay_is_no_delay(queue: Queue, clock: Clock, seconds: float) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    job_id = conductor.job_create(kind="k", project=PROJECT, delay_seconds=seconds).job_id
    assert "due_at" not in (queue.shampoo.ops.job(job_id) or {})
    assert conductor.job_claim().job_id == job_id


@pytest.mark.parametrize("seconds", [-0.001, 31_536_000.001, float("inf"), float("nan"), "5", True, None], ids=str)
def test_a_delay_is_a_number_of_seconds_up_to_a_year(queue: Queue, clock: Clock, seconds: Any) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    refused(queue, "invalid_argument", conductor.job_create, kind="k", project=PROJECT, delay_seconds=seconds)


def test_a_year_is_the_longest_delay(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    conductor.job_create(kind="k", project=PROJECT, delay_seconds=31_536_000)
    clock.advance(31_536_000 - 0.001)
    assert not conductor.job_claim()
    clock.advance(0.001)
    assert conductor.job_claim()


def test_jobs_stand_at_the_instant_they_are_due(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    delays = (3, 0, 1, 2, 1)
    jobs = [conductor.job_create(kind="k", project=PROJECT, delay_seconds=delay).job_id for delay in delays]
    clock.advance(2)
    jobs += queue.create(conductor, project=PROJECT, kind="l")
    clock.advance(10)
    assert [conductor.job_claim().job_id for _ in range(6)] == [jobs[n] for n in (1, 2, 4, 3, 5, 0)]


@pytest.mark.parametrize("grants", [(PROJECT, "q"), ("*",)], ids=str)
@pytest.mark.parametrize("kind", ["k", None])
def test_a_delayed_job_hides_no_due_one(queue: Queue, clock: Clock, grants: tuple[str, ...], kind: str | None) -> None:
    conductor, worker = queue.principal("c", PROJECT, "q", conductor=True), queue.principal("w", *grants)
    for delayed_kind, project in (("k", PROJECT), ("a", PROJECT), ("k", "q")):
        conductor.job_create(kind=delayed_kind, project=project, delay_seconds=60)
    due = [queue.create(conductor, project=project)[0] for project in (PROJECT, "q")]
    assert sorted(worker.job_claim(kind=kind).job_id for _ in range(2)) == sorted(due)
    assert not worker.job_claim(kind=kind)


def test_delayed_work_of_many_projects_takes_no_place_before_a_star(queue: Queue, clock: Clock) -> None:
    many = [f"d{n:02}" for n in range(70)]
    conductor, star = queue.principal("c", *many, "due", conductor=True), queue.principal("s", "*")
    conductor.create_many([{"kind": "k", "project": project, "delay_seconds": 60} for project in many])
    (due,) = queue.create(conductor, project="due")
    assert star.job_claim().job_id == due
    assert not star.job_claim()


def test_a_delay_takes_no_turn(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", "a", "b", conductor=True)
    a1, a2 = (conductor.job_create(kind="k", project="a", delay_seconds=delay).job_id for delay in (0, 5))
    b1, b2 = queue.create(conductor, 2, project="b")
    assert [conductor.job_claim().job_id for _ in range(3)] == [a1, b1, b2]
    clock.advance(5)
    (b3,) = queue.create(conductor, project="b")
    assert [conductor.job_claim().job_id for _ in range(2)] == [a2, b3]


def test_a_delay_belongs_to_the_call(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    first = conductor.job_create(kind="k", project=PROJECT, delay_seconds=5, request_id="r")
    clock.advance(1)
    again = conductor.job_create(kind="k", project=PROJECT, delay_seconds=5, request_id="r")
    assert (again.job_id, again.replayed) == (first.job_id, True)
    for delay in (0, 6):
        refused(
            queue,
            "request_id_reused",
            conductor.job_create,
            kind="k",
            project=PROJECT,
            delay_seconds=delay,
            request_id="r",
        )
    clock.advance(4)
    assert conductor.job_claim().job_id == first.job_id


def test_a_delayed_job_is_cancelled_and_its_requeue_is_due_at_once(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    job_id = conductor.job_create(kind="k", project=PROJECT, delay_seconds=60).job_id
    refused(queue, "job_not_requeueable", queue.shampoo.ops.requeue, job_id)
    queue.shampoo.ops.cancel(job_id, "enough")
    assert "due_at" not in (queue.shampoo.ops.job(job_id) or {})
    queue.shampoo.ops.requeue(job_id)
    assert conductor.job_claim().job_id == job_id


@pytest.mark.parametrize("lost", ["ready", "kinds", "projects", "projects_of"])
def test_expire_puts_a_delayed_job_back_where_it_is_due(queue: Queue, clock: Clock, lost: str) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    job_id = conductor.job_create(kind="k", project=PROJECT, delay_seconds=60).job_id
    before = queue.facts()
    names = {"ready": (PROJECT, "k"), "kinds": (PROJECT,), "projects": (), "projects_of": ("k",)}
    queue.command("DEL", queue.key(lost, *names[lost]))
    clock.advance(30)
    assert queue.shampoo.ops.expire().put_back == 1
    clock.advance(-30)
    assert queue.facts() == before
    clock.advance(59.999)
    assert not conductor.job_claim()
    clock.advance(0.001)
    assert conductor.job_claim().job_id == job_id
