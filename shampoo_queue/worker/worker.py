"""Say which function does which kind of job, and run them."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from ..client import Shampoo
from ..contract import limit, safe_name
from ..errors import ConfigurationError
from .handlers import BACKOFF_SECONDS, CONCURRENCY, Handler, RunsIn, handler_of
from .job import Job
from .observe import Ended, Hooks, Stats
from .runtime import Options, Runtime
from .surroundings import attentive, event_loop, stopped_by_signals

F = TypeVar("F", bound=Callable[..., Any])
C = TypeVar("C", bound=Callable[[Job], Any])
D = TypeVar("D", bound=Callable[[Job, Ended], Any])

CLOSE_SECONDS = 2.0


class Worker:
    """Handlers by kind, and the hooks beside them. One worker runs once at a time."""

    def __init__(self, *, concurrency: int | None = None, grace_seconds: float = 30.0) -> None:
        """Make a worker without handlers.

        ``concurrency`` bounds the jobs of all kinds together, beside each handler's own bound. ``grace_seconds`` is
        what running handlers get when the worker is asked to stop.
        """
        _check(concurrency, grace_seconds)
        self._concurrency, self._grace_seconds = concurrency, grace_seconds
        self._handlers: dict[str, Handler] = {}
        self._hooks = Hooks()
        self._runtime: Runtime | None = None
        self._last = Stats()
        self._starting = threading.RLock()  # a signal may come in between and ask to stop
        self._stopped_early = False

    # What to do ----------------------------------------------------------------------------------------------

    def handles(
        self,
        kind: str,
        *,
        runs_in: RunsIn | None = None,
        concurrency: int = CONCURRENCY,
        lease_seconds: int = limit("lease_default"),
        time_limit: float | None = None,
        attempts: int = limit("attempts"),
        backoff: Sequence[float] = BACKOFF_SECONDS,
    ) -> Callable[[F], F]:
        """Register a function for a kind, and give it back as it is.

        It is called with a `Job`. Returning text (the ``result_ref``, at most 2,048 UTF-8 bytes) or None completes
        the job; raising releases it for another attempt after ``backoff[n]`` seconds with jitter, and fails it after
        ``attempts``; `Fail` and `Release` say it outright.

        ``runs_in`` is ``"async"`` (the usual for ``async def``), ``"thread"`` (for ``def``) or ``"process"``: a child
        process, killed when the job is lost. At most ``concurrency`` run at once. The lease of ``lease_seconds`` is
        renewed for as long as the handler runs. After ``time_limit`` seconds a handler counts as having raised, and is
        cancelled or killed; a thread can only be told, and keeps its place until it returns, as does an async handler
        that swallows its cancellation.

        Raises `ConfigurationError`, also for a kind that has a handler.
        """

        def register(function: F) -> F:
            handler = handler_of(function, kind, runs_in, concurrency, lease_seconds, time_limit, attempts, backoff)
            if kind in self._handlers:
                raise ConfigurationError(f"kind {safe_name(kind)} has a handler already")
            self._handlers[kind] = handler
            return function

        return register

    def on_claim(self, hook: C) -> C:
        """Call a function with each `Job` that goes to a handler. Hooks run in a thread of their own, in order."""
        self._hooks.on_claim.append(_plain(hook))
        return hook

    def on_done(self, hook: D) -> D:
        """Call a function with each `Job` and how it `Ended`, once the queue knows."""
        self._hooks.on_done.append(_plain(hook))
        return hook

    def on_lost(self, hook: C) -> C:
        """Call a function, once, with each `Job` that ceased to be ours before it could end."""
        self._hooks.on_lost.append(_plain(hook))
        return hook

    # Running -------------------------------------------------------------------------------------------------

    def run(
        self,
        shampoo: Shampoo,
        client_id: str,
        *,
        holder: str | None = None,
        concurrency: int | None = None,
        burst: bool = False,
        grace_seconds: float | None = None,
        signals: bool = True,
        on_stuck: Callable[[Stats], None] | None = None,
    ) -> Stats:
        """Work as a principal until stopped, and tell what was done. Async handlers run in the calling thread.

        ``burst`` ends when no claimable work is left. In the main thread SIGTERM, SIGHUP and SIGINT ask to stop, and a
        second one to stop at once, unless ``signals`` is false. An async handler that blocks the loop for good keeps
        this from returning after the stop: ``on_stuck`` is called then, from another thread. While the queue is away a
        stop can take as long as a call is repeated (``retry_seconds``).

        A script whose handlers run in processes calls this under ``if __name__ == "__main__":``, as the processes
        import the script.

        Raises `ToolError` when the queue refuses the principal, `ConfigurationError` without handlers.
        """
        options = self._options(client_id, holder, concurrency, burst, grace_seconds)
        if any(handler.runs_in == "async" for handler in self._handlers.values()):
            with event_loop() as loop:
                return loop.run_until_complete(self._work(shampoo, options, signals, on_stuck))
        over = threading.Event()
        runtime = self._begin(shampoo, options, None, over.set)
        with stopped_by_signals(runtime, signals) as came, attentive:
            runtime.start()
            try:
                over.wait()
            except BaseException:
                runtime.stop(at_once=True)
                over.wait(CLOSE_SECONDS)
                raise
            finally:
                self._end(runtime, came)
        return self._ended(runtime)

    async def run_async(
        self,
        shampoo: Shampoo,
        client_id: str,
        *,
        holder: str | None = None,
        concurrency: int | None = None,
        burst: bool = False,
        grace_seconds: float | None = None,
        signals: bool = False,
    ) -> Stats:
        """Work as `run` does, with the async handlers on the running loop. Cancelling it stops the worker at once."""
        options = self._options(client_id, holder, concurrency, burst, grace_seconds)
        return await self._work(shampoo, options, signals, None)

    def stop(self, *, now: bool = False) -> None:
        """Ask the worker to stop: no new claims, the grace time for what runs; or none. From any thread.

        A stop that comes while nothing runs counts for the next run, which then ends at once.
        """
        with self._starting:
            if self._runtime is None:
                self._stopped_early = True
            else:
                self._runtime.stop(at_once=now)

    def stats(self) -> Stats:
        """Take a picture of what goes on, or of how the last run ended."""
        runtime = self._runtime
        return runtime.stats() if runtime else self._last

    async def _work(
        self, shampoo: Shampoo, options: Options, signals: bool, on_stuck: Callable[[Stats], None] | None
    ) -> Stats:
        loop = asyncio.get_running_loop()
        over, seen = asyncio.Event(), threading.Event()

        def tell() -> None:
            loop.call_soon_threadsafe(_both, over.set, seen.set)
            if on_stuck and not seen.wait(CLOSE_SECONDS):
                on_stuck(replace(runtime.stats(), abandoned=max(1, runtime.stats().abandoned)))

        runtime = self._begin(shampoo, options, loop, tell)
        with stopped_by_signals(runtime, signals) as came, attentive:
            runtime.start()
            try:
                await over.wait()
            except asyncio.CancelledError:
                runtime.stop(at_once=True)
                await over.wait()
                raise
            finally:
                self._end(runtime, came)
        return self._ended(runtime)

    def _options(
        self, client_id: str, holder: str | None, concurrency: int | None, burst: bool, grace_seconds: float | None
    ) -> Options:
        concurrency = self._concurrency if concurrency is None else concurrency
        grace_seconds = self._grace_seconds if grace_seconds is None else grace_seconds
        _check(concurrency, grace_seconds)
        if not self._handlers:
            raise ConfigurationError("this worker has no handlers: decorate a function with @worker.handles(kind)")
        return Options(client_id, holder, concurrency, burst, grace_seconds)

    def _begin(
        self,
        shampoo: Shampoo,
        options: Options,
        loop: asyncio.AbstractEventLoop | None,
        over: Callable[[], None],
    ) -> Runtime:
        with self._starting:
            if self._runtime is not None:
                raise ConfigurationError("this worker is running already")
            runtime = self._runtime = Runtime(shampoo, self._handlers.values(), self._hooks, options, loop, over)
            if self._stopped_early:
                self._stopped_early = False
                runtime.stop()
        return runtime

    def _end(self, runtime: Runtime, came: list[int]) -> None:
        interrupted = len(came) > 1 and came[-1] == signal.SIGINT
        self._last = replace(runtime.stats(), state="stopped", interrupted=interrupted)
        self._runtime = None

    def _ended(self, runtime: Runtime) -> Stats:
        if runtime.fatal is not None:
            raise runtime.fatal
        return self._last


def _both(*acts: Callable[[], None]) -> None:
    for act in acts:
        act()


def _check(concurrency: int | None, grace_seconds: float) -> None:
    if concurrency is not None and concurrency < 1:
        raise ConfigurationError("concurrency must be at least 1")
    if not grace_seconds >= 0:
        raise ConfigurationError("grace_seconds must be a number of seconds from 0")


def _plain(hook: F) -> F:
    if asyncio.iscoroutinefunction(hook):
        raise ConfigurationError(f"hook {hook.__qualname__} must be a plain function, not async")
    return hook
