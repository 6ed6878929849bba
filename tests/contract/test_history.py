"""The history: every accepted move tells what it did, and replaying it arrives at what is stored."""

from __future__ import annotations

from typing import Any

import pytest

from shampoo_queue import Event, replay
from shampoo_queue.contract import EVENT_FACTS, TOOLS
from tests.contract.cast import MISSING, PROJECT, lane, quorum_with, refused
from tests.queue import Clock, Queue

FIELDS = ("event", "entity_id", "project", "actor", "holder", "at", "from", "to", "attempts", "fence", "request_id")


def a_long_day(queue: Queue, clock: Clock) -> dict[str, str]:
    """Make every kind of move at least once; give the ids that were made."""
    registry, ops = queue.shampoo.registry, queue.shampoo.ops
    registry.add_principal("c", conductor=True, grants=["", PROJECT])
    registry.add_principal("w", grants=[PROJECT])
    c, w = queue.shampoo.client("c", holder="desk"), queue.shampoo.client("w", holder="w/1")
    registry.grant("w", "q")
    registry.revoke("w", "q")
    registry.set_conductor("w")
    registry.set_conductor("w", False)
    registry.disable_principal("w")
    registry.enable_principal("w")
    quorum = registry.open_quorum(PROJECT, ["w"])
    registry.remove_participant(quorum, "w")
    registry.add_participant(quorum, "w")
    task = registry.add_task("t")
    stream = c.lane_create(quorum_id=quorum, task_id=task, assignee_client_id="w").lane_id
    registry.close_task(task)
    registry.close_quorum(quorum)
    first = c.job_create(kind="k", lane_id=stream, payload="x").job_id
    untagged = c.job_create(kind="u").job_id
    w.job_claim(lease_seconds=10)
    clock.advance(10)
    c.job_claim(kind="k")
    c.job_release(job_id=first)
    w.job_claim()
    w.job_complete(job_id=first, outcome="failed", result_ref="r")
    ops.requeue(first)
    w.job_claim()
    w.job_complete(job_id=first, outcome="completed")
    ops.cancel(untagged, "enough")
    ops.limit_kind("k", 4)
    ops.limit_kind("k", None)
    c.lane_set_state(lane_id=stream, state="in_progress")
    w.lane_review(lane_id=stream, decision="submit")
    c.lane_merge(lane_id=stream, outcome="skipped")
    token = registry.issue_token("w")
    newer = registry.rotate_token(token.token_id)
    registry.revoke_token(newer.token_id)
    tokens = {"token": token.token_id, "newer token": newer.token_id}
    return {"quorum": quorum, "lane": stream, "job": first, "untagged": untagged} | tokens


def told(event: Event) -> tuple[Any, ...]:
    """Give an event's facts but for those that have a test of their own."""
    apart = ("id", "at", "request_id", "digest", "event", "entity_id", "actor", "holder")
    rest = {name: value for name, value in event.items() if name not in apart}
    return event.event, event.entity_id, event.actor, rest


