"""Waiting for work: who is idle is woken by whatever makes a job claimable, and nothing is lost where that fails."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from shampoo_queue import AsyncShampoo, Client, Shampoo, errors
from shampoo_queue.claims import Ending, new_waiter
from shampoo_queue.contract import JobClaimResult
from tests.faults.proxy import Proxy
from tests.library.flavours import FIVE, REAL, REDIS7, THREE, Flavour
from tests.queue import Queue
from tests.servers import Server, wait_until

SOON = 4.0
"""Seconds within which somebody who was woken is back: less than the time between two looks."""


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(32) as pool:
        yield pool


def conductor_of(queue: Queue) -> Client:
    queue.principal("w", "p")
    return queue.principal("c", "p", "q", conductor=True)


def waiting(queue: Queue, kind: str = "", count: int = 1) -> None:
    """Wait until so many callers stand registered for a kind."""
    wait_until(lambda: queue.command("ZCARD", queue.key("waiting", kind)) >= count, f"{count} wait for {kind!r}")


def in_a_thread(threads: ThreadPoolExecutor, flavour: Flavour, client: Any, *given: Any, **named: Any) -> Future[Any]:
    """Let a client of either flavour wait in a thread of its own."""
    return threads.submit(client.claim_wait, *given, **named)


@FIVE
def test_who_waits_gets_the_job_that_is_created_meanwhile(
    queue: Queue, flavour: Flavour, threads: ThreadPoolExecutor
) -> None:
    conductor = conductor_of(queue)
    client = flavour.open(queue).client("w")
    found = in_a_thread(threads, flavour, client, timeout=20)
    waiting(queue)
    begun = time.monotonic()
    (job_id,) = queue.create(conductor, project="p")
    claim = found.result(20)
    assert time.monotonic() - begun < SOON
    assert (claim.job_id, claim.attempts) == (job_id, 1)
    assert claim.fence
    assert client.complete(claim).state == "completed"
    assert not queue.command("EXISTS", queue.key("waiting", ""))


@THREE
def test_what_stands_already_is_claimed_at_once(queue: Queue, flavour: Flavour) -> None:
    conductor = conductor_of(queue)
    jobs = queue.create(conductor, 2, project="p") + queue.create(conductor, project="p", kind="l")
    client = flavour.open(queue).client("w")
    for kinds in ("k", ["l"], None):
        assert client.claim_wait(kinds, timeout=0).job_id in jobs
    assert not client.claim_wait(timeout=0)
    assert not [key for key in queue.facts() if ":wait" in key]


@THREE
def test_when_the_time_is_over_the_answer_is_false(queue: Queue, flavour: Flavour) -> None:
    conductor_of(queue)
    client = flavour.open(queue).client("w")
    for timeout in (0, -1, 0.0001, 0.3):
        begun = time.monotonic()
        assert not client.claim_wait("k", timeout=timeout)
        assert max(timeout, 0) <= time.monotonic() - begun < max(timeout, 0) + 2
    assert not queue.command("EXISTS", queue.key("waiting", "k"))
    for wrong in ("5", True, float("nan")):
        with pytest.raises(errors.InvalidArgument):
            client.claim_wait(timeout=wrong)
    for kinds in ("", ["k", ""], "x" * 65, ["k", 5], 5, []):
        with pytest.raises(errors.InvalidArgument):
            client.claim_wait(kinds, timeout=0)


Act = Callable[[Queue, Client, JobClaimResult | None], object]
"""What makes work claimable, given the claim of the conductor's, if it has one."""

ACTS: dict[str, Act] = {
    "created": lambda queue, conductor, _: queue.create(conductor, kind="k", project="p"),
    "created for soon": lambda queue, conductor, _: conductor.job_create(kind="k", project="p", delay_seconds=0.3),
    "released": lambda queue, conductor, held: conductor.release(held) if held else None,
    "released for soon": lambda queue, conductor, held: conductor.release(held, delay_seconds=0.3) if held else None,
    "requeued": lambda queue, conductor, held: _fail_and_requeue(queue, conductor, held),
    "lapsed": lambda queue, conductor, held: None,
    "limit raised": lambda queue, conductor, held: queue.shampoo.ops.limit_kind("k", 2),
    "limit lifted": lambda queue, conductor, held: queue.shampoo.ops.limit_kind("k", None),
    "place made": lambda queue, conductor, held: conductor.complete(held) if held else None,
}
LEASES = {"created": 0, "created for soon": 0, "lapsed": 2}


