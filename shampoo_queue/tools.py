"""Turn a tool call into a move and a script's reply into the contract's answer, without any I/O.

`Caller` holds who calls; its operations are generators that `wire` runs, blocking or on asyncio. The typed methods
in ``facade.py`` are generated on top of `Caller.call`.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import os
import re
import secrets
import socket
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

import orjson

from . import contract
from .contract import BY_NAME, Meta, Tool, check, limit, safe_name
from .errors import InvalidArgument, ToolError, Unauthenticated, UnknownTool
from .moves import Move, Operation
from .tokens import Presented

log = logging.getLogger("shampoo_queue")

R = TypeVar("R", bound=contract.Result)

# An id of any other form names nothing, and is not sent: a key that can never exist stands for all of them.
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
NOTHING = "-"

_REQUEST_ID = re.compile(r"[\x21-\x7e]{1,128}")
_LIBRARY_ID = re.compile(r"~([A-Za-z0-9_-]{12}\.\d{1,9})\.\d{1,15}")
_SHELVES = 4_096


class Answer(dict[str, Any]):
    """The contract's result object. What stands beside it is in ``meta``: fence, replayed, request_id."""

    meta: Meta = Meta()


# Request ids ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Series:
    """The ids of one process: nothing of it is shared with a forked child, which begins a series of its own."""

    pid: int
    name: str
    numbers: Iterator[int]
    slots: Iterator[int]
    free: list[int]


@dataclass(frozen=True, slots=True)
class Taken:
    """One library id in use, and the slot that goes back when the outcome of its call is known."""

    request_id: str
    slot: int
    series: _Series

    def give_back(self) -> None:
        self.series.free.append(self.slot)


class RequestIds:
    """The library's own request ids: ``~client.slot.number``, the number rising with every call.

    A slot serves one call at a time, so the server keeps one small record a slot, replaced by the next call: what
    it remembers is bounded by the calls in flight, not by the calls made. A call without an answer keeps its slot
    for good, so that its record cannot be replaced before its owner comes back to ask.
    """

    def __init__(self) -> None:
        self._series = self._begun()

    @staticmethod
    def _begun() -> _Series:
        return _Series(os.getpid(), secrets.token_urlsafe(9), itertools.count(1), itertools.count(), [])

    def take(self) -> Taken:
        """Give a fresh id in a free slot. Threads of a forked child may begin a series each; none shares one."""
        series = self._series
        if series.pid != os.getpid():
            series = self._series = self._begun()
        try:
            slot = series.free.pop()
        except IndexError:
            slot = next(series.slots)
        return Taken(f"~{series.name}.{slot}.{next(series.numbers)}", slot, series)


def slot_of(request_id: str) -> str:
    """Name the record in which the server remembers an id."""
    own = _LIBRARY_ID.fullmatch(request_id)
    if own:
        return own[1]
    return f"ids-{int.from_bytes(hashlib.blake2b(request_id.encode(), digest_size=4).digest()) % _SHELVES:03x}"


def digest_of(*facts: Any) -> str:
    """Give a short digest that tells one call from another under the same request id."""
    return hashlib.blake2b(orjson.dumps(facts, option=orjson.OPT_SORT_KEYS), digest_size=12).hexdigest()


def check_request_id(request_id: Any) -> str:
    """Check a request id that the caller chose."""
    if isinstance(request_id, str) and _REQUEST_ID.fullmatch(request_id):
        return request_id
    raise InvalidArgument(f"request_id must be 1 to {limit('request_id')} visible ASCII characters")


def check_holder(holder: Any) -> str:
    """Check a holder's name."""
    if isinstance(holder, str) and len(holder) <= limit("project") and is_unicode(holder):
        return holder
    raise InvalidArgument(f"holder must be text of at most {limit('project')} characters")


def check_fence(fence: Any) -> str:
    """Check a fence, and spell it as the scripts compare it; empty when none was given."""
    if fence is None:
        return ""
    if isinstance(fence, int) and not isinstance(fence, bool) and -(10**18) < fence < 10**18:
        return str(fence)
    raise InvalidArgument("fence must be a whole number")


def is_unicode(text: str) -> bool:
    """Tell whether a text can be UTF-8: no lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def own_holder() -> str:
    """Name this process: host/pid."""
    return f"{socket.gethostname()[:100]}/{os.getpid()}"


# Moves and answers ----------------------------------------------------------------------------------------------


def iso(milliseconds: int) -> str:
    """Write an instant as the doors do: ISO-8601, UTC, milliseconds, Z."""
    seconds, rest = divmod(milliseconds, 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:03d}Z"


def stamp(milliseconds: str) -> str:
    """Write an instant as it is stored; empty when it was edited beyond reading."""
    readable = milliseconds.isascii() and milliseconds.isdigit() and len(milliseconds) < 15
    return iso(int(milliseconds)) if readable else ""


def number(digits: str) -> int:
    """Read a count as it is stored; 0 when it was edited beyond reading."""
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 19 else 0


def text(value: Any) -> str:
    """Read one text of a reply. Bytes that are not UTF-8, which no door lets in, show as replacement characters."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _id(value: str) -> str:
    return value if _UUID.fullmatch(value) else NOTHING


