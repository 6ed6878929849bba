"""A running handler keeps its lease, whatever it does; a lost one is stopped, and what it came to is dropped."""

from __future__ import annotations

import ctypes
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from shampoo_queue.clock import now
from shampoo_queue.contract import JobClaimResult, JobRenewResult
from shampoo_queue.errors import JobAlreadyTerminal, ToolError
from shampoo_queue.worker import Job, Lost, Worker
from shampoo_queue.worker.handlers import handler_of
from shampoo_queue.worker.held import Held, Leases
from shampoo_queue.worker.outage import Outage
from shampoo_queue.worker.watch import Deadlines, Renewals
from tests.conftest import REAL
from tests.worker.bench import RUNS_IN, Bench, wait_for, worker_in

each_way = pytest.mark.parametrize("runs_in", RUNS_IN)
SLOW = [
    pytest.param(1, 3.5, id="3.5 s under 1 s"),
    pytest.param(3, 15.0, id="15 s under 3 s", marks=pytest.mark.slow),
]


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


@pytest.mark.parametrize("lease, seconds", SLOW)
@pytest.mark.parametrize("engine", REAL, indirect=True)
def test_handlers_that_block_the_loop_or_compute_are_not_taken_over(bench: Bench, lease: int, seconds: float) -> None:
    """Field report 31: a CPU-bound handler starves the heartbeat. A second worker waits for the same jobs all along."""
    worker, other = Worker(), worker_in("thread", lease_seconds=lease)

    @worker.handles("k", lease_seconds=lease, concurrency=1)
    async def block(job: Job) -> str:
        time.sleep(seconds)
        return "blocked"

    worker.handles("thread", lease_seconds=lease, concurrency=6)(_compute(seconds))
    jobs = [bench.create(kind="k"), *bench.create_many(6, kind="thread")]
    with bench.run(worker) as running:
        for job_id in jobs:
            bench.until(job_id, "claimed")
        with bench.run(other):
            found = [bench.ended(job_id, 4 * seconds + 10) for job_id in jobs]
        assert running.stop().lost == 0
    assert [job.state for job in found] == ["completed"] * 7
    assert all(bench.events(job_id) == ["created", "claimed", "completed"] for job_id in jobs)


def _compute(seconds: float) -> Any:
    def compute(job: Job) -> str:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            sum(range(1000))
        return "computed"

    return compute


@pytest.mark.slow
def test_64_parallel_loops_keep_their_leases(bench: Bench) -> None:
    """Field report 31 again: 64 threads share one interpreter, and the machine with whatever else runs."""
    worker = Worker()
    worker.handles("k", lease_seconds=6, concurrency=64)(_compute(20))
    jobs = bench.create_many(64)
    with bench.run(worker, burst=True) as running:
        stats = running.end(90)
    assert (stats.completed, stats.lost) == (64, 0)
    assert all(bench.events(job_id) == ["created", "claimed", "completed"] for job_id in jobs)


def test_a_process_that_computes_keeps_its_lease(bench: Bench) -> None:
    job_id = bench.create("compute", 2.5)
    bench.burst(worker_in("process", lease_seconds=1))
    assert bench.events(job_id) == ["created", "claimed", "completed"]


@each_way
def test_a_cancelled_job_is_told_at_its_next_renewal(bench: Bench, runs_in: str, tmp_path: Path) -> None:
    told = tmp_path / "told"
    lost: list[str] = []
    worker = worker_in(runs_in, lease_seconds=1)
    worker.on_lost(lambda job: lost.append(job.job_id))
    job_id = bench.create("until lost", str(told))
    with bench.run(worker) as running:
        wait_for(lambda: lines(told), "the handler began")
        bench.shampoo.ops.cancel(job_id, "changed our mind")
        cancelled_at = time.monotonic()
        wait_for(lambda: not worker.stats().running, "the handler ended")
        assert time.monotonic() - cancelled_at < 1
        stats = running.stop()
    assert (stats.lost, stats.completed, stats.released, stats.failed) == (1, 0, 0, 0)
    assert lost == [job_id]
    assert bench.job(job_id).reason == "changed our mind"
    says = {"async": ["told", "lost: True"], "thread": ["told", "lost: job already terminal"], "process": []}
    assert lines(told)[1:] == says[runs_in]


@each_way
def test_check_renews_the_lease_and_asks_the_queue(bench: Bench, runs_in: str, tmp_path: Path) -> None:
    job_id = bench.create("check", str(tmp_path / "notes"))
    bench.burst(worker_in(runs_in))
    assert bench.job(job_id).result_ref == "checked"


