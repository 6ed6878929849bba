"""Tie a job to the worker in whose process its handler runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..facade import Client
from .held import Held


class InProcess:
    """The link of a job whose handler runs in a thread or on an event loop."""

    def __init__(self, held: Held, client: Client, check: Callable[[Held], None]) -> None:
        self._held, self._check = held, check
        self.client = client

    @property
    def lost(self) -> bool:
        return self._held.told

    def check(self) -> None:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            self._check(self._held)
        else:
            raise RuntimeError("job.check() would hold up the event loop: await job.acheck() instead")

    async def acheck(self) -> None:
        await asyncio.to_thread(self._check, self._held)
