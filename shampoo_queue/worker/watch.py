"""Watch the leases from two threads of their own: one renews them, one takes them for lost when they run out.

Neither depends on a handler's thread or event loop. The second never touches the network, so that no slow server
can keep it from telling a handler in time that its job is no longer its own.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from math import inf
from random import uniform

from ..clock import now
from ..contract import JobClaimResult, JobRenewResult
from ..errors import Internal, ShampooError, ToolError, Unavailable
from .held import Held, Leases
from .outage import Outage

log = logging.getLogger("shampoo_queue.worker")

BATCH = 100
LOOK_SECONDS = 1.0  # at most, since a thread's own waiting may stand still while the machine sleeps
WARN_EVERY_SECONDS = 30.0

Renew = Callable[[Sequence[JobClaimResult]], list[JobRenewResult | ToolError]]
Lose = Callable[[Held, str], None]


class Watch(threading.Thread):
    """Make a pass over the leases whenever its instant has come. `look` gives the next instant."""

    def __init__(self, name: str) -> None:
        super().__init__(name=f"shampoo-{name}", daemon=True)
        self._condition = threading.Condition()
        self._next = -inf
        self._closed = False

    def look(self, overslept: float) -> float:
        raise NotImplementedError

    def notice(self, at: float) -> None:
        """Tell of an instant that may come before the one waited for."""
        with self._condition:
            if at < self._next:
                self._next = at
                self._condition.notify()

    def close(self) -> None:
        with self._condition:
            self._closed = True
            self._condition.notify()

    def run(self) -> None:
        overslept = 0.0
        while not self._closed:
            with self._condition:
                self._next = inf
            try:
                following = self.look(overslept)
            except Exception:
                log.exception("%s failed in one pass and goes on", self.name)
                following = now() + LOOK_SECONDS
            overslept = self._wait(following)

    def _wait(self, following: float) -> float:
        with self._condition:
            self._next = min(self._next, following)
            while not self._closed and (left := self._next - now()) > 0:
                self._condition.wait(min(left, LOOK_SECONDS))
            return max(0.0, now() - self._next)


class Renewals(Watch):
    """Renew each lease when a third of it is over. A refusal is a loss, silence is not."""

    def __init__(self, leases: Leases, renew: Renew, lose: Lose, outage: Outage) -> None:
        super().__init__("renewals")
        self._leases, self._renew, self._lose, self._outage = leases, renew, lose, outage
        self._warned_at = -inf
        self._shortest = inf  # of the leases held at the last look, and since

    def expect(self, batch: Sequence[Held]) -> None:
        """Take note of fresh leases."""
        self._shortest = min(self._shortest, *(held.handler.lease_seconds for held in batch))
        self.notice(min(held.renew_at for held in batch))

    def look(self, overslept: float) -> float:
        instant, shortest = now(), self._shortest
        due = [held for held in self._leases if held.open and held.renew_at <= instant]
        for start in range(0, len(due), BATCH):
            self._renew_all(due[start : start + BATCH])
        if not self._outage.lasting:
            self._warn(overslept + now() - instant, min([shortest, *(held.handler.lease_seconds for held in due)]))
        kept = [held for held in self._leases if held.open]
        self._shortest = min((held.handler.lease_seconds for held in kept), default=inf)
        return min((held.renew_at for held in kept), default=inf)

    def _renew_all(self, due: list[Held]) -> None:
        sent_at = now()
        answers: Iterable[JobRenewResult | ShampooError]
        try:
            answers = self._renew([held.claim for held in due])
        except ToolError as error:
            answers = [error] * len(due)
        for held, answer in zip(due, answers, strict=True):
            match answer:
                case Unavailable() | Internal():
                    self._outage.gone(answer)
                    held.renew_at = now() + min(1.0, held.handler.lease_seconds / 10) * uniform(0.5, 1.0)
                case ToolError():
                    self._lose(held, answer.message)
                case _:
                    self._outage.back()
                    held.extend(sent_at)

    def _warn(self, late: float, shortest: float) -> None:
        """Say when renewals come so late that a lease may not live, or has not lived."""
        if late > shortest / 3 and now() > self._warned_at + WARN_EVERY_SECONDS:
            self._warned_at = now()
            log.warning(
                "renewals are %.1f s late: this process stood still, or handlers keep the interpreter to themselves; "
                "such handlers belong in runs_in='process', or need a longer lease",
                late,
            )


class Deadlines(Watch):
    """Take each job for lost at its local deadline, and end each handler at its time limit."""

    def __init__(self, leases: Leases, lose: Lose, time_out: Callable[[Held], None], beat: Callable[[], float]) -> None:
        super().__init__("deadlines")
        self._leases, self._lose, self._time_out, self._beat = leases, lose, time_out, beat

    def look(self, overslept: float) -> float:
        instant, following = now(), self._beat()
        for held in self._leases:
            if not held.open:
                continue
            if held.deadline <= instant:
                self._lose(held, "the lease ran out before it could be renewed")
            elif held.limit_at <= instant:
                self._time_out(held)
            else:
                following = min(following, held.deadline, held.limit_at)
        return following
