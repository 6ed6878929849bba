"""What the library offers around a claim, beside the nine tools: waiting, renewing, giving back later, batches.

Each act is a move of its own, with its own request id where it needs one; a batch only lets them travel together.
"""

from __future__ import annotations

import math
import random
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from .contract import (
    BY_NAME,
    JOB_STATES,
    JobClaimResult,
    JobCompleteResult,
    JobCreateResult,
    JobReleaseResult,
    JobRenewResult,
    JobStanding,
    check,
    limit,
    safe_name,
)
from .errors import Internal, InvalidArgument, ShampooError, ToolError
from .moves import Abandoned, Block, Operation, Pause
from .tools import NOTHING, Caller, _id, is_unicode, iso, number, stamp, text

T = TypeVar("T")

_LONGEST_PAUSE = 1.0  # seconds between two looks of `wait`


@dataclass(frozen=True, slots=True)
class Ending:
    """How the holder of a claim lets go of it: ``completed``, ``failed``, or ``released`` for another attempt.

    ``result_ref`` goes with the first two, ``reason`` with the last two, ``delay_seconds`` with the last.
    """

    claim: JobClaimResult
    outcome: Literal["completed", "failed", "released"]
    result_ref: str | None = None
    reason: str = ""
    delay_seconds: float = 0.0


def new_waiter() -> str:
    """Make a name under which one idle caller waits."""
    return secrets.token_urlsafe(9)


def gather(operations: Iterable[Operation[T]]) -> Operation[list[T | ToolError]]:
    """Run operations side by side, their moves travelling together; give each one's result or refusal, in order."""
    running = list(operations)
    ended: dict[int, T | ToolError] = {}
    replies: dict[int, Any] = dict.fromkeys(range(len(running)))
    while replies:
        moves: dict[int, Any] = {}
        for n, reply in replies.items():
            go_on = running[n].throw if isinstance(reply, ShampooError) else running[n].send
            try:
                moves[n] = go_on(reply)
            except StopIteration as end:
                ended[n] = end.value
            except ToolError as refusal:
                ended[n] = refusal
        replies = dict(zip(moves, (yield list(moves.values())), strict=True)) if moves else {}
    return [ended[n] for n in range(len(running))]


