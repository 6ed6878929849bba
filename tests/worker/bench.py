"""A profile with a conductor and an executor, workers in threads of this process, and ``shampoo work`` as a process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from shampoo_queue import Shampoo
from shampoo_queue.contract import JobStanding
from shampoo_queue.worker import Stats, Worker
from tests.queue import Queue
from tests.worker import handlers

ROOT = Path(__file__).parent.parent.parent
WAIT = 20.0
RUNS_IN = ("async", "thread", "process")
EACH = {"async": handlers.act_async, "thread": handlers.act, "process": handlers.act}


def worker_in(runs_in: Any, **options: Any) -> Worker:
    """Make a worker that does what jobs of kind ``k`` say, in this way."""
    worker = Worker()
    options.setdefault("concurrency", 1 if runs_in == "process" else 8)
    worker.handles("k", runs_in=runs_in, **options)(EACH[runs_in])
    return worker


def wait_for(done: Callable[[], Any], what: str, seconds: float = WAIT) -> Any:
    """Poll until something is so, and give it."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if found := done():
            return found
        time.sleep(0.01)
    raise TimeoutError(f"not within {seconds:g} s: {what}")


class Running:
    """A worker at work in a thread. Leaving the context stops it at once."""

    def __init__(self, worker: Worker, shampoo: Shampoo, **options: Any) -> None:
        self.worker = worker
        self._result: Stats | BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(shampoo, options))

    def _run(self, shampoo: Shampoo, options: dict[str, Any]) -> None:
        try:
            self._result = self.worker.run(shampoo, "w", **options)
        except BaseException as error:
            self._result = error

    def end(self, seconds: float = WAIT) -> Stats:
        """Wait until the worker has ended by itself, and give what it did."""
        self._thread.join(seconds)
        assert not self._thread.is_alive(), "the worker does not end"
        if isinstance(self._result, BaseException):
            raise self._result
        assert self._result is not None
        return self._result

    def stop(self, **how: Any) -> Stats:
        self.worker.stop(**how)
        return self.end()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._thread.is_alive():
            self.worker.stop(now=True)
            self._thread.join(0.1)


class Program:
    """``shampoo work`` as a process of its own. Leaving the context kills it."""

    def __init__(self, queue: Queue, *arguments: str, worker: str = "tests.worker.handlers:worker", **env: str) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SHAMPOO_")}
        kept |= {"SHAMPOO_URL": queue.engine.url, "SHAMPOO_PROFILE": queue.profile} | env
        command = [sys.executable, "-m", "shampoo_queue.cli", "work", worker, "--as", "w", *arguments]
        self.process = subprocess.Popen(command, cwd=ROOT, env=kept, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.pid = self.process.pid
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)  # a copy left behind would hold the pipe open
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr
        for line in self.process.stderr:
            self.lines.append(line.decode(errors="replace").rstrip("\n"))

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def end(self, seconds: float = WAIT) -> int:
        """Wait until the process has ended, and give its exit status."""
        status = self.process.wait(seconds)
        self._reader.join(5)
        return status

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join(5)
        for stream in (self.process.stdout, self.process.stderr):
            if stream:
                stream.close()


class Bench:
    """The profile under test."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.shampoo = queue.shampoo
        self.conductor = queue.principal("c", "p", conductor=True)
        self.client = queue.principal("w", "p")

    def create(self, *act: Any, kind: str = "k") -> str:
        """Create a job that tells its handler what to do."""
        return self.conductor.job_create(kind=kind, project="p", payload=json.dumps(act)).job_id

    def create_many(self, count: int, *act: Any, kind: str = "k") -> list[str]:
        job = {"kind": kind, "project": "p", "payload": json.dumps(act)}
        return [created.job_id for created in self.conductor.create_many([job] * count)]  # type: ignore[union-attr]

    def run(self, worker: Worker, **options: Any) -> Running:
        return Running(worker, self.shampoo, **options)

    def burst(self, worker: Worker, **options: Any) -> Stats:
        """Run until no claimable work is left."""
        with self.run(worker, burst=True, **options) as running:
            return running.end()

    def job(self, job_id: str) -> JobStanding:
        return self.conductor.job(job_id)

    def ended(self, job_id: str, seconds: float = WAIT) -> JobStanding:
        """Wait until the job has ended."""
        return self.conductor.wait(job_id, timeout=seconds)

    def until(self, job_id: str, state: str, attempts: int = 1, seconds: float = WAIT) -> JobStanding:
        """Wait until the job stands so."""

        def stands() -> JobStanding | None:
            found = self.job(job_id)
            return found if (found.state, found.attempts) == (state, attempts) else None

        found: JobStanding = wait_for(stands, f"{job_id} is {state} at attempt {attempts}", seconds)
        return found

    def events(self, job_id: str) -> list[str]:
        """The names of a job's events, without ``job.``."""
        return [name.removeprefix("job.") for name in self.queue.events(job_id)]

    def due_seconds(self, job_id: str) -> float:
        """How long after its last change the job is claimable."""
        found = self.job(job_id)
        if not found.due_at:
            return 0.0
        return (datetime.fromisoformat(found.due_at) - datetime.fromisoformat(found.changed_at)).total_seconds()

    def held(self) -> list[str]:
        """The jobs that are claimed under a live lease."""
        return [job_id for job_id in self.job_ids() if self.job(job_id).state == "claimed"]

    def job_ids(self) -> list[str]:
        events = self.whole_history()
        return [event.entity_id for event in events if event.event == "job.created"]

    def whole_history(self) -> Sequence[Any]:
        events: list[Any] = []
        while page := self.shampoo.history(after=events[-1].id if events else None, limit=1000):
            events += page
        return events


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    os.kill(pid, number)
