"""``job_renew``, a move of the library: the owner of a live lease holds its job longer."""

from __future__ import annotations

from typing import Any

import pytest

from shampoo_queue import Client
from shampoo_queue.contract import JobClaimResult
from shampoo_queue.tools import iso
from tests.contract.cast import MISSING, PROJECT, cast, odd_ids, outcome, raw, refused
from tests.queue import Clock, Queue

Pair = tuple[Client, Client]


@pytest.fixture
def pair(queue: Queue, clock: Clock) -> Pair:
    """A conductor and a worker of one project."""
    return queue.principal("c", PROJECT, conductor=True), queue.principal("w", PROJECT)


def claim(queue: Queue, pair: Pair, lease_seconds: int = 60, kind: str = "k") -> JobClaimResult:
    """Let the worker claim a fresh job."""
    queue.create(pair[0], project=PROJECT, kind=kind)
    return pair[1].job_claim(kind=kind, lease_seconds=lease_seconds)


def lease_until(queue: Queue, job_id: str) -> Any:
    return (queue.shampoo.ops.job(job_id) or {})["lease_until"]


def test_a_lease_is_renewed_for_the_time_it_was_claimed_for(queue: Queue, clock: Clock, pair: Pair) -> None:
    claimed = claim(queue, pair)
    clock.advance(50)
    before, events = raw(queue), queue.events()
    renewed = pair[1].renew(claimed)
    assert (renewed.job_id, renewed.lease_until) == (claimed.job_id, iso(clock.now + 60_000))
    assert lease_until(queue, claimed.job_id) == iso(clock.now + 60_000)
    assert queue.events() == events
    changed = {key.decode().removeprefix(f"shampoo:{{{queue.profile}}}:") for key, value in raw(queue).items()
               if before.get(key) != value}  # fmt: skip
    assert changed == {f"job:{claimed.job_id}", f"ready:{PROJECT}:k", f"kinds:{PROJECT}", "projects", "projects_of:k",
                       "running:k"}  # fmt: skip
    clock.advance(59.999)
    assert not pair[0].job_claim()
    clock.advance(0.001)
    assert pair[0].job_claim().attempts == 2


def test_a_renewal_changes_nothing_of_a_job_but_its_lease(queue: Queue, clock: Clock, pair: Pair) -> None:
    claimed = claim(queue, pair)
    before = queue.shampoo.ops.job(claimed.job_id) or {}
    clock.advance(7)
    pair[1].renew(claimed)
    assert (queue.shampoo.ops.job(claimed.job_id) or {}) == before | {"lease_until": iso(clock.now + 60_000)}
    done = pair[1].job_complete(job_id=claimed.job_id, outcome="completed", fence=claimed.fence)
    assert done.state == "completed"


@pytest.mark.parametrize("seconds", [1, 3600])
def test_a_renewal_may_ask_for_another_time_longer_or_shorter(
    queue: Queue, clock: Clock, pair: Pair, seconds: int
) -> None:
    claimed = claim(queue, pair)
    assert pair[1].renew(claimed, lease_seconds=seconds).lease_until == iso(clock.now + seconds * 1000)
    clock.advance(seconds - 0.001)
    assert not pair[0].job_claim()
    clock.advance(0.001)
    assert pair[0].job_claim()


def test_a_lease_can_be_renewed_in_its_last_millisecond_and_not_after(queue: Queue, clock: Clock, pair: Pair) -> None:
    claimed = claim(queue, pair)
    clock.advance(59.999)
    pair[1].renew(claimed)
    clock.advance(60)
    refused(queue, "lease_expired", pair[1].renew, claimed)
    clock.advance(1)
    refused(queue, "lease_expired", pair[1].renew, claimed)


def test_a_renewal_may_be_repeated(queue: Queue, clock: Clock, pair: Pair) -> None:
    claimed = claim(queue, pair)
    first = pair[1].renew(claimed)
    before = raw(queue)
    assert pair[1].renew(claimed).lease_until == first.lease_until
    assert raw(queue) == before


def test_no_renewal_is_remembered(queue: Queue, clock: Clock, pair: Pair) -> None:
    claimed = claim(queue, pair)
    before = sorted(key for key in queue.facts() if ":replay:" in key)
    for _ in range(3):
        pair[1].renew(claimed)
    assert sorted(key for key in queue.facts() if ":replay:" in key) == before


def test_every_role_gets_its_answer(queue: Queue, clock: Clock) -> None:
    callers = cast(queue)
    answers = {}
    for role, caller in callers.items():
        (job_id,) = queue.create(callers["conductor"], kind=role, project=PROJECT)
        claimed = queue.principal(f"holder of {role}", PROJECT).job_claim(kind=role)
        assert claimed.job_id == job_id
        answers[role] = outcome(caller.renew, claimed)
    assert answers == dict.fromkeys(callers, "job_not_claimed") | {
        "unknown": "unauthenticated",
        "disabled": "unauthenticated",
        "outsider": "job_not_found",
        "bare conductor": "job_not_found",
    }


def test_a_disabled_owner_and_one_whose_grant_was_revoked_renew_nothing(queue: Queue, clock: Clock, pair: Pair) -> None:
    claimed = claim(queue, pair)
    queue.shampoo.registry.revoke("w", PROJECT)
    refused(queue, "job_not_found", pair[1].renew, claimed)
    queue.shampoo.registry.grant("w", "*")
    pair[1].renew(claimed)
    queue.shampoo.registry.disable_principal("w")
    refused(queue, "unauthenticated", pair[1].renew, claimed)


def test_an_id_that_names_nothing_is_not_found(queue: Queue, clock: Clock, pair: Pair) -> None:
    claimed = claim(queue, pair)
    for name in (MISSING, *odd_ids(claimed.job_id)):
        other = claimed.model_copy(update={"job_id": name})
        other._meta = claimed.meta
        refused(queue, "job_not_found", pair[1].renew, other)


@pytest.mark.parametrize("seconds", [0, -1, 3601, 1.5, "60", True, float("nan")], ids=str)
def test_a_length_that_no_lease_may_have_is_refused(queue: Queue, clock: Clock, pair: Pair, seconds: Any) -> None:
    refused(queue, "invalid_argument", pair[1].renew, claim(queue, pair), lease_seconds=seconds)


def test_a_claim_of_nothing_cannot_be_renewed(queue: Queue, clock: Clock, pair: Pair) -> None:
    refused(queue, "invalid_argument", pair[1].renew, pair[1].job_claim())


def test_a_stalled_owner_pushes_nobodys_lease_out(queue: Queue, clock: Clock, pair: Pair) -> None:
    """Field report 4 (a): the heartbeat of the former owner leaves its successor's lease untouched."""
    conductor, worker = pair
    claimed = claim(queue, pair)
    clock.advance(60)
    taken = conductor.job_claim(lease_seconds=30)
    refused(queue, "lease_expired", worker.renew, claimed)
    assert lease_until(queue, claimed.job_id) == taken.lease_until
    clock.advance(30)
    again = worker.job_claim(lease_seconds=30)
    assert again.attempts == 3
    refused(queue, "lease_expired", worker.renew, claimed)  # its own job, under another claim
    refused(queue, "lease_expired", conductor.renew, taken)
    worker.renew(again)


@pytest.mark.parametrize("ended", ["completed", "failed", "cancelled"])
def test_a_late_renewal_revives_no_ended_job(queue: Queue, clock: Clock, pair: Pair, ended: str) -> None:
    """Field report 4 (b): the job stays as it ended; no lease and no index entry comes back."""
    claimed = claim(queue, pair)
    if ended == "cancelled":
        queue.shampoo.ops.cancel(claimed.job_id, "enough")
    else:
        pair[1].job_complete(job_id=claimed.job_id, outcome=ended)
    refused(queue, "job_already_terminal", pair[1].renew, claimed)
    clock.advance(3600)
    refused(queue, "job_already_terminal", pair[1].renew, claimed)


