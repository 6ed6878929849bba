"""The library's typed surface, blocking and asyncio, over the operations that both share.

Generated from the contract table and the operations' signatures: change those, then run ``make generate``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from . import contract
from .claims import ClaimOperations, Ending, delayed
from .contract import JobClaimResult, JobCompleteResult, JobCreateResult, JobReleaseResult, JobRenewResult, JobStanding
from .errors import ToolError
from .moves import Operation
from .ops import Expired, OpsOperations
from .registry import IssuedToken, Principal, Quorum, RegistryOperations, Task, Token
from .tools import Answer, Caller

T = TypeVar("T")
R = TypeVar("R", bound=contract.Result)


class Run(Protocol):
    """Run an operation on blocking connections."""

    def __call__(self, operation: Operation[T], /) -> T: ...


class AsyncRun(Protocol):
    """Run an operation on asyncio connections."""

    async def __call__(self, operation: Operation[T], /) -> T: ...


class Client:
    """The nine tools in the name of one principal.

    Safe to share between threads and tasks. ``client_id`` names a principal, ``holder`` this process of it.
    """

    def __init__(self, caller: Caller, run: Run) -> None:
        self._caller, self._run, self._operations = caller, run, ClaimOperations(caller)

    @property
    def client_id(self) -> str:
        return str(self._caller.client_id)

    @property
    def holder(self) -> str:
        return self._caller.holder

    def call(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        request_id: str | None = None,
        fence: int | None = None,
        holder: str | None = None,
    ) -> Answer:
        """Call a tool by name: a plain dict in, the contract's result object out.

        ``None`` beside the arguments means not given. Raises `ToolError`, always with ``request_id``: for
        `Unavailable` with ``outcome_unknown``, repeat the call under that id to learn what became of it.
        """
        operation = self._caller.call(tool, arguments, request_id=request_id, fence=fence, holder=holder)
        return self._run(operation)

    def job_claim(
        self,
        *,
        kind: str | None = None,
        lease_seconds: int | None = None,
        request_id: str | None = None,
    ) -> contract.JobClaimResult:
        """Take one queued or lapsed job under a lease that only one caller can win.

        queued, or claimed with a lapsed lease, to claimed: the caller owns it, attempts rise by one, the fence
        rises. A takeover also records job.reclaimed, naming the former owner.

        kind: claim only this kind.
        lease_seconds: length of the lease; 300 when absent.

        Raises `Unauthenticated`, `InvalidArgument`, `Unavailable`, `Internal`, `RequestIdReused`.
        """
        arguments = {"kind": kind, "lease_seconds": lease_seconds}
        operation = self._caller.typed(contract.JobClaimResult, "job_claim", arguments, request_id=request_id)
        return self._run(operation)

    def job_complete(
        self,
        *,
        job_id: str,
        outcome: str,
        result_ref: str | None = None,
        request_id: str | None = None,
        fence: int | None = None,
    ) -> contract.JobCompleteResult:
        """End a claimed job as completed or failed, and keep a pointer at what came of it.

        claimed to completed or failed, for good. The same outcome again succeeds with idempotent:true and changes
        nothing. A lane never moves because a job ended.

        job_id: an id; any text that was not made here names nothing.
        result_ref: opaque pointer at the artifact or verdict, kept as given.

        Raises `Unauthenticated`, `InvalidArgument`, `Unavailable`, `Internal`, `RequestIdReused`, `JobNotFound`,
        `JobAlreadyTerminal`, `JobNotClaimed`, `LeaseExpired`.
        """
        arguments = {"job_id": job_id, "outcome": outcome, "result_ref": result_ref}
        operation = self._caller.typed(
            contract.JobCompleteResult, "job_complete", arguments, request_id=request_id, fence=fence
        )
        return self._run(operation)

    def job_create(
        self,
        *,
        kind: str,
        lane_id: str | None = None,
        payload: str | None = None,
        project: str | None = None,
        request_id: str | None = None,
        delay_seconds: float = 0.0,
    ) -> contract.JobCreateResult:
        """Create one durable job that an executor or the pump can claim.

        The job begins as queued, with no owner.

        kind: what sort of work this is; claims may ask for one kind.
        lane_id: the lane this job belongs to; its project is inherited.
        payload: opaque text for the executor, kept byte for byte.
        project: the project; absent or empty means untagged.
        delay_seconds: not claimable before that time is over; the library's own.

        Raises `Unauthenticated`, `InvalidArgument`, `Unavailable`, `Internal`, `Denied`, `RequestIdReused`,
        `LaneNotFound`, `ProjectMismatch`.
        """
        arguments = {"kind": kind, "lane_id": lane_id, "payload": payload, "project": project}
        operation = self._caller.typed(
            contract.JobCreateResult, "job_create", arguments, request_id=request_id, also=delayed(delay_seconds)
        )
        return self._run(operation)

    def job_release(
        self,
        *,
        job_id: str,
        request_id: str | None = None,
        fence: int | None = None,
    ) -> contract.JobReleaseResult:
        """Give a claimed job back, so that another executor can claim it.

        claimed to queued: owner and lease are cleared, attempts are kept.

        job_id: an id; any text that was not made here names nothing.

        Raises `Unauthenticated`, `InvalidArgument`, `Unavailable`, `Internal`, `RequestIdReused`, `JobNotFound`,
        `JobNotClaimed`, `LeaseExpired`.
        """
        arguments = {"job_id": job_id}
        operation = self._caller.typed(
            contract.JobReleaseResult, "job_release", arguments, request_id=request_id, fence=fence
        )
        return self._run(operation)

    def lane_create(
        self,
        *,
        quorum_id: str,
        assignee_client_id: str | None = None,
        base_ref: str | None = None,
        branch: str | None = None,
        depends_on: str | None = None,
        repo: str | None = None,
        task_id: str | None = None,
        worktree: str | None = None,
        request_id: str | None = None,
    ) -> contract.LaneCreateResult:
        """Create one lane, a reviewable stream of work, under an open quorum.

        The lane begins as open, with no review and no merge; it inherits the quorum's project for good. Links are
        checked now and never again.

        quorum_id: an id; any text that was not made here names nothing.
        assignee_client_id: a live principal who may submit the lane for review.
        depends_on: a lane of the same quorum.
        task_id: a live task.

        Raises `Unauthenticated`, `InvalidArgument`, `Unavailable`, `Internal`, `Denied`, `RequestIdReused`,
        `UnknownLane`, `QuorumNotOpen`, `UnknownClient`, `TaskNotFound`, `DependencyNotInQuorum`.
        """
        arguments = {
            "quorum_id": quorum_id,
            "assignee_client_id": assignee_client_id,
            "base_ref": base_ref,
            "branch": branch,
            "depends_on": depends_on,
            "repo": repo,
            "task_id": task_id,
            "worktree": worktree,
        }
        operation = self._caller.typed(contract.LaneCreateResult, "lane_create", arguments, request_id=request_id)
        return self._run(operation)

    def lane_list(
        self,
        *,
        limit: int | None = None,
        project: str | None = None,
        quorum_id: str | None = None,
        state: str | None = None,
    ) -> contract.LaneListResult:
        """List the lanes the caller may see, newest first.

        Reads only; nothing is recorded.

        limit: page size, clamped to 1..100; 50 when absent.
        project: only this project; empty means untagged lanes.
        quorum_id: only this quorum.
        state: only this execution standing.

        Raises `Unauthenticated`, `InvalidArgument`, `Unavailable`, `Internal`.
        """
        arguments = {"limit": limit, "project": project, "quorum_id": quorum_id, "state": state}
        operation = self._caller.typed(contract.LaneListResult, "lane_list", arguments)
        return self._run(operation)

    def lane_merge(
        self,
        *,
        lane_id: str,
        outcome: str,
        result_commit: str | None = None,
        request_id: str | None = None,
    ) -> contract.LaneMergeResult:
        """Record how merging a lane ended; nothing is executed.

        Records the outcome, and the commit when one is given. Execution and review standing stay.

        lane_id: an id; any text that was not made here names nothing.
        result_commit: commit pointer; merged needs one.

        Raises `Unauthenticated`, `InvalidArgument`, `Unavailable`, `Internal`, `Denied`, `RequestIdReused`,
        `UnknownLane`, `LaneNotMergeable`.
        """
        arguments = {"lane_id": lane_id, "outcome": outcome, "result_commit": result_commit}
        operation = self._caller.typed(contract.LaneMergeResult, "lane_merge", arguments, request_id=request_id)
        return self._run(operation)

    def lane_review(
        self,
        *,
        lane_id: str,
        decision: str,
        request_id: str | None = None,
    ) -> contract.LaneReviewResult:
        """Submit a lane for review, approve it, or ask for changes.

        Empty or changes_requested to pending on submit; pending to approved or changes_requested on a verdict.
        Execution standing stays.

        lane_id: an id; any text that was not made here names nothing.

        Raises `Unauthenticated`, `InvalidArgument`, `Unavailable`, `Internal`, `Denied`, `RequestIdReused`,
        `UnknownLane`, `ReviewClosed`, `NothingUnderReview`.
        """
        arguments = {"lane_id": lane_id, "decision": decision}
        operation = self._caller.typed(contract.LaneReviewResult, "lane_review", arguments, request_id=request_id)
        return self._run(operation)

    def lane_set_state(
        self,
        *,
        lane_id: str,
        state: str,
        request_id: str | None = None,
    ) -> contract.LaneSetStateResult:
        """Move one lane along its execution axis.

        open to in_progress; in_progress to done or failed; open or in_progress to cancelled. done, failed and
        cancelled never change.

        lane_id: an id; any text that was not made here names nothing.
        state: open, in_progress, done, failed or cancelled.

        Raises `Unauthenticated`, `InvalidArgument`, `Unavailable`, `Internal`, `Denied`, `RequestIdReused`,
        `UnknownLane`, `IllegalLaneTransition`.
        """
        arguments = {"lane_id": lane_id, "state": state}
        operation = self._caller.typed(contract.LaneSetStateResult, "lane_set_state", arguments, request_id=request_id)
        return self._run(operation)

    def renew(self, claim: JobClaimResult, *, lease_seconds: int | None = None) -> JobRenewResult:
        """Hold a claimed job for ``lease_seconds`` (1 to 3,600) from now on; unless given, as long as at first.

        Only the current claim of its owner, while its lease is live, can be renewed. No event tells of it. Raises
        `JobNotFound`, `JobAlreadyTerminal`, `JobNotClaimed`, `LeaseExpired`, `Unauthenticated`, `InvalidArgument` or
        `Unavailable`.
        """
        return self._run(self._operations.renew(claim, lease_seconds=lease_seconds))

    def complete(self, claim: JobClaimResult, *, result_ref: str | None = None) -> JobCompleteResult:
        """End the claimed job as completed, under the fence of this claim. Raises as ``job_complete``."""
        return self._run(self._operations.complete(claim, result_ref=result_ref))

    def fail(self, claim: JobClaimResult, *, reason: str = "", result_ref: str | None = None) -> JobCompleteResult:
        """End the claimed job as failed and keep the reason, under the fence of this claim. Raises as ``job_complete``.

        A reason is cut to 512 characters; what cannot be UTF-8 in it is replaced.
        """
        return self._run(self._operations.fail(claim, reason=reason, result_ref=result_ref))

    def release(self, claim: JobClaimResult, *, delay_seconds: float = 0.0, reason: str = "") -> JobReleaseResult:
        """Give the claimed job back, not claimable before the delay is over, under the fence of this claim.

        ``delay_seconds`` is from 0 to 31,536,000 (a year), in steps of a millisecond. Raises as ``job_release``.
        """
        return self._run(self._operations.release(claim, delay_seconds=delay_seconds, reason=reason))

    def create_many(self, jobs: Iterable[Mapping[str, Any]]) -> list[JobCreateResult | ToolError]:
        """Create jobs, each given by the arguments of ``job_create`` and, if wanted, ``delay_seconds``.

        Each is a move of its own: gives in order the job's result, or the error that it alone met.
        """
        return self._run(self._operations.create_many(jobs))

    def claim_many(
        self, count: int, *, kind: str | None = None, lease_seconds: int | None = None
    ) -> list[JobClaimResult]:
        """Claim up to ``count`` jobs, each under a lease and a fence of its own.

        Raises as ``job_claim`` when no claim succeeded. The leases begin at about the same time: claim no more than
        can be worked on at once.
        """
        return self._run(self._operations.claim_many(count, kind=kind, lease_seconds=lease_seconds))

    def renew_many(
        self, claims: Sequence[JobClaimResult], *, lease_seconds: int | None = None
    ) -> list[JobRenewResult | ToolError]:
        """Renew claims as `renew`; give in order the result of each, or the error that it alone met."""
        return self._run(self._operations.renew_many(claims, lease_seconds=lease_seconds))

    def end_many(self, endings: Iterable[Ending]) -> list[JobCompleteResult | JobReleaseResult | ToolError]:
        """Let go of claims; give in order the result of each, or the error that it alone met."""
        return self._run(self._operations.end_many(endings))

    def complete_many(self, done: Iterable[tuple[JobClaimResult, str | None]]) -> list[JobCompleteResult | ToolError]:
        """Complete claims, each with its ``result_ref``; give in order the result of each, or the error that it met."""
        return self._run(self._operations.complete_many(done))

    def claim_wait(
        self, kind: str | Sequence[str] | None = None, *, lease_seconds: int | None = None, timeout: float | None = None
    ) -> JobClaimResult:
        """Claim a job, waiting for one for ``timeout`` seconds, or for ever; false when the time is over.

        ``kind`` is one kind, several, or None for any. The wait itself takes no job: ending it early loses nothing,
        but for a claim made in that very moment, whose job comes back when its lease lapses. Raises as ``job_claim``.
        """
        return self._run(self._operations.claim_wait(kind, lease_seconds=lease_seconds, timeout=timeout))

    def wait_for_work(self, waiter: str, kinds: Sequence[str], timeout: float) -> bool:
        """Wait until work of these kinds (none: any) may be claimable, or ``timeout`` seconds; tell whether it may be.

        ``waiter`` is a name from `new_waiter`, one for each caller that waits. Raises as ``job_claim``.
        """
        return self._run(self._operations.wait_for_work(waiter, kinds, timeout))

    def leave(self, waiter: str) -> None:
        """Take back what `wait_for_work` registered, and end one that waits in another thread or loop."""
        self._run(self._operations.leave(waiter))

    def job(self, job_id: str) -> JobStanding:
        """Tell how a job stands. Raises `JobNotFound` also when the caller does not cover its project."""
        return self._run(self._operations.job(job_id))

    def wait(self, job_id: str, *, timeout: float | None = None) -> JobStanding:
        """Wait until a job has ended, looking at least once a second, and tell how.

        Raises `TimeoutError` when ``timeout`` seconds are over, and otherwise as `job`.
        """
        return self._run(self._operations.wait(job_id, timeout=timeout))


class Registry:
    """What the tools check against: principals, tokens, quorums, tasks."""

    def __init__(self, operations: RegistryOperations, run: Run) -> None:
        self._operations, self._run = operations, run

    def add_principal(self, client_id: str, *, conductor: bool = False, grants: Iterable[str] = ()) -> bool:
        """Register a principal; give whether it is new.

        Adding one again with the very same facts changes nothing; with others it raises `PrincipalExists`.
        """
        return self._run(self._operations.add_principal(client_id, conductor=conductor, grants=grants))

    def grant(self, client_id: str, project: str) -> bool:
        """Grant a project, ``""`` for untagged work, ``"*"`` for star scope; give whether it is new."""
        return self._run(self._operations.grant(client_id, project))

    def revoke(self, client_id: str, project: str) -> bool:
        """Take a grant; give whether it was held."""
        return self._run(self._operations.revoke(client_id, project))

    def set_conductor(self, client_id: str, conductor: bool = True) -> bool:
        """Give or take the conductor role; give whether that changed anything."""
        return self._run(self._operations.set_conductor(client_id, conductor))

    def disable_principal(self, client_id: str) -> bool:
        """Let every call of a principal be refused as unauthenticated; give whether it was live."""
        return self._run(self._operations.disable_principal(client_id))

    def enable_principal(self, client_id: str) -> bool:
        """Let a disabled principal call again; give whether it was disabled."""
        return self._run(self._operations.enable_principal(client_id))

    def principals(self) -> list[Principal]:
        """List every principal, in the order in which they were added."""
        return self._run(self._operations.principals())

    def principals_page(self, after: str | None = None) -> tuple[list[Principal], str]:
        """List at most 100 principals, from a cursor on; give the cursor of the next page too, empty at the end."""
        return self._run(self._operations.principals_page(after))

    def open_quorum(self, project: str, participants: Iterable[str] = ()) -> str:
        """Open a quorum over a project (``""`` untagged, never ``"*"``) and give its id.

        Every participant must be a principal, else `UnknownPrincipal`.
        """
        return self._run(self._operations.open_quorum(project, participants))

    def close_quorum(self, quorum_id: str) -> bool:
        """Close a quorum to new lanes; give whether it was open."""
        return self._run(self._operations.close_quorum(quorum_id))

    def add_participant(self, quorum_id: str, client_id: str) -> bool:
        """Let a principal take part in a quorum; give whether that is new."""
        return self._run(self._operations.add_participant(quorum_id, client_id))

    def remove_participant(self, quorum_id: str, client_id: str) -> bool:
        """Take a principal out of a quorum; give whether it took part."""
        return self._run(self._operations.remove_participant(quorum_id, client_id))

    def quorums(self) -> list[Quorum]:
        """List every quorum, in the order in which they were opened."""
        return self._run(self._operations.quorums())

    def add_task(self, task_id: str | None = None) -> str:
        """Register a live task and give its id, a new UUID when none is given; a closed one raises `UnknownTask`."""
        return self._run(self._operations.add_task(task_id))

    def close_task(self, task_id: str) -> bool:
        """Close a task to new lanes; give whether it was live."""
        return self._run(self._operations.close_task(task_id))

    def tasks(self) -> list[Task]:
        """List every task, in the order in which they were added."""
        return self._run(self._operations.tasks())

    def issue_token(self, client_id: str, *, scope: str = "tools", expires_seconds: int | None = None) -> IssuedToken:
        """Issue an access token to a principal; its text is given here and kept nowhere.

        ``scope`` is what it is good for: ``tools``, ``tools:read``, ``ops:read``, ``ops:write`` or ``metrics``. Roles
        and grants stay the principal's. It expires after ``expires_seconds``, at most ten years; never when None.
        Raises `UnknownPrincipal`.
        """
        return self._run(self._operations.issue_token(client_id, scope=scope, expires_seconds=expires_seconds))

    def rotate_token(
        self, token_id: str, *, overlap_seconds: int = 86400, expires_seconds: int | None = None
    ) -> IssuedToken:
        """Issue a token in place of a live one, which is good for ``overlap_seconds`` more, or less if it ends sooner.

        Principal and scope are those of the old one. Raises `UnknownToken` or `TokenNotLive`.
        """
        return self._run(
            self._operations.rotate_token(token_id, overlap_seconds=overlap_seconds, expires_seconds=expires_seconds)
        )

    def revoke_token(self, token_id: str) -> bool:
        """Revoke a token from the very next call on; give whether it was not revoked before. Raises `UnknownToken`."""
        return self._run(self._operations.revoke_token(token_id))

    def tokens(self) -> list[Token]:
        """List every token that was issued, in that order, by its id. A token that expired is listed as live."""
        return self._run(self._operations.tokens())

    def tokens_page(self, after: str | None = None) -> tuple[list[Token], str]:
        """List at most 100 tokens, from a cursor on; give the cursor of the next page too, empty at the end."""
        return self._run(self._operations.tokens_page(after))


class Ops:
    """The operators' moves and looks beside the nine tools."""

    def __init__(self, operations: OpsOperations, run: Run) -> None:
        self._operations, self._run = operations, run

    def requeue(self, job_id: str, *, fence: int | None = None) -> None:
        """Queue an exhausted or failed job again, with no attempt spent.

        With the ``fence`` that somebody saw, only when the job was not claimed since. Raises `JobNotFound`,
        `JobNotRequeueable`, `LeaseExpired` for another fence, or `Unavailable`.
        """
        self._run(self._operations.requeue(job_id, fence=fence))

    def cancel(self, job_id: str, reason: str) -> None:
        """End a job that has no outcome yet as failed, with a reason of 1 to 512 characters.

        Raises `JobNotFound`, `JobAlreadyTerminal`, `InvalidArgument` or `Unavailable`.
        """
        self._run(self._operations.cancel(job_id, reason))

    def limit_kind(self, kind: str, most: int | None) -> bool:
        """Let at most ``most`` jobs of a kind run at a time over the whole profile; None lifts the limit.

        A claim skips a kind that has reached its limit; what runs already goes on. Gives whether that changed anything.
        Raises `InvalidArgument`, `LimitReached` when 50 kinds have a limit, or `Unavailable`.
        """
        return self._run(self._operations.limit_kind(kind, most))

    def kind_limits(self) -> dict[str, int]:
        """Give the kinds that have a limit of running jobs, by name."""
        return self._run(self._operations.kind_limits())

    def expire(self) -> Expired:
        """Hold every job against the indexes, in bounded batches, and put back what is missing there.

        No standing and no owner changes, and progress never waits for this: a claim finds lapsed work by itself.
        It finds what an edit by hand or a lost key made invisible. Takes one pass over the profile's keys.
        """
        return self._run(self._operations.expire())

    def job(self, job_id: str) -> dict[str, Any] | None:
        """Give one job as it is stored, or None; the payload stays where it is."""
        return self._run(self._operations.job(job_id))

    def lane(self, lane_id: str) -> dict[str, Any] | None:
        """Give one lane as it is stored, or None."""
        return self._run(self._operations.lane(lane_id))

    def payload(self, job_id: str) -> str:
        """Give a job's payload; empty when it has none."""
        return self._run(self._operations.payload(job_id))


