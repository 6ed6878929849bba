"""The contract in one table: the nine tools, their arguments, results, access, refusals, limits and events.

Every door, schema, command, catalogue page and generated file is derived from what stands here; the scripts in
``lua/`` are compared with it by tests. Nothing in this module touches Redis.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PrivateAttr, ValidationError
from pydantic_core import PydanticCustomError

from . import errors
from .errors import InvalidArgument

# Limits -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Limit:
    """One bound of the contract; ``unit`` says what is counted."""

    value: int
    unit: str
    meaning: str


LIMITS: dict[str, Limit] = {
    "kind": Limit(64, "characters", "a job's kind"),
    "project": Limit(128, "characters", "a project, a client_id, a holder, a result_commit"),
    "link": Limit(128, "characters", "job_create's lane_id, depends_on, task_id, assignee_client_id"),
    "place": Limit(512, "characters", "repo, branch, base_ref, worktree"),
    "request_id": Limit(128, "visible ASCII characters", "a request id"),
    "result_ref": Limit(2_048, "UTF-8 bytes", "a result_ref"),
    "payload": Limit(1_048_576, "UTF-8 bytes", "a payload"),
    "lease_min": Limit(1, "seconds", "the shortest lease"),
    "lease_default": Limit(300, "seconds", "the lease when none is asked for"),
    "lease_max": Limit(3_600, "seconds", "the longest lease"),
    "list_default": Limit(50, "entries", "a page of lane_list when no limit is given"),
    "list_max": Limit(100, "entries", "the largest page of lane_list"),
    "attempts": Limit(5, "claims", "attempts of one job"),
    "grants": Limit(1_000, "grants", "grants of one principal"),
    "participants": Limit(1_000, "principals", "participants of one quorum"),
    "star_projects": Limit(64, "projects", "projects a star principal's claim considers: those longest in wait"),
    "history_page": Limit(1_000, "events", "one page of history"),
    "replay_library": Limit(60_000, "milliseconds", "how long the library's own request ids are remembered"),
    "replay_caller": Limit(600_000, "milliseconds", "how long a caller's request ids are remembered"),
    "replay_shelf": Limit(32, "answers", "a caller's remembered ids on one of a principal's 4,096 shelves"),
    "token_stay": Limit(315_360_000, "seconds", "the longest life of a token that expires"),
    "reason": Limit(512, "characters", "a reason in history"),
    "delay": Limit(31_536_000, "seconds", "the longest delay of a job"),
    "limited_kinds": Limit(50, "kinds", "kinds with a limit on how many run at a time"),
    "waiter_kinds": Limit(16, "kinds", "kinds that one idle caller waits for; more wait for any"),
    "wait_look": Limit(8_000, "milliseconds", "the longest time between two looks of an idle caller"),
    "wait_stay": Limit(60_000, "milliseconds", "how long an idle caller stays registered unless it says so again"),
}


def limit(name: str) -> int:
    """Give one limit's number."""
    return LIMITS[name].value


# Arguments ----------------------------------------------------------------------------------------------------

# Unicode category Cc, which is the two ranges and nothing else.
_CONTROLS = r"\x00-\x1f\x7f-\x9f"
_NO_CONTROLS = rf"^[^{_CONTROLS}]*$"
KIND = rf"[^{_CONTROLS}]{{1,{limit('kind')}}}"
_NOT_STAR = rf"^([^*{_CONTROLS}]|[^{_CONTROLS}]{{2,}})?$"


def _at_most_bytes(name: str) -> AfterValidator:
    most = limit(name)

    def check(text: str) -> str:
        if len(text) * 4 > most and len(text.encode()) > most:
            raise PydanticCustomError("too_many_bytes", "is larger than {most} UTF-8 bytes", {"most": f"{most:,}"})
        return text

    return AfterValidator(check)


