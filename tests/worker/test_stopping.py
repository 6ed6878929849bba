"""A worker stops in good order, at once, or by force; nothing is lost, and nothing is held beyond its lease."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from shampoo_queue.errors import ConfigurationError, Unauthenticated
from shampoo_queue.worker import Job, Worker
from tests.worker.bench import RUNS_IN, Bench, Program, wait_for, worker_in
from tests.worker.test_leases import lines

each_way = pytest.mark.parametrize("runs_in", RUNS_IN)


@each_way
def test_a_stop_lets_handlers_end_within_the_grace_time(bench: Bench, runs_in: str) -> None:
    job_id = bench.create("await" if runs_in == "async" else "sleep", 0.5)
    later = "1" * 36
    with bench.run(worker_in(runs_in, concurrency=1)) as running:
        # A claim that comes in after the stop would be given back.
        wait_for(lambda: [one.job_id for one in running.worker.stats().running] == [job_id], "the handler runs")
        running.worker.stop()
        later = bench.create("return", None)
        stats = running.end()
    assert (stats.completed, stats.abandoned) == (1, 0)
    assert bench.job(job_id).state == "completed"
    assert bench.job(later).attempts == 0


@each_way
@pytest.mark.parametrize("how", ["grace", "now"])
def test_what_outlasts_the_grace_time_is_stopped_and_given_back(
    bench: Bench, runs_in: str, how: str, tmp_path: Path
) -> None:
    told = tmp_path / "told"
    job_id = bench.create("until lost", str(told))
    with bench.run(worker_in(runs_in), grace_seconds=0.2 if how == "grace" else 30) as running:
        wait_for(lambda: lines(told), "the handler began")
        began = time.monotonic()
        stats = running.stop(now=how == "now")
        assert time.monotonic() - began < 2
    assert (stats.released, stats.abandoned, stats.lost) == (1, 0, 0)
    released = bench.shampoo.history(job_id)[-1]
    assert (released.event, released.reason) == ("job.released", "drained")
    assert bench.due_seconds(job_id) == 0
    assert bench.client.job_claim().job_id == job_id


def test_a_stop_before_the_run_counts_for_it_and_for_no_other(bench: Bench) -> None:
    job_id, worker = bench.create("return", None), worker_in("thread")
    worker.stop()
    assert worker.run(bench.shampoo, "w").completed == 0
    assert bench.job(job_id).attempts == 0
    assert worker.run(bench.shampoo, "w", burst=True).completed == 1


def test_a_handler_that_returns_although_told_to_stop_completes_its_job(bench: Bench) -> None:
    worker, began = Worker(), threading.Event()

    @worker.handles("k")
    def handle(job: Job) -> str:
        began.set()
        while not job.lost:
            time.sleep(0.01)
        return "just in time"

    job_id = bench.create()
    with bench.run(worker) as running:
        assert began.wait(5)
        running.stop(now=True)
    assert bench.job(job_id).result_ref == "just in time"


def test_a_thread_that_ignores_the_stop_is_left_behind_and_its_job_given_back(bench: Bench, tmp_path: Path) -> None:
    job_id = bench.create("note and sleep", str(tmp_path / "began"), 4)
    with bench.run(worker_in("thread", lease_seconds=2), grace_seconds=0) as running:
        wait_for(lambda: lines(tmp_path / "began"), "the handler began")
        stats = running.stop()
    assert (stats.abandoned, stats.released) == (1, 1)
    assert bench.events(job_id) == ["created", "claimed", "released"]


def test_an_idle_worker_stops_at_once(bench: Bench) -> None:
    worker = worker_in("thread")
    with bench.run(worker) as running:
        job_id = bench.create("return", None)
        bench.ended(job_id)
        time.sleep(0.2)  # it waits at the queue by now
        began = time.monotonic()
        running.stop()
        assert time.monotonic() - began < 1


def test_a_worker_runs_once_at_a_time_and_again_after_its_end(bench: Bench) -> None:
    worker = worker_in("thread")
    with bench.run(worker) as running:
        wait_for(lambda: worker.stats().state == "working", "it runs")
        with pytest.raises(ConfigurationError, match="running already"):
            worker.run(bench.shampoo, "w")
        running.stop()
    assert worker.stats().state == "stopped"
    assert bench.burst(worker).ended == 0


def test_a_principal_that_is_refused_ends_the_worker_with_the_refusal(bench: Bench) -> None:
    with pytest.raises(Unauthenticated):
        worker_in("thread").run(bench.shampoo, "nobody")


def test_a_principal_that_is_disabled_while_the_worker_waits_ends_it(bench: Bench) -> None:
    with bench.run(worker_in("thread")) as running:
        bench.ended(bench.create("return", None))
        bench.shampoo.registry.disable_principal("w")
        bench.create("return", None)
        with pytest.raises(Unauthenticated):
            running.end()


def test_the_async_form_shares_the_loop_and_its_cancellation_stops_it(bench: Bench) -> None:
    loops: list[Any] = []
    worker = Worker()

    @worker.handles("k")
    async def handle(job: Job) -> None:
        loops.append(asyncio.get_running_loop())
        await asyncio.sleep(float(job.payload))

    async def main() -> None:
        quick = bench.conductor.job_create(kind="k", project="p", payload="0").job_id
        slow = bench.conductor.job_create(kind="k", project="p", payload="60").job_id
        running = asyncio.create_task(worker.run_async(bench.shampoo, "w"))
        await asyncio.to_thread(bench.ended, quick)
        await asyncio.to_thread(bench.until, slow, "claimed")
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert bench.job(slow).state == "queued"
        assert loops == [asyncio.get_running_loop()] * 2
        stats = worker.stats()
        assert (stats.completed, stats.released) == (1, 1)

    asyncio.run(main())


def test_cancelled_async_handlers_leave_everything_usable(bench: Bench) -> None:
    """Field report 28: a cancelled command leaves the connection off by one."""
    worker = Worker()

    @worker.handles("k", concurrency=20, time_limit=0.05, backoff=(0,))
    async def handle(job: Job) -> str:
        if job.attempts < 3:
            while True:
                await job.acheck()
        found = await asyncio.to_thread(job.client.job, job.job_id)
        assert found.job_id == job.job_id
        return f"{job.job_id}:{found.attempts}"

    jobs = bench.create_many(40)
    with bench.run(worker):
        found = [bench.ended(job_id) for job_id in jobs]
    done = [job for job in found if job.state == "completed"]
    assert [job.result_ref for job in done] == [f"{job.job_id}:{job.attempts}" for job in done]
    assert len(done) >= 30, [job.reason for job in found]


@pytest.mark.parametrize(
    "way, copy", [("return", 0), ("check", 0), ("terminate", -signal.SIGTERM)], ids=["return", "call", "signal"]
)
@pytest.mark.parametrize("kind", ["thread", "async", "process"])
def test_handlers_that_fork_leave_one_worker(bench: Bench, way: str, copy: int, kind: str) -> None:
    """Field report 29: sockets shared across fork. The copy neither answers for the job nor shares a connection."""
    if (way, kind) == ("check", "process"):
        way, copy = "return", 0  # there is no client in a process
    jobs = [bench.create("fork", way, kind=kind) for _ in range(3)]
    with Program(bench.queue, "--burst") as program:
        assert program.end() == 0, program.lines
    assert [bench.job(job_id).result_ref for job_id in jobs] == [f"copy: {copy}"] * 3
    assert all(bench.events(job_id) == ["created", "claimed", "completed"] for job_id in jobs)
