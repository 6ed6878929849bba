"""Tell in the log, in few lines, that the queue is away and that it is back; and how long to wait between tries."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from random import uniform

from ..clock import now
from ..errors import ToolError

log = logging.getLogger("shampoo_queue.worker")

SAY_EVERY_SECONDS = 30.0
SHORTEST_PAUSE = 0.1
LONGEST_PAUSE = 5.0


class Outage:
    """What the threads of one worker know together about the queue's absence; ``on_back`` is called at its end."""

    def __init__(self, on_back: Callable[[], None] = lambda: None) -> None:
        self._lock = threading.Lock()
        self._on_back = on_back
        self._since: float | None = None
        self._said_at = 0.0

    @property
    def lasting(self) -> bool:
        """Tell whether the queue was away when it was last asked."""
        return self._since is not None

    def gone(self, error: ToolError) -> float:
        """Take note of a failed call, and give the seconds to wait before the next: capped, with jitter.

        The pauses grow with the absence, whichever thread asks.
        """
        with self._lock:
            instant = now()
            if self._since is None:
                self._since = self._said_at = instant
                log.warning("%s; trying again until it is back", error.message)
            elif instant - self._said_at >= SAY_EVERY_SECONDS:
                self._said_at = instant
                log.warning("%s for %.0f s now; still trying", error.message, instant - self._since)
            return max(SHORTEST_PAUSE, min(LONGEST_PAUSE, instant - self._since)) * uniform(0.5, 1.0)

    def back(self) -> None:
        """Take note of an answer."""
        if self._since is None:
            return
        with self._lock:
            since, self._since = self._since, None
        if since is not None:
            log.warning("the queue is back after %.1f s", now() - since)
            self._on_back()
