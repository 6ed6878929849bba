"""What the commands that run a worker share: who works, where its log goes, and how its end becomes an exit status."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

import click

from ..client import Shampoo
from . import streams
from .settings import Anywhere, current

if TYPE_CHECKING:
    from ..worker import Stats

DONE, ABANDONED, INTERRUPTED = 0, 1, 130
LEAVE_SECONDS = 2.0

STATUSES = """\b
Exit status:
  0    stopped, or done with --burst
  1    a handler did not end and was left behind, or the queue could not be told what became of a job;
       or the queue refused the principal
  2    wrong usage or configuration
  3    the queue is unavailable at the start
  130  ended at once by a second Ctrl-C

The options of 'shampoo --help' may stand here too."""


def who_works() -> list[click.Parameter]:
    """Make the options that say who works."""
    return [
        Anywhere("--as", "caller", metavar="CLIENT", help="The principal who works; SHAMPOO_CLIENT."),
        Anywhere(
            "--holder", metavar="NAME", help="Which process of the principal works; SHAMPOO_HOLDER, else HOST/PID."
        ),
    ]


def caller() -> str:
    """Give the principal who works; raise `click.UsageError` when nobody is named."""
    found = current().wanted("caller")
    if found is None:
        raise click.UsageError("Missing option '--as' (or set SHAMPOO_CLIENT).", click.get_current_context())
    return found


@contextmanager
def shown(stats: Callable[[], Stats], name: str) -> Iterator[Shampoo]:
    """Open the queue, with a live view on a terminal and log lines elsewhere."""
    from .view import live

    watched = streams.is_terminal() and not current().json
    view = live(stats, name) if watched else nullcontext(streams.notes)
    with current().open() as queue, view as show, _logged(show, watched):
        yield queue


# Lines ----------------------------------------------------------------------------------------------------------

Show = Callable[[list[str]], None]


@contextmanager
def _logged(show: Show, watched: bool) -> Iterator[None]:
    """Show the worker's log as lines; beside a live view only what is out of the ordinary.

    A module that has set logging up for itself gets the records too, and nothing is shown twice.
    """
    logs = [logging.getLogger(f"shampoo_queue.{name}") for name in ("worker", "pump")]
    if logging.getLogger().handlers:
        yield
        return
    handler = _Lines(show)
    handler.setLevel(logging.WARNING if watched else logging.INFO)
    before = [(log, log.level, log.propagate) for log in logs]
    for log in logs:
        log.setLevel(log.level or logging.INFO)
        log.propagate = False
        log.addHandler(handler)
    try:
        yield
    finally:
        for log, level, propagate in before:
            log.removeHandler(handler)
            log.level, log.propagate = level, propagate


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


def leave(ended: Stats) -> int:
    """Give the exit status, or exit with it at once when something runs that nobody can end."""
    status = _status(ended)
    if ended.abandoned or not _threads_end():
        _exit(status or ABANDONED)
    return status


def _status(ended: Stats) -> int:
    if ended.abandoned or ended.unsent:
        return ABANDONED
    return INTERRUPTED if ended.interrupted else DONE


def _threads_end() -> bool:
    """Wait a moment for threads that a handler has left; the interpreter would wait for them for ever."""
    until = time.monotonic() + LEAVE_SECONDS
    left = [thread for thread in threading.enumerate() if not thread.daemon and thread is not threading.main_thread()]
    for thread in left:
        thread.join(max(0.0, until - time.monotonic()))
    return not any(thread.is_alive() for thread in left)


def leave_stuck(ended: Stats) -> None:
    """Leave from beside a run that does not end."""
    streams.note("warning: a handler does not give the event loop back and is left behind")
    _exit(_status(ended) or ABANDONED)


def _exit(status: int) -> None:
    streams.finish()
    os._exit(status)
