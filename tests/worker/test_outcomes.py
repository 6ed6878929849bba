"""What a handler does becomes the ending of its job, alike on the event loop, in threads and in processes."""

from __future__ import annotations

import json
import signal
import time
from typing import Any

import pytest

from shampoo_queue.contract import limit
from shampoo_queue.errors import ConfigurationError
from shampoo_queue.worker import Fail, Job, Release, Worker
from tests.conftest import REAL
from tests.worker import handlers
from tests.worker.bench import RUNS_IN, Bench, worker_in

each_way = pytest.mark.parametrize("runs_in", RUNS_IN)


@pytest.mark.parametrize("engine", REAL, indirect=True)
@each_way
def test_one_run_of_each_outcome(bench: Bench, runs_in: str) -> None:
    ref = bench.create("return", "ref:1")
    none = bench.create("return", None)
    failed = bench.create("fail", "no such picture")
    later = bench.create("release", 60, "not now")
    again = bench.create("release once", 0, "")
    stats = bench.burst(worker_in(runs_in))
    assert (stats.completed, stats.failed, stats.released, stats.lost) == (3, 1, 2, 0)
    assert (bench.job(ref).state, bench.job(ref).result_ref) == ("completed", "ref:1")
    assert (bench.job(none).state, bench.job(none).result_ref) == ("completed", "")
    assert (bench.job(failed).state, bench.job(failed).reason) == ("failed", "no such picture")
    assert bench.job(failed).attempts == 1
    assert bench.job(later).state == "queued"
    assert bench.due_seconds(later) == pytest.approx(60, abs=0.1)
    assert (bench.job(again).state, bench.job(again).attempts) == ("completed", 2)


@each_way
def test_what_raises_is_released_for_later_with_its_name_and_text(bench: Bench, runs_in: str) -> None:
    job_id = bench.create("raise", "nul")
    bench.burst(worker_in(runs_in))
    released = bench.shampoo.history(job_id)[-1]
    assert released.event == "job.released"
    assert released.reason.startswith("ValueError: a")
    assert 0.8 <= bench.due_seconds(job_id) <= 1.2


@each_way
def test_the_backoff_grows_with_the_attempts_and_ends_in_failure(bench: Bench, runs_in: str) -> None:
    job_id = bench.create("raise", "empty")
    with bench.run(worker_in(runs_in, backoff=(0.05, 0.1))):
        found = bench.ended(job_id)
    assert (found.state, found.attempts, found.reason) == ("failed", 5, "ValueError")
    assert bench.events(job_id) == ["created", *["claimed", "released"] * 4, "claimed", "failed"]


def test_the_usual_backoff_is_1_2_4_8_seconds_with_jitter() -> None:
    worker = worker_in("thread")
    handler = worker._handlers["k"]
    for attempt, seconds in [(1, 1), (2, 2), (3, 4), (4, 8), (9, 8)]:
        found = {handler.backoff_after(attempt) for _ in range(50)}
        assert len(found) > 1
        assert all(0.8 * seconds <= pause <= 1.2 * seconds for pause in found)


@each_way
def test_a_handler_may_allow_fewer_attempts(bench: Bench, runs_in: str) -> None:
    job_id = bench.create("raise", "empty")
    bench.burst(worker_in(runs_in, attempts=1))
    assert (bench.job(job_id).state, bench.job(job_id).attempts) == ("failed", 1)


def test_a_release_without_an_attempt_left_fails_instead_of_vanishing(bench: Bench) -> None:
    job_id = bench.create("release", 0, "busy")
    bench.burst(worker_in("thread"))
    assert (bench.job(job_id).state, bench.job(job_id).reason) == ("failed", "no attempt left: busy")
    assert bench.job(job_id).attempts == 5


@each_way
@pytest.mark.parametrize(
    "act, reason",
    [
        (("count", [1, 2]), "the handler returned int; a result_ref is text or None"),
        (("return", "é" * 1025), "the handler returned a result_ref of 2,050 UTF-8 bytes; at most 2,048"),
        (("return", "\udcff"), "the handler returned a result_ref with a lone surrogate, which is no text"),
    ],
)
def test_a_result_that_cannot_be_stored_fails_the_job_and_says_why(
    bench: Bench, runs_in: str, act: tuple[Any, ...], reason: str
) -> None:
    job_id = bench.create(*act)
    bench.burst(worker_in(runs_in))
    assert (bench.job(job_id).state, bench.job(job_id).reason) == ("failed", reason)


def test_a_result_comes_back_as_given_with_nul_and_newlines(bench: Bench) -> None:
    longest = "\0\n\r" + "x" * (limit("result_ref") - 3)
    job_id = bench.create("return", longest)
    bench.burst(worker_in("thread"))
    assert bench.job(job_id).result_ref == longest


@each_way
def test_a_payload_that_is_no_json_fails_at_once(bench: Bench, runs_in: str) -> None:
    job_id = bench.conductor.job_create(kind="k", project="p", payload="{").job_id
    bench.burst(worker_in(runs_in))
    assert bench.job(job_id).state == "failed"
    assert bench.job(job_id).reason.startswith("the payload is no JSON: ")
    with pytest.raises(Fail):
        Job(payload="{").json()


