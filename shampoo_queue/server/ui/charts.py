"""Draw the last hour as small charts of SVG, with their figures as text beside them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from . import words

WIDTH, HEIGHT = 600, 120  # of the drawing's own units; the page stretches it
_ENDS = {"wait_ms": ("claimed",), "run_ms": ("completed", "failed")}  # the moves that end each length
_STEPS = (10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100)


@dataclass(frozen=True, slots=True)
class Bar:
    """One minute's stack: two rectangles on each other."""

    x: float
    width: float
    completed_y: float
    completed_height: float
    failed_y: float
    failed_height: float


@dataclass(frozen=True, slots=True)
class Throughput:
    """What was created, completed and failed in each minute."""

    bars: tuple[Bar, ...]
    created: str
    most: int
    totals: dict[str, float]
    exact: bool

    @property
    def empty(self) -> bool:
        return not any(self.totals.values())


@dataclass(frozen=True, slots=True)
class Length:
    """A mean length of time in each minute; minutes without one are gaps."""

    lines: tuple[str, ...]
    most_ms: float
    last_ms: float | None
    mean_ms: float | None
    exact: bool

    @property
    def empty(self) -> bool:
        return self.mean_ms is None


def throughput(minutes: Sequence[dict[str, Any]]) -> Throughput:
    """Draw the counts of minutes, oldest first."""
    ends = [minute["completed"] + minute["failed"] for minute in minutes]
    most = _round_up(max([*ends, *(minute["created"] for minute in minutes), 1]))
    step = WIDTH / max(1, len(minutes))
    bars = []
    for n, minute in enumerate(minutes):
        done, failed = (minute[name] / most * HEIGHT for name in ("completed", "failed"))
        if done or failed:
            top = HEIGHT - done
            bars.append(Bar(_r(n * step + 1), _r(step - 2), _r(top), _r(done), _r(top - failed), _r(failed)))
    created = _points([(n * step + step / 2, minute["created"] / most) for n, minute in enumerate(minutes)])
    totals = {name: sum(minute[name] for minute in minutes) for name in ("created", "claimed", "completed", "failed")}
    return Throughput(tuple(bars), created, most, totals, _exact(minutes))


def length(minutes: Sequence[dict[str, Any]], name: str) -> Length:
    """Draw the mean length ``name`` (``wait_ms`` or ``run_ms``) of minutes, oldest first."""
    known = [minute[name] for minute in minutes if minute[name] is not None]
    most = float(_round_up(max([*known, 1])))
    step = WIDTH / max(1, len(minutes))
    lines: list[list[tuple[float, float]]] = [[]]
    for n, minute in enumerate(minutes):
        if minute[name] is None:
            lines.append([])
        else:
            lines[-1].append((n * step + step / 2, minute[name] / most))
    drawn = tuple(_points(line if len(line) > 1 else _dash(line[0], step)) for line in lines if line)
    return Length(drawn, most, known[-1] if known else None, _mean(minutes, name), _exact(minutes))


def table(minutes: Sequence[dict[str, Any]], together: int = 5) -> list[dict[str, str]]:
    """Give the same figures in words, as rows of a table, several minutes a row."""
    rows = []
    for n in range(0, len(minutes), together):
        part = minutes[n : n + together]
        exact = _exact(part)
        row = {
            name: words.count(sum(minute[name] for minute in part), exact)
            for name in ("created", "completed", "failed")
        }
        row |= {name: words.short(_mean(part, name), exact) for name in _ENDS}
        rows.append({"at": part[0]["at"], **row})
    return rows


def _exact(minutes: Sequence[dict[str, Any]]) -> bool:
    return all(minute["sampled"] == minute["events"] for minute in minutes)


def _mean(minutes: Sequence[dict[str, Any]], name: str) -> float | None:
    """Give the mean over minutes, each with the weight of the moves that ended such a length in it."""
    known = [
        (minute[name], sum(minute[move] for move in _ENDS[name]) or 1) for minute in minutes if minute[name] is not None
    ]
    weight = sum(moves for _, moves in known)
    return sum(mean * moves for mean, moves in known) / weight if known else None


def _dash(point: tuple[float, float], step: float) -> list[tuple[float, float]]:
    """Make a lone point visible."""
    return [(point[0] - step / 2, point[1]), (point[0] + step / 2, point[1])]


def _points(line: list[tuple[float, float]]) -> str:
    return " ".join(f"{_r(x)},{_r(HEIGHT - share * HEIGHT)}" for x, share in line)


def _round_up(value: float) -> int:
    """Give the next number that reads well as the top of an axis."""
    if value <= 10:
        return math.ceil(value)
    power = 1
    while value > 100 * power:
        power *= 10
    return next(step * power for step in _STEPS if step * power >= value)


def _r(number: float) -> float:
    return round(number, 1)
