"""The live view of ``shampoo work``: places by kind, pace, and the age of the leases."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from . import streams

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

    from ..worker import Running, Stats

REFRESHES_A_SECOND = 4
PACE_SECONDS = 10.0
BAR = 20
MOST_JOBS = 12


@contextmanager
def live(stats: Callable[[], Stats], name: str) -> Iterator[Callable[[list[str]], None]]:
    """Show the view while inside; give a function that prints lines above it."""
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False, markup=False, emoji=False)
    view = View(stats, name)
    with Live(
        console=console,
        get_renderable=view.render,
        refresh_per_second=REFRESHES_A_SECOND,
        redirect_stdout=False,
        redirect_stderr=False,
    ):
        yield lambda lines: _print(console, lines)


def _print(console: Console, lines: list[str]) -> None:
    from rich.text import Text

    for line in lines:
        console.print(Text(streams.visible(line)))


class View:
    """What is drawn. The pace is counted over the last ten seconds."""

    def __init__(self, stats: Callable[[], Stats], name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._stats, self._name, self._clock = stats, name, clock
        self._seen: deque[tuple[float, int]] = deque()

    def render(self) -> RenderableType:
        """Draw the present state."""
        from rich.console import Group
        from rich.text import Text

        stats = self._stats()
        counts = [("completed", "green"), ("released", "yellow"), ("failed", "red"), ("lost", "red")]
        head = Text.assemble(
            (streams.visible(self._name), "bold"), f"  {stats.state}  {self.pace(stats.ended):.1f} jobs/s"
        )
        for what, colour in counts:
            number = getattr(stats, what)
            head.append(f"  {number:,} {what}", style=colour if number else "dim")
        parts: list[RenderableType] = [head, *(self._places(kind, stats) for kind in sorted(stats.slots))]
        if stats.running:
            parts.append(_jobs(stats.running))
        return Group(*parts)

    def pace(self, ended: int) -> float:
        """Give the jobs a second that have ended lately."""
        now = self._clock()
        self._seen.append((now, ended))
        while len(self._seen) > 2 and now - self._seen[0][0] > PACE_SECONDS:
            self._seen.popleft()
        began, before = self._seen[0]
        return (ended - before) / (now - began) if now > began else 0.0

    @staticmethod
    def _places(kind: str, stats: Stats) -> Text:
        from rich.text import Text

        places = stats.slots[kind]
        busy = sum(job.kind == kind for job in stats.running)
        full, mark = round(busy / places * BAR), "#" if not streams.is_unicode_terminal() else "█"
        bar = Text(mark * full, style="cyan") + Text(("." if mark == "#" else "░") * (BAR - full), style="dim")
        return Text(f"  {streams.visible(kind):<16.16} ") + bar + Text(f" {busy}/{places}")


def _jobs(running: tuple[Running, ...]) -> Table:
    """List the jobs that have run longest, each with the age of its lease since the last renewal."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 2), header_style="bold")
    for column in ("job", "kind", "attempt", "runs", "lease"):
        table.add_column(column, no_wrap=True, justify="left" if column in ("job", "kind") else "right")
    for job in sorted(running, key=lambda job: -job.seconds)[:MOST_JOBS]:
        age = max(0.0, job.lease_seconds - job.lease_seconds_left)
        table.add_row(
            job.job_id[:13],
            streams.visible(job.kind)[:16],
            str(job.attempt),
            f"{job.seconds:.1f} s",
            f"{age:.0f} of {job.lease_seconds} s",
        )
    if len(running) > MOST_JOBS:
        table.add_row(f"and {len(running) - MOST_JOBS} more")
    return table
