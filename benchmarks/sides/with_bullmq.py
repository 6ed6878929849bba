"""Be a producer or a worker of BullMQ in Python."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from bullmq import Queue, Worker
from side import URL, Put, produce, stamp


async def opening() -> Put:
    queue = Queue("bench", {"connection": URL})
    return lambda payload: queue.add("note", {"p": payload}, {"removeOnComplete": True})


async def note(job: Any, token: str) -> None:
    stamp(job.data["p"])


async def work() -> None:
    Worker("bench", note, {"connection": URL})
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(work()) if sys.argv[1] == "work" else produce(opening)
