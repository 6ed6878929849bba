"""Count the commands of a job from its creation to its end, one job at a time on an otherwise idle queue."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .contestants import Contestant, Entry, Environments
from .latency import GAP, SETTLE, WARM
from .servers import Monitor, Server


def measure(
    contestants: Sequence[Contestant],
    servers: Mapping[str, Server],
    environments: Environments,
    jobs: int,
    say: Callable[[str], None],
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Give the commands sent for a job, and those that scripts called for it; and who failed and why."""
    rows: list[dict[str, Any]] = []
    failed: dict[str, str] = {}
    for contestant in contestants:
        say(f"commands a job: {contestant.label}")
        try:
            rows.append(_counted(contestant, servers[contestant.engine], environments, jobs))
        except RuntimeError as error:
            failed[contestant.label] = str(error)
    return rows, failed


def _counted(contestant: Contestant, server: Server, environments: Environments, jobs: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        entry = Entry(contestant, server, environments, Path(folder))
        entry.clear()
        with entry.working(), entry.producing() as order:
            order(WARM, *SETTLE)
            with Monitor(server) as monitor:
                order(jobs, *GAP)
                time.sleep(GAP[1])  # for the end of the last job
    sent = monitor.sent - Counter({"monitor": 1})
    return {
        "name": contestant.name,
        "engine": contestant.engine,
        "jobs": jobs,
        "sent": dict(sent.most_common()),
        "inside_scripts": dict(monitor.inner.most_common()),
        "sent_a_job": round(sent.total() / jobs, 2),
        "inside_a_job": round(monitor.inner.total() / jobs, 2),
    }
