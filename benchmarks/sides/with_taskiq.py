"""Be a producer of taskiq, or the module that its worker loads: the stream broker, which acknowledges."""

from __future__ import annotations

from side import URL, Put, produce, stamp
from taskiq_redis import RedisStreamBroker

broker = RedisStreamBroker(URL)


@broker.task(task_name="note")
async def note(payload: str) -> None:
    stamp(payload)


async def opening() -> Put:
    await broker.startup()
    return note.kiq


if __name__ == "__main__":
    produce(opening)
