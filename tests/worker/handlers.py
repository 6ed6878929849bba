"""Handlers that do what their payload says, importable by child processes and by ``shampoo work``.

A payload is a JSON list: the act, then its arguments.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shampoo_queue.worker import Fail, Job, Lost, Release, Worker


class Unspeakable(Exception):
    """Its text cannot be read."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


TEXTS: dict[str, Any] = {
    "nul": ValueError("a\0b"),
    "megabyte": ValueError("x" * 2**20),
    "surrogate": ValueError("a\udcffb"),
    "ansi": ValueError("\x1b[31mred\r\n\x07"),
    "bytes": ValueError(b"\xff\xfe"),
    "unspeakable": Unspeakable(),
    "empty": ValueError(),
}


def compute(seconds: float) -> None:
    """Keep the interpreter busy."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        sum(range(1000))


def note(path: str, line: str) -> None:
    """Leave a line where the test finds it, whatever becomes of this process."""
    with Path(path).open("a") as file:
        file.write(f"{line}\n")


def _release(delay: float, reason: str) -> None:
    raise Release(delay=delay, reason=reason)


def _raise(error: BaseException) -> None:
    raise error


def _until_lost(job: Job, path: str) -> None:
    """Work until the queue says that the job is lost."""
    note(path, "began")
    try:
        while not job.lost:
            time.sleep(0.02)
        note(path, "told")
        job.check()
    except Lost as lost:
        note(path, f"lost: {lost}")
        raise


def _check(job: Job, path: str) -> str:
    job.check()
    note(path, "checked")
    return "checked"


def _grandchild(path: str, seconds: float) -> None:
    code = f"import time; time.sleep({seconds}); open({path!r}, 'a').write('grandchild\\n')"
    subprocess.Popen([sys.executable, "-c", code])
    time.sleep(30)


def _fork(job: Job, way: str) -> str:
    """Fork a copy that returns from the handler, like a child that forgot to leave."""
    pid = os.fork()
    if pid == 0:
        if way == "return":
            return "from the copy"
        if way == "check":
            job.client.job(job.job_id)
            os._exit(0)
        time.sleep(60)
    if way == "terminate":
        time.sleep(0.2)  # Python forgets what arrives in the midst of a fork
        os.kill(pid, signal.SIGTERM)
    _, status = os.waitpid(pid, 0)
    return f"copy: {os.waitstatus_to_exitcode(status)}"


def _note_and_sleep(path: str, line: str, seconds: float) -> None:
    note(path, line)
    time.sleep(seconds)


def act(job: Job) -> Any:
    """Do as the payload says."""
    what, *given = job.json()
    acts: dict[str, Callable[[], Any]] = {
        "return": lambda: given[0],
        "count": lambda: len(given[0]),
        "raise": lambda: _raise(TEXTS[given[0]]),
        "raise until": lambda: f"attempt {job.attempts}" if job.attempts >= given[0] else _raise(ValueError("not yet")),
        "leave": lambda: sys.exit(given[0]),
        "interrupt": lambda: _raise(KeyboardInterrupt()),
        "fail": lambda: _raise(Fail(given[0])),
        "release": lambda: _release(*given),
        "release once": lambda: "done" if job.attempts > 1 else _release(*given),
        "exit": lambda: os._exit(given[0]),
        "kill": lambda: os.kill(os.getpid(), given[0]),
        "sleep": lambda: time.sleep(given[0]),
        "compute": lambda: compute(given[0]),
        "until lost": lambda: _until_lost(job, *given),
        "check": lambda: _check(job, *given),
        "pid": lambda: str(os.getpid()),
        "note": lambda: note(*given),
        "grandchild": lambda: _grandchild(*given),
        "fork": lambda: _fork(job, *given),
        "note and sleep once": lambda: _note_and_sleep(given[0], job.job_id, 60 if job.attempts == 1 else 0),
        "note and sleep": lambda: _note_and_sleep(given[0], job.job_id, given[1]),
    }
    return acts[what]()


async def act_async(job: Job) -> Any:
    """Do as the payload says, on the event loop; a sleep that is awaited where the act is one of waiting."""
    what, *given = job.json()
    if what == "until lost":
        note(given[0], "began")
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            note(given[0], "told")
            note(given[0], f"lost: {job.lost}")
            raise
    if what == "check":
        await job.acheck()
        note(given[0], "checked")
        return "checked"
    if what == "await":
        return await asyncio.sleep(given[0])
    if what == "stubborn":
        note(given[0], "began")
        while True:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                continue
    return act(job)


def unready(_job: Job) -> None:
    """Be a handler that a process cannot run: see `Worker.handles`."""


# For `shampoo work` ----------------------------------------------------------------------------------------------

worker = Worker()
worker.handles("thread", lease_seconds=1, concurrency=4)(act)
worker.handles("async", lease_seconds=1, concurrency=4)(act_async)
worker.handles("process", lease_seconds=1, concurrency=1, runs_in="process")(act)

threads = Worker()
threads.handles("thread", lease_seconds=1, concurrency=4)(act)

nothing = Worker()
