"""What the processes of every queue under measurement share: stamping, and a producer that follows orders.

Standard library only, as it runs in each queue's own environment; with uvloop where that is installed. Times are
nanoseconds of the machine's monotonic clock, which its processes have in common.
"""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import os
import random
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

URL = os.environ.get("BENCH_URL", "redis://127.0.0.1:6379/0")
STAMPS = os.environ.get("BENCH_STAMPS", "")
LINE = 21  # bytes of a stamp: 20 digits and a line feed
PAYLOAD = 100  # bytes
PATIENCE = 15.0  # seconds that a job may take to start
LOOK = 0.005  # seconds between two looks at the stamps of a slow queue

if importlib.util.find_spec("uvloop"):
    import uvloop

    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())

Put = Callable[[str], Any]
_file: list[int] = []


def stamp(payload: str) -> None:
    """Note how long ago the payload was made; the body of every job."""
    now = time.monotonic_ns()
    if not _file:
        _file.append(os.open(STAMPS, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600))
    os.write(_file[0], b"%020d\n" % (now - int(payload.split(".")[0])))


def fresh_payload() -> str:
    return f"{time.monotonic_ns()}.".ljust(PAYLOAD, "x")


def produce(opening: Callable[[], Awaitable[Put]]) -> None:
    """Create jobs as told on standard input: lines of how many, and the least and most seconds before each.

    A job is created only when all before it have started, so the queue is idle. The answer to a line is ``done``.
    """
    asyncio.run(_produce(opening))


async def _produce(opening: Callable[[], Awaitable[Put]]) -> None:
    put = await opening()
    sent = 0
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        count, least, most = line.split()
        for _ in range(int(count)):
            await asyncio.sleep(random.uniform(float(least), float(most)))
            await _all_started(sent)
            called = put(fresh_payload())
            if inspect.isawaitable(called):
                await called
            sent += 1
        await _all_started(sent)
        print("done", flush=True)
    os._exit(0)  # whatever threads a queue's client left behind


async def _all_started(count: int) -> None:
    until = time.monotonic() + PATIENCE
    while (started := _stamped()) < count:
        if time.monotonic() > until:
            raise TimeoutError(f"{started} of {count} jobs have started")
        await asyncio.sleep(LOOK)


def _stamped() -> int:
    try:
        return os.stat(STAMPS).st_size // LINE
    except FileNotFoundError:
        return 0
