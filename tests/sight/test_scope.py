"""What is hidden reads as what is missing, leaves no gap, and counts nowhere."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from shampoo_queue import tokens
from shampoo_queue.errors import JobNotFound, Refusal, Unauthenticated, UnknownLane
from shampoo_queue.registry import Operator
from shampoo_queue.tools import Caller
from tests.conftest import REAL
from tests.queue import Clock, Queue
from tests.sight.looks import Looks, people, something_of_everything

pytestmark = pytest.mark.parametrize("engine", REAL, indirect=True)

MISSING = str(uuid.uuid4())
LOOKS: dict[str, Callable[[Looks], Any]] = {
    "job_list": lambda looks: looks.job_list(),
    "job_look": lambda looks: looks.job_look(MISSING),
    "job_explain": lambda looks: looks.job_explain(MISSING),
    "claims_list": lambda looks: looks.claims_list(),
    "queue_status": lambda looks: looks.queue_status(),
    "queue_rates": lambda looks: looks.queue_rates(),
    "feed_read": lambda looks: looks.feed_read(),
    "job_history": lambda looks: looks.job_history(MISSING),
    "lane_history": lambda looks: looks.lane_history(MISSING),
    "lane_look": lambda looks: looks.lane_look(MISSING),
}


def bytes_of(refused: pytest.ExceptionInfo[Refusal]) -> tuple[str, str, int]:
    return refused.value.code, refused.value.message, refused.value.http_status


@pytest.mark.parametrize("name", LOOKS)
def test_whoever_is_no_live_principal_sees_nothing(queue: Queue, name: str) -> None:
    queue.create(people(queue)["boss"], project="a")
    queue.shampoo.registry.disable_principal("star")
    for who in ("star", "stranger", "operator", ""):
        with pytest.raises(Unauthenticated) as refused:
            LOOKS[name](Looks(queue, who))
        assert bytes_of(refused) == ("unauthenticated", "unauthenticated", 401)


@pytest.mark.parametrize("name", LOOKS)
def test_a_revoked_token_sees_nothing_from_the_next_look_on(queue: Queue, name: str) -> None:
    queue.create(people(queue)["boss"], project="a")
    issued = queue.shampoo.registry.issue_token("star")
    presented = tokens.read(issued.token)
    assert presented is not None
    callers: list[Caller | Operator] = [Caller(presented), Operator(presented)]
    for caller in callers:
        with suppress(JobNotFound, UnknownLane):
            LOOKS[name](Looks(queue, caller))
    queue.shampoo.registry.revoke_token(issued.token_id)
    for caller in callers:
        with pytest.raises(Unauthenticated):
            LOOKS[name](Looks(queue, caller))


def test_an_operator_with_a_token_sees_what_its_principal_does(queue: Queue, clock: Clock) -> None:
    something_of_everything(queue, clock)
    issued = queue.shampoo.registry.issue_token("a", scope="ops:write")
    presented = tokens.read(issued.token)
    assert presented is not None
    bound, free, plain = Looks(queue, Operator(presented)), Looks(queue, Operator("operator")), Looks(queue, "a")
    assert bound.jobs() == plain.jobs()
    assert bound.queue_status() == plain.queue_status()
    assert bound.feed_read(limit=1000) == plain.feed_read(limit=1000)
    assert free.jobs() == Looks(queue, "star").jobs() != plain.jobs()
    assert free.queue_status() == Looks(queue, "star").queue_status()


def test_a_caller_sees_its_projects_as_if_there_were_no_others(queue: Queue, clock: Clock) -> None:
    something_of_everything(queue, clock)
    mine, every = Looks(queue, "a"), Looks(queue, "star")
    assert mine.jobs() == [job for job in every.jobs() if job["project"] == "a"]
    assert mine.jobs(project="b") == mine.jobs(owner="one-b") == []
    assert mine.claims_list()["claims"] == [job for job in every.claims_list()["claims"] if job["project"] == "a"]
    seen = mine.feed_read(limit=1000)["events"]
    assert seen == [
        event
        for event in every.feed_read(limit=1000)["events"]
        if event["event"].startswith("job.") and event["project"] == "a"
    ]


def test_hidden_jobs_change_nothing_that_a_caller_is_shown(queue: Queue, clock: Clock) -> None:
    called = people(queue)
    queue.create(called["boss"], 5, project="a")
    called["a"].job_claim()

    def shown() -> list[Any]:
        looks = Looks(queue, "a")
        return [
            looks.jobs(page=2),
            looks.queue_status(),
            looks.claims_list(),
            looks.queue_rates(),
            looks.feed_read()["events"],
            looks.feed_read()["more"],
            looks.job_list(standing="exhausted")["cursor"],
        ]

    before = shown()
    queue.create(called["boss"], 130, project="b")
    other = queue.principal("other", "b")
    for _ in range(40):
        other.job_claim()
    assert shown() == before


def test_a_page_tells_of_what_is_hidden_only_the_number_of_its_event(queue: Queue) -> None:
    called = people(queue)
    queue.create(called["boss"], 1, project="a")
    queue.create(called["boss"], 150, project="b")
    queue.create(called["boss"], 1, project="a")
    looks = Looks(queue, "a")
    first = looks.job_list(limit=1)
    assert first["cursor"] == str(first["jobs"][-1]["event"]), "a cursor stands at what was shown, where it can"
    second = looks.job_list(limit=1, cursor=first["cursor"])
    assert len(second["jobs"]) == 1 and second["cursor"] == ""


@pytest.mark.parametrize("name", ["job_look", "job_explain", "job_history"])
def test_a_hidden_job_reads_as_a_missing_one(queue: Queue, name: str) -> None:
    hidden = queue.create(people(queue)["boss"], project="b")[0]
    getattr(Looks(queue, "star"), name)(hidden)
    answers = set()
    for job_id in (hidden, MISSING, "no id of ours", "", "\ud800", "*"):
        with pytest.raises(JobNotFound) as refused:
            getattr(Looks(queue, "a"), name)(job_id)
        answers.add(bytes_of(refused))
    assert answers == {("job_not_found", "job not found", 404)}


def test_a_chain_never_leads_out_of_its_job(queue: Queue) -> None:
    called = people(queue)
    hidden = queue.create(called["boss"], project="b")[0]
    mine = queue.create(called["boss"], project="a")[0]
    number = Looks(queue, "star").job_history(hidden)["events"][0]["id"]
    assert Looks(queue, "a").job_history(mine, cursor=str(number))["events"] == []


def test_lanes_are_seen_as_lane_list_shows_them(queue: Queue) -> None:
    called = people(queue)
    called["part"] = queue.principal("part", "a")
    called["far"] = queue.principal("far", conductor=True)
    called["guest"] = queue.principal("guest", "b")  # takes part, and does not cover the project
    quorum_id = queue.shampoo.registry.open_quorum("a", ["part", "guest"])
    lane_id = called["boss"].lane_create(quorum_id=quorum_id, repo="r", branch="b").lane_id
    called["boss"].lane_set_state(lane_id=lane_id, state="in_progress")
    for name, client in called.items():
        listed = [lane.lane_id for lane in client.lane_list().lanes]
        looks = Looks(queue, name)
        events = [event["event"] for event in looks.feed_read(event="lane.")["events"]]
        if listed:
            lane = looks.lane_look(lane_id)["lane"]
            assert lane["lane_id"] == lane_id and lane["state"] == "in_progress" and lane["repo"] == "r"
            assert [event["event"] for event in looks.lane_history(lane_id)["events"]] == events
            assert events == ["lane.state_changed", "lane.created"]
            continue
        assert events == []
        for look in (looks.lane_look, looks.lane_history):
            for wrong in (lane_id, MISSING):
                with pytest.raises(UnknownLane) as refused:
                    look(wrong)
                assert bytes_of(refused) == ("unknown_lane", "unknown_lane", 404)
    assert {name for name in called if called[name].lane_list().lanes} == {"boss", "star", "part", "far"}
