"""``lane_review``: a lane is submitted, and a conductor gives the verdict."""

from __future__ import annotations

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

REVIEWS = ("", "pending", "approved", "changes_requested")
LEGAL = {
    ("", "submit"): "pending",
    ("changes_requested", "submit"): "pending",
    ("pending", "approve"): "approved",
    ("pending", "request-changes"): "changes_requested",
}
VERDICTS = ("approve", "request-changes")


def test_a_lane_is_submitted_sent_back_and_approved(queue: Queue, clock: Clock) -> None:
    conductor, worker = queue.principal("c", PROJECT, conductor=True), queue.principal("w", PROJECT)
    lane_id = lane(queue, conductor, quorum_id=quorum_with(queue, "w"), assignee_client_id="w", state="in_progress")
    before = queue.shampoo.ops.lane(lane_id) or {}
    standing = ""
    for client, decision in (
        (worker, "submit"),
        (conductor, "request-changes"),
        (worker, "submit"),
        (conductor, "approve"),
    ):
        clock.advance(1)
        answer = client.call("lane_review", {"lane_id": lane_id, "decision": decision})
        to = LEGAL[standing, decision]
        assert answer == {"lane_id": lane_id, "review_state": to}
        assert last_event(queue, lane_id) == {
            "event": "lane.reviewed",
            "entity_id": lane_id,
            "project": PROJECT,
            "actor": client.client_id,
            "holder": "h",
            "from": standing,
            "to": to,
        }
        standing = to
    changed = {"review_state": "approved", "changed_at": "2027-01-15T08:00:04.000Z"}
    assert queue.shampoo.ops.lane(lane_id) == before | changed


@pytest.mark.parametrize("assignee", ["participant", "outsider", "star", "worker"])
def test_every_role_gets_its_answer_on_submit(queue: Queue, assignee: str) -> None:
    callers = cast(queue)
    quorum_id = quorum_with(queue, "participant", "outsider")
    answers = {}
    for role, caller in callers.items():
        lane_id = lane(queue, callers["conductor"], quorum_id=quorum_id, assignee_client_id=assignee)
        answers[role] = outcome(caller.lane_review, lane_id=lane_id, decision="submit")
    conductors = {"bare_conductor": "done", "conductor": "done", "star_conductor": "done"}
    hidden = everybody("unknown_lane", participant="denied", star="denied", **conductors)
    visible = {assignee: "done"} if assignee in ("participant", "star") else {}
    assert answers == hidden | visible


def test_every_role_gets_its_answer_on_a_verdict(queue: Queue) -> None:
    callers = cast(queue)
    quorum_id = quorum_with(queue, "participant")
    for decision in VERDICTS:
        answers = {}
        for role, caller in callers.items():
            lane_id = lane(
                queue, callers["conductor"], quorum_id=quorum_id, assignee_client_id="participant", review="pending"
            )
            answers[role] = outcome(caller.lane_review, lane_id=lane_id, decision=decision)
        assert answers == everybody("denied", bare_conductor="done", conductor="done", star_conductor="done")


def test_a_review_goes_from_each_standing_only_where_it_may(queue: Queue) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    quorum_id = quorum_with(queue)
    for review in REVIEWS:
        for decision in ("submit", *VERDICTS):
            lane_id = lane(queue, conductor, review=review, quorum_id=quorum_id)
            call = {"lane_id": lane_id, "decision": decision}
            if (review, decision) in LEGAL:
                assert conductor.call("lane_review", call)["review_state"] == LEGAL[review, decision]
            else:
                code = "review_closed" if decision == "submit" else "nothing_under_review"
                refused(queue, code, conductor.call, "lane_review", call)


def test_a_review_goes_on_whatever_the_execution_standing(queue: Queue) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    for state in ("open", "in_progress", "done", "failed", "cancelled"):
        lane_id = lane(queue, conductor, state=state, review="approved")
        assert (queue.shampoo.ops.lane(lane_id) or {})["state"] == state


def test_a_bad_decision_comes_before_everything(queue: Queue) -> None:
    callers = cast(queue)
    for role in ("unknown", "disabled", "worker", "conductor"):
        many = [{"lane_id": MISSING, "decision": d} for d in ("", "Approve", "approved", "pending", "submit ", "merge")]
        refused_alike(queue, "invalid_argument", callers[role], "lane_review", many)