def _unicode(text: str) -> str:
    """Refuse a lone surrogate; a text without other limits would pass pydantic as it is."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise PydanticCustomError("string_unicode", "must be valid Unicode text") from None
    return text


def _clamped(number: int) -> int:
    return max(1, min(number, limit("list_max")))


Text = Annotated[str, AfterValidator(_unicode)]
Id = Annotated[Text, Field(description="an id; any text that was not made here names nothing")]
Kind = Annotated[str, Field(min_length=1, max_length=limit("kind"), pattern=_NO_CONTROLS)]
Link = Annotated[str, Field(min_length=1, max_length=limit("link"))]
Place = Annotated[str, Field(max_length=limit("place"), pattern=_NO_CONTROLS)]
Commit = Annotated[str, Field(max_length=limit("project"), pattern=_NO_CONTROLS)]
OwnProject = Annotated[str, Field(max_length=limit("project"), pattern=_NOT_STAR)]
AnyProject = Annotated[str, Field(pattern=_NO_CONTROLS)]
Payload = Annotated[str, Field(max_length=limit("payload")), _at_most_bytes("payload")]
ResultRef = Annotated[str, Field(max_length=limit("result_ref")), _at_most_bytes("result_ref")]
LeaseSeconds = Annotated[int, Field(ge=limit("lease_min"), le=limit("lease_max"))]
ListLimit = Annotated[int, AfterValidator(_clamped)]


class Arguments(BaseModel):
    """The arguments of one tool: strict types, nothing unknown, ``None`` for an optional one means absent."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    def given(self) -> dict[str, Any]:
        """Give the arguments that were given, with what the contract calls the same as absent left out."""
        empty_is_absent = EMPTY_IS_ABSENT[type(self)]
        return {
            name: value
            for name, value in self.__dict__.items()
            if value is not None and (value != "" or name not in empty_is_absent)
        }


class JobClaimArguments(Arguments):
    kind: Kind | None = Field(None, description="claim only this kind")
    lease_seconds: LeaseSeconds | None = Field(None, description="length of the lease; 300 when absent")


class JobCompleteArguments(Arguments):
    job_id: Id
    outcome: Literal["completed", "failed"]
    result_ref: ResultRef | None = Field(None, description="opaque pointer at the artifact or verdict, kept as given")


class JobCreateArguments(Arguments):
    kind: Kind = Field(description="what sort of work this is; claims may ask for one kind")
    lane_id: Link | None = Field(None, description="the lane this job belongs to; its project is inherited")
    payload: Payload | None = Field(None, description="opaque text for the executor, kept byte for byte")
    project: OwnProject | None = Field(None, description="the project; absent or empty means untagged")


class JobReleaseArguments(Arguments):
    job_id: Id


class LaneCreateArguments(Arguments):
    quorum_id: Id
    assignee_client_id: Link | None = Field(None, description="a live principal who may submit the lane for review")
    base_ref: Place | None = None
    branch: Place | None = None
    depends_on: Link | None = Field(None, description="a lane of the same quorum")
    repo: Place | None = None
    task_id: Link | None = Field(None, description="a live task")
    worktree: Place | None = None


class LaneListArguments(Arguments):
    limit: ListLimit | None = Field(None, description="page size, clamped to 1..100; 50 when absent")
    project: AnyProject | None = Field(None, description="only this project; empty means untagged lanes")
    quorum_id: Id | None = Field(None, description="only this quorum")
    state: Text | None = Field(None, description="only this execution standing")


class LaneMergeArguments(Arguments):
    lane_id: Id
    outcome: Literal["merged", "conflicted", "skipped"]
    result_commit: Commit | None = Field(None, description="commit pointer; merged needs one")


class LaneReviewArguments(Arguments):
    lane_id: Id
    decision: Literal["submit", "approve", "request-changes"]


class LaneSetStateArguments(Arguments):
    lane_id: Id
    state: Text = Field(description="open, in_progress, done, failed or cancelled")


EMPTY_IS_ABSENT: dict[type[Arguments], frozenset[str]] = {
    JobClaimArguments: frozenset(),
    JobCompleteArguments: frozenset({"result_ref"}),
    JobCreateArguments: frozenset({"payload", "project"}),
    JobReleaseArguments: frozenset(),
    LaneCreateArguments: frozenset({"repo", "branch", "base_ref", "worktree"}),
    LaneListArguments: frozenset(),
    LaneMergeArguments: frozenset({"result_commit"}),
    LaneReviewArguments: frozenset(),
    LaneSetStateArguments: frozenset(),
}


# Results ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Meta:
    """What comes back beside a result: the call's request id, a claim's fence, whether this is a replay."""

    request_id: str | None = None
    fence: int | None = None
    replayed: bool = False
    damaged: tuple[str, ...] = ()
    lease_seconds: int | None = None
    more: bool = True