class AsyncClient:
    """The nine tools in the name of one principal, on asyncio.

    Safe to share between threads and tasks. ``client_id`` names a principal, ``holder`` this process of it.
    """

    def __init__(self, caller: Caller, run: AsyncRun) -> None:
        self._caller, self._run, self._operations = caller, run, ClaimOperations(caller)

    @property
    def client_id(self) -> str:
        return str(self._caller.client_id)

    @property
    def holder(self) -> str:
        return self._caller.holder

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        request_id: str | None = None,
        fence: int | None = None,
        holder: str | None = None,
    ) -> Answer:
        """Call a tool by name: a plain dict in, the contract's result object out.

        ``None`` beside the arguments means not given. Raises `ToolError`, always with ``request_id``: for
        `Unavailable` with ``outcome_unknown``, repeat the call under that id to learn what became of it.
        """
        operation = self._caller.call(tool, arguments, request_id=request_id, fence=fence, holder=holder)
        return await self._run(operation)

    async def job_claim(
        self,
        *,
        kind: str | None = None,
        lease_seconds: int | None = None,
        request_id: str | None = None,
    ) -> contract.JobClaimResult:
        """Take one queued or lapsed job under a lease that only one caller can win.

        queued, or claimed with a lapsed lease, to claimed: the caller owns it, attempts rise by one, the fence
        rises. A takeover also records job.reclaimed, naming the former owner.

        kind: claim only this kind.
        lease_seconds: length of the lease; 300 when absent.

        Raises `Unauthenticated`, `InvalidArgument`, `Unavailable`, `Internal`, `RequestIdReused`.
        """
        arguments = {"kind": kind, "lease_seconds": lease_seconds}
        operation = self._caller.typed(contract.JobClaimResult, "job_claim", arguments, request_id=request_id)
        return await self._run(operation)

    async def job_complete(
        self,
        *,
        job_id: str,
        outcome: str,
        result_ref: str | None = None,
        request_id: str | None = None,
        fence: int | None = None,
    ) -> contract.JobCompleteResult:
        """End a claimed job as completed or failed, and keep a pointer at what came of it.

        claimed to completed or failed, for good. The same outcome again succeeds with idempotent:true and changes
        nothing. A lane never moves because a job ended.

        job_id: an id; any text that was not made here names nothing.
        result_ref: opaque pointer at the artifact or verdict, kept as given.

        Raises `Unauthenticated`, `InvalidArgument`, `Unavailable`, `Internal`, `RequestIdReused`, `JobNotFound`,
        `JobAlreadyTerminal`, `JobNotClaimed`, `LeaseExpired`.
        """
        arguments = {"job_id": job_id, "outcome": outcome, "result_ref": result_ref}
        operation = self._caller.typed(
            contract.JobCompleteResult, "job_complete", arguments, request_id=request_id, fence=fence
        )
        return await self._run(operation)

    async def job_create(
        self,
        *,
        kind: str,
        lane_id: str | None = None,
        payload: str | None = None,
        project: str | None = None,
        request_id: str | None = None,
        delay_seconds: float = 0.0,
    ) -> contract.JobCreateResult:
        """Create one durable job that an executor or the pump can claim.

        The job begins as queued, with no owner.

        kind: what sort of work this is; claims may ask for one kind.
        lane_id: the lane this job belongs to; its project is inherited.
        payload: opaque text for the executor, kept byte for byte.
        project: the project; absent or empty means untagged.
        delay_seconds: not claimable before that time is over; the library's own.

        Raises `Unauthenticated`, `InvalidArgument`, `Unavailable`, `Internal`, `Denied`, `RequestIdReused`,
        `LaneNotFound`, `ProjectMismatch`.
        """
        arguments = {"kind": kind, "lane_id": lane_id, "payload": payload, "project": project}
        operation = self._caller.typed(
            contract.JobCreateResult, "job_create", arguments, request_id=request_id, also=delayed(delay_seconds)
        )
        return await self._run(operation)

    async def job_release(
        self,
        *,
        job_id: str,
        request_id: str | None = None,
        fence: int | None = None,
    ) -> contract.JobReleaseResult:
        """Give a claimed job back, so that another executor can claim it.

        claimed to queued: owner and lease are cleared, attempts are kept.

        job_id: an id; any text that was not made here names nothing.

        Raises `Unauthenticated`, `InvalidArgument`, `Unavailable`, `Internal`, `RequestIdReused`, `JobNotFound`,
        `JobNotClaimed`, `LeaseExpired`.
        """
        arguments = {"job_id": job_id}
        operation = self._caller.typed(
            contract.JobReleaseResult, "job_release", arguments, request_id=request_id, fence=fence
        )
        return await self._run(operation)

    async def lane_create(
        self,
        *,
        quorum_id: str,
        assignee_client_id: str | None = None,
        base_ref: str | None = None,
        branch: str | None = None,
        depends_on: str | None = None,
        repo: str | None = None,
        task_id: str | None = None,
        worktree: str | None = None,
        request_id: str | None = None,
    ) -> contract.LaneCreateResult:
        """Create one lane, a reviewable stream of work, under an open quorum.

        The lane begins as open, with no review and no merge; it inherits the quorum's project for good. Links are
        checked now and never again.

        quorum_id: an id; any text that was not made here names nothing.
        assignee_client_id: a live principal who may submit the lane for review.
        depends_on: a lane of the same quorum.
        task_id: a live task.

        Raises `Unauthenticated`, `InvalidArgument`, `Unavailable`, `Internal`, `Denied`, `RequestIdReused`,
        `UnknownLane`, `QuorumNotOpen`, `UnknownClient`, `TaskNotFound`, `DependencyNotInQuorum`.
        """
        arguments = {
            "quorum_id": quorum_id,
            "assignee_client_id": assignee_client_id,
            "base_ref": base_ref,
            "branch": branch,
            "depends_on": depends_on,
            "repo": repo,
            "task_id": task_id,
            "worktree": worktree,
        }
        operation = self._caller.typed(contract.LaneCreateResult, "lane_create", arguments, request_id=request_id)
        return await self._run(operation)

    async def lane_list(
        self,
        *,
        limit: int | None = None,
        project: str | None = None,
        quorum_id: str | None = None,
        state: str | None = None,
    ) -> contract.LaneListResult:
        """List the lanes the caller may see, newest first.

        Reads only; nothing is recorded.

        limit: page size, clamped to 1..100; 50 when absent.
        project: only this project; empty means untagged lanes.
        quorum_id: only this quorum.
        state: only this execution standing.

        Raises `Unauthenticated`, `InvalidArgument`, `Unavailable`, `Internal`.
        """
        arguments = {"limit": limit, "project": project, "quorum_id": quorum_id, "state": state}
        operation = self._caller.typed(contract.LaneListResult, "lane_list", arguments)
        return await self._run(operation)

    async def lane_merge(
        self,
        *,
        lane_id: str,
        outcome: str,
        result_commit: str | None = None,
        request_id: str | None = None,
    ) -> contract.LaneMergeResult:
        """Record how merging a lane ended; nothing is executed.

        Records the outcome, and the commit when one is given. Execution and review standing stay.

        lane_id: an id; any text that was not made here names nothing.
        result_commit: commit pointer; merged needs one.

        Raises `Unauthenticated`, `InvalidArgument`, `Unavailable`, `Internal`, `Denied`, `RequestIdReused`,
        `UnknownLane`, `LaneNotMergeable`.
        """
        arguments = {"lane_id": lane_id, "outcome": outcome, "result_commit": result_commit}
        operation = self._caller.typed(contract.LaneMergeResult, "lane_merge", arguments, request_id=request_id)
        return await self._run(operation)

    async def lane_review(
        self,
        *,
        lane_id: str,
        decision: str,
        request_id: str | None = None,
    ) -> contract.LaneReviewResult:
        """Submit a lane for review, approve it, or ask for changes.

        Empty or changes_requested to pending on submit; pending to approved or changes_requested on a verdict.
        Execution standing stays.

        lane_id: an id; any text that was not made here names nothing.

        Raises `Unauthenticated`, `InvalidArgument`, `Unavailable`, `Internal`, `Denied`, `RequestIdReused`,
        `UnknownLane`, `ReviewClosed`, `NothingUnderReview`.
        """
        arguments = {"lane_id": lane_id, "decision": decision}
        operation = self._caller.typed(contract.LaneReviewResult, "lane_review", arguments, request_id=request_id)
        return await self._run(operation)

    async def lane_set_state(
        self,
        *,
        lane_id: str,
        state: str,
        request_id: str | None = None,
    ) -> contract.LaneSetStateResult:
        """Move one lane along its execution axis.

        open to in_progress; in_progress to done or failed; open or in_progress to cancelled. done, failed and
        cancelled never change.

        lane_id: an id; any text that was not made here names nothing.
        state: open, in_progress, done, failed or cancelled.

        Raises `Unauthenticated`, `InvalidArgument`, `Unavailable`, `Internal`, `Denied`, `RequestIdReused`,
        `UnknownLane`, `IllegalLaneTransition`.
        """
        arguments = {"lane_id": lane_id, "state": state}
        operation = self._caller.typed(contract.LaneSetStateResult, "lane_set_state", arguments, request_id=request_id)
        return await self._run(operation)

    async def renew(self, claim: JobClaimResult, *, lease_seconds: int | None = None) -> JobRenewResult:
        """Hold a claimed job for ``lease_seconds`` (1 to 3,600) from now on; unless given, as long as at first.

        Only the current claim of its owner, while its lease is live, can be renewed. No event tells of it. Raises
        `JobNotFound`, `JobAlreadyTerminal`, `JobNotClaimed`, `LeaseExpired`, `Unauthenticated`, `InvalidArgument` or
        `Unavailable`.
        """
        return await self._run(self._operations.renew(claim, lease_seconds=lease_seconds))

    async def complete(self, claim: JobClaimResult, *, result_ref: str | None = None) -> JobCompleteResult:
        """End the claimed job as completed, under the fence of this claim. Raises as ``job_complete``."""
        return await self._run(self._operations.complete(claim, result_ref=result_ref))

    async def fail(
        self, claim: JobClaimResult, *, reason: str = "", result_ref: str | None = None
    ) -> JobCompleteResult:
        """End the claimed job as failed and keep the reason, under the fence of this claim. Raises as ``job_complete``.

        A reason is cut to 512 characters; what cannot be UTF-8 in it is replaced.
        """
        return await self._run(self._operations.fail(claim, reason=reason, result_ref=result_ref))

    async def release(self, claim: JobClaimResult, *, delay_seconds: float = 0.0, reason: str = "") -> JobReleaseResult:
        """Give the claimed job back, not claimable before the delay is over, under the fence of this claim.

        ``delay_seconds`` is from 0 to 31,536,000 (a year), in steps of a millisecond. Raises as ``job_release``.
        """
        return await self._run(self._operations.release(claim, delay_seconds=delay_seconds, reason=reason))

    async def create_many(self, jobs: Iterable[Mapping[str, Any]]) -> list[JobCreateResult | ToolError]:
        """Create jobs, each given by the arguments of ``job_create`` and, if wanted, ``delay_seconds``.

        Each is a move of its own: gives in order the job's result, or the error that it alone met.
        """
        return await self._run(self._operations.create_many(jobs))

    async def claim_many(
        self, count: int, *, kind: str | None = None, lease_seconds: int | None = None
    ) -> list[JobClaimResult]:
        """Claim up to ``count`` jobs, each under a lease and a fence of its own.

        Raises as ``job_claim`` when no claim succeeded. The leases begin at about the same time: claim no more than
        can be worked on at once.
        """
        return await self._run(self._operations.claim_many(count, kind=kind, lease_seconds=lease_seconds))

    async def renew_many(
        self, claims: Sequence[JobClaimResult], *, lease_seconds: int | None = None
    ) -> list[JobRenewResult | ToolError]:
        """Renew claims as `renew`; give in order the result of each, or the error that it alone met."""
        return await self._run(self._operations.renew_many(claims, lease_seconds=lease_seconds))

    async def end_many(self, endings: Iterable[Ending]) -> list[JobCompleteResult | JobReleaseResult | ToolError]:
        """Let go of claims; give in order the result of each, or the error that it alone met."""
        return await self._run(self._operations.end_many(endings))

    async def complete_many(
        self, done: Iterable[tuple[JobClaimResult, str | None]]
    ) -> list[JobCompleteResult | ToolError]:
        """Complete claims, each with its ``result_ref``; give in order the result of each, or the error that it met."""
        return await self._run(self._operations.complete_many(done))

    async def claim_wait(
        self, kind: str | Sequence[str] | None = None, *, lease_seconds: int | None = None, timeout: float | None = None
    ) -> JobClaimResult:
        """Claim a job, waiting for one for ``timeout`` seconds, or for ever; false when the time is over.

        ``kind`` is one kind, several, or None for any. The wait itself takes no job: ending it early loses nothing,
        but for a claim made in that very moment, whose job comes back when its lease lapses. Raises as ``job_claim``.
        """
        return await self._run(self._operations.claim_wait(kind, lease_seconds=lease_seconds, timeout=timeout))

    async def wait_for_work(self, waiter: str, kinds: Sequence[str], timeout: float) -> bool:
        """Wait until work of these kinds (none: any) may be claimable, or ``timeout`` seconds; tell whether it may be.

        ``waiter`` is a name from `new_waiter`, one for each caller that waits. Raises as ``job_claim``.
        """
        return await self._run(self._operations.wait_for_work(waiter, kinds, timeout))

    async def leave(self, waiter: str) -> None:
        """Take back what `wait_for_work` registered, and end one that waits in another thread or loop."""
        await self._run(self._operations.leave(waiter))

    async def job(self, job_id: str) -> JobStanding:
        """Tell how a job stands. Raises `JobNotFound` also when the caller does not cover its project."""
        return await self._run(self._operations.job(job_id))

    async def wait(self, job_id: str, *, timeout: float | None = None) -> JobStanding:
        """Wait until a job has ended, looking at least once a second, and tell how.

        Raises `TimeoutError` when ``timeout`` seconds are over, and otherwise as `job`.
        """
        return await self._run(self._operations.wait(job_id, timeout=timeout))


