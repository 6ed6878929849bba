"""What the contract says of each tool's arguments, in plain Python, for the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from unicodedata import category

Check = Callable[[Any], bool]


def text(most: float = float("inf"), least: int = 0, *, name: bool = False, size: Callable[[str], int] = len) -> Check:
    def check(value: Any) -> bool:
        if not isinstance(value, str) or any(category(c) == "Cs" or (name and category(c) == "Cc") for c in value):
            return False
        return least <= size(value) <= most

    return check


def whole(least: float, most: float) -> Check:
    return lambda value: type(value) is int and least <= value <= most


def word(*words: str) -> Check:
    return lambda value: isinstance(value, str) and value in words


def in_bytes(value: str) -> int:
    return len(value.encode())


ANY, KIND, LINK = text(), text(64, 1, name=True), text(128, 1)
PROJECT, PLACE = text(128, name=True), text(512, name=True)
# A name with ! is required.
ARGUMENTS: dict[str, dict[str, Check]] = {
    "job_claim": {"kind": KIND, "lease_seconds": whole(1, 3600)},
    "job_complete": {"job_id!": ANY, "outcome!": word("completed", "failed"), "result_ref": text(2048, size=in_bytes)},
    "job_create": {"kind!": KIND, "lane_id": LINK, "payload": text(2**20, size=in_bytes), "project": PROJECT},
    "job_release": {"job_id!": ANY},
    "lane_create": {"quorum_id!": ANY, "assignee_client_id": LINK, "task_id": LINK, "depends_on": LINK}
    | dict.fromkeys(("repo", "branch", "base_ref", "worktree"), PLACE),
    "lane_list": {"limit": whole(-(10**9), 10**9), "project": text(name=True), "quorum_id": ANY, "state": ANY},
    "lane_merge": {"lane_id!": ANY, "outcome!": word("merged", "conflicted", "skipped"), "result_commit": PROJECT},
    "lane_review": {"lane_id!": ANY, "decision!": word("submit", "approve", "request-changes")},
    "lane_set_state": {"lane_id!": ANY, "state!": ANY},
}
EMPTY_IS_ABSENT = {"payload", "result_ref", "result_commit", "project", "repo", "branch", "base_ref", "worktree"}


def given(tool: str, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
    """Give the arguments that count as given, or None when they are not acceptable."""
    checks = ARGUMENTS[tool]
    found = {name: value for name, value in arguments.items() if value is not None}
    if any(name not in checks and f"{name}!" not in checks for name in arguments):
        return None
    for name, check in checks.items():
        plain = name.removesuffix("!")
        if not (check(found[plain]) if plain in found else plain == name):
            return None
    if tool == "job_create" and found.get("project") == "*":
        return None
    absent = set() if tool == "lane_list" else EMPTY_IS_ABSENT
    return {name: value for name, value in found.items() if value != "" or name not in absent}


# Calls that no caller may make, whatever exists.
NOBODY = "00000000-0000-4000-8000-000000000000"
UNACCEPTABLE: tuple[tuple[str, dict[str, Any]], ...] = (
    ("job_claim", {"kind": ""}),
    ("job_claim", {"kind": "k" * 65}),
    ("job_claim", {"kind": "k\n"}),
    ("job_claim", {"lease_seconds": 0}),
    ("job_claim", {"lease_seconds": 3601}),
    ("job_claim", {"lease_seconds": True}),
    ("job_claim", {"lease_seconds": "60"}),
    ("job_claim", {"lease_seconds": 1.5}),
    ("job_claim", {"project": "p"}),
    ("job_create", {}),
    ("job_create", {"kind": None}),
    ("job_create", {"kind": "k", "project": "*"}),
    ("job_create", {"kind": "k", "project": "p" * 129}),
    ("job_create", {"kind": "k", "lane_id": ""}),
    ("job_create", {"kind": "k", "lane_id": "l" * 129}),
    ("job_create", {"kind": "k", "payload": {"a": 1}}),
    ("job_create", {"kind": "k", "payload": "\ud800"}),
    ("job_complete", {"job_id": NOBODY}),
    ("job_complete", {"job_id": NOBODY, "outcome": "done"}),
    ("job_complete", {"job_id": NOBODY, "outcome": "failed", "result_ref": "é" * 1025}),
    ("job_release", {"job_id": 5}),
    ("lane_create", {"quorum_id": NOBODY, "task_id": ""}),
    ("lane_create", {"quorum_id": NOBODY, "repo": "r\x85"}),
    ("lane_create", {"quorum_id": NOBODY, "branch": "b" * 513}),
    ("lane_list", {"limit": "5"}),
    ("lane_list", {"state": 1}),
    ("lane_merge", {"lane_id": NOBODY, "outcome": "done"}),
    ("lane_review", {"lane_id": NOBODY, "decision": "approved"}),
    ("lane_set_state", {"lane_id": NOBODY}),
)
