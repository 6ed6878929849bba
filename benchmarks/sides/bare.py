"""Be a process of the bare mark: LPUSH, and BLPOP in a loop; no state, no lease, nothing kept."""

from __future__ import annotations

import sys

import redis
from side import URL, Put, produce, stamp

LIST = "bare"


async def opening() -> Put:
    client = redis.Redis.from_url(URL)
    return lambda payload: client.lpush(LIST, payload)


def work() -> None:
    client = redis.Redis.from_url(URL, decode_responses=True, socket_timeout=None)
    while True:
        found = client.blpop([LIST], timeout=0)
        assert isinstance(found, tuple | list)
        stamp(str(found[1]))


if __name__ == "__main__":
    work() if sys.argv[1] == "work" else produce(opening)
