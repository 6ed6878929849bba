"""A server that is busy with a foreign script is waited for, and no script of ours grows with the backlog."""

from __future__ import annotations

import statistics
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from redis.exceptions import ResponseError

from shampoo_queue.errors import Unavailable
from tests.faults.bulk import Bulk
from tests.faults.cases import TOOLS, Stage, clear, shown
from tests.faults.conftest import Open, Start, address
from tests.faults.flavours import Asyncio, Blocking
from tests.queue import Engine, Queue
from tests.servers import Server, wait_until

Connect = Callable[..., Blocking | Asyncio]
ENDLESS = "while true do end"


@contextmanager
def busy(server: Server) -> Iterator[None]:
    """Let a foreign script, which has written nothing, block the server until the end or until it is killed."""

    def run() -> None:
        with suppress(ResponseError):  # it is killed in the end
            server.call("EVAL", ENDLESS, 0, timeout=60)

    script = threading.Thread(target=run)
    script.start()
    try:
        wait_until(lambda: _answers_busy(server), "the server says BUSY")
        yield
    finally:
        with suppress(ResponseError):
            server.call("SCRIPT", "KILL")
        script.join(10)
        assert not script.is_alive()


def _answers_busy(server: Server) -> bool:
    try:
        server.call("PING")
    except ResponseError as error:
        return "BUSY" in str(error)
    return False


@pytest.fixture
def server(start: Start) -> Server:
    return start("--lua-time-limit", "20")


@pytest.fixture
def stage(server: Server, opened: Open) -> Stage:
    return Stage(opened(server.url))


def test_on_busy_every_tool_answers_a_retryable_error_and_then_works_again(
    server: Server, stage: Stage, connect: Connect
) -> None:
    """Field report 16: BUSY is an ordinary refusal that says nothing was done, and needs no new client."""
    queue = stage.queue
    queue.stop_clock()
    flavour = connect(queue, server.url, retry_seconds=0)
    for case in TOOLS:
        case.prepare(stage)
        before = queue.facts()
        with busy(server):
            with pytest.raises(Unavailable, match="busy") as refused:
                case.act(flavour, stage)
            assert (refused.value.retryable, refused.value.outcome_unknown) == (True, False)
        assert queue.facts() == before
        wanted = case.answer(stage)
        assert shown(case.act(flavour, stage), wanted) == wanted
        clear(stage)


def test_a_call_waits_out_a_short_block_by_itself(server: Server, stage: Stage, connect: Connect) -> None:
    """Field report 16: within the retry time the caller notices nothing but the delay."""
    flavour = connect(stage.queue, server.url, retry_seconds=20)
    stage.queued()
    with busy(server):
        killer = threading.Timer(0.3, lambda: server.call("SCRIPT", "KILL"))
        killer.start()
        assert flavour.tool("w", "job_claim")["job_id"] == stage.job
        killer.join()
    assert stage.queue.events(stage.job) == ["job.created", "job.claimed"]


# Script time ----------------------------------------------------------------------------------------------------


class Profile:
    """A profile for measuring: worker ``w`` of project ``p``, and what else it is told to hold."""

    def __init__(self, queue: Queue, size: int) -> None:
        self.queue, self.clock = queue, queue.stop_clock()
        self.bulk = Bulk(queue, address(queue))
        queue.principal("c", "p", "foreign", conductor=True)
        queue.principal("w", "p")
        queue.principal("s", "*")
        queue.principal("x", "foreign")
        self._fill(size)

    def _fill(self, size: int) -> None:
        """Let a tenth be exhausted, three tenths finished, two leased, two foreign, and two wait."""
        bulk, tenth = self.bulk, size // 10
        spent = bulk.create(tenth, "spent", "p")
        for _ in range(5):
            assert sorted(bulk.claim(tenth, "w", "spent", lease=1_000)) == spent
            self.clock.advance(1)
        bulk.create(3 * tenth, "k", "p", tenth)
        done = bulk.claim(3 * tenth, "w", "k")
        bulk.run("job_complete", "w", ((job_id, "completed", "") for job_id in done))
        bulk.create(2 * tenth, "k", "p", 4 * tenth)
        bulk.claim(2 * tenth, "w", "k", lease=3_600_000)
        bulk.create(2 * tenth, "k", "foreign")
        bulk.create(size - 8 * tenth, "k", "p", 6 * tenth)

    def cost_of_claims(self, count: int, caller: str, kind: str) -> Cost:
        """Claim, and give the server's microseconds a claim and its inner commands in all."""
        self.bulk.redis.config_resetstat()
        self.bulk.claim(count, caller, kind)
        stats: Any = self.bulk.redis.info("commandstats")
        assert stats["cmdstat_evalsha"]["calls"] == count
        inner = {name: facts["calls"] for name, facts in stats.items() if name.removeprefix("cmdstat_") not in OUTER}
        return stats["cmdstat_evalsha"]["usec"] / count, inner

    def close(self) -> None:
        self.bulk.close()
        self.queue.shampoo.close()


Cost = tuple[float, dict[str, int]]
OUTER = ("evalsha", "script|load", "config|resetstat", "info", "client|setinfo", "hello")
ROUNDS, BATCH = 5, 20


def hold_the_cost_of_claims(url: str, size: int) -> None:
    """Hold a big profile against a small one on the same server, in turns, for every way to claim."""
    small, big = (Profile(Queue(Engine("own", url, lambda: None)), jobs) for jobs in (1_000, size))
    for number, (caller, kind) in enumerate([("w", "k"), ("w", ""), ("s", ""), ("s", "k")]):
        costs: dict[Profile, list[Cost]] = {small: [], big: []}
        for turn in range(ROUNDS):
            first = 1_000_000 + BATCH * (ROUNDS * number + turn)
            for profile in (small, big):
                profile.bulk.create(BATCH, "k", "p", first)
                costs[profile].append(profile.cost_of_claims(BATCH, caller, kind))
        assert [inner for _, inner in costs[big]] == [inner for _, inner in costs[small]]
        microseconds = {profile: statistics.median(cost for cost, _ in costs[profile]) for profile in costs}
        assert microseconds[big] < 3 * microseconds[small]
    for profile in (small, big):
        assert not profile.bulk.problems()
        profile.close()


def test_a_claim_costs_the_same_among_ten_thousand_jobs(start: Start) -> None:
    """Field report 16: claims do not grow with finished, exhausted, leased, foreign or waiting jobs."""
    hold_the_cost_of_claims(start().url, 10_000)


@pytest.mark.slow
def test_a_claim_costs_the_same_among_fifty_thousand_jobs(start: Start) -> None:
    """Field report 16, at the size of a busy month."""
    hold_the_cost_of_claims(start().url, 50_000)
