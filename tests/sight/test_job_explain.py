"""Why a job is, or is not, claimable: each reason is shown true by trying to claim."""

from __future__ import annotations

from typing import Any

import pytest

from shampoo_queue import Client
from shampoo_queue.contract import limit
from shampoo_queue.sight import REASONS
from shampoo_queue.tools import iso
from tests.conftest import REAL
from tests.queue import Clock, Queue
from tests.sight.looks import Looks, people, spend

pytestmark = pytest.mark.parametrize("engine", REAL, indirect=True)


class Doubt:
    """A caller who asks why, and then claims."""

    def __init__(self, queue: Queue, who: str, client: Client) -> None:
        self._looks, self._client = Looks(queue, who), client
        self.heard: set[str] = set()

    def holds(self, job_id: str, reason: str, **facts: Any) -> None:
        """The job is not claimable for this reason, and a claim does not give it."""
        told = self._looks.job_explain(job_id)
        assert {"reason": told["reason"], **{name: told[name] for name in facts}} == {"reason": reason, **facts}
        assert told["claimable"] is (reason == "claimable") and told["message"] == REASONS[reason]
        if reason != "claimable":
            claim = self._client.job_claim(kind=told["kind"])
            assert claim.job_id != job_id
            if claim:
                self._client.release(claim)
        self.heard.add(reason)

    def claims(self, job_id: str, **facts: Any) -> Any:
        """The job is claimable, and a claim gives it."""
        self.holds(job_id, "claimable", until="", **facts)
        claim = self._client.job_claim(kind=self._looks.job_explain(job_id)["kind"])
        assert claim.job_id == job_id
        return claim


def test_what_time_alone_changes(queue: Queue, clock: Clock) -> None:
    called = people(queue)
    doubt = Doubt(queue, "a", called["a"])
    job_id = queue.create(called["boss"], project="a")[0]
    claim = doubt.claims(job_id, since=iso(clock.now), before=0, attempts=0, attempts_max=limit("attempts"))
    doubt.holds(job_id, "leased", until=iso(clock.now + 300_000), attempts=1)
    clock.advance(299.999)
    doubt.holds(job_id, "leased")
    assert Looks(queue, "a").job_look(job_id)["job"]["standing"] == "claimed"
    clock.advance(0.001)
    assert Looks(queue, "a").job_look(job_id)["job"]["standing"] == "lapsed"
    claim = doubt.claims(job_id, since=iso(clock.now), attempts=1)
    called["a"].release(claim, delay_seconds=10)
    doubt.holds(job_id, "delayed", until=iso(clock.now + 10_000))
    clock.advance(10)
    claim = doubt.claims(job_id, attempts=2)
    called["a"].complete(claim)
    doubt.holds(job_id, "terminal", until="")


@pytest.mark.parametrize("last_lease", [None, 3_600])
def test_a_job_without_attempts_is_exhausted_once_its_last_lease_is_over(
    queue: Queue, clock: Clock, last_lease: int | None
) -> None:
    called = people(queue)
    doubt = Doubt(queue, "a", called["a"])
    queue.create(called["boss"], project="a")
    job_id = spend(called["a"], "k", last_lease)
    if last_lease:
        doubt.holds(job_id, "leased", until=iso(clock.now + 3_600_000))
        clock.advance(3_600)
    doubt.holds(job_id, "exhausted", until="", attempts=limit("attempts"))
    queue.shampoo.ops.requeue(job_id)
    doubt.claims(job_id, attempts=0)


def test_a_job_stands_behind_those_before_it(queue: Queue) -> None:
    called = people(queue)
    jobs = queue.create(called["boss"], 3, project="a")
    looks = Looks(queue, "a")
    assert [looks.job_explain(job_id)["before"] for job_id in jobs] == [0, 1, 2]
    called["a"].job_claim()
    assert looks.job_explain(jobs[2])["before"] == 1


