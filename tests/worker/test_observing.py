"""What a worker shows of itself: lines, hooks, spans, counts, signs to the service manager; never a payload."""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from shampoo_queue import systemd
from shampoo_queue.worker import Ended, Job, Worker
from tests.worker.bench import Bench, Program, wait_for, worker_in

SECRET = "payload-marker"


def test_one_line_tells_of_each_job_and_never_of_its_payload(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "shampoo_queue")
    done = bench.create("return", None, SECRET)
    failed = bench.create("fail", "for a reason", SECRET)
    raised = bench.create("raise", "empty", SECRET)
    bench.burst(worker_in("thread"))
    found = [record for record in caplog.records if record.getMessage().startswith("job ended")]
    facts = {record.__dict__["job_id"]: record.__dict__ for record in found}
    for job_id, outcome in [(done, "completed"), (failed, "failed"), (raised, "released")]:
        fact = facts[job_id]
        assert (fact["kind"], fact["attempt"], fact["outcome"]) == ("k", 1, outcome)
        shown = f"job ended id={job_id} kind=k attempt=1 seconds={fact['seconds']} outcome={outcome}"
        assert shown in [record.getMessage() for record in found]
    assert [record.levelno for record in found] == [logging.INFO] * 3
    assert not any(record.exc_info for record in found)
    assert SECRET not in caplog.text
    errors = [record for record in caplog.records if record.levelno == logging.WARNING and record.exc_info]
    assert [raised in record.getMessage() for record in errors] == [True]


def test_a_kind_of_any_characters_stays_one_word_of_the_line(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "shampoo_queue.worker")
    worker = Worker()
    worker.handles('odd "kind"=1')(lambda job: None)
    bench.create(kind='odd "kind"=1')
    bench.burst(worker)
    assert r'kind="odd \"kind\"=1" attempt=1' in caplog.text


def test_hooks_are_called_in_order_and_cannot_hurt(bench: Bench) -> None:
    told: list[tuple[Any, ...]] = []
    worker = worker_in("thread")

    @worker.on_claim
    def claimed(job: Job) -> None:
        told.append(("claimed", job.job_id))
        raise ValueError("a hook's own fault")

    @worker.on_done
    def done(job: Job, ended: Ended) -> None:
        told.append((ended.outcome, job.job_id, ended.result_ref, ended.reason))
        raise SystemExit

    first, second = bench.create("return", "r"), bench.create("fail", "why")
    assert bench.burst(worker).ended == 2
    assert sorted(told) == sorted(
        [
            ("claimed", first),
            ("completed", first, "r", ""),
            ("claimed", second),
            ("failed", second, None, "why"),
        ]
    )
    assert told.index(("claimed", first)) < told.index(("completed", first, "r", ""))


def test_a_slow_hook_holds_up_no_job(bench: Bench) -> None:
    worker, go_on = worker_in("thread"), threading.Event()
    worker.on_claim(lambda job: go_on.wait(10))
    with bench.run(worker):
        for job_id in [bench.create("return", None) for _ in range(5)]:
            bench.ended(job_id)
        go_on.set()


def test_stats_show_slots_and_the_jobs_that_run(bench: Bench) -> None:
    worker = worker_in("thread", concurrency=3, lease_seconds=60)
    assert worker.stats().state == "not running"
    with bench.run(worker) as running:
        job_id = bench.create("sleep", 1)
        wait_for(lambda: worker.stats().running, "a handler at work")
        stats = worker.stats()
        job = stats.running[0]
        assert (stats.state, stats.slots, len(stats.running)) == ("working", {"k": 3}, 1)
        assert (job.job_id, job.kind, job.attempt, job.lease_seconds) == (job_id, "k", 1, 60)
        assert 50 < job.lease_seconds_left <= 60
        running.worker.stop()
        assert worker.stats().state == "stopping"
        assert running.end().completed == 1


# OpenTelemetry --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("runs_in", ["async", "thread"])
def test_each_job_is_one_span_and_the_handlers_own_hang_below_it(
    bench: Bench, exporter: InMemorySpanExporter, runs_in: str
) -> None:
    exporter.clear()
    worker, tracer = Worker(), trace.get_tracer("test")

    def handle(job: Job) -> None:
        with tracer.start_as_current_span("inner"):
            json.loads(job.payload)

    async def handle_async(job: Job) -> None:
        handle(job)

    worker.handles("k", attempts=1)(handle if runs_in == "thread" else handle_async)
    done = bench.create("return", None, SECRET)
    failed = bench.conductor.job_create(kind="k", project="p", payload=f"{{{SECRET}").job_id
    bench.burst(worker)
    spans = exporter.get_finished_spans()
    jobs = {span.attributes["shampoo.job.id"]: span for span in spans if span.name == "shampoo.job k"}  # type: ignore[index]
    assert {job_id: dict(span.attributes or {}) for job_id, span in jobs.items()} == {
        done: {"shampoo.job.id": done, "shampoo.job.attempt": 1, "shampoo.job.outcome": "completed"},
        failed: {"shampoo.job.id": failed, "shampoo.job.attempt": 1, "shampoo.job.outcome": "failed"},
    }
    inner = [span.parent.span_id for span in spans if span.name == "inner" and span.parent]
    assert sorted(inner) == sorted(span.context.span_id for span in jobs.values() if span.context)
    own = [span.to_json() for span in jobs.values()]
    assert not any(SECRET in text for text in own)


# systemd --------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, socket.socket]]:
    """A service manager's socket, and its name as the environment spells it."""
    name = str(tmp_path / "notify") if request.param == "path" else f"@shampoo-{os.getpid()}-{tmp_path.name}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(name if name.startswith("/") else "\0" + name[1:])
        listener.settimeout(15)
        yield name, listener


def test_the_service_manager_hears_of_ready_life_and_stop(bench: Bench, manager: tuple[str, socket.socket]) -> None:
    name, listener = manager
    job_id = bench.create("return", None, kind="thread")
    threads = "tests.worker.handlers:threads"
    with Program(bench.queue, worker=threads, NOTIFY_SOCKET=name, WATCHDOG_USEC="400000") as program:
        heard = [listener.recv(100)]
        while b"READY=1" not in heard:
            heard.append(listener.recv(100))
        bench.ended(job_id)
        began, signs = time.monotonic(), 0
        while signs < 4:
            signs += listener.recv(100) == b"WATCHDOG=1"
        assert 0.5 < time.monotonic() - began < 5
        program.signal(15)
        while listener.recv(100) != b"STOPPING=1":
            pass
        assert program.end() == 0


def test_without_a_service_manager_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"):
        monkeypatch.delenv(name, raising=False)
    assert systemd.notify("READY=1") is False
    assert systemd.watchdog_seconds() is None
    monkeypatch.setenv("NOTIFY_SOCKET", "/nowhere/at/all")
    assert systemd.notify("READY=1") is False
    for microseconds, seconds in [("2000000", 1.0), ("0", None), ("x", None), ("-5", None)]:
        monkeypatch.setenv("WATCHDOG_USEC", microseconds)
        assert systemd.watchdog_seconds() == seconds
    monkeypatch.setenv("WATCHDOG_USEC", "2000000")
    monkeypatch.setenv("WATCHDOG_PID", "1")
    assert systemd.watchdog_seconds() is None