Given = Mapping[str, Any]
Spelled = tuple[str, ...]
Read = Callable[[Given, list[Any]], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Spelling:
    """How one tool's arguments go into its script, and how the script's reply comes out."""

    arguments: Callable[[Given], Spelled]
    answer: Read
    replayed: Callable[[list[Any]], bool]


def _last_is(word: bytes | str) -> Callable[[list[Any]], bool]:
    return lambda reply: text(reply[-1]) == word


def _claim(given: Given, reply: list[Any]) -> dict[str, Any]:
    job_id, kind, payload, lease_until, attempts = map(text, reply[:5])
    if not job_id:
        return {"claimed": False}
    return {
        "claimed": True,
        "job_id": job_id,
        "kind": kind,
        "payload": payload,
        "lease_until": iso(int(lease_until)),
        "attempts": int(attempts),
    }


def _complete(given: Given, reply: list[Any]) -> dict[str, Any]:
    answer = {"job_id": given["job_id"], "state": text(reply[0])}
    return answer | {"idempotent": True} if len(reply) > 1 else answer


def immutable(*facts: str) -> str:
    """Give the digest of an entry's immutable facts that its creation event carries: 32 hex digits of SHA-256 over
    the JSON list of them. A job's are job_id, kind, lane_id, payload; a lane's lane_id, quorum_id, assignee, task_id,
    depends_on, repo, branch, base_ref, worktree; a quorum's quorum_id, project. The event names the project itself.
    """
    return hashlib.sha256(orjson.dumps(facts)).hexdigest()[:32]


def _created_job(given: Given) -> Spelled:
    job_id, kind, payload = str(uuid.uuid4()), given["kind"], given.get("payload", "")
    lane_id = _id(given["lane_id"]) if "lane_id" in given else ""
    return (job_id, kind, payload, given.get("project", ""), lane_id, immutable(job_id, kind, lane_id, payload))


def _created_lane(given: Given) -> Spelled:
    facts = (
        str(uuid.uuid4()),
        _id(given["quorum_id"]),
        given.get("assignee_client_id", ""),
        given.get("task_id", ""),
        _id(given["depends_on"]) if "depends_on" in given else "",
        *(given.get(name, "") for name in ("repo", "branch", "base_ref", "worktree")),
    )
    return (*facts, immutable(*facts))


def _listed(given: Given) -> Spelled:
    quorum, project, state = given.get("quorum_id"), given.get("project"), given.get("state")
    return (
        "" if quorum is None else "quorum_id",
        NOTHING if quorum is None else _id(quorum),
        "" if project is None else "project",
        (project or "") if len(project or "") <= limit("project") else "*",
        "" if state is None else "state",
        state if state in contract.LANE_STATES else "",
        str(given.get("limit", limit("list_default"))),
    )


def _lanes(given: Given, reply: list[Any]) -> dict[str, Any]:
    names = list(contract.LaneEntry.model_fields)
    lanes = [dict(zip(names, map(text, lane), strict=True)) for lane in reply]
    for lane in lanes:
        lane |= {name: stamp(lane[name]) for name in ("created_at", "changed_at")}
    return {"lanes": lanes, "count": len(lanes)}


SPELLINGS: dict[str, Spelling] = {
    "job_claim": Spelling(
        lambda given: (given.get("kind", ""), str(given.get("lease_seconds", limit("lease_default")) * 1000)),
        _claim,
        lambda reply: text(reply[6]) == "replay",
    ),
    "job_complete": Spelling(
        lambda given: (_id(given["job_id"]), given["outcome"], given.get("result_ref", "")),
        _complete,
        _last_is("idempotent"),
    ),
    "job_create": Spelling(
        _created_job,
        lambda given, reply: {"job_id": text(reply[0]), "state": "queued"},
        _last_is("replay"),
    ),
    "job_release": Spelling(
        lambda given: (_id(given["job_id"]),),
        lambda given, reply: {"job_id": given["job_id"], "state": "queued"},
        _last_is("replay"),
    ),
    "lane_create": Spelling(
        _created_lane,
        lambda given, reply: {"lane_id": text(reply[0]), "project": text(reply[1]), "state": "open"},
        lambda reply: len(reply) == 3,
    ),
    "lane_list": Spelling(_listed, _lanes, lambda reply: False),
    "lane_merge": Spelling(
        lambda given: (_id(given["lane_id"]), given["outcome"], given.get("result_commit", "")),
        lambda given, reply: {"lane_id": given["lane_id"], "merge_state": text(reply[0])},
        _last_is("replay"),
    ),
    "lane_review": Spelling(
        lambda given: (_id(given["lane_id"]), given["decision"]),
        lambda given, reply: {"lane_id": given["lane_id"], "review_state": text(reply[0])},
        _last_is("replay"),
    ),
    "lane_set_state": Spelling(
        lambda given: (_id(given["lane_id"]), given["state"] if given["state"] in contract.LANE_STATES else NOTHING),
        lambda given, reply: {"lane_id": given["lane_id"], "state": text(reply[0])},
        _last_is("replay"),
    ),
}


class Caller:
    """One principal, as one holder: the operations behind `Client` and `AsyncClient`.

    ``client_id`` may be a token that somebody presents: the server finds whose it is, in the same move.
    """

    def __init__(self, client_id: Any, holder: str | None = None, ids: RequestIds | None = None) -> None:
        self.client_id = client_id
        self._given_holder = None if holder is None else check_holder(holder)
        self._holder = (os.getpid(), own_holder() if holder is None else holder)
        self._ids = ids or RequestIds()

    @property
    def holder(self) -> str:
        """The process in whose name calls go out; a forked child has one of its own."""
        pid, holder = self._holder
        if pid != os.getpid():
            pid, given = os.getpid(), self._given_holder
            holder = own_holder() if given is None else f"{given[: limit('project') - 12]}+{pid}"
            self._holder = (pid, holder)
        return holder

    def call(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        request_id: str | None = None,
        fence: int | None = None,
        holder: str | None = None,
        also: Spelled = (),
    ) -> Operation[Answer]:
        """Call a tool by name: a plain dict in, the contract's result object out.

        ``None`` beside the arguments means not given. Raises `ToolError`, always with ``request_id``: for
        `Unavailable` with ``outcome_unknown``, repeat the call under that id to learn what became of it.
        """
        # ``also`` is what the library alone may tell a tool's script: a delay, a reason.
        taken = self._ids.take() if request_id is None else None
        known_as = taken.request_id if taken else request_id
        try:
            answer = yield from self._called(
                tool, {} if arguments is None else arguments, known_as, fence, holder, also
            )
        except ToolError as error:
            if taken and not error.outcome_unknown:
                taken.give_back()
            error.request_id = known_as if isinstance(known_as, str) else None
            raise
        if taken:
            taken.give_back()
        return answer

    def typed(
        self,
        result: type[R],
        tool: str,
        arguments: Mapping[str, Any],
        *,
        request_id: str | None = None,
        fence: int | None = None,
        also: Spelled = (),
    ) -> Operation[R]:
        """Call a tool and give its typed result."""
        answer = yield from self.call(tool, arguments, request_id=request_id, fence=fence, also=also)
        found = result.model_validate(answer)
        found._meta = answer.meta
        return found

    def move(self, script: str, *arguments: str, fence: int | None = None) -> Operation[Any]:
        """Run a script that is no tool's in the principal's name. It needs no request id: a repeat does no harm."""
        beside = (self._known(), self.holder, "", "", "", check_fence(fence))
        return (yield Move(script, (*beside, *arguments)))

    def _known(self) -> str:
        """Give the client_id, unless no principal can have it; or a token as the piece `token` reads it."""
        if isinstance(self.client_id, Presented):
            return str(self.client_id)
        if not isinstance(self.client_id, str) or len(self.client_id) > limit("project"):
            raise Unauthenticated
        if self.client_id.startswith("\0"):
            raise Unauthenticated
        if not is_unicode(self.client_id):
            raise Unauthenticated
        return self.client_id

    def _called(
        self, name: Any, arguments: Any, request_id: Any, fence: Any, holder: Any, also: Spelled
    ) -> Operation[Answer]:
        tool = BY_NAME.get(name) if isinstance(name, str) else None
        if tool is None:
            raise UnknownTool(f"there is no tool {safe_name(name)}")
        if not isinstance(arguments, Mapping):
            raise InvalidArgument("arguments must be an object")
        given = check(tool, arguments).given()
        check_request_id(request_id)
        fence = check_fence(fence)
        holder = self.holder if holder is None else check_holder(holder)
        client_id = self._known()
        spelling = SPELLINGS[tool.name]
        move = Move(
            tool.name,
            (
                client_id,
                holder,
                request_id if tool.writes else "",
                slot_of(request_id) if tool.writes else "",
                digest_of(tool.name, holder, fence, _normal(tool, given), *also) if tool.writes else "",
                fence,
                *spelling.arguments(given),
                *also,
            ),
            request_id,
        )
        reply = yield move
        answer = Answer(spelling.answer(given, reply))
        won = tool.name == "job_claim" and answer["claimed"]
        aside = text(reply[7]).split() if tool.name == "job_claim" and len(reply) > 7 else []
        for job_id in aside:
            log.warning("job %s was edited beyond use; a claim set it aside (see `shampoo job show`)", job_id)
        answer.meta = Meta(
            request_id,
            int(reply[5]) if won else None,
            spelling.replayed(reply),
            tuple(aside),
            given.get("lease_seconds", limit("lease_default")) if won else None,
            not won or len(reply) < 9 or text(reply[8]) == "more",
        )
        return answer


def _normal(tool: Tool, given: Given) -> dict[str, Any]:
    """Fill in the defaults that make two spellings of one call the same call."""
    if tool.name == "job_claim":
        return {"lease_seconds": limit("lease_default"), **given}
    return dict(given)
