"""Look at a profile in a caller's name: jobs, claims, lanes, counts, rates, the feed. Nothing here writes.

A caller sees what its grants cover and nothing beside it: what is hidden reads as what is missing, leaves no gap in a
page and counts nowhere. In an operator's name everything is seen. Every look is bounded, whatever the queue's size.

A cursor is the number of an event, and events of all projects are numbered in one row. It therefore tells how many
events the profile has had, and nothing else of what is hidden.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from . import clock
from .contract import LaneEntry, limit, safe_name
from .errors import InvalidArgument
from .history import Event, read_event
from .moves import Move, Operation
from .rates import KEPT, Kept, last_minutes
from .registry import Operator
from .tools import _UUID, NOTHING, Caller, is_unicode, iso, number, stamp, text

STANDINGS = ("queued", "delayed", "claimed", "lapsed", "exhausted", "completed", "failed", "damaged")
"""How a job stands, more finely than it is stored: a job that is stored as queued may be delayed or exhausted, one
that is stored as claimed lapsed or exhausted, and what was edited beyond use is damaged."""

REASONS = {
    "claimable": "It can be claimed now.",
    "leased": "It is claimed under a live lease; when that lapses it can be claimed again.",
    "delayed": "It is not due yet.",
    "exhausted": "It has no attempt left; an operator can requeue it.",
    "terminal": "It has ended.",
    "kind_full": "As many jobs of its kind run as may; when one ends, or its lease does, another can be claimed.",
    "behind_other_projects": "A star principal's claim looks at the projects longest in wait first, and this one is "
    "behind them.",
    "unindexed": "The indexes do not show it; an operator's `expire` puts it back.",
    "damaged": "Its stored facts were edited beyond use, so a claim sets it aside.",
}
"""What `SightOperations.job_explain` can answer, each with its sentence."""

PAYLOAD_BYTES = 65_536  # of a payload that are shown unless told otherwise
_PAGE_SECONDS = 1.0  # after which a page is given as it is; each run of a script looks at 1,000 events at most

_COUNTS = ("queued", "claimed", "delayed", "lapsed", "exhausted")
_JOB = (
    *("job_id", "standing", "kind", "project", "lane_id", "state", "owner", "holder", "attempts", "fence"),
    *("lease_until", "due_at", "created_at", "changed_at", "result_ref", "reason", "event"),
)
_LANE = (
    *(name for name in LaneEntry.model_fields if name != "lane_id"),
    *("depends_on", "repo", "branch", "base_ref", "worktree"),
)
_INSTANTS = frozenset({"lease_until", "due_at", "created_at", "changed_at"})
_NUMBERS = frozenset({"attempts", "fence", "event"})

Shown = dict[str, Any]


class SightOperations:
    """The looks of one caller, or of an operator, who sees everything.

    All give plain dicts: instants are ISO-8601 UTC, what is unset is an empty text, ``now`` is the server's time. All
    raise `Unauthenticated`, `Unavailable`, and `InvalidArgument` for an argument of a wrong form.
    """

    def __init__(self, caller: Caller | Operator, kept: Kept = KEPT) -> None:
        self._caller, self._kept = caller, kept

    def _look(self, script: str, *arguments: str) -> Operation[Any]:
        if isinstance(self._caller, Operator):
            return (yield Move(script, (self._caller.operator, "", "", "", "", "", "operator", *arguments)))
        return (yield from self._caller.move(script, "", *arguments))

    # Jobs ----------------------------------------------------------------------------------------------------

    def job_list(
        self,
        *,
        standing: str | None = None,
        kind: str | None = None,
        project: str | None = None,
        lane_id: str | None = None,
        owner: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Operation[Shown]:
        """List jobs, newest change first: ``{"jobs": [job…], "cursor": text, "now": instant}``.

        ``standing`` is one of `STANDINGS`; ``queued`` and ``claimed`` also find what is stored so and stands more
        finely. ``project=""`` asks for untagged jobs. ``limit`` is clamped to 1..100. Go on with ``cursor`` until it is
        empty: a page may be short, or even empty, before that, since one is given after about a second's search.

        A job is listed once, where its last event stands. One that moves while pages are read comes to the front.
        With a ``lane_id`` jobs are listed newest creation first, and do not change their places.
        """
        if standing is not None and standing not in STANDINGS:
            raise InvalidArgument(f"standing must be {', '.join(STANDINGS[:-1])} or {STANDINGS[-1]}")
        filters = (
            *(standing or "", _filter("kind", kind)),
            *("" if project is None else "project", _filter("project", project)),
            *(_link(lane_id), _filter("owner", owner)),
        )
        most, before, rows = _most("limit", limit, 100), _cursor(cursor), list[Sequence[Any]]()
        until = clock.now() + _PAGE_SECONDS
        while True:
            # One more than is asked for tells whether there is a next page.
            reply = yield from self._look("job_list", before, str(most + 1 - len(rows)), *filters)
            now, before = text(reply[0]), text(reply[1])
            rows += reply[2]
            if not before or len(rows) > most or clock.now() >= until:
                break
        if len(rows) > most:
            rows, before = rows[:most], text(rows[most - 1][-1])
        return {"jobs": list(map(_job, rows)), "cursor": before, "now": stamp(now)}

    def job_look(self, job_id: str, *, payload_bytes: int = PAYLOAD_BYTES) -> Operation[Shown]:
        """Show one job: ``{"job": job, "payload": text, "payload_bytes": length, "truncated": bool, …}``.

        ``payload`` is the first ``payload_bytes`` of it, 0 to 1,048,576, and ``payload_bytes`` of the answer the
        length of the whole. ``attempts_max`` is how many attempts a job has. Raises `JobNotFound`.
        """
        if isinstance(payload_bytes, bool) or not isinstance(payload_bytes, int) or payload_bytes < 0:
            raise InvalidArgument("payload_bytes must be a whole number, 0 or more")
        wanted = str(min(payload_bytes, limit("payload")))
        reply = yield from self._look("job_look", _known(job_id), wanted)
        begun, length = reply[2], number(text(reply[3]))
        shown = begun if isinstance(begun, bytes) else str(begun).encode()
        truncated = len(shown) < length
        return {
            "job": _job(reply[1]),
            "payload": shown.decode("utf-8", "ignore" if truncated else "replace"),
            "payload_bytes": length,
            "truncated": truncated,
            "attempts_max": limit("attempts"),
            "now": stamp(text(reply[0])),
        }

    def job_explain(self, job_id: str) -> Operation[Shown]:
        """Tell whether this caller could claim a job now and, if not, why not.

        Gives ``claimable``, ``reason`` (one of `REASONS`) with its sentence as ``message``, ``until`` when time alone
        ends that, ``since`` when the job is claimable, ``before`` how many of the same project and kind stand before
        it, ``kind_limit`` (None without), ``attempts`` and ``attempts_max``. Raises `JobNotFound`.
        """
        reply = yield from self._look("job_explain", _known(job_id))
        now, reason, until, since, before, most, attempts, kind = map(text, reply)
        return {
            "job_id": job_id,
            "claimable": reason == "claimable",
            "reason": reason,
            "message": REASONS[reason],
            "until": stamp(until),
            "since": stamp(since),
            "before": number(before),
            "kind": kind,
            "kind_limit": number(most) if most else None,
            "attempts": number(attempts),
            "attempts_max": limit("attempts"),
            "now": stamp(now),
        }

    def claims_list(
        self, *, standing: str | None = None, kind: str | None = None, limit: int = 100
    ) -> Operation[Shown]:
        """List claims, those first whose lease ends first: ``{"claims": [job…], "more": bool, "now": instant}``.

        ``standing`` is ``claimed`` for live leases, ``lapsed`` for those whose lease is over, None for both. ``limit``
        is clamped to 1..100; ``more`` tells that there may be others behind them.
        """
        if standing not in (None, "claimed", "lapsed"):
            raise InvalidArgument("standing must be claimed or lapsed")
        most = str(_most("limit", limit, 100))
        reply = yield from self._look("claims_list", standing or "", _filter("kind", kind), most)
        return {"claims": [_job(row) for row in reply[2]], "more": bool(reply[1]), "now": stamp(text(reply[0]))}

    # The whole queue -----------------------------------------------------------------------------------------

    def queue_status(self) -> Operation[Shown]:
        """Count the jobs without an outcome: ``{"kinds": [counts…], "total": counts, "partial": bool, …}``.

        Counts are disjoint: ``queued`` jobs are due, ``delayed`` ones not yet, ``claimed`` ones under a live lease,
        ``lapsed`` ones claimable again, ``exhausted`` ones have no attempt left. ``oldest_since`` is when the earliest
        claimable job became so, ``oldest_seconds`` how long ago. A kind also has ``kind`` and ``limit`` (None without);
        the largest come first. ``partial`` tells that a bound was reached: some jobs are not counted, or claimed ones
        as queued or delayed. ``damaged`` is how many jobs were set aside, None unless the caller covers all projects.
        """
        reply = yield from self._look("queue_status")
        now, damaged = int(reply[0]), text(reply[2])
        kinds = [_counts(row, now) for row in reply[3]]
        kinds.sort(key=lambda row: (-sum(row[name] for name in _COUNTS), row["kind"]))
        total: Shown = {name: sum(row[name] for row in kinds) for name in _COUNTS}
        total["oldest_since"] = min((row["oldest_since"] for row in kinds if row["oldest_since"]), default="")
        total["oldest_seconds"] = max((row["oldest_seconds"] for row in kinds), default=0.0)
        return {
            "kinds": kinds,
            "total": total,
            "partial": bool(reply[1]),
            "damaged": number(damaged) if damaged else None,
            "now": iso(now),
        }

    def queue_rates(self, *, minutes: int = 60) -> Operation[Shown]:
        """Tell what happened in the last minutes, 1 to 60.

        Gives ``{"minutes": [minute…], "available": bool, "now": instant}``. A minute has ``at`` (its beginning),
        ``events`` (exact), ``sampled`` (how many of them were read) and, reckoned from those, ``created``, ``claimed``,
        ``completed``, ``failed`` and the means ``wait_ms``, from creation or release to claim, and ``run_ms``, from
        claim to end, None where nothing tells. They are exact where ``sampled`` equals ``events``: always with up to
        1,000 events, and with more once looks found the time to read them all; until then 1,000 are read, in blocks
        that spread over the minute. The last minute is the present, unfinished one.

        Only for who covers all projects, since events are numbered across them; for others ``available`` is false and
        there are no minutes.
        """
        return (yield from last_minutes(self._look, _most("minutes", minutes, 60), self._kept))

    # History -------------------------------------------------------------------------------------------------

    def feed_read(
        self,
        *,
        back: bool = True,
        cursor: str | None = None,
        limit: int = 100,
        event: str | None = None,
        project: str | None = None,
        actor: str | None = None,
    ) -> Operation[Shown]:
        """Read the feed, newest first or (``back=False``) oldest first.

        Gives ``{"events": [event…], "cursor": text, "more": bool, "now": instant}``. ``event`` is how an event's name
        begins, for instance ``job.``. Events of the registry are seen by who covers all projects. ``limit`` is clamped
        to 1..1,000. Go on with ``cursor`` while there is ``more``; forwards, the same cursor later gives what is new.
        """
        direction = "back" if back else ""
        filters = (
            _filter("event", event),
            "" if project is None else "project",
            _filter("project", project),
            _filter("actor", actor),
        )
        most, last, found = _most("limit", limit, 1_000), _cursor(cursor), list[Event]()
        until = clock.now() + _PAGE_SECONDS
        while True:
            reply = yield from self._look("feed_read", direction, last, str(most - len(found)), *filters)
            now, last, more = text(reply[0]), text(reply[1]), bool(reply[2])
            found += map(read_event, reply[3])
            if not more or len(found) == most or clock.now() >= until:
                break
        return {"events": found, "cursor": last, "more": more, "now": stamp(now)}

    def job_history(self, job_id: str, *, cursor: str | None = None, limit: int = 100) -> Operation[Shown]:
        """Read the events of one job, newest first: ``{"events": [event…], "cursor": text, "now": instant}``.

        ``cursor`` is empty at the end; ``limit`` is clamped to 1..1,000. Raises `JobNotFound`.
        """
        return (yield from self._chain("job", job_id, cursor, limit))

    def lane_history(self, lane_id: str, *, cursor: str | None = None, limit: int = 100) -> Operation[Shown]:
        """Read the events of one lane as `job_history` does a job's. Raises `UnknownLane`."""
        return (yield from self._chain("lane", lane_id, cursor, limit))

    def _chain(self, family: str, entity_id: str, cursor: str | None, most: int) -> Operation[Shown]:
        left, after, found = _most("limit", most, 1_000), _cursor(cursor), list[Event]()
        while True:
            reply = yield from self._look("chain_read", family, _known(entity_id), after, str(left - len(found)))
            now, after = text(reply[0]), text(reply[1])
            found += map(read_event, reply[2])
            if not after or len(found) == left:
                return {"events": found, "cursor": after, "now": stamp(now)}

    # Lanes ---------------------------------------------------------------------------------------------------

    def lane_look(self, lane_id: str) -> Operation[Shown]:
        """Show one lane with all its facts: ``{"lane": lane, "now": instant}``. Raises `UnknownLane`."""
        now, facts = yield from self._look("lane_look", _known(lane_id))
        return {"lane": {"lane_id": lane_id, **_named(_LANE, facts)}, "now": stamp(text(now))}


