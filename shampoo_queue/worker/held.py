"""Keep one claim under which a handler runs: whose it is, until when, and which of its endings came first."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from math import inf
from typing import Any

from ..clock import now
from ..contract import JobClaimResult
from .handlers import Handler
from .job import Job, Link

MARGIN_SECONDS = 0.5


class Held:
    """One claim of this process. Exactly one of `settle` and `lose` succeeds, once, in whatever threads they race.

    ``deadline`` is the instant by which, without a renewal, the job must be taken for lost: the claim's request left
    a lease earlier, and the server cannot have started counting before that. The margin is for the clocks' rates and
    for stopping the handler.
    """

    def __init__(
        self, claim: JobClaimResult, handler: Handler, sent_at: float, notice: Callable[[float], None] = lambda at: None
    ) -> None:
        self.claim, self.handler, self._notice = claim, handler, notice
        self.began = now()
        self.limit_at = inf
        self.told = False  # the handler was told to stop
        self.draining = False
        self.unknown = False  # an ending was sent, and nobody knows what became of it
        self.why = ""
        self.span: Any = None
        self.job: Job | None = None  # once a handler may see it
        self._open = True
        self._ended_at: float | None = None
        self._lock = threading.Lock()
        self.deadline = self.renew_at = -inf
        self.extend(sent_at)

    def bind(self, link: Link) -> Job:
        """Make the job that the handler sees."""
        claim = self.claim
        self.job = Job(
            claim.job_id,
            kind=claim.kind,
            payload=claim.payload,
            attempts=claim.attempts,
            fence=claim.fence,
            link=link,
        )
        return self.job

    def shown(self) -> Job:
        """Give the job that the handler sees."""
        assert self.job is not None
        return self.job

    @property
    def open(self) -> bool:
        """Tell whether the job has neither come to an ending nor been lost."""
        return self._open

    @property
    def seconds(self) -> float:
        """Tell how long the handler has been at it, or was."""
        return (self._ended_at or now()) - self.began

    def extend(self, sent_at: float) -> None:
        """Count the lease anew from the instant just before the request that took or renewed it."""
        lease = self.handler.lease_seconds
        self.deadline = max(self.deadline, sent_at + lease - min(MARGIN_SECONDS, lease / 10))
        self.renew_at = sent_at + lease / 3

    def begin(self) -> None:
        """Start the clock of the handler's own time limit."""
        self.began = now()
        if self.handler.time_limit is not None:
            self.limit_at = self.began + self.handler.time_limit
            self._notice(self.limit_at)

    def settle(self) -> bool:
        """Take an ending for the job; false when it had one, or was lost."""
        return self._shut()

    def lose(self, why: str) -> bool:
        """Take the job for lost; false when it was, or had come to an ending."""
        was = self._shut()
        if was:
            self.tell(why)
        return was

    def _shut(self) -> bool:
        with self._lock:
            was, self._open = self._open, False
            self._ended_at = self._ended_at or now()
            return was

    def tell(self, why: str) -> None:
        """Let the handler see that it must stop."""
        self.why = self.why or why
        self.told = True


class Leases:
    """The claims that must be renewed and watched; every thread may look."""

    def __init__(self) -> None:
        self._held: dict[Held, None] = {}
        self._lock = threading.Lock()

    def add(self, held: Held) -> None:
        with self._lock:
            self._held[held] = None

    def discard(self, held: Held) -> None:
        with self._lock:
            self._held.pop(held, None)

    def __iter__(self) -> Iterator[Held]:
        with self._lock:
            return iter(list(self._held))
