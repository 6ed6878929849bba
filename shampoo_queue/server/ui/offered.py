"""Tell which moves somebody's press could make succeed as things stand, so that a page offers no other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...contract import LANE_MOVES

if TYPE_CHECKING:
    from ...registry import Token
    from ..visitor import Role, Visitor

_VERDICTS = {"": ("submit",), "changes_requested": ("submit",), "pending": ("approve", "request-changes")}


def on_job(visitor: Visitor, role: Role, job: dict[str, Any]) -> frozenset[str]:
    """Give the moves on a job, of ``release``, ``fail`` and ``requeue``."""
    if not visitor.may("ops:write"):
        return frozenset()
    own, claimed = job["owner"] == visitor.client_id, job["state"] == "claimed"
    found = set()
    if claimed and (own or role.conductor):
        found.add("release")
    if claimed and (role.conductor or (own and job["standing"] == "claimed")):
        found.add("fail")
    if role.conductor and (job["standing"] == "exhausted" or job["state"] == "failed"):
        found.add("requeue")
    return frozenset(found)


def on_lane(visitor: Visitor, role: Role, lane: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    """Give what a lane can be told: its next ``states``, its review's ``decisions``, its merge's ``outcomes``."""
    decisions = _VERDICTS.get(lane["review_state"], ())
    if not visitor.may("ops:write"):
        return {"states": (), "decisions": (), "outcomes": ()}
    if not role.conductor:
        submits = decisions if decisions == ("submit",) and lane["assignee"] == visitor.client_id else ()
        return {"states": (), "decisions": submits, "outcomes": ()}
    return {"states": LANE_MOVES.get(lane["state"], ()), "decisions": decisions, "outcomes": _outcomes(lane)}


def _outcomes(lane: dict[str, Any]) -> tuple[str, ...]:
    """Give the outcomes of a merge that the gate of ``lane_merge`` lets through."""
    if lane["merge_state"] == "merged":
        return ()
    fits = {
        "merged": lane["state"] == "done" and lane["review_state"] == "approved",
        "conflicted": lane["state"] in ("in_progress", "done"),
        "skipped": lane["state"] != "done",
    }
    return tuple(outcome for outcome, fit in fits.items() if fit)


def may_revoke(visitor: Visitor, role: Role, token: Token) -> bool:
    """Tell whether somebody may revoke a token: its own, or as a conductor who sees every project any."""
    own = token.client_id == visitor.client_id
    return visitor.may("ops:write") and (own or (role.conductor and role.star))
