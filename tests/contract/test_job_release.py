"""``job_release``: a claimed job goes back to the queue, nearer to its last attempt."""

from __future__ import annotations

from typing import Any

import pytest

from shampoo_queue.tools import iso
from tests.contract.cast import (
    MISSING,
    PROJECT,
    cast,
    claimed,
    everybody,
    last_event,
    not_remembered,
    odd_ids,
    outcome,
    raw,
    refused,
    refused_alike,
    repeats,
)
from tests.queue import Clock, Queue


def test_an_owner_gives_its_job_back_and_keeps_the_attempts(queue: Queue, clock: Clock) -> None:
    conductor, worker = queue.principal("c", PROJECT, conductor=True), queue.principal("w", PROJECT)
    job_id, fence = claimed(queue, conductor, worker)
    clock.advance(1)
    answer = worker.call("job_release", {"job_id": job_id}, fence=fence)
    assert answer == {"job_id": job_id, "state": "queued"}
    job = queue.shampoo.ops.job(job_id) or {}
    assert (job["standing"], job["owner"], job["holder"], job["lease_until"]) == ("queued", "", "", "")
    assert (job["attempts"], job["fence"]) == (1, fence)
    assert last_event(queue, job_id) == {
        "event": "job.released",
        "entity_id": job_id,
        "project": PROJECT,
        "actor": "w",
        "holder": "h",
        "from": "claimed",
        "to": "queued",
        "attempts": 1,
        "fence": fence,
    }
    assert conductor.job_claim().attempts == 2


def test_every_role_gets_its_answer(queue: Queue) -> None:
    callers = cast(queue)
    holder = queue.principal("holder", PROJECT)
    answers = {}
    for role, caller in callers.items():
        (job_id,) = queue.create(callers["conductor"], kind=role, project=PROJECT)
        assert holder.job_claim(kind=role).job_id == job_id
        answers[role] = outcome(caller.job_release, job_id=job_id)
    assert answers == everybody(
        "job_not_claimed",
        outsider="job_not_found",
        bare_conductor="job_not_found",
        conductor="done",
        star_conductor="done",
    )


def test_an_owner_who_is_disabled_is_unauthenticated(queue: Queue) -> None:
    conductor, worker = queue.principal("c", PROJECT, conductor=True), queue.principal("w", PROJECT)
    job_id, fence = claimed(queue, conductor, worker)
    queue.shampoo.registry.disable_principal("w")
    refused(queue, "unauthenticated", worker.job_release, job_id=job_id, fence=fence)
    refused(queue, "unauthenticated", worker.job_release, job_id=MISSING)


def test_a_job_that_is_missing_or_out_of_scope_is_not_found(queue: Queue, clock: Clock) -> None:
    conductor, outsider = queue.principal("c", PROJECT, conductor=True), queue.principal("o", "q", conductor=True)
    worker = queue.principal("w", PROJECT)
    (queued,) = queue.create(conductor, kind="later", project=PROJECT)
    ended, _ = claimed(queue, conductor, worker)
    worker.job_complete(job_id=ended, outcome="failed")
    running, fence = claimed(queue, conductor, worker)
    many = [{"job_id": name} for name in (*odd_ids(running), running, queued, ended)]
    refused_alike(queue, "job_not_found", outsider, "job_release", many)
    refused(queue, "job_not_found", outsider.job_release, job_id=running, fence=fence + 1)
    queue.shampoo.registry.revoke("w", PROJECT)
    refused(queue, "job_not_found", worker.job_release, job_id=running, fence=fence)


def test_an_odd_id_names_nothing_for_its_owner_either(queue: Queue) -> None:
    conductor = queue.principal("c", PROJECT, "*", conductor=True)
    job_id, _ = claimed(queue, conductor, conductor)
    refused_alike(queue, "job_not_found", conductor, "job_release", [{"job_id": name} for name in odd_ids(job_id)])


def test_a_job_that_stands_otherwise_is_not_claimed_whatever_the_fence(queue: Queue, clock: Clock) -> None:
    conductor, worker = queue.principal("c", PROJECT, conductor=True), queue.principal("w", PROJECT)
    ended, fence = claimed(queue, conductor, worker)
    worker.job_complete(job_id=ended, outcome="completed")
    (queued,) = queue.create(conductor, project=PROJECT)
    for client in (worker, conductor):
        for given in (None, fence, fence + 1):
            refused(queue, "job_not_claimed", client.job_release, job_id=ended, fence=given)
            refused(queue, "job_not_claimed", client.job_release, job_id=queued, fence=given)


