"""Many processes want the same job at the same moment; every claim has exactly one winner."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.conftest import REAL
from tests.faults.processes import Child, Nursery
from tests.queue import Queue

CLAIMERS = 32
NONE: dict[str, Any] = {"claimed": False}


@pytest.fixture
def claimers(queue: Queue, nursery: Nursery) -> list[Child]:
    """Thirty-two processes of one principal, connected and waiting."""
    queue.principal("w", "p")
    return nursery.fork_many(CLAIMERS, "caller", queue.engine.url, queue.profile, "w", "racer")


def race(claimers: list[Child]) -> list[dict[str, Any]]:
    """Let every process claim at once, and give all their answers."""
    for claimer in claimers:
        claimer.send("job_claim")
    return [claimer.receive()["answer"] for claimer in claimers]


@pytest.mark.parametrize("engine", REAL, indirect=True)
def test_of_thirty_two_processes_exactly_one_wins_each_of_two_hundred_jobs(queue: Queue, claimers: list[Child]) -> None:
    """Field report 1: one ``claimed: true`` a job; the losers get ``{"claimed": false}`` and nothing else."""
    conductor = queue.principal("c", "p", conductor=True)
    for _ in range(200):
        job_id = conductor.job_create(kind="k", project="p", payload="x").job_id
        answers = race(claimers)
        won = [answer for answer in answers if answer != NONE]
        assert [(answer["job_id"], answer["attempts"]) for answer in won] == [(job_id, 1)]
        assert set(won[0]) == {"claimed", "job_id", "kind", "payload", "lease_until", "attempts"}
    events = Counter(queue.events())
    assert (events["job.claimed"], events["job.reclaimed"]) == (200, 0)


@pytest.mark.parametrize("engine", REAL, indirect=True)
def test_ten_jobs_go_to_ten_of_thirty_two_processes(queue: Queue, claimers: list[Child]) -> None:
    """Field report 1: with ten jobs all ten are handed out, and none twice."""
    conductor = queue.principal("c", "p", conductor=True)
    for _ in range(10):
        jobs = queue.create(conductor, 10, project="p")
        answers = race(claimers)
        assert sorted(answer["job_id"] for answer in answers if answer != NONE) == sorted(jobs)
        assert answers.count(NONE) == CLAIMERS - 10
    assert Counter(queue.events())["job.claimed"] == 100


@pytest.mark.parametrize("engine", ["redis7"], indirect=True)
def test_a_lapsed_lease_is_taken_over_by_one_of_thirty_two_processes(queue: Queue, nursery: Nursery) -> None:
    """Field reports 1 and 2: a takeover has one winner too, and records one reclaimed marker."""
    conductor = queue.principal("c", "p", conductor=True)
    clock = queue.stop_clock()
    claimers = nursery.fork_many(
        CLAIMERS, "caller", queue.engine.url, queue.profile, "c", "racer", str(queue.shampoo._wire._lua)
    )
    job_id = conductor.job_create(kind="k", project="p").job_id
    for attempt in range(1, 6):
        answers = race(claimers)
        assert [answer.get("attempts") for answer in answers if answer != NONE] == [attempt]
        clock.advance(300)
    assert race(claimers) == [NONE] * CLAIMERS  # five attempts are spent
    assert queue.events(job_id).count("job.reclaimed") == 4


@pytest.mark.parametrize("engine", REAL, indirect=True)
def test_thirty_two_processes_never_hold_more_of_a_kind_than_its_limit(queue: Queue, claimers: list[Child]) -> None:
    """Each claims, and completes what it won, while all others do; the feed tells how many ran at every moment."""
    conductor = queue.principal("c", "p", conductor=True)
    queue.shampoo.ops.limit_kind("k", 4)
    jobs = conductor.create_many([{"kind": "k", "project": "p"}] * 120)
    held: dict[Child, tuple[str, int]] = {}
    done = 0
    while done < len(jobs):
        for claimer in claimers:
            if claimer in held:
                job_id, fence = held[claimer]
                claimer.send("job_complete", {"fence": fence}, job_id=job_id, outcome="completed")
            else:
                claimer.send("job_claim")
        for claimer in claimers:
            said = claimer.receive()
            if claimer in held:
                assert said["answer"]["state"] == "completed"
                del held[claimer]
                done += 1
            elif said["answer"] != NONE:
                held[claimer] = said["answer"]["job_id"], said["fence"]
        assert len(held) <= 4
    running, most = 0, 0
    for event in queue.shampoo.history(limit=1000):
        running += {"job.claimed": 1, "job.completed": -1}.get(event.event, 0)
        most = max(most, running)
    assert (running, most) == (0, 4)
    assert Counter(queue.events())["job.claimed"] == len(jobs)