class Result(BaseModel):
    """A tool's answer. The fields are the contract's keys; ``fence``, ``replayed``, ``request_id`` stand beside."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    _meta: Meta = PrivateAttr(default_factory=Meta)

    @property
    def meta(self) -> Meta:
        return self._meta

    @property
    def replayed(self) -> bool:
        return self._meta.replayed

    @property
    def request_id(self) -> str | None:
        return self._meta.request_id


class JobClaimResult(Result):
    """A claim, or none: then ``claimed`` is false, the object is false, and the other fields are empty.

    ``lease_until`` is ISO-8601 UTC with milliseconds and ``Z``, by the server's clock. ``fence`` numbers this
    acquisition: pass it to ``job_complete`` and ``job_release`` and a late call can never touch a later claim.
    """

    claimed: bool
    job_id: str = ""
    kind: str = ""
    payload: str = ""
    lease_until: str = ""
    attempts: int = 0

    def __bool__(self) -> bool:
        return self.claimed

    @property
    def fence(self) -> int | None:
        return self._meta.fence


class JobCompleteResult(Result):
    job_id: str
    state: Literal["completed", "failed"]
    idempotent: bool = False


class JobCreateResult(Result):
    job_id: str
    state: Literal["queued"]


class JobReleaseResult(Result):
    job_id: str
    state: Literal["queued"]


class LaneCreateResult(Result):
    lane_id: str
    project: str
    state: Literal["open"]


class LaneEntry(BaseModel):
    """One lane as ``lane_list`` shows it; what is unset is an empty string."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    lane_id: str
    quorum_id: str
    project: str
    state: str
    review_state: str
    merge_state: str
    assignee: str
    task_id: str
    result_commit: str
    created_at: str
    changed_at: str


class LaneListResult(Result):
    lanes: list[LaneEntry]
    count: int


class LaneMergeResult(Result):
    lane_id: str
    merge_state: Literal["merged", "conflicted", "skipped"]


class LaneReviewResult(Result):
    lane_id: str
    review_state: Literal["pending", "approved", "changes_requested"]


class LaneSetStateResult(Result):
    lane_id: str
    state: Literal["open", "in_progress", "done", "failed", "cancelled"]


class JobRenewResult(Result):
    """A lease that was renewed; not a tool's answer, but the library's."""

    job_id: str
    lease_until: str


class JobStanding(Result):
    """How one job stands; not a tool's answer, but the library's. What is unset is an empty string.

    ``reason`` is why a job failed, ``due_at`` from when on a delayed job is claimable. Times are ISO-8601 UTC.
    """

    job_id: str
    kind: str
    project: str
    lane_id: str
    state: Literal["queued", "claimed", "completed", "failed"]
    attempts: int
    result_ref: str
    reason: str
    created_at: str
    changed_at: str
    due_at: str

    @property
    def ended(self) -> bool:
        """Whether the job is completed or failed."""
        return self.state in ("completed", "failed")


# Tools --------------------------------------------------------------------------------------------------------

LANE_STATES = ("open", "in_progress", "done", "failed", "cancelled")
JOB_STATES = ("queued", "claimed", "completed", "failed")
LANE_MOVES = {"open": ("in_progress", "cancelled"), "in_progress": ("done", "failed", "cancelled")}
REVIEW_STATES = {"submit": "pending", "approve": "approved", "request-changes": "changes_requested"}

