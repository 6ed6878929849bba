"""Be a producer of RQ; its worker runs `side.stamp` by name."""

from __future__ import annotations

import redis
from rq import Queue
from side import URL, Put, produce, stamp


async def opening() -> Put:
    queue = Queue("bench", connection=redis.Redis.from_url(URL))
    return lambda payload: queue.enqueue(stamp, payload, result_ttl=0)


if __name__ == "__main__":
    produce(opening)
