"""The state machine that tells a real profile and the model the same moves."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from tests.model.arguments import NOBODY, UNACCEPTABLE
from tests.model.pair import Pair
from tests.queue import Engine, Queue

PEOPLE = {  # client_id: (conductor, grants); hal is registered by a move, if at all
    "ann": (True, ("", "p")),
    "bob": (True, ("p", "p:k%3A")),
    "cyd": (True, ("*",)),
    "dan": (False, ("p",)),
    "eve": (False, ("", "p", "p:k%3A", "gone")),
    "fay": (False, ("*",)),
    "gil": (False, ()),
}
NAMED_BY_NOTHING = (NOBODY, NOBODY.upper(), f"{{{NOBODY}}}", f"{NOBODY}\n", "", "x" * 10_000)

people = st.sampled_from(("ann", "bob", "dan", "eve", "fay", "ann", "bob", "dan", "eve", "cyd", "gil", "hal"))
conductors = st.sampled_from(("ann", "bob", "ann", "bob", "ann", "bob", "cyd", "dan"))
projects = st.sampled_from(("p", "p", "", "p:k%3A"))
kinds = st.sampled_from(("k", "k", "l", "%3Ak:é"))
recent = st.integers(0, 7)
requests = st.sampled_from((None, None, None, None, "r1", "r2"))
holders = st.sampled_from(("h", "h", "h", "other"))
fences = st.sampled_from(("none", "none", "current", "stale"))
leases = st.sampled_from((None, 1, 1, 2, 60, 300, 3600))
ticks = st.sampled_from((1, 999, 1000, 1000, 2000, 61_000, 300_000, 600_000, -1, -1500))
outcomes = st.sampled_from(("completed", "failed"))
delays = st.sampled_from((1, 999, 1000, 5000, 61_000))
states = st.sampled_from(("open", "in_progress", "in_progress", "done", "done", "failed", "cancelled", "", "Open"))


class Machine(RuleBasedStateMachine):
    """Moves on a small profile: few names, so that they meet. Some rules try anything, some what ought to succeed."""

    def __init__(self, engine: Engine, met: set[tuple[str, str]]) -> None:
        super().__init__()
        self.met = met
        self.queue = Queue(engine)
        self.pair = Pair(self.queue)
        self.model = self.pair.model
        self.calls: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = []
        self.agreed = True
        for name, (conductor, grants) in PEOPLE.items():
            self.pair.operator("add_principal", name, conductor, grants)
        for project in ("p", "p", ""):
            quorum_id = self.pair.open_quorum(project, "dan", "eve")
            self.pair.call("ann", "lane_create", {"quorum_id": quorum_id, "assignee_client_id": "dan"})
            self.pair.call("ann", "job_create", {"kind": "k", "project": project})

    def tell(self, who: str, tool: str, arguments: dict[str, Any], **beside: Any) -> Any:
        """Call a tool on both. Where they differ, the end of the example has nothing more to compare."""
        if beside.get("request_id"):
            self.calls.append((who, tool, arguments, beside))
        self.agreed = False
        said = self.pair.call(who, tool, arguments, **beside)
        self.agreed = True
        self.met.add((tool, said if isinstance(said, str) else "nothing" if said.get("claimed") is False else "ok"))
        return said

    def library(self, who: str, move: str, facts: dict[str, Any], fence: int | None = None) -> None:
        self.agreed = False
        said = self.pair.library(who, move, facts, fence)
        self.agreed = True
        self.met.add((f"{move} of the library", said if isinstance(said, str) else "ok"))

    def operator(self, move: str, *facts: Any) -> None:
        self.agreed = False
        self.pair.operator(move, *facts)
        self.agreed = True

    def job(self, n: int) -> str:
        """Name a recent job, or nothing."""
        return pick(list(self.model.jobs), n)

    def claimed(self, n: int) -> str:
        """Name a claimed job, whatever its lease; any other when there is none."""
        return pick([job.job_id for job in self.model.jobs.values() if job.standing == "claimed"] or [self.job(n)], n)

    def lane(self, n: int) -> str:
        return pick(list(self.model.lanes), n)

    def quorum(self, n: int) -> str:
        return pick(list(self.model.quorums), n)

    def owner(self, job_id: str) -> str:
        job = self.model.jobs.get(job_id)
        return (job and job.owner) or "eve"

    def fence(self, job_id: str, which: str) -> int | None:
        """Give the fence of a job's last claim, one that never was, or none."""
        job = self.model.jobs.get(job_id)
        last = job.fence if job and job.fence else 7
        return {"none": None, "current": last, "stale": last - 1}[which]

    # The clock

    @rule(by=ticks)
    def time_passes(self, by: int) -> None:
        self.pair.advance(by)

    @precondition(lambda self: any(job.lease_until for job in self.model.jobs.values()))
    @rule(n=recent, before=st.sampled_from((0, 0, 1)))
    def time_reaches_the_end_of_a_lease(self, n: int, before: int) -> None:
        ends = sorted({job.lease_until for job in self.model.jobs.values() if job.lease_until})
        self.pair.advance(ends[n % len(ends)] - before - self.model.now)
        self.pair.expire()

    # Jobs

    @rule(who=conductors, kind=kinds, project=projects, request=requests)
    def a_job_is_created(self, who: str, kind: str, project: str, request: str | None) -> None:
        facts = {"kind": kind, "project": project, "payload": f'{{"n": {len(self.model.jobs)}}}\x00é'}
        self.tell(who, "job_create", facts, request_id=request)

    @rule(who=conductors, kind=kinds, project=st.sampled_from((None, None, "", "p")), n=recent, request=requests)
    def a_job_of_a_lane_is_created(self, who: str, kind: str, project: str | None, n: int, request: str | None) -> None:
        facts = {"kind": kind, "project": project, "lane_id": self.lane(n) or NOBODY}
        self.tell(who, "job_create", facts, request_id=request)

    @rule(who=people, kind=kinds, lease=leases, request=requests, holder=holders)
    def a_job_of_a_kind_is_claimed(
        self, who: str, kind: str, lease: int | None, request: str | None, holder: str
    ) -> None:
        self.tell(who, "job_claim", {"kind": kind, "lease_seconds": lease}, request_id=request, holder=holder)

    @rule(who=people, lease=leases, request=requests)
    def a_job_is_claimed(self, who: str, lease: int | None, request: str | None) -> None:
        self.tell(who, "job_claim", {"lease_seconds": lease}, request_id=request)

    @rule(who=people)
    def whatever_is_there_is_claimed_for_a_second(self, who: str) -> None:
        while (said := self.tell(who, "job_claim", {"lease_seconds": 1})) != "unauthenticated" and said["claimed"]:
            pass

    @rule(n=recent, before=st.sampled_from((0, 0, 1)), who=people)
    def a_lapsed_lease_is_taken_over(self, n: int, before: int, who: str) -> None:
        job = self.model.jobs.get(self.claimed(n))
        if job and job.lease_until:
            self.pair.advance(job.lease_until - before - self.model.now)
        self.tell(who, "job_claim", {"kind": job.kind if job else None, "lease_seconds": 1})

    @rule(who=people, n=recent, outcome=outcomes, fence=fences, request=requests)
    def a_job_is_completed(self, who: str, n: int, outcome: str, fence: str, request: str | None) -> None:
        facts = {"job_id": self.job(n), "outcome": outcome, "result_ref": f"ref:{who}"}
        self.tell(who, "job_complete", facts, fence=self.fence(self.job(n), fence), request_id=request)

    @rule(n=recent, outcome=outcomes, fence=fences)
    def a_claim_is_completed_by_its_owner(self, n: int, outcome: str, fence: str) -> None:
        job_id = self.claimed(n)
        facts = {"job_id": job_id, "outcome": outcome}
        self.tell(self.owner(job_id), "job_complete", facts, fence=self.fence(job_id, fence))

    @rule(who=people, n=recent, fence=fences, request=requests, holder=holders)
    def a_claim_is_released(self, who: str, n: int, fence: str, request: str | None, holder: str) -> None:
        beside = {"fence": self.fence(self.claimed(n), fence), "request_id": request, "holder": holder}
        self.tell(who, "job_release", {"job_id": self.claimed(n)}, **beside)

    @rule(n=recent, fence=fences, request=requests)
    def a_job_is_released_by_its_owner(self, n: int, fence: str, request: str | None) -> None:
        job_id = self.job(n)
        beside = {"fence": self.fence(job_id, fence), "request_id": request}
        self.tell(self.owner(job_id), "job_release", {"job_id": job_id}, **beside)

    # Jobs, as the library has them beside the tools

    @rule(who=conductors, kind=kinds, project=projects, delay=delays)
    def a_delayed_job_is_created(self, who: str, kind: str, project: str, delay: int) -> None:
        self.library(who, "job_create", {"kind": kind, "project": project, "delay": delay})

    @precondition(lambda self: any(job.due_at for job in self.model.jobs.values()))
    @rule(n=recent, before=st.sampled_from((0, 0, 1)), who=people, kind=st.one_of(st.none(), kinds))
    def time_reaches_a_delayed_job(self, n: int, before: int, who: str, kind: str | None) -> None:
        due = sorted({job.due_at for job in self.model.jobs.values() if job.due_at})
        self.pair.advance(due[n % len(due)] - before - self.model.now)
        self.tell(who, "job_claim", {"kind": kind})

    @rule(who=st.one_of(st.none(), people), n=recent, fence=fences, lease=st.sampled_from((1, 2, 60, 3600)))
    def a_claim_is_renewed(self, who: str | None, n: int, fence: str, lease: int) -> None:
        job_id = self.claimed(n)
        facts = {"job_id": job_id, "lease_seconds": lease}
        self.library(
            who or self.owner(job_id), "job_renew", facts, self.fence(job_id, fence) or self.fence(job_id, "current")
        )

    @rule(who=st.one_of(st.none(), people), n=recent, delay=delays)
    def a_claim_is_given_back_for_later(self, who: str | None, n: int, delay: int) -> None:
        job_id = self.claimed(n)
        facts = {"job_id": job_id, "delay": delay, "reason": "not now"}
        self.library(who or self.owner(job_id), "job_release", facts, self.fence(job_id, "current"))

    @rule(n=recent, outcome=outcomes, fence=st.sampled_from(("current", "current", "stale")))
    def a_claim_ends_by_its_fence(self, n: int, outcome: str, fence: str) -> None:
        job_id = self.claimed(n)
        facts = {"job_id": job_id, "outcome": outcome} | ({"reason": "why\x00é"} if outcome == "failed" else {})
        self.library(self.owner(job_id), "job_complete", facts, self.fence(job_id, fence))

    @rule(kind=kinds, most=st.sampled_from((1, 1, 2, None)))
    def a_kind_is_limited(self, kind: str, most: int | None) -> None:
        self.operator("limit_kind", kind, most)

    @rule(n=recent)
    def a_job_is_requeued(self, n: int) -> None:
        ready = [job.job_id for job in self.model.jobs.values() if job.standing == "failed" or job.attempts == 5]
        self.operator("requeue", pick(ready, n))

    @rule(n=recent)
    def a_job_is_cancelled(self, n: int) -> None:
        self.operator("cancel", self.job(n), "no longer wanted")

    @rule()
    def lapsed_work_is_swept(self) -> None:
        self.pair.expire()

    # Lanes

    @rule(
        who=conductors,
        n=recent,
        assignee=st.one_of(st.none(), people),
        task=st.sampled_from((None, None, None, "t1", "t2")),
        depends=st.one_of(st.none(), recent),
        request=requests,
    )
    def a_lane_is_created(
        self, who: str, n: int, assignee: str | None, task: str | None, depends: int | None, request: str | None
    ) -> None:
        depends_on = None if depends is None else self.lane(depends) or NOBODY
        facts = {"quorum_id": self.quorum(n), "assignee_client_id": assignee, "task_id": task, "depends_on": depends_on}
        self.tell(who, "lane_create", facts | {"repo": "", "branch": "b"}, request_id=request)

    @rule(who=conductors, n=recent, state=states, request=requests)
    def a_lane_is_moved(self, who: str, n: int, state: str, request: str | None) -> None:
        self.tell(who, "lane_set_state", {"lane_id": self.lane(n), "state": state}, request_id=request)
        self.tell(who, "lane_list", {})

    @rule(who=people, n=recent, decision=st.sampled_from(("submit", "approve", "request-changes")), request=requests)
    def a_lane_is_reviewed(self, who: str, n: int, decision: str, request: str | None) -> None:
        self.tell(who, "lane_review", {"lane_id": self.lane(n), "decision": decision}, request_id=request)

    @rule(n=recent)
    def a_lane_is_done_and_approved(self, n: int) -> None:
        lane_id = self.lane(n)
        for state in ("in_progress", "done"):
            self.tell("bob", "lane_set_state", {"lane_id": lane_id, "state": state})
        for decision in ("submit", "approve"):
            self.tell("bob", "lane_review", {"lane_id": lane_id, "decision": decision})

    @rule(
        who=conductors,
        n=recent,
        outcome=st.sampled_from(("merged", "merged", "conflicted", "skipped")),
        commit=st.sampled_from((None, "", "abc", "def")),
        request=requests,
    )
    def a_lane_is_merged(self, who: str, n: int, outcome: str, commit: str | None, request: str | None) -> None:
        facts = {"lane_id": self.lane(n), "outcome": outcome, "result_commit": commit}
        self.tell(who, "lane_merge", facts, request_id=request)

    @rule(
        who=people,
        project=st.sampled_from((None, None, None, "", "p", "p" * 200)),
        n=st.one_of(st.none(), recent),
        state=st.one_of(st.none(), states),
        limit=st.sampled_from((None, None, -1, 1, 2, 1000)),
    )
    def lanes_are_listed(
        self, who: str, project: str | None, n: int | None, state: str | None, limit: int | None
    ) -> None:
        quorum_id = None if n is None else self.quorum(n)
        self.tell(who, "lane_list", {"project": project, "quorum_id": quorum_id, "state": state, "limit": limit})

    # Any tool

    @rule(who=people, call=st.sampled_from(UNACCEPTABLE), request=requests)
    def a_call_is_unacceptable(self, who: str, call: tuple[str, dict[str, Any]], request: str | None) -> None:
        assert self.tell(who, *call, request_id=request) == "invalid_argument"

    @precondition(lambda self: self.calls)
    @rule(n=recent)
    def a_call_is_repeated(self, n: int) -> None:
        who, tool, arguments, beside = self.calls[-1 - n % len(self.calls)]
        self.tell(who, tool, arguments, **beside)

    # The registry

    @rule(who=people, project=st.sampled_from(("", "p", "p:k%3A", "*")), given=st.booleans())
    def a_grant_changes(self, who: str, project: str, given: bool) -> None:
        self.operator("grant" if given else "revoke", who, project)

    @rule(
        who=people, move=st.sampled_from(("set_conductor", "set_live", "set_live", "add_principal")), to=st.booleans()
    )
    def a_principal_changes(self, who: str, move: str, to: bool) -> None:
        self.operator(move, who, to, *((("p",),) if move == "add_principal" else ()))

    @precondition(lambda self: not all(principal.live for principal in self.model.principals.values()))
    @rule()
    def everybody_is_live_again(self) -> None:
        for name in self.model.principals:
            self.operator("set_live", name, True)

    @rule(
        n=recent,
        who=people,
        move=st.sampled_from(("open_quorum", "add_participant", "remove_participant", "close_quorum")),
        project=projects,
    )
    def a_quorum_changes(self, n: int, who: str, move: str, project: str) -> None:
        if move == "open_quorum":
            self.pair.open_quorum(project, who, "dan")
        else:
            self.operator(move, self.quorum(n), *(() if move == "close_quorum" else (who,)))

    @rule(task=st.sampled_from(("t1", "t2")), move=st.sampled_from(("add_task", "add_task", "close_task")))
    def a_task_changes(self, task: str, move: str) -> None:
        self.operator(move, task)

    def teardown(self) -> None:
        try:
            if self.agreed:
                self.finish()
        finally:
            self.queue.close()

    def finish(self) -> None:
        """Let everybody look at the lanes and claim what is left, then compare all that is stored."""
        self.pair.compare()
        for who in PEOPLE:
            self.tell(who, "lane_list", {})
        self.pair.advance(3_600_000)
        for who in ("dan", "eve", "ann", "fay"):
            self.whatever_is_there_is_claimed_for_a_second(who)
        self.pair.compare()


def pick(names: list[str], n: int) -> str:
    """Name one of the newest, or, now and then, nothing."""
    if n < 7 and names:
        return names[-1 - n % len(names)]
    return NAMED_BY_NOTHING[len(names) % len(NAMED_BY_NOTHING)]