# Reading replies -------------------------------------------------------------------------------------------------


def _named(names: Sequence[str], facts: Iterable[Any]) -> Shown:
    shown: Shown = {}
    for name, fact in zip(names, map(text, facts), strict=False):
        if name in _NUMBERS:
            shown[name] = number(fact)
        else:
            shown[name] = stamp(fact) if name in _INSTANTS else fact
    return shown


def _job(row: Iterable[Any]) -> Shown:
    return _named(_JOB, row)


def _counts(row: Sequence[Any], now: int) -> Shown:
    """Read what is counted of one kind."""
    kind, *counts, since, most = map(text, row)
    return {
        "kind": kind,
        **dict(zip(_COUNTS, map(number, counts), strict=True)),
        "oldest_since": stamp(since),
        "oldest_seconds": max(0, now - int(since)) / 1000 if since else 0.0,
        "limit": number(most) if most else None,
    }


# Checking arguments ----------------------------------------------------------------------------------------------


def _known(entity_id: Any) -> str:
    """Give an id, or one that names nothing for whatever was not made here."""
    return entity_id if isinstance(entity_id, str) and _UUID.fullmatch(entity_id) else NOTHING


def _link(lane_id: Any) -> str:
    return "" if lane_id is None else _known(lane_id)


def _filter(name: str, value: Any) -> str:
    """Check a text to look for; empty when none was given."""
    if value is None:
        return ""
    if not isinstance(value, str) or not is_unicode(value) or len(value) > limit("project"):
        raise InvalidArgument(f"{name} must be text of at most {limit('project')} characters")
    return value


def _most(name: str, value: Any, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidArgument(f"{name} must be a whole number")
    return max(1, min(value, most))


def _cursor(cursor: Any) -> str:
    if cursor is None or cursor == "":
        return ""
    if not isinstance(cursor, str) or not re.fullmatch(r"[0-9]{1,18}", cursor):
        raise InvalidArgument(f"cursor {safe_name(cursor)} is none that a page gave")
    return str(int(cursor))
