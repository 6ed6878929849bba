"""Fast handlers work in batches, each job for itself; caps are the owner's; waiting costs next to nothing."""

from __future__ import annotations

import threading
import time
from collections import Counter

import pytest

from shampoo_queue.worker import Job, Worker
from tests.conftest import REAL
from tests.worker.bench import Bench, wait_for

MANY = [pytest.param(500, id="500 jobs"), pytest.param(10_000, id="10,000 jobs", marks=pytest.mark.slow)]


@pytest.mark.parametrize("count", MANY)
@pytest.mark.parametrize("engine", REAL, indirect=True)
def test_many_fast_jobs_are_each_completed_once(bench: Bench, count: int) -> None:
    worker, seen = Worker(), Counter[str]()

    @worker.handles("async", concurrency=100)
    async def handle(job: Job) -> str:
        seen[job.job_id] += 1
        return job.job_id

    @worker.handles("thread", concurrency=20)
    def handle_too(job: Job) -> str:
        seen[job.job_id] += 1
        return job.job_id

    jobs = bench.create_many(count // 2, kind="async") + bench.create_many(count // 2, kind="thread")
    before = commands(bench)
    stats = bench.burst(worker)
    assert (stats.completed, stats.lost) == (count, 0)
    assert seen == Counter(jobs)
    events = Counter((event.entity_id, event.event) for event in bench.whole_history() if event.actor == "w")
    assert events == Counter([(job_id, event) for job_id in jobs for event in ("job.claimed", "job.completed")])
    assert commands(bench) - before < 2.5 * count  # a claim and an ending each, and little besides


def commands(bench: Bench) -> int:
    """How many scripts the server has run."""
    stats = bench.queue.command("INFO", "commandstats").decode()
    found = [line for line in stats.splitlines() if line.startswith("cmdstat_evalsha:")]
    return int(found[0].partition("calls=")[2].partition(",")[0]) if found else 0


def test_an_idle_worker_rests_at_the_queue_and_starts_a_new_job_at_once(bench: Bench) -> None:
    started: list[float] = []
    worker = Worker()
    worker.handles("k")(lambda job: started.append(time.monotonic()))
    with bench.run(worker):
        bench.ended(bench.create())
        time.sleep(0.3)
        before = commands(bench)
        time.sleep(2)
        assert commands(bench) - before <= 2
        created = time.monotonic()
        bench.ended(bench.create())
    assert started[1] - created < 0.5


def test_a_full_kind_leaves_new_work_to_others(bench: Bench) -> None:
    one, other = Worker(), Worker()
    both_done = threading.Event()
    one.handles("k", concurrency=1)(lambda job: str(both_done.wait(20)))
    other.handles("k", concurrency=1)(lambda job: None)
    first = bench.create()
    with bench.run(one):
        bench.until(first, "claimed")
        with bench.run(other):
            assert bench.ended(bench.create()).state == "completed"  # while the first handler still runs
            assert bench.job(first).state == "claimed"
            both_done.set()
            bench.ended(first)


def test_a_worker_never_runs_more_than_its_slots(bench: Bench) -> None:
    worker, most, now = Worker(concurrency=3), Counter[str](), Counter[str]()

    def handle(job: Job) -> None:
        now[job.kind] += 1
        for kind, count in [*now.items(), ("both", now.total())]:
            most[kind] = max(most[kind], count)
        time.sleep(0.02)
        now[job.kind] -= 1

    worker.handles("a", concurrency=2)(handle)
    worker.handles("b", concurrency=2)(handle)
    bench.create_many(15, kind="a")
    bench.create_many(15, kind="b")
    assert bench.burst(worker).completed == 30
    assert most == {"a": 2, "b": 2, "both": 3}


def test_the_owners_cap_on_a_kind_holds_over_workers(bench: Bench) -> None:
    running, most = Counter[str](), 0

    def handle(job: Job) -> None:
        nonlocal most
        running["k"] += 1
        most = max(most, running["k"])
        time.sleep(0.03)
        running["k"] -= 1

    bench.shampoo.ops.limit_kind("k", 2)
    jobs = bench.create_many(20)
    workers = [Worker() for _ in range(3)]
    for worker in workers:
        worker.handles("k", concurrency=4)(handle)
    with bench.run(workers[0]), bench.run(workers[1]), bench.run(workers[2]):
        before = commands(bench)
        for job_id in jobs:
            bench.ended(job_id)
        assert commands(bench) - before < 2_000  # no worker spins on work that the cap forbids
    assert most == 2


def test_releasing_again_and_again_pins_no_queue(bench: Bench) -> None:
    """Field report 10, worker side: good jobs go on while bad ones are tried again."""
    worker = Worker()

    @worker.handles("k", backoff=(0.1,), concurrency=2)
    def handle(job: Job) -> None:
        if job.payload == '["bad"]':
            raise ValueError("bad")

    bad = bench.create_many(10, "bad")
    good = bench.create_many(100, "good")
    with bench.run(worker):
        wait_for(lambda: all(bench.job(job_id).ended for job_id in bad), "the bad ones end")
        assert {bench.job(job_id).state for job_id in good} == {"completed"}
    assert {(bench.job(job_id).state, bench.job(job_id).attempts) for job_id in bad} == {("failed", 5)}