def test_a_verdict_is_denied_before_any_look_up(queue: Queue) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    worker = queue.principal("w", PROJECT, "*")
    quorum_id = quorum_with(queue, "w")
    names = [lane(queue, conductor, quorum_id=quorum_id, review=review) for review in ("", "pending")]
    names += [lane(queue, conductor), *odd_ids(names[0])]
    for decision in VERDICTS:
        many = [{"lane_id": name, "decision": decision} for name in names]
        refused_alike(queue, "denied", worker, "lane_review", many)


def test_a_lane_that_is_missing_or_hidden_is_unknown(queue: Queue) -> None:
    conductor = queue.principal("c", PROJECT, "q", conductor=True)
    worker = queue.principal("w", PROJECT)
    apart, foreign = quorum_with(queue), quorum_with(queue, "w", project="q")
    names = [
        lane(queue, conductor, quorum_id=quorum_id, review=review, assignee_client_id="w")
        for quorum_id in (apart, foreign)
        for review in ("", "approved")
    ]
    many = [{"lane_id": name, "decision": "submit"} for name in (*names, *odd_ids(names[0]))]
    refused_alike(queue, "unknown_lane", worker, "lane_review", many)


def test_an_odd_id_names_nothing_for_a_conductor_either(queue: Queue) -> None:
    conductor = queue.principal("c", PROJECT, "*", conductor=True)
    lane_id = lane(queue, conductor, review="pending")
    many = [{"lane_id": n, "decision": d} for n in odd_ids(lane_id) for d in ("submit", *VERDICTS)]
    refused_alike(queue, "unknown_lane", conductor, "lane_review", many)


def test_a_submit_by_another_is_denied_before_the_review_is_looked_at(queue: Queue) -> None:
    conductor, worker = queue.principal("c", PROJECT, conductor=True), queue.principal("w", PROJECT)
    quorum_id = quorum_with(queue, "w")
    names = [lane(queue, conductor, quorum_id=quorum_id, review=r, assignee_client_id="c") for r in REVIEWS]
    names.append(lane(queue, conductor, quorum_id=quorum_id))
    refused_alike(queue, "denied", worker, "lane_review", [{"lane_id": n, "decision": "submit"} for n in names])


def test_an_assignee_hears_that_the_review_is_closed(queue: Queue) -> None:
    conductor, worker = queue.principal("c", PROJECT, conductor=True), queue.principal("w", PROJECT)
    quorum_id = quorum_with(queue, "w")
    for review in ("pending", "approved"):
        lane_id = lane(queue, conductor, quorum_id=quorum_id, review=review, assignee_client_id="w")
        refused(queue, "review_closed", worker.lane_review, lane_id=lane_id, decision="submit")


def test_leaving_the_quorum_or_losing_the_grant_hides_a_lane_from_the_next_call(queue: Queue) -> None:
    conductor, worker = queue.principal("c", PROJECT, conductor=True), queue.principal("w", PROJECT)
    quorum_id, registry = quorum_with(queue, "w"), queue.shampoo.registry
    call = {"lane_id": lane(queue, conductor, quorum_id=quorum_id, assignee_client_id="w"), "decision": "submit"}
    registry.remove_participant(quorum_id, "w")
    refused(queue, "unknown_lane", worker.call, "lane_review", call)
    registry.add_participant(quorum_id, "w")
    registry.revoke("w", PROJECT)
    refused(queue, "unknown_lane", worker.call, "lane_review", call)
    registry.grant("w", PROJECT)
    registry.disable_principal("w")
    refused(queue, "unauthenticated", worker.call, "lane_review", call)
    registry.enable_principal("w")
    assert worker.call("lane_review", call)["review_state"] == "pending"


def test_a_repeat_decides_nothing(queue: Queue) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    call = {"lane_id": lane(queue, conductor), "decision": "submit"}
    repeats(queue, conductor, "lane_review", call, call | {"decision": "approve"}, call | {"lane_id": MISSING})
    conductor.lane_review(lane_id=call["lane_id"], decision="request-changes")
    again = conductor.call("lane_review", call, request_id="again")
    assert (again["review_state"], again.meta.replayed) == ("pending", True)
    assert (queue.shampoo.ops.lane(call["lane_id"]) or {})["review_state"] == "changes_requested"


def test_a_refused_review_is_not_remembered(queue: Queue) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    call = {"lane_id": lane(queue, conductor), "decision": "approve"}
    again = not_remembered(queue, "nothing_under_review", conductor, "lane_review", call)
    conductor.lane_review(lane_id=call["lane_id"], decision="submit")
    assert again()["review_state"] == "approved"
