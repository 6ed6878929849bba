"""Measure the time from the call that creates a job to the start of its handler, on an idle queue."""

from __future__ import annotations

import math
import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from .contestants import Contestant, Entry, Environments
from .servers import Server, floor_ms

GAP = (0.02, 0.06)  # seconds between the start of a job and the creation of the next
WARM = 3  # jobs of each turn that do not count
SETTLE = (0.3, 0.4)  # seconds before the first


@dataclass(frozen=True)
class Turn:
    """What one turn of a contestant gave, in milliseconds: the delay of each start, and the floor before and after."""

    starts: list[float]
    floors: tuple[float, float]


def measure(
    contestants: Sequence[Contestant],
    servers: Mapping[str, Server],
    environments: Environments,
    rounds: int,
    jobs: int,
    floor_seconds: float,
    say: Callable[[str], None],
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Let the contestants take turns, shuffled anew in each round; give their figures, and who failed and why."""
    turns: dict[Contestant, list[Turn]] = {contestant: [] for contestant in contestants}
    failed: dict[str, str] = {}
    for number in range(rounds):
        for contestant in random.sample(contestants, len(contestants)):
            if contestant not in turns:
                continue
            say(f"latency, round {number + 1} of {rounds}: {contestant.label}")
            try:
                turns[contestant].append(
                    _turn(contestant, servers[contestant.engine], environments, jobs, floor_seconds)
                )
            except RuntimeError as error:
                failed[contestant.label] = str(error)
                del turns[contestant]
    return rows(turns), failed


def _turn(contestant: Contestant, server: Server, environments: Environments, jobs: int, floor_seconds: float) -> Turn:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        entry = Entry(contestant, server, environments, Path(folder))
        entry.clear()
        before = floor_ms(server, floor_seconds)
        with entry.working(), entry.producing() as order:
            order(WARM, *SETTLE)
            order(jobs, *GAP)
        return Turn(entry.stamps()[WARM:], (before, floor_ms(server, floor_seconds)))


def rows(turns: Mapping[Contestant, Sequence[Turn]]) -> list[dict[str, Any]]:
    """Sum up the turns of each contestant: milliseconds, and ratios to the median floor of the run on its engine."""
    floors: dict[str, list[float]] = {}
    for contestant, those in turns.items():
        floors.setdefault(contestant.engine, []).extend(floor for turn in those for floor in turn.floors)
    found = [_row(contestant, those, median(floors[contestant.engine])) for contestant, those in turns.items()]
    return sorted(found, key=lambda row: row["p50_ms"])


def _row(contestant: Contestant, turns: Sequence[Turn], floor: float) -> dict[str, Any]:
    starts = sorted(start for turn in turns for start in turn.starts)
    p50, p90, p99 = (quantile(starts, share) for share in (0.5, 0.9, 0.99))
    return {
        "name": contestant.name,
        "engine": contestant.engine,
        "note": contestant.note,
        "jobs": len(starts),
        "floor_ms": round(floor, 4),
        "p50_ms": round(p50, 3),
        "p90_ms": round(p90, 3),
        "p99_ms": round(p99, 3),
        "max_ms": round(starts[-1], 3),
        "p50_x_floor": round(p50 / floor, 2),
        "p90_x_floor": round(p90 / floor, 2),
        "p99_x_floor": round(p99 / floor, 2),
        "turns": [{"starts_ms": turn.starts, "floors_ms": turn.floors} for turn in turns],
    }


def quantile(ordered: Sequence[float], share: float) -> float:
    """Give the smallest value that at least this share of the ordered values does not exceed."""
    return ordered[max(1, math.ceil(share * len(ordered))) - 1]
