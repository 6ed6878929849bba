"""Clocks of clients are wrong, and the server's clock jumps; leases follow the server's clock alone."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime

import pytest

from shampoo_queue.errors import LeaseExpired, Unavailable
from tests.conftest import REAL
from tests.faults.cases import Stage, call_every_tool
from tests.faults.conftest import Open, Start
from tests.faults.flavours import Blocking
from tests.faults.processes import Child, Nursery
from tests.queue import Clock, Queue

HOUR = 3600
SKEWS = {"slow": -HOUR, "right": 0, "fast": HOUR}
NONE = {"claimed": False}

every_engine = pytest.mark.parametrize("engine", REAL, indirect=True)


@pytest.fixture
def stage(queue: Queue, clock: Clock) -> Stage:
    return Stage(queue)


# Clocks of clients ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def nurseries() -> Iterator[dict[str, Nursery]]:
    """Processes whose wall clock is an hour slow, right, and an hour fast."""
    with ExitStack() as stack:
        yield {name: stack.enter_context(Nursery(skew)) for name, skew in SKEWS.items()}


@pytest.fixture
def skewed(stage: Stage, nurseries: dict[str, Nursery]) -> dict[str, Child]:
    """A process of each clock, all in the name of one principal."""
    queue = stage.queue
    order = ("caller", queue.engine.url, queue.profile, "w", "skewed", str(queue.shampoo._wire._lua))
    return {name: nursery.fork(*order) for name, nursery in nurseries.items()}


def iso(milliseconds: int) -> str:
    stamp = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return f"{stamp:%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03d}Z"


@every_engine
def test_a_lease_ends_by_the_servers_clock_whatever_the_clients_believe(
    stage: Stage, clock: Clock, skewed: dict[str, Child]
) -> None:
    """Field report 25: no early takeover, no late one, and ``lease_until`` is the server's for every reader."""
    assert {name: round((child.call("lane_list")["now"] - time.time()) / HOUR) for name, child in skewed.items()} == {
        "slow": -1,
        "right": 0,
        "fast": 1,
    }
    for owner in SKEWS:
        stage.job = stage.conductor.job_create(kind=owner, project="p").job_id
        claim = skewed[owner].call("job_claim", kind=owner, lease_seconds=60)
        lease_until = iso(clock.now + 60_000)
        assert claim["answer"]["lease_until"] == lease_until
        assert stage.queue.shampoo.ops.job(stage.job)["lease_until"] == lease_until  # type: ignore[index]
        clock.advance(59.999)
        for other in SKEWS:
            assert skewed[other].call("job_claim", kind=owner)["answer"] == NONE
        clock.advance(0.001)
        late = skewed[owner].call("job_complete", {"fence": claim["fence"]}, job_id=stage.job, outcome="completed")
        assert late == {"error": "lease_expired"}
        taken = skewed["right"].call("job_claim", kind=owner, lease_seconds=60)
        assert (taken["answer"]["job_id"], taken["answer"]["attempts"]) == (stage.job, 2)


@every_engine
def test_an_owner_completes_until_the_last_millisecond_whatever_its_clock(
    stage: Stage, clock: Clock, skewed: dict[str, Child]
) -> None:
    """Field report 25: just before the lease ends, a completion is in time."""
    for owner, child in skewed.items():
        stage.job = stage.conductor.job_create(kind=owner, project="p").job_id
        claim = child.call("job_claim", kind=owner, lease_seconds=60)
        clock.advance(59.999)
        done = child.call("job_complete", {"fence": claim["fence"]}, job_id=stage.job, outcome="completed")
        assert done["answer"] == {"job_id": stage.job, "state": "completed"}


# The server's clock ---------------------------------------------------------------------------------------------


@every_engine
def test_a_clock_set_back_keeps_a_job_from_nobody_longer_than_its_lease_and_the_step(
    stage: Stage, clock: Clock
) -> None:
    """Field report 26: the owner may still complete and release; the lease ends when the clock comes by again."""
    stage.queued()
    first, second = (stage.worker.job_claim(lease_seconds=300) for _ in range(2))
    clock.advance(-HOUR)
    assert not stage.worker.job_claim()
    assert stage.worker.job_release(job_id=second.job_id, fence=second.fence).state == "queued"
    assert stage.worker.job_claim(lease_seconds=300).job_id == second.job_id  # released by the clock of the moment
    clock.advance(HOUR + 299.999)
    assert stage.worker.job_claim().job_id == second.job_id
    assert not stage.worker.job_claim()
    clock.advance(0.001)
    assert stage.worker.job_claim().job_id == first.job_id