def test_every_move_tells_what_it_did(queue: Queue, clock: Clock) -> None:
    start = clock.now
    ids = a_long_day(queue, clock)
    job, untagged, stream, quorum = ids["job"], ids["untagged"], ids["lane"], ids["quorum"]
    p: dict[str, Any] = {"project": PROJECT}
    first, second = {"attempts": 1, "fence": start}, {"attempts": 2, "fence": start + 10_000}
    third, again = {"attempts": 3, "fence": start + 10_001}, {"attempts": 1, "fence": start + 10_002}
    cancelled = {"attempts": 0, "reason": "enough"}
    claim, end = {"from": "queued", "to": "claimed"}, {"from": "claimed"}
    events = queue.shampoo.history(limit=1000)
    assert [told(event) for event in events] == [
        ("principal.added", "c", "operator", {"to": "conductor"}),
        ("principal.granted", "c", "operator", {"project": ""}),
        ("principal.granted", "c", "operator", p),
        ("principal.added", "w", "operator", {"to": "live"}),
        ("principal.granted", "w", "operator", p),
        ("principal.granted", "w", "operator", {"project": "q"}),
        ("principal.revoked", "w", "operator", {"project": "q"}),
        ("principal.conductor_set", "w", "operator", {"from": "0", "to": "1"}),
        ("principal.conductor_set", "w", "operator", {"from": "1", "to": "0"}),
        ("principal.disabled", "w", "operator", {"from": "live", "to": "disabled"}),
        ("principal.enabled", "w", "operator", {"from": "disabled", "to": "live"}),
        ("quorum.opened", quorum, "operator", p | {"to": "open"}),
        ("quorum.participant_added", quorum, "operator", p | {"reason": "w"}),
        ("quorum.participant_removed", quorum, "operator", p | {"reason": "w"}),
        ("quorum.participant_added", quorum, "operator", p | {"reason": "w"}),
        ("task.added", "t", "operator", {"to": "live"}),
        ("lane.created", stream, "c", p | {"to": "open"}),
        ("task.closed", "t", "operator", {"from": "live", "to": "closed"}),
        ("quorum.closed", quorum, "operator", p | {"from": "open", "to": "closed"}),
        ("job.created", job, "c", p | {"to": "queued"}),
        ("job.created", untagged, "c", {"project": "", "to": "queued"}),
        ("job.claimed", job, "w", p | claim | first),
        ("job.reclaimed", job, "c", p | {"reason": "w"}),
        ("job.claimed", job, "c", p | {"from": "claimed", "to": "claimed"} | second),
        ("job.released", job, "c", p | end | {"to": "queued"} | second),
        ("job.claimed", job, "w", p | claim | third),
        ("job.failed", job, "w", p | end | {"to": "failed"} | third),
        ("job.requeued", job, "operator", p | {"from": "failed", "to": "queued"} | third | {"attempts": 0}),
        ("job.claimed", job, "w", p | claim | again),
        ("job.completed", job, "w", p | end | {"to": "completed"} | again),
        ("job.failed", untagged, "operator", {"project": "", "from": "queued", "to": "failed"} | cancelled),
        ("kind.limited", "k", "operator", {"from": "", "to": "4"}),
        ("kind.limited", "k", "operator", {"from": "4", "to": ""}),
        ("lane.state_changed", stream, "c", p | {"from": "open", "to": "in_progress"}),
        ("lane.reviewed", stream, "w", p | {"from": "", "to": "pending"}),
        ("lane.merged", stream, "c", p | {"from": "", "to": "skipped"}),
        ("token.issued", ids["token"], "operator", {"to": "live", "reason": "w"}),
        ("token.replaced", ids["token"], "operator", {"from": "live", "to": "live", "reason": "w"}),
        ("token.issued", ids["newer token"], "operator", {"to": "live", "reason": "w"}),
        ("token.revoked", ids["newer token"], "operator", {"from": "live", "to": "revoked", "reason": "w"}),
    ]  # fmt: skip
    assert {event.event for event in events} == set(EVENT_FACTS) >= {name for tool in TOOLS for name in tool.events}


def test_an_event_has_the_fields_of_the_contract_and_leaves_out_what_it_has_not(queue: Queue, clock: Clock) -> None:
    a_long_day(queue, clock)
    for number, event in enumerate(queue.shampoo.history(limit=1000), 1):
        assert event.id == number
        facts = {"event", "entity_id", "actor", "at", *EVENT_FACTS[event.event]}
        assert facts <= event.keys() - {"id"} <= {*FIELDS, "reason", "digest"}
        assert all(value != "" for name, value in event.items() if name not in facts)
        assert ("digest" in event) == (event.event in ("job.created", "lane.created", "quorum.opened"))
        operators = event.event.startswith(("principal", "quorum", "task", "kind")) or event.actor == "operator"
        assert event.holder in (["desk", "w/1"] if not operators else [event.holder])
        assert event.at == ("2027-01-15T08:00:00.000Z" if number < 23 else "2027-01-15T08:00:10.000Z")


