"""Cancelled calls: no reply ever reaches another call, and what was carried out can be found again."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from shampoo_queue import AsyncClient, AsyncShampoo, errors
from shampoo_queue.claims import Ending
from tests.library.flavours import on
from tests.queue import Queue
from tests.servers import Server

CALLERS = 6
AT_ONCE = 24


class Pair:
    """A worker's listing and claims beside a conductor's creations; two principals, for conductors see all lanes."""

    def __init__(self, shampoo: AsyncShampoo, who: int) -> None:
        worker, conductor = shampoo.client(f"w{who}"), shampoo.client("c")
        self.lane_list = worker.lane_list
        self.job_claim, self.job_complete = worker.job_claim, worker.job_complete
        self.job_create, self.create_many = conductor.job_create, conductor.create_many
        self.claim_wait, self.claim_many = worker.claim_wait, worker.claim_many
        self.renew_many, self.end_many = worker.renew_many, worker.end_many


@dataclass
class Storm:
    """Calls of several principals through one pool, many of them cancelled at a random moment."""

    shampoo: AsyncShampoo
    seed: int
    outcomes: Counter[str] = field(default_factory=Counter)
    created: dict[str, str] = field(default_factory=dict)
    cut_off: list[tuple[int, str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.clients = [Pair(self.shampoo, who) for who in range(CALLERS)]
        self.numbers = iter(range(10**9))

    async def blow(self, cancellations: int) -> None:
        """Go on until so many calls were cut off before they had their answer."""
        hands = [self._hand(cancellations) for _ in range(AT_ONCE)]
        await asyncio.gather(*hands)

    async def _hand(self, cancellations: int) -> None:
        while self.outcomes["cut off"] < cancellations:
            number = next(self.numbers)
            who = number % CALLERS
            what = (self._list, self._list, self._create, self._claim, self._wait, self._batch)[number // CALLERS % 6]
            await self._cut(asyncio.ensure_future(what(who, number)))

    async def _cut(self, call: asyncio.Future[None]) -> None:
        """Cancel a call after a random number of steps of the loop, or a random while, or not at all."""
        chance = self.random.random()
        if chance < 0.45:
            for _ in range(self.random.randrange(12)):
                await asyncio.sleep(0)
            call.cancel()
        elif chance < 0.9:
            await asyncio.sleep(self.random.uniform(0, 0.008))
            call.cancel()
        try:
            await call
            self.outcomes["answered"] += 1
        except asyncio.CancelledError:
            self.outcomes["cut off"] += 1

    async def _list(self, who: int, number: int) -> None:
        """Each principal sees lanes of its own, as many as its number says."""
        listed = await self.clients[who].lane_list()
        assert [lane.assignee for lane in listed.lanes] == [f"w{who}"] * who

    async def _create(self, who: int, number: int) -> None:
        request_id, payload = f"create-{number}", f"w{who}:{number}"
        try:
            created = await self.clients[who].job_create(
                kind="k", payload=payload, project=f"kept-{who}", request_id=request_id
            )
            self.created[created.job_id] = payload
        except asyncio.CancelledError:
            self.cut_off.append((who, request_id, payload))
            raise

    async def _claim(self, who: int, number: int) -> None:
        client = self.clients[who]
        created = await client.job_create(kind=f"k{number}", payload=f"w{who}:{number}", project=f"p{who}")
        claim = await client.job_claim(kind=f"k{number}")
        assert (claim.job_id, claim.payload) == (created.job_id, f"w{who}:{number}")
        done = await client.job_complete(job_id=claim.job_id, outcome="completed", fence=claim.fence)
        assert (done.job_id, done.state) == (claim.job_id, "completed")

    async def _wait(self, who: int, number: int) -> None:
        claim = await self.clients[who].claim_wait(f"none{number}", timeout=0.004)
        assert not claim.claimed

    async def _batch(self, who: int, number: int) -> None:
        """Replies that travel together are each their own call's, too."""
        client = self.clients[who]
        wanted = [f"w{who}:{number}:{n}" for n in range(3)]
        job = {"kind": f"b{number}", "project": f"p{who}"}
        created = [job.job_id for job in good(await client.create_many(job | {"payload": text} for text in wanted))]
        claims = await client.claim_many(5, kind=f"b{number}")
        assert [(claim.job_id, claim.payload) for claim in claims] == list(zip(created, wanted, strict=True))
        renewed = good(await client.renew_many(claims))
        assert [one.job_id for one in renewed] == created
        ended = good(await client.end_many(Ending(claim, "completed") for claim in claims))
        assert [one.job_id for one in ended] == created

    async def settle(self) -> None:
        """Hold every reply against what is stored, and ask again for creations that lost theirs."""
        for job_id, payload in self.created.items():
            assert await self.shampoo.ops.payload(job_id) == payload
        for who, request_id, payload in self.cut_off:
            again = await self.clients[who].job_create(
                kind="k", payload=payload, project=f"kept-{who}", request_id=request_id
            )
            assert await self.shampoo.ops.payload(again.job_id) == payload
            self.outcomes["found" if again.replayed else "made anew"] += 1
            self.created[again.job_id] = payload


