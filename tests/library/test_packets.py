"""What tasks of one event loop send in the same moment travels together, and each still gets what is its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from shampoo_queue import AsyncShampoo
from shampoo_queue.errors import JobNotFound, Unavailable
from tests.conftest import REAL
from tests.queue import Queue

pytestmark = pytest.mark.parametrize("engine", REAL, indirect=True)

MANY = 200


@asynccontextmanager
async def opened(queue: Queue) -> AsyncIterator[tuple[AsyncShampoo, Any]]:
    queue.principal("c", "", conductor=True)
    async with AsyncShampoo.connect(queue.engine.url, profile=queue.profile) as shampoo:
        yield shampoo, shampoo.client("c")


def connections(shampoo: AsyncShampoo) -> int:
    pool = shampoo._wire._home().pool
    return len(pool._available_connections) + len(pool._in_use_connections)


def test_many_callers_share_a_few_connections(queue: Queue) -> None:
    async def main() -> None:
        async with opened(queue) as (shampoo, client):
            made = [client.job_create(kind="k", payload=str(n)) for n in range(MANY)]
            created = [job.job_id for job in await asyncio.gather(*made)]
            assert len(set(created)) == MANY
            claims = await asyncio.gather(*(client.job_claim() for _ in range(MANY)))
            assert {claim.job_id for claim in claims} == set(created)
            assert all(created[int(claim.payload)] == claim.job_id for claim in claims)
            # A hundred commands go in one packet, and claims of a job are as small as their answers.
            assert connections(shampoo) <= 2 + MANY // 100

    asyncio.run(main())


def test_one_refusal_touches_nobody_else_in_the_packet(queue: Queue) -> None:
    async def main() -> None:
        async with opened(queue) as (_, client):
            calls = [client.job_create(kind="k") if n % 2 else client.job_release(job_id="none") for n in range(20)]
            found = await asyncio.gather(*calls, return_exceptions=True)
            assert [isinstance(one, JobNotFound) for one in found] == [n % 2 == 0 for n in range(20)]
            assert len({one.job_id for one in found[1::2]}) == 10  # type: ignore[union-attr]

    asyncio.run(main())


def test_a_caller_that_is_cancelled_leaves_its_reply_to_nobody(queue: Queue) -> None:
    async def main() -> None:
        async with opened(queue) as (_, client):
            for turn in range(50):
                calls = [asyncio.ensure_future(client.job_create(kind="k", payload=f"{turn}")) for _ in range(8)]
                for _ in range(turn % 7):
                    await asyncio.sleep(0)
                calls[turn % 8].cancel()
                found = await asyncio.gather(*calls, return_exceptions=True)
                stood = [one for one in found if not isinstance(one, BaseException)]
                assert len(stood) >= 7 and len({one.job_id for one in stood}) == len(stood)

    asyncio.run(main())
    by_id = {event.entity_id for event in queue.shampoo.history(limit=1000) if event.event == "job.created"}
    assert 50 * 7 <= len(by_id) <= 50 * 8


def test_a_server_that_lost_its_scripts_gets_them_once_more(queue: Queue) -> None:
    async def main() -> None:
        async with opened(queue) as (_, client):
            await client.job_create(kind="k")
            queue.command("SCRIPT", "FLUSH", "SYNC")
            found = await asyncio.gather(*(client.job_create(kind="k") for _ in range(30)))
            assert len({job.job_id for job in found}) == 30

    asyncio.run(main())


def test_connections_that_break_under_a_packet_double_nothing(queue: Queue) -> None:
    async def main() -> None:
        async with opened(queue) as (_, client):
            for turn in range(10):
                calls = [asyncio.ensure_future(client.job_create(kind=f"k{turn}")) for _ in range(40)]
                for _ in range(turn):
                    await asyncio.sleep(0)
                await asyncio.to_thread(queue.command, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
                assert len({job.job_id for job in await asyncio.gather(*calls)}) == 40

    asyncio.run(main())
    created = [event for event in queue.shampoo.history(limit=1000) if event.event == "job.created"]
    assert len(created) == len({event.entity_id for event in created}) == 400


def test_large_payloads_travel_apart(queue: Queue) -> None:
    payload = "x" * 1_000_000

    async def main() -> None:
        async with opened(queue) as (_, client):
            made = await asyncio.gather(*(client.job_create(kind="k", payload=payload) for _ in range(12)))
            claims = await asyncio.gather(*(client.job_claim() for _ in range(12)))
            assert {claim.job_id for claim in claims} == {job.job_id for job in made}
            assert all(claim.payload == payload for claim in claims)

    asyncio.run(main())


@pytest.mark.parametrize("steps", [0, 1, 3, 10])
def test_a_sending_that_somebody_cancels_leaves_nobody_waiting(queue: Queue, steps: int) -> None:
    async def main() -> None:
        async with opened(queue) as (_, client):
            mine = asyncio.current_task()
            calls = [asyncio.ensure_future(client.job_create(kind="k")) for _ in range(20)]
            for _ in range(steps):
                await asyncio.sleep(0)
            for other in asyncio.all_tasks() - {mine, *calls}:
                other.cancel()
            made = await asyncio.wait_for(asyncio.gather(*calls), 20)
            assert len({job.job_id for job in made}) == 20

    asyncio.run(main())
    created = [event.entity_id for event in queue.shampoo.history(limit=1000) if event.event == "job.created"]
    assert len(created) == len(set(created)) == 20


def test_a_queue_that_is_closed_in_the_middle_of_a_call_says_so(queue: Queue) -> None:
    async def main() -> None:
        async with opened(queue) as (shampoo, client):
            waits = [asyncio.ensure_future(client.claim_wait(timeout=20)) for _ in range(5)]
            await asyncio.sleep(0.3)
            await shampoo.close()
            found = await asyncio.wait_for(asyncio.gather(*waits, return_exceptions=True), 20)
            assert {type(one) for one in found} <= {Unavailable}

    asyncio.run(main())