def test_a_differing_fence_is_an_expired_lease_for_everybody(queue: Queue, clock: Clock) -> None:
    conductor, worker = queue.principal("c", PROJECT, conductor=True), queue.principal("w", PROJECT)
    other = queue.principal("o", PROJECT)
    job_id, fence = claimed(queue, conductor, worker)
    for client in (worker, other, conductor):
        refused(queue, "lease_expired", client.job_release, job_id=job_id, fence=fence + 1)
        refused(queue, "lease_expired", client.job_release, job_id=job_id, fence=0)
    refused(queue, "job_not_claimed", other.job_release, job_id=job_id, fence=fence)
    refused(queue, "job_not_claimed", other.job_release, job_id=job_id)


def test_an_owner_may_release_after_its_lease_lapsed_until_somebody_took_over(queue: Queue, clock: Clock) -> None:
    conductor, worker = queue.principal("c", PROJECT, conductor=True), queue.principal("w", PROJECT)
    other = queue.principal("o", PROJECT)
    job_id, fence = claimed(queue, conductor, worker, lease_seconds=1)
    clock.advance(1_000)
    refused(queue, "job_not_claimed", other.job_release, job_id=job_id)
    assert worker.job_release(job_id=job_id, fence=fence).state == "queued"
    worker.job_claim(lease_seconds=1)
    clock.advance(1)
    assert other.job_claim().job_id == job_id
    refused(queue, "job_not_claimed", worker.job_release, job_id=job_id)
    refused(queue, "lease_expired", worker.job_release, job_id=job_id, fence=fence)


def test_a_conductor_releases_anybodys_claim(queue: Queue, clock: Clock) -> None:
    conductor, worker = queue.principal("c", PROJECT, conductor=True), queue.principal("w", PROJECT)
    job_id, fence = claimed(queue, conductor, worker)
    assert conductor.job_release(job_id=job_id, fence=fence).state == "queued"
    assert last_event(queue, job_id)["actor"] == "c"
    refused(queue, "job_not_claimed", worker.job_complete, job_id=job_id, outcome="completed", fence=fence)


