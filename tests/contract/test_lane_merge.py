"""``lane_merge``: the conductor records how merging a lane ended."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from tests.contract.cast import (
    MISSING,
    PROJECT,
    cast,
    everybody,
    lane,
    last_event,
    not_remembered,
    odd_ids,
    outcome,
    quorum_with,
    refused,
    refused_alike,
    repeats,
)
from tests.queue import Clock, Queue

STATES = ("open", "in_progress", "done", "failed", "cancelled")
REVIEWS = ("", "pending", "approved", "changes_requested")
OUTCOMES = ("merged", "conflicted", "skipped")


def gate_is_met(outcome: str, state: str, review: str, commit: str) -> bool:
    if outcome == "merged":
        return (state, review) == ("done", "approved") and commit != ""
    return state in ("in_progress", "done") if outcome == "conflicted" else state != "done"


def test_a_merge_is_recorded_and_moves_nothing_else(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    lane_id = lane(queue, conductor, state="done", review="approved")
    before = queue.shampoo.ops.lane(lane_id) or {}
    clock.advance(1)
    answer = conductor.call("lane_merge", {"lane_id": lane_id, "outcome": "merged", "result_commit": "abc123"})
    assert answer == {"lane_id": lane_id, "merge_state": "merged"}
    changed = {"merge_state": "merged", "result_commit": "abc123", "changed_at": "2027-01-15T08:00:01.000Z"}
    assert queue.shampoo.ops.lane(lane_id) == before | changed
    assert last_event(queue, lane_id) == {
        "event": "lane.merged",
        "entity_id": lane_id,
        "project": PROJECT,
        "actor": "c",
        "holder": "h",
        "from": "",
        "to": "merged",
    }


def test_every_role_gets_its_answer(queue: Queue) -> None:
    callers = cast(queue)
    quorum_id = quorum_with(queue, *callers.keys() - {"unknown"})
    answers = {}
    for role, caller in callers.items():
        lane_id = lane(queue, callers["conductor"], quorum_id=quorum_id, assignee_client_id="participant")
        answers[role] = outcome(caller.lane_merge, lane_id=lane_id, outcome="skipped")
    assert answers == everybody("denied", bare_conductor="done", conductor="done", star_conductor="done")


def test_each_outcome_has_its_gate(queue: Queue) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    quorum_id = quorum_with(queue)
    for state, review in product(STATES, REVIEWS):
        shut = [(o, c) for o, c in product(OUTCOMES, ("", "abc")) if not gate_is_met(o, state, review, c)]
        lane_id = lane(queue, conductor, state=state, review=review, quorum_id=quorum_id)
        many: list[dict[str, Any]] = [{"lane_id": lane_id, "outcome": o, "result_commit": c} for o, c in shut]
        refused_alike(queue, "lane_not_mergeable", conductor, "lane_merge", many)
        for name, commit in product(OUTCOMES, ("", "abc")):
            if (name, commit) not in shut:
                fresh = lane(queue, conductor, state=state, review=review, quorum_id=quorum_id)
                answer = conductor.lane_merge(lane_id=fresh, outcome=name, result_commit=commit)
                assert answer.merge_state == name


@pytest.mark.parametrize("given", [{}, {"result_commit": ""}, {"result_commit": None}], ids=str)
def test_merged_needs_a_commit(queue: Queue, given: dict[str, str]) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    lane_id = lane(queue, conductor, state="done", review="approved")
    call = {"lane_id": lane_id, "outcome": "merged", **given}
    refused(queue, "lane_not_mergeable", conductor.call, "lane_merge", call)


def test_a_recorded_merge_is_final(queue: Queue) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    lane_id = lane(queue, conductor, state="done", review="approved")
    conductor.lane_merge(lane_id=lane_id, outcome="merged", result_commit="abc")
    many = [{"lane_id": lane_id, "outcome": name, "result_commit": c} for name, c in product(OUTCOMES, ("abc", "def"))]
    refused_alike(queue, "lane_not_mergeable", conductor, "lane_merge", many)


def test_conflicted_and_skipped_may_be_superseded(queue: Queue) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    lane_id = lane(queue, conductor, state="in_progress", review="approved")
    standing, commits = "", []
    for name, commit in (
        ("skipped", None),
        ("conflicted", "one"),
        ("conflicted", ""),
        ("skipped", "two"),
        ("skipped", None),
    ):
        conductor.lane_merge(lane_id=lane_id, outcome=name, result_commit=commit)
        assert (last_event(queue, lane_id)["from"], last_event(queue, lane_id)["to"]) == (standing, name)
        standing = name
        commits.append((queue.shampoo.ops.lane(lane_id) or {}).get("result_commit", ""))
    assert commits == ["", "one", "one", "two", "two"]
    conductor.lane_set_state(lane_id=lane_id, state="done")
    refused(queue, "lane_not_mergeable", conductor.lane_merge, lane_id=lane_id, outcome="merged")
    assert conductor.lane_merge(lane_id=lane_id, outcome="merged", result_commit="three").merge_state == "merged"
    assert (queue.shampoo.ops.lane(lane_id) or {})["result_commit"] == "three"


def test_a_bad_outcome_comes_before_everything(queue: Queue) -> None:
    callers = cast(queue)
    for role in ("unknown", "disabled", "worker", "conductor"):
        many = [{"lane_id": MISSING, "outcome": name} for name in ("", "Merged", "merge", "skipped ", "done")]
        refused_alike(queue, "invalid_argument", callers[role], "lane_merge", many)


def test_a_worker_is_denied_whatever_it_names(queue: Queue) -> None:
    conductor, worker = queue.principal("c", PROJECT, conductor=True), queue.principal("w", PROJECT, "*")
    lane_id = lane(queue, conductor, quorum_id=quorum_with(queue, "w"), assignee_client_id="w")
    many = [{"lane_id": name, "outcome": o} for name in (lane_id, *odd_ids(lane_id)) for o in OUTCOMES]
    refused_alike(queue, "denied", worker, "lane_merge", many)


def test_a_lane_that_names_nothing_is_unknown(queue: Queue) -> None:
    conductor = queue.principal("c", PROJECT, "*", conductor=True)
    many = [{"lane_id": name, "outcome": o} for name in odd_ids(lane(queue, conductor)) for o in OUTCOMES]
    refused_alike(queue, "unknown_lane", conductor, "lane_merge", many)


def test_a_conductor_who_is_disabled_is_unauthenticated(queue: Queue) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    lane_id = lane(queue, conductor)
    queue.shampoo.registry.disable_principal("c")
    many = [{"lane_id": name, "outcome": "skipped"} for name in (lane_id, MISSING)]
    refused_alike(queue, "unauthenticated", conductor, "lane_merge", many)


def test_a_repeat_records_nothing(queue: Queue) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    call = {"lane_id": lane(queue, conductor, state="in_progress"), "outcome": "skipped", "result_commit": "a"}
    others = (call | {"outcome": "conflicted"}, call | {"result_commit": "b"}, call | {"lane_id": MISSING})
    repeats(queue, conductor, "lane_merge", call, *others, {k: v for k, v in call.items() if k != "result_commit"})
    conductor.lane_merge(lane_id=call["lane_id"], outcome="conflicted")
    again = conductor.call("lane_merge", call, request_id="again")
    assert (again["merge_state"], again.meta.replayed) == ("skipped", True)
    assert (queue.shampoo.ops.lane(call["lane_id"]) or {})["merge_state"] == "conflicted"


def test_a_refused_merge_is_not_remembered(queue: Queue) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    call = {"lane_id": lane(queue, conductor), "outcome": "conflicted"}
    again = not_remembered(queue, "lane_not_mergeable", conductor, "lane_merge", call)
    conductor.lane_set_state(lane_id=call["lane_id"], state="in_progress")
    assert again()["merge_state"] == "conflicted"
