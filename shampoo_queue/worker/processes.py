"""Run handlers in child processes: one a slot, started when first needed, killed and replaced when it must stop."""

from __future__ import annotations

import atexit
import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

from ..errors import ToolError
from . import process_child
from .handlers import Handler
from .held import Held
from .job import Lost
from .observe import Spans
from .outcome import Verdict, raised
from .slots import Call, Over, ThreadSlots

log = logging.getLogger("shampoo_queue.worker")

LOOK_SECONDS = 0.2
END_SECONDS = 2.0

# A spawned child inherits the descriptors that it is given, and no others: none of our sockets.
_spawn = multiprocessing.get_context("spawn")
_starting = threading.Lock()
_living: set[SpawnProcess] = set()
_owner = os.getpid()


class Died(Exception):
    """The child process ended before its handler did."""


class ProcessSlots(ThreadSlots):
    """Threads that each mind one child process. The lease is renewed here, whatever the child's interpreter does."""

    def __init__(self, handler: Handler, over: Over, spans: Spans, check: Callable[[Held], None]) -> None:
        super().__init__(handler, over, spans)
        self._check = check
        self._at_work: dict[Held, _Child] = {}

    def interrupt(self, held: Held) -> None:
        """Kill the process that runs this job's handler, and no other."""
        if child := self._at_work.get(held):
            child.kill(held)

    @contextmanager
    def _caller(self) -> Iterator[Call]:
        child = _Child(self._handler, self._check)

        def call(held: Held) -> Verdict:
            self._at_work[held] = child
            try:
                return child.call(held)
            finally:
                del self._at_work[held]

        try:
            yield call
        finally:
            child.end()


class _Child:
    """One child process, of one minding thread; only `kill` is called by others."""

    def __init__(self, handler: Handler, check: Callable[[Held], None]) -> None:
        self._handler, self._check = handler, check
        self._lock = threading.Lock()
        self._held: Held | None = None
        self._process: SpawnProcess | None = None
        # Until when the child may work at most, for it to see even while this process stands still; 0 for no end.
        self._deadline = _spawn.Value("d", 0.0, lock=False)
        self._connection: Connection[Any, Any] | None = None

    def call(self, held: Held) -> Verdict:
        """Run the handler for one job to its end, or to the end of the process."""
        with self._lock:
            self._held = held
        try:
            return self._converse(held)
        except (Died, EOFError, OSError):
            return Verdict("raised", reason=f"the handler's process {self._exit()}")
        except Exception as error:  # no process can be started
            log.exception("no process could be started for kind %r", self._handler.kind)
            return raised(error)
        finally:
            self._deadline.value = 0.0
            with self._lock:
                self._held = None

    def kill(self, held: Held) -> None:
        """Kill the process if it works on this job."""
        with self._lock:
            if self._held is held and self._process is not None:
                _kill(self._process)

    def end(self) -> None:
        """Let the process end by itself, and see to it that it does."""
        process, connection = self._process, self._connection
        if process is None or connection is None:
            return
        connection.close()
        process.join(END_SECONDS)
        self._see_off(process)

    def _converse(self, held: Held) -> Verdict:
        connection = self._ready()
        if isinstance(connection, Verdict):
            return connection
        if held.told:  # before there was a process to kill
            return Verdict("raised", reason=held.why)
        held.begin()
        self._deadline.value = held.deadline
        job = held.shown()
        connection.send({name: getattr(job, name) for name in ("job_id", "kind", "payload", "attempts", "fence")})
        while True:
            message = self._receive(connection)
            if isinstance(message, Verdict):
                return message
            connection.send(self._answer(held))

    def _ready(self) -> Connection[Any, Any] | Verdict:
        """Give the pipe to a process that has its handler; a verdict when the handler cannot be imported there."""
        if self._process is not None and self._connection is not None:
            if self._process.is_alive():
                return self._connection
            self._exit()
        ours, theirs = _spawn.Pipe()
        function = self._handler.function
        process = _spawn.Process(
            target=process_child.main,
            args=(theirs, function.__module__, function.__qualname__, self._deadline),
            name=self._handler.kind,
        )
        with theirs, _starting:
            process.start()
        _living.add(process)
        with self._lock:
            self._process, self._connection = process, ours
        message = self._receive(ours)
        if isinstance(message, Verdict):
            self._exit()
            return message
        return ours

    def _receive(self, connection: Connection[Any, Any]) -> Any:
        """Wait for a message, or raise `Died`. The child itself is looked at: its forks may hold the pipe open."""
        process = self._process
        assert process is not None
        while not connection.poll():
            if not process.is_alive() and not connection.poll():
                raise Died
            wait([connection, process.sentinel], LOOK_SECONDS)
            held = self._held
            if held is not None:
                self._deadline.value = held.deadline
                if held.told:  # while the process was being started, and could not be killed
                    _kill(process)
        return connection.recv()

    def _answer(self, held: Held) -> Lost | ToolError | None:
        try:
            self._check(held)
        except (Lost, ToolError) as answer:
            return answer
        return None

    def _exit(self) -> str:
        """See the process off, and say how it ended."""
        process, connection = self._process, self._connection
        assert process is not None
        assert connection is not None
        connection.close()
        process.join(END_SECONDS)
        status = self._see_off(process)
        if status is not None and status < 0:
            return f"was killed by {signal.Signals(-status).name if -status in set(signal.Signals) else -status}"
        return f"exited with status {status}"

    def _see_off(self, process: SpawnProcess) -> int | None:
        """Kill what is left of a process, and of what it has started; give its exit status."""
        with self._lock:
            self._process = self._connection = None
        _kill(process)
        process.join()
        status = process.exitcode
        _living.discard(process)
        process.close()
        return status


def _kill(process: SpawnProcess) -> None:
    """Kill a child, and all that it has started."""
    pid = process.pid
    assert pid is not None
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    if process.is_alive():  # before it led a session of its own
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@atexit.register
def _kill_all() -> None:
    """Leave no child to an interpreter that exits; it would wait for it."""
    for process in list(_living) if os.getpid() == _owner else ():
        _kill(process)