def test_a_job_released_on_its_last_attempt_is_not_claimable(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    (job_id,) = queue.create(conductor, project=PROJECT)
    for attempt in range(1, 6):
        assert conductor.job_claim().attempts == attempt
        conductor.job_release(job_id=job_id)
    assert not conductor.job_claim()
    assert (queue.shampoo.ops.job(job_id) or {})["standing"] == "queued"


def test_a_repeat_releases_no_later_claim(queue: Queue, clock: Clock) -> None:
    conductor, worker = queue.principal("c", PROJECT, conductor=True), queue.principal("w", PROJECT)
    job_id, _ = claimed(queue, conductor, worker)
    repeats(queue, worker, "job_release", {"job_id": job_id}, {"job_id": MISSING})
    worker.job_claim()
    before = raw(queue)
    again = worker.call("job_release", {"job_id": job_id}, request_id="again")
    assert (again, again.meta.replayed) == ({"job_id": job_id, "state": "queued"}, True)
    assert raw(queue) == before


def test_a_refused_release_is_not_remembered(queue: Queue, clock: Clock) -> None:
    conductor, worker = queue.principal("c", PROJECT, conductor=True), queue.principal("w", PROJECT)
    (job_id,) = queue.create(conductor, project=PROJECT)
    again = not_remembered(queue, "job_not_claimed", worker, "job_release", {"job_id": job_id})
    worker.job_claim()
    assert again() == {"job_id": job_id, "state": "queued"}


# Delays and reasons, the library's own ------------------------------------------------------------------------


def test_a_job_given_back_for_later_is_claimable_when_the_delay_is_over(queue: Queue, clock: Clock) -> None:
    conductor, worker = queue.principal("c", PROJECT, conductor=True), queue.principal("w", PROJECT)
    (job_id,) = queue.create(conductor, project=PROJECT)
    claim = worker.job_claim()
    clock.advance(1)
    assert worker.release(claim, delay_seconds=2.5, reason="no disk").state == "queued"
    job = queue.shampoo.ops.job(job_id) or {}
    assert (job["standing"], job["owner"], job["lease_until"], job["attempts"]) == ("queued", "", "", 1)
    assert job["due_at"] == iso(clock.now + 2_500)
    assert last_event(queue, job_id) == {
        "event": "job.released",
        "entity_id": job_id,
        "project": PROJECT,
        "actor": "w",
        "holder": "h",
        "from": "claimed",
        "to": "queued",
        "attempts": 1,
        "fence": claim.fence,
        "reason": "no disk",
    }
    clock.advance(2.499)
    assert not conductor.job_claim()
    assert not conductor.job_claim(kind="k")
    clock.advance(0.001)
    assert conductor.job_claim().attempts == 2
    assert "due_at" not in (queue.shampoo.ops.job(job_id) or {})


def test_the_library_releases_under_the_fence_of_the_claim(queue: Queue, clock: Clock) -> None:
    conductor, worker = queue.principal("c", PROJECT, conductor=True), queue.principal("w", PROJECT)
    queue.create(conductor, project=PROJECT)
    first = worker.job_claim(lease_seconds=1)
    clock.advance(1)
    again = worker.job_claim()
    refused(queue, "lease_expired", worker.release, first, delay_seconds=5)
    assert worker.release(again).state == "queued"
    refused(queue, "job_not_claimed", worker.release, again)
    refused(queue, "invalid_argument", worker.release, worker.job_claim(kind="none"))


def test_who_came_too_late_may_still_give_back_for_later(queue: Queue, clock: Clock) -> None:
    conductor, worker = queue.principal("c", PROJECT, conductor=True), queue.principal("w", PROJECT)
    queue.create(conductor, project=PROJECT)
    claim = worker.job_claim(lease_seconds=1)
    clock.advance(2)
    worker.release(claim, delay_seconds=5)
    assert not conductor.job_claim()
    clock.advance(5)
    assert conductor.job_claim()


def test_a_retry_stands_behind_what_became_claimable_before_it_is_due(queue: Queue, clock: Clock) -> None:
    """Field report 10: a failing job does not pin the head of the queue."""
    conductor = queue.principal("c", PROJECT, conductor=True)
    failing, second = queue.create(conductor, 2, project=PROJECT)
    conductor.release(conductor.job_claim(), delay_seconds=3)
    clock.advance(1)
    (third,) = queue.create(conductor, project=PROJECT)
    clock.advance(9)
    assert [conductor.job_claim().job_id for _ in range(3)] == [second, third, failing]


def test_an_exhausted_job_given_back_for_later_stays_exhausted(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    (job_id,) = queue.create(conductor, project=PROJECT)
    for _ in range(5):
        conductor.release(conductor.job_claim(), delay_seconds=10)
        assert not conductor.job_claim()
        clock.advance(10)
    assert not conductor.job_claim()
    assert queue.shampoo.ops.expire().exhausted == 1
    queue.shampoo.ops.requeue(job_id)
    assert "due_at" not in (queue.shampoo.ops.job(job_id) or {})
    assert conductor.job_claim().attempts == 1


def test_an_exhausted_job_that_is_not_due_yet_can_be_requeued_and_cancelled(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    for act in (queue.shampoo.ops.requeue, lambda job_id: queue.shampoo.ops.cancel(job_id, "enough")):
        (job_id,) = queue.create(conductor, project=PROJECT)
        for _ in range(5):
            clock.advance(10)
            conductor.release(conductor.job_claim(), delay_seconds=10)
        act(job_id)
        assert "due_at" not in (queue.shampoo.ops.job(job_id) or {})
        if act == queue.shampoo.ops.requeue:
            conductor.complete(conductor.job_claim())
    assert not conductor.job_claim()


def test_the_reason_of_a_release_is_in_history_only(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    (job_id,) = queue.create(conductor, project=PROJECT)
    conductor.release(conductor.job_claim(), reason="drained")
    assert "reason" not in (queue.shampoo.ops.job(job_id) or {})
    assert conductor.job(job_id).reason == ""
    assert queue.shampoo.history(job_id)[-1].reason == "drained"


@pytest.mark.parametrize("seconds", [-1, 31_536_001, float("nan"), "5", True], ids=str)
def test_a_delay_that_is_none_is_refused(queue: Queue, clock: Clock, seconds: Any) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    queue.create(conductor, project=PROJECT)
    refused(queue, "invalid_argument", conductor.release, conductor.job_claim(), delay_seconds=seconds)
