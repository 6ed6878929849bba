"""A host that is full or down holds back its own jobs, and nobody else's."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import wraps

import pytest

from shampoo_queue.pump.breaker import MOST_REMEMBERED, Crowded, Hosts, Patience
from shampoo_queue.pump.payload import Origin

HOST, OTHER = Origin("http", "a.example", 80), Origin("http", "a.example", 81)
PATIENCE = Patience(
    per_host=2,
    opens_after=3,
    first_pause_seconds=0.2,
    most_pause_seconds=0.4,
    quiet_seconds=30.0,
    most_waiting=4,
    most_wait_seconds=30.0,
    look_seconds=0.02,
)


_bounding: set[asyncio.Task[None] | None] = set()


def alone(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    """Run a test on an event loop of its own."""

    @wraps(test)
    def run() -> None:
        async def bounded() -> None:
            _bounding.add(asyncio.current_task())
            async with asyncio.timeout(10):
                await test()

        asyncio.run(bounded())

    return run


class Delivery:
    """One delivery that goes on until it is told how it ends."""

    def __init__(self, hosts: Hosts, origin: Origin = HOST, attempts: int = 1) -> None:
        self.began = asyncio.Event()
        self._end: asyncio.Future[bool | None] = asyncio.get_running_loop().create_future()
        self.task = asyncio.create_task(self._run(hosts, origin, attempts))
        # Not every refusal is looked at.
        self.task.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def _run(self, hosts: Hosts, origin: Origin, attempts: int) -> None:
        async with hosts.turn(origin, attempts) as turn:
            self.began.set()
            turn.alive = await self._end

    async def end(self, alive: bool | None) -> None:
        await self.began.wait()
        self._end.set_result(alive)
        await self.task

    async def refused(self) -> Crowded:
        with pytest.raises(Crowded) as refused:
            await self.task
        return refused.value


async def settle() -> None:
    """Let everything happen that needs no time."""
    for _ in range(10):
        await asyncio.sleep(0)


async def open_circuit(hosts: Hosts, origin: Origin = HOST) -> None:
    for _ in range(PATIENCE.opens_after):
        await Delivery(hosts, origin).end(False)


@alone
async def test_a_host_gets_so_many_deliveries_at_once_and_then_one_for_each_that_ends() -> None:
    hosts = Hosts(PATIENCE)
    first, second, third, fourth = (Delivery(hosts) for _ in range(4))
    await settle()
    assert [one.began.is_set() for one in (first, second, third, fourth)] == [True, True, False, False]
    assert hosts.waiting == 2
    await second.end(True)
    await third.began.wait()
    assert not fourth.began.is_set()
    for one in (first, third, fourth):
        await one.end(True)
    assert hosts.waiting == 0


@alone
async def test_a_full_host_holds_back_no_other_port_or_scheme() -> None:
    hosts = Hosts(PATIENCE)
    full = [Delivery(hosts) for _ in range(4)]
    for origin in (OTHER, replace(HOST, scheme="https"), replace(HOST, host="b.example")):
        await Delivery(hosts, origin).end(True)
    assert [one.began.is_set() for one in full] == [True, True, False, False]
    for one in full:
        await one.end(True)


@alone
async def test_failures_in_a_row_open_the_circuit_and_jobs_wait_for_one_probe() -> None:
    hosts = Hosts(PATIENCE)
    await open_circuit(hosts)
    waiting = [Delivery(hosts) for _ in range(3)]
    await settle()
    assert not any(one.began.is_set() for one in waiting)
    await waiting[0].began.wait()
    await settle()
    assert [one.began.is_set() for one in waiting] == [True, False, False]
    await waiting[0].end(True)
    await settle()
    assert all(one.began.is_set() for one in waiting)
    for one in waiting[1:]:
        await one.end(True)


@alone
async def test_a_success_in_between_starts_the_count_anew() -> None:
    hosts = Hosts(PATIENCE)
    for alive in (False, False, True, False, False, None, True):
        await Delivery(hosts).end(alive)
    last = Delivery(hosts)
    await settle()
    assert last.began.is_set()
    await last.end(True)


@alone
async def test_each_probe_that_fails_makes_the_next_pause_longer_up_to_the_longest() -> None:
    hosts, loop = Hosts(PATIENCE), asyncio.get_running_loop()
    await open_circuit(hosts)
    pauses = []
    for _ in range(3):
        began = loop.time()
        probe = Delivery(hosts)
        await probe.began.wait()
        pauses.append(loop.time() - began)
        await probe.end(False)
    assert 0.19 <= pauses[0] <= 0.3
    assert all(0.39 <= pause <= 0.6 for pause in pauses[1:])


@alone
async def test_failures_of_deliveries_that_were_under_way_make_no_pause_longer() -> None:
    hosts, loop = Hosts(replace(PATIENCE, per_host=10)), asyncio.get_running_loop()
    under_way = [Delivery(hosts) for _ in range(10)]
    began = loop.time()
    for one in under_way:
        await one.end(False)
    probe = Delivery(hosts)
    await probe.began.wait()
    assert loop.time() - began < 0.35
    await probe.end(True)


@alone
async def test_a_probe_that_shows_nothing_or_is_cancelled_lets_the_next_one_go() -> None:
    hosts = Hosts(PATIENCE)
    await open_circuit(hosts)
    first, second, third = (Delivery(hosts) for _ in range(3))
    await first.end(None)
    await second.began.wait()
    second.task.cancel()
    await third.end(True)
    assert second.task.cancelled()


@alone
async def test_a_job_that_is_cancelled_while_it_waits_takes_nobodys_place() -> None:
    hosts = Hosts(PATIENCE)
    running = [Delivery(hosts) for _ in range(2)]
    await settle()
    gone, last = Delivery(hosts), Delivery(hosts)
    await settle()
    gone.task.cancel()
    await settle()
    assert hosts.waiting == 1
    await running[0].end(True)
    await last.began.wait()
    await running[1].end(True)
    await last.end(True)


@alone
async def test_a_job_called_and_cancelled_in_the_same_moment_passes_its_turn_on() -> None:
    hosts = Hosts(replace(PATIENCE, per_host=1))
    running, called, last = (Delivery(hosts) for _ in range(3))
    await settle()
    running._end.set_result(True)
    await asyncio.sleep(0)  # the first ends and calls the second, which has not run yet
    called.task.cancel()
    await last.end(True)
    assert called.task.cancelled() and not called.began.is_set()
    await Delivery(hosts).end(True)


async def drop() -> None:
    """Cancel what is still under way."""
    left = asyncio.all_tasks() - {asyncio.current_task()} - _bounding
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


@alone
async def test_a_job_cancelled_in_the_moment_before_it_is_called_takes_nobodys_place() -> None:
    hosts = Hosts(PATIENCE)
    running = [Delivery(hosts) for _ in range(PATIENCE.per_host)]
    waiting = [Delivery(hosts) for _ in range(4)]
    await settle()
    for one in (*running, *waiting[:3]):
        one.task.cancel()  # who runs ends first, before who waits has taken itself out
    await asyncio.wait([one.task for one in running + waiting[:3]])
    await waiting[3].end(True)
    fresh = [Delivery(hosts) for _ in range(PATIENCE.per_host)]
    for one in fresh:
        await one.end(True)
    assert hosts.waiting == 0


@alone
async def test_when_room_is_short_a_host_that_is_down_gives_back_the_job_with_most_attempts_left() -> None:
    hosts = Hosts(PATIENCE)
    await open_circuit(hosts)
    busy = [Delivery(hosts, OTHER) for _ in range(3)]
    tried, fresh, last = Delivery(hosts, attempts=4), Delivery(hosts, attempts=1), Delivery(hosts, attempts=5)
    await settle()
    assert hosts.waiting == 4
    newest = Delivery(hosts, attempts=3)
    refusal = await fresh.refused()
    assert str(refusal) == "it does not answer, and too many jobs wait"
    assert refusal.delay_seconds == PATIENCE.most_pause_seconds
    assert hosts.waiting == 4
    assert not any(one.task.done() for one in (*busy, tried, last, newest))
    await drop()


@alone
async def test_a_last_attempt_is_made_where_another_would_be_given_back() -> None:
    hosts = Hosts(replace(PATIENCE, most_wait_seconds=0.05))
    await open_circuit(hosts)
    last, other = Delivery(hosts, attempts=5), Delivery(hosts, attempts=4)
    assert str(await other.refused()) == "it does not answer"
    await last.end(False)
    hosts.stop()
    await Delivery(hosts, attempts=5).end(False)
    with pytest.raises(Crowded):
        await Delivery(hosts, attempts=4).task


@alone
async def test_when_every_second_place_is_taken_a_host_that_never_answered_gets_one() -> None:
    hosts = Hosts(replace(PATIENCE, per_host=4, most_waiting=100), concurrency=8)
    hung = [Delivery(hosts, replace(HOST, host=f"{n}.example")) for n in range(4) for _ in range(4)]
    await settle()
    assert sum(one.began.is_set() for one in hung) == 7  # four of the first host, and one of each other
    fine = [Delivery(hosts, OTHER) for _ in range(3)]
    for one in fine:
        await one.end(True)
    assert all(one.task.done() for one in fine)
    await drop()


@alone
async def test_a_busy_host_gives_back_its_newest_jobs_when_too_many_wait_until_it_may_be_done_with_them() -> None:
    hosts = Hosts(PATIENCE)
    jobs = [Delivery(hosts) for _ in range(8)]
    await settle()
    refusals = [await one.refused() for one in jobs[6:]]
    assert {str(one) for one in refusals} == {"it is busy, and too many jobs wait"}
    assert all(0 < one.delay_seconds < 10 for one in refusals)
    small = Hosts(replace(PATIENCE, most_waiting_bytes=100))
    big = [asyncio.create_task(held(small, 60)) for _ in range(5)]
    await settle()
    assert [task.done() for task in big] == [False, False, False, True, True]
    await drop()


async def held(hosts: Hosts, size: int) -> None:
    with suppress(Crowded):
        async with hosts.turn(HOST, 1, size):
            await asyncio.sleep(60)


@alone
async def test_a_busy_host_that_answers_gives_nothing_back() -> None:
    hosts = Hosts(replace(PATIENCE, quiet_seconds=0.2, most_wait_seconds=0.05, most_waiting=8))
    jobs = [Delivery(hosts) for _ in range(10)]
    for one in jobs:
        await asyncio.sleep(0.05)
        await one.end(True)


@alone
async def test_a_host_that_is_quiet_for_long_gives_back_what_is_too_much_before_its_first_failure() -> None:
    hosts = Hosts(replace(PATIENCE, quiet_seconds=0.1, most_waiting=7))
    jobs = [Delivery(hosts) for _ in range(9)]
    await settle()
    assert hosts.waiting == 7
    await asyncio.sleep(0.15)
    late = Delivery(hosts, OTHER), Delivery(hosts, OTHER), Delivery(hosts, OTHER)
    assert str(await jobs[-1].refused()) == "it does not answer, and too many jobs wait"
    await settle()
    assert hosts.waiting == 7
    assert not any(one.task.done() for one in late)
    await drop()


@alone
async def test_a_job_that_waited_long_in_vain_is_given_back() -> None:
    hosts = Hosts(replace(PATIENCE, most_wait_seconds=0.05))
    await open_circuit(hosts)
    refusal = await Delivery(hosts).refused()
    assert str(refusal) == "it does not answer"
    assert refusal.delay_seconds == PATIENCE.most_pause_seconds
    assert hosts.waiting == 0


@alone
async def test_a_host_is_not_blamed_for_what_failed_because_this_process_stood_still() -> None:
    hosts = Hosts(replace(PATIENCE, per_host=4, quiet_seconds=0.5, most_waiting=8))
    under_way, waiting = [Delivery(hosts) for _ in range(4)], [Delivery(hosts) for _ in range(5)]
    await settle()
    time.sleep(0.7)  # a stopped process is like this, but for its threads
    for one in under_way:
        await one.end(False)
    await settle()
    assert all(one.began.is_set() for one in waiting[:4])
    assert not any(one.task.done() for one in waiting)
    await drop()


@alone
async def test_stopping_gives_back_all_that_wait_and_whoever_would_wait() -> None:
    hosts = Hosts(PATIENCE)
    running = Delivery(hosts), Delivery(hosts)
    waiting = Delivery(hosts)
    await settle()
    hosts.stop()
    assert str(await waiting.refused()) == str(await Delivery(hosts).refused()) == "the pump stops"
    for one in running:
        await one.end(True)
    assert hosts.waiting == 0


@alone
async def test_memory_does_not_grow_with_the_hosts_ever_seen() -> None:
    hosts, fine = Hosts(PATIENCE), Hosts(PATIENCE)
    for n in range(MOST_REMEMBERED * 2):
        async with hosts.turn(replace(HOST, host=f"{n}.example"), 1) as turn:
            turn.alive = n % 2 == 0
        async with fine.turn(replace(HOST, host=f"{n}.example"), 1) as turn:
            turn.alive = True
    assert 0 < len(hosts._hosts) <= MOST_REMEMBERED
    assert not fine._hosts
