"""Print what was measured as tables in plain text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

LATENCY = (
    "name",
    "engine",
    "jobs",
    "floor_ms",
    "p50_ms",
    "p90_ms",
    "p99_ms",
    "max_ms",
    "p50_x_floor",
    "p90_x_floor",
    "p99_x_floor",
)
IDLE = ("name", "engine", "workers", "sent_a_worker_second", "processed_a_worker_second")
COST = ("name", "engine", "jobs", "sent_a_job", "inside_a_job")
WAITERS = ("engine", "waiters", "created", "jobs", "woken_a_job", "signs_a_job", "seconds")
STEPS = (
    ("latency", "create to start on an idle queue; x_floor: over one no-op EVALSHA of redis-py", LATENCY),
    ("idle", "commands a second of each idle worker: sent by it, and processed (with those inside scripts)", IDLE),
    ("cost", "commands a job from creation to end, one at a time: sent, and called inside scripts", COST),
    ("waiters", "wake-ups for each job created", WAITERS),
)


def tables(found: dict[str, Any]) -> str:
    """Lay out all that was measured, with what was left out and why."""
    machine = found["machine"]
    engines = ", ".join(found["versions"]["engines"].values())
    parts = [f"{machine['cores']} cores, {machine['system']}, Python {machine['python']}; {engines}"]
    for step, title, columns in STEPS:
        if step in found:
            parts += [title, table(columns, ([str(row[name]) for name in columns] for row in found[step]))]
    parts += [f"left out: {name}: {why}" for name, why in found["left_out"].items()]
    return "\n\n".join(parts)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [tuple(columns), *map(tuple, rows)]
    widths = [max(len(line[n]) for line in lines) for n in range(len(columns))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )
