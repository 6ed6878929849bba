"""Keep count of a worker's places: how many are free for which kind, and which kinds are known to have no work."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from ..facade import Client
from .handlers import Handler
from .held import Held
from .scout import Kinds
from .slots import Slots


class Kind:
    """One kind's handler at run time. ``dry``: the last claim found less than was asked for."""

    def __init__(self, handler: Handler, slots: Slots, client: Client) -> None:
        self.handler, self.slots, self.client = handler, slots, client
        self.busy = 0
        self.dry = False


class Places:
    """The places of all kinds; ``most`` bounds them together. Only the dispatcher's thread changes anything here."""

    def __init__(self, kinds: Iterable[Kind], most: int | None) -> None:
        self.kinds = {kind.handler.kind: kind for kind in kinds}
        self.running: dict[Held, Kind] = {}
        self.vain = 0  # signs of work since the last that led to a claim
        self._most = most
        self._turns = deque(self.kinds.values())
        self._fresh = True  # whether anything happened since every kind was found dry

    def free(self, kind: Kind) -> int:
        """Tell how many more of a kind may be claimed."""
        free = kind.handler.concurrency - kind.busy
        return free if self._most is None else min(free, self._most - len(self.running))

    def to_claim(self) -> Iterator[Kind]:
        """Give the kinds with free places that may have work, each round beginning with another."""
        self._turns.rotate(-1)
        for kind in self._turns:
            if self.may_claim(kind):
                yield kind

    def may_claim(self, kind: Kind) -> bool:
        return not kind.dry and self.free(kind) > 0

    def anything_to_claim(self) -> bool:
        return any(map(self.may_claim, self._turns))

    def wanted(self) -> Kinds:
        """Give the kinds with free places and no work, which the scout is to wait for."""
        return tuple(sorted(kind.handler.kind for kind in self._turns if kind.dry and self.free(kind) > 0))

    def claimed(self, kind: Kind, asked: int, won: int) -> None:
        """Take note of a claim."""
        kind.dry = won < asked
        if won:
            self.vain, self._fresh = 0, True

    def take(self, held: Held, kind: Kind) -> None:
        self.running[held] = kind
        kind.busy += 1

    def give_back(self, held: Held) -> bool:
        """Free a place; false when its handler was left behind before."""
        kind = self.running.pop(held, None)
        if kind is None:
            return False
        kind.busy -= 1
        self._fresh = True
        return True

    def work_seen(self, kinds: Kinds) -> None:
        """Take a sign of work. It may be in vain: others were quicker, or a cap allows no more."""
        self.vain += 1
        for name in kinds:
            self.kinds[name].dry = False

    def exhausted(self) -> bool:
        """Tell whether nothing runs and every kind was found dry after the last thing that happened.

        When something happened since, for instance a handler that made jobs of another kind, all are to be asked again.
        """
        if self.running or not all(kind.dry for kind in self._turns):
            return False
        if self._fresh:
            self._fresh = False
            for kind in self._turns:
                kind.dry = False
            return False
        return True
