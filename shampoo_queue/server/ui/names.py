"""Know lanes by the repository and the branch they were created for, which `lane_list` leaves out."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ... import keys
from ...moves import Command, Operation
from ...tools import text

if TYPE_CHECKING:
    from ..visitor import Visitor

_MOST = 10_000


class Names:
    """The repository and branch of lanes that were shown before: they never change, so they are read once."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], tuple[str, str]] = {}

    async def add(self, visitor: Visitor, lanes: list[dict[str, Any]]) -> None:
        """Add ``repo`` and ``branch`` to lanes that the visitor was just shown."""
        places = [(visitor.profile, lane["lane_id"]) for lane in lanes]
        missing = [place for place in places if place not in self._known]
        found = await asyncio.gather(*(visitor.run(_read(*place)) for place in missing))
        fresh = dict(zip(missing, found, strict=True))
        for lane, place in zip(lanes, places, strict=True):
            lane["repo"], lane["branch"] = fresh.get(place) or self._known[place]
        if len(self._known) + len(fresh) > _MOST:
            self._known.clear()
        self._known |= fresh


def _read(profile: str, lane_id: str) -> Operation[tuple[str, str]]:
    repo, branch = yield Command(("HMGET", keys.spell(profile, "lane", lane_id), "repo", "branch"))
    return text(repo or b""), text(branch or b"")
