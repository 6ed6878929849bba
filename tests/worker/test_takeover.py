"""A worker that stood still, or was killed, past its lease: others take over, and nothing stale is written."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from tests.worker.bench import Bench, Program, kill, wait_for
from tests.worker.test_leases import lines


@pytest.mark.parametrize(
    "engine, kind",
    [("embedded", "thread"), ("embedded", "async"), ("embedded", "process"), ("redis7", "thread")],
    indirect=["engine"],
)
def test_a_worker_that_stood_still_past_its_lease_completes_nothing_stale(
    bench: Bench, tmp_path: Path, kind: str
) -> None:
    """Field reports 2 and 4: a slow worker and its replacement; a late renewal must not steal the lease back."""
    began = tmp_path / "began"
    job_id = bench.create("note and sleep", str(began), 1.5, kind=kind)
    with Program(bench.queue) as first:
        wait_for(lambda: lines(began), "the handler began")
        kill(first.pid, signal.SIGSTOP)
        time.sleep(1.1)  # the lease; a worker that waited already might be told some seconds later
        with Program(bench.queue) as second:
            bench.until(job_id, "claimed", attempts=2)
            kill(first.pid, signal.SIGCONT)
            found = bench.ended(job_id)
            for program in (first, second):
                program.signal(signal.SIGTERM)
                assert program.end() == 0
        lost = [line for line in first.lines if "outcome=lost" in line]
        assert len(lost) == 1 and not any("outcome=completed" in line for line in first.lines), first.lines
        assert sum("outcome=completed" in line for line in second.lines) == 1
    assert found.attempts == 2
    assert bench.events(job_id) == ["created", "claimed", "reclaimed", "claimed", "completed"]


def test_a_child_ends_with_its_lease_even_while_its_parent_stands_still(bench: Bench, tmp_path: Path) -> None:
    pids = tmp_path / "pid"
    job_id = bench.create("note and sleep once", str(pids), kind="process")
    with Program(bench.queue) as program:
        wait_for(lambda: lines(pids), "the handler began")
        children = wait_for(lambda: _children(program.pid), "a child process")
        kill(program.pid, signal.SIGSTOP)
        try:
            wait_for(lambda: not all(map(_lives, children)), "the handler's process is gone", 1.5)  # the lease is 1 s
            assert bench.client.claim_wait("process", timeout=5).job_id == job_id
        finally:
            kill(program.pid, signal.SIGCONT)


def test_sigkill_lets_the_leases_lapse_and_takes_the_children_along(bench: Bench, tmp_path: Path) -> None:
    pids = tmp_path / "pid"
    jobs = [bench.create("note and sleep once", str(pids), kind=kind) for kind in ("thread", "process")]
    with Program(bench.queue) as program:
        wait_for(lambda: len(lines(pids)) == 2, "both began")
        children = wait_for(lambda: _children(program.pid), "a child process")
        program.signal(signal.SIGKILL)
        program.end()
        wait_for(lambda: not any(map(_lives, children)), "the children are gone", 5)
    with Program(bench.queue):
        found = [bench.ended(job_id) for job_id in jobs]
    assert [(job.state, job.attempts) for job in found] == [("completed", 2)] * 2


def _children(pid: int) -> list[int]:
    return [
        int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()
    ]


def _lives(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
