"""The extension tools: renewing, and looks that an executor or an agent may want. They are offered only where a door is
told to; the contract's nine never change by it.

Each is a `contract.Tool` like the nine, and is refused and scoped as they are; `operation` runs one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from .claims import ClaimOperations
from .contract import (
    AnyProject,
    Arguments,
    Id,
    JobRenewResult,
    JobStanding,
    Kind,
    LeaseSeconds,
    Link,
    ListLimit,
    Meta,
    Result,
    Text,
    Tool,
    check,
    limit,
    safe_name,
)
from .errors import InvalidArgument, UnknownTool
from .moves import Operation
from .sight import SightOperations
from .tools import Answer, Caller, _id, iso

Standing = Literal["queued", "delayed", "claimed", "lapsed", "exhausted", "completed", "failed", "damaged"]
Reason = Literal[
    "claimable",
    "leased",
    "delayed",
    "exhausted",
    "terminal",
    "kind_full",
    "behind_other_projects",
    "unindexed",
    "damaged",
]


# Arguments ------------------------------------------------------------------------------------------------------


class ExtensionArguments(Arguments):
    """The arguments of an extension tool; an empty text is a value like any other."""

    def given(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if value is not None}


class JobRenewArguments(ExtensionArguments):
    job_id: Id
    lease_seconds: LeaseSeconds | None = Field(None, description="length of the lease from now on; 300 when absent")


class JobGetArguments(ExtensionArguments):
    job_id: Id


class JobListArguments(ExtensionArguments):
    standing: Standing | None = Field(None, description="only jobs that stand so; queued and claimed as stored")
    kind: Kind | None = Field(None, description="only this kind")
    project: AnyProject | None = Field(None, description="only this project; empty means untagged jobs")
    lane_id: Id | None = Field(None, description="only jobs of this lane")
    owner: Link | None = Field(None, description="only jobs that this client_id owns or ended")
    limit: ListLimit | None = Field(None, description="page size, clamped to 1..100; 50 when absent")
    cursor: Text | None = Field(None, description="the cursor of the page before; absent for the first")


class JobHistoryArguments(ExtensionArguments):
    job_id: Id
    limit: ListLimit | None = Field(None, description="page size, clamped to 1..100; 50 when absent")
    cursor: Text | None = Field(None, description="the cursor of the page before; absent for the first")


class QueueStatusArguments(ExtensionArguments):
    pass


class JobExplainArguments(ExtensionArguments):
    job_id: Id


# Results --------------------------------------------------------------------------------------------------------


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class JobEntry(_Entry):
    """One job as `job_list` shows it; what is unset is an empty string."""

    job_id: str
    standing: Standing
    kind: str
    project: str
    lane_id: str
    state: str
    owner: str
    holder: str
    attempts: int
    fence: int
    lease_until: str
    due_at: str
    created_at: str
    changed_at: str
    result_ref: str
    reason: str
    event: int


class EventEntry(_Entry):
    """One event of a job; what it does not have is left out."""

    id: int
    event: str
    entity_id: str
    actor: str
    at: str
    project: str | None = None
    holder: str | None = None
    from_: str | None = Field(None, alias="from")
    to: str | None = None
    attempts: int | None = None
    fence: int | None = None
    request_id: str | None = None
    reason: str | None = None
    digest: str | None = None


class Counts(_Entry):
    """Jobs without an outcome, each counted once."""

    queued: int
    claimed: int
    delayed: int
    lapsed: int
    exhausted: int
    oldest_since: str
    oldest_seconds: float


class KindCounts(Counts):
    kind: str
    limit: int | None


class JobListResult(Result):
    jobs: list[JobEntry]
    cursor: str
    now: str


class JobHistoryResult(Result):
    events: list[EventEntry]
    cursor: str
    now: str


class QueueStatusResult(Result):
    kinds: list[KindCounts]
    total: Counts
    partial: bool
    damaged: int | None
    now: str


class JobExplainResult(Result):
    job_id: str
    claimable: bool
    reason: Reason
    message: str
    until: str
    since: str
    before: int
    kind: str
    kind_limit: int | None
    attempts: int
    attempts_max: int
    now: str


# Tools ----------------------------------------------------------------------------------------------------------

_UUID = "<uuid>"
_AT = "<iso-8601>"
_COUNTS = {
    "queued": 3,
    "claimed": 1,
    "delayed": 0,
    "lapsed": 0,
    "exhausted": 0,
    "oldest_since": _AT,
    "oldest_seconds": 1.5,
}
_SCOPE = "Only what the caller's grants cover; what is hidden reads as what is missing."
_READS = "Reads only; nothing is recorded."

EXTENSIONS: tuple[Tool, ...] = (
    Tool(
        name="job_renew",
        access="Write · Advanced",
        summary="Hold a claimed job longer, or shorter: from now on for the time given.",
        arguments=JobRenewArguments,
        result=JobRenewResult,
        boundaries="The owner of a live lease alone, under the fence of its claim, which stands beside the arguments "
        "and must be given. A job out of scope reads as missing.",
        lifecycle="The lease ends the given time after the call. No standing changes and no event is recorded.",
        refusals=("job_not_found", "job_already_terminal", "job_not_claimed", "lease_expired"),
        events=(),
        example={"job_id": _UUID, "lease_seconds": 300},
        example_result={"job_id": _UUID, "lease_until": _AT},
    ),
    Tool(
        name="job_get",
        access="Read · Basic",
        summary="Tell how one job stands.",
        arguments=JobGetArguments,
        result=JobStanding,
        boundaries=_SCOPE,
        lifecycle=_READS,
        refusals=("job_not_found",),
        events=(),
        example={"job_id": _UUID},
        example_result={
            "job_id": _UUID,
            "kind": "delivery",
            "project": "shared-ops",
            "lane_id": "",
            "state": "completed",
            "attempts": 1,
            "result_ref": "verdict:<uuid>",
            "reason": "",
            "created_at": _AT,
            "changed_at": _AT,
            "due_at": "",
        },
    ),
    Tool(
        name="job_list",
        access="Read · Basic",
        summary="List jobs, newest change first.",
        arguments=JobListArguments,
        result=JobListResult,
        boundaries=f"{_SCOPE} It leaves no gap in a page. A page may be short before the end: go on with its cursor "
        "until that is empty. A cursor tells how many events the profile has had.",
        lifecycle=_READS,
        refusals=(),
        events=(),
        example={"standing": "exhausted", "limit": 20},
        example_result={
            "jobs": [
                {
                    "job_id": _UUID,
                    "standing": "exhausted",
                    "kind": "delivery",
                    "project": "shared-ops",
                    "lane_id": "",
                    "state": "claimed",
                    "owner": "worker-1",
                    "holder": "host-1/4711",
                    "attempts": 5,
                    "fence": 1_800_000_000_000,
                    "lease_until": _AT,
                    "due_at": "",
                    "created_at": _AT,
                    "changed_at": _AT,
                    "result_ref": "",
                    "reason": "",
                    "event": 4_711,
                }
            ],
            "cursor": "",
            "now": _AT,
        },
    ),
    Tool(
        name="job_history",
        access="Read · Basic",
        summary="Read the events of one job, newest first.",
        arguments=JobHistoryArguments,
        result=JobHistoryResult,
        boundaries=_SCOPE,
        lifecycle=_READS,
        refusals=("job_not_found",),
        events=(),
        example={"job_id": _UUID},
        example_result={
            "events": [
                {
                    "id": 7,
                    "event": "job.created",
                    "entity_id": _UUID,
                    "project": "shared-ops",
                    "actor": "conductor-1",
                    "holder": "host-1/4711",
                    "at": _AT,
                    "to": "queued",
                    "request_id": "create-7",
                    "digest": "<32 hex digits>",
                }
            ],
            "cursor": "",
            "now": _AT,
        },
    ),
    Tool(
        name="queue_status",
        access="Read · Basic",
        summary="Count the jobs that have no outcome yet, by kind.",
        arguments=QueueStatusArguments,
        result=QueueStatusResult,
        boundaries=f"{_SCOPE} partial tells that a bound was reached and counts may be too low; damaged is null unless "
        "the caller covers all projects.",
        lifecycle=_READS,
        refusals=(),
        events=(),
        example={},
        example_result={
            "kinds": [{"kind": "delivery", **_COUNTS, "limit": None}],
            "total": _COUNTS,
            "partial": False,
            "damaged": None,
            "now": _AT,
        },
    ),
    Tool(
        name="job_explain",
        access="Read · Basic",
        summary="Tell whether the caller could claim a job now, and if not, why not.",
        arguments=JobExplainArguments,
        result=JobExplainResult,
        boundaries=_SCOPE,
        lifecycle=_READS,
        refusals=("job_not_found",),
        events=(),
        example={"job_id": _UUID},
        example_result={
            "job_id": _UUID,
            "claimable": False,
            "reason": "delayed",
            "message": "It is not due yet.",
            "until": _AT,
            "since": "",
            "before": 0,
            "kind": "delivery",
            "kind_limit": None,
            "attempts": 1,
            "attempts_max": 5,
            "now": _AT,
        },
    ),
)

BY_NAME: dict[str, Tool] = {tool.name: tool for tool in EXTENSIONS}


# Running one ----------------------------------------------------------------------------------------------------

Given = dict[str, Any]


def _renew(caller: Caller, given: Given, fence: int | None) -> Operation[Mapping[str, Any]]:
    if fence is None:
        raise InvalidArgument("job_renew needs the fence of the claim beside its arguments")
    lease = given.get("lease_seconds", limit("lease_default")) * 1000
    reply = yield from caller.move("job_renew", _id(given["job_id"]), str(lease), fence=fence)
    return {"job_id": given["job_id"], "lease_until": iso(int(reply[0]))}


def _get(caller: Caller, given: Given, fence: int | None) -> Operation[Mapping[str, Any]]:
    return (yield from ClaimOperations(caller).job(given["job_id"])).model_dump()


def _paged(given: Given) -> Given:
    return {"limit": limit("list_default"), **given}


_RUN: dict[str, Callable[[Caller, Given, int | None], Operation[Mapping[str, Any]]]] = {
    "job_renew": _renew,
    "job_get": _get,
    "job_list": lambda caller, given, fence: SightOperations(caller).job_list(**_paged(given)),
    "job_history": lambda caller, given, fence: SightOperations(caller).job_history(**_paged(given)),
    "queue_status": lambda caller, given, fence: SightOperations(caller).queue_status(),
    "job_explain": lambda caller, given, fence: SightOperations(caller).job_explain(**given),
}


def operation(
    caller: Caller, name: str, arguments: Any, *, fence: int | None = None, request_id: str | None = None
) -> Operation[Answer]:
    """Run one extension tool in the caller's name: a plain dict in, a plain dict out.

    Only ``job_renew`` looks at ``fence``, and needs it. ``request_id`` goes into the answer's ``meta``; a repeat does
    no harm without it. Raises `UnknownTool`, `InvalidArgument`, `Unauthenticated`, `Unavailable`, or what the tool
    refuses.
    """
    tool = BY_NAME.get(name) if isinstance(name, str) else None
    if tool is None:
        raise UnknownTool(f"there is no tool {safe_name(name)}")
    if not isinstance(arguments, Mapping):
        raise InvalidArgument("arguments must be an object")
    answer = Answer((yield from _RUN[tool.name](caller, check(tool, arguments).given(), fence)))
    answer.meta = Meta(request_id)
    return answer