@every_engine
def test_a_job_queued_before_the_clock_was_set_back_waits_no_longer_than_the_step(stage: Stage, clock: Clock) -> None:
    """Field report 26: and what is created meanwhile is not held up by it."""
    stage.queued()
    clock.advance(-HOUR)
    fresh = stage.queue.create(stage.conductor, project="p")
    claimed = []
    while claim := stage.worker.job_claim():
        claimed.append(claim.job_id)
    assert fresh[0] in claimed
    clock.advance(HOUR)
    while claim := stage.worker.job_claim(lease_seconds=3600):
        claimed.append(claim.job_id)
    assert {stage.job, stage.other} <= set(claimed)


@every_engine
def test_every_tool_works_and_fences_rise_while_the_clock_is_set_back(stage: Stage, clock: Clock) -> None:
    """Field report 26: nothing crashes on a negative duration, and the history keeps the order of what happened."""
    stage.queued()
    stage.queue.shampoo.ops.cancel(stage.other, "out of the way")
    flavour = Blocking(stage.queue, stage.queue.engine.url)
    fences = [stage.worker.job_claim().fence]
    for _ in range(3):
        clock.advance(-HOUR)
        stage.worker.job_release(job_id=stage.job)
        fences.append(stage.worker.job_claim().fence)
    assert fences == sorted({fence for fence in fences if fence})
    stage.queue.shampoo.ops.cancel(stage.job, "done with")
    call_every_tool(flavour, stage)
    flavour.close()
    events = stage.queue.shampoo.history(limit=1000)
    assert [event.id for event in events] == list(range(1, len(events) + 1))
    stamps = [event["at"] for event in events]
    assert stamps != sorted(stamps)


@every_engine
def test_a_clock_set_forward_ends_leases_at_once_and_each_job_still_has_one_winner(stage: Stage, clock: Clock) -> None:
    """Field report 26: the whole backlog lapses together."""
    jobs = stage.queue.create(stage.conductor, 10, project="p")
    late = [stage.worker.job_claim(lease_seconds=300) for _ in jobs]
    clock.advance(-HOUR)
    clock.advance(2 * HOUR)
    with pytest.raises(LeaseExpired):
        stage.worker.job_complete(job_id=late[0].job_id, outcome="completed")
    won: list[str] = []
    meet = threading.Barrier(4)

    def claim() -> None:
        meet.wait(10)
        while found := stage.worker.job_claim(lease_seconds=300):
            won.append(found.job_id)

    claimers = [threading.Thread(target=claim) for _ in range(4)]
    for claimer in claimers:
        claimer.start()
    for claimer in claimers:
        claimer.join()
    assert sorted(won) == sorted(jobs)
    assert stage.queue.events().count("job.reclaimed") == len(jobs)


@every_engine
def test_remembered_answers_survive_a_step_of_the_clock(stage: Stage, clock: Clock) -> None:
    """Field report 26: a repeat under its request id within the step makes no second job."""
    job = {"kind": "k", "project": "p"}
    first = stage.conductor.call("job_create", job, request_id="mine")
    clock.advance(-HOUR)
    assert stage.conductor.call("job_create", job, request_id="mine") == first
    assert stage.queue.events().count("job.created") == 1


@pytest.mark.parametrize("binary", ["redis"], indirect=True)
@pytest.mark.parametrize("step", [-HOUR, HOUR])
def test_the_wait_of_the_library_does_not_follow_the_wall_clock(
    step: int, start: Start, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Field report 26: the retry time is measured by a clock that nobody sets."""
    server = start()
    stage = Stage(opened(server.url))
    flavour = Blocking(stage.queue, server.url, retry_seconds=1)
    server.kill()
    real = time.time
    steps = iter(range(1, 1_000_000))
    monkeypatch.setattr(time, "time", lambda: real() + step * next(steps))
    began = time.monotonic()
    with pytest.raises(Unavailable):
        flavour.tool("c", "lane_list")
    assert 0.3 < time.monotonic() - began < 10
    monkeypatch.undo()
    flavour.close()
    server.start()