def _fail_and_requeue(queue: Queue, conductor: Client, held: JobClaimResult | None) -> None:
    assert held
    conductor.fail(held)
    queue.shampoo.ops.requeue(held.job_id)


@REAL
@pytest.mark.parametrize("kind", ["k", None])
@pytest.mark.parametrize("act", ACTS)
def test_whatever_makes_work_claimable_ends_the_wait(
    queue: Queue, threads: ThreadPoolExecutor, kind: str | None, act: str
) -> None:
    """Field report 11: due and lapsed work too is noticed with no other traffic."""
    conductor, held = conductor_of(queue), None
    behind = act in ("limit raised", "limit lifted", "place made")
    if behind:
        queue.shampoo.ops.limit_kind("k", 1)
    if lease := LEASES.get(act, 60):
        queue.create(conductor, 1 + behind, kind="k", project="p")
        held = conductor.job_claim(lease_seconds=lease)
    found = threads.submit(queue.shampoo.client("w").claim_wait, kind, timeout=6)
    waiting(queue, kind or "")
    begun = time.monotonic()
    ACTS[act](queue, conductor, held)
    assert found.result(20).kind == "k"
    assert time.monotonic() - begun < SOON


@REAL
def test_several_kinds_are_waited_for_at_once(queue: Queue, threads: ThreadPoolExecutor) -> None:
    conductor, client = conductor_of(queue), queue.shampoo.client("w")
    queue.create(conductor, kind="other", project="p")
    for kind in ("k", "l"):
        found = threads.submit(client.claim_wait, ["k", "l"], timeout=20)
        waiting(queue, "k")
        waiting(queue, "l")
        queue.create(conductor, kind=kind, project="p")
        assert found.result(SOON).kind == kind
        assert not queue.command("EXISTS", queue.key("waiting", "k"), queue.key("waiting", "l"))


@REDIS7
def test_more_kinds_than_can_be_waited_for_are_found_and_other_work_makes_no_hot_loop(
    queue: Queue, threads: ThreadPoolExecutor
) -> None:
    conductor = conductor_of(queue)
    queue.create(conductor, 3, kind="other", project="p")
    pool = queue.shampoo._wire._pool.connection_kwargs
    with (
        Proxy((pool["host"], pool["port"])) as proxy,
        Shampoo.connect(proxy.url, profile=queue.profile) as shampoo,
    ):
        found = threads.submit(shampoo.client("w").claim_wait, [f"k{n}" for n in range(17)], timeout=20)
        time.sleep(2)
        rounds = proxy.requests / 18
        assert 1 <= rounds < 20
        queue.create(conductor, kind="k16", project="p")
        assert found.result(SOON).kind == "k16"


@REAL
def test_leaving_ends_a_wait_in_another_thread(queue: Queue, threads: ThreadPoolExecutor) -> None:
    conductor_of(queue)
    client = queue.shampoo.client("w")
    waiter = new_waiter()
    found = threads.submit(client.wait_for_work, waiter, ["k"], 20)
    waiting(queue, "k")
    begun = time.monotonic()
    client.leave(waiter)
    found.result(SOON)
    assert time.monotonic() - begun < SOON
    assert not queue.command("EXISTS", queue.key("waiting", "k"), queue.key("waiter", waiter))


@REAL
def test_a_wait_takes_no_job_and_claims_of_others_in_between_do_no_harm(
    queue: Queue, threads: ThreadPoolExecutor
) -> None:
    conductor, client = conductor_of(queue), queue.shampoo.client("w")
    waiter = new_waiter()
    found = threads.submit(client.wait_for_work, waiter, [], 20)
    waiting(queue)
    (job_id,) = queue.create(conductor, project="p")
    assert found.result(SOON) is True
    assert (queue.shampoo.ops.job(job_id) or {})["standing"] == "queued"
    assert conductor.job_claim().job_id == job_id
    # Somebody else may be quicker, again and again: who waits goes on waiting until it wins.
    claimed = threads.submit(client.claim_wait, timeout=20)
    waiting(queue)
    for _ in range(5):
        queue.create(conductor, project="p")
        if not conductor.job_claim():
            break
    else:
        queue.create(conductor, project="p")
    assert claimed.result(20).attempts == 1


