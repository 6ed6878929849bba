"""``job_complete``: a claimed job ends, for good, as completed or failed."""

from __future__ import annotations

from typing import Any

import pytest

from shampoo_queue.claims import Ending
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
)
from tests.queue import Clock, Queue


@pytest.mark.parametrize("state", ["completed", "failed"])
def test_an_owner_ends_its_job(queue: Queue, clock: Clock, state: str) -> None:
    conductor, worker = queue.principal("c", PROJECT, conductor=True), queue.principal("w", PROJECT)
    job_id, fence = claimed(queue, conductor, worker)
    clock.advance(1)
    answer = worker.call("job_complete", {"job_id": job_id, "outcome": state, "result_ref": "verdict:1"}, fence=fence)
    assert answer == {"job_id": job_id, "state": state}
    job = queue.shampoo.ops.job(job_id) or {}
    assert (job["standing"], job["owner"], job["result_ref"], job["attempts"]) == (state, "w", "verdict:1", 1)
    assert job["changed_at"] == "2027-01-15T08:00:01.000Z"
    assert job["lease_until"] == ""
    assert last_event(queue, job_id) == {
        "event": f"job.{state}",
        "entity_id": job_id,
        "project": PROJECT,
        "actor": "w",
        "holder": "h",
        "from": "claimed",
        "to": state,
        "attempts": 1,
        "fence": fence,
    }
    clock.advance(10_000)
    assert not conductor.job_claim()


