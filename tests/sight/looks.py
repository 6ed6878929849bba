"""Looks of one caller at the profile under test, a queue with something of everything, and what must be seen of it."""

from __future__ import annotations

from typing import Any

from shampoo_queue import Client
from shampoo_queue.contract import limit
from shampoo_queue.rates import KEPT, Kept
from shampoo_queue.registry import Operator
from shampoo_queue.sight import SightOperations
from shampoo_queue.tools import Caller
from tests.queue import Clock, Queue

Shown = dict[str, Any]
PROJECTS = ("a", "b", "")
KINDS = ("k", "l")


class Looks:
    """`SightOperations` of one caller, each run at once."""

    def __init__(self, queue: Queue, caller: Caller | Operator | str, kept: Kept | None = None) -> None:
        self._operations = SightOperations(Caller(caller) if isinstance(caller, str) else caller, kept or KEPT)
        self._run = queue.shampoo._wire.run

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._operations, name)
        return lambda *arguments, **named: self._run(operation(*arguments, **named))

    def jobs(self, *, page: int = 100, **filters: Any) -> list[Shown]:
        """Read every page of `job_list`."""
        found, cursor = [], None
        while cursor != "":
            answer = self.job_list(limit=page, cursor=cursor, **filters)
            found += answer["jobs"]
            assert not cursor or not answer["cursor"] or int(answer["cursor"]) < int(cursor)
            cursor = answer["cursor"]
        return found


def people(queue: Queue) -> dict[str, Client]:
    """Register a conductor and an executor of all projects, a star, and somebody with project ``a`` alone."""
    return {
        "boss": queue.principal("boss", *PROJECTS, conductor=True),
        "all": queue.principal("all", *PROJECTS),
        "star": queue.principal("star", "*"),
        "a": queue.principal("a", "a"),
    }


def spend(client: Client, kind: str, last_lease: int | None) -> str:
    """Claim one job of a kind until it has no attempt left; leave it released, or claimed for so many seconds."""
    job_id = ""
    for n in range(1, limit("attempts") + 1):
        last = n == limit("attempts")
        claim = client.job_claim(kind=kind, lease_seconds=last_lease if last and last_lease else 50)
        assert claim.attempts == n
        job_id = claim.job_id
        if not last or last_lease is None:
            client.release(claim)
    return job_id


def something_of_everything(queue: Queue, clock: Clock) -> None:
    """Fill a queue with jobs of every standing, kind and project, some under a lane."""
    called = people(queue)
    boss, everyone = called["boss"], called["all"]
    lane_id = boss.lane_create(quorum_id=queue.shampoo.registry.open_quorum("a")).lane_id
    for project in PROJECTS:
        one = queue.principal(f"one-{project}", project)
        for kind in KINDS:
            for outcome in ("completed", "failed"):
                queue.create(boss, kind=kind, project=project)
                one.job_complete(job_id=one.job_claim(kind=kind).job_id, outcome=outcome, result_ref="r")
            for last_lease in (None, 50, 3_600):
                queue.create(boss, kind=kind, project=project)
                spend(one, kind, last_lease)
            for lease in (50, 50, 3_600):
                queue.create(boss, kind=kind, project=project)
                assert one.job_claim(kind=kind, lease_seconds=lease).claimed
            queue.create(boss, 1, kind=kind, project=project)
            assert everyone.job_claim(kind=kind, lease_seconds=3_600).claimed
            queue.create(boss, 2, kind=kind, project=project)
    boss.create_many([{"kind": k, "project": p, "delay_seconds": 900} for k in KINDS for p in PROJECTS])
    clock.advance(60)  # the short leases are over now
    queue.create(boss, 3, kind="k", lane_id=lane_id)


def stored(queue: Queue) -> dict[str, dict[str, str]]:
    """Give every job's hash by its id, read from the raw keys."""
    start = queue.key("job", "")
    return {
        key.removeprefix(start): content for key, (_, content, _) in queue.snapshot().items() if key.startswith(start)
    }


def standing(job: dict[str, str], now: int) -> str:
    """Tell how a job stands, from its hash alone."""
    state = job["standing"]
    if state in ("completed", "failed"):
        return state
    if state == "claimed" and int(job["lease_until"]) > now:
        return "claimed"
    if int(job["attempts"]) >= limit("attempts"):
        return "exhausted"
    if state == "claimed":
        return "lapsed"
    return "delayed" if int(job.get("due_at") or 0) > now else "queued"
