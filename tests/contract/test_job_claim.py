"""``job_claim``: one claimable job goes to one caller, under a lease."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from shampoo_queue import Client
from shampoo_queue.tools import iso
from tests.contract.cast import PROJECT, cast, everybody, last_event, outcome, raw, refused, repeats
from tests.queue import Clock, Queue


def claims(client: Client, count: int = 100, kind: str | None = None) -> list[str]:
    """Claim until there is nothing more, and give the job ids in the order in which they came."""
    won = (client.job_claim(kind=kind).job_id for _ in range(count))
    return list(itertools.takewhile(bool, won))


def test_a_claim_gives_the_job_a_lease_and_a_fence(queue: Queue, clock: Clock) -> None:
    conductor, worker = queue.principal("c", PROJECT, conductor=True), queue.principal("w", PROJECT)
    job_id = conductor.job_create(kind="delivery", project=PROJECT, payload="{}").job_id
    clock.advance(7)
    answer = worker.call("job_claim", {"kind": "delivery", "lease_seconds": 30})
    assert answer == {
        "claimed": True,
        "job_id": job_id,
        "kind": "delivery",
        "payload": "{}",
        "lease_until": iso(clock.now + 30_000),
        "attempts": 1,
    }
    assert answer.meta.fence == clock.now
    job = queue.shampoo.ops.job(job_id) or {}
    assert (job["standing"], job["owner"], job["holder"], job["attempts"]) == ("claimed", "w", "h", 1)
    assert last_event(queue, job_id) == {
        "event": "job.claimed",
        "entity_id": job_id,
        "project": PROJECT,
        "actor": "w",
        "holder": "h",
        "from": "queued",
        "to": "claimed",
        "attempts": 1,
        "fence": clock.now,
    }


def test_every_role_gets_its_answer(queue: Queue) -> None:
    callers = cast(queue)
    queue.create(callers["conductor"], len(callers), project=PROJECT)
    answers = {role: outcome(caller.job_claim) for role, caller in callers.items()}
    assert answers == everybody("done")
    owners = {facts["owner"] for key, (_, facts) in queue.facts().items() if ":job:" in key and "owner" in facts}
    assert owners == {"worker", "participant", "star", "conductor", "star conductor"}


def test_nothing_available_and_nothing_authorised_answer_alike(queue: Queue) -> None:
    conductor = queue.principal("c", PROJECT, "", conductor=True)
    callers = [queue.principal("bare"), queue.principal("o", "q"), queue.principal("b", conductor=True)]
    empty = [(caller.call("job_claim"), raw(queue)) for caller in callers]
    queue.create(conductor, project=PROJECT)
    queue.create(conductor)
    before = raw(queue)
    for caller, (answer, _) in zip(callers, empty, strict=True):
        again = caller.call("job_claim")
        assert dict(again) == dict(answer) == {"claimed": False}
        assert (again.meta.fence, again.meta.replayed, again.meta.damaged) == (None, False, ())
        assert raw(queue) == before
    assert empty[0][1] == empty[2][1]


def test_an_empty_claim_writes_nothing(queue: Queue, clock: Clock) -> None:
    conductor, worker = queue.principal("c", PROJECT, conductor=True), queue.principal("w", PROJECT)
    queue.create(conductor, project=PROJECT, kind="other")
    before = raw(queue)
    assert worker.call("job_claim", {"kind": "k"}, request_id="r") == {"claimed": False}
    claim = worker.job_claim(kind="k")
    assert (claim.claimed, bool(claim), claim.job_id, claim.fence) == (False, False, "", None)
    assert raw(queue) == before


def test_the_lease_is_live_until_its_last_millisecond(queue: Queue, clock: Clock) -> None:
    conductor, worker = queue.principal("c", PROJECT, conductor=True), queue.principal("w", PROJECT)
    (job_id,) = queue.create(conductor, project=PROJECT)
    assert conductor.job_claim(lease_seconds=1).job_id == job_id
    clock.advance(0.999)
    assert not worker.job_claim()
    clock.advance(0.001)
    assert worker.job_claim().job_id == job_id


@pytest.mark.parametrize(("asked", "seconds"), [(None, 300), (1, 1), (3600, 3600)], ids=str)
def test_a_lease_is_as_long_as_asked(queue: Queue, clock: Clock, asked: int | None, seconds: int) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    queue.create(conductor, project=PROJECT)
    assert conductor.job_claim(lease_seconds=asked).lease_until == iso(clock.now + seconds * 1000)


def test_a_takeover_names_the_former_owner_in_history_only(queue: Queue, clock: Clock) -> None:
    conductor, worker = queue.principal("c", PROJECT, conductor=True), queue.principal("w", PROJECT)
    (job_id,) = queue.create(conductor, project=PROJECT)
    first = conductor.job_claim(lease_seconds=10)
    clock.advance(10)
    taken = worker.call("job_claim", {"lease_seconds": 10})
    assert set(taken) == {"claimed", "job_id", "kind", "payload", "lease_until", "attempts"}
    assert taken["attempts"] == 2
    assert queue.events(job_id) == ["job.created", "job.claimed", "job.reclaimed", "job.claimed"]
    reclaimed, claimed = queue.shampoo.history(job_id)[-2:]
    for event in (reclaimed, claimed):
        assert (event.actor, event.holder, event.request_id) == ("w", "h", taken.meta.request_id)
    assert (reclaimed.reason, reclaimed.project) == ("c", PROJECT)
    assert (claimed.from_, claimed.to, claimed.attempts, claimed.fence) == ("claimed", "claimed", 2, taken.meta.fence)
    assert first.fence is not None
    assert claimed.fence > first.fence
    assert claimed.reason is None


def test_an_owner_may_take_over_from_itself(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    (job_id,) = queue.create(conductor, project=PROJECT)
    conductor.job_claim(lease_seconds=1)
    clock.advance(1)
    assert conductor.job_claim().attempts == 2
    assert queue.shampoo.history(job_id)[-2].reason == "c"


def test_the_fence_rises_with_the_clock_and_without_it(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    (job_id,) = queue.create(conductor, project=PROJECT)
    start, fences = clock.now, list[int | None]()
    for seconds in (0, 0, 5, -60):
        clock.advance(seconds)
        if fences:
            conductor.job_release(job_id=job_id)
        fences.append(conductor.job_claim().fence)
    assert fences == [start, start + 1, start + 5_000, start + 5_001]


def test_the_earliest_claimable_job_comes_first(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    leased, released, waiting = queue.create(conductor, 3, project=PROJECT)
    assert conductor.job_claim(lease_seconds=20).job_id == leased
    assert conductor.job_claim().job_id == released
    clock.advance(10)
    (later,) = queue.create(conductor, project=PROJECT)
    clock.advance(20)
    conductor.job_release(job_id=released)
    (last,) = queue.create(conductor, project=PROJECT)
    assert claims(conductor) == [waiting, later, leased, released, last]


def test_jobs_of_the_same_instant_come_in_the_order_of_their_creation(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    created = [job_id for n in range(12) for job_id in queue.create(conductor, project=PROJECT, kind=f"k{n % 3}")]
    assert claims(conductor, 5) == created[:5]
    conductor.job_release(job_id=created[1])
    conductor.job_release(job_id=created[0])
    assert claims(conductor, 2) == created[:2]
    assert claims(conductor) == created[5:]


def test_a_kind_narrows_a_claim_and_is_taken_to_the_letter(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    kinds = ["k", "K", " k", "k ", "k:", "%6B", "{k}", "*", "\U0001f600" * 64, "é", "e\u0301"]
    created = {kind: queue.create(conductor, project=PROJECT, kind=kind) for kind in kinds}
    for kind in reversed(kinds):
        answer = conductor.call("job_claim", {"kind": kind})
        assert ([answer["job_id"]], answer["kind"]) == (created[kind], kind)
        assert not conductor.job_claim(kind=kind)


def test_project_and_kind_never_run_into_each_other(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", "a:b", "a", "a%3Ab", conductor=True)
    only_a, escaped = queue.principal("w", "a"), queue.principal("e", "a%3Ab")
    (colon,) = queue.create(conductor, project="a:b", kind="c")
    assert not only_a.job_claim()
    assert not escaped.job_claim()
    (plain,) = queue.create(conductor, project="a", kind="b:c")
    assert not only_a.job_claim(kind="c")
    assert claims(only_a) == [plain]
    assert claims(conductor) == [colon]


def test_projects_take_turns(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", "a", "b", "n", conductor=True)
    worker = queue.principal("w", "a", "b", "n")
    a1, a2, a3 = queue.create(conductor, 3, project="a")
    b1, b2 = queue.create(conductor, 2, project="b")
    clock.advance(1)
    assert claims(worker, 2) == [a1, b1]
    (never,) = queue.create(conductor, project="n")
    assert claims(worker) == [never, a2, b2, a3]


def test_a_turn_counts_whoever_was_served(queue: Queue, clock: Clock) -> None:
    conductor, only_a = queue.principal("c", "a", "b", conductor=True), queue.principal("w", "a")
    a1, a2 = queue.create(conductor, 2, project="a")
    b1, b2 = queue.create(conductor, 2, project="b")
    assert claims(conductor, 2) == [a1, b1]
    assert claims(only_a, 1) == [a2]
    (a3,) = queue.create(conductor, project="a")
    assert claims(conductor) == [b2, a3]


def test_turns_among_projects_never_served_go_by_name(queue: Queue, clock: Clock) -> None:
    names = ["", "A", "B", "_", "a", "aa", "b", "é", "\U0001f600"]
    conductor = queue.principal("c", *names, conductor=True)
    created = {name: queue.create(conductor, project=name)[0] for name in reversed(names)}
    assert claims(conductor) == [created[name] for name in names]


def test_only_projects_with_matching_work_take_turns(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", "a", "b", conductor=True)
    queue.create(conductor, project="a", kind="other")
    b1, b2 = queue.create(conductor, 2, project="b")
    assert claims(conductor, kind="k") == [b1, b2]


def test_a_star_sees_every_project_and_untagged_work(queue: Queue, clock: Clock) -> None:
    conductor, star = queue.principal("c", "", "a", "b:%", conductor=True), queue.principal("s", "*")
    created = [job_id for project in ("", "a", "b:%") for job_id in queue.create(conductor, project=project)]
    assert claims(star) == created
    created = [job_id for project in ("", "a", "b:%") for job_id in queue.create(conductor, project=project)]
    assert claims(star, kind="k") == created


def test_a_star_considers_the_64_projects_whose_work_stood_longest(queue: Queue, clock: Clock) -> None:
    old = [f"o{n:02}" for n in range(64)]
    conductor, star = queue.principal("c", *old, "new", conductor=True), queue.principal("s", "*")
    for project in old:
        queue.create(conductor, 2, project=project)
    assert len(claims(conductor, 64)) == 64
    clock.advance(1)
    (new,) = queue.create(conductor, project="new")
    assert star.job_claim().job_id != new
    assert star.job_claim().job_id == new


def test_a_job_is_claimed_five_times_and_then_passed_over(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    (lapsing,) = queue.create(conductor, project=PROJECT, kind="l")
    (released,) = queue.create(conductor, project=PROJECT, kind="r")
    for attempt in range(1, 6):
        assert conductor.job_claim(kind="l", lease_seconds=1).attempts == attempt
        assert conductor.job_claim(kind="r", lease_seconds=1).attempts == attempt
        conductor.job_release(job_id=released)
        clock.advance(1)
    (behind,) = queue.create(conductor, project=PROJECT, kind="l")
    clock.advance(10_000)
    assert claims(conductor) == [behind]
    assert queue.events(lapsing)[-2:] == ["job.reclaimed", "job.claimed"]


def test_a_revoked_grant_holds_from_the_next_call(queue: Queue, clock: Clock) -> None:
    conductor, worker = queue.principal("c", PROJECT, conductor=True), queue.principal("w", PROJECT)
    queue.create(conductor, 3, project=PROJECT)
    assert worker.job_claim()
    queue.shampoo.registry.revoke("w", PROJECT)
    assert not worker.job_claim()
    queue.shampoo.registry.grant("w", PROJECT)
    assert worker.job_claim()
    queue.shampoo.registry.disable_principal("w")
    refused(queue, "unauthenticated", worker.job_claim)


@pytest.mark.parametrize("edit", [("attempts", "many"), ("attempts", "5"), ("standing", "failed"), ("kind", "other")])
def test_a_claim_looks_past_a_job_edited_beyond_use(queue: Queue, clock: Clock, edit: tuple[str, str]) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    damaged, sound = queue.create(conductor, 2, project=PROJECT)
    key, before = queue.key("job", damaged), (queue.shampoo.ops.job(damaged) or {})[edit[0]]
    queue.command("HSET", key, *edit)
    claim = conductor.job_claim()
    assert (claim.job_id, claim.meta.damaged) == (sound, (damaged,))
    assert queue.command("ZRANGE", queue.key("damaged"), 0, -1) == [damaged.encode()]
    assert not conductor.job_claim()
    queue.command("HSET", key, edit[0], str(before))
    queue.shampoo.ops.expire()
    assert conductor.job_claim().job_id == damaged


def test_a_live_lease_is_not_taken_over_because_an_index_says_so(queue: Queue, clock: Clock) -> None:
    conductor, worker = queue.principal("c", PROJECT, conductor=True), queue.principal("w", PROJECT)
    (job_id,) = queue.create(conductor, project=PROJECT)
    claim = conductor.job_claim()
    for index in (("ready", PROJECT, "k"), ("kinds", PROJECT), ("projects",), ("projects_of", "k")):
        (member,) = queue.command("ZRANGE", queue.key(*index), 0, -1)
        queue.command("ZADD", queue.key(*index), clock.now, member.decode())
    assert not worker.job_claim()
    assert conductor.job_complete(job_id=job_id, outcome="completed", fence=claim.fence).state == "completed"


def test_a_repeat_claims_nothing_more(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    first, second = queue.create(conductor, 2, project=PROJECT, payload="x")
    answer = repeats(queue, conductor, "job_claim", {"kind": "k"}, {"kind": "l"}, {}, {"kind": "k", "lease_seconds": 1})
    assert answer["job_id"] == first
    assert conductor.job_claim().job_id == second


def test_the_default_lease_may_be_spelled_out_in_a_repeat(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    queue.create(conductor, 2, project=PROJECT)
    spellings: list[dict[str, Any]] = [{}, {"lease_seconds": 300}, {"lease_seconds": None, "kind": None}]
    answers = [conductor.call("job_claim", call, request_id="r") for call in spellings]
    assert answers[0] == answers[1] == answers[2]


def test_an_empty_claim_is_not_remembered(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    assert not conductor.job_claim(request_id="r")
    (job_id,) = queue.create(conductor, project=PROJECT)
    claim = conductor.job_claim(request_id="r")
    assert (claim.job_id, claim.replayed) == (job_id, False)


def _gone(queue: Queue, client: Client) -> None:
    """A repeat of a claim that holds no longer answers false, takes nothing else, and writes nothing."""
    before = raw(queue)
    again = client.call("job_claim", request_id="r")
    assert (dict(again), again.meta.fence) == ({"claimed": False}, None)
    assert raw(queue) == before


def test_a_claim_is_repeated_only_while_its_lease_is_live(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    queue.create(conductor, 2, project=PROJECT)
    claim = conductor.job_claim(request_id="r")
    clock.advance(299.999)
    assert conductor.job_claim(request_id="r").job_id == claim.job_id
    clock.advance(0.001)
    _gone(queue, conductor)


@pytest.mark.parametrize("end", ["released", "completed", "failed", "cancelled", "released and claimed again"])
def test_a_claim_is_not_repeated_once_it_has_ended(queue: Queue, clock: Clock, end: str) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    job_id, _ = queue.create(conductor, 2, project=PROJECT)
    conductor.job_claim(request_id="r")
    if end.startswith("released"):
        conductor.job_release(job_id=job_id)
    elif end == "cancelled":
        queue.shampoo.ops.cancel(job_id, "enough")
    else:
        conductor.job_complete(job_id=job_id, outcome=end)
    if end.endswith("again"):
        assert conductor.job_claim().job_id == job_id
    _gone(queue, conductor)


def test_a_claim_is_not_repeated_after_a_takeover(queue: Queue, clock: Clock) -> None:
    conductor, worker = queue.principal("c", PROJECT, conductor=True), queue.principal("w", PROJECT)
    job_id, other = queue.create(conductor, 2, project=PROJECT)
    assert worker.job_claim(request_id="r", lease_seconds=300).job_id == job_id
    conductor.job_claim()
    clock.advance(300)
    assert {conductor.job_claim().job_id, conductor.job_claim().job_id} == {job_id, other}
    _gone(queue, worker)


def test_a_claim_is_repeated_only_while_the_caller_covers_its_project(queue: Queue, clock: Clock) -> None:
    conductor, worker = queue.principal("c", PROJECT, conductor=True), queue.principal("w", PROJECT)
    queue.create(conductor, 2, project=PROJECT)
    first = worker.call("job_claim", request_id="r")
    queue.shampoo.registry.revoke("w", PROJECT)
    _gone(queue, worker)
    queue.shampoo.registry.grant("w", "*")
    again = worker.call("job_claim", request_id="r")
    assert (again, again.meta.fence, again.meta.replayed) == (first, first.meta.fence, True)
