"""``shampoo work``: run a worker's handlers until told to stop."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..contract import safe_name
from ..errors import ConfigurationError
from . import streams
from .settings import Anywhere, Command, current

if TYPE_CHECKING:
    from ..worker import Stats, Worker

DONE, ABANDONED, INTERRUPTED = 0, 1, 130
LEAVE_SECONDS = 2.0


@click.command(
    cls=Command,
    params=[
        Anywhere("--as", "caller", metavar="CLIENT", help="The principal who works; SHAMPOO_CLIENT."),
        Anywhere(
            "--holder", metavar="NAME", help="Which process of the principal works; SHAMPOO_HOLDER, else HOST/PID."
        ),
    ],
)
@click.argument("worker", metavar="MODULE:WORKER")
@click.option("--concurrency", type=click.IntRange(min=1), help="How many jobs at once, of all kinds together.")
@click.option("--burst", is_flag=True, help="End when no claimable work is left.")
@click.option("--grace", type=click.FloatRange(min=0), metavar="SECONDS", help="What running handlers get at a stop.")
def work(worker: str, concurrency: int | None, burst: bool, grace: float | None) -> int:
    """Work on jobs with the handlers of a worker.

    MODULE:WORKER names a `Worker` in a module, for which the current folder is searched too; WORKER is "worker"
    unless given. On a terminal a live view shows what goes on; else one line a job goes to standard error.

    SIGTERM or Ctrl-C asks to stop: no new claims, and the grace time for what runs; a second one stops at once. What
    still runs then is cancelled or killed, and its job given back. A thread cannot be killed: when one does not end
    by itself, its job is given back nevertheless and the process leaves without it.

    \b
    Exit status:
      0    stopped, or done with --burst
      1    a handler did not end and was left behind; or the queue refused the principal
      2    wrong usage, or no such worker
      3    the queue is unavailable at the start
      130  ended at once by a second Ctrl-C
    """
    from .view import live

    found = find(worker)
    caller = current().wanted("caller")
    if caller is None:
        raise click.UsageError("Missing option '--as' (or set SHAMPOO_CLIENT).", click.get_current_context())
    watched = streams.is_terminal() and not current().json
    view = live(found.stats, worker) if watched else nullcontext(streams.notes)
    with current().open() as queue, view as show, _logged(show, watched):
        ended = found.run(
            queue,
            caller,
            holder=current().wanted("holder"),
            concurrency=concurrency,
            burst=burst,
            grace_seconds=grace,
            on_stuck=_leave,
        )
    status = _status(ended)
    if ended.abandoned or not _threads_end():
        _exit(status or ABANDONED)
    return status


def find(name: str) -> Worker:
    """Import the worker that MODULE:NAME names; raise `ConfigurationError` when there is none."""
    from ..worker import Worker

    module, _, attribute = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = import_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise ConfigurationError(f"module {safe_name(module)} cannot be imported: {_defect(error)}") from None
    for part in (attribute or "worker").split("."):
        found = getattr(found, part, None)  # type: ignore[assignment]
    if not isinstance(found, Worker):
        raise ConfigurationError(f"there is no Worker {safe_name(attribute or 'worker')} in module {safe_name(module)}")
    return found


def _defect(error: BaseException) -> str:
    """Say what went wrong in a module, and where."""
    last = traceback.extract_tb(error.__traceback__)[-1:]
    place = "".join(f" ({Path(frame.filename).name}:{frame.lineno})" for frame in last)
    return f"{type(error).__name__}: {error}{place}"


# Lines ----------------------------------------------------------------------------------------------------------

Show = Callable[[list[str]], None]


@contextmanager
def _logged(show: Show, watched: bool) -> Iterator[None]:
    """Show the worker's log as lines; beside a live view only what is out of the ordinary.

    A module that has set logging up for itself gets the records too, and nothing is shown twice.
    """
    log = logging.getLogger("shampoo_queue.worker")
    if logging.getLogger().handlers:
        yield
        return
    handler = _Lines(show)
    handler.setLevel(logging.WARNING if watched else logging.INFO)
    before = log.level, log.propagate
    log.setLevel(before[0] or logging.INFO)
    log.propagate = False
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.level, log.propagate = before


class _Lines(logging.Handler):
    def __init__(self, show: Show) -> None:
        super().__init__()
        self._show = show

    def emit(self, record: logging.LogRecord) -> None:
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(record.created))
        lines = [f"{at} {record.levelname} {record.getMessage()}"]
        if record.exc_info:
            lines += [f"  {line}" for line in logging.Formatter().formatException(record.exc_info).splitlines() if line]
        self._show(lines)


# The end --------------------------------------------------------------------------------------------------------


def _status(ended: Stats) -> int:
    if ended.abandoned:
        return ABANDONED
    return INTERRUPTED if ended.interrupted else DONE


def _threads_end() -> bool:
    """Wait a moment for threads that a handler has left; the interpreter would wait for them for ever."""
    until = time.monotonic() + LEAVE_SECONDS
    left = [thread for thread in threading.enumerate() if not thread.daemon and thread is not threading.main_thread()]
    for thread in left:
        thread.join(max(0.0, until - time.monotonic()))
    return not any(thread.is_alive() for thread in left)


def _leave(ended: Stats) -> None:
    """Leave from beside an event loop that a handler does not give back."""
    streams.note("warning: a handler does not give the event loop back and is left behind")
    _exit(_status(ended))


def _exit(status: int) -> None:
    streams.finish()
    os._exit(status)