def test_a_result_ref_comes_to_rest_byte_for_byte(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    for result_ref in ("nul \0\n", "\U0001f600" * 512, "[]", " "):
        job_id, _ = claimed(queue, conductor, conductor)
        conductor.job_complete(job_id=job_id, outcome="completed", result_ref=result_ref)
        assert (queue.shampoo.ops.job(job_id) or {})["result_ref"] == result_ref


@pytest.mark.parametrize("given", [{}, {"result_ref": ""}, {"result_ref": None}], ids=str)
def test_an_absent_result_ref_is_not_kept(queue: Queue, given: dict[str, str]) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    job_id, _ = claimed(queue, conductor, conductor)
    conductor.call("job_complete", {"job_id": job_id, "outcome": "failed", **given})
    assert "result_ref" not in (queue.shampoo.ops.job(job_id) or {})


def test_every_role_gets_its_answer(queue: Queue) -> None:
    callers = cast(queue)
    holder = queue.principal("holder", PROJECT)
    answers = {}
    for role, caller in callers.items():
        job_id, _ = claimed(queue, callers["conductor"], holder)
        answers[role] = outcome(caller.job_complete, job_id=job_id, outcome="completed")
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
    refused(queue, "unauthenticated", worker.job_complete, job_id=job_id, outcome="completed", fence=fence)
    refused(queue, "unauthenticated", worker.job_complete, job_id=MISSING, outcome="completed")


def test_a_job_that_is_missing_or_out_of_scope_is_not_found(queue: Queue, clock: Clock) -> None:
    conductor, outsider = queue.principal("c", PROJECT, conductor=True), queue.principal("o", "q", conductor=True)
    worker = queue.principal("w", PROJECT)
    (queued,) = queue.create(conductor, kind="later", project=PROJECT)
    ended, fence = claimed(queue, conductor, worker)
    worker.job_complete(job_id=ended, outcome="failed")
    running, _ = claimed(queue, conductor, worker)
    names = [*odd_ids(running), running, queued, ended]
    for facts in ({"outcome": "completed"}, {"outcome": "failed", "result_ref": "x"}):
        refused_alike(queue, "job_not_found", outsider, "job_complete", [{"job_id": n, **facts} for n in names])
    refused(queue, "job_not_found", outsider.job_complete, job_id=ended, outcome="completed", fence=fence + 1)
    queue.shampoo.registry.revoke("w", PROJECT)
    refused(queue, "job_not_found", worker.job_complete, job_id=ended, outcome="failed")
    refused(queue, "job_not_found", worker.job_complete, job_id=running, outcome="failed")


def test_an_odd_id_names_nothing_for_its_owner_either(queue: Queue) -> None:
    conductor = queue.principal("c", PROJECT, "*", conductor=True)
    job_id, _ = claimed(queue, conductor, conductor)
    many = [{"job_id": name, "outcome": "completed"} for name in odd_ids(job_id)]
    refused_alike(queue, "job_not_found", conductor, "job_complete", many)


def test_the_same_outcome_again_is_idempotent(queue: Queue, clock: Clock) -> None:
    conductor, worker = queue.principal("c", PROJECT, conductor=True), queue.principal("w", PROJECT)
    job_id, fence = claimed(queue, conductor, worker, lease_seconds=1)
    call = {"job_id": job_id, "outcome": "completed", "result_ref": "first"}
    worker.call("job_complete", call, request_id="r")
    clock.advance(10_000)
    before = raw(queue)
    for client, fence_, request_id in ((worker, fence, "r"), (worker, None, "s"), (conductor, None, None)):
        again = client.call("job_complete", call | {"result_ref": "second"}, request_id=request_id, fence=fence_)
        assert again == {"job_id": job_id, "state": "completed", "idempotent": True}
        assert again.meta.replayed
    assert raw(queue) == before


def test_an_ended_job_takes_no_other_outcome_owner_or_fence(queue: Queue, clock: Clock) -> None:
    conductor, worker = queue.principal("c", PROJECT, conductor=True), queue.principal("w", PROJECT)
    other = queue.principal("o", PROJECT)
    job_id, fence = claimed(queue, conductor, worker)
    worker.job_complete(job_id=job_id, outcome="completed")
    for client in (worker, conductor, other):
        refused(queue, "job_already_terminal", client.job_complete, job_id=job_id, outcome="failed", fence=fence)
        refused(queue, "job_already_terminal", client.job_complete, job_id=job_id, outcome="failed", fence=fence + 1)
    for client in (worker, conductor):
        refused(queue, "job_already_terminal", client.job_complete, job_id=job_id, outcome="completed", fence=fence + 1)
    refused(queue, "job_already_terminal", other.job_complete, job_id=job_id, outcome="completed", fence=fence)


def test_a_queued_job_is_not_claimed_whatever_the_fence_and_the_role(queue: Queue, clock: Clock) -> None:
    conductor, worker = queue.principal("c", PROJECT, conductor=True), queue.principal("w", PROJECT)
    job_id, fence = claimed(queue, conductor, worker)
    worker.job_release(job_id=job_id)
    (untouched,) = queue.create(conductor, project=PROJECT)
    for client in (worker, conductor):
        for given in (None, fence, fence + 1):
            refused(queue, "job_not_claimed", client.job_complete, job_id=job_id, outcome="failed", fence=given)
            refused(queue, "job_not_claimed", client.job_complete, job_id=untouched, outcome="failed", fence=given)


def test_a_differing_fence_is_an_expired_lease_for_everybody(queue: Queue, clock: Clock) -> None:
    conductor, worker = queue.principal("c", PROJECT, conductor=True), queue.principal("w", PROJECT)
    other = queue.principal("o", PROJECT)
    job_id, fence = claimed(queue, conductor, worker)
    for client in (worker, other, conductor):
        for differing in (fence - 1, fence + 1, 0, -fence):
            refused(queue, "lease_expired", client.job_complete, job_id=job_id, outcome="failed", fence=differing)
    refused(queue, "job_not_claimed", other.job_complete, job_id=job_id, outcome="failed", fence=fence)


def test_a_lapsed_lease_cannot_complete(queue: Queue, clock: Clock) -> None:
    conductor, worker = queue.principal("c", PROJECT, conductor=True), queue.principal("w", PROJECT)
    other = queue.principal("o", PROJECT)
    job_id, fence = claimed(queue, conductor, worker, lease_seconds=10)
    clock.advance(10)
    refused(queue, "lease_expired", worker.job_complete, job_id=job_id, outcome="completed")
    refused(queue, "lease_expired", worker.job_complete, job_id=job_id, outcome="completed", fence=fence)
    refused(queue, "job_not_claimed", other.job_complete, job_id=job_id, outcome="completed")
    assert (queue.shampoo.ops.job(job_id) or {})["standing"] == "claimed"


def test_the_last_millisecond_of_a_lease_can_complete(queue: Queue, clock: Clock) -> None:
    conductor, worker = queue.principal("c", PROJECT, conductor=True), queue.principal("w", PROJECT)
    job_id, _ = claimed(queue, conductor, worker, lease_seconds=10)
    clock.advance(9.999)
    assert worker.job_complete(job_id=job_id, outcome="completed").state == "completed"


def test_a_conductor_completes_anybodys_claim_whatever_the_lease(queue: Queue, clock: Clock) -> None:
    conductor, worker = queue.principal("c", PROJECT, conductor=True), queue.principal("w", PROJECT)
    job_id, fence = claimed(queue, conductor, worker, lease_seconds=10)
    clock.advance(10)
    assert conductor.job_complete(job_id=job_id, outcome="failed", fence=fence).state == "failed"
    assert (queue.shampoo.ops.job(job_id) or {})["owner"] == "w"
    assert last_event(queue, job_id)["actor"] == "c"
    assert worker.job_complete(job_id=job_id, outcome="failed").idempotent


def test_a_fence_tells_two_claims_of_one_principal_apart(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    queue.shampoo.registry.add_principal("w", grants=[PROJECT])
    first, second = (queue.shampoo.client("w", holder=holder) for holder in ("one", "two"))
    job_id, old = claimed(queue, conductor, first, lease_seconds=1)
    clock.advance(1)
    new = second.job_claim().fence
    refused(queue, "lease_expired", first.job_complete, job_id=job_id, outcome="failed", fence=old)
    assert second.job_complete(job_id=job_id, outcome="completed", fence=new).state == "completed"
    refused(queue, "job_already_terminal", first.job_complete, job_id=job_id, outcome="completed", fence=old)


def test_without_a_fence_a_claim_belongs_to_the_principal(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    queue.shampoo.registry.add_principal("w", grants=[PROJECT])
    first, second = (queue.shampoo.client("w", holder=holder) for holder in ("one", "two"))
    job_id, _ = claimed(queue, conductor, first)
    assert second.job_complete(job_id=job_id, outcome="completed").state == "completed"
    assert last_event(queue, job_id)["holder"] == "two"


def test_a_job_on_its_last_attempt_ends_like_any_other(queue: Queue, clock: Clock) -> None:
    conductor, worker = queue.principal("c", PROJECT, conductor=True), queue.principal("w", PROJECT)
    (job_id,) = queue.create(conductor, project=PROJECT)
    (lapsing,) = queue.create(conductor, project=PROJECT, kind="lapsing")
    for _ in range(5):
        clock.advance(10)
        worker.job_claim(kind="k", lease_seconds=10)
        worker.job_claim(kind="lapsing", lease_seconds=10)
    assert worker.job_complete(job_id=job_id, outcome="completed").state == "completed"
    clock.advance(10)
    refused(queue, "lease_expired", worker.job_complete, job_id=lapsing, outcome="completed")
    assert conductor.job_complete(job_id=lapsing, outcome="failed").state == "failed"


def test_a_request_id_of_another_call_is_refused_before_the_look_up(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    job_id, _ = claimed(queue, conductor, conductor)
    conductor.job_create(kind="k", project=PROJECT, request_id="r")
    for name in (job_id, MISSING):
        refused(queue, "request_id_reused", conductor.job_complete, job_id=name, outcome="failed", request_id="r")
    queue.shampoo.registry.disable_principal("c")
    refused(queue, "unauthenticated", conductor.job_complete, job_id=job_id, outcome="failed", request_id="r")


def test_a_refused_completion_is_not_remembered(queue: Queue, clock: Clock) -> None:
    conductor, worker = queue.principal("c", PROJECT, conductor=True), queue.principal("w", PROJECT)
    (job_id,) = queue.create(conductor, project=PROJECT)
    call = {"job_id": job_id, "outcome": "completed"}
    again = not_remembered(queue, "job_not_claimed", worker, "job_complete", call)
    worker.job_claim()
    assert again() == {"job_id": job_id, "state": "completed"}


# Reasons, the library's own -----------------------------------------------------------------------------------


def test_a_failure_keeps_its_reason(queue: Queue, clock: Clock) -> None:
    conductor, worker = queue.principal("c", PROJECT, conductor=True), queue.principal("w", PROJECT)
    queue.create(conductor, project=PROJECT)
    claim = worker.job_claim()
    assert worker.fail(claim, reason="no disk", result_ref="log:1").state == "failed"
    job = queue.shampoo.ops.job(claim.job_id) or {}
    assert (job["standing"], job["reason"], job["result_ref"]) == ("failed", "no disk", "log:1")
    event = last_event(queue, claim.job_id)
    assert (event["event"], event["reason"], event["fence"]) == ("job.failed", "no disk", claim.fence)
    before = raw(queue)
    again = worker.fail(claim, reason="another")
    assert (again.state, again.idempotent) == ("failed", True)
    assert raw(queue) == before
    refused(queue, "job_already_terminal", worker.complete, claim)


def test_a_completion_has_no_reason(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    queue.create(conductor, 2, project=PROJECT)
    first, second = conductor.claim_many(2)
    conductor.complete(first, result_ref="r")
    (found,) = conductor.end_many([Ending(second, "completed", result_ref="r", reason="not told")])
    assert getattr(found, "state", found) == "completed"
    for claim in (first, second):
        assert (conductor.job(claim.job_id).reason, conductor.job(claim.job_id).result_ref) == ("", "r")


@pytest.mark.parametrize(
    ("reason", "kept"),
    [
        ("x" * 513, "x" * 512),
        ("\U0001f600" * 600, "\U0001f600" * 512),
        ("a\ud800b", "a?b"),
        ("nul \0 and \r\n \x1b[0m", "nul \0 and \r\n \x1b[0m"),
        ("", ""),
        (ValueError("no"), "no"),
        (None, "None"),
    ],
    ids=["long", "wide", "surrogate", "controls", "empty", "an exception", "None"],
)
def test_any_reason_can_be_kept(queue: Queue, clock: Clock, reason: Any, kept: str) -> None:
    """Field report 35: no byte of a reason stands in the way of the failure."""
    conductor = queue.principal("c", PROJECT, conductor=True)
    queue.create(conductor, project=PROJECT)
    claim = conductor.job_claim()
    conductor.fail(claim, reason=reason)
    told = "" if reason is None else kept
    assert conductor.job(claim.job_id).reason in (kept, told)
    assert (queue.shampoo.history(claim.job_id)[-1].reason or "") in (kept, told)


def test_the_library_ends_under_the_fence_of_the_claim(queue: Queue, clock: Clock) -> None:
    conductor, worker = queue.principal("c", PROJECT, conductor=True), queue.principal("w", PROJECT)
    queue.create(conductor, project=PROJECT)
    first = worker.job_claim(lease_seconds=1)
    clock.advance(1)
    again = worker.job_claim()
    for act in (worker.complete, worker.fail):
        refused(queue, "lease_expired", act, first)
        refused(queue, "invalid_argument", act, worker.job_claim(kind="none"))
    assert worker.complete(again).state == "completed"
