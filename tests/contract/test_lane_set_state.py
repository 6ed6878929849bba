"""``lane_set_state``: the conductor moves a lane along its execution axis."""

from __future__ import annotations

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
LEGAL = {
    ("open", "in_progress"),
    ("open", "cancelled"),
    ("in_progress", "done"),
    ("in_progress", "failed"),
    ("in_progress", "cancelled"),
}


def test_a_lane_moves_and_its_other_standings_stay(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    lane_id = lane(queue, conductor, review="approved")
    conductor.lane_merge(lane_id=lane_id, outcome="skipped", result_commit="abc")
    before = queue.shampoo.ops.lane(lane_id) or {}
    clock.advance(1)
    answer = conductor.call("lane_set_state", {"lane_id": lane_id, "state": "in_progress"})
    assert answer == {"lane_id": lane_id, "state": "in_progress"}
    changed = {"state": "in_progress", "changed_at": "2027-01-15T08:00:01.000Z"}
    assert queue.shampoo.ops.lane(lane_id) == before | changed
    assert last_event(queue, lane_id) == {
        "event": "lane.state_changed",
        "entity_id": lane_id,
        "project": PROJECT,
        "actor": "c",
        "holder": "h",
        "from": "open",
        "to": "in_progress",
    }


def test_every_role_gets_its_answer(queue: Queue) -> None:
    callers = cast(queue)
    quorum_id = quorum_with(queue, *callers.keys() - {"unknown"})
    answers = {}
    for role, caller in callers.items():
        lane_id = lane(queue, callers["conductor"], quorum_id=quorum_id, assignee_client_id="participant")
        answers[role] = outcome(caller.lane_set_state, lane_id=lane_id, state="in_progress")
    assert answers == everybody("denied", bare_conductor="done", conductor="done", star_conductor="done")


def test_only_the_legal_moves_are_made(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    quorum_id = quorum_with(queue)
    for before in STATES:
        for to in STATES:
            lane_id = lane(queue, conductor, state=before, quorum_id=quorum_id)
            if (before, to) in LEGAL:
                assert conductor.lane_set_state(lane_id=lane_id, state=to).state == to
            else:
                assert outcome(conductor.lane_set_state, lane_id=lane_id, state=to) == "illegal_lane_transition"
                assert (queue.shampoo.ops.lane(lane_id) or {})["state"] == before


def test_an_illegal_move_changes_nothing(queue: Queue) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    for standing, to in (("open", "open"), ("open", "done"), ("done", "open"), ("cancelled", "cancelled")):
        lane_id = lane(queue, conductor, state=standing)
        refused(queue, "illegal_lane_transition", conductor.lane_set_state, lane_id=lane_id, state=to)


def test_a_worker_is_denied_whatever_it_names(queue: Queue) -> None:
    conductor, worker = queue.principal("c", PROJECT, conductor=True), queue.principal("w", PROJECT, "*")
    lane_id = lane(queue, conductor, quorum_id=quorum_with(queue, "w"), assignee_client_id="w")
    named = [(lane_id, "in_progress"), (lane_id, "done"), (lane_id, ""), (MISSING, "open"), ("", "no such")]
    many = [{"lane_id": name, "state": state} for name, state in named]
    refused_alike(queue, "denied", worker, "lane_set_state", many)


def test_an_unknown_lane_and_an_unknown_standing_read_alike(queue: Queue) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    lane_id = lane(queue, conductor)
    states = ("", "Open", "open ", "in-progress", "queued", "pending", "-", "x" * 10_240, "\n", "nul\0")
    many = [{"lane_id": name, "state": "in_progress"} for name in odd_ids(lane_id)]
    many += [{"lane_id": name, "state": state} for state in states for name in (lane_id, MISSING)]
    refused_alike(queue, "unknown_lane", conductor, "lane_set_state", many)


def test_a_conductor_who_is_disabled_is_unauthenticated(queue: Queue) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    lane_id = lane(queue, conductor)
    queue.shampoo.registry.disable_principal("c")
    many = [{"lane_id": name, "state": "in_progress"} for name in (lane_id, MISSING)]
    refused_alike(queue, "unauthenticated", conductor, "lane_set_state", many)


def test_a_role_taken_holds_from_the_next_call(queue: Queue) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    lane_id = lane(queue, conductor)
    queue.shampoo.registry.set_conductor("c", False)
    refused(queue, "denied", conductor.lane_set_state, lane_id=lane_id, state="in_progress")


def test_a_repeat_moves_nothing(queue: Queue) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    call = {"lane_id": lane(queue, conductor), "state": "in_progress"}
    repeats(queue, conductor, "lane_set_state", call, call | {"state": "done"}, call | {"lane_id": MISSING})
    conductor.lane_set_state(lane_id=call["lane_id"], state="done")
    again = conductor.call("lane_set_state", call, request_id="again")
    assert (again, again.meta.replayed) == (call, True)
    assert (queue.shampoo.ops.lane(call["lane_id"]) or {})["state"] == "done"


def test_a_refused_move_is_not_remembered(queue: Queue) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    lane_id = lane(queue, conductor)
    call = {"lane_id": lane_id, "state": "done"}
    again = not_remembered(queue, "illegal_lane_transition", conductor, "lane_set_state", call)
    conductor.lane_set_state(lane_id=lane_id, state="in_progress")
    assert again() == call