@REAL
@pytest.mark.parametrize("client_id", ["of another project", "of another kind", "revoked"])
def test_who_may_not_see_the_work_sleeps_on(queue: Queue, threads: ThreadPoolExecutor, client_id: str) -> None:
    conductor = conductor_of(queue)
    client = queue.principal(client_id, "q" if client_id == "of another project" else "p")
    kind = "z" if client_id == "of another kind" else None
    waiter = new_waiter()
    found = threads.submit(client.wait_for_work, waiter, [kind] if kind else [], 1.5)
    waiting(queue, kind or "")
    if client_id == "revoked":
        queue.shampoo.registry.revoke(client_id, "p")
    queue.create(conductor, 3, project="p")
    assert not queue.command("EXISTS", queue.key("wake", waiter))
    assert queue.command("EXISTS", queue.key("waiter", waiter))
    assert found.result(10) is False


@REAL
def test_a_burst_of_jobs_spreads_over_those_who_wait(queue: Queue) -> None:
    """Each job goes to one, each of the idle gets one, and nobody waits for the next look."""
    conductor = conductor_of(queue)

    async def story() -> tuple[list[JobClaimResult], float]:
        async with AsyncShampoo.connect(queue.engine.url, profile=queue.profile) as shampoo:
            idle = [asyncio.ensure_future(shampoo.client("w").claim_wait(timeout=30)) for _ in range(40)]
            await asyncio.to_thread(waiting, queue, "", 40)
            begun = time.monotonic()
            await asyncio.to_thread(conductor.create_many, [{"kind": "k", "project": "p"}] * 40)
            return await asyncio.gather(*idle), time.monotonic() - begun

    claims, took = asyncio.run(story())
    assert len({claim.job_id for claim in claims}) == 40
    assert took < SOON


@REDIS7
def test_idle_callers_cost_the_server_next_to_nothing(queue: Queue) -> None:
    """Far under a command a second each, once they stand registered."""
    conductor_of(queue)

    def commands() -> int:
        info = queue.command("INFO", "stats").decode()
        return int(
            next(line for line in info.splitlines() if line.startswith("total_commands_processed")).split(":")[1]
        )

    async def story() -> float:
        async with AsyncShampoo.connect(queue.engine.url, profile=queue.profile) as shampoo:
            idle = [asyncio.ensure_future(shampoo.client("w").claim_wait(timeout=7)) for _ in range(50)]
            await asyncio.to_thread(waiting, queue, "", 50)
            await asyncio.sleep(0.5)
            before = commands()
            await asyncio.sleep(4)
            spent = commands() - before
            for each in idle:
                each.cancel()
            await asyncio.gather(*idle, return_exceptions=True)
            return spent / 4 / len(idle)

    assert asyncio.run(story()) < 0.9


@REDIS7
@pytest.mark.parametrize("cancellations", [100, pytest.param(1_000, marks=pytest.mark.slow)])
def test_cancelled_waits_lose_no_job_and_leave_the_connections_fit_for_use(queue: Queue, cancellations: int) -> None:
    """Field report 28: each is cut off at a random moment of claiming, registering or sleeping."""
    conductor = conductor_of(queue)
    chance = random.Random(cancellations)

    async def story() -> None:
        async with AsyncShampoo.connect(queue.engine.url, profile=queue.profile) as shampoo:
            client = shampoo.client("w", holder="h")
            cut = 0
            while cut < cancellations:
                waits = [asyncio.ensure_future(client.claim_wait("k", lease_seconds=1, timeout=20)) for _ in range(8)]
                await asyncio.sleep(chance.uniform(0, 0.02))
                await asyncio.to_thread(queue.create, conductor, 1, "k", project="p")
                for wait in waits:
                    await asyncio.sleep(chance.uniform(0, 0.003))
                    wait.cancel()
                for found in await asyncio.gather(*waits, return_exceptions=True):
                    if isinstance(found, asyncio.CancelledError):
                        cut += 1
                    else:
                        assert isinstance(found, JobClaimResult)
                        with suppress(errors.LeaseExpired, errors.JobNotClaimed, errors.JobAlreadyTerminal):
                            await client.complete(found)
                listed = await client.lane_list()
                assert (listed.count, listed.lanes) == (0, [])
            # What was claimed for somebody who had gone comes back when its lease lapses.
            while await asyncio.to_thread(queue.command, "ZCARD", queue.key("projects")):
                if claim := await client.job_claim(kind="k"):
                    await client.complete(claim)
                await asyncio.sleep(0.05)

    asyncio.run(story())
    states = [facts["standing"] for key, (_, facts) in queue.facts().items() if ":job:" in key]
    assert set(states) == {"completed"}
    assert not queue.command("EXISTS", queue.key("spent"))


