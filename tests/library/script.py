"""One long scripted run over all that the library offers, told in words without drawn ids, so that runs compare.

`told` plays it; `Names` puts a number in the place of everything that is drawn at random.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from shampoo_queue import Answer, Event, ShampooError
from shampoo_queue.contract import Result
from tests.queue import Clock, Queue

_DRAWN = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"  # an id
    r"|(?<=~)[\w-]{12}(?=\.)|(?<=replay:)[\w-]{12}(?=\.)"  # a client's name in its request ids
)
_TOKEN = re.compile(r"shp_([0-9A-Za-z]{12})_[0-9A-Za-z]{46}")
_DIGEST = re.compile(r"(?<![0-9a-f])(?:[0-9a-f]{24}|[0-9a-f]{32}|[0-9a-f]{64})(?![0-9a-f])")


class Names:
    """Numbers for what is drawn at random, in the order in which it is first met; digests of it are just that."""

    def __init__(self, profile: str) -> None:
        self._profile = profile
        self._known: dict[str, str] = {}
        self._tokens: dict[str, str] = {}

    def plain(self, value: Any) -> Any:
        text = json.dumps(value, ensure_ascii=False).replace(self._profile, "profile")
        for token in _TOKEN.finditer(text):
            self._tokens.setdefault(token[1], f"token-{len(self._tokens)}")
        text = _TOKEN.sub(r"\1 in full", text)
        for token_id, named in self._tokens.items():
            text = text.replace(token_id, named)
        return json.loads(_DIGEST.sub("digest", _DRAWN.sub(self._named, text)))

    def _named(self, found: re.Match[str]) -> str:
        return self._known.setdefault(found[0], f"drawn-{len(self._known)}")


def shown(found: Any) -> Any:
    """Give an answer with all that stands beside it, as plain data."""
    if isinstance(found, Result):
        return [type(found).__name__, found.model_dump(), dataclasses.asdict(found.meta), bool(found)]
    if isinstance(found, Answer):
        return [dict(found), dataclasses.asdict(found.meta)]
    if isinstance(found, ShampooError):
        return [type(found).__name__, str(found), getattr(found, "request_id", None)]
    if isinstance(found, Event):
        return [*found.items()]
    if isinstance(found, list):
        return [shown(part) for part in found]
    return dataclasses.asdict(found) if dataclasses.is_dataclass(found) and not isinstance(found, type) else found


class Telling:
    """The run so far: each step's answer, or its refusal, in order."""

    def __init__(self) -> None:
        self.said: list[Any] = []

    def ask(self, act: Callable[..., Any], *given: Any, **named: Any) -> Any:
        try:
            found = act(*given, **named)
        except ShampooError as refused:
            found = refused
        self.said.append(shown(found))
        return found


def told(shampoo: Any, clock: Clock) -> list[Any]:
    """Play the run through an opened queue, in either flavour, on a clock that stands still."""
    telling = Telling()
    _registry(telling.ask, shampoo)
    _jobs(telling.ask, shampoo, clock)
    _remembered(telling.ask, shampoo, clock)
    _lanes(telling.ask, shampoo, clock)
    _operators(telling.ask, shampoo, clock)
    _beside_the_tools(telling.ask, shampoo, clock)
    telling.ask(shampoo.history, limit=1000)
    return telling.said


def _registry(ask: Callable[..., Any], shampoo: Any) -> None:
    registry = shampoo.registry
    ask(registry.add_principal, "c", conductor=True, grants=["p", "q", "", "a:b", "*"])
    ask(registry.add_principal, "c", conductor=True, grants=["p", "q", "", "a:b", "*"])
    ask(registry.add_principal, "c")
    ask(registry.add_principal, "w", grants=["p"])
    ask(registry.add_principal, "star", grants=["*"])
    ask(registry.add_principal, "many", grants=[f"g{n}" for n in range(120)])
    for change in (registry.grant, registry.grant, registry.revoke, registry.revoke):
        ask(change, "w", "q")
    ask(registry.grant, "nobody", "q")
    for change in (registry.disable_principal, registry.disable_principal, registry.enable_principal):
        ask(change, "w")
    for conductor in (True, True, False):
        ask(registry.set_conductor, "w", conductor)
    ask(registry.add_task, "t")
    ask(registry.add_task, "t2")
    ask(registry.close_task, "t2")
    ask(registry.add_task, "t2")
    for given in ({"expires_seconds": 60}, {"scope": "metrics"}, {"scope": "all"}):
        ask(registry.issue_token, "w", **given)
    token_ids = [token.token_id for token in registry.tokens()]
    ask(registry.rotate_token, token_ids[0], overlap_seconds=5)
    for _ in range(2):
        ask(registry.revoke_token, token_ids[1])
    ask(registry.rotate_token, token_ids[1])
    ask(registry.revoke_token, "0" * 12)
    for listed in (registry.principals, registry.quorums, registry.tasks, registry.tokens):
        ask(listed)


