"""Be a producer of huey, or the module that its consumer loads."""

from __future__ import annotations

from huey import RedisHuey
from side import URL, Put, produce, stamp

huey = RedisHuey("bench", url=URL, results=False)


@huey.task()
def note(payload: str) -> None:
    stamp(payload)


async def opening() -> Put:
    return note


if __name__ == "__main__":
    import with_huey  # a job is named after the module that its function is found in

    produce(with_huey.opening)
