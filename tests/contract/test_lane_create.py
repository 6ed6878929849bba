"""``lane_create``: the conductor opens one reviewable stream of work under an open quorum."""

from __future__ import annotations

import re
from typing import Any

import pytest

from shampoo_queue.tools import immutable
from tests.contract.cast import (
    MISSING,
    PROJECT,
    cast,
    everybody,
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


def test_a_lane_is_created_open_and_inherits_the_project(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    queue.principal("w")
    quorum_id, task_id = quorum_with(queue), queue.shampoo.registry.add_task("task-1")
    first = conductor.lane_create(quorum_id=quorum_id).lane_id
    links = {"task_id": task_id, "depends_on": first}
    places = {"repo": "r", "branch": "b", "base_ref": "main", "worktree": "/w"}
    answer = conductor.call("lane_create", {"quorum_id": quorum_id, "assignee_client_id": "w", **links, **places})
    lane_id = answer["lane_id"]
    assert answer == {"lane_id": lane_id, "state": "open", "project": PROJECT}
    assert re.fullmatch(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", lane_id)
    assert queue.shampoo.ops.lane(lane_id) == {
        "lane_id": lane_id,
        "quorum_id": quorum_id,
        "project": PROJECT,
        "state": "open",
        "review_state": "",
        "merge_state": "",
        "assignee": "w",
        "created_at": "2027-01-15T08:00:00.000Z",
        "changed_at": "2027-01-15T08:00:00.000Z",
        **links,
        **places,
    }
    assert last_event(queue, lane_id) == {
        "event": "lane.created",
        "entity_id": lane_id,
        "project": PROJECT,
        "actor": "c",
        "holder": "h",
        "to": "open",
        "digest": immutable(lane_id, quorum_id, "w", task_id, first, "r", "b", "main", "/w"),
    }


def test_every_role_gets_its_answer(queue: Queue) -> None:
    callers = cast(queue)
    quorum_id = quorum_with(queue, *callers.keys() - {"unknown"})
    answers = {role: outcome(caller.lane_create, quorum_id=quorum_id) for role, caller in callers.items()}
    assert answers == everybody("denied", bare_conductor="unknown_lane", conductor="done")


def test_a_conductor_needs_no_participation(queue: Queue) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    assert conductor.lane_create(quorum_id=quorum_with(queue)).project == PROJECT


def test_a_worker_is_denied_whatever_it_names(queue: Queue) -> None:
    worker = queue.principal("w", PROJECT, "*")
    quorum_id = quorum_with(queue, "w")
    many = [{"quorum_id": name} for name in (quorum_id, quorum_with(queue, project="q"), *odd_ids(quorum_id))]
    refused_alike(queue, "denied", worker, "lane_create", many)


def test_a_quorum_that_is_missing_or_out_of_scope_is_unknown(queue: Queue) -> None:
    conductor = queue.principal("c", "q", conductor=True)
    hidden, closed = quorum_with(queue, "c"), quorum_with(queue)
    queue.shampoo.registry.close_quorum(closed)
    links = {"assignee_client_id": "nobody", "task_id": "none", "depends_on": MISSING}
    names = [hidden, closed, quorum_with(queue, project=""), *odd_ids(hidden)]
    many = [{"quorum_id": name, **more} for name in names for more in ({}, links)]
    refused_alike(queue, "unknown_lane", conductor, "lane_create", many)


def test_an_odd_id_names_nothing_for_its_conductor_either(queue: Queue) -> None:
    conductor = queue.principal("c", PROJECT, "*", conductor=True)
    many = [{"quorum_id": name} for name in odd_ids(quorum_with(queue))]
    refused_alike(queue, "unknown_lane", conductor, "lane_create", many)


def test_a_star_is_no_explicit_grant_and_comes_before_the_quorums_standing(queue: Queue) -> None:
    conductor = queue.principal("c", "*", conductor=True)
    open_, closed = quorum_with(queue), quorum_with(queue, project="")
    queue.shampoo.registry.close_quorum(closed)
    links = {"assignee_client_id": "nobody", "task_id": "none", "depends_on": MISSING}
    refused_alike(queue, "denied", conductor, "lane_create", [{"quorum_id": q, **links} for q in (open_, closed)])
    queue.shampoo.registry.grant("c", "")
    refused(queue, "quorum_not_open", conductor.lane_create, quorum_id=closed)


def test_the_links_are_checked_in_their_order(queue: Queue) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    quorum_id = quorum_with(queue)
    call: dict[str, Any] = {
        "quorum_id": quorum_id,
        "assignee_client_id": "nobody",
        "task_id": "none",
        "depends_on": MISSING,
    }
    queue.shampoo.registry.close_quorum(quorum_id)
    refused(queue, "quorum_not_open", conductor.call, "lane_create", call)
    call["quorum_id"] = quorum_with(queue)
    refused(queue, "unknown_client", conductor.call, "lane_create", call)
    queue.principal("nobody")
    refused(queue, "task_not_found", conductor.call, "lane_create", call)
    queue.shampoo.registry.add_task("none")
    refused(queue, "dependency_not_in_quorum", conductor.call, "lane_create", call)
    call["depends_on"] = conductor.lane_create(quorum_id=call["quorum_id"]).lane_id
    assert conductor.call("lane_create", call)["state"] == "open"


def test_the_assignee_must_be_a_live_principal(queue: Queue) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    queue.principal("w", "q")
    quorum_id = quorum_with(queue)
    queue.shampoo.registry.disable_principal("w")
    for name in ("w", "nobody", "W", "w ", "w\0", "*", "\n"):
        refused(queue, "unknown_client", conductor.lane_create, quorum_id=quorum_id, assignee_client_id=name)
    queue.shampoo.registry.enable_principal("w")
    conductor.lane_create(quorum_id=quorum_id, assignee_client_id="w")


def test_the_task_must_be_live(queue: Queue) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    quorum_id, task_id = quorum_with(queue), queue.shampoo.registry.add_task("t")
    for name in ("none", "T", "t ", "t\n"):
        refused(queue, "task_not_found", conductor.lane_create, quorum_id=quorum_id, task_id=name)
    lane_id = conductor.lane_create(quorum_id=quorum_id, task_id=task_id).lane_id
    queue.shampoo.registry.close_task(task_id)
    refused(queue, "task_not_found", conductor.lane_create, quorum_id=quorum_id, task_id=task_id)
    assert (queue.shampoo.ops.lane(lane_id) or {})["task_id"] == task_id


def test_a_dependency_that_is_missing_or_foreign_is_refused_alike(queue: Queue) -> None:
    conductor = queue.principal("c", PROJECT, "q", conductor=True)
    quorum_id, sister, foreign = quorum_with(queue), quorum_with(queue), quorum_with(queue, project="q")
    own = conductor.lane_create(quorum_id=quorum_id).lane_id
    others = [conductor.lane_create(quorum_id=other).lane_id for other in (sister, foreign)]
    queue.shampoo.registry.revoke("c", "q")
    names = [*others, *(name for name in odd_ids(own) if 0 < len(name) <= 128), quorum_id]
    many = [{"quorum_id": quorum_id, "depends_on": name} for name in names]
    refused_alike(queue, "dependency_not_in_quorum", conductor, "lane_create", many)


def test_an_ended_lane_can_be_depended_on(queue: Queue) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    quorum_id = quorum_with(queue)
    ended = conductor.lane_create(quorum_id=quorum_id).lane_id
    conductor.lane_set_state(lane_id=ended, state="cancelled")
    conductor.lane_create(quorum_id=quorum_id, depends_on=ended)


@pytest.mark.parametrize("name", ["repo", "branch", "base_ref", "worktree"])
def test_an_empty_place_is_the_same_as_an_absent_one(queue: Queue, name: str) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    call = {"quorum_id": quorum_with(queue)}
    answers = [
        conductor.call("lane_create", call | more, request_id="r")["lane_id"] for more in ({}, {name: ""}, {name: None})
    ]
    assert len(set(answers)) == 1
    assert name not in (queue.shampoo.ops.lane(answers[0]) or {})


def test_a_closed_quorum_holds_from_the_next_call(queue: Queue) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    quorum_id = quorum_with(queue)
    lane_id = conductor.lane_create(quorum_id=quorum_id).lane_id
    queue.shampoo.registry.close_quorum(quorum_id)
    refused(queue, "quorum_not_open", conductor.lane_create, quorum_id=quorum_id)
    assert conductor.lane_set_state(lane_id=lane_id, state="in_progress").state == "in_progress"


def test_a_repeat_creates_nothing(queue: Queue) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    call = {"quorum_id": quorum_with(queue), "branch": "b"}
    other = call | {"quorum_id": quorum_with(queue)}
    answer = repeats(queue, conductor, "lane_create", call, other, call | {"branch": "c"}, call | {"task_id": "t"})
    queue.shampoo.registry.close_quorum(call["quorum_id"])
    assert conductor.call("lane_create", call, request_id="again") == answer
    assert queue.events().count("lane.created") == 1


def test_a_refused_creation_is_not_remembered(queue: Queue) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    call = {"quorum_id": quorum_with(queue), "task_id": "t"}
    again = not_remembered(queue, "task_not_found", conductor, "lane_create", call)
    queue.shampoo.registry.add_task("t")
    assert again()["state"] == "open"
