"""The operators' moves on jobs, beside the nine tools: requeue, cancel, expire."""

from __future__ import annotations

from typing import Any

import pytest

from shampoo_queue import Client
from tests.contract.cast import MISSING, PROJECT, lane, last_event, odd_ids, raw, refused
from tests.queue import Clock, Queue

BY_HAND = ("operator", "host/1", "~abcdefghijkl.0.1", "abcdefghijkl.0", "0123456789abcdef01234567", "")


def job(queue: Queue, job_id: str) -> dict[str, Any]:
    return queue.shampoo.ops.job(job_id) or {}


def exhausted(queue: Queue, conductor: Client, clock: Clock, how: str = "lapsed") -> str:
    """Create a job and spend its attempts: the last lease `live`, `lapsed`, or given back (`released`)."""
    (job_id,) = queue.create(conductor, project=PROJECT, kind="spent")
    for _ in range(5):
        clock.advance(10)
        assert conductor.job_claim(kind="spent", lease_seconds=10).job_id == job_id
    if how == "lapsed":
        clock.advance(10)
    if how == "released":
        conductor.job_release(job_id=job_id)
    return job_id


def operated(queue: Queue, job_id: str) -> dict[str, Any]:
    """Give the newest event of a job that an operator moved, without what is the same for all of them."""
    event = last_event(queue, job_id)
    assert event.pop("holder")
    assert (event.pop("actor"), event.pop("entity_id"), event.pop("project")) == ("operator", job_id, PROJECT)
    return event