def _jobs(ask: Callable[..., Any], shampoo: Any, clock: Clock) -> None:
    c, w, star = (shampoo.client(name, holder="h") for name in ("c", "w", "star"))
    for n, (kind, project) in enumerate((("k", "p"), ("l", "p"), ("k", "q"), ("k", ""), ("k:l", "a:b"), ("k", "*"))):
        ask(c.job_create, kind=kind, project=project, payload=f'{{"n":{n},"text":"é\x00\\n🧴"}}')
        clock.advance(0.001)
    ask(w.job_create, kind="k", project="p")
    ask(c.job_create, kind="k", project="not granted")
    ask(c.job_create, kind="k", project="p", lane_id="x")
    ask(c.job_create, kind="", project="p")
    first = ask(w.job_claim, lease_seconds=2)
    ask(w.job_claim, kind="none")
    second = ask(w.job_claim, kind="l")
    ask(w.job_claim)
    ask(star.job_claim)
    ask(c.call, "job_claim", {"kind": "k:l"})
    ask(w.job_complete, job_id=second.job_id, outcome="completed", result_ref="r\x00ef", fence=second.fence)
    for outcome in ("completed", "failed"):
        ask(w.job_complete, job_id=second.job_id, outcome=outcome)
    ask(star.job_complete, job_id=second.job_id, outcome="completed")
    clock.advance(2)
    ask(w.job_complete, job_id=first.job_id, outcome="completed")
    again = ask(star.job_claim, kind="k", lease_seconds=1)
    ask(w.job_release, job_id=again.job_id)
    for fence in ((again.fence or 0) - 1, again.fence):
        ask(star.job_release, job_id=again.job_id, fence=fence)
    ask(star.job_release, job_id=again.job_id)
    for _ in range(6):
        ask(c.job_claim, lease_seconds=1)
        clock.advance(1)
    ask(shampoo.client("nobody").job_claim)


def _remembered(ask: Callable[..., Any], shampoo: Any, clock: Clock) -> None:
    c = shampoo.client("c", holder="h")
    for arguments in ({"kind": "r"}, {"kind": "r"}, {"kind": "other"}):
        ask(c.call, "job_create", {"project": "p", **arguments}, request_id="r-1")
    for _ in range(2):
        claim = ask(c.call, "job_claim", {"kind": "r", "lease_seconds": 5}, request_id="r-2")
    for _ in range(2):
        ask(c.call, "job_release", {"job_id": claim["job_id"]}, request_id="r-3", fence=claim.meta.fence)
    ask(c.call, "job_claim", {"kind": "r", "lease_seconds": 5}, request_id="r-2")
    clock.advance(600)
    ask(c.call, "job_create", {"kind": "r", "project": "p"}, request_id="r-1")


