"""Listing jobs: every filter, and pages without doubles and gaps."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from shampoo_queue.clock import now
from shampoo_queue.errors import InvalidArgument
from shampoo_queue.registry import Operator
from shampoo_queue.sight import STANDINGS, SightOperations
from tests.conftest import REAL
from tests.queue import Clock, Queue
from tests.sight.looks import Looks, people, something_of_everything, standing, stored

real = pytest.mark.parametrize("engine", REAL, indirect=True)

FILTERS: list[dict[str, Any]] = [
    {},
    *({"standing": one} for one in STANDINGS),
    {"kind": "k"},
    {"kind": "none"},
    {"project": "a"},
    {"project": ""},
    {"project": "a", "kind": "l", "standing": "lapsed"},
    {"owner": "all"},
    {"owner": "one-b", "standing": "exhausted"},
    {"owner": "nobody"},
]


def wanted(job: dict[str, str], filters: dict[str, Any], now: int) -> bool:
    facts = job | {"owner": job.get("owner", "")}
    same = all(facts[name] == value for name, value in filters.items() if name != "standing")
    return same and filters.get("standing", standing(job, now)) in (standing(job, now), job["standing"])


def test_every_filter_finds_what_a_look_at_all_jobs_finds(queue: Queue, clock: Clock) -> None:
    something_of_everything(queue, clock)
    every, looks = stored(queue), Looks(queue, "star")
    assert {standing(job, clock.now) for job in every.values()} == set(STANDINGS) - {"damaged"}
    for filters in FILTERS:
        found = looks.jobs(page=7, **filters)
        assert Counter(job["job_id"] for job in found) == Counter(
            job_id for job_id, job in every.items() if wanted(job, filters, clock.now)
        ), filters
        assert [job["event"] for job in found] == sorted((job["event"] for job in found), reverse=True)
        for job in found:
            assert job["standing"] == standing(every[job["job_id"]], clock.now)
            assert job["state"] == every[job["job_id"]]["standing"]


@real
def test_the_jobs_of_a_lane_are_found(queue: Queue, clock: Clock) -> None:
    something_of_everything(queue, clock)
    lane_id = queue.shampoo.client("star").lane_list().lanes[0].lane_id
    found = Looks(queue, "star").jobs(lane_id=lane_id)
    assert len(found) == 3 and {job["lane_id"] for job in found} == {lane_id}
    assert Looks(queue, "star").jobs(lane_id="no id of ours") == []


@real
def test_the_jobs_of_a_lane_keep_their_order_and_are_seen_as_others_are(queue: Queue, clock: Clock) -> None:
    called = people(queue)
    lane_id, other = (
        called["boss"].lane_create(quorum_id=queue.shampoo.registry.open_quorum(project)).lane_id for project in "ab"
    )
    created = []
    for n in range(7):
        created += queue.create(called["boss"], kind="kl"[n % 2], lane_id=lane_id)
        queue.create(called["boss"], 1 + n, lane_id=other)
    claim = called["a"].job_claim(kind="k")
    every = Looks(queue, "star")
    for page in (1, 2, 3, 7, 100):
        assert [job["job_id"] for job in every.jobs(page=page, lane_id=lane_id)] == created[::-1]
        assert [job["job_id"] for job in every.jobs(page=page, lane_id=lane_id, kind="l")] == created[5::-2]
    assert [job["job_id"] for job in every.jobs(lane_id=lane_id, standing="claimed")] == [claim.job_id]
    assert every.jobs(lane_id=lane_id, project="b") == [] and len(every.jobs(lane_id=other)) == 28
    assert Looks(queue, "a").jobs(page=2, lane_id=lane_id) == every.jobs(lane_id=lane_id)
    assert Looks(queue, "a").jobs(lane_id=other) == []


def test_a_page_ends_after_about_a_second_whatever_the_queue_holds() -> None:
    began, page = now(), SightOperations(Operator("o")).job_list(owner="nobody")

    def answer() -> None:
        """Say again and again that nothing was found, and that there is more to look at."""
        before = 10**12
        page.send(None)
        while True:
            before -= 1_000
            page.send([b"5", str(before).encode(), []])

    with pytest.raises(StopIteration) as ended:
        answer()
    found = ended.value.value
    assert found["jobs"] == [] and 0 < int(found["cursor"]) < 10**12 - 100_000
    assert 0.9 < now() - began < 5


@real
@pytest.mark.parametrize("seed", range(3))
def test_pages_list_what_stands_still_once_and_nothing_twice_while_jobs_move(queue: Queue, seed: int) -> None:
    chance, called = random.Random(seed), people(queue)
    moving = [job.job_id for job in called["boss"].create_many([{"kind": "k", "project": "a"}] * 60)]  # type: ignore[union-attr]
    still = {job.job_id for job in called["boss"].create_many([{"kind": "l", "project": "a"}] * 60)}  # type: ignore[union-attr]
    found, cursor, looks = [], None, Looks(queue, "a")
    while cursor != "":
        answer = looks.job_list(limit=chance.randint(1, 20), cursor=cursor)
        found += [job["job_id"] for job in answer["jobs"]]
        cursor = answer["cursor"]
        for _ in range(chance.randint(0, 6)):
            claim = called["a"].job_claim(kind="k")
            if claim and chance.random() < 0.5:
                called["a"].release(claim)
        if chance.random() < 0.5:
            queue.create(called["boss"], kind="new", project="a")
    assert len(found) == len(set(found))
    assert still <= set(found) <= still | set(moving)


@real
def test_the_last_page_says_that_it_is_the_last(queue: Queue) -> None:
    queue.create(people(queue)["boss"], 4, project="a")
    looks = Looks(queue, "a")
    first = looks.job_list(limit=2)
    second = looks.job_list(limit=2, cursor=first["cursor"])
    assert first["cursor"] and not second["cursor"]
    assert len(looks.job_list(limit=0)["jobs"]) == 1
    assert len(looks.job_list(limit=10**9)["jobs"]) == 4


@real
@pytest.mark.parametrize(
    "wrong",
    [
        {"standing": "open"},
        {"standing": 3},
        {"kind": 3},
        {"kind": "x" * 129},
        {"owner": "\ud800"},
        {"project": True},
        {"limit": "3"},
        {"limit": True},
        {"cursor": "-1"},
        {"cursor": "1-0"},
        {"cursor": "٣"},
        {"cursor": 7},
    ],
    ids=str,
)
def test_an_argument_of_a_wrong_form_is_refused(queue: Queue, wrong: dict[str, Any]) -> None:
    people(queue)
    with pytest.raises(InvalidArgument):
        Looks(queue, "a").job_list(**wrong)
