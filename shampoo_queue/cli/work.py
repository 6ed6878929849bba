"""``shampoo work``: run a worker's handlers until told to stop."""

from __future__ import annotations

import os
import sys
import traceback
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..contract import safe_name
from ..errors import ConfigurationError
from . import runs
from .settings import Command, current

if TYPE_CHECKING:
    from ..worker import Worker


@click.command(cls=Command, params=runs.who_works(), epilog=runs.STATUSES)
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
    """
    found, client_id = find(worker), runs.caller()
    with runs.shown(found.stats, worker) as queue:
        ended = found.run(
            queue,
            client_id,
            holder=current().wanted("holder"),
            concurrency=concurrency,
            burst=burst,
            grace_seconds=grace,
            on_stuck=runs.leave_stuck,
        )
    return runs.leave(ended)


def find(name: str) -> Worker:
    """Import the worker that MODULE:NAME names; raise `ConfigurationError` when there is none."""
    from ..worker import Worker

    module, _, attribute = name.partition(":")
    if "/" in module or module.startswith(".") or module.endswith(".py"):
        raise ConfigurationError(
            f"{safe_name(module)} is a path: name the module, as after import, for instance mine:worker"
        )
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
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}: {error.msg} ({Path(error.filename or '?').name}:{error.lineno})"
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<frozen ")]
    place = "".join(f" ({Path(frame.filename).name}:{frame.lineno})" for frame in own[2:][-1:])
    return f"{type(error).__name__}: {error}{place}"