@each_way
@pytest.mark.parametrize("text", handlers.TEXTS)
def test_the_failure_is_recorded_whatever_its_text(bench: Bench, runs_in: str, text: str) -> None:
    """Field report 35: a NUL in the failure text blocks the failure path."""
    job_id = bench.create("raise", text)
    stats = bench.burst(worker_in(runs_in, attempts=1))
    found = bench.job(job_id)
    assert (found.state, stats.failed) == ("failed", 1)
    assert bench.events(job_id) == ["created", "claimed", "failed"]
    assert len(found.reason) <= limit("reason")
    assert found.reason.startswith("Unspeakable: (its text" if text == "unspeakable" else "ValueError")
    json.loads(json.dumps(found.model_dump()))


@each_way
@pytest.mark.parametrize("act, reason", [(("leave", 3), "SystemExit: 3"), (("interrupt",), "KeyboardInterrupt")])
def test_no_handler_can_end_its_worker(bench: Bench, runs_in: str, act: tuple[Any, ...], reason: str) -> None:
    job_id, next_id = bench.create(*act), bench.create("return", "still here")
    bench.burst(worker_in(runs_in, attempts=1))
    assert (bench.job(job_id).state, bench.job(job_id).reason) == ("failed", reason)
    assert bench.job(next_id).result_ref == "still here"


@pytest.mark.parametrize(
    "act, how",
    [
        (("exit", 3), "exited with status 3"),
        (("kill", signal.SIGSEGV), "was killed by SIGSEGV"),
        (("kill", signal.SIGKILL), "was killed by SIGKILL"),
    ],
)
def test_a_process_that_dies_is_an_exception_and_the_next_job_gets_another(
    bench: Bench, act: tuple[Any, ...], how: str
) -> None:
    job_id, next_id = bench.create(*act), bench.create("return", "next")
    bench.burst(worker_in("process", attempts=1))
    assert (bench.job(job_id).state, bench.job(job_id).reason) == ("failed", f"the handler's process {how}")
    assert bench.job(next_id).result_ref == "next"


def test_a_process_is_started_once_and_used_again(bench: Bench) -> None:
    jobs = [bench.create("pid") for _ in range(5)]
    bench.burst(worker_in("process"))
    assert len({bench.job(job_id).result_ref for job_id in jobs}) == 1


def test_a_handler_that_no_process_can_import_is_an_exception(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handlers.unready, "__qualname__", "not_there")
    job_id = bench.create("return", None)
    worker = Worker()
    worker.handles("k", runs_in="process", attempts=1)(handlers.unready)
    bench.burst(worker)
    assert bench.job(job_id).reason.startswith("AttributeError: ")


@each_way
def test_a_time_limit_counts_as_an_exception(bench: Bench, runs_in: str) -> None:
    job_id = bench.create("await" if runs_in == "async" else "sleep", 2)
    began = time.monotonic()
    with bench.run(worker_in(runs_in, time_limit=0.3, attempts=1)):
        found = bench.ended(job_id)
        assert (found.state, found.reason) == ("failed", "time limit of 0.3 s passed")
        assert time.monotonic() - began < 2 + (runs_in == "process")
    assert bench.events(job_id) == ["created", "claimed", "failed"]


def test_a_time_limit_kills_what_the_process_has_started(bench: Bench, tmp_path: Any) -> None:
    job_id = bench.create("grandchild", str(tmp_path / "notes"), 1.5)
    with bench.run(worker_in("process", time_limit=0.5, attempts=1)):
        bench.ended(job_id)
        time.sleep(1.5)
    assert not (tmp_path / "notes").exists()


@pytest.mark.parametrize("delay", [-1, float("nan"), float("inf"), 31_536_001, True, "5", None])
def test_a_delay_that_is_none_counts_as_any_error_and_hurts_no_other_job(bench: Bench, delay: Any) -> None:
    worker = Worker()

    @worker.handles("k", concurrency=2, backoff=[60])
    def handle(job: Job) -> None:
        if job.json() == ["odd"]:
            raise Release(delay=delay)

    odd, fine = bench.create("odd"), bench.create("fine")
    stats = worker.run(bench.shampoo, "w", burst=True)
    assert (stats.completed, stats.released, stats.lost) == (1, 1, 0)
    assert bench.job(fine).state == "completed"
    assert (bench.job(odd).state, bench.job(odd).attempts) == ("queued", 1)


class _Nameless(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise RuntimeError("no name")


class Evil(Exception, metaclass=_Nameless):
    pass


@pytest.mark.parametrize("runs_in", ["async", "thread"])
def test_an_exception_whose_class_has_no_name_costs_no_place(bench: Bench, runs_in: str) -> None:
    worker = Worker()

    async def handle_async(job: Job) -> None:
        raise Evil

    def handle(job: Job) -> None:
        raise Evil

    worker.handles("k", concurrency=1, attempts=1)(handle_async if runs_in == "async" else handle)
    jobs = [bench.create() for _ in range(3)]
    assert worker.run(bench.shampoo, "w", burst=True).failed == 3
    assert {bench.job(job_id).reason for job_id in jobs} == {"an exception"}


@pytest.mark.parametrize(
    ("name", "value"),
    [("backoff", [1e9]), ("backoff", [True]), ("backoff", ["1"]), ("backoff", 5), ("backoff", [float("nan")]),
     ("time_limit", "5"), ("time_limit", True), ("runs_in", [])],
)  # fmt: skip
def test_what_a_handler_is_told_is_checked_where_it_is_said(name: str, value: Any) -> None:
    options: dict[str, Any] = {name: value}
    with pytest.raises(ConfigurationError, match=name):
        Worker().handles("k", **options)(lambda job: None)
    with pytest.raises(ConfigurationError, match="a function"):
        Worker().handles("k")("no function")  # type: ignore[type-var]
