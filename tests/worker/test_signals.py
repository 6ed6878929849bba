"""Signals to a worker's process: SIGTERM and SIGINT, once and twice, at any moment; and while a handler blocks."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from shampoo_queue.worker import Worker
from tests.worker import handlers
from tests.worker.bench import Bench, Program, wait_for, worker_in
from tests.worker.test_leases import lines

POINTS = [pytest.param(6, id="6 points"), pytest.param(50, id="50 points", marks=pytest.mark.slow)]


def test_sigterm_is_noticed_although_a_handler_blocks_the_loop(bench: Bench) -> None:
    job_id = bench.create("sleep", 1.0, kind="async")
    with Program(bench.queue) as program:
        bench.until(job_id, "claimed")
        later = bench.create("return", None, kind="thread")
        bench.ended(later)
        program.signal(signal.SIGTERM)
        time.sleep(0.1)
        unclaimed = bench.create("return", None, kind="thread")
        assert program.end() == 0
    assert bench.job(job_id).state == "completed"
    assert bench.job(unclaimed).attempts == 0


def test_a_second_interrupt_ends_it_at_once(bench: Bench, tmp_path: Path) -> None:
    jobs = [bench.create("until lost", str(tmp_path / kind), kind=kind) for kind in ("thread", "process", "async")]
    with Program(bench.queue) as program:
        wait_for(lambda: all(lines(tmp_path / kind) for kind in ("thread", "process", "async")), "all began")
        began = time.monotonic()
        program.signal(signal.SIGINT)
        time.sleep(0.1)
        program.signal(signal.SIGINT)
        assert program.end() == 130
        assert time.monotonic() - began < 4
    assert [bench.job(job_id).state for job_id in jobs] == ["queued"] * 3
    assert {bench.shampoo.history(job_id)[-1].reason for job_id in jobs} == {"drained"}


@pytest.mark.parametrize(
    "kind, act", [("thread", "note and sleep"), ("async", "note and sleep"), ("async", "stubborn")]
)
def test_a_handler_that_never_returns_does_not_keep_the_process(
    bench: Bench, kind: str, act: str, tmp_path: Path
) -> None:
    job_id = bench.create(act, str(tmp_path / "began"), 60, kind=kind)
    with Program(bench.queue, "--grace", "0.1") as program:
        wait_for(lambda: lines(tmp_path / "began"), "the handler began")
        program.signal(signal.SIGTERM)
        assert program.end() == 1, program.lines
    assert (bench.job(job_id).state, bench.job(job_id).attempts) == ("queued", 1)


@pytest.mark.parametrize("points", POINTS)
def test_sigterm_at_any_moment_loses_nothing_and_holds_nothing(bench: Bench, points: int) -> None:
    jobs: list[str] = []
    random_ = random.Random(points)
    for n in range(points):
        for kind, count in [("thread", 12), ("async", 12), ("process", 2)]:
            jobs += bench.create_many(count, "sleep" if kind == "thread" else "return", 0.01, kind=kind)[:count]
        with Program(bench.queue, "--grace", random_.choice(["0", "0.05", "10"])) as program:
            wait_for(lambda: any("job ended" in line for line in program.lines), "it works")
            time.sleep(random_.uniform(0, 0.4))
            program.signal(signal.SIGTERM)
            if random_.random() < 0.3:
                program.signal(signal.SIGTERM)
            assert program.end() == 0, (n, program.lines)
        assert bench.held() == []
    with Program(bench.queue, "--burst") as program:
        assert program.end(60) == 0
    ended = [bench.job(job_id) for job_id in jobs]
    # A job may have been given back so often that no attempt is left; it is not lost, for an operator can requeue it.
    left = [job for job in ended if job.state == "queued" and job.attempts < 5]
    assert left == []
    for job_id in jobs:
        assert bench.events(job_id).count("completed") <= 1


def test_signals_are_the_callers_again_after_a_run(bench: Bench) -> None:
    assert threading.current_thread() is threading.main_thread()
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    during: list[Any] = []
    worker = Worker()
    worker.handles("k")(lambda job: during.append(signal.getsignal(signal.SIGTERM)))
    bench.create()
    worker.run(bench.shampoo, "w", burst=True)
    assert during[0] is not before[0]
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)] == before


def test_a_signal_to_this_process_stops_the_worker(bench: Bench) -> None:
    worker = worker_in("async")
    bench.create("return", None)
    worker.on_done(lambda job, ended: os.kill(os.getpid(), signal.SIGTERM))
    assert worker.run(bench.shampoo, "w").completed == 1
    assert handlers.worker.stats().ended == 0
