"""What the contract's tests share: callers in every role, calls that must be refused without a trace, and repeats."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ParamSpec

import pytest

from shampoo_queue import Answer, Client, ToolError
from shampoo_queue.errors import REFUSALS, Refusal
from tests.queue import Queue

P = ParamSpec("P")

PROJECT = "p"
MISSING = "00000000-0000-4000-8000-000000000000"

ROLES: dict[str, dict[str, Any]] = {
    "disabled": {"conductor": True, "grants": (PROJECT, "", "*")},
    "worker": {"grants": (PROJECT,)},
    "participant": {"grants": (PROJECT,)},
    "outsider": {"grants": ("q",)},
    "star": {"grants": ("*",)},
    "bare conductor": {"conductor": True},
    "conductor": {"conductor": True, "grants": (PROJECT,)},
    "star conductor": {"conductor": True, "grants": ("*",)},
}


def cast(queue: Queue) -> dict[str, Client]:
    """Register one principal in each role and give their clients; `unknown` is nobody."""
    for role, facts in ROLES.items():
        queue.shampoo.registry.add_principal(role, **facts)
    queue.shampoo.registry.disable_principal("disabled")
    return {role: queue.shampoo.client(role, holder="h") for role in ("unknown", *ROLES)}


def everybody(answer: str, **but: str) -> dict[str, str]:
    """Say what each role is answered: all alike, but for those named (`_` for a space) and those who may not call."""
    answers = dict.fromkeys(ROLES, answer) | {"unknown": "unauthenticated", "disabled": "unauthenticated"}
    return answers | {role.replace("_", " "): other for role, other in but.items()}


def outcome(call: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> str:
    """Make a call, and say how it ended: `done`, or the code of its refusal."""
    try:
        call(*args, **kwargs)
    except ToolError as refusal:
        return refusal.code
    return "done"


_RAW = """
local found, cursor = {}, '0'
repeat
  local page = redis.call('SCAN', cursor, 'MATCH', ARGV[1], 'COUNT', 1000)
  cursor = page[1]
  for _, key in ipairs(page[2]) do
    local kind, content = redis.call('TYPE', key).ok, nil
    if kind == 'hash' then content = redis.call('HGETALL', key)
    elseif kind == 'zset' then content = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
    elseif kind == 'stream' then content = redis.call('XRANGE', key, '-', '+')
    elseif kind == 'list' then content = redis.call('LRANGE', key, 0, -1)
    else content = redis.call('GET', key) end
    found[#found + 1] = { key, kind, content }
  end
until cursor == '0'
return found
"""


def raw(queue: Queue) -> dict[bytes, tuple[bytes, Any]]:
    """Read every key of the profile, in one round trip, to compare before and after."""
    start = queue.key("profile").removesuffix("profile")
    found = queue.command("EVAL", _RAW, 1, queue.key("profile"), f"{start}*")
    return {key: (kind, _fields(content) if kind == b"hash" else content) for key, kind, content in found}


def _fields(flat: list[bytes]) -> dict[bytes, bytes]:
    """Read a hash; a large one may give its fields in another order each time."""
    return dict(zip(flat[::2], flat[1::2], strict=True))


def refused(queue: Queue, code: str, call: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> Refusal:
    """Make a call that must be refused with this code and change no key; give the refusal."""
    before = raw(queue)
    refusal = _refusal(code, call, *args, **kwargs)
    assert raw(queue) == before, f"{code} changed something"
    return refusal


def refused_alike(queue: Queue, code: str, client: Client, tool: str, many: Iterable[Mapping[str, Any]]) -> None:
    """Make calls of which none may tell the caller more than another, nor change a key."""
    before = raw(queue)
    faces = {face(_refusal(code, client.call, tool, arguments)) for arguments in many}
    assert len(faces) == 1, faces
    assert raw(queue) == before, f"{code} changed something"


def _refusal(code: str, call: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> Refusal:
    with pytest.raises(Refusal) as caught:
        call(*args, **kwargs)
    refusal = caught.value
    assert refusal.code == code
    assert type(refusal) is REFUSALS[code]
    assert refusal.message.startswith(refusal.words)
    assert (refusal.retryable, refusal.outcome_unknown) == (False, False)
    return refusal


def face(refusal: Refusal) -> tuple[object, ...]:
    """Everything of a refusal that a caller could tell apart, but for the id of its own call."""
    facts = {name: value for name, value in vars(refusal).items() if name != "request_id"}
    return type(refusal), refusal.args, str(refusal), refusal.http_status, repr(sorted(facts.items()))


def odd_ids(real: str) -> list[str]:
    """Write an id that exists in ways that name nothing, beside ids that never existed."""
    forms = ["{%s}", "urn:uuid:%s", "%s\n", " %s", "%s\0", "%s-", "lane:%s", "*"]
    spelled = [form % real if "%" in form else form for form in forms]
    spelled += [real.upper(), real.replace("-", ""), real[:-1], real[:8] + "*", "", "-", "x" * 10_240, "😀"]
    return [MISSING, str(uuid.uuid4())] + [form for form in spelled if form != real]


# What another tool is called with, when it comes under a request id that is taken.
_ELSEWHERE: dict[str, dict[str, Any]] = {
    "job_complete": {"job_id": MISSING, "outcome": "failed"},
    "job_create": {"kind": "k", "project": PROJECT},
    "job_release": {"job_id": MISSING},
    "job_claim": {"kind": "elsewhere"},
}


def repeats(
    queue: Queue, client: Client, tool: str, arguments: Mapping[str, Any], *others: Mapping[str, Any]
) -> Answer:
    """Make a call and its repeat: the first answer again, and nothing written; with anything else the id is taken.

    ``others`` are arguments that make it another call.
    """
    first = client.call(tool, arguments, request_id="again", fence=None)
    before = raw(queue)
    again = client.call(tool, arguments, request_id="again", fence=None)
    assert again == first
    assert (first.meta.replayed, again.meta.replayed) == (False, True)
    assert (again.meta.fence, again.meta.request_id) == (first.meta.fence, "again")
    assert raw(queue) == before, "a repeat wrote something"
    for other in others:
        refused(queue, "request_id_reused", client.call, tool, other, request_id="again")
    refused(queue, "request_id_reused", client.call, tool, arguments, request_id="again", fence=7)
    refused(queue, "request_id_reused", client.call, tool, arguments, request_id="again", holder="another")
    for name, call in _ELSEWHERE.items():
        if name != tool:
            refused(queue, "request_id_reused", client.call, name, call, request_id="again")
    assert client.call(tool, arguments, request_id="again") == first
    return first


def not_remembered(
    queue: Queue, code: str, client: Client, tool: str, arguments: Mapping[str, Any]
) -> Callable[[], Answer]:
    """Let a call be refused under a request id; give the same call under the same id, which is then a first one."""
    refused(queue, code, client.call, tool, arguments, request_id="once-more")

    def again() -> Answer:
        answer = client.call(tool, arguments, request_id="once-more")
        assert not answer.meta.replayed
        return answer

    return again


def claimed(queue: Queue, conductor: Client, client: Client, lease_seconds: int = 300) -> tuple[str, int]:
    """Let a client claim a fresh job; give its id and the fence."""
    queue.create(conductor, project=PROJECT)
    claim = client.job_claim(lease_seconds=lease_seconds)
    assert claim.fence is not None
    return claim.job_id, claim.fence


def last_event(queue: Queue, entity_id: str) -> dict[str, Any]:
    """Give the newest event of an entity, without its number, its instant and its request id."""
    event = dict(queue.shampoo.history(entity_id, limit=1000)[-1])
    return {name: value for name, value in event.items() if name not in ("id", "at", "request_id")}


def quorum_with(queue: Queue, *participants: str, project: str = PROJECT) -> str:
    """Open a quorum and give its id."""
    return queue.shampoo.registry.open_quorum(project, participants)


def lane(
    queue: Queue,
    conductor: Client,
    *,
    state: str = "open",
    review: str = "",
    quorum_id: str | None = None,
    **facts: Any,
) -> str:
    """Create a lane and bring it to a standing; give its id."""
    quorum_id = quorum_id or quorum_with(queue)
    lane_id = conductor.lane_create(quorum_id=quorum_id, **facts).lane_id
    ways = {"open": (), "cancelled": ("cancelled",), "in_progress": ("in_progress",)}
    for step in ways.get(state, ("in_progress", state)):
        conductor.lane_set_state(lane_id=lane_id, state=step)
    verdicts = {"approved": ("submit", "approve"), "changes_requested": ("submit", "request-changes")}
    for decision in verdicts.get(review, ("submit",) if review else ()):
        conductor.lane_review(lane_id=lane_id, decision=decision)
    return lane_id
