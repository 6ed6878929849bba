"""What a worker may be told, and what it refuses to be told; handlers stay plain functions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shampoo_queue import Shampoo
from shampoo_queue.errors import ConfigurationError
from shampoo_queue.worker import Fail, Job, Worker


def plain(job: Job) -> str:
    return job.payload.upper()


async def waiting(job: Job) -> str:
    await job.acheck()
    return job.payload.upper()


def test_a_handler_stays_a_function_that_a_unit_test_can_call() -> None:
    worker = Worker()
    assert worker.handles("a")(plain) is plain
    assert worker.handles("b")(waiting) is waiting
    assert plain(Job(payload="x")) == "X"
    assert asyncio.run(waiting(Job(payload="x"))) == "X"
    job = Job("id", kind="k", payload='{"n": 1}', attempts=2, fence=7)
    assert (job.job_id, job.kind, job.attempts, job.fence, job.json(), job.lost) == ("id", "k", 2, 7, {"n": 1}, False)
    job.check()
    assert "payload" not in repr(job) and '"n"' not in repr(job)


def test_the_way_to_run_follows_from_the_function_unless_told() -> None:
    worker = Worker()
    worker.handles("async")(waiting)
    worker.handles("thread")(plain)
    worker.handles("process", runs_in="process")(plain)
    assert {kind: handler.runs_in for kind, handler in worker._handlers.items()} == {
        "async": "async",
        "thread": "thread",
        "process": "process",
    }


@pytest.mark.parametrize(
    "kind, function, options, words",
    [
        ("", plain, {}, "one kind"),
        ("k" * 65, plain, {}, "kind"),
        (None, plain, {}, "one kind"),
        ("k", plain, {"lease_seconds": 0}, "lease_seconds"),
        ("k", plain, {"lease_seconds": 3601}, "lease_seconds"),
        ("k", plain, {"lease_seconds": 1.5}, "lease_seconds"),
        ("k", plain, {"runs_in": "fiber"}, "runs_in"),
        ("k", plain, {"runs_in": "async"}, "needs async def"),
        ("k", waiting, {"runs_in": "thread"}, "needs def"),
        ("k", waiting, {"runs_in": "process"}, "needs def"),
        ("k", lambda job: None, {"runs_in": "process"}, "top level"),
        ("k", plain, {"concurrency": 0}, "concurrency"),
        ("k", plain, {"concurrency": True}, "concurrency"),
        ("k", plain, {"attempts": 6}, "attempts"),
        ("k", plain, {"time_limit": 0}, "time_limit"),
        ("k", plain, {"backoff": (-1,)}, "backoff"),
    ],
)
def test_what_cannot_be_right_is_refused_where_it_is_said(
    kind: Any, function: Any, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Worker().handles(kind, **options)(function)
    assert words in str(refused.value)


def test_a_kind_has_one_handler() -> None:
    worker = Worker()
    worker.handles("k")(plain)
    with pytest.raises(ConfigurationError, match="'k' has a handler already"):
        worker.handles("k")(waiting)


def test_hooks_are_plain_functions() -> None:
    async def hook(job: Job) -> None: ...

    with pytest.raises(ConfigurationError, match="plain function"):
        Worker().on_claim(hook)


@pytest.mark.parametrize("options", [{"concurrency": 0}, {"grace_seconds": -1}, {"grace_seconds": float("nan")}])
def test_a_worker_refuses_numbers_that_cannot_be_right(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        Worker(**options)


def test_a_worker_without_handlers_does_not_run() -> None:
    with Shampoo.connect("memory://definition") as shampoo, pytest.raises(ConfigurationError, match="no handlers"):
        Worker().run(shampoo, "w")


def test_a_reason_travels_with_fail() -> None:
    with pytest.raises(Fail, match="why"):
        raise Fail("why")