def test_a_late_renewal_holds_no_job_that_was_given_back(queue: Queue, clock: Clock, pair: Pair) -> None:
    """Field report 4 (c): after a release, and after the next claim, also one of the same owner."""
    claimed = claim(queue, pair)
    pair[1].job_release(job_id=claimed.job_id)
    refused(queue, "job_not_claimed", pair[1].renew, claimed)
    again = pair[1].job_claim(lease_seconds=60)
    refused(queue, "lease_expired", pair[1].renew, claimed)
    pair[1].renew(again)


@pytest.mark.parametrize("grant", [PROJECT, "*"])
@pytest.mark.parametrize("kind", ["k", None])
def test_a_renewed_job_moves_back_in_every_index(
    queue: Queue, clock: Clock, pair: Pair, grant: str, kind: str | None
) -> None:
    other = queue.principal("o", grant)
    first, second = claim(queue, pair, 10), claim(queue, pair, 20)
    clock.advance(9)
    pair[1].renew(first, lease_seconds=60)
    clock.advance(10.999)
    assert not other.job_claim(kind=kind)
    clock.advance(0.001)
    assert other.job_claim(kind=kind, lease_seconds=300).job_id == second.job_id
    clock.advance(48.999)
    assert not other.job_claim(kind=kind)
    clock.advance(0.001)
    assert other.job_claim(kind=kind).job_id == first.job_id


def test_a_shortened_lease_moves_its_job_forward(queue: Queue, clock: Clock, pair: Pair) -> None:
    long, short = claim(queue, pair, 300), claim(queue, pair, 20)
    pair[1].renew(long, lease_seconds=1)
    clock.advance(20)
    assert [pair[0].job_claim().job_id for _ in range(2)] == [long.job_id, short.job_id]


def test_the_last_attempt_is_renewed_too(queue: Queue, clock: Clock, pair: Pair) -> None:
    conductor, worker = pair
    (job_id,) = queue.create(conductor, project=PROJECT)
    for _ in range(5):
        clock.advance(10)
        last = worker.job_claim(lease_seconds=10)
    clock.advance(9)
    worker.renew(last)
    assert queue.command("ZSCORE", queue.key("spent"), job_id) in (str(clock.now + 10_000).encode(), clock.now + 10_000)
    clock.advance(9.999)
    refused(queue, "job_not_requeueable", queue.shampoo.ops.requeue, job_id)
    assert queue.shampoo.ops.expire().exhausted == 0
    clock.advance(0.001)
    assert queue.shampoo.ops.expire().exhausted == 1
    refused(queue, "lease_expired", worker.renew, last)
    assert not conductor.job_claim()
    queue.shampoo.ops.requeue(job_id)


def test_a_claim_stays_repeatable_as_long_as_it_is_renewed(queue: Queue, clock: Clock, pair: Pair) -> None:
    conductor, worker = pair
    queue.create(conductor, 2, project=PROJECT)
    claimed = worker.job_claim(lease_seconds=10, request_id="r")
    clock.advance(9)
    renewed = worker.renew(claimed)
    clock.advance(9)
    again = worker.job_claim(lease_seconds=10, request_id="r")
    assert (again.job_id, again.fence, again.lease_until) == (claimed.job_id, claimed.fence, renewed.lease_until)


def test_a_batch_of_renewals_gives_each_its_own_answer(queue: Queue, clock: Clock, pair: Pair) -> None:
    lapsing, ended, held = (claim(queue, pair, seconds) for seconds in (1, 60, 60))
    pair[1].complete(ended)
    clock.advance(1)
    found = pair[1].renew_many([lapsing, ended, held], lease_seconds=5)
    assert [getattr(each, "code", "renewed") for each in found] == ["lease_expired", "job_already_terminal", "renewed"]
    assert lease_until(queue, held.job_id) == iso(clock.now + 5_000)
    assert pair[1].renew_many([]) == []
