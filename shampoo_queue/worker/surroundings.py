"""Set up what a worker needs of its whole process while it runs, and put it back: signals, a loop, fair threads."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import FrameType

from .runtime import Runtime

CLOSE_SECONDS = 2.0
STOPPING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name))


class _Attentive:
    """Let threads that compute give way sooner while a worker runs in this process.

    Python's usual 5 ms, waited for once for every such thread at every step of a renewal, outlast a short lease.
    """

    SECONDS = 0.0005

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._before = 0.0

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._before = sys.getswitchinterval()
                sys.setswitchinterval(min(self._before, self.SECONDS))
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                sys.setswitchinterval(self._before)


attentive = _Attentive()


@contextmanager
def event_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """Give an event loop whose end waits for no thread: one that never returns would hold it up."""
    loop = asyncio.new_event_loop()
    loop.set_default_executor(ThreadPoolExecutor(thread_name_prefix="shampoo-asyncio"))
    try:
        asyncio.set_event_loop(loop)
        yield loop
    finally:
        try:
            if left := asyncio.all_tasks(loop):
                for task in left:
                    task.cancel()
                loop.run_until_complete(asyncio.wait(left, timeout=CLOSE_SECONDS))
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            asyncio.set_event_loop(None)
            loop.close()


@contextmanager
def stopped_by_signals(runtime: Runtime, wanted: bool) -> Iterator[list[int]]:
    """Let SIGTERM, SIGHUP and SIGINT stop the worker; in a process that a handler forked they do as elsewhere."""
    came: list[int] = []
    if not wanted or threading.current_thread() is not threading.main_thread():
        yield came
        return
    pid = os.getpid()

    def take(number: int, _frame: FrameType | None) -> None:
        if os.getpid() != pid:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        came.append(number)
        runtime.stop(at_once=len(came) > 1)

    before = {number: signal.signal(number, take) for number in STOPPING}
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
