"""Measure lengths of time in this process. Instants of the queue are the server's alone."""

from __future__ import annotations

import time


def now() -> float:
    """Read a clock that only rises, and goes on while the process is stopped or, where possible, the machine sleeps."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()
