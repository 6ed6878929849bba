"""``lane_list``: everybody sees the lanes that are theirs to see, and no sign of the others."""

from __future__ import annotations

from typing import Any

import pytest

from shampoo_queue import Client
from tests.contract.cast import (
    MISSING,
    PROJECT,
    cast,
    everybody,
    lane,
    odd_ids,
    outcome,
    quorum_with,
    raw,
    refused,
)
from tests.queue import Clock, Queue

FACTS = (
    "lane_id",
    "quorum_id",
    "project",
    "state",
    "review_state",
    "merge_state",
    "assignee",
    "task_id",
    "result_commit",
    "created_at",
    "changed_at",
)


def listed(queue: Queue, client: Client, **filters: Any) -> list[str]:
    """List lanes, hold that nothing is written, and give their ids."""
    before = raw(queue)
    answer = client.call("lane_list", filters)
    assert set(answer) == {"lanes", "count"}
    assert answer["count"] == len(answer["lanes"])
    assert raw(queue) == before
    return [entry["lane_id"] for entry in answer["lanes"]]


def test_an_entry_tells_the_eleven_facts_of_a_lane(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    quorum_id, task_id = quorum_with(queue), queue.shampoo.registry.add_task("t")
    lane_id = lane(queue, conductor, quorum_id=quorum_id, assignee_client_id="c", task_id=task_id, branch="b")
    bare = lane(queue, conductor, quorum_id=quorum_id)
    clock.advance(1.5)
    conductor.lane_set_state(lane_id=lane_id, state="in_progress")
    conductor.lane_review(lane_id=lane_id, decision="submit")
    conductor.lane_merge(lane_id=lane_id, outcome="skipped", result_commit="abc")
    first, second = "2027-01-15T08:00:00.000Z", "2027-01-15T08:00:01.500Z"
    full = (lane_id, quorum_id, PROJECT, "in_progress", "pending", "skipped", "c", "t", "abc", first, second)
    empty = (bare, quorum_id, PROJECT, "open", "", "", "", "", "", first, first)
    entries = [dict(zip(FACTS, facts, strict=True)) for facts in (empty, full)]
    assert conductor.call("lane_list") == {"lanes": entries, "count": 2}
    assert conductor.lane_list().lanes[1].result_commit == "abc"


def test_every_role_gets_its_answer(queue: Queue) -> None:
    callers = cast(queue)
    lane(queue, callers["conductor"], quorum_id=quorum_with(queue, "participant", "outsider", "disabled"))
    assert {role: outcome(caller.lane_list) for role, caller in callers.items()} == everybody("done")
    live = {role: caller for role, caller in callers.items() if role not in ("unknown", "disabled")}
    seeing = {role for role, caller in live.items() if caller.lane_list().count}
    assert seeing == {"participant", "star", "bare conductor", "conductor", "star conductor"}


def test_a_principal_who_may_not_call_hears_nothing_whatever_it_asks(queue: Queue) -> None:
    callers = cast(queue)
    for role in ("unknown", "disabled"):
        for filters in ({}, {"quorum_id": quorum_with(queue)}, {"quorum_id": MISSING}, {"limit": 1}, {"state": "?"}):
            refused(queue, "unauthenticated", callers[role].call, "lane_list", filters)


def test_a_hidden_lane_leaves_no_mark_and_takes_no_place(queue: Queue) -> None:
    conductor = queue.principal("c", PROJECT, "q", conductor=True)
    worker = queue.principal("w", PROJECT)
    mine, apart, foreign = quorum_with(queue, "w"), quorum_with(queue), quorum_with(queue, "w", project="q")
    nothing = conductor.call("lane_list")
    seen = []
    for _ in range(3):
        lane(queue, conductor, quorum_id=apart)
        seen.append(lane(queue, conductor, quorum_id=mine))
        lane(queue, conductor, quorum_id=foreign)
    assert listed(queue, worker) == seen[::-1]
    assert listed(queue, worker, limit=2) == seen[:0:-1]
    assert len(listed(queue, conductor)) == 9
    for filters in ({"quorum_id": apart}, {"quorum_id": foreign}, {"project": "q"}, {"quorum_id": MISSING}):
        assert worker.call("lane_list", filters) == nothing


@pytest.mark.parametrize("grant", [PROJECT, "*", None], ids=str)
def test_participation_and_grant_hold_from_the_next_call(queue: Queue, grant: str | None) -> None:
    conductor, worker = queue.principal("c", PROJECT, conductor=True), queue.principal("w")
    quorum_id, registry = quorum_with(queue), queue.shampoo.registry
    lane_id = lane(queue, conductor, quorum_id=quorum_id)
    sees = [lane_id] if grant else []
    assert listed(queue, worker) == []
    if grant:
        registry.grant("w", grant)
    assert listed(queue, worker) == (sees if grant == "*" else [])
    registry.add_participant(quorum_id, "w")
    assert listed(queue, worker) == listed(queue, worker, quorum_id=quorum_id) == sees
    registry.close_quorum(quorum_id)
    assert listed(queue, worker) == sees
    if grant:
        registry.revoke("w", grant)
    assert listed(queue, worker) == listed(queue, worker, quorum_id=quorum_id) == []


def test_lanes_come_newest_first_over_all_standings_and_quorums(queue: Queue, clock: Clock) -> None:
    conductor, worker = queue.principal("c", "a", "b", conductor=True), queue.principal("w", "a", "b")
    quorums = [quorum_with(queue, "w", project=project) for project in ("a", "b", "a")]
    states = ("done", "open", "cancelled", "in_progress", "failed", "open", "open", "done")
    created = [lane(queue, conductor, state=s, quorum_id=quorums[n % 3]) for n, s in enumerate(states)]
    for client in (conductor, worker):
        assert listed(queue, client) == created[::-1]
        assert listed(queue, client, limit=3) == created[:-4:-1]
        assert listed(queue, client, state="open") == [created[6], created[5], created[1]]
        assert listed(queue, client, project="a") == [lane_id for n, lane_id in enumerate(created) if n % 3 != 1][::-1]
        assert listed(queue, client, quorum_id=quorums[1]) == [created[7], created[4], created[1]]
        assert listed(queue, client, quorum_id=quorums[1], state="open", project="b", limit=1) == [created[1]]
        assert listed(queue, client, quorum_id=quorums[1], project="a") == []


def test_many_streams_are_merged_into_one_order(queue: Queue, clock: Clock) -> None:
    conductor, worker = queue.principal("c", PROJECT, conductor=True), queue.principal("w", PROJECT)
    quorums = [quorum_with(queue, "w") for _ in range(6)]
    states = ("open", "in_progress", "done", "failed", "cancelled")
    places = [(n * n * 7 % 31 % 6, n * 11 % 23 % 5) for n in range(40)]
    created = [lane(queue, conductor, state=states[state], quorum_id=quorums[quorum]) for quorum, state in places]
    for client in (conductor, worker):
        for limit in (5, 39, 100):
            assert listed(queue, client, limit=limit) == created[::-1][:limit]
        failed = [lane_id for lane_id, (_, state) in zip(created, places, strict=True) if states[state] == "failed"]
        assert listed(queue, client, state="failed") == failed[::-1]


def test_a_lane_keeps_its_place_when_it_moves(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    first, second = lane(queue, conductor), lane(queue, conductor)
    clock.advance(1)
    conductor.lane_set_state(lane_id=first, state="in_progress")
    assert listed(queue, conductor) == [second, first]
    assert listed(queue, conductor, state="open") == [second]
    assert listed(queue, conductor, state="in_progress") == [first]


def test_an_empty_project_means_untagged_lanes(queue: Queue) -> None:
    conductor, worker = queue.principal("c", PROJECT, "", conductor=True), queue.principal("w", PROJECT, "")
    tagged = lane(queue, conductor, quorum_id=quorum_with(queue, "w"))
    untagged = lane(queue, conductor, quorum_id=quorum_with(queue, "w", project=""))
    for client in (conductor, worker):
        assert listed(queue, client, project="") == [untagged]
        assert listed(queue, client, project=PROJECT) == [tagged]
        assert listed(queue, client, project=None) == [untagged, tagged]


def test_a_filter_that_names_nothing_matches_nothing(queue: Queue) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    quorum_id = quorum_with(queue)
    lane(queue, conductor, quorum_id=quorum_id)
    filters: list[dict[str, Any]] = [{"quorum_id": name} for name in odd_ids(quorum_id)]
    filters += [{"project": name} for name in ("P", "p ", "*", "", "p*", "\U0001f600", PROJECT * 129, "x" * 10_240)]
    filters += [{"state": name} for name in ("", "Open", "open ", "*", "pending", "x" * 10_240, "nul\0", "open\n")]
    for answer in (conductor.call("lane_list", given) for given in filters):
        assert answer == {"lanes": [], "count": 0}
    assert conductor.lane_list(quorum_id=quorum_id, project=PROJECT, state="open").count == 1


def test_the_limit_is_clamped(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    quorum_id = quorum_with(queue)
    created = [lane(queue, conductor, quorum_id=quorum_id) for _ in range(103)][::-1]
    for limit, shown in ((None, 50), (1, 1), (0, 1), (-(10**30), 1), (99, 99), (100, 100), (101, 100), (10**30, 100)):
        assert [entry.lane_id for entry in conductor.lane_list(limit=limit).lanes] == created[:shown]


def test_a_read_takes_no_part_in_repeats(queue: Queue) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    lane_id = lane(queue, conductor)
    before = raw(queue)
    assert conductor.call("lane_list", request_id="r")["count"] == 1
    assert raw(queue) == before
    conductor.call("lane_set_state", {"lane_id": lane_id, "state": "cancelled"}, request_id="r")
    again = conductor.call("lane_list", {"state": "cancelled"}, request_id="r", fence=3, holder="other")
    assert (again["count"], again.meta.replayed) == (1, False)
