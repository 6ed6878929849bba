"""Read the history, and replay it to the standings that it must arrive at.

There is one feed a profile, oldest first. Each event names the entity's previous one and the entity keeps its last,
so one entity's history is read by walking that chain, without a second copy of any event.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .contract import EVENT_FACTS, EVENT_FIELDS, limit
from .errors import InvalidArgument
from .moves import Move, Operation
from .registry import Operator
from .tools import is_unicode, number, stamp, text

_ALWAYS = ("event", "entity_id", "actor", "at")
_NUMBERS = ("attempts", "fence")


class Event(dict[str, Any]):
    """One accepted move. Facts read as ``event["name"]`` or ``event.name`` (``from`` as ``from_``).

    ``id`` is the event's number in the profile, and the cursor for what comes after it. Facts that an event does
    not have are left out of the dict and read as None as attributes.
    """

    def __getattr__(self, name: str) -> Any:
        name = name.removesuffix("_")
        if name in EVENT_FIELDS or name == "id":
            return self.get(name)
        raise AttributeError(name)


def read_event(entry: Any) -> Event:
    """Read one entry of the stream; empty facts are left out unless an event of this name always has them."""
    entry_id, fields = entry
    flat = [text(field) for field in fields]
    stored = dict(zip(flat[::2], flat[1::2], strict=True))
    always = (*_ALWAYS, *EVENT_FACTS.get(stored.get("event", ""), ()))
    event = Event(id=number(text(entry_id).partition("-")[0]))
    for name in EVENT_FIELDS:
        value = stored.get(name, "")
        if name != "prev" and (value or name in always):
            event[name] = number(value) if name in _NUMBERS else value
    event["at"] = stamp(event["at"])
    return event


class HistoryOperations:
    """Read the feed, or one entity's events."""

    def __init__(self, operator: Operator) -> None:
        self._caller = (operator.operator, "", "", "", "", "")

    def history(
        self, entity_id: str | None = None, after: int | str | None = None, limit: int = 100
    ) -> Operation[list[Event]]:
        """Read events, oldest first: of the whole profile, or of the entity named.

        ``after`` is the ``id`` of the last event already read; ``limit`` is at most 1,000. Raises
        `InvalidArgument` or `Unavailable`.
        """
        cursor, most = _cursor(after), _page(limit)
        if entity_id is None:
            page = yield Move("history_read", (*self._caller, "", cursor, str(most), ""))
            return [read_event(entry) for entry in page]
        if not isinstance(entity_id, str) or not entity_id or not is_unicode(entity_id):
            raise InvalidArgument("entity_id must be a text")
        return (yield from self._chain(entity_id, cursor, most))

    def _chain(self, entity_id: str, cursor: str, most: int) -> Operation[list[Event]]:
        """Walk from the newest event back to the cursor, and give the oldest of what was passed."""
        found: list[Event] = []
        heads: list[str] = []
        while True:
            walk = ("1", *heads) if heads else ("",)
            entries, left = yield Move("history_read", (*self._caller, entity_id, cursor, "1000", *walk))
            found += [read_event(entry) for entry in entries]
            heads = [text(head) for head in left]
            if not heads:
                found.sort(key=lambda event: int(event["id"]))
                return found[:most]


def _cursor(after: Any) -> str:
    if after is None:
        return ""
    if isinstance(after, bool) or not str(after).isascii() or not str(after).isdigit() or len(str(after)) > 18:
        raise InvalidArgument("after must be the id of an event")
    return str(after)


def _page(size: Any) -> int:
    if isinstance(size, bool) or not isinstance(size, int):
        raise InvalidArgument("limit must be a whole number")
    return max(1, min(size, limit("history_page")))


# Replay ---------------------------------------------------------------------------------------------------------


def replay(events: Iterable[Event], entities: dict[str, dict[str, Any]] | None = None) -> dict[str, dict[str, Any]]:
    """Apply events, oldest first, to ``entities`` (or to none) and give what jobs and lanes must now be.

    A job has standing, owner, attempts and fence; a lane has state, review_state and merge_state.
    """
    known = {} if entities is None else entities
    for event in events:
        family, _, what = event["event"].partition(".")
        entity = known.setdefault(event["entity_id"], {})
        if family == "job":
            _replay_job(entity, what, event)
        elif family == "lane":
            axis = {"reviewed": "review_state", "merged": "merge_state"}.get(what, "state")
            if what == "created":
                entity |= {"review_state": "", "merge_state": ""}
            entity[axis] = event["to"]
    return {name: facts for name, facts in known.items() if facts} if entities is None else known


def _replay_job(job: dict[str, Any], what: str, event: Event) -> None:
    if what == "created":
        job |= {"standing": "queued", "owner": "", "attempts": 0, "fence": 0}
    if what == "reclaimed":
        return
    job["standing"] = event["to"]
    if what == "claimed":
        job |= {"owner": event["actor"], "attempts": event["attempts"], "fence": event["fence"]}
    if what in ("released", "requeued"):
        job |= {"owner": "", "attempts": event["attempts"]}
