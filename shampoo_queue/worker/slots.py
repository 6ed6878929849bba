"""Run handlers: in threads, or on an event loop. Each run ends in one call of ``over``, however it ended."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import Protocol

from .handlers import Handler
from .held import Held
from .observe import Spans
from .outcome import Verdict, of_call, raised, returned

Over = Callable[[Held, Verdict], None]
Call = Callable[[Held], Verdict]


class Slots(Protocol):
    """The places of one handler. The dispatcher never starts more than its concurrency."""

    def start(self, batch: Sequence[Held]) -> None:
        """Start handlers, without waiting."""

    def interrupt(self, held: Held) -> None:
        """Cancel or kill a handler that was told to stop; a thread can only be told."""

    def close(self) -> None:
        """Let go of what runs no handler."""


def end_fork(pid: int) -> None:
    """End a copy of this process that a handler forked and let return: it has no part in the worker."""
    if os.getpid() != pid:
        os._exit(0)


class ThreadSlots:
    """Threads, started when first needed and kept. They are daemons: one that never returns holds up no exit."""

    def __init__(self, handler: Handler, over: Over, spans: Spans) -> None:
        self._handler, self._over, self._spans = handler, over, spans
        self._work: SimpleQueue[Held | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._busy = 0
        self._threads: list[threading.Thread] = []

    def start(self, batch: Sequence[Held]) -> None:
        with self._lock:
            self._busy += len(batch)
            fresh = [self._thread(n) for n in range(len(self._threads), min(self._busy, self._handler.concurrency))]
            self._threads += fresh
        for thread in fresh:
            thread.start()
        for held in batch:
            self._work.put(held)

    def interrupt(self, held: Held) -> None:
        """Do nothing more: ``job.lost`` and ``job.check()`` tell."""

    def close(self) -> None:
        for _ in self._threads:
            self._work.put(None)
        for thread in self._threads:
            thread.join(0 if self._busy else 5)

    def _thread(self, number: int) -> threading.Thread:
        return threading.Thread(target=self._serve, name=f"{self._handler.kind}-{number}", daemon=True)

    def _serve(self) -> None:
        pid = os.getpid()
        with self._caller() as call:
            while held := self._work.get():
                try:
                    verdict = call(held)
                except BaseException as error:  # a place must not be lost to whatever a handler brings about
                    verdict = raised(error)
                end_fork(pid)
                with self._lock:
                    self._busy -= 1
                self._over(held, verdict)

    @contextmanager
    def _caller(self) -> Iterator[Call]:
        """Give what one thread calls for each job."""
        yield self._call

    def _call(self, held: Held) -> Verdict:
        if held.told:
            return Verdict("raised", reason=held.why)
        held.begin()
        with self._spans.inside(held):
            return of_call(self._handler.function, held.shown())


class AsyncSlots:
    """Tasks of one event loop, started in batches from outside."""

    def __init__(self, handler: Handler, over: Over, spans: Spans, loop: asyncio.AbstractEventLoop) -> None:
        self._handler, self._over, self._spans, self._loop = handler, over, spans, loop
        self._tasks: dict[Held, asyncio.Task[Verdict]] = {}

    def start(self, batch: Sequence[Held]) -> None:
        for held in batch:
            held.begin()
        self._loop.call_soon_threadsafe(self._begin, batch)

    def interrupt(self, held: Held) -> None:
        with suppress(RuntimeError):  # the loop is closed, and all its tasks with it
            self._loop.call_soon_threadsafe(self._cancel, held)

    def close(self) -> None:
        """Leave the loop to its owner."""

    def _begin(self, batch: Sequence[Held]) -> None:
        for held in batch:
            task = self._tasks[held] = self._loop.create_task(self._run(held))
            task.add_done_callback(lambda task, held=held: self._done(held, task))  # type: ignore[misc]

    def _cancel(self, held: Held) -> None:
        if task := self._tasks.get(held):
            task.cancel()

    async def _run(self, held: Held) -> Verdict:
        pid = os.getpid()
        if held.told:
            return Verdict("raised", reason=held.why)
        try:
            with self._spans.inside(held):
                return returned(await self._handler.function(held.shown()))
        except BaseException as error:
            return raised(error)
        finally:
            end_fork(pid)

    def _done(self, held: Held, task: asyncio.Task[Verdict]) -> None:
        """Take the outcome; a task that was cancelled before its first step has none of its own."""
        del self._tasks[held]
        self._over(held, raised(asyncio.CancelledError()) if task.cancelled() else task.result())
