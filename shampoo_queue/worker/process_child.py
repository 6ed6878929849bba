"""Be one process slot: run one handler for one job after another, as the parent's thread says over a pipe.

The process leads a session of its own, so that a Ctrl-C at the terminal leaves it to its parent, and so that its
end takes along what its handler has started. It ends when the parent is gone, however that ended.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from importlib import import_module
from multiprocessing.connection import Connection, wait
from types import FrameType
from typing import Any

from ..clock import now
from .job import Job, Lost, Unbound
from .outcome import Verdict, of_call, portable, raised

PARENT_LOOK_SECONDS = 0.2


class _Remote(Unbound):
    """The link of a job in a child: the parent asks the queue. A child whose job is lost is killed, not told."""

    def __init__(self, connection: Connection[Any, Any]) -> None:
        self._connection = connection
        self._lock = threading.Lock()

    def check(self) -> None:
        with self._lock:
            self._connection.send("check")
            answer: BaseException | None = self._connection.recv()
        if answer is not None:
            self.lost = self.lost or isinstance(answer, Lost)
            raise answer


def main(connection: Connection[Any, Any], module: str, name: str, deadline: Any) -> None:
    """Serve until the parent closes the pipe."""
    os.setsid()
    _leave_signals_to_parent()
    threading.Thread(target=_end_with_parent, args=(os.getppid(), deadline), daemon=True).start()
    try:
        function: Any = import_module(module)
        for part in name.split("."):
            function = getattr(function, part)
    except BaseException as error:
        connection.send(portable(raised(error)))
        return
    connection.send("ready")
    pid = os.getpid()
    while True:
        try:
            facts: dict[str, Any] = connection.recv()
        except EOFError:
            return
        verdict = of_call(function, Job(link=_Remote(connection), **facts))
        if os.getpid() != pid:  # a fork of the handler's that came back
            os._exit(0)
        _send(connection, verdict)


def _send(connection: Connection[Any, Any], verdict: Verdict) -> None:
    try:
        connection.send(portable(verdict))
    except OSError:  # the parent has gone, and this process goes with it
        os._exit(0)


def _leave_signals_to_parent() -> None:
    """Take no signal that asks to stop: the parent decides. What the handler starts takes them as usual."""
    pid = os.getpid()

    def take(number: int, _frame: FrameType | None) -> None:
        if os.getpid() != pid:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, take)


def _end_with_parent(parent: int, deadline: Any) -> None:
    """Wait for the parent's end, on the pipe that dies with it; a copy of that pipe elsewhere is no life sign.

    A parent that stands still cannot end this process when the lease is over, so that is looked at here, too.
    """
    process = multiprocessing.parent_process()
    assert process is not None
    seconds = PARENT_LOOK_SECONDS
    while os.getppid() == parent and not wait([process.sentinel], seconds):
        if 0 < deadline.value <= now():
            break
        seconds = min(PARENT_LOOK_SECONDS, max(0.01, deadline.value - now())) if deadline.value else PARENT_LOOK_SECONDS
    os.killpg(0, signal.SIGKILL)
