"""``job_wait``, a move of the library: an idle caller is woken when work appears that it may claim."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shampoo_queue import Client
from tests.contract.cast import PROJECT, raw, refused
from tests.contract.idle import LOOK, STAY, Idle
from tests.queue import Clock, Queue


@pytest.fixture
def conductor(queue: Queue, clock: Clock) -> Client:
    return queue.principal("c", PROJECT, "q", conductor=True)


@pytest.fixture
def worker(queue: Queue, conductor: Client) -> Client:
    return queue.principal("w", PROJECT)


@pytest.fixture
def idle(queue: Queue, worker: Client) -> Idle:
    return Idle(queue)


def test_who_finds_nothing_waits_and_is_woken_once(queue: Queue, clock: Clock, conductor: Client, idle: Idle) -> None:
    assert idle.wait("w", "one") == str(LOOK)
    facts = queue.facts()[queue.key("waiter", "one")][1]
    assert facts == {"client_id": "w", "holder": "h", "kind:": "1"}
    assert queue.facts()[queue.key("waiting", "")][1] == [("one", clock.now + STAY)]
    (job_id,) = queue.create(conductor, project=PROJECT)
    assert (idle.signed("one"), idle.is_registered("one")) == (1, False)
    assert queue.key("waiting", "") not in queue.facts()
    queue.create(conductor, project=PROJECT)
    assert idle.signed("one") == 1
    assert conductor.job_claim().job_id == job_id


def test_who_would_find_something_does_not_wait(queue: Queue, conductor: Client, idle: Idle) -> None:
    queue.create(conductor, project=PROJECT, kind="k")
    before = raw(queue)
    for kinds in ((), ("k",), ("l", "k")):
        assert idle.wait("w", "one", *kinds) == "now"
        assert raw(queue) == before
    assert idle.waits("w", "one", "l")
    assert idle.look("w", "one", "k") == "now"
    assert not idle.is_registered("one")


def test_waiting_writes_no_event_no_record_and_moves_no_job(
    queue: Queue, clock: Clock, conductor: Client, idle: Idle
) -> None:
    conductor.job_create(kind="k", project=PROJECT, delay_seconds=3)
    before = queue.facts()
    assert idle.wait("w", "one", "k", "l") == "3000"
    idle.look("w", "one", "k", "l")
    idle.leave("w", "one")
    after = queue.facts()
    start = queue.key("profile").removesuffix("profile")
    families = {key.removeprefix(start).partition(":")[0] for key in after.keys() ^ before.keys()}
    assert families <= {"watched", "wake"}
    assert {key: after[key] for key in before} == before


def test_a_disabled_caller_waits_for_nothing(queue: Queue, idle: Idle) -> None:
    queue.shampoo.registry.disable_principal("w")
    for client_id in ("w", "nobody", ""):
        refused(queue, "unauthenticated", idle.wait, client_id, "one")


def create(queue: Queue, clock: Clock, conductor: Client) -> None:
    queue.create(conductor, project=PROJECT)


def create_for_soon(queue: Queue, clock: Clock, conductor: Client) -> None:
    conductor.job_create(kind="k", project=PROJECT, delay_seconds=8)


def release(queue: Queue, clock: Clock, conductor: Client) -> None:
    conductor.release(conductor.job_claim(kind="held"))


def release_for_soon(queue: Queue, clock: Clock, conductor: Client) -> None:
    conductor.release(conductor.job_claim(kind="held"), delay_seconds=1)


def requeue(queue: Queue, clock: Clock, conductor: Client) -> None:
    claim = conductor.job_claim(kind="held")
    conductor.fail(claim)
    queue.shampoo.ops.requeue(claim.job_id)


def put_back(queue: Queue, clock: Clock, conductor: Client) -> None:
    queue.command("DEL", queue.key("ready", PROJECT, "held"))
    queue.shampoo.ops.expire()


@pytest.mark.parametrize("act", [create, create_for_soon, release, release_for_soon, requeue, put_back])
@pytest.mark.parametrize("any_kind", [True, False])
def test_whatever_makes_work_claimable_wakes_one_who_may_see_it(
    queue: Queue, clock: Clock, conductor: Client, idle: Idle, act: Callable[..., None], any_kind: bool
) -> None:
    queue.principal("o", "q")
    queue.principal("off", PROJECT)
    kind = "k" if act in (create, create_for_soon) else "held"
    foreign = {"of another project": "o", "of another kind": "w", "disabled": "off", "revoked": "x"}
    queue.principal("x", PROJECT)
    for waiter, client_id in foreign.items():
        assert idle.waits(client_id, waiter, "z" if waiter == "of another kind" else "" if any_kind else kind)
    queue.shampoo.registry.disable_principal("off")
    queue.shampoo.registry.revoke("x", PROJECT)
    assert idle.waits("w", "first", *(() if any_kind else (kind, "z")))
    assert idle.waits("w", "second", *(() if any_kind else (kind,)))
    if kind == "held":
        queue.create(conductor, kind="held", project=PROJECT)
        # That woke the first; it comes back, as one does who was too late.
        assert idle.signed("first") == 1
        queue.command("DEL", queue.key("wake", "first"))
    kept = {waiter: queue.facts()[queue.key("waiter", waiter)] for waiter in foreign}
    act(queue, clock, conductor)
    woken = "second" if kind == "held" else "first"
    assert {waiter for waiter in ("first", "second", *foreign) if idle.signed(waiter)} == {woken}
    assert {waiter: queue.facts()[queue.key("waiter", waiter)] for waiter in foreign} == kept


def test_work_for_much_later_wakes_nobody(queue: Queue, conductor: Client, idle: Idle) -> None:
    assert idle.waits("w", "one")
    conductor.job_create(kind="k", project=PROJECT, delay_seconds=8.001)
    queue.create(conductor, kind="held", project="q")
    conductor.release(conductor.job_claim(kind="held"), delay_seconds=9)
    assert idle.signed("one") == 0


@pytest.mark.parametrize("lapsed", [True, False])
def test_a_claim_that_sees_more_behind_it_wakes_the_next(
    queue: Queue, clock: Clock, conductor: Client, idle: Idle, lapsed: bool
) -> None:
    """So what became claimable by itself, and for which nobody was woken, spreads to as many callers."""
    delay = 0 if lapsed else 20
    for _ in range(3):
        conductor.job_create(kind="k", project=PROJECT, delay_seconds=delay)
    if lapsed:
        assert all(conductor.job_claim(lease_seconds=20) for _ in range(3))
    for n in range(3):
        assert idle.waits("w", f"{n}")
        clock.advance(0.001)
    clock.advance(20)
    for n in range(2):
        assert conductor.job_claim()
        assert [idle.signed(f"{other}") for other in range(3)] == [1] * (n + 1) + [0] * (2 - n)
    assert conductor.job_claim()
    assert idle.signed("2") == 0


def test_a_claim_wakes_nobody_for_a_job_for_which_somebody_was_woken(
    queue: Queue, conductor: Client, idle: Idle
) -> None:
    for n in range(3):
        assert idle.waits("w", f"{n}")
    queue.create(conductor, 2, project=PROJECT)
    assert conductor.job_claim()
    assert sum(idle.signed(f"{n}") for n in range(3)) == 2


@pytest.mark.parametrize("grants", [(PROJECT,), ("*",)], ids=str)
@pytest.mark.parametrize("kinds", [(), ("k",), ("l", "k")], ids=str)
def test_what_is_due_or_lapses_before_the_next_look_sets_its_time(
    queue: Queue, clock: Clock, conductor: Client, grants: tuple[str, ...], kinds: tuple[str, ...]
) -> None:
    idle = Idle(queue)
    queue.principal("i", *grants)
    conductor.job_create(kind="k", project=PROJECT, delay_seconds=8.001)
    assert idle.wait("i", "one", *kinds) == str(LOOK)
    clock.advance(0.002)
    assert idle.look("i", "one", *kinds) == "7999"
    clock.advance(7.998)
    assert idle.wait("i", "two", *kinds) == "1001"  # the first one watches it, the second looks a second later
    assert idle.wait("i", "three", *kinds) == str(LOOK)
    clock.advance(0.001)
    assert idle.look("i", "one", *kinds) == "now"
    assert conductor.job_claim(lease_seconds=5)
    assert idle.wait("i", "one", *kinds) == "5000"
    clock.advance(5)
    assert idle.look("i", "one", *kinds) == "now"


def test_one_of_several_idle_callers_watches_what_is_due_and_one_looks_a_second_later(
    queue: Queue, clock: Clock, conductor: Client, idle: Idle
) -> None:
    conductor.job_create(kind="k", project=PROJECT, delay_seconds=2)
    conductor.job_create(kind="l", project=PROJECT, delay_seconds=4)
    assert [idle.wait("w", f"{n}") for n in range(4)] == ["2000", "3000", "4000", "5000"]
    assert idle.wait("w", "4") == str(LOOK)
    clock.advance(2)
    assert conductor.job_claim(lease_seconds=1)
    # Each goes on watching its own, also where that moved.
    clock.advance(0.5)
    assert [idle.look("w", f"{n}") for n in range(5)] == ["500", "1500", "1500", "2500", str(LOOK)]


def test_a_watcher_goes_on_watching_however_often_it_looks_and_leaves_it_to_the_next(
    queue: Queue, clock: Clock, conductor: Client, idle: Idle
) -> None:
    conductor.job_create(kind="k", project=PROJECT, delay_seconds=7)
    assert idle.wait("w", "one") == "7000"
    clock.advance(0.001)
    assert idle.wait("w", "other") == "7999"
    assert idle.look("w", "one") == "6999"
    clock.advance(0.001)
    assert idle.wait("w", "one") == "6998"  # registered anew
    conductor.job_create(kind="k", project=PROJECT, delay_seconds=8)  # wakes the one who has waited longest
    assert (idle.signed("other"), idle.signed("one")) == (1, 0)
    conductor.job_create(kind="k", project=PROJECT, delay_seconds=8)
    assert (idle.signed("other"), idle.signed("one")) == (1, 1)
    # Who was woken watches no longer, until it comes back; another may be first.
    assert idle.wait("w", "other") == "6998"
    assert idle.wait("w", "one") == "7998"
    idle.leave("w", "other", sign=False)
    assert idle.look("w", "one") == "6998"


def test_a_watcher_who_died_costs_a_second(queue: Queue, clock: Clock, conductor: Client, idle: Idle) -> None:
    conductor.job_create(kind="k", project=PROJECT, delay_seconds=2)
    assert idle.wait("w", "dead") == "2000"
    assert idle.wait("w", "alive") == "3000"
    clock.advance(3)
    assert idle.look("w", "alive") == "now"


def test_a_dead_waiter_costs_one_sign_and_the_next_look_finds_the_job(
    queue: Queue, clock: Clock, conductor: Client, worker: Client, idle: Idle
) -> None:
    assert idle.waits("w", "dead")
    clock.advance(0.001)
    assert idle.wait("w", "alive") == str(LOOK)
    (job_id,) = queue.create(conductor, project=PROJECT)
    assert (idle.signed("dead"), idle.signed("alive")) == (1, 0)
    clock.advance(LOOK / 1000)
    assert idle.look("w", "alive") == "now"
    assert worker.job_claim().job_id == job_id


def test_one_job_signs_one_of_two_hundred(queue: Queue, conductor: Client, idle: Idle) -> None:
    for n in range(200):
        assert idle.waits("w", f"{n}", *(() if n % 2 else ("k", "l")))
    queue.create(conductor, project=PROJECT)
    assert sum(idle.signed(f"{n}") for n in range(200)) == 1
    assert conductor.job_claim()
    assert sum(idle.signed(f"{n}") for n in range(200)) == 1


def test_a_hundred_jobs_sign_a_hundred_different_callers(queue: Queue, conductor: Client, idle: Idle) -> None:
    for n in range(200):
        assert idle.waits("w", f"{n}")
    conductor.create_many([{"kind": "k", "project": PROJECT}] * 100)
    assert [idle.signed(f"{n}") for n in range(200)].count(1) == 100
    assert queue.command("ZCARD", queue.key("waiting", "")) == 100


def test_those_who_wait_longest_are_woken_first(queue: Queue, clock: Clock, conductor: Client, idle: Idle) -> None:
    for waiter in ("a", "c", "b"):
        assert idle.waits("w", waiter)
        clock.advance(1)
    for woken in (["a"], ["a", "c"], ["a", "c", "b"]):
        queue.create(conductor, kind="k", project=PROJECT)
        assert [waiter for waiter in ("a", "c", "b") if idle.signed(waiter)] == woken


def test_who_asks_for_the_kind_is_woken_before_who_takes_any(queue: Queue, conductor: Client, idle: Idle) -> None:
    assert idle.waits("w", "any")
    assert idle.waits("w", "special", "k")
    queue.create(conductor, project=PROJECT)
    assert (idle.signed("special"), idle.signed("any")) == (1, 0)


def test_sixty_four_who_may_not_see_it_hide_nobody_for_longer_than_a_look(
    queue: Queue, clock: Clock, conductor: Client, idle: Idle
) -> None:
    queue.principal("o", "q")
    for n in range(64):
        assert idle.waits("o", f"{n}")
    assert idle.waits("w", "one")
    queue.create(conductor, project=PROJECT)
    clock.advance(LOOK / 1000)
    assert idle.signed("one") or idle.look("w", "one") == "now"


def test_a_registration_lapses_by_itself(queue: Queue, clock: Clock, conductor: Client, idle: Idle) -> None:
    assert idle.waits("w", "gone")
    clock.advance(STAY / 1000)
    idle.end("gone")
    assert idle.waits("w", "one")
    assert [waiter for waiter, _ in queue.facts()[queue.key("waiting", "")][1]] == ["one"]
    queue.create(conductor, project=PROJECT)
    assert (idle.signed("gone"), idle.signed("one")) == (0, 1)


def test_who_registers_again_asks_for_the_kinds_of_the_last_time(
    queue: Queue, clock: Clock, conductor: Client, idle: Idle
) -> None:
    assert idle.waits("w", "one", "k", "l")
    clock.advance(10)
    assert idle.waits("w", "one", "k", "l")
    assert queue.facts()[queue.key("waiting", "k")][1] == [("one", clock.now + STAY)]
    queue.create(conductor, kind="l", project=PROJECT)
    assert idle.signed("one") == 1
    assert not queue.command("EXISTS", queue.key("waiting", "k"), queue.key("waiting", "l"))


def test_who_leaves_is_signed_for_a_thread_that_still_sleeps_and_woken_by_no_job(
    queue: Queue, conductor: Client, idle: Idle
) -> None:
    assert idle.waits("w", "one", "k", "l")
    assert idle.waits("w", "two", "k")
    idle.leave("w", "one")
    assert (idle.signed("one"), idle.is_registered("one")) == (1, False)
    assert idle.waits("w", "three", "k")
    idle.leave("w", "three", sign=False)
    assert (idle.signed("three"), idle.is_registered("three")) == (0, False)
    queue.create(conductor, project=PROJECT)
    assert (idle.signed("one"), idle.signed("two")) == (1, 1)


@pytest.mark.parametrize("lapse", [True, False])
def test_a_held_kind_lets_its_callers_wait_and_a_free_place_wakes_one(
    queue: Queue, clock: Clock, conductor: Client, worker: Client, idle: Idle, lapse: bool
) -> None:
    queue.shampoo.ops.limit_kind("k", 1)
    queue.create(conductor, 2, project=PROJECT)
    running = conductor.job_claim(lease_seconds=6)
    assert int(idle.wait("w", "one", "k")) == 6000
    assert idle.waits("w", "two")
    if lapse:
        clock.advance(6)
        assert idle.look("w", "one", "k") == "now"
    else:
        conductor.complete(running)
        assert idle.signed("one") == 1
    assert worker.job_claim()


def test_with_more_kinds_than_can_be_looked_at_a_look_lets_the_caller_try(
    queue: Queue, clock: Clock, conductor: Client, idle: Idle
) -> None:
    """Many grants leave few looks for kinds; a job of a kind that no look reaches is still found at the next."""
    queue.principal("many", PROJECT, *(f"g{n}" for n in range(999)))
    kinds = [f"k{n}" for n in range(16)]
    (job_id,) = queue.create(conductor, kind="k15", project=PROJECT)
    assert idle.waits("many", "one", *kinds)
    clock.advance(LOOK / 1000)
    assert idle.look("many", "one", *kinds) == "now"
    assert queue.shampoo.client("many").job_claim(kind="k15").job_id == job_id


def test_names_with_colons_and_percents_wait_for_their_own_kind_only(
    queue: Queue, conductor: Client, idle: Idle
) -> None:
    for waiter, kind in (("a:b", "k:l"), ("a%3Ab", "k%3Al"), ("a", "b:k:l")):
        assert idle.waits("w", waiter, kind)
    queue.create(conductor, kind="k%3Al", project=PROJECT)
    assert [idle.signed(waiter) for waiter in ("a:b", "a%3Ab", "a")] == [0, 1, 0]
