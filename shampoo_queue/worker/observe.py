"""Let the outside see what a worker does: log lines, hooks, spans and counts; never a payload."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

from ..claims import Ending
from ..clock import now
from .held import Held
from .job import Job
from .outcome import Verdict, trace_of

log = logging.getLogger("shampoo_queue.worker")

LOST = "lost"
LONGEST_TRACE = 50_000
HOOKS_SECONDS = 5.0  # that hooks still to be called may take when the worker stops


@dataclass(frozen=True, slots=True)
class Ended:
    """How a job ended, for ``on_done``: outcome completed, failed or released."""

    outcome: str
    seconds: float
    result_ref: str | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Running:
    """One handler at work. ``lease_seconds_left`` is by the worker's own, cautious count."""

    job_id: str
    kind: str
    attempt: int
    seconds: float
    lease_seconds: int
    lease_seconds_left: float


@dataclass(frozen=True, slots=True)
class Stats:
    """What a worker does at one instant, and what it has done since it started.

    ``slots`` gives each kind's concurrency. ``abandoned`` handlers did not end when the worker stopped, and
    ``unsent`` endings could not be told to the queue: the leases of those jobs lapse.
    ``interrupted`` says that a second SIGINT ended it.
    """

    state: str = "not running"
    slots: dict[str, int] = field(default_factory=dict)
    running: tuple[Running, ...] = ()
    completed: int = 0
    failed: int = 0
    released: int = 0
    lost: int = 0
    abandoned: int = 0
    unsent: int = 0
    interrupted: bool = False

    @property
    def ended(self) -> int:
        """How many jobs have come to an end here, whichever."""
        return self.completed + self.failed + self.released + self.lost


def running(held: Held) -> Running:
    """Describe a handler at work."""
    claim, lease = held.claim, held.handler.lease_seconds
    left = max(0.0, held.deadline - now())
    return Running(claim.job_id, claim.kind, claim.attempts, held.seconds, lease, left)


def log_end(held: Held, outcome: str, seconds: float, level: int = logging.INFO, why: str = "") -> None:
    """Write the one line of a job's end. Reasons of handlers, which may quote a payload, are not in it."""
    claim = held.claim
    facts = {
        "id": claim.job_id,
        "kind": claim.kind,
        "attempt": claim.attempts,
        "seconds": round(seconds, 3),
        "outcome": outcome,
    }
    shown = " ".join(f"{name}={word(value)}" for name, value in facts.items())
    facts["job_id"] = facts.pop("id")
    log.log(level, "job ended %s%s", shown, f" why={word(why)}" if why else "", extra=facts)


def log_failure(held: Held, verdict: Verdict) -> None:
    """Say why a handler did not return, with the traceback of what it raised.

    Log handlers get the exception itself, unless it is of another process, or its traceback cannot be written.
    """
    trace = verdict.trace or trace_of(verdict.error)
    writable = trace.encode(errors="backslashreplace").decode()[:LONGEST_TRACE]
    error = verdict.error if writable == trace else None
    claim = held.claim
    text = f"job {claim.job_id}, attempt {claim.attempts}: {word(verdict.reason)}"
    log.warning("%s", text, exc_info=error or (Traced(writable) if writable else None))


class Traced(Exception):
    """The traceback of a handler in another process, as text."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


def word(value: Any) -> str:
    """Spell a value so that a line splits at its spaces."""
    text = str(value)
    plain = text.isascii() and text.isprintable() and not set(text) & set(' "=\\')
    return text if plain and text else json.dumps(text)


# Hooks ----------------------------------------------------------------------------------------------------------

Hook = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Hooks:
    """The functions that a worker calls; each may be several."""

    on_claim: list[Callable[[Job], Any]] = field(default_factory=list)
    on_done: list[Callable[[Job, Ended], Any]] = field(default_factory=list)
    on_lost: list[Callable[[Job], Any]] = field(default_factory=list)


class Teller(threading.Thread):
    """Call the hooks in order from a thread of its own, where a slow one holds up nothing but other hooks."""

    def __init__(self, hooks: Hooks) -> None:
        super().__init__(name="shampoo-hooks", daemon=True)
        self._hooks = hooks
        self._told: SimpleQueue[tuple[list[Hook], tuple[Any, ...]] | None] = SimpleQueue()

    def claimed(self, held: Held) -> None:
        self._tell(self._hooks.on_claim, held.shown())

    def done(self, held: Held, ended: Ended) -> None:
        self._tell(self._hooks.on_done, held.shown(), ended)

    def lost(self, held: Held) -> None:
        self._tell(self._hooks.on_lost, held.shown())

    def _tell(self, hooks: list[Any], *facts: Any) -> None:
        if hooks:
            self._told.put((hooks, facts))

    def run(self) -> None:
        while told := self._told.get():
            hooks, facts = told
            for hook in list(hooks):
                try:
                    hook(*facts)
                except BaseException:
                    log.exception("hook %s failed", getattr(hook, "__qualname__", "?"))

    def close(self) -> None:
        """Let the hooks see what they were told, within a bounded time."""
        self._told.put(None)
        self.join(HOOKS_SECONDS)


# Spans ----------------------------------------------------------------------------------------------------------


class Spans:
    """One OpenTelemetry span a job, when that API is installed; else nothing at all."""

    def __init__(self) -> None:
        try:
            from opentelemetry import trace
        except ImportError:
            self._trace: Any = None
        else:
            self._trace = trace
            self._tracer = trace.get_tracer("shampoo_queue")

    def begin(self, held: Held) -> None:
        if self._trace:
            claim = held.claim
            facts: dict[str, str | int] = {"shampoo.job.id": claim.job_id, "shampoo.job.attempt": claim.attempts}
            held.span = self._tracer.start_span(f"shampoo.job {claim.kind}", attributes=facts)

    @contextmanager
    def inside(self, held: Held) -> Iterator[None]:
        """Make the job's span the current one, so that the handler's own spans hang below it."""
        if held.span is None:
            yield
            return
        with self._trace.use_span(held.span, end_on_exit=False, record_exception=False, set_status_on_exception=False):
            yield

    def end(self, held: Held, outcome: str) -> None:
        if held.span is not None:
            held.span.set_attribute("shampoo.job.outcome", outcome)
            held.span.end()


def ended_as(ending: Ending, seconds: float) -> Ended:
    """Describe an ending that the queue has accepted."""
    return Ended(ending.outcome, seconds, ending.result_ref, ending.reason)
