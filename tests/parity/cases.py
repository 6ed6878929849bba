"""The table of calls. ``$name`` in the arguments stands for an entry of the stage, by its name there."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from shampoo_queue import contract
from tests.contract.cast import MISSING, PROJECT
from tests.contract.test_arguments import CONTROLS, EACH, REQUIRED, TABLE
from tests.parity.doors import NOTHING, Beside

LAST = -(10**6)  # as a fence: that of the last claim; one less is an older one
ONCE = Beside(request_id="once")


@dataclass(frozen=True)
class Case:
    """One call, and how it ends."""

    client_id: str
    tool: str
    arguments: Any
    code: str = "ok"
    beside: Beside = NOTHING

    def text(self, ids: dict[str, str]) -> str:
        """Give the arguments as JSON text with the ids of a stage."""
        text = self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)
        for name, entry in ids.items():
            text = text.replace(f'"${name}"', json.dumps(entry))
        return text

    def __str__(self) -> str:
        return f"{self.client_id} {self.tool} {str(self.arguments)[:80]} {self.beside.given()}"


def _examples() -> Iterator[Case]:
    """The contract's own examples, on entries that are there."""
    there = {
        "job_complete": {"job_id": "$waiting job"},
        "job_release": {"job_id": "$waiting job"},
        "lane_create": {"quorum_id": "$quorum", "assignee_client_id": "w"},
        "lane_list": {"quorum_id": "$quorum"},
        "lane_merge": {"lane_id": "$done lane"},
        "lane_review": {"lane_id": "$reviewed lane"},
        "lane_set_state": {"lane_id": "$lane"},
        "job_create": {"project": PROJECT},
    }
    for tool in contract.TOOLS:
        code = "job_not_claimed" if tool.name in ("job_complete", "job_release") else "ok"
        yield Case("c", tool.name, {**tool.example, **there.get(tool.name, {})}, code)


STORY: list[Case] = [
    # The contract's own examples, and every null, "" and default beside them.
    *_examples(),
    Case("w", "job_claim", {"kind": "none"}),
    Case("c", "job_create", {"kind": "k", "lane_id": None, "payload": None, "project": None}),
    Case("c", "job_create", {"kind": "k", "payload": "", "project": ""}),
    Case("c", "job_create", {"kind": "n", "lane_id": "$lane", "payload": "a\0b\n\u2028\ud83d\ude00 {}"}),
    Case("w", "job_claim", {"kind": "n", "lease_seconds": None}),
    Case("w", "job_release", {"job_id": "$waiting job"}, "job_not_claimed"),
    Case("w", "job_claim", {"kind": "w", "lease_seconds": 3600}),
    Case("w", "job_complete", {"job_id": "$waiting job", "outcome": "failed"}, "lease_expired", Beside(fence=LAST - 1)),
    Case("w", "job_complete", {"job_id": "$waiting job", "outcome": "failed"}, "lease_expired", Beside(fence=0)),
    Case("w", "job_complete", {"job_id": "$waiting job", "outcome": "completed", "result_ref": ""}, "ok",
         Beside(fence=LAST, holder="h2", request_id="done-1")),
    Case("w", "job_complete", {"job_id": "$waiting job", "outcome": "completed"}),
    Case("w", "job_complete", {"job_id": "$waiting job", "outcome": "failed"}, "job_already_terminal"),
    # Lost leases, other people's work, work out of sight.
    Case("w", "job_complete", {"job_id": "$lapsed job", "outcome": "completed"}, "lease_expired"),
    Case("x", "job_complete", {"job_id": "$lapsed job", "outcome": "completed"}, "job_not_found"),
    Case("x", "job_release", {"job_id": "$waiting job"}, "job_not_found"),
    Case("w", "job_release", {"job_id": "$foreign job"}, "job_not_found"),
    Case("w", "job_release", {"job_id": MISSING}, "job_not_found"),
    Case("w", "job_release", {"job_id": f"urn:uuid:{MISSING}"}, "job_not_found"),
    Case("w", "job_release", {"job_id": "{" * 10_000}, "job_not_found"),
    Case("star", "job_claim", {"kind": "f"}),
    Case("w", "job_release", {"job_id": "$foreign job"}, "job_not_found"),
    Case("star", "job_release", {"job_id": "$foreign job"}, "ok", Beside(holder="other")),
    # Repeats.
    Case("c", "job_create", {"kind": "r", "project": PROJECT}, "ok", ONCE),
    Case("c", "job_create", {"kind": "r", "project": PROJECT, "payload": None}, "ok", ONCE),
    Case("c", "job_create", {"kind": "s", "project": PROJECT}, "request_id_reused", ONCE),
    Case("c", "job_claim", {}, "request_id_reused", ONCE),
    Case("w", "job_claim", {"kind": "r"}, "ok", ONCE),
    Case("w", "job_claim", {"kind": "r", "lease_seconds": 300}, "ok", ONCE),
    Case("w", "job_claim", {"kind": "r"}, "request_id_reused", Beside(request_id="once", holder="another")),
    # Roles and projects.
    Case("w", "job_create", {"kind": "k", "project": PROJECT}, "denied"),
    Case("star", "job_create", {"kind": "k", "project": PROJECT}, "denied"),
    Case("star", "job_create", {"kind": "k"}, "denied"),
    Case("c", "job_create", {"kind": "k", "project": "r"}, "denied"),
    Case("c", "job_create", {"kind": "k", "project": "*"}, "invalid_argument"),
    Case("c", "job_create", {"kind": "k", "lane_id": MISSING}, "lane_not_found"),
    Case("c", "job_create", {"kind": "k", "lane_id": "$lane", "project": "q"}, "project_mismatch"),
    # Lanes.
    Case("w", "lane_create", {"quorum_id": "$quorum"}, "denied"),
    Case("c", "lane_create", {"quorum_id": MISSING}, "unknown_lane"),
    Case("c", "lane_create", {"quorum_id": ""}, "unknown_lane"),
    Case("star", "lane_create", {"quorum_id": "$quorum"}, "denied"),
    Case("c", "lane_create", {"quorum_id": "$closed quorum"}, "quorum_not_open"),
    Case("c", "lane_create", {"quorum_id": "$quorum", "assignee_client_id": "nobody"}, "unknown_client"),
    Case("c", "lane_create", {"quorum_id": "$quorum", "task_id": "ended"}, "task_not_found"),
    Case("c", "lane_create", {"quorum_id": "$quorum", "depends_on": "$foreign lane"}, "dependency_not_in_quorum"),
    Case("c", "lane_create", {"quorum_id": "$quorum", "depends_on": "$lane", "task_id": "t", "worktree": None}),
    Case("w", "lane_set_state", {"lane_id": "$lane", "state": "done"}, "denied"),
    Case("c", "lane_set_state", {"lane_id": MISSING, "state": "done"}, "unknown_lane"),
    Case("c", "lane_set_state", {"lane_id": "$lane", "state": ""}, "unknown_lane"),
    Case("c", "lane_set_state", {"lane_id": "$lane", "state": "in_progress"}, "illegal_lane_transition"),
    Case("w", "lane_review", {"lane_id": "$foreign lane", "decision": "submit"}, "unknown_lane"),
    Case("w", "lane_review", {"lane_id": "$lane", "decision": "approve"}, "denied"),
    Case("c", "lane_review", {"lane_id": "$lane", "decision": "approve"}, "nothing_under_review"),
    Case("w", "lane_review", {"lane_id": "$lane", "decision": "submit"}),
    Case("w", "lane_review", {"lane_id": "$lane", "decision": "submit"}, "review_closed"),
    Case("c", "lane_review", {"lane_id": "$lane", "decision": "request-changes"}),
    Case("c", "lane_merge", {"lane_id": "$lane", "outcome": "merged", "result_commit": "abc"}, "lane_not_mergeable"),
    Case("c", "lane_merge", {"lane_id": "$done lane", "outcome": "skipped", "result_commit": ""}, "lane_not_mergeable"),
    Case("c", "lane_merge", {"lane_id": "$reviewed lane", "outcome": "skipped", "result_commit": None}),
    *(Case("w", "lane_list", given) for given in ({}, {"state": "done"}, {"project": ""}, {"limit": -(10**30)})),
    *(Case(who, "lane_list", {"limit": 10**30, "quorum_id": None}) for who in ("c", "x", "star")),
    Case("c", "lane_list", {"state": "x" * 1_000, "project": "\ud83d\ude00" * 500}),
]  # fmt: skip


