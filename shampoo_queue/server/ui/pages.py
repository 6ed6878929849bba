"""Show the pages. Each reads in the name of who is signed in, so that it shows what that principal's grants cover."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from ...contract import LANE_STATES, limit
from ...sight import STANDINGS, SightOperations
from ...tools import iso
from . import charts, offered
from .door import Door
from .health import redis_health
from .names import Names
from .words import PAYLOAD_BYTES

if TYPE_CHECKING:
    from ...registry import Token
    from ..sessions import Session

JOBS = 50
EVENTS = 50
HELD = 10
GRANTS = 24
_EVENT_FAMILIES = ("job.", "lane.", "principal.", "quorum.", "task.", "token.", "kind.")


class Pages:
    """What the pages show, and what they read for it."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._names = Names()

    async def overview(self, request: Request, session: Session) -> Response:
        """Show what the queue holds, how fast it moves, who holds what, what waits longest, and how Redis is."""
        run, sight = session.visitor.run, SightOperations(session.visitor.caller)
        status = await run(sight.queue_status())
        claims = await run(sight.claims_list(limit=HELD))
        rates = await run(sight.queue_rates())
        star = (await session.visitor.role()).star
        health = await run(redis_health()) if star else None
        minutes = rates["minutes"]
        return self._door.show(
            request,
            "overview.html",
            session,
            now=status["now"],
            counts=status,
            waiting=sorted((k for k in status["kinds"] if k["oldest_since"]), key=lambda k: str(k["oldest_since"])),
            claims=claims,
            available=rates["available"],
            throughput=charts.throughput(minutes),
            waits=charts.length(minutes, "wait_ms"),
            runs=charts.length(minutes, "run_ms"),
            rows=charts.table(minutes),
            health=health,
        )

    async def jobs(self, request: Request, session: Session) -> Response:
        """List jobs by filters, newest change first, a page at a time."""
        asked = request.query_params
        given = {name: asked.get(name, "") for name in ("standing", "kind", "project", "lane", "owner", "cursor")}
        untagged = asked.get("untagged") == "1"
        looked = SightOperations(session.visitor.caller).job_list(
            standing=given["standing"] or None,
            kind=given["kind"] or None,
            project="" if untagged else given["project"] or None,
            lane_id=given["lane"] or None,
            owner=given["owner"] or None,
            limit=JOBS,
            cursor=given["cursor"] or None,
        )
        found = await session.visitor.run(looked)
        filters = {name: value for name, value in given.items() if value and name != "cursor"}
        filters |= {"untagged": "1"} if untagged else {}
        return self._door.show(
            request,
            "jobs.html",
            session,
            now=found["now"],
            jobs=found["jobs"],
            given=given,
            untagged=untagged,
            standings=STANDINGS,
            filters=filters,
            most=JOBS,
            next=filters | {"cursor": found["cursor"]} if found["cursor"] else None,
        )

    async def job(self, request: Request, session: Session) -> Response:
        """Show one job: its payload, its attempts, its lease, its history, and why it is or is not claimable."""
        job_id = request.path_params["job_id"]
        run, sight = session.visitor.run, SightOperations(session.visitor.caller)
        look = await run(sight.job_look(job_id, payload_bytes=PAYLOAD_BYTES))
        why = await run(sight.job_explain(job_id))
        before = request.query_params.get("before", "")
        events = await run(sight.job_history(job_id, cursor=before or None))
        return self._door.show(
            request,
            "job.html",
            session,
            now=look["now"],
            job=look["job"],
            look=look,
            why=why,
            events=events,
            before=before,
            may=offered.on_job(session.visitor, await session.visitor.role(), look["job"]),
        )

    async def lanes(self, request: Request, session: Session) -> Response:
        """Show the lanes as a board, a column for each execution standing."""
        visitor = session.visitor
        given = {name: request.query_params.get(name, "") for name in ("project", "quorum_id", "state")}
        states = [state for state in LANE_STATES if given["state"] in ("", state)]
        columns = []
        for state in states:
            filters = {name: value for name, value in given.items() if value}
            wanted = {**filters, "state": state, "limit": limit("list_max")}
            lanes = (await visitor.run(visitor.caller.call("lane_list", wanted)))["lanes"]
            await self._names.add(visitor, lanes)
            columns.append({"state": state, "lanes": lanes, "full": len(lanes) == limit("list_max")})
        return self._door.show(
            request,
            "lanes.html",
            session,
            columns=columns,
            given=given,
            states=LANE_STATES,
            most=limit("list_max"),
            now=_here(),
        )

    async def lane(self, request: Request, session: Session) -> Response:
        """Show one lane: its three standings, its facts, its jobs and its history."""
        lane_id, before = request.path_params["lane_id"], request.query_params.get("before", "")
        run, sight = session.visitor.run, SightOperations(session.visitor.caller)
        lane = await run(sight.lane_look(lane_id))
        jobs = await run(sight.job_list(lane_id=lane_id, limit=JOBS))
        events = await run(sight.lane_history(lane_id, cursor=before or None))
        return self._door.show(
            request,
            "lane.html",
            session,
            now=lane["now"],
            lane=lane["lane"],
            jobs=jobs,
            events=events,
            before=before,
            may=offered.on_lane(session.visitor, await session.visitor.role(), lane["lane"]),
        )

    async def history(self, request: Request, session: Session) -> Response:
        """Show the feed, newest first; without a cursor it stays fresh."""
        asked = request.query_params
        given = {name: asked.get(name, "") for name in ("event", "project", "actor", "cursor")}
        looked = SightOperations(session.visitor.caller).feed_read(
            limit=EVENTS,
            event=given["event"] or None,
            project=given["project"] or None,
            actor=given["actor"] or None,
            cursor=given["cursor"] or None,
        )
        feed = await session.visitor.run(looked)
        filters = {name: value for name, value in given.items() if value and name != "cursor"}
        return self._door.show(
            request,
            "history.html",
            session,
            now=feed["now"],
            events=feed["events"],
            given=given,
            filters=filters,
            families=_EVENT_FAMILIES,
            most=EVENTS,
            next=filters | {"cursor": feed["cursor"]} if feed["more"] else None,
        )

    async def principals(self, request: Request, session: Session) -> Response:
        """Show principals with their grants, and tokens by id, a page at a time: all to star scope, else one's own."""
        visitor, asked = session.visitor, request.query_params
        given = {name: asked.get(name, "") for name in ("principals", "tokens")}
        principals, more_principals = await visitor.principals(given["principals"] or None)
        tokens, more_tokens = await visitor.tokens(given["tokens"] or None)
        role, now = await visitor.role(), _here()
        return self._door.show(
            request,
            "principals.html",
            session,
            now=now,
            principals=[(one, one.grants[:GRANTS], len(one.grants) - GRANTS) for one in principals],
            tokens=[(one, _standing(one, now), offered.may_revoke(visitor, role, one)) for one in tokens],
            given=given,
            star=role.star,
            next_principals=given | {"principals": more_principals} if more_principals else None,
            next_tokens=given | {"tokens": more_tokens} if more_tokens else None,
        )


def _standing(token: Token, now: str) -> str:
    if not token.live:
        return "revoked"
    return "expired" if token.expires_at and token.expires_at <= now else "live"


def _here() -> str:
    """Give this computer's time, where no answer of the server carries one."""
    return iso(round(datetime.now(UTC).timestamp() * 1_000))