def test_a_fact_that_an_event_has_not_reads_as_none(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    (job_id,) = queue.create(conductor, project=PROJECT)
    (event,) = queue.shampoo.history(job_id)
    assert (event.to, event.from_, event.fence, event.reason) == ("queued", None, None, None)
    assert (event["to"], "from" in event) == ("queued", False)
    with pytest.raises(AttributeError):
        _ = event.owner


def test_a_move_carries_the_request_id_and_the_holder_of_its_call(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True, holder="process-7")
    named = conductor.call("job_create", {"kind": "k", "project": PROJECT}, request_id="mine", holder="other")
    plain = conductor.job_create(kind="k", project=PROJECT)
    for job_id, request_id, holder in (
        (named["job_id"], "mine", "other"),
        (plain.job_id, plain.request_id, "process-7"),
    ):
        (event,) = queue.shampoo.history(job_id)
        assert (event.request_id, event.holder, event.actor) == (request_id, holder, "c")


def test_the_feed_is_read_in_pages_oldest_first(queue: Queue, clock: Clock) -> None:
    a_long_day(queue, clock)
    whole = queue.shampoo.history(limit=1000)
    assert queue.shampoo.history() == whole
    read: list[Event] = []
    while page := queue.shampoo.history(after=read[-1].id if read else None, limit=4):
        assert len(page) <= 4
        read += page
    assert read == whole
    assert queue.shampoo.history(after=str(whole[2].id), limit=1) == whole[3:4]
    assert queue.shampoo.history(after=0) == whole
    assert queue.shampoo.history(after=10**17) == []


def test_an_entitys_history_is_its_part_of_the_feed(queue: Queue, clock: Clock) -> None:
    ids = a_long_day(queue, clock)
    whole = queue.shampoo.history(limit=1000)
    for entity_id in (*ids.values(), "c", "w", "t"):
        own = [event for event in whole if event.entity_id == entity_id]
        assert queue.shampoo.history(entity_id) == own
        assert queue.shampoo.history(entity_id, limit=2) == own[:2]
        assert queue.shampoo.history(entity_id, after=own[1].id) == own[2:]
        assert queue.shampoo.history(entity_id, after=own[0].id, limit=1) == own[1:2]
        assert queue.shampoo.history(entity_id, after=own[-1].id) == []


def test_entities_of_one_name_are_told_together(queue: Queue) -> None:
    registry = queue.shampoo.registry
    registry.add_principal("x")
    registry.add_task("x")
    registry.grant("x", "a")
    registry.close_task("x")
    assert queue.events("x") == ["principal.added", "task.added", "principal.granted", "task.closed"]


@pytest.mark.parametrize("engine", ["embedded"], indirect=True)
def test_a_history_longer_than_a_page_is_read_to_its_end(queue: Queue) -> None:
    registry = queue.shampoo.registry
    registry.add_principal("w")
    for _ in range(550):
        registry.grant("w", "a")
        registry.revoke("w", "a")
    for entity_id in ("w", None):
        first = queue.shampoo.history(entity_id, limit=5_000)
        assert [event.id for event in first] == list(range(1, 1_001))
        assert [e.id for e in queue.shampoo.history(entity_id, after=1_000)] == list(range(1_001, 1_101))


def test_an_unknown_entity_has_no_history(queue: Queue) -> None:
    queue.principal("w")
    for name in (MISSING, "nobody", "W", "w*", "*", "\0", "x" * 10_240):
        assert queue.shampoo.history(name) == []


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
def test_what_cannot_be_a_place_in_the_history_is_refused(queue: Queue) -> None:
    bad: list[Any] = [-1, "-1", "x", "", "1-0", 1.5, True, "１", "1" * 19, [], b"1"]
    for after in bad:
        refused(queue, "invalid_argument", queue.shampoo.history, after=after)
    for limit in ("1", 1.0, True, None):
        refused(queue, "invalid_argument", queue.shampoo.history, limit=limit)  # type: ignore[arg-type]
    for entity_id in ("", "\ud800", 7, b"w"):
        refused(queue, "invalid_argument", queue.shampoo.history, entity_id)  # type: ignore[arg-type]


def test_what_is_refused_repeated_empty_or_merely_read_is_no_event(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    lane_id = lane(queue, conductor, quorum_id=quorum_with(queue))
    (job_id,) = queue.create(conductor, project=PROJECT)
    claim = conductor.job_claim(request_id="r", lease_seconds=10)
    conductor.lane_set_state(lane_id=lane_id, state="cancelled", request_id="s")
    before = queue.shampoo.history(limit=1000)
    conductor.job_claim(request_id="r", lease_seconds=10)
    conductor.job_claim()
    conductor.lane_list()
    conductor.lane_set_state(lane_id=lane_id, state="cancelled", request_id="s")
    refused(queue, "illegal_lane_transition", conductor.lane_set_state, lane_id=lane_id, state="open")
    clock.advance(10)
    queue.shampoo.ops.expire()
    assert queue.shampoo.history(limit=1000) == before
    conductor.job_complete(job_id=claim.job_id, outcome="completed")
    conductor.job_complete(job_id=claim.job_id, outcome="completed")
    assert queue.events(job_id)[-2:] == ["job.claimed", "job.completed"]


def test_a_lost_counter_goes_on_from_the_feed(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    queue.command("DEL", queue.key("profile"))
    (job_id,) = queue.create(conductor, project=PROJECT)
    queue.command("DEL", queue.key("profile"))
    queue.principal("w", "a", "b")
    assert [event.id for event in queue.shampoo.history()] == list(range(1, 7))
    assert conductor.job_claim().job_id == job_id


def stored(queue: Queue) -> dict[str, dict[str, Any]]:
    """Read from the raw hashes what a replay must arrive at."""
    found: dict[str, dict[str, Any]] = {}
    for key, (_, facts) in queue.facts().items():
        _, family, name, *_ = [*key.split(":")[1:], "", ""]
        if family == "job":
            numbers = {"attempts": int(facts["attempts"]), "fence": int(facts.get("fence", 0))}
            found[name] = {"standing": facts["standing"], "owner": facts.get("owner", ""), **numbers}
        if family == "lane":
            found[name] = {axis: facts[axis] for axis in ("state", "review_state", "merge_state")}
    return found


def test_a_replay_arrives_at_what_is_stored(queue: Queue, clock: Clock) -> None:
    a_long_day(queue, clock)
    events = queue.shampoo.history(limit=1000)
    assert replay(events) == stored(queue)
    for cut in range(0, len(events), 3):
        checkpoint = replay(events[:cut])
        assert {k: v for k, v in replay(events[cut:], checkpoint).items() if v} == stored(queue)