def _json_able(value: Any) -> bool:
    return not isinstance(value, bytes) and not (isinstance(value, float) and not math.isfinite(value))


def wrong_arguments() -> Iterator[Case]:
    """Every value that the contract refuses, one argument at a time; of control characters a few."""
    rare = {f"a{control}b" for n, control in enumerate(CONTROLS) if n % 13}
    for tool, name in EACH:
        others: list[Any] = [[], {"a": 1}, True, 5.5]
        others += [5] if name not in ("limit", "lease_seconds") else ["5", "５", "0x5"]
        bad = [value for value in [*TABLE[tool][name].bad(), *others] if _json_able(value)]
        for value in bad:
            if not isinstance(value, str) or value not in rare:
                yield Case("c", tool, REQUIRED[tool] | {name: value}, "invalid_argument")
    for tool, arguments in REQUIRED.items():
        for name in arguments:
            yield Case("c", tool, arguments | {name: None}, "invalid_argument")
            yield Case("c", tool, {n: v for n, v in arguments.items() if n != name}, "invalid_argument")
        for unknown in ("Kind", "profile", "request_id", "fence", "", "\ud800", "\x1b[2J", "n" * 5_000, "__class__"):
            yield Case("c", tool, arguments | {unknown: 1}, "invalid_argument")
    wrong = [Beside(fence=10**18), Beside(fence=-(10**18)), Beside(holder="h" * 129)]
    for beside in [*wrong, *map(Beside, ("", "x" * 129, "a b", "a\tb"))]:
        yield Case("c", "job_release", {"job_id": MISSING}, "invalid_argument", beside)


def odd_arguments() -> Iterator[Case]:
    """Values that look wrong and are right: of every text what it may hold, of every number its ends."""
    for tool, name in EACH:
        if tool in ("job_claim", "lane_set_state", "lane_review", "lane_merge") and name not in ("kind", "lane_id"):
            continue
        for value in TABLE[tool][name].good():
            yield Case("c", tool, REQUIRED[tool] | {name: value}, "")


UNKNOWN_TOOLS = ("nope", "JOB_CLAIM", "job_claim ", "job-claim", "job.claim", "__init__", "x" * 2_000, "ö", "job_renew")
