"""Tell how far a worker's stop has come: asked for, in the grace time, handlers interrupted, or past waiting."""

from __future__ import annotations

from enum import Enum, auto
from math import inf

from ..clock import now

LAST_SECONDS = 2.0  # that interrupted handlers have to end before their jobs are given back over their heads
SEND_SECONDS = 5.0  # that the last endings may take when the queue is away


class Step(Enum):
    """What is to be done now on the way to the end."""

    NOTHING = auto()
    BEGIN = auto()
    INTERRUPT = auto()
    ABANDON = auto()


class Stop:
    """The stop of one run. Anybody may `ask`, a signal's handler too; the rest is the dispatcher's."""

    def __init__(self, grace_seconds: float) -> None:
        self.asked = False
        self._at_once = False
        self._grace_seconds = grace_seconds
        self._grace_until = self._last_until = self._quiet_since = inf

    def ask(self, at_once: bool) -> None:
        self._at_once = self._at_once or at_once
        self.asked = True

    def step(self) -> Step:
        """Give what is due; each step comes once, the last until nothing runs."""
        if not self.asked:
            return Step.NOTHING
        if self._grace_until == inf:
            self._grace_until = now() + self._grace_seconds
            return Step.BEGIN
        if self._last_until == inf and (self._at_once or now() >= self._grace_until):
            self._last_until = now() + LAST_SECONDS
            return Step.INTERRUPT
        return Step.ABANDON if now() >= self._last_until else Step.NOTHING

    def next_at(self) -> float:
        """Give the instant of the next step."""
        if not self.asked:
            return inf
        if self._last_until < inf:
            return self._last_until
        return -inf if self._at_once else self._grace_until

    def over(self, unsent: bool, away: bool) -> bool:
        """Tell, once nothing runs, whether to wait no longer: all is sent, or the queue is away for too long."""
        self._quiet_since = min(self._quiet_since, now())
        patience = 0.0 if self._at_once else SEND_SECONDS
        return not unsent or (away and now() >= self._quiet_since + patience)