@pytest.mark.parametrize("away", [0.0, 2.0])
def test_who_waits_while_the_server_restarts_goes_on_waiting(
    own: Queue, server: Server, flavour: Flavour, threads: ThreadPoolExecutor, away: float
) -> None:
    """Field report 11: the registration is made anew, and work that came meanwhile is found."""
    conductor = conductor_of(own)
    client = flavour.connect(server.url, profile=own.profile).client("w")
    found = threads.submit(client.claim_wait, "k", timeout=30)
    waiting(own, "k")
    server.stop()
    time.sleep(away)
    server.start()
    (job_id,) = own.create(conductor, project="p")
    assert found.result(15).job_id == job_id


@REAL
def test_a_caller_disabled_while_it_waits_is_told_so_when_it_is_woken(
    queue: Queue, threads: ThreadPoolExecutor
) -> None:
    conductor_of(queue)
    client = queue.shampoo.client("w")
    waiter = new_waiter()
    found = threads.submit(client.claim_wait, timeout=20)
    waiting(queue)
    queue.shampoo.registry.disable_principal("w")
    (name,) = queue.command("ZRANGE", queue.key("waiting", ""), 0, 0)
    queue.shampoo.client("c").leave(name.decode())  # as if its time for the next look had come
    with pytest.raises(errors.Unauthenticated):
        found.result(SOON)
    with pytest.raises(errors.Unauthenticated):
        client.wait_for_work(waiter, [], 5)


@REAL
def test_two_who_wait_share_delayed_jobs_without_a_third_party(queue: Queue, threads: ThreadPoolExecutor) -> None:
    conductor = conductor_of(queue)
    idle = [threads.submit(queue.shampoo.client("w").claim_wait, "k", timeout=20) for _ in range(2)]
    waiting(queue, "k", 2)
    begun = time.monotonic()
    jobs = [conductor.job_create(kind="k", project="p", delay_seconds=delay).job_id for delay in (0.4, 0.8)]
    assert {each.result(20).job_id for each in idle} == set(jobs)
    assert 0.8 <= time.monotonic() - begun < 0.8 + SOON
    assert threading.active_count() < 100


@pytest.mark.parametrize("engine", ["embedded"], indirect=True)
@pytest.mark.parametrize("steps", range(12))
def test_a_wait_that_is_cancelled_at_any_step_ends(queue: Queue, steps: int) -> None:
    """Python 3.11 can lose a cancellation that comes as a command is sent; the wait would go on for ever."""
    queue.principal("w", "p")

    async def cancelled() -> None:
        async with AsyncShampoo.connect(queue.engine.url, profile=queue.profile) as shampoo:
            client = shampoo.client("w")
            waits = [asyncio.create_task(client.claim_wait("none")) for _ in range(3)]
            for _ in range(steps):
                await asyncio.sleep(0)
            for wait in waits:
                wait.cancel()
            done, pending = await asyncio.wait(waits, timeout=5)
            assert not pending
            assert all(wait.cancelled() for wait in done)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.0005):
                    await client.claim_wait("none", timeout=30)
            # Who was cancelled before, and goes on, may still call.
            assert asyncio.current_task()
            assert not (await client.job_claim()).claimed

    asyncio.run(cancelled())


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
def test_what_is_asked_for_is_checked_before_anything_is_sent(queue: Queue) -> None:
    client = queue.principal("w", "p", conductor=True)
    queue.create(client, project="p")
    wrong: Any
    for wrong in (["k", None], [""], [1], [], 5):
        with pytest.raises(errors.InvalidArgument):
            client.claim_wait(wrong, timeout=0)
    for wrong in (None, 1, b"x", "\ud800", []):
        with pytest.raises(errors.InvalidArgument, match="waiter"):
            client.leave(wrong)
        with pytest.raises(errors.InvalidArgument, match="waiter"):
            client.wait_for_work(wrong, [], 0)
    none = client.job_claim(kind="none")
    with pytest.raises(errors.InvalidArgument, match="holds no job"):
        client.renew(none)
    for answers in (
        client.create_many([5, {"kind": "k", "project": "p"}]),  # type: ignore[list-item]
        client.complete_many([5, (none, None)]),  # type: ignore[list-item]
        client.renew_many([5, none]),  # type: ignore[list-item]
        client.end_many([5, Ending(none, "completed")]),  # type: ignore[list-item]
    ):
        assert isinstance(answers[0], errors.InvalidArgument)
        assert len(answers) == 2
    assert client.job_claim(kind="k").claimed
