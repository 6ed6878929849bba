"""Make moves from the pages: each a move of the contract or of an operator, in the name of who is signed in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from ...errors import InvalidArgument, NotFound, Refusal
from . import words
from .door import Door, Form, back, lead_to

if TYPE_CHECKING:
    from ..sessions import Session

JOB_MOVES = ("release", "fail", "requeue")
LANE_MOVES = ("state", "review", "merge")


def addresses() -> list[BaseRoute]:
    """Lead who loads a form's address, for instance after signing in again, to the page that has the form."""
    return [
        *(Route(f"/ui/jobs/{{job_id}}/{move}", lead_to("/ui/jobs/{job_id}")) for move in JOB_MOVES),
        *(Route(f"/ui/lanes/{{lane_id}}/{move}", lead_to("/ui/lanes/{lane_id}")) for move in LANE_MOVES),
        Route("/ui/tokens/{token_id}/revoke", lead_to("/ui/principals")),
        Route("/ui/sign-out", lead_to("/ui")),
    ]


class Actions:
    """What the forms of the pages do."""

    def __init__(self, door: Door) -> None:
        self._door = door

    async def job(self, request: Request, session: Session, form: Form) -> Response:
        """Release a job, complete it as failed, or requeue it."""
        job_id, move = request.path_params["job_id"], request.path_params["move"]
        visitor = session.visitor
        path = words.job_at(job_id)
        try:
            if move == "release":
                await visitor.act("job_release", {"job_id": job_id}, fence=_fence(form))
                return back(session, path, "released")
            if move == "fail":
                arguments = {"job_id": job_id, "outcome": "failed", "result_ref": form.get("result_ref", "")}
                await visitor.act("job_complete", arguments, fence=_fence(form))
                return back(session, path, "failed")
            if move == "requeue":
                await visitor.requeue(job_id, fence=_fence(form))
                return back(session, path, "requeued")
        except Refusal as refusal:
            return _said_on(session, path, refusal)
        raise NotFound

    async def lane(self, request: Request, session: Session, form: Form) -> Response:
        """Move a lane's execution standing, its review, or record its merge."""
        lane_id, move = request.path_params["lane_id"], request.path_params["move"]
        act, path = session.visitor.act, words.lane_at(lane_id)
        try:
            if move == "state":
                await act("lane_set_state", {"lane_id": lane_id, "state": form.get("state", "")})
                return back(session, path, "moved")
            if move == "review":
                await act("lane_review", {"lane_id": lane_id, "decision": form.get("decision", "")})
                return back(session, path, "reviewed")
            if move == "merge":
                arguments = {"lane_id": lane_id, "outcome": form.get("outcome", "")}
                await act("lane_merge", {**arguments, "result_commit": form.get("result_commit", "")})
                return back(session, path, "merged")
        except Refusal as refusal:
            return _said_on(session, path, refusal)
        raise NotFound

    async def revoke(self, request: Request, session: Session, form: Form) -> Response:
        """Revoke a token."""
        path = "/ui/principals"
        try:
            changed = await session.visitor.revoke_token(request.path_params["token_id"])
        except Refusal as refusal:
            return _said_on(session, path, refusal)
        return back(session, path, "revoked" if changed else "unchanged")


def _fence(form: Form) -> int | None:
    """Give the acquisition that the page showed, so that a late click never touches a later one."""
    fence = form.get("fence", "")
    if not fence:
        return None
    if not fence.isascii() or not fence.isdigit() or len(fence) > 18:
        raise InvalidArgument("fence must be a whole number")
    return int(fence)


def _said_on(session: Session, path: str, refusal: Refusal) -> Response:
    """Let the entry's own page say a refusal; what needs its detail, or hides the entry, has a page of its own."""
    if refusal.http_status in (403, 409):
        return back(session, path, refusal.code)
    raise refusal