def test_a_kind_that_runs_as_often_as_may_holds_its_jobs_back(queue: Queue, clock: Clock) -> None:
    called = people(queue)
    doubt = Doubt(queue, "a", called["a"])
    queue.create(called["boss"], 1, project="b")
    job_id = queue.create(called["boss"], 1, project="a")[0]
    queue.shampoo.ops.limit_kind("k", 1)
    other = queue.principal("other", "b")
    assert other.job_claim(lease_seconds=20)
    doubt.holds(job_id, "kind_full", until="", kind_limit=1)  # no lease of a hidden project is told
    assert Looks(queue, "star").job_explain(job_id)["until"] == iso(clock.now + 20_000)
    clock.advance(20)
    claim = doubt.claims(job_id, kind_limit=1)
    called["a"].release(claim)
    assert other.job_claim()
    doubt.holds(job_id, "kind_full")
    queue.shampoo.ops.limit_kind("k", None)
    doubt.claims(job_id, kind_limit=None)


def test_a_star_is_told_of_the_projects_longer_in_wait(queue: Queue, clock: Clock) -> None:
    many = limit("star_projects")
    projects = [f"p{n:02}" for n in range(many + 1)]
    boss, star = queue.principal("boss", *projects, conductor=True), queue.principal("star", "*")
    jobs = []
    for project in projects:
        jobs += queue.create(boss, project=project)
        clock.advance(1)
    last = queue.principal("last", projects[-1])
    doubt, own = Doubt(queue, "star", star), Doubt(queue, "last", last)
    doubt.holds(jobs[-1], "behind_other_projects")
    own.holds(jobs[-1], "claimable")
    # The star took the job of another project and gave it back, so that one stands behind now.
    doubt.holds(jobs[-1], "claimable")
    own.claims(jobs[-1])


def test_what_the_indexes_miss_is_told_and_put_back(queue: Queue) -> None:
    called = people(queue)
    job_id = queue.create(called["boss"], project="a")[0]
    for who in ("a", "star"):
        doubt = Doubt(queue, who, called[who])
        member = queue.command("ZRANGE", queue.key("ready", "a", "k"), 0, 0)[0].decode()
        queue.command("ZREM", queue.key("ready", "a", "k"), member)
        doubt.holds(job_id, "unindexed")
        assert queue.shampoo.ops.expire().put_back
        called[who].release(doubt.claims(job_id))
    doubt = Doubt(queue, "star", called["star"])
    for above in (queue.key("projects"), queue.key("projects_of", "k"), queue.key("kinds", "a")):
        queue.command("DEL", above)
        assert Looks(queue, "star").job_explain(job_id)["reason"] == "unindexed"
        assert queue.shampoo.ops.expire().put_back
    doubt.claims(job_id)


@pytest.mark.parametrize(("field", "broken"), [("seq", "x"), ("attempts", "-"), ("fence", "1.5"), ("standing", "odd")])
def test_a_job_edited_beyond_use_is_called_damaged(queue: Queue, field: str, broken: str) -> None:
    called = people(queue)
    job_id = queue.create(called["boss"], project="a")[0]
    sound = queue.command("HGET", queue.key("job", job_id), field)
    queue.command("HSET", queue.key("job", job_id), field, broken)
    doubt = Doubt(queue, "a", called["a"])
    doubt.holds(job_id, "damaged")  # its claim sets the job aside
    doubt.holds(job_id, "damaged")
    looks = Looks(queue, "a")
    assert looks.job_look(job_id)["job"]["standing"] == "damaged"
    assert [job["job_id"] for job in looks.jobs(standing="damaged")] == [job_id]
    assert Looks(queue, "star").queue_status()["damaged"] == 1 and looks.queue_status()["damaged"] is None
    if sound is None:
        queue.command("HDEL", queue.key("job", job_id), field)
    else:
        queue.command("HSET", queue.key("job", job_id), field, sound.decode())
    doubt.holds(job_id, "unindexed")
    queue.shampoo.ops.expire()
    doubt.claims(job_id)


def test_a_payload_of_another_type_is_called_damaged(queue: Queue) -> None:
    called = people(queue)
    job_id = queue.create(called["boss"], project="a", payload="p")[0]
    queue.command("DEL", queue.key("payload", job_id))
    queue.command("LPUSH", queue.key("payload", job_id), "x")
    Doubt(queue, "a", called["a"]).holds(job_id, "damaged")
    assert Looks(queue, "a").job_look(job_id)["payload"] == ""
    queue.command("DEL", queue.key("payload", job_id))
    queue.command("SET", queue.key("payload", job_id), "p")
    queue.shampoo.ops.expire()