def _lanes(ask: Callable[..., Any], shampoo: Any, clock: Clock) -> None:
    registry = shampoo.registry
    c, w, star = (shampoo.client(name, holder="h") for name in ("c", "w", "star"))
    quorums = [ask(registry.open_quorum, project, members) for project, members in (("p", ["w"]), ("q", []), ("", []))]
    ask(registry.open_quorum, "p", ["nobody"])
    ask(registry.add_participant, quorums[1], "w")
    ask(registry.remove_participant, quorums[1], "w")
    lane = ask(c.lane_create, quorum_id=quorums[0], assignee_client_id="w", task_id="t", repo="r", branch="b/é")
    ask(c.lane_create, quorum_id=quorums[0], depends_on=lane.lane_id, base_ref="x", worktree="y")
    for quorum, more in (
        (quorums[1], {"depends_on": lane.lane_id}),
        (quorums[0], {"assignee_client_id": "nobody"}),
        (quorums[0], {"task_id": "t2"}),
        ("x", {}),
    ):
        ask(c.lane_create, quorum_id=quorum, **more)
    ask(star.lane_create, quorum_id=quorums[0])
    ask(registry.close_quorum, quorums[2])
    ask(c.lane_create, quorum_id=quorums[2])
    ask(c.lane_create, quorum_id=quorums[1])
    clock.advance(1)
    ask(w.lane_review, lane_id=lane.lane_id, decision="submit")
    ask(w.lane_review, lane_id=lane.lane_id, decision="approve")
    for decision in ("request-changes", "approve", "submit", "submit", "approve"):
        ask(c.lane_review, lane_id=lane.lane_id, decision=decision)
    for state in ("done", "in_progress", "in_progress", "done", "cancelled", "nonsense"):
        ask(c.lane_set_state, lane_id=lane.lane_id, state=state)
    for outcome, commit in (
        ("merged", None),
        ("conflicted", "one"),
        ("skipped", None),
        ("merged", "two"),
        ("merged", "x"),
    ):
        ask(c.lane_merge, lane_id=lane.lane_id, outcome=outcome, result_commit=commit)
    ask(c.job_create, kind="k", lane_id=lane.lane_id)
    ask(c.job_create, kind="k", lane_id=lane.lane_id, project="q")
    filters: list[Mapping[str, Any]] = [{}, {"limit": 1}, {"project": ""}, {"project": "p"}, {"quorum_id": quorums[0]}]
    filters += [{"state": "done"}, {"state": "nonsense"}, {"quorum_id": quorums[1], "project": "p"}, {"quorum_id": "x"}]
    for given in filters:
        for client in (c, w, star):
            ask(client.lane_list, **given)
    ask(shampoo.ops.lane, lane.lane_id)


def _operators(ask: Callable[..., Any], shampoo: Any, clock: Clock) -> None:
    c, ops = shampoo.client("c", holder="h"), shampoo.ops
    worn = ask(c.job_create, kind="worn", project="p", payload="x")
    for _ in range(6):
        ask(c.job_claim, kind="worn", lease_seconds=1)
        clock.advance(1)
    for act in (ops.requeue, ops.requeue, ops.job, ops.payload):
        ask(act, worn.job_id)
    for reason in ("because\x1b[0m\x00", "again", ""):
        ask(ops.cancel, worn.job_id, reason)
    ask(ops.job, "x")
    ask(ops.expire)
    ask(shampoo.history, worn.job_id)
    ask(shampoo.history, after=3, limit=5)


def _beside_the_tools(ask: Callable[..., Any], shampoo: Any, clock: Clock) -> None:
    c, w, ops = shampoo.client("c", holder="h"), shampoo.client("w", holder="h"), shampoo.ops
    delayed = ask(c.job_create, kind="d", project="p", delay_seconds=1.5)
    for seconds in (0, 1.499, 0.001):
        clock.advance(seconds)
        held = ask(w.claim_wait, ["e", "d"], timeout=0)
    for lease in (None, 7, 0, True):
        ask(w.renew, held, lease_seconds=lease)
    ask(c.renew, held)
    ask(c.job, delayed.job_id)
    ask(w.release, held, delay_seconds=2, reason="later\x00\ud800")
    ask(w.renew, held)
    ask(w.job, delayed.job_id)
    ask(w.job, "x")
    clock.advance(2)
    again = ask(w.job_claim, kind="d", lease_seconds=1)
    clock.advance(1)
    ask(w.renew, again)
    again = ask(w.job_claim, kind="d")
    for _ in range(2):
        ask(w.fail, again, reason="why", result_ref="r")
    ask(w.renew, again)
    ask(w.wait, delayed.job_id, timeout=0)
    for most in (1, 1, 2, None, None, 0, "1"):
        ask(ops.limit_kind, "d", most)
    ask(ops.limit_kind, "m", 2)
    ask(c.create_many, [{"kind": "m", "project": project} for project in ("p", "p", "not granted", "p")])
    claims = ask(w.claim_many, 5, kind="m")
    ask(ops.kind_limits)
    ask(w.renew_many, claims)
    ask(w.complete_many, [(claim, None) for claim in claims])
    ask(w.claim_many, 0)
    ask(ops.limit_kind, "m", None)


def stored(queue: Queue, names: Names) -> list[Any]:
    """Every raw key of the profile, in the same words, in an order that ids have no part in."""
    found = []
    for key, (kind, content) in queue.facts().items():
        plain = names.plain([key, kind, content])
        if isinstance(plain[2], dict):
            plain[2] = sorted(plain[2].items())
        found.append(plain if kind == "stream" or kind == "string" else [*plain[:2], sorted(plain[2])])
    return sorted(found, key=repr)