def test_a_failed_job_is_requeued_with_no_attempt_spent(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    (job_id,) = queue.create(conductor, project=PROJECT)
    fence = conductor.job_claim().fence
    conductor.job_complete(job_id=job_id, outcome="failed", result_ref="why")
    queue.shampoo.ops.requeue(job_id)
    stored = job(queue, job_id)
    assert (stored["standing"], stored["owner"], stored["attempts"], stored["fence"]) == ("queued", "", 0, fence)
    assert "result_ref" not in stored
    assert operated(queue, job_id) == {
        "event": "job.requeued",
        "from": "failed",
        "to": "queued",
        "attempts": 0,
        "fence": fence,
    }
    again = conductor.job_claim()
    assert fence is not None
    assert (again.job_id, again.attempts, again.fence) == (job_id, 1, fence + 1)


@pytest.mark.parametrize(("how", "standing"), [("lapsed", "claimed"), ("released", "queued")])
def test_an_exhausted_job_is_requeued(queue: Queue, clock: Clock, how: str, standing: str) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    job_id = exhausted(queue, conductor, clock, how)
    assert not conductor.job_claim()
    queue.shampoo.ops.requeue(job_id)
    event = operated(queue, job_id)
    assert (event["from"], event["to"], event["attempts"]) == (standing, "queued", 0)
    assert conductor.job_claim().attempts == 1


def test_a_cancelled_job_is_requeued_without_its_reason(queue: Queue) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    (job_id,) = queue.create(conductor, project=PROJECT)
    queue.shampoo.ops.cancel(job_id, "enough")
    queue.shampoo.ops.requeue(job_id)
    assert "reason" not in job(queue, job_id)
    assert "fence" not in job(queue, job_id)
    assert conductor.job_claim().job_id == job_id


def test_a_requeued_job_stands_behind_those_that_waited(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    first, second = queue.create(conductor, 2, project=PROJECT)
    queue.shampoo.ops.cancel(first, "wait")
    clock.advance(1)
    queue.shampoo.ops.requeue(first)
    assert [conductor.job_claim().job_id for _ in range(2)] == [second, first]


def test_only_an_exhausted_or_failed_job_can_be_requeued(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    queued, running, lapsed, completed = (
        queue.create(conductor, project=PROJECT, kind=kind)[0] for kind in ("queued", "running", "lapsed", "completed")
    )
    conductor.job_claim(kind="lapsed", lease_seconds=1)
    live = exhausted(queue, conductor, clock, "live")
    for kind in ("running", "completed"):
        conductor.job_claim(kind=kind)
    conductor.job_complete(job_id=completed, outcome="completed")
    for job_id in (queued, running, lapsed, completed, live):
        refused(queue, "job_not_requeueable", queue.shampoo.ops.requeue, job_id)
    clock.advance(10)
    queue.shampoo.ops.requeue(live)
    assert job(queue, live)["standing"] == "queued"


def test_a_late_owner_cannot_touch_a_requeued_job(queue: Queue, clock: Clock) -> None:
    conductor, worker = queue.principal("c", PROJECT, conductor=True), queue.principal("w", PROJECT)
    job_id = exhausted(queue, conductor, clock)
    fence = job(queue, job_id)["fence"]
    queue.shampoo.ops.requeue(job_id)
    refused(queue, "job_not_claimed", conductor.job_complete, job_id=job_id, outcome="failed", fence=fence)
    worker.job_claim()
    refused(queue, "lease_expired", conductor.job_complete, job_id=job_id, outcome="failed", fence=fence)


def test_a_repeated_requeue_takes_back_no_later_claim(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    (job_id,) = queue.create(conductor, project=PROJECT)
    queue.shampoo.ops.cancel(job_id, "wait")
    assert queue.move("job_requeue", *BY_HAND, job_id) == [b"queued"]
    conductor.job_claim()
    before = raw(queue)
    assert queue.move("job_requeue", *BY_HAND, job_id) == [b"queued", b"replay"]
    assert raw(queue) == before
    elsewhere = (*BY_HAND[:4], "f" * 24, "")
    refused(queue, "request_id_reused", queue.move, "job_requeue", *elsewhere, MISSING)
    refused(queue, "request_id_reused", queue.move, "job_cancel", *elsewhere, MISSING, "why")


def test_a_queued_job_is_cancelled_with_a_reason(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    (job_id,) = queue.create(conductor, project=PROJECT)
    queue.shampoo.ops.cancel(job_id, "no longer\nneeded")
    stored = job(queue, job_id)
    assert (stored["standing"], stored["reason"], stored["attempts"]) == ("failed", "no longer\nneeded", 0)
    assert operated(queue, job_id) == {
        "event": "job.failed",
        "from": "queued",
        "to": "failed",
        "attempts": 0,
        "reason": "no longer\nneeded",
    }
    assert not conductor.job_claim()


def test_a_claimed_job_is_cancelled_under_its_owner(queue: Queue, clock: Clock) -> None:
    conductor, worker = queue.principal("c", PROJECT, conductor=True), queue.principal("w", PROJECT)
    (job_id,) = queue.create(conductor, project=PROJECT)
    fence = worker.job_claim().fence
    queue.shampoo.ops.cancel(job_id, "enough")
    stored = job(queue, job_id)
    assert (stored["standing"], stored["owner"], stored["lease_until"]) == ("failed", "w", "")
    assert operated(queue, job_id) == {
        "event": "job.failed",
        "from": "claimed",
        "to": "failed",
        "attempts": 1,
        "fence": fence,
        "reason": "enough",
    }
    refused(queue, "job_already_terminal", worker.job_complete, job_id=job_id, outcome="completed", fence=fence)
    refused(queue, "job_not_claimed", worker.job_release, job_id=job_id)
    assert worker.job_complete(job_id=job_id, outcome="failed").idempotent


@pytest.mark.parametrize("how", ["live", "lapsed", "released"])
def test_a_job_on_its_last_attempt_is_cancelled(queue: Queue, clock: Clock, how: str) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    job_id = exhausted(queue, conductor, clock, how)
    queue.shampoo.ops.cancel(job_id, "enough")
    assert (job(queue, job_id)["standing"], job(queue, job_id)["attempts"]) == ("failed", 5)


@pytest.mark.parametrize("outcome", ["completed", "failed"])
def test_an_ended_job_is_not_cancelled(queue: Queue, outcome: str) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    (job_id,) = queue.create(conductor, project=PROJECT)
    conductor.job_claim()
    conductor.job_complete(job_id=job_id, outcome=outcome)
    refused(queue, "job_already_terminal", queue.shampoo.ops.cancel, job_id, "why")


def test_an_id_that_names_nothing_is_not_found(queue: Queue) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    (job_id,) = queue.create(conductor, project=PROJECT)
    for name in odd_ids(job_id):
        refused(queue, "job_not_found", queue.shampoo.ops.requeue, name)
        refused(queue, "job_not_found", queue.shampoo.ops.cancel, name, "why")
        assert (queue.shampoo.ops.job(name), queue.shampoo.ops.payload(name)) == (None, "")


def test_a_reason_is_a_short_text(queue: Queue) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    (job_id,) = queue.create(conductor, project=PROJECT)
    bad: list[Any] = ["", "x" * 513, "\ud800", None, 7, b"why"]
    for reason in bad:
        refused(queue, "invalid_argument", queue.shampoo.ops.cancel, job_id, reason)
    queue.shampoo.ops.cancel(job_id, "\U0001f600" * 512)
    assert job(queue, job_id)["reason"] == "\U0001f600" * 512


def test_a_repeated_cancel_ends_no_later_claim(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    (job_id,) = queue.create(conductor, project=PROJECT)
    assert queue.move("job_cancel", *BY_HAND, job_id, "why") == [b"failed"]
    queue.shampoo.ops.requeue(job_id)
    before = raw(queue)
    assert queue.move("job_cancel", *BY_HAND, job_id, "why") == [b"failed", b"replay"]
    assert raw(queue) == before


INDEXES = ("ready", "kinds", "projects", "projects_of", "spent", "jobs_of")


def busy(queue: Queue, clock: Clock) -> Client:
    """Let jobs stand in every way: queued, held, lapsed, exhausted, ended, over two projects and kinds."""
    conductor = queue.principal("c", PROJECT, "a:b", conductor=True)
    exhausted(queue, conductor, clock)
    exhausted(queue, conductor, clock, "released")
    for project in (PROJECT, "a:b"):
        for kind in ("k", "l"):
            queue.create(conductor, 3, project=project, kind=kind)
    for kind, lease in (("k", 1), ("l", 300)):
        conductor.job_claim(kind=kind, lease_seconds=lease)
    conductor.job_complete(job_id=conductor.job_claim(kind="l").job_id, outcome="failed")
    clock.advance(1)
    return conductor


def test_expire_counts_what_lapsed_and_changes_nothing_that_is_sound(queue: Queue, clock: Clock) -> None:
    conductor = busy(queue, clock)
    before = raw(queue)
    found = queue.shampoo.ops.expire()
    assert (found.lapsed, found.exhausted, found.put_back, found.damaged) == (1, 2, 0, ())
    assert raw(queue) == before
    assert conductor.job_claim(kind="k")


def test_a_late_owner_still_hears_that_its_lease_expired(queue: Queue, clock: Clock) -> None:
    conductor, worker = queue.principal("c", PROJECT, conductor=True), queue.principal("w", PROJECT)
    (job_id,) = queue.create(conductor, project=PROJECT)
    worker.job_claim(lease_seconds=1)
    clock.advance(1)
    queue.shampoo.ops.expire()
    refused(queue, "lease_expired", worker.job_complete, job_id=job_id, outcome="completed")


def test_a_job_is_exhausted_from_the_instant_its_last_lease_lapses(queue: Queue, clock: Clock) -> None:
    exhausted(queue, queue.principal("c", PROJECT, conductor=True), clock, "live")
    for seconds, count in ((9.999, 0), (0.001, 1)):
        clock.advance(seconds)
        assert queue.shampoo.ops.expire().exhausted == count


def test_expire_does_nothing_where_there_is_nothing(queue: Queue) -> None:
    found = queue.shampoo.ops.expire()
    assert (found.lapsed, found.exhausted, found.put_back, found.damaged) == (0, 0, 0, ())


@pytest.mark.parametrize("engine", ["memory", "embedded"], indirect=True)
@pytest.mark.parametrize("family", [*INDEXES, "all of them"])
def test_expire_puts_back_what_a_lost_key_made_invisible(queue: Queue, clock: Clock, family: str) -> None:
    conductor = busy(queue, clock)
    stream = lane(queue, conductor)
    _, ended = (conductor.job_create(kind="m", lane_id=stream).job_id for _ in range(2))
    queue.shampoo.ops.cancel(ended, "enough")
    before = raw(queue)
    families = INDEXES if family == "all of them" else (family,)
    start = queue.key("profile").removesuffix("profile")
    lost = [key for key in queue.facts() if key.removeprefix(start).partition(":")[0] in families]
    queue.command("DEL", *lost)
    assert queue.shampoo.ops.expire().put_back > 0
    assert raw(queue) == before
    assert queue.shampoo.ops.expire().put_back == 0


@pytest.mark.parametrize("engine", ["memory", "embedded"], indirect=True)
@pytest.mark.parametrize("grant", [PROJECT, "*"])
@pytest.mark.parametrize("kind", [None, "sound"])
def test_a_lost_index_hides_no_work_but_its_own(queue: Queue, clock: Clock, grant: str, kind: str | None) -> None:
    conductor, worker = queue.principal("c", PROJECT, conductor=True), queue.principal("w", grant)
    (lost,) = queue.create(conductor, project=PROJECT, kind="lost")
    (sound,) = queue.create(conductor, project=PROJECT, kind="sound")
    queue.command("DEL", queue.key("ready", PROJECT, "lost"))
    assert worker.job_claim(kind=kind).job_id == sound
    queue.shampoo.ops.expire()
    assert worker.job_claim().job_id == lost


def test_expire_finds_what_was_edited_beyond_use_and_sees_it_mended(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    (job_id,) = queue.create(conductor, project=PROJECT)
    sound = raw(queue)
    queue.command("HSET", queue.key("job", job_id), "standing", "nowhere")
    for _ in range(2):
        assert queue.shampoo.ops.expire().damaged == (job_id,)
        assert queue.command("ZRANGE", queue.key("damaged"), 0, -1) == [job_id.encode()]
    assert not conductor.job_claim()
    queue.command("HSET", queue.key("job", job_id), "standing", "queued")
    assert queue.shampoo.ops.expire().damaged == ()
    assert raw(queue) == sound
    assert conductor.job_claim().job_id == job_id


@pytest.mark.parametrize("engine", ["embedded", "redis7"], indirect=True)
def test_expire_goes_through_many_jobs_in_batches(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    created = queue.create(conductor, 600, project=PROJECT)
    before = raw(queue)
    queue.command("DEL", queue.key("ready", PROJECT, "k"), queue.key("kinds", PROJECT), queue.key("projects"))
    queue.command("DEL", queue.key("projects_of", "k"))
    assert queue.shampoo.ops.expire().put_back == 600
    assert raw(queue) == before
    assert conductor.job_claim().job_id == created[0]