def test_check_raises_when_the_job_was_taken_away(bench: Bench) -> None:
    cancelled, seen = threading.Event(), threading.Event()
    raised: list[BaseException] = []
    worker = Worker()

    @worker.handles("k")
    def handle(job: Job) -> None:
        cancelled.wait()
        assert not job.lost  # nobody has asked yet: the lease is long
        try:
            job.check()
        except Lost as error:
            assert job.lost
            raised.append(error)
            seen.set()
            raise

    job_id = bench.create()
    with bench.run(worker) as running:
        bench.until(job_id, "claimed")
        bench.shampoo.ops.cancel(job_id, "no more")
        cancelled.set()
        assert seen.wait(5)
        assert running.stop().lost == 1
    assert str(raised[0]) == "job already terminal"


def test_check_on_the_event_loop_says_what_to_await_instead(bench: Bench) -> None:
    worker = Worker()

    @worker.handles("k", attempts=1)
    async def handle(job: Job) -> None:
        job.check()

    job_id = bench.create()
    bench.burst(worker)
    assert "await job.acheck()" in bench.job(job_id).reason


def test_a_job_that_has_ended_cannot_be_checked(bench: Bench) -> None:
    kept: list[Job] = []
    worker = Worker()
    worker.handles("k")(lambda job: kept.append(job))
    bench.create()
    bench.burst(worker)
    with pytest.raises(Lost):
        kept[0].check()


def test_renewals_that_are_starved_say_so_in_the_log(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """Native calls that keep the interpreter lock for as long as the lease; several, so that one is still at work."""
    worker, library = Worker(), ctypes.PyDLL(None)
    worker.handles("k", lease_seconds=1, concurrency=4)(lambda job: library.usleep(900_000))
    bench.create_many(4)
    with bench.run(worker):
        wait_for(lambda: "renewals are" in caplog.text, "a line about late renewals")
        assert "runs_in='process'" in caplog.text


# Alarms ---------------------------------------------------------------------------------------------------------


def test_a_renewal_in_flight_when_the_job_ends_raises_no_alarm(bench: Bench) -> None:
    """Field report 4 (b): it neither revives the job nor is a loss."""
    job_id = bench.create()
    claim = bench.client.job_claim(lease_seconds=1)
    held = Held(claim, handler_of(lambda job: None, "k", None, 1, 1, None, 5, ()), now() - 0.5)
    leases, alarms, refused = Leases(), list[str](), list[ToolError]()
    leases.add(held)

    def ends_meanwhile(claims: Any) -> list[JobRenewResult | ToolError]:
        assert held.settle()
        bench.client.complete(claim)
        answers = bench.client.renew_many(claims)
        refused.extend(answer for answer in answers if isinstance(answer, ToolError))
        return answers

    def lose(held: Held, why: str) -> None:
        if held.lose(why):
            alarms.append(why)

    Renewals(leases, ends_meanwhile, lose, Outage()).look(0.0)
    assert [type(error) for error in refused] == [JobAlreadyTerminal]
    assert alarms == []
    assert bench.events(job_id) == ["created", "claimed", "completed"]


def test_jobs_that_end_just_as_they_are_renewed_end_once_and_unalarmed(bench: Bench) -> None:
    worker, lost = Worker(), list[Job]()
    worker.on_lost(lost.append)

    @worker.handles("k", lease_seconds=1, concurrency=40)
    def handle(job: Job) -> None:
        time.sleep(float(job.payload))

    jobs = [
        bench.conductor.job_create(kind="k", project="p", payload=f"{0.30 + n % 12 / 100}").job_id for n in range(120)
    ]
    stats = bench.burst(worker)
    assert (stats.completed, stats.lost, lost) == (120, 0, [])
    assert all(bench.events(job_id) == ["created", "claimed", "completed"] for job_id in jobs)


def test_the_local_deadline_counts_from_before_the_request_and_leaves_a_margin() -> None:
    claim = JobClaimResult(claimed=True, job_id="x", kind="k", attempts=1)
    for lease, margin in [(1, 0.1), (300, 0.5)]:
        held = Held(claim, handler_of(lambda job: None, "k", None, 1, lease, None, 5, ()), 1000.0)
        assert held.deadline == pytest.approx(1000 + lease - margin)
        assert held.renew_at == pytest.approx(1000 + lease / 3)
        held.extend(1010.0)
        assert held.deadline == pytest.approx(1010 + lease - margin)


def test_a_deadline_that_passes_loses_the_job_once_without_asking_the_queue() -> None:
    claim = JobClaimResult(claimed=True, job_id="x", kind="k", attempts=1)
    held = Held(claim, handler_of(lambda job: None, "k", None, 1, 1, None, 5, ()), now() - 0.7)
    leases, seen, told = Leases(), threading.Event(), list[str]()
    leases.add(held)

    def lose(held: Held, why: str) -> None:
        assert now() >= held.deadline
        if held.lose(why):
            told.append(why)
            seen.set()

    watch = Deadlines(leases, lose, lambda held: None, lambda: float("inf"))
    watch.start()
    assert seen.wait(2)
    assert not held.settle()  # a result that arrives now is dropped
    watch.close()
    watch.join()
    assert told == ["the lease ran out before it could be renewed"]
