"""Be a producer or a worker of arq; the worker looks every so many seconds, as its second argument says."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from arq import Worker
from arq.connections import RedisSettings, create_pool
from side import URL, Put, produce, stamp

SETTINGS = RedisSettings.from_dsn(URL)


async def note(ctx: dict[Any, Any], payload: str) -> None:
    stamp(payload)


async def opening() -> Put:
    pool = await create_pool(SETTINGS)
    return lambda payload: pool.enqueue_job("note", payload)


async def work(poll_seconds: float) -> None:
    await Worker([note], redis_settings=SETTINGS, poll_delay=poll_seconds, keep_result=0).async_run()


if __name__ == "__main__":
    asyncio.run(work(float(sys.argv[2]))) if sys.argv[1] == "work" else produce(opening)
