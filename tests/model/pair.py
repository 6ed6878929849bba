"""A real profile and the model, told the same moves: every answer and every refusal must be the same on both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from itertools import zip_longest
from typing import Any

from shampoo_queue import Client
from shampoo_queue.contract import JobClaimResult, Meta, Result
from shampoo_queue.errors import Refusal
from tests.model.model import Model
from tests.model.registry import Refused, iso
from tests.queue import Queue

START = 1_800_000_000_000

OPERATORS_MOVES: dict[str, Callable[..., Any]] = {
    "add_principal": lambda s, name, conductor, grants: s.registry.add_principal(
        name, conductor=conductor, grants=grants
    ),
    "grant": lambda s, name, project: s.registry.grant(name, project),
    "revoke": lambda s, name, project: s.registry.revoke(name, project),
    "set_conductor": lambda s, name, conductor: s.registry.set_conductor(name, conductor),
    "set_live": lambda s, name, live: (s.registry.enable_principal if live else s.registry.disable_principal)(name),
    "close_quorum": lambda s, quorum_id: s.registry.close_quorum(quorum_id),
    "add_participant": lambda s, quorum_id, name: s.registry.add_participant(quorum_id, name),
    "remove_participant": lambda s, quorum_id, name: s.registry.remove_participant(quorum_id, name),
    "add_task": lambda s, task_id: s.registry.add_task(task_id) and None,
    "close_task": lambda s, task_id: s.registry.close_task(task_id),
    "requeue": lambda s, job_id: s.ops.requeue(job_id),
    "cancel": lambda s, job_id, reason: s.ops.cancel(job_id, reason),
    "limit_kind": lambda s, kind, most: s.ops.limit_kind(kind, most),
}


def _create(client: Client, claim: JobClaimResult, facts: Mapping[str, Any]) -> Result:
    return client.job_create(kind=facts["kind"], project=facts["project"], delay_seconds=facts["delay"] / 1000)


def _renew(client: Client, claim: JobClaimResult, facts: Mapping[str, Any]) -> Result:
    return client.renew(claim, lease_seconds=facts["lease_seconds"])


def _release(client: Client, claim: JobClaimResult, facts: Mapping[str, Any]) -> Result:
    return client.release(claim, delay_seconds=facts.get("delay", 0) / 1000, reason=facts.get("reason", ""))


def _complete(client: Client, claim: JobClaimResult, facts: Mapping[str, Any]) -> Result:
    if facts["outcome"] == "completed":
        return client.complete(claim)
    return client.fail(claim, reason=facts.get("reason", ""))


LIBRARYS_MOVES = {"job_create": _create, "job_renew": _renew, "job_release": _release, "job_complete": _complete}


class Pair:
    """The queue and the model of it."""

    def __init__(self, queue: Queue, now: int = START) -> None:
        self.queue, self.clock, self.model = queue, queue.stop_clock(now), Model(now)
        self.trace: list[str] = []

    def advance(self, ms: int) -> None:
        """Move the clock of both."""
        self.trace.append(f"{ms:+} ms")
        self.clock.set(self.clock.now + ms)
        self.model.now = self.clock.now

    def call(
        self,
        who: str,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        request_id: str | None = None,
        fence: int | None = None,
        holder: str = "h",
    ) -> Any:
        """Call a tool on both; give the result object, or the code of the refusal."""
        beside: dict[str, Any] = {"request_id": request_id, "fence": fence, "holder": holder}

        def real() -> Any:
            answer = self.queue.shampoo.client(who).call(tool, arguments, **beside)
            return dict(answer), answer.meta.fence, answer.meta.replayed

        def expected(said: Any) -> Any:
            result = said[0] if isinstance(said, tuple) else {}
            new_id = result.get("lane_id" if tool == "lane_create" else "job_id", "")
            return self.model.call(who, tool, arguments, new_id=new_id, **beside)

        shown = {name: value for name, value in beside.items() if value not in (None, "h")}
        said = self._alike(f"{who} {tool} {dict(arguments)} {shown or ''}", real, expected)
        return said[0] if isinstance(said, tuple) else said

    def library(self, who: str, move: str, facts: Mapping[str, Any], fence: int | None = None) -> Any:
        """Make a move of the library on both, with a claim in hand that has this fence."""
        claim = JobClaimResult(claimed=True, job_id=facts.get("job_id", ""))
        claim._meta = Meta(fence=fence)

        def real() -> Any:
            client = self.queue.shampoo.client(who, holder="h")
            answer = LIBRARYS_MOVES[move](client, claim, facts).model_dump()
            return {name: value for name, value in answer.items() if (name, value) != ("idempotent", False)}

        def expected(said: Any) -> Any:
            new_id = said.get("job_id", "") if isinstance(said, dict) else ""
            return self.model.library(who, move, dict(facts), fence=fence, new_id=new_id)

        return self._alike(f"{who} {move} of the library {dict(facts)} {fence or ''}", real, expected)

    def operator(self, move: str, *facts: Any) -> Any:
        """Make an operator's move on both; give whether it changed anything, or the code of the refusal."""

        def real() -> Any:
            return OPERATORS_MOVES[move](self.queue.shampoo, *facts)

        return self._alike(f"operator {move} {facts}", real, lambda _: getattr(self.model, move)(*facts))

    def open_quorum(self, project: str, *participants: str) -> Any:
        """Open a quorum on both; give its id, or the code of the refusal."""

        def expected(said: str) -> str:
            self.model.open_quorum(said, project, participants)
            return said

        registry = self.queue.shampoo.registry
        return self._alike(
            f"operator open_quorum {project!r} {participants}",
            lambda: registry.open_quorum(project, participants),
            expected,
        )

    def expire(self) -> None:
        """Sweep both: the counts are alike, and there is never anything to put back."""

        def real() -> Any:
            found = self.queue.shampoo.ops.expire()
            assert (found.put_back, found.damaged) == (0, ())
            return found.lapsed, found.exhausted

        self._alike("operator expire", real, lambda _: self.model.expire())

    def _alike(self, what: str, real: Callable[[], Any], expected: Callable[[Any], Any]) -> Any:
        try:
            said = real()
        except Refusal as refusal:
            said = refusal.code
        try:
            wanted = expected(said)
        except Refused as refused:
            wanted = str(refused)
        self.trace.append(f"{what} → {said}")
        if said != wanted:
            raise AssertionError("\n".join((*self.trace, f"but the contract says {wanted}")))
        return said

    def compare(self) -> None:
        """Hold everything that is stored against the model, then audit the raw keys."""
        held: tuple[tuple[str, dict[Any, Any], dict[Any, Any]], ...] = (
            ("jobs", self._stored_jobs(), self._jobs()),
            ("lanes", self._stored_lanes(), self.model.lanes),
            ("registry", self._stored_registry(), self._registry()),
            ("history", self._stored_events(), dict(enumerate(self.model.events))),
            ("audit", dict(enumerate(self.queue.problems())), {}),
        )
        for name, stored, wanted in held:
            differ = {key: (stored.get(key), wanted.get(key)) for key in stored | wanted}
            differ = {key: (found, right) for key, (found, right) in differ.items() if found != right}
            assert not differ, "\n".join((*self.trace, f"{name} differ, stored and by the contract: {differ}"))

    def _stored_jobs(self) -> dict[str, Any]:
        ops, found = self.queue.shampoo.ops, {}
        for job_id in self.model.jobs:
            job = ops.job(job_id) or {}
            names = ("kind", "project", "standing", "owner", "holder", "attempts", "fence", "lease_until", "result_ref")
            facts = [job.get(name) or 0 if name in ("attempts", "fence") else job.get(name, "") for name in names]
            facts += [job.get("reason", ""), job.get("due_at", "")]
            found[job_id] = (*facts, ops.payload(job_id))
        return found

    def _jobs(self) -> dict[str, Any]:
        found = {}
        for job in self.model.jobs.values():
            lease_until = iso(job.lease_until) if job.standing == "claimed" else ""
            facts = (job.kind, job.project, job.standing, job.owner, job.holder, job.attempts, job.fence)
            due_at = iso(job.due_at) if job.due_at else ""
            found[job.job_id] = (*facts, lease_until, job.result_ref, job.reason, due_at, job.payload)
        return found

    def _stored_lanes(self) -> dict[str, Any]:
        found = {}
        for lane_id, wanted in self.model.lanes.items():
            lane = self.queue.command("HGETALL", self.queue.key("lane", lane_id))
            texts = [part.decode() for part in lane]
            facts = dict(zip(texts[::2], texts[1::2], strict=True)) | {"lane_id": lane_id}
            found[lane_id] = {name: type(value)(facts.get(name, "")) for name, value in wanted.items()}
        return found

    def _stored_registry(self) -> dict[str, Any]:
        registry = self.queue.shampoo.registry
        return {
            "principals": [(p.client_id, p.live, p.conductor, p.grants) for p in registry.principals()],
            "quorums": [(q.quorum_id, q.project, q.open, q.participants) for q in registry.quorums()],
            "tasks": [(t.task_id, t.live) for t in registry.tasks()],
        }

    def _registry(self) -> dict[str, Any]:
        model = self.model
        return {
            "principals": [
                (name, p.live, p.conductor, tuple(sorted(p.grants))) for name, p in model.principals.items()
            ],
            "quorums": [(name, q.project, q.open, tuple(sorted(q.participants))) for name, q in model.quorums.items()],
            "tasks": list(model.tasks.items()),
        }

    def _stored_events(self) -> dict[int, dict[str, Any]]:
        """The feed, as far as the model speaks of each event, with its instant as a number."""
        stored: list[Any] = []
        while page := self.queue.shampoo.history(after=stored[-1].id if stored else None, limit=1000):
            stored += page
        return {
            n: {name: self._fact(event, name) for name in (facts or event)}
            for n, (event, facts) in enumerate(zip_longest(stored, self.model.events[: len(stored)]))
        }

    def _fact(self, event: Mapping[str, Any], name: str) -> Any:
        if name == "at":
            return ms(event["at"])
        return event.get(name) or (0 if name in ("attempts", "fence") else "")


def ms(stamp: str) -> int:
    """Read an instant as the doors write it."""
    return round(datetime.fromisoformat(stamp).timestamp() * 1000)