# Any tool can answer these, so the tools' own lists leave them out.
COMMON_REFUSALS = ("unauthenticated", "invalid_argument", "unavailable", "internal")


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool: how it is called, what it answers, who may, and what it refuses, in order."""

    name: str
    access: str
    summary: str
    arguments: type[Arguments]
    result: type[Result]
    boundaries: str
    lifecycle: str
    refusals: tuple[str, ...]
    events: tuple[str, ...]
    example: Mapping[str, Any]
    example_result: Mapping[str, Any]

    @property
    def writes(self) -> bool:
        return self.access.startswith("Write")

    @property
    def conductor_only(self) -> bool:
        return self.access.endswith("Conductor only")

    @property
    def required(self) -> tuple[str, ...]:
        return tuple(name for name, field in self.arguments.model_fields.items() if field.is_required())

    @property
    def optional(self) -> tuple[str, ...]:
        return tuple(name for name, field in self.arguments.model_fields.items() if not field.is_required())

    @property
    def result_keys(self) -> tuple[str, ...]:
        return tuple(self.result.model_fields)


_UUID = "<uuid>"

TOOLS: tuple[Tool, ...] = (
    Tool(
        name="job_claim",
        access="Write · Advanced",
        summary="Take one queued or lapsed job under a lease that only one caller can win.",
        arguments=JobClaimArguments,
        result=JobClaimResult,
        boundaries="Only jobs whose project the caller's grants cover. Nothing there and nothing allowed answer alike. "
        "A job has 5 attempts; claim passes over one that has spent them.",
        lifecycle="queued, or claimed with a lapsed lease, to claimed: the caller owns it, attempts rise by one, the "
        "fence rises. A takeover also records job.reclaimed, naming the former owner.",
        refusals=("request_id_reused",),
        events=("job.claimed", "job.reclaimed"),
        example={"kind": "delivery", "lease_seconds": 300},
        example_result={
            "attempts": 1,
            "claimed": True,
            "job_id": _UUID,
            "kind": "delivery",
            "lease_until": "<iso-8601>",
            "payload": "{}",
        },
    ),
    Tool(
        name="job_complete",
        access="Write · Advanced",
        summary="End a claimed job as completed or failed, and keep a pointer at what came of it.",
        arguments=JobCompleteArguments,
        result=JobCompleteResult,
        boundaries="The owner needs a live lease; a conductor may complete any claimed job in scope, whatever the "
        "lease. A job out of scope reads as missing.",
        lifecycle="claimed to completed or failed, for good. The same outcome again succeeds with idempotent:true and "
        "changes nothing. A lane never moves because a job ended.",
        refusals=(
            "request_id_reused",
            "job_not_found",
            "job_already_terminal",
            "job_not_claimed",
            "lease_expired",
        ),
        events=("job.completed", "job.failed"),
        example={"job_id": _UUID, "outcome": "completed", "result_ref": "verdict:<uuid>"},
        example_result={"job_id": _UUID, "state": "completed"},
    ),
    Tool(
        name="job_create",
        access="Write · Conductor only",
        summary="Create one durable job that an executor or the pump can claim.",
        arguments=JobCreateArguments,
        result=JobCreateResult,
        boundaries="Needs the conductor role and the very grant of the resulting project; star scope never suffices, "
        "untagged work needs the empty grant, and * is no project. With a lane the project is the lane's.",
        lifecycle="The job begins as queued, with no owner.",
        refusals=("denied", "request_id_reused", "lane_not_found", "project_mismatch"),
        events=("job.created",),
        example={"kind": "delivery", "payload": '{"uri":"example"}', "project": "shared-ops"},
        example_result={"job_id": _UUID, "state": "queued"},
    ),
    Tool(
        name="job_release",
        access="Write · Advanced",
        summary="Give a claimed job back, so that another executor can claim it.",
        arguments=JobReleaseArguments,
        result=JobReleaseResult,
        boundaries="The owner or a conductor, in scope; a job out of scope reads as missing. The owner may release "
        "after its lease lapsed, as long as nobody took over.",
        lifecycle="claimed to queued: owner and lease are cleared, attempts are kept.",
        refusals=("request_id_reused", "job_not_found", "job_not_claimed", "lease_expired"),
        events=("job.released",),
        example={"job_id": _UUID},
        example_result={"job_id": _UUID, "state": "queued"},
    ),
    Tool(
        name="lane_create",
        access="Write · Conductor only",
        summary="Create one lane, a reviewable stream of work, under an open quorum.",
        arguments=LaneCreateArguments,
        result=LaneCreateResult,
        boundaries="Needs the conductor role and the very grant of the quorum's project; star scope never suffices. A "
        "quorum that is missing or out of scope reads as unknown_lane.",
        lifecycle="The lane begins as open, with no review and no merge; it inherits the quorum's project for good. "
        "Links are checked now and never again.",
        refusals=(
            "denied",
            "request_id_reused",
            "unknown_lane",
            "quorum_not_open",
            "unknown_client",
            "task_not_found",
            "dependency_not_in_quorum",
        ),
        events=("lane.created",),
        example={"assignee_client_id": "worker-1", "branch": "feat-x", "quorum_id": _UUID, "repo": "saphira-memory"},
        example_result={"lane_id": _UUID, "project": "shared-ops", "state": "open"},
    ),
    Tool(
        name="lane_list",
        access="Read · Advanced",
        summary="List the lanes the caller may see, newest first.",
        arguments=LaneListArguments,
        result=LaneListResult,
        boundaries="Conductors and star principals see every lane of the profile; others need the project and "
        "participation in the quorum. What is hidden leaves no mark and takes no place in the page.",
        lifecycle="Reads only; nothing is recorded.",
        refusals=(),
        events=(),
        example={"limit": 20, "quorum_id": _UUID},
        example_result={
            "count": 1,
            "lanes": [
                {
                    "assignee": "worker-1",
                    "changed_at": "<iso-8601>",
                    "created_at": "<iso-8601>",
                    "lane_id": _UUID,
                    "merge_state": "",
                    "project": "shared-ops",
                    "quorum_id": _UUID,
                    "result_commit": "",
                    "review_state": "",
                    "state": "open",
                    "task_id": "",
                }
            ],
        },
    ),
    Tool(
        name="lane_merge",
        access="Write · Conductor only",
        summary="Record how merging a lane ended; nothing is executed.",
        arguments=LaneMergeArguments,
        result=LaneMergeResult,
        boundaries="Conductors only. merged needs done, approved and a commit; conflicted needs in_progress or done; "
        "skipped needs any standing but done. A recorded merged is final.",
        lifecycle="Records the outcome, and the commit when one is given. Execution and review standing stay.",
        refusals=("denied", "request_id_reused", "unknown_lane", "lane_not_mergeable"),
        events=("lane.merged",),
        example={"lane_id": _UUID, "outcome": "merged", "result_commit": "abc123"},
        example_result={"lane_id": _UUID, "merge_state": "merged"},
    ),
    Tool(
        name="lane_review",
        access="Write · Advanced",
        summary="Submit a lane for review, approve it, or ask for changes.",
        arguments=LaneReviewArguments,
        result=LaneReviewResult,
        boundaries="Verdicts are for conductors, checked before any look-up. Submitting is for a conductor or the "
        "lane's assignee, who must see the lane.",
        lifecycle="Empty or changes_requested to pending on submit; pending to approved or changes_requested on a "
        "verdict. Execution standing stays.",
        refusals=("denied", "request_id_reused", "unknown_lane", "review_closed", "nothing_under_review"),
        events=("lane.reviewed",),
        example={"decision": "approve", "lane_id": _UUID},
        example_result={"lane_id": _UUID, "review_state": "approved"},
    ),
    Tool(
        name="lane_set_state",
        access="Write · Conductor only",
        summary="Move one lane along its execution axis.",
        arguments=LaneSetStateArguments,
        result=LaneSetStateResult,
        boundaries="Conductors only. A missing lane and a standing that does not exist both read as unknown_lane.",
        lifecycle="open to in_progress; in_progress to done or failed; open or in_progress to cancelled. done, failed "
        "and cancelled never change.",
        refusals=("denied", "request_id_reused", "unknown_lane", "illegal_lane_transition"),
        events=("lane.state_changed",),
        example={"lane_id": _UUID, "state": "in_progress"},
        example_result={"lane_id": _UUID, "state": "in_progress"},
    ),
)

BY_NAME: dict[str, Tool] = {tool.name: tool for tool in TOOLS}


# Events -------------------------------------------------------------------------------------------------------

EVENT_FIELDS = (
    "event",
    "entity_id",
    "project",
    "actor",
    "holder",
    "at",
    "from",
    "to",
    "attempts",
    "fence",
    "request_id",
    "reason",
    "digest",
    "prev",
)

# What an event of each name always carries beside event, entity_id, actor and at; an empty text there is a value.
# Everything else is left out when empty.
EVENT_FACTS: dict[str, tuple[str, ...]] = {
    "job.created": ("project", "to", "digest"),
    "job.claimed": ("project", "from", "to", "attempts", "fence"),
    "job.reclaimed": ("project", "reason"),
    "job.completed": ("project", "from", "to", "attempts", "fence"),
    "job.failed": ("project", "from", "to", "attempts"),
    "job.released": ("project", "from", "to", "attempts", "fence"),
    "job.requeued": ("project", "from", "to", "attempts", "fence"),
    "kind.limited": ("from", "to"),
    "lane.created": ("project", "to", "digest"),
    "lane.state_changed": ("project", "from", "to"),
    "lane.reviewed": ("project", "from", "to"),
    "lane.merged": ("project", "from", "to"),
    "principal.added": ("to",),
    "principal.granted": ("project",),
    "principal.revoked": ("project",),
    "principal.conductor_set": ("from", "to"),
    "principal.disabled": ("from", "to"),
    "principal.enabled": ("from", "to"),
    "quorum.opened": ("project", "to", "digest"),
    "quorum.closed": ("project", "from", "to"),
    "quorum.participant_added": ("project", "reason"),
    "quorum.participant_removed": ("project", "reason"),
    "task.added": ("to",),
    "task.closed": ("from", "to"),
    "token.issued": ("to", "reason"),
    "token.replaced": ("from", "to", "reason"),
    "token.revoked": ("from", "to", "reason"),
}


# Checking arguments -------------------------------------------------------------------------------------------


def check(tool: Tool, arguments: Mapping[str, Any]) -> Arguments:
    """Check one call's arguments, or raise `InvalidArgument` with a sentence that says what is wrong.

    The sentence names the argument and the rule, never the value. Nothing here depends on what exists.
    """
    for name in arguments:
        if name not in tool.arguments.model_fields:
            raise InvalidArgument(f"{tool.name} takes no argument {safe_name(name)}")
    try:
        return tool.arguments.model_validate(arguments)
    except ValidationError as error:
        raise InvalidArgument(_sentence(tool, error)) from None


def safe_name(name: object) -> str:
    """Show a name that came from outside: printable ASCII, quoted, at most 40 characters."""
    text = name if isinstance(name, str) else type(name).__name__
    shown = "".join(c if " " <= c <= "~" and c not in "\"'`\\" else "?" for c in text[:40])
    return f"'{shown}{'…' if len(text) > 40 else ''}'"


def _sentence(tool: Tool, error: ValidationError) -> str:
    """Say what is wrong with the first argument at fault."""
    first = error.errors(include_url=False, include_input=True)[0]
    name = str(first["loc"][0])
    context = first.get("ctx", {})
    match first["type"]:
        case "missing":
            return f"{name} is required"
        case _ if first["input"] is None:
            return f"{name} is required"
        case "string_type":
            return f"{name} must be a string"
        case "string_unicode":
            return f"{name} must be valid Unicode text"
        case "string_too_short":
            rest = "" if name in tool.required else "; omit it instead"
            return f"{name} must not be empty{rest}"
        case "string_too_long" if name in ("payload", "result_ref"):  # longer in characters, so also in bytes
            return f"{name} is larger than {limit(name):,} UTF-8 bytes"
        case "string_too_long":
            return f"{name} is longer than {context['max_length']:,} characters"
        case "string_pattern_mismatch" if first["input"] == "*":
            return f"{name} must not be '*'"
        case "string_pattern_mismatch":
            return f"{name} must not hold control characters"
        case "int_type":
            return f"{name} must be a whole number"
        case "greater_than_equal" | "less_than_equal":
            return f"{name} must be from {limit('lease_min')} to {limit('lease_max')}"
        case "literal_error":
            return f"{name} must be {context['expected']}"
        case "too_many_bytes":
            return f"{name} {first['msg']}"
        case other:  # pragma: no cover - a kind of error the models above cannot produce today
            return f"{name} is not acceptable ({other})"


# Schemas ------------------------------------------------------------------------------------------------------


def argument_schema(tool: Tool | str) -> dict[str, Any]:
    """Give a tool's JSON Schema for its arguments: nothing unknown, ``null`` allowed where optional, no default."""
    return _schema((BY_NAME[tool] if isinstance(tool, str) else tool).arguments)


