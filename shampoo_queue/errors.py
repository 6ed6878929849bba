"""Every way a call can be refused or fail, named once.

    ShampooError
    ├── ToolError                     what a tool call can raise: one class a code, closed
    │   ├── Unauthenticated, Denied, UnknownTool, InvalidArgument
    │   ├── JobNotFound, JobNotClaimed, LeaseExpired, JobAlreadyTerminal
    │   ├── LaneNotFound, ProjectMismatch, UnknownLane, QuorumNotOpen, UnknownClient,
    │   │   TaskNotFound, DependencyNotInQuorum, IllegalLaneTransition, ReviewClosed,
    │   │   NothingUnderReview, LaneNotMergeable
    │   ├── RequestIdReused, QuotaExceeded
    │   └── Unavailable, Internal
    ├── OperatorError                 what the registry and the operators' moves can raise
    │   └── UnknownPrincipal, PrincipalExists, UnknownQuorum, UnknownTask, JobNotRequeueable, LimitReached,
    │       UnknownToken, TokenNotLive
    ├── DoorError                     what a door refuses before a call reaches a tool
    │   └── BadRequest, NotFound, MethodNotAllowed, TooLarge, UnsupportedMediaType, RateLimited
    └── ConfigurationError            a URL, profile or option that cannot be right
        └── EngineError               the server behind the URL cannot serve: too old, wrong password, away

A script refuses with ``redis.error_reply('CODE')``; the code in capitals is the class below, so the words a
caller reads stand here and nowhere else.
"""

from __future__ import annotations

from typing import ClassVar


class ShampooError(Exception):
    """Whatever this package raises on purpose."""


class Refusal(ShampooError):
    """A call that was refused or failed.

    ``code`` is for programs, ``message`` for people; ``message`` begins with the contract's own words and may
    go on with a detail. ``request_id`` names the call, ``retryable`` says that the same call may succeed later,
    ``outcome_unknown`` that it may have been carried out although no answer came: repeat it under the same
    request id to learn which.
    """

    code: ClassVar[str]
    words: ClassVar[str]
    http_status: ClassVar[int] = 409
    retryable: bool = False

    def __init__(self, detail: str = "", *, request_id: str | None = None, outcome_unknown: bool = False) -> None:
        self.message = f"{self.words}: {detail}" if detail else self.words
        self.request_id = request_id
        self.outcome_unknown = outcome_unknown
        super().__init__(self.message)

    def __init_subclass__(cls, *, code: str = "", words: str = "", http: int = 409, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        if code:
            cls.code, cls.words, cls.http_status = code, words, http

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.message, self.request_id, self.outcome_unknown, self.retryable)


def _rebuild(kind: type[Refusal], message: str, request_id: str | None, unknown: bool, retryable: bool) -> Refusal:
    """Rebuild a refusal that travelled between processes."""
    refusal = kind(request_id=request_id, outcome_unknown=unknown)
    refusal.message, refusal.args, refusal.retryable = message, (message,), retryable
    return refusal


class ToolError(Refusal):
    """A tool call that was refused or failed; every subclass is one code of the contract's closed set."""


class Unauthenticated(ToolError, code="unauthenticated", words="unauthenticated", http=401):
    """The caller is no live principal."""


class Denied(ToolError, code="denied", words="outside client scope", http=403):
    """The caller lacks the role or the explicit grant."""


class UnknownTool(ToolError, code="unknown_tool", words="unknown tool", http=404):
    """No tool has this name."""


class InvalidArgument(ToolError, code="invalid_argument", words="invalid argument", http=422):
    """An argument is missing, unknown, of another type, or outside its limits."""


class JobNotFound(ToolError, code="job_not_found", words="job not found", http=404):
    """No such job, or one outside the caller's scope: the two read alike."""


class JobNotClaimed(ToolError, code="job_not_claimed", words="job is not claimed"):
    """The job is not claimed, or claimed by somebody else."""


class LeaseExpired(ToolError, code="lease_expired", words="lease expired"):
    """The lease lapsed, or the fence belongs to an earlier claim: claim again first."""


class JobAlreadyTerminal(ToolError, code="job_already_terminal", words="job already terminal"):
    """The job has ended, with another outcome or under another owner."""


class LaneNotFound(ToolError, code="lane_not_found", words="lane not found", http=404):
    """``job_create`` named a lane that does not exist."""


class ProjectMismatch(ToolError, code="project_mismatch", words="project does not match lane"):
    """``job_create`` named a project other than its lane's."""


class UnknownLane(ToolError, code="unknown_lane", words="unknown_lane", http=404):
    """No such lane or quorum, one the caller may not see, or a standing that does not exist."""