class AsyncRegistry:
    """What the tools check against: principals, tokens, quorums, tasks, on asyncio."""

    def __init__(self, operations: RegistryOperations, run: AsyncRun) -> None:
        self._operations, self._run = operations, run

    async def add_principal(self, client_id: str, *, conductor: bool = False, grants: Iterable[str] = ()) -> bool:
        """Register a principal; give whether it is new.

        Adding one again with the very same facts changes nothing; with others it raises `PrincipalExists`.
        """
        return await self._run(self._operations.add_principal(client_id, conductor=conductor, grants=grants))

    async def grant(self, client_id: str, project: str) -> bool:
        """Grant a project, ``""`` for untagged work, ``"*"`` for star scope; give whether it is new."""
        return await self._run(self._operations.grant(client_id, project))

    async def revoke(self, client_id: str, project: str) -> bool:
        """Take a grant; give whether it was held."""
        return await self._run(self._operations.revoke(client_id, project))

    async def set_conductor(self, client_id: str, conductor: bool = True) -> bool:
        """Give or take the conductor role; give whether that changed anything."""
        return await self._run(self._operations.set_conductor(client_id, conductor))

    async def disable_principal(self, client_id: str) -> bool:
        """Let every call of a principal be refused as unauthenticated; give whether it was live."""
        return await self._run(self._operations.disable_principal(client_id))

    async def enable_principal(self, client_id: str) -> bool:
        """Let a disabled principal call again; give whether it was disabled."""
        return await self._run(self._operations.enable_principal(client_id))

    async def principals(self) -> list[Principal]:
        """List every principal, in the order in which they were added."""
        return await self._run(self._operations.principals())

    async def principals_page(self, after: str | None = None) -> tuple[list[Principal], str]:
        """List at most 100 principals, from a cursor on; give the cursor of the next page too, empty at the end."""
        return await self._run(self._operations.principals_page(after))

    async def open_quorum(self, project: str, participants: Iterable[str] = ()) -> str:
        """Open a quorum over a project (``""`` untagged, never ``"*"``) and give its id.

        Every participant must be a principal, else `UnknownPrincipal`.
        """
        return await self._run(self._operations.open_quorum(project, participants))

    async def close_quorum(self, quorum_id: str) -> bool:
        """Close a quorum to new lanes; give whether it was open."""
        return await self._run(self._operations.close_quorum(quorum_id))

    async def add_participant(self, quorum_id: str, client_id: str) -> bool:
        """Let a principal take part in a quorum; give whether that is new."""
        return await self._run(self._operations.add_participant(quorum_id, client_id))

    async def remove_participant(self, quorum_id: str, client_id: str) -> bool:
        """Take a principal out of a quorum; give whether it took part."""
        return await self._run(self._operations.remove_participant(quorum_id, client_id))

    async def quorums(self) -> list[Quorum]:
        """List every quorum, in the order in which they were opened."""
        return await self._run(self._operations.quorums())

    async def add_task(self, task_id: str | None = None) -> str:
        """Register a live task and give its id, a new UUID when none is given; a closed one raises `UnknownTask`."""
        return await self._run(self._operations.add_task(task_id))

    async def close_task(self, task_id: str) -> bool:
        """Close a task to new lanes; give whether it was live."""
        return await self._run(self._operations.close_task(task_id))

    async def tasks(self) -> list[Task]:
        """List every task, in the order in which they were added."""
        return await self._run(self._operations.tasks())

    async def issue_token(
        self, client_id: str, *, scope: str = "tools", expires_seconds: int | None = None
    ) -> IssuedToken:
        """Issue an access token to a principal; its text is given here and kept nowhere.

        ``scope`` is what it is good for: ``tools``, ``tools:read``, ``ops:read``, ``ops:write`` or ``metrics``. Roles
        and grants stay the principal's. It expires after ``expires_seconds``, at most ten years; never when None.
        Raises `UnknownPrincipal`.
        """
        return await self._run(self._operations.issue_token(client_id, scope=scope, expires_seconds=expires_seconds))

    async def rotate_token(
        self, token_id: str, *, overlap_seconds: int = 86400, expires_seconds: int | None = None
    ) -> IssuedToken:
        """Issue a token in place of a live one, which is good for ``overlap_seconds`` more, or less if it ends sooner.

        Principal and scope are those of the old one. Raises `UnknownToken` or `TokenNotLive`.
        """
        return await self._run(
            self._operations.rotate_token(token_id, overlap_seconds=overlap_seconds, expires_seconds=expires_seconds)
        )

    async def revoke_token(self, token_id: str) -> bool:
        """Revoke a token from the very next call on; give whether it was not revoked before. Raises `UnknownToken`."""
        return await self._run(self._operations.revoke_token(token_id))

    async def tokens(self) -> list[Token]:
        """List every token that was issued, in that order, by its id. A token that expired is listed as live."""
        return await self._run(self._operations.tokens())

    async def tokens_page(self, after: str | None = None) -> tuple[list[Token], str]:
        """List at most 100 tokens, from a cursor on; give the cursor of the next page too, empty at the end."""
        return await self._run(self._operations.tokens_page(after))


