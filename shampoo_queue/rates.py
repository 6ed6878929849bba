"""Count moves by minute from the feed. Events never change, so what was read of a minute is kept and not read again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from .moves import Operation
from .tools import iso, number, text

Shown = dict[str, Any]
Look = Callable[..., Operation[Any]]

_SHORT = 1_000  # events that are all read, and as many are of a longer row when it is sampled
_RUN = 500  # events of one run of a script
_SPARE_RUNS = 60  # of one look, for what is not short
_KEPT = 4_096  # minutes of all profiles, an hour of 68


@dataclass(frozen=True, slots=True)
class Tally:
    """What was counted of a minute's events up to before a number.

    Events read; of these jobs created, claimed, completed, failed; waits, their milliseconds, runs, their milliseconds.
    """

    upto: int
    sums: tuple[int, ...] = (0,) * 9

    def plus(self, upto: int, sums: Iterable[int]) -> Tally:
        """Give the tally of these events too."""
        return Tally(upto, tuple(map(sum, zip(self.sums, sums, strict=True))))


class Kept:
    """The tallies used last, of all profiles that this process looks at.

    A minute is known by its profile and its first event, its number and what tells it from any other: two profiles, or
    two servers with a profile of the same name, never share one. A look is shown nothing before the server has said
    that its caller covers all.
    """

    def __init__(self, most: int = _KEPT) -> None:
        self._most = most
        self._tallies: OrderedDict[tuple[Any, ...], Tally] = OrderedDict()
        self._changing = threading.Lock()

    def get(self, *key: Any) -> Tally | None:
        with self._changing:
            found = self._tallies.get(key)
            if found is not None:
                self._tallies.move_to_end(key)
            return found

    def put(self, tally: Tally, *key: Any) -> Tally:
        with self._changing:
            self._tallies[key] = tally
            self._tallies.move_to_end(key)
            if len(self._tallies) > self._most:
                self._tallies.popitem(last=False)
        return tally

    def __len__(self) -> int:
        return len(self._tallies)


KEPT = Kept()


class NotCovered(Exception):
    """The caller does not cover all projects, or no more."""


class Counting:
    """One look: counts the events of minutes, and reads no more than is good for the server."""

    def __init__(self, look: Look, kept: Kept, spare: int) -> None:
        self._look, self._kept, self._spare = look, kept, spare

    def count(self, minute: tuple[Any, ...], first: int, after: int, *, finished: bool) -> Operation[Tally]:
        """Count the events of one minute, from its first to before another.

        All of them where few are new or runs are to spare, else a sample; a later look goes on reading the rest.
        """
        tally = self._kept.get(*minute) or Tally(first)
        if tally.upto > after:  # the server's clock was set back
            tally = Tally(first)
        short = after - tally.upto <= _SHORT
        while tally.upto < after and (short or self._spare):
            self._spare -= not short
            upto = min(tally.upto + _RUN, after)
            tally = tally.plus(upto, (yield from self._read(tally.upto, upto)))
            self._kept.put(tally, *minute)
        if tally.upto == after:
            return tally
        sample = self._kept.get(*minute, after) or (yield from self._sample(first, after))
        return self._kept.put(sample, *minute, after) if finished else sample

    def _sample(self, first: int, after: int) -> Operation[Tally]:
        sample, parts = Tally(first), _SHORT // _RUN
        for n in range(parts):
            begin, end = (first + (after - first) * m // parts for m in (n, n + 1))
            sample = sample.plus(end, (yield from self._read(begin, end)))
        return sample

    def _read(self, first: int, after: int) -> Operation[list[int]]:
        reply = yield from self._look("moves_count", str(first), str(after), str(_RUN))
        if len(reply) == 1:
            raise NotCovered
        return list(map(int, reply[1:]))


def last_minutes(look: Look, many: int, kept: Kept, *, spare: int = _SPARE_RUNS) -> Operation[Shown]:
    """Give what `SightOperations.queue_rates` tells.

    ``look`` runs a script in the caller's name. One after the other, not together: what travels together a server runs
    without a break, and others wait. ``spare`` is how many runs are made for minutes of more than 1,000 events.
    """
    now, profile, after, begun = yield from look("queue_rates", str(many))
    now = int(now)
    present, counting, rows = now // 60_000, Counting(look, kept, spare), list[Shown]()
    end = number(text(after))
    try:
        # The newest first, for these are looked at again and again.
        for n, (first, mark) in enumerate(reversed(begun)):
            begin, minute = int(first), present - n
            known = (profile, minute, begin, mark)
            tally = yield from counting.count(known, begin, end, finished=n > 0)
            rows.append(_shown(minute, end - begin, tally))
            end = begin
    except NotCovered:
        rows.clear()
    return {"minutes": rows[::-1], "available": bool(rows), "now": iso(now)}


def _shown(minute: int, events: int, tally: Tally) -> Shown:
    """Show one minute, reckoned from the events that were read to all of them."""
    sampled, *moves, waits, waited, runs, ran = tally.sums
    share = events / sampled if sampled else 0.0
    names = ("created", "claimed", "completed", "failed")
    return {
        "at": iso(minute * 60_000),
        "events": events,
        "sampled": sampled,
        **{name: moved * share for name, moved in zip(names, moves, strict=True)},
        "wait_ms": waited / waits if waits else None,
        "run_ms": ran / runs if runs else None,
    }