class QuorumNotOpen(ToolError, code="quorum_not_open", words="quorum is not open"):
    """The quorum is closed to new lanes."""


class UnknownClient(ToolError, code="unknown_client", words="unknown client", http=404):
    """The assignee is no live principal."""


class TaskNotFound(ToolError, code="task_not_found", words="task not found", http=404):
    """The task does not exist or is closed."""


class DependencyNotInQuorum(
    ToolError, code="dependency_not_in_quorum", words="depends_on must name a lane of the same quorum"
):
    """The dependency is missing or belongs to another quorum: the two read alike."""


class IllegalLaneTransition(ToolError, code="illegal_lane_transition", words="illegal lane transition"):
    """The lane cannot go from where it stands to where it was sent."""


class ReviewClosed(ToolError, code="review_closed", words="review closed"):
    """The review is pending or approved, so nothing can be submitted."""


class NothingUnderReview(ToolError, code="nothing_under_review", words="nothing under review"):
    """A verdict needs a pending review."""


class LaneNotMergeable(ToolError, code="lane_not_mergeable", words="lane not mergeable"):
    """The gate of this merge outcome is not met."""


class RequestIdReused(ToolError, code="request_id_reused", words="request id was used for another call"):
    """The request id is remembered for a call that differs from this one."""


class QuotaExceeded(ToolError, code="quota_exceeded", words="quota exceeded", http=429):
    """An operator's limit on this project is reached."""


class Unavailable(ToolError, code="unavailable", words="queue unavailable", http=503):
    """Redis is away, read-only, loading, busy, out of memory or moving."""

    retryable = True


class Internal(ToolError, code="internal", words="internal error", http=500):
    """A defect: the caller gets a fixed sentence and an id, the log gets the rest."""


class OperatorError(Refusal):
    """A refusal of the registry or of an operator's move."""


class UnknownPrincipal(OperatorError, code="unknown_principal", words="unknown principal", http=404):
    """No principal has this client_id."""


class PrincipalExists(OperatorError, code="principal_exists", words="principal already exists with other facts"):
    """Adding a principal again must not change it silently: use grant, revoke or set_conductor."""


class UnknownQuorum(OperatorError, code="unknown_quorum", words="unknown quorum", http=404):
    """No quorum has this id."""


class UnknownTask(OperatorError, code="unknown_task", words="unknown task", http=404):
    """No task has this id, or it was closed and cannot be added again."""


class JobNotRequeueable(OperatorError, code="job_not_requeueable", words="job is neither exhausted nor failed"):
    """Only an exhausted or a failed job can be requeued."""


class LimitReached(OperatorError, code="limit_reached", words="limit reached"):
    """A principal holds 1,000 grants, or a quorum 1,000 participants."""


class UnknownToken(OperatorError, code="unknown_token", words="unknown token", http=404):
    """No token has this id."""


class TokenNotLive(OperatorError, code="token_not_live", words="token is revoked or expired"):
    """Only a live token can be replaced: issue a new one."""


class DoorError(Refusal):
    """What a door refuses before a call reaches a tool."""


class BadRequest(DoorError, code="bad_request", words="bad request", http=400):
    """The body is no JSON object, or a header cannot be read."""


class NotFound(DoorError, code="not_found", words="not found", http=404):
    """There is no such route."""


class MethodNotAllowed(DoorError, code="method_not_allowed", words="method not allowed", http=405):
    """The route does not take this method."""


class TooLarge(DoorError, code="too_large", words="too large", http=413):
    """The body is larger than 8 MiB."""


class UnsupportedMediaType(DoorError, code="unsupported_media_type", words="unsupported media type", http=415):
    """The body is not sent as application/json."""


class RateLimited(DoorError, code="rate_limited", words="rate limited", http=429):
    """Too many calls of one principal, or too many failed logins from one address: wait a little."""

    retryable = True


class ConfigurationError(ShampooError):
    """A URL, a profile or an option that cannot be right; the message says how to mend it."""


class EngineError(ConfigurationError):
    """The server behind the URL cannot serve this queue; the message says why, without secrets."""


def _by_code(base: type[Refusal]) -> dict[str, type[Refusal]]:
    return {kind.code: kind for kind in base.__subclasses__()}


TOOL_ERRORS: dict[str, type[Refusal]] = _by_code(ToolError)
OPERATOR_ERRORS: dict[str, type[Refusal]] = _by_code(OperatorError)
DOOR_ERRORS: dict[str, type[Refusal]] = _by_code(DoorError)
REFUSALS: dict[str, type[Refusal]] = TOOL_ERRORS | OPERATOR_ERRORS