def good(answers: list[Any]) -> list[Any]:
    assert not [answer for answer in answers if isinstance(answer, errors.ToolError)]
    return answers


def blown(queue: Queue, cancellations: int) -> Counter[str]:
    """Let a storm pass over a queue of several principals; give what became of its calls."""
    projects = [f"{name}{who}" for who in range(CALLERS) for name in ("p", "kept-")]
    conductor = queue.principal("c", *projects, conductor=True)
    for who in range(CALLERS):
        queue.principal(f"w{who}", f"p{who}", conductor=False)
        quorum = queue.shampoo.registry.open_quorum(f"p{who}", [f"w{who}"])
        for _ in range(who):
            conductor.lane_create(quorum_id=quorum, assignee_client_id=f"w{who}")
    idle = connections(queue)

    async def all_of_it() -> Counter[str]:
        async with AsyncShampoo.connect(queue.engine.url, profile=queue.profile) as shampoo:
            storm = Storm(shampoo, seed=cancellations)
            await storm.blow(cancellations)
            assert connections(queue) - idle <= AT_ONCE + 1
            await storm.settle()
            jobs = Counter(storm.created.values())
            assert set(jobs.values()) <= {1}
            assert creations_kept(queue) == len(storm.created)
        return storm.outcomes

    return asyncio.run(all_of_it())


def creations_kept(queue: Queue) -> int:
    """How many jobs stand in the projects in which a creation's repeat must find the first one."""
    after, count = 0, 0
    while page := queue.shampoo.history(after=after, limit=1000):
        count += sum(event["event"] == "job.created" and event["project"].startswith("kept") for event in page)
        after = page[-1]["id"]
    return count


def connections(queue: Queue) -> int:
    return int(queue.command("CLIENT", "LIST").decode().count("\n"))


@pytest.mark.parametrize(("engine", "cancellations"), [("redis7", 2_500), ("embedded", 300)], indirect=["engine"])
def test_of_thousands_of_cancelled_calls_no_reply_reaches_another(queue: Queue, cancellations: int) -> None:
    """Field report 28: every answer is about its own question, and no creation happens twice or half."""
    outcomes = blown(queue, cancellations)
    assert outcomes["answered"] > 50
    assert outcomes["found"] > 0
    assert outcomes["found"] + outcomes["made anew"] > 30


@on("cluster")
def test_of_hundreds_of_cancelled_calls_in_a_cluster_no_reply_reaches_another(queue: Queue) -> None:
    """Field report 28: the same on the pools of a cluster."""
    assert blown(queue, 200)["answered"] > 20


@pytest.mark.slow
@on("embedded", "redis7", "cluster", "sentinel")
def test_of_ten_thousand_cancelled_calls_no_reply_reaches_another(queue: Queue) -> None:
    """Field report 28: ten thousand, on every kind of server."""
    assert blown(queue, 10_000)["answered"] > 1_000


async def cut_off_in_flight(server: Server, call: Awaitable[object]) -> None:
    """Cancel a call whose request is out while the server holds still; the server then goes on and carries it out."""
    server.pause()
    try:
        task = asyncio.ensure_future(call)
        await asyncio.sleep(0.1)
        assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    finally:
        server.resume()


def test_a_claim_that_went_through_although_it_was_cancelled_is_found_by_its_request_id(
    own: Queue, server: Server
) -> None:
    """Field report 28: the repeat under its id gives that very claim, and spends no attempt."""
    (job_id,) = own.create(own.principal("c", "p", conductor=True), project="p")

    async def story() -> None:
        async with AsyncShampoo.connect(server.url, profile=own.profile) as shampoo:
            client = shampoo.client("c", holder="h")
            assert not await client.job_claim(kind="none")  # so that the server knows the script
            await cut_off_in_flight(server, client.job_claim(request_id="r-1"))
            again = await client.job_claim(request_id="r-1")
            assert (again.job_id, again.attempts, again.replayed) == (job_id, 1, True)
            await client.job_complete(job_id=job_id, outcome="completed", fence=again.fence)

    asyncio.run(story())
    assert own.events(job_id) == ["job.created", "job.claimed", "job.completed"]


