"""Workers are killed at work, again and again; every job is still completed, and once."""

from __future__ import annotations

import random
import time
from collections import Counter
from contextlib import suppress

import pytest

from shampoo_queue.errors import JobNotRequeueable
from shampoo_queue.history import Event
from tests.conftest import REAL
from tests.faults.processes import Nursery
from tests.queue import Queue

WORKERS = 8
PATIENCE = 100.0  # seconds


class Supervisor:
    """Keep eight workers alive: kill a random one now and then, and put another in its place."""

    def __init__(self, queue: Queue, nursery: Nursery, work: float, seed: int) -> None:
        self._queue, self._nursery, self._random = queue, nursery, random.Random(seed)
        self._order = ("worker", queue.engine.url, queue.profile, "w", "worker", str(work))
        self._workers = nursery.fork_many(WORKERS, *self._order)
        self.killed = self.requeued = 0

    def kill_one(self) -> None:
        place = self._random.randrange(WORKERS)
        self._workers[place].kill()
        self._workers[place] = self._nursery.fork(*self._order)
        self.killed += 1

    def requeue_the_exhausted(self) -> None:
        """Do what an operator does for a job that was unlucky five times. Kills are rare enough to make hardly any."""
        for job_id in self._queue.command("ZRANGE", self._queue.key("spent"), 0, -1):
            with suppress(JobNotRequeueable):  # its last lease is still live
                self._queue.shampoo.ops.requeue(job_id.decode())
                self.requeued += 1

    def all_done(self) -> bool:
        return not self._queue.command("EXISTS", self._queue.key("projects"), self._queue.key("spent"))


def whole_history(queue: Queue) -> list[Event]:
    found: list[Event] = []
    while page := queue.shampoo.history(after=found[-1].id if found else None, limit=1000):
        found += page
    return found


def work_off_with_kills(queue: Queue, nursery: Nursery, jobs: int, work: float, every: float) -> None:
    """Create the jobs, let the workers work and be killed until all is done, and account for every job."""
    conductor = queue.principal("c", "p", conductor=True)
    queue.principal("w", "p")
    created = queue.create(conductor, jobs, project="p")
    supervisor = Supervisor(queue, nursery, work, seed=jobs)
    deadline = time.monotonic() + PATIENCE
    while not supervisor.all_done():
        assert time.monotonic() < deadline, "not all jobs were completed in time"
        time.sleep(every)
        supervisor.kill_one()
        supervisor.requeue_the_exhausted()
    nursery.clear()
    events = whole_history(queue)
    completed = Counter(event["entity_id"] for event in events if event["event"] == "job.completed")
    assert completed == dict.fromkeys(created, 1)
    claims = [event for event in events if event["event"] == "job.claimed"]
    assert max(event["attempts"] for event in claims) <= 5
    takeovers = [event for event in events if event["event"] == "job.reclaimed"]
    assert len(claims) == jobs + len(takeovers) + supervisor.requeued
    assert takeovers, "no worker was killed with a job in its hands, so the test showed nothing"
    assert not queue.problems()


@pytest.mark.parametrize("engine", REAL, indirect=True)
def test_a_thousand_jobs_survive_killed_workers(queue: Queue, nursery: Nursery) -> None:
    """Field reports 2 and 5: SIGKILL at any moment; the lease lapses and another worker takes over."""
    work_off_with_kills(queue, nursery, jobs=1_000, work=0.01, every=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("engine", REAL, indirect=True)
def test_ten_thousand_jobs_survive_killed_workers(queue: Queue, nursery: Nursery) -> None:
    """Field reports 2 and 5, at length."""
    work_off_with_kills(queue, nursery, jobs=10_000, work=0.02, every=0.5)
