"""The operators' moves on jobs, and their look at one job or lane, beside the nine tools."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from . import keys
from .contract import KIND, limit
from .errors import InvalidArgument
from .moves import Command, Operation
from .registry import Operator
from .tools import _UUID, NOTHING, is_unicode, number, stamp, text

_BATCH = 500
_MOST_RUNNING = 1_000_000


@dataclass(frozen=True, slots=True)
class Expired:
    """What one pass of `expire` found: lapsed leases that are claimable again, jobs with no attempt left, index
    entries put back, and jobs edited beyond use."""

    lapsed: int
    exhausted: int
    put_back: int
    damaged: tuple[str, ...]


def _job_id(job_id: Any) -> str:
    return job_id if isinstance(job_id, str) and _UUID.fullmatch(job_id) else NOTHING


class OpsOperations:
    """Moves and looks that are an operator's, not a caller's: no grant is asked, every move is an event."""

    def __init__(self, operator: Operator, profile: str) -> None:
        self._operator = operator
        self._profile = profile

    def requeue(self, job_id: str, *, fence: int | None = None) -> Operation[None]:
        """Queue an exhausted or failed job again, with no attempt spent.

        With the ``fence`` that somebody saw, only when the job was not claimed since. Raises `JobNotFound`,
        `JobNotRequeueable`, `LeaseExpired` for another fence, or `Unavailable`.
        """
        yield from self._operator.move("job_requeue", _job_id(job_id), fence=fence)

    def cancel(self, job_id: str, reason: str) -> Operation[None]:
        """End a job that has no outcome yet as failed, with a reason of 1 to 512 characters.

        Raises `JobNotFound`, `JobAlreadyTerminal`, `InvalidArgument` or `Unavailable`.
        """
        if not isinstance(reason, str) or not reason or len(reason) > limit("reason") or not is_unicode(reason):
            raise InvalidArgument(f"reason must be text of 1 to {limit('reason')} characters")
        yield from self._operator.move("job_cancel", _job_id(job_id), reason)

    def limit_kind(self, kind: str, most: int | None) -> Operation[bool]:
        """Let at most ``most`` jobs of a kind run at a time over the whole profile; None lifts the limit.

        A claim skips a kind that has reached its limit; what runs already goes on. Gives whether that changed anything.
        Raises `InvalidArgument`, `LimitReached` when 50 kinds have a limit, or `Unavailable`.
        """
        if not isinstance(kind, str) or not re.fullmatch(KIND, kind) or not is_unicode(kind):
            raise InvalidArgument(f"kind must be 1 to {limit('kind')} characters, no control characters")
        if most is not None and (isinstance(most, bool) or not isinstance(most, int) or not 1 <= most <= _MOST_RUNNING):
            raise InvalidArgument(f"a limit must be a whole number from 1 to {_MOST_RUNNING:,}")
        reply = yield from self._operator.move("kind_limit", kind, "" if most is None else str(most))
        return bool(reply)

    def kind_limits(self) -> Operation[dict[str, int]]:
        """Give the kinds that have a limit of running jobs, by name."""
        reply = yield Command(("HGETALL", keys.spell(self._profile, "limits")))
        return {kind: number(most) for kind, most in sorted(_pairs(reply).items())}

    def expire(self) -> Operation[Expired]:
        """Hold every job against the indexes, in bounded batches, and put back what is missing there.

        No standing and no owner changes, and progress never waits for this: a claim finds lapsed work by itself.
        It finds what an edit by hand or a lost key made invisible. Takes one pass over the profile's keys.
        """
        lapsed, exhausted, put_back = 0, 0, 0
        damaged: set[str] = set()
        start = keys.spell(self._profile, "job", "")
        cursor: Any = b"0"
        while True:
            cursor, found = yield Command(("SCAN", cursor, "MATCH", _glob(start) + "*", "COUNT", str(_BATCH)))
            job_ids = [text(key)[len(start) :] for key in found]
            for n in range(0, len(job_ids), _BATCH):
                reply = yield from self._operator.move("job_expire", *job_ids[n : n + _BATCH])
                lapsed, exhausted, put_back = lapsed + reply[0], exhausted + reply[1], put_back + reply[2]
                damaged |= set(text(reply[3]).split())
            if text(cursor) == "0":
                return Expired(lapsed, exhausted, put_back, tuple(sorted(damaged)))

    def job(self, job_id: str) -> Operation[dict[str, Any] | None]:
        """Give one job as it is stored, or None; the payload stays where it is."""
        return (yield from self._stored("job", job_id))

    def lane(self, lane_id: str) -> Operation[dict[str, Any] | None]:
        """Give one lane as it is stored, or None."""
        return (yield from self._stored("lane", lane_id))

    def payload(self, job_id: str) -> Operation[str]:
        """Give a job's payload; empty when it has none."""
        reply = yield Command(("GET", keys.spell(self._profile, "payload", _job_id(job_id))))
        return "" if reply is None else text(reply)

    def _stored(self, family: str, entity_id: str) -> Operation[dict[str, Any] | None]:
        stored = _pairs((yield Command(("HGETALL", keys.spell(self._profile, family, _job_id(entity_id))))))
        return {f"{family}_id": entity_id, **_readable(stored)} if stored else None


def _pairs(reply: Any) -> dict[str, str]:
    """Read a whole hash: a flat list, or a map where the connection speaks RESP3."""
    flat = list(reply) if isinstance(reply, list) else [part for pair in reply.items() for part in pair]
    return {text(name): text(value) for name, value in zip(flat[::2], flat[1::2], strict=True)}


def _readable(stored: dict[str, str]) -> dict[str, Any]:
    """Show instants as ISO-8601 and counts as numbers; leave out what only the scripts need."""
    shown: dict[str, Any] = {}
    for name, value in stored.items():
        if name in ("created_at", "changed_at", "lease_until", "due_at"):
            shown[name] = stamp(value) or value
        elif name in ("attempts", "fence"):
            shown[name] = number(value) or (0 if value == "0" else value)
        elif name not in ("seq", "last_event"):
            shown[name] = value
    return shown


def _glob(literal: str) -> str:
    """Write a literal text for SCAN's MATCH."""
    return "".join(f"\\{c}" if c in "*?[]^\\" else c for c in literal)