class AsyncOps:
    """The operators' moves and looks beside the nine tools, on asyncio."""

    def __init__(self, operations: OpsOperations, run: AsyncRun) -> None:
        self._operations, self._run = operations, run

    async def requeue(self, job_id: str, *, fence: int | None = None) -> None:
        """Queue an exhausted or failed job again, with no attempt spent.

        With the ``fence`` that somebody saw, only when the job was not claimed since. Raises `JobNotFound`,
        `JobNotRequeueable`, `LeaseExpired` for another fence, or `Unavailable`.
        """
        await self._run(self._operations.requeue(job_id, fence=fence))

    async def cancel(self, job_id: str, reason: str) -> None:
        """End a job that has no outcome yet as failed, with a reason of 1 to 512 characters.

        Raises `JobNotFound`, `JobAlreadyTerminal`, `InvalidArgument` or `Unavailable`.
        """
        await self._run(self._operations.cancel(job_id, reason))

    async def limit_kind(self, kind: str, most: int | None) -> bool:
        """Let at most ``most`` jobs of a kind run at a time over the whole profile; None lifts the limit.

        A claim skips a kind that has reached its limit; what runs already goes on. Gives whether that changed anything.
        Raises `InvalidArgument`, `LimitReached` when 50 kinds have a limit, or `Unavailable`.
        """
        return await self._run(self._operations.limit_kind(kind, most))

    async def kind_limits(self) -> dict[str, int]:
        """Give the kinds that have a limit of running jobs, by name."""
        return await self._run(self._operations.kind_limits())

    async def expire(self) -> Expired:
        """Hold every job against the indexes, in bounded batches, and put back what is missing there.

        No standing and no owner changes, and progress never waits for this: a claim finds lapsed work by itself.
        It finds what an edit by hand or a lost key made invisible. Takes one pass over the profile's keys.
        """
        return await self._run(self._operations.expire())

    async def job(self, job_id: str) -> dict[str, Any] | None:
        """Give one job as it is stored, or None; the payload stays where it is."""
        return await self._run(self._operations.job(job_id))

    async def lane(self, lane_id: str) -> dict[str, Any] | None:
        """Give one lane as it is stored, or None."""
        return await self._run(self._operations.lane(lane_id))

    async def payload(self, job_id: str) -> str:
        """Give a job's payload; empty when it has none."""
        return await self._run(self._operations.payload(job_id))