class ClaimOperations:
    """The operations behind a client's methods beside the tools."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._plenty = False  # whether the last batch of claims was full

    # One claim -----------------------------------------------------------------------------------------------

    def renew(self, claim: JobClaimResult, *, lease_seconds: int | None = None) -> Operation[JobRenewResult]:
        """Hold a claimed job for ``lease_seconds`` (1 to 3,600) from now on; unless given, as long as at first.

        Only the current claim of its owner, while its lease is live, can be renewed. No event tells of it. Raises
        `JobNotFound`, `JobAlreadyTerminal`, `JobNotClaimed`, `LeaseExpired`, `Unauthenticated`, `InvalidArgument` or
        `Unavailable`.
        """
        fence = _fence(claim)
        seconds = claim.meta.lease_seconds if lease_seconds is None else lease_seconds
        if (
            not isinstance(seconds, int)
            or isinstance(seconds, bool)
            or not limit("lease_min") <= seconds <= limit("lease_max")
        ):
            raise InvalidArgument("lease_seconds must be a whole number from 1 to 3600")
        reply = yield from self._caller.move("job_renew", _id(claim.job_id), str(seconds * 1000), fence=fence)
        return JobRenewResult(job_id=claim.job_id, lease_until=iso(int(reply[0])))

    def complete(self, claim: JobClaimResult, *, result_ref: str | None = None) -> Operation[JobCompleteResult]:
        """End the claimed job as completed, under the fence of this claim. Raises as ``job_complete``."""
        return (yield from self._end(claim, "completed", result_ref, ""))

    def fail(
        self, claim: JobClaimResult, *, reason: str = "", result_ref: str | None = None
    ) -> Operation[JobCompleteResult]:
        """End the claimed job as failed and keep the reason, under the fence of this claim. Raises as ``job_complete``.

        A reason is cut to 512 characters; what cannot be UTF-8 in it is replaced.
        """
        return (yield from self._end(claim, "failed", result_ref, reason))

    def release(
        self, claim: JobClaimResult, *, delay_seconds: float = 0.0, reason: str = ""
    ) -> Operation[JobReleaseResult]:
        """Give the claimed job back, not claimable before the delay is over, under the fence of this claim.

        ``delay_seconds`` is from 0 to 31,536,000 (a year), in steps of a millisecond. Raises as ``job_release``.
        """
        also = (_milliseconds(delay_seconds), _reason(reason))
        arguments = {"job_id": claim.job_id}
        fence = _fence(claim)
        return (yield from self._caller.typed(JobReleaseResult, "job_release", arguments, fence=fence, also=also))

    def _end(
        self, claim: JobClaimResult, outcome: str, result_ref: str | None, reason: str
    ) -> Operation[JobCompleteResult]:
        arguments = {"job_id": claim.job_id, "outcome": outcome, "result_ref": result_ref}
        also = (_reason(reason),) if reason else ()
        fence = _fence(claim)
        return (yield from self._caller.typed(JobCompleteResult, "job_complete", arguments, fence=fence, also=also))

    # Batches -------------------------------------------------------------------------------------------------

    def create_many(self, jobs: Iterable[Mapping[str, Any]]) -> Operation[list[JobCreateResult | ToolError]]:
        """Create jobs, each given by the arguments of ``job_create`` and, if wanted, ``delay_seconds``.

        Each is a move of its own: gives in order the job's result, or the error that it alone met.
        """
        return (yield from gather(map(self._create, jobs)))

    def _create(self, job: Mapping[str, Any]) -> Operation[JobCreateResult]:
        if not isinstance(job, Mapping):
            raise InvalidArgument("a job must be an object of arguments")
        arguments = {name: value for name, value in job.items() if name != "delay_seconds"}
        also = delayed(job.get("delay_seconds", 0.0))
        return (yield from self._caller.typed(JobCreateResult, "job_create", arguments, also=also))

    def claim_many(
        self, count: int, *, kind: str | None = None, lease_seconds: int | None = None
    ) -> Operation[list[JobClaimResult]]:
        """Claim up to ``count`` jobs, each under a lease and a fence of its own.

        Raises as ``job_claim`` when no claim succeeded. The leases begin at about the same time: claim no more than
        can be worked on at once.
        """
        if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= 10_000:
            raise InvalidArgument("count must be a whole number from 0 to 10,000")
        arguments = {"kind": kind, "lease_seconds": lease_seconds}
        won: list[JobClaimResult] = []
        # An idle queue is asked once, not ``count`` times.
        together = count if self._plenty else 1
        while len(won) < count:
            together = min(together, count - len(won))
            claims = (self._caller.typed(JobClaimResult, "job_claim", arguments) for _ in range(together))
            found = yield from gather(claims)
            fresh = [claim for claim in found if isinstance(claim, JobClaimResult) and claim.claimed]
            won += fresh
            refused = [claim for claim in found if isinstance(claim, ToolError)]
            if refused and not won:
                raise refused[0]
            if len(fresh) < together or not fresh[-1].meta.more:
                break
            together *= 4
        self._plenty = count > 0 and len(won) == count
        return won

    def renew_many(
        self, claims: Sequence[JobClaimResult], *, lease_seconds: int | None = None
    ) -> Operation[list[JobRenewResult | ToolError]]:
        """Renew claims as `renew`; give in order the result of each, or the error that it alone met."""
        return (yield from gather(self.renew(claim, lease_seconds=lease_seconds) for claim in claims))

    def end_many(self, endings: Iterable[Ending]) -> Operation[list[JobCompleteResult | JobReleaseResult | ToolError]]:
        """Let go of claims; give in order the result of each, or the error that it alone met."""
        return (yield from gather(map(self._let_go, endings)))

    def complete_many(
        self, done: Iterable[tuple[JobClaimResult, str | None]]
    ) -> Operation[list[JobCompleteResult | ToolError]]:
        """Complete claims, each with its ``result_ref``; give in order the result of each, or the error that it met."""
        return (yield from gather(map(self._complete_pair, done)))

    def _complete_pair(self, pair: tuple[JobClaimResult, str | None]) -> Operation[JobCompleteResult]:
        if not isinstance(pair, Sequence) or len(pair) != 2:
            raise InvalidArgument("what is done must be pairs of a claim and its result_ref")
        return (yield from self.complete(pair[0], result_ref=pair[1]))

    def _let_go(self, ending: Ending) -> Operation[JobCompleteResult | JobReleaseResult]:
        if not isinstance(ending, Ending):
            raise InvalidArgument("endings must be Ending objects")
        if ending.outcome == "released":
            return (yield from self.release(ending.claim, delay_seconds=ending.delay_seconds, reason=ending.reason))
        reason = ending.reason if ending.outcome == "failed" else ""
        return (yield from self._end(ending.claim, ending.outcome, ending.result_ref, reason))

    # Waiting -------------------------------------------------------------------------------------------------

    def claim_wait(
        self,
        kind: str | Sequence[str] | None = None,
        *,
        lease_seconds: int | None = None,
        timeout: float | None = None,
    ) -> Operation[JobClaimResult]:
        """Claim a job, waiting for one for ``timeout`` seconds, or for ever; false when the time is over.

        ``kind`` is one kind, several, or None for any. The wait itself takes no job: ending it early loses nothing,
        but for a claim made in that very moment, whose job comes back when its lease lapses. Raises as ``job_claim``.
        """
        kinds = _kinds(kind)
        until = _until(timeout)
        waiter, pause = new_waiter(), 0.0
        while True:
            for one in kinds or (None,):
                arguments = {"kind": one, "lease_seconds": lease_seconds}
                claim = yield from self._caller.typed(JobClaimResult, "job_claim", arguments)
                if claim.claimed:
                    return claim
            if time.monotonic() >= until:
                return claim
            if pause:
                yield Pause(max(0.0, min(pause, until - time.monotonic())))
            # What woke this caller may be gone, or of a kind beyond those it can wait for: no hot loop over that.
            woken = yield from self.wait_for_work(waiter, kinds, until - time.monotonic())
            pause = min(max(0.01, pause * 2), _LONGEST_PAUSE) if woken else 0.0

    def wait_for_work(self, waiter: str, kinds: Sequence[str], timeout: float) -> Operation[bool]:
        """Wait until work of these kinds (none: any) may be claimable, or ``timeout`` seconds; tell whether it may be.

        ``waiter`` is a name from `new_waiter`, one for each caller that waits. Raises as ``job_claim``.
        """
        asked = tuple(kinds) if 0 < len(kinds) <= limit("waiter_kinds") else ("",)
        if not isinstance(waiter, str) or not is_unicode(waiter):
            raise InvalidArgument("waiter must be a name from new_waiter()")
        for kind in kinds:
            _check_kind(kind)
        try:
            return (yield from self._wait_for_work(waiter, asked, _until(timeout)))
        except Abandoned:
            yield from self._caller.move("job_wait", waiter, "0")
            raise

    def _wait_for_work(self, waiter: str, asked: Sequence[str], until: float) -> Operation[bool]:
        registered_until = -math.inf
        while True:
            now = time.monotonic()
            if now >= until:
                yield from self._caller.move("job_wait", waiter, "0")
                return False
            register = now >= registered_until
            stay = str(limit("wait_stay")) if register else ""
            reply = yield from self._caller.move("job_wait", waiter, stay, *asked)
            if text(reply[0]) == "now":
                return True
            answered = time.monotonic()  # the server counts from before this instant, so nobody looks too early
            if register:
                # Before the server forgets it, and not all callers at the same time.
                registered_until = now + limit("wait_stay") / 1000 * random.uniform(0.6, 0.8)
            # A whole look is cut a little, so that many callers do not fall into step.
            seconds = int(reply[0]) / 1000
            if seconds >= limit("wait_look") / 1000:
                seconds *= random.uniform(0.85, 1.0)
            if (yield from _signed(waiter, min(until, answered + seconds))):
                return True

    def leave(self, waiter: str) -> Operation[None]:
        """Take back what `wait_for_work` registered, and end one that waits in another thread or loop."""
        if not isinstance(waiter, str) or not is_unicode(waiter):
            raise InvalidArgument("waiter must be a name from new_waiter()")
        yield from self._caller.move("job_wait", waiter, "-1")

    # One job -------------------------------------------------------------------------------------------------

    def job(self, job_id: str) -> Operation[JobStanding]:
        """Tell how a job stands. Raises `JobNotFound` also when the caller does not cover its project."""
        found = [text(part) for part in (yield from self._caller.move("job_get", _known_id(job_id)))]
        kind, project, lane_id, state, attempts, result_ref, reason, created_at, changed_at, due_at = found
        if state not in JOB_STATES:
            raise Internal("the job was edited beyond use")
        return JobStanding.model_validate(
            {
                "job_id": job_id,
                "kind": kind,
                "project": project,
                "lane_id": lane_id,
                "state": state,
                "attempts": number(attempts),
                "result_ref": result_ref,
                "reason": reason,
                "created_at": stamp(created_at),
                "changed_at": stamp(changed_at),
                "due_at": stamp(due_at),
            }
        )

    def wait(self, job_id: str, *, timeout: float | None = None) -> Operation[JobStanding]:
        """Wait until a job has ended, looking at least once a second, and tell how.

        Raises `TimeoutError` when ``timeout`` seconds are over, and otherwise as `job`.
        """
        until, pause = _until(timeout), 0.01
        while True:
            found = yield from self.job(job_id)
            left = until - time.monotonic()
            if found.ended:
                return found
            if left <= 0:
                raise TimeoutError(f"job {safe_name(job_id)} has not ended after {timeout} seconds")
            yield Pause(min(pause, left))
            pause = min(pause * 1.5, _LONGEST_PAUSE)


def _signed(waiter: str, until: float) -> Operation[bool]:
    """Sleep until a sign comes for the waiter, or the time is over."""
    while (left := until - time.monotonic()) > 0:
        if (yield Block("wake", waiter, left)):
            return True
    return False


def delayed(delay_seconds: float) -> tuple[str, ...]:
    """Spell what ``job_create`` is told of a delay."""
    milliseconds = _milliseconds(delay_seconds)
    return () if milliseconds == "0" else (milliseconds,)


def _milliseconds(delay_seconds: Any) -> str:
    most = limit("delay")
    number_ = isinstance(delay_seconds, int | float) and not isinstance(delay_seconds, bool)
    if not number_ or not 0 <= delay_seconds <= most:
        raise InvalidArgument(f"delay_seconds must be a number from 0 to {most:,}")
    return str(math.ceil(delay_seconds * 1000))


def _until(timeout: Any) -> float:
    if timeout is None:
        return math.inf
    if not isinstance(timeout, int | float) or isinstance(timeout, bool) or math.isnan(timeout):
        raise InvalidArgument("timeout must be a number of seconds")
    return time.monotonic() + timeout


def _kinds(kind: Any) -> tuple[str, ...]:
    if kind is None:
        return ()
    if isinstance(kind, str):
        return (kind,)
    if not isinstance(kind, Sequence) or not kind:
        raise InvalidArgument("kind must be text, or one or more of them; None asks for any")
    for one in kind:
        _check_kind(one)
    return tuple(kind)


def _check_kind(kind: Any) -> None:
    if not isinstance(kind, str):
        raise InvalidArgument("each kind must be text")  # None among several would ask for any
    check(BY_NAME["job_claim"], {"kind": kind})


def _known_id(job_id: Any) -> str:
    return _id(job_id) if isinstance(job_id, str) else NOTHING


def _fence(claim: JobClaimResult) -> int:
    if not isinstance(claim, JobClaimResult) or claim.fence is None:
        raise InvalidArgument("this claim holds no job")
    return claim.fence


def _reason(reason: Any) -> str:
    """Make any text fit to be kept: cut, and without what cannot be UTF-8."""
    return ("" if reason is None else str(reason))[: limit("reason")].encode("utf-8", "replace").decode()