def test_a_claim_that_went_through_although_it_was_cancelled_comes_back_by_its_lease(
    own: Queue, server: Server
) -> None:
    """Field report 28: nobody asked again, so the lease runs out and the next claim takes the job over."""
    clock = own.stop_clock()
    (job_id,) = own.create(own.principal("c", "p", conductor=True), project="p")

    async def story() -> None:
        async with AsyncShampoo.connect(server.url, profile=own.profile) as shampoo:
            shampoo._wire._lua = own.shampoo._wire._lua
            client = shampoo.client("c")
            assert not await client.job_claim(kind="none")  # so that the server knows the script
            await cut_off_in_flight(server, client.job_claim(lease_seconds=60))
            assert not await client.job_claim()
            clock.advance(60)
            claim = await client.job_claim()
            assert (claim.job_id, claim.attempts) == (job_id, 2)

    asyncio.run(story())


@pytest.mark.parametrize("tool", ["job_create", "job_release", "lane_review"])
def test_any_move_that_went_through_although_it_was_cancelled_is_found_by_its_request_id(
    own: Queue, server: Server, tool: str
) -> None:
    """Field report 28: the repeat is an answer, not a second move and no refusal."""
    conductor = own.principal("c", "p", conductor=True)
    lane_id = conductor.lane_create(quorum_id=own.shampoo.registry.open_quorum("p")).lane_id
    (job_id,) = own.create(conductor, project="p")
    conductor.job_claim()
    arguments: dict[str, str] = {
        "job_create": {"kind": "k", "project": "p"},
        "job_release": {"job_id": job_id},
        "lane_review": {"lane_id": lane_id, "decision": "submit"},
    }[tool]
    nothing = {name: "x" for name in arguments if name.endswith("_id")} or {"project": "not granted"}
    before = len(own.events())

    async def story() -> bool:
        async with AsyncShampoo.connect(server.url, profile=own.profile) as shampoo:
            client = shampoo.client("c", holder="h")
            with suppress(errors.ToolError):
                await client.call(tool, {**arguments, **nothing})  # so that the server knows the script
            await cut_off_in_flight(server, client.call(tool, arguments, request_id="r-1"))
            return (await client.call(tool, arguments, request_id="r-1")).meta.replayed

    assert asyncio.run(story())
    assert len(own.events()) == before + 1


def test_a_timeout_of_asyncio_cuts_a_call_off_and_the_next_one_gets_its_own_reply(own: Queue, server: Server) -> None:
    """Field report 28: `asyncio.timeout` around a call is an ordinary cancellation."""
    own.create(own.principal("c", "p", conductor=True), project="p", payload="mine")

    async def story() -> None:
        async with AsyncShampoo.connect(server.url, profile=own.profile) as shampoo:
            client = shampoo.client("c")
            assert await timed_out(client, server) == 3
            assert (await client.lane_list()).count == 0
            assert not await client.job_claim()

    asyncio.run(story())


async def timed_out(client: AsyncClient, server: Server) -> int:
    cut = 0
    assert not await client.job_claim(kind="none")  # so that the server knows the script
    for _ in range(3):
        server.pause()
        try:
            async with asyncio.timeout(0.05):
                await client.job_claim(lease_seconds=3600)
        except TimeoutError:
            cut += 1
        finally:
            server.resume()
    return cut


@on("redis7")
def test_cancelling_while_the_queue_is_first_reached_leaves_it_fit_for_use(queue: Queue) -> None:
    """Field report 28: a start that was cut off is begun again by the next call."""
    queue.principal("c", "p", conductor=True)

    async def story() -> None:
        for steps in range(0, 40, 3):
            shampoo = AsyncShampoo.connect(queue.engine.url, profile=queue.profile)
            client = shampoo.client("c")
            task = asyncio.ensure_future(client.job_claim())
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert not await client.job_claim()
            with pytest.raises(errors.JobNotFound):
                await client.job_release(job_id="x")
            await shampoo.close()

    asyncio.run(story())


def test_callers_that_give_up_while_the_server_stands_still_pile_nothing_up(own: Queue, server: Server) -> None:
    own.principal("c", "", conductor=True)

    async def story() -> None:
        async with AsyncShampoo.connect(server.url, profile=own.profile) as shampoo:
            client = shampoo.client("c")
            assert not await client.job_claim()
            server.pause()
            try:
                for _ in range(100):
                    calls = [asyncio.ensure_future(client.job_create(kind="k")) for _ in range(3)]
                    await asyncio.sleep(0.001)
                    for call in calls:
                        call.cancel()
                    await asyncio.wait(calls)
                home = shampoo._wire._home()
                assert len(home.pool._in_use_connections) <= 8
                assert len(home.packets._leaving) <= 64 + 3
            finally:
                server.resume()
            assert (await client.job_create(kind="last")).job_id

    asyncio.run(story())
    created = [event for event in own.shampoo.history(limit=1000) if event.event == "job.created"]
    assert len(created) == len({event.entity_id for event in created}) <= 30
