"""Be a producer of dramatiq, or the module that its worker loads."""

from __future__ import annotations

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from side import URL, Put, produce, stamp

dramatiq.set_broker(RedisBroker(url=URL))


@dramatiq.actor(actor_name="note")
def note(payload: str) -> None:
    stamp(payload)


async def opening() -> Put:
    return note.send


if __name__ == "__main__":
    produce(opening)
