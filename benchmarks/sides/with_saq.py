"""Be a producer of SAQ, or the module that its worker loads."""

from __future__ import annotations

from typing import Any

from saq import Queue
from side import URL, Put, produce, stamp

queue = Queue.from_url(URL)


async def note(ctx: dict[str, Any], *, payload: str) -> None:
    stamp(payload)


settings = {"queue": queue, "functions": [note]}


async def opening() -> Put:
    await queue.connect()
    return lambda payload: queue.enqueue("note", payload=payload, ttl=-1)


if __name__ == "__main__":
    produce(opening)
