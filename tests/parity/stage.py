"""The same standing at every door before the first call, and the same names for what is drawn at random."""

from __future__ import annotations

import json
import re
import time
from typing import Any

from tests.contract.cast import PROJECT, lane
from tests.parity.doors import Door
from tests.queue import Clock, Queue

CALLERS = ("c", "w", "x", "star")
# What differs by the door and changes nothing for callers: tokens, and under which names answers are remembered.
APART = ("token", "tokens", "replay", "test-clock")

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_LATELY = re.compile(r"(?<![\w.])1[0-9]{12}(?:\.0)?(?![\w.])|20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9:.]{12}Z")
_DRAWN = re.compile(r"~[\w-]{12}\.\d+\.\d+")
_DIGEST = re.compile(r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])")


def set_up(door: Door) -> dict[str, str]:
    """Bring a fresh profile to its standing, an hour ago, and give what its entries are called in the cases."""
    queue = door.queue
    clock = queue.stop_clock(time.time_ns() // 1_000_000 - 3_600_000)
    ids = _entries(queue, clock)
    for client_id in CALLERS:  # at every door, so that all histories have the same length
        door.token(client_id)
    queue.shampoo._wire._lua = None
    queue.command("DEL", queue.key("test-clock"))
    return ids


def _entries(queue: Queue, clock: Clock) -> dict[str, str]:
    registry = queue.shampoo.registry
    c, w = queue.principal("c", "", PROJECT, "q", conductor=True), queue.principal("w", PROJECT)
    queue.principal("x", "q")
    queue.principal("star", "*", conductor=True)
    registry.add_task("t")
    registry.add_task("ended")
    registry.close_task("ended")
    ids = {"quorum": registry.open_quorum(PROJECT, ["w"]), "foreign quorum": registry.open_quorum("q", ["x"])}
    ids["closed quorum"] = registry.open_quorum(PROJECT, ["w"])
    registry.close_quorum(ids["closed quorum"])
    ids["lane"] = lane(queue, c, quorum_id=ids["quorum"], assignee_client_id="w")
    ids["reviewed lane"] = lane(queue, c, quorum_id=ids["quorum"], review="pending")
    ids["done lane"] = lane(queue, c, quorum_id=ids["quorum"], state="done", review="approved")
    ids["foreign lane"] = lane(queue, c, quorum_id=ids["foreign quorum"])
    for name, kind, project in (("lapsed", "l", PROJECT), ("ended", "e", PROJECT), ("waiting", "w", PROJECT)):
        (ids[f"{name} job"],) = queue.create(c, kind=kind, project=project)
    (ids["foreign job"],) = queue.create(c, kind="f", project="q")
    w.job_claim(kind="l", lease_seconds=1)
    w.job_claim(kind="e")
    w.job_complete(job_id=ids["ended job"], outcome="completed", result_ref="r")
    clock.advance(60)
    return ids


class Names:
    """Names for ids in the order in which the history meets them, and one word for whatever is an instant."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._events = queue.shampoo.history(limit=1000)
        self._known: dict[str, str] = {}
        for event in self._events:
            for found in _UUID.findall(json.dumps(event)):
                self._known.setdefault(found, f"entry {len(self._known)}")

    def plain(self, value: Any) -> Any:
        text = json.dumps(value).replace(self._queue.profile, "profile")
        text = _UUID.sub(lambda found: self._known.get(found[0], found[0]), text)
        text = _DRAWN.sub("drawn", _DIGEST.sub("digest", text))
        return json.loads(_LATELY.sub(lambda found: "instant" if "T" in found[0] else "7", text))

    def history(self) -> list[Any]:
        """What happened, but for whose tokens were issued."""
        told = [dict(event) for event in self._events if not event.event.startswith("token")]
        return [self.plain(event) for event in told]

    def facts(self) -> dict[str, Any]:
        """What stands in Redis, in an order of its own."""
        found: dict[str, Any] = {}
        for key, (kind, content) in self._queue.facts().items():
            if key.split(":")[2] not in APART and kind != "stream":
                parts = content.items() if isinstance(content, dict) else content
                whole = kind == "string"
                found[self.plain(key)] = self.plain(content) if whole else sorted(map(repr, self.plain(list(parts))))
        return found
