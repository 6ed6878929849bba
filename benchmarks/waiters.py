"""Let many idle callers wait for work, and count how many are woken for each job created."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

from shampoo_queue import Shampoo

from .contestants import KIND, PRODUCER, PROFILE, PROJECT, Contestant, Entry, Environments, answered, ask
from .servers import Server

PROCESSES = 4  # among which the waiters are spread
TICK = 0.05  # seconds between jobs created one by one
PATIENCE = 30.0  # seconds until every job must be won


class Herd:
    """Waiters of this project in a few processes, from the start to the end of the block."""

    def __init__(self, server: Server, count: int, environments: Environments) -> None:
        self._server, self._count, self._environments = server, count, environments
        self._stack = ExitStack()
        self._processes: list[tuple[Any, Entry]] = []

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-"))
            processes = min(PROCESSES, self._count)
            for n in range(processes):
                share = self._count // processes + (n < self._count % processes)
                contestant = Contestant("shampoo wait_for_work", "", f"{{bin}}/python ours.py wait {share}", "")
                entry = Entry(contestant, self._server, self._environments, Path(folder))
                if n == 0:
                    entry.clear()
                self._processes.append((stack.enter_context(entry.running(contestant.work)), entry))
            for process, entry in self._processes:
                answered(process, entry)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def told(self) -> dict[str, int]:
        """Give how often the waiters were woken, and how many jobs they won."""
        for process, _ in self._processes:
            ask(process, "")
        answers = [json.loads(answered(process, entry)) for process, entry in self._processes]
        return {name: sum(answer[name] for answer in answers) for name in ("woken", "won")}


def measure(
    server: Server, waiters: int, jobs: int, environments: Environments, settle: float, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """Create jobs one by one, then as many at once; give the wake-ups for each."""
    say(f"wake-ups of {waiters} waiters on {server.engine}")
    with Herd(server, waiters, environments) as herd, Shampoo.connect(server.url, profile=PROFILE) as shampoo:
        client = shampoo.client(PRODUCER)
        job: dict[str, Any] = {"kind": KIND, "project": PROJECT}

        def one_by_one() -> None:
            for _ in range(jobs):
                client.job_create(**job)
                time.sleep(TICK)

        rows = []
        for how, create in (("one every 50 ms", one_by_one), ("all at once", lambda: client.create_many([job] * jobs))):
            time.sleep(settle)
            row = _counted(herd, server, jobs, create)
            rows.append({"engine": server.engine, "waiters": waiters, "created": how, **row})
    return rows


def _counted(herd: Herd, server: Server, jobs: int, create: Callable[[], object]) -> dict[str, Any]:
    before, signs = herd.told(), _signs(server)
    began = time.monotonic()
    create()
    while (now := herd.told())["won"] - before["won"] < jobs:
        if time.monotonic() - began > PATIENCE:
            raise RuntimeError(f"{now['won'] - before['won']} of {jobs} jobs were won in {PATIENCE:.0f} seconds")
        time.sleep(TICK)
    taken = time.monotonic() - began
    time.sleep(10 * TICK)  # for those woken in vain
    now, signs = herd.told(), _signs(server) - signs
    woken = now["woken"] - before["woken"]
    return {
        "jobs": jobs,
        "woken": woken,
        "signs": signs,
        "woken_a_job": round(woken / jobs, 3),
        "signs_a_job": round(signs / jobs, 3),
        "seconds": round(taken, 2),
    }


def _signs(server: Server) -> int:
    """Give the signs sent to waiters so far: the scripts use LPUSH for nothing else."""
    with server.client() as client:
        found: dict[str, dict[str, int]] = client.info("commandstats")
    return found.get("cmdstat_lpush", {"calls": 0})["calls"]
