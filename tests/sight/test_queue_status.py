"""Counts by kind, by both ways of counting, held against a look at every job."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from typing import Any

import pytest

from shampoo_queue.claims import Ending
from shampoo_queue.sight import STANDINGS
from shampoo_queue.tools import iso
from tests.conftest import REAL
from tests.queue import Clock, Queue
from tests.sight.looks import PROJECTS, Looks, people, something_of_everything, standing, stored

real = pytest.mark.parametrize("engine", REAL, indirect=True)
COUNTED = [one for one in STANDINGS if one not in ("completed", "failed", "damaged")]


def counts(status: dict[str, Any]) -> dict[str, dict[str, int]]:
    return {row["kind"]: {one: row[one] for one in COUNTED} for row in status["kinds"]}


def reckoned(queue: Queue, now: int, projects: tuple[str, ...] = PROJECTS) -> dict[str, dict[str, int]]:
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for job in stored(queue).values():
        if job["project"] in projects and standing(job, now) in COUNTED:
            found[job["kind"]][standing(job, now)] += 1
    return {kind: {one: of[one] for one in COUNTED} for kind, of in found.items()}


def test_both_ways_of_counting_give_what_stands(queue: Queue, clock: Clock) -> None:
    something_of_everything(queue, clock)
    for who, projects in (("star", PROJECTS), ("all", PROJECTS), ("a", ("a",)), ("one-b", ("b",))):
        status = Looks(queue, who).queue_status()
        assert counts(status) == reckoned(queue, clock.now, projects), who
        assert {one: status["total"][one] for one in COUNTED} == {
            one: sum(row[one] for row in status["kinds"]) for one in COUNTED
        }
        assert not status["partial"]


@real
@pytest.mark.parametrize("seed", range(3))
def test_counts_hold_after_any_moves(queue: Queue, clock: Clock, seed: int) -> None:
    chance, called = random.Random(seed), people(queue)
    queue.shampoo.ops.limit_kind("k", 3)
    for step in range(150):
        match chance.randrange(6):
            case 0 | 1:
                job = {"kind": chance.choice("kl"), "project": chance.choice(PROJECTS)}
                called["boss"].create_many([job | {"delay_seconds": chance.choice([0, 0, 20])}])
            case 2 | 3:
                claim = called["all"].job_claim(lease_seconds=chance.choice([1, 30]))
                if claim and chance.random() < 0.6:
                    called["all"].release(claim, delay_seconds=chance.choice([0, 10]))
            case 4:
                if claim := called["star"].job_claim():
                    called["star"].complete(claim)
            case 5:
                clock.advance(chance.choice([0.5, 5, 15]))
        if step % 30 == 29:
            expected = reckoned(queue, clock.now)
            assert counts(Looks(queue, "star").queue_status()) == expected
            assert counts(Looks(queue, "all").queue_status()) == expected


@real
def test_the_oldest_is_the_one_claimable_longest(queue: Queue, clock: Clock) -> None:
    called = people(queue)
    began = clock.now
    queue.create(called["boss"], project="a")
    clock.advance(100)
    queue.create(called["boss"], kind="l", project="b")
    called["boss"].create_many([{"kind": "m", "project": "a", "delay_seconds": 50}])
    clock.advance(20)
    status = Looks(queue, "star").queue_status()
    rows = {row["kind"]: (row["oldest_since"], row["oldest_seconds"]) for row in status["kinds"]}
    assert rows == {"k": (iso(began), 120.0), "l": (iso(began + 100_000), 20.0), "m": ("", 0.0)}
    assert (status["total"]["oldest_since"], status["total"]["oldest_seconds"]) == (iso(began), 120.0)
    assert Looks(queue, "a").queue_status()["total"]["oldest_seconds"] == 120.0
    called["a"].job_claim()
    assert Looks(queue, "a").queue_status()["total"]["oldest_since"] == ""


@real
def test_a_limit_of_a_kind_is_shown(queue: Queue) -> None:
    queue.create(people(queue)["boss"], project="a")
    queue.shampoo.ops.limit_kind("k", 7)
    assert Looks(queue, "a").queue_status()["kinds"][0]["limit"] == 7


@real
def test_a_bound_that_was_reached_is_told(queue: Queue) -> None:
    called = people(queue)
    called["boss"].create_many([{"kind": "k", "project": "a"}] * 1_100)
    called["a"].claim_many(5)
    walked, counted = Looks(queue, "a").queue_status(), Looks(queue, "star").queue_status()
    assert walked["partial"] and not counted["partial"]
    assert counts(counted) == {"k": dict.fromkeys(COUNTED, 0) | {"queued": 1_095, "claimed": 5}}
    assert counts(walked) == counts(counted), "live claims were walked first, and the rest counts as queued"
    called["boss"].create_many([{"kind": f"k{n}", "project": "a"} for n in range(1_000)])
    assert Looks(queue, "star").queue_status()["partial"]


def test_claims_are_listed_by_the_end_of_their_lease(queue: Queue, clock: Clock) -> None:
    something_of_everything(queue, clock)
    looks, every = Looks(queue, "star"), stored(queue)
    claimed = [(int(job["lease_until"]), job_id) for job_id, job in every.items() if job["standing"] == "claimed"]
    for asked, among in (
        (None, claimed),
        ("claimed", [claim for claim in claimed if claim[0] > clock.now]),
        ("lapsed", [claim for claim in claimed if claim[0] <= clock.now]),
    ):
        answer = looks.claims_list(standing=asked)
        assert [job["job_id"] for job in answer["claims"]] == [job_id for _, job_id in sorted(among)]
        assert not answer["more"]
    some = looks.claims_list(limit=3)
    assert some["more"] and [job["job_id"] for job in some["claims"]] == [job_id for _, job_id in sorted(claimed)[:3]]
    of_kind = looks.claims_list(kind="l")["claims"]
    assert {job["kind"] for job in of_kind} == {"l"} and len(of_kind) == len(claimed) / 2


@real
def test_hidden_claims_do_not_stand_before_a_callers_own(queue: Queue) -> None:
    called = people(queue)
    called["boss"].create_many([{"kind": "k", "project": "b"}] * 1_100)
    claimed = queue.principal("other", "b").claim_many(1_050, lease_seconds=60)
    own = queue.create(called["boss"], 2, project="a")
    assert len(claimed) == 1_050 and called["a"].job_claim(lease_seconds=600).claimed
    answer = Looks(queue, "a").claims_list()
    assert [job["job_id"] for job in answer["claims"]] == own[:1] and not answer["more"]
    every = Looks(queue, "star").claims_list()
    assert len(every["claims"]) == 100 and every["more"]


@real
def test_own_claims_are_found_behind_many_queued_jobs(queue: Queue, clock: Clock) -> None:
    called = people(queue)
    called["boss"].create_many([{"kind": "k", "project": "a"}] * 1_200)
    claims = called["a"].claim_many(3, lease_seconds=600)
    answer = Looks(queue, "a").claims_list()
    assert {job["job_id"] for job in answer["claims"]} == {claim.job_id for claim in claims} and answer["more"]
    assert not Looks(queue, "a").claims_list(standing="claimed")["more"]
    clock.advance(601)
    lapsed = Looks(queue, "star").claims_list(standing="lapsed")
    assert {job["job_id"] for job in lapsed["claims"]} == {claim.job_id for claim in claims} and not lapsed["more"]


@real
def test_a_limit_that_was_lowered_tells_when_enough_leases_are_over(queue: Queue, clock: Clock) -> None:
    called = people(queue)
    jobs = queue.create(called["boss"], 4, project="a")
    for lease in (10, 20, 30):
        called["a"].job_claim(lease_seconds=lease)
    queue.shampoo.ops.limit_kind("k", 2)
    told = Looks(queue, "a").job_explain(jobs[3])
    assert (told["reason"], told["until"]) == ("kind_full", iso(clock.now + 20_000))
    clock.advance(19.999)
    assert Looks(queue, "a").job_explain(jobs[3])["reason"] == "kind_full"
    clock.advance(0.001)
    assert Looks(queue, "a").job_explain(jobs[3])["reason"] == "claimable"


@real
def test_a_list_of_claims_ends_where_a_kind_was_not_read_further(queue: Queue) -> None:
    called = people(queue)
    called["boss"].create_many([{"kind": "k", "project": "a"}] * 20)
    called["boss"].create_many([{"kind": f"k{n}", "project": "a"} for n in range(99)])
    soon = [called["a"].job_claim(kind="k", lease_seconds=60 + n).job_id for n in range(20)]
    for n in range(99):
        called["a"].job_claim(kind=f"k{n}", lease_seconds=600)
    for who in ("star", "a"):
        answer = Looks(queue, who).claims_list()
        assert [job["job_id"] for job in answer["claims"]] == soon[:10] and answer["more"]
        assert len(Looks(queue, who).claims_list(kind="k")["claims"]) == 20


@real
def test_more_jobs_without_attempts_than_a_look_counts_are_told(queue: Queue) -> None:
    called = people(queue)
    called["boss"].create_many([{"kind": "k", "project": "a"}] * 502)
    for _ in range(5):
        called["a"].end_many([Ending(claim, "released") for claim in called["a"].claim_many(502)])
    for who in ("star", "a"):
        status = Looks(queue, who).queue_status()
        assert status["partial"] and counts(status)["k"] == dict.fromkeys(COUNTED, 0) | {"exhausted": 500}
        assert Looks(queue, who).claims_list() | {"now": ""} == {"claims": [], "more": True, "now": ""}


@real
def test_more_projects_than_a_look_counts_are_told(queue: Queue) -> None:
    projects = [f"p{n}" for n in range(1_001)]
    some, last = (
        queue.principal(f"boss-{n}", *part, conductor=True)
        for n, part in enumerate((projects[:1_000], projects[1_000:]))
    )
    queue.principal("star", "*")
    some.create_many([{"kind": "k", "project": project} for project in projects[:1_000]])
    assert not Looks(queue, "star").queue_status()["partial"]
    queue.create(last, kind="k", project=projects[-1])
    for who, count in (("star", 1_000), ("boss-0", 1_000), ("boss-1", 1)):
        status = Looks(queue, who).queue_status()
        assert status["total"]["queued"] == count and status["partial"] is (who == "star")
