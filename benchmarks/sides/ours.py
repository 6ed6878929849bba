"""Be a process of this project's queue under measurement: ``produce``, ``work FORM`` or ``wait COUNT``."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from side import URL, Put, produce, stamp

from benchmarks.contestants import KIND, PRODUCER, PROFILE, PROJECT, WORKER
from shampoo_queue import AsyncShampoo, Shampoo
from shampoo_queue.claims import new_waiter


async def opening() -> Put:
    client = Shampoo.connect(URL, profile=PROFILE).client(PRODUCER)
    return lambda payload: client.job_create(kind=KIND, project=PROJECT, payload=payload)


def work_sync() -> None:
    with Shampoo.connect(URL, profile=PROFILE) as shampoo:
        client = shampoo.client(WORKER)
        while True:
            claim = client.claim_wait(KIND, lease_seconds=60)
            stamp(claim.payload)
            client.complete(claim)


async def work_async() -> None:
    async with AsyncShampoo.connect(URL, profile=PROFILE) as shampoo:
        client = shampoo.client(WORKER)
        while True:
            claim = await client.claim_wait(KIND, lease_seconds=60)
            stamp(claim.payload)
            await client.complete(claim)


def work_runtime(runs_in: str) -> None:
    from shampoo_queue.worker import Job, Worker

    worker = Worker()

    def in_thread(job: Job) -> None:
        stamp(job.payload)

    async def on_loop(job: Job) -> None:
        stamp(job.payload)

    worker.handles(KIND, lease_seconds=60)(on_loop if runs_in == "async" else in_thread)
    with Shampoo.connect(URL, profile=PROFILE) as shampoo:
        worker.run(shampoo, WORKER)


async def wait(count: int) -> None:
    """Be many idle callers. At each line on standard input, say how often they were woken and what they won."""
    told = {"woken": 0, "won": 0}
    async with AsyncShampoo.connect(URL, profile=PROFILE) as shampoo:
        client = shampoo.client(WORKER)
        waiters = [asyncio.create_task(_be_idle(client, told)) for _ in range(count)]
        print("ready", flush=True)
        while await asyncio.to_thread(sys.stdin.readline):
            print(json.dumps(told), flush=True)
        for waiter in waiters:
            waiter.cancel()
        await asyncio.gather(*waiters, return_exceptions=True)


async def _be_idle(client: Any, told: dict[str, int]) -> None:
    waiter = new_waiter()
    while True:
        if await client.wait_for_work(waiter, [KIND], 600.0):
            told["woken"] += 1
            claim = await client.job_claim(kind=KIND, lease_seconds=60)
            if claim:
                told["won"] += 1
                await client.complete(claim)


def main() -> None:
    match sys.argv[1:]:
        case ["produce"]:
            produce(opening)
        case ["work", "sync"]:
            work_sync()
        case ["work", "async"]:
            asyncio.run(work_async())
        case ["work", "worker-async"]:
            work_runtime("async")
        case ["work", "worker-thread"]:
            work_runtime("thread")
        case ["wait", count]:
            asyncio.run(wait(int(count)))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