def result_schema(tool: Tool | str) -> dict[str, Any]:
    """Give a tool's JSON Schema for its result; a claim has exactly two shapes."""
    return _schema((BY_NAME[tool] if isinstance(tool, str) else tool).result)


@cache
def _schema(model: type[BaseModel]) -> dict[str, Any]:
    schema: dict[str, Any] = _plain(model.model_json_schema())
    if model is JobClaimResult:
        keys = list(schema["properties"])
        won = schema | {"properties": schema["properties"] | {"claimed": {"const": True}}, "required": keys}
        none = {
            "type": "object",
            "properties": {"claimed": {"const": False}},
            "required": ["claimed"],
            "additionalProperties": False,
        }
        return {"type": "object", "oneOf": [won, none]}
    if model is JobCompleteResult:
        schema["properties"]["idempotent"] = {"const": True}
    return schema


def _plain(schema: Any) -> Any:
    """Drop what pydantic adds for itself: titles, defaults, and the docstrings of our own classes."""
    if isinstance(schema, list):
        return [_plain(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    dropped = {"title", "default"} | ({"description"} if schema.get("type") == "object" else set())
    return {
        key: {name: _plain(part) for name, part in value.items()} if key in ("properties", "$defs") else _plain(value)
        for key, value in schema.items()
        if key not in dropped
    }


assert set(COMMON_REFUSALS) <= set(errors.TOOL_ERRORS), "the common refusals are refusals"
