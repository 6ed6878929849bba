"""Hold back those who ask too often: failed attempts of an address, calls of a principal. Kept by each process."""

from __future__ import annotations

from collections import OrderedDict

from ..clock import now

_REMEMBERED = 10_000
_WINDOW = 60.0


class Failures:
    """Failed attempts in the last minute, by address, or by a token that there is and an address."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._counts: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def add(self, address: str) -> None:
        began, count = self._counts.pop(address, (now(), 0))
        if now() - began >= _WINDOW:
            began, count = now(), 0
        self._counts[address] = (began, count + 1)
        if len(self._counts) > _REMEMBERED:
            self._counts.popitem(last=False)

    def too_many(self, address: str) -> bool:
        began, count = self._counts.get(address, (0.0, 0))
        return count >= self._most and now() - began < _WINDOW


class Pace:
    """Calls of a principal: so many a second on average, and a second's worth at once; None is as many as it likes."""

    def __init__(self, per_second: float | None) -> None:
        self._per_second = per_second
        self._most = max(1.0, per_second or 0.0)
        self._left: OrderedDict[tuple[str, str], tuple[float, float]] = OrderedDict()

    def allows(self, principal: tuple[str, str]) -> bool:
        """Tell whether a principal may call now; `spend` says that it did."""
        return self._per_second is None or self._now(principal) >= 1.0

    def spend(self, principal: tuple[str, str]) -> None:
        if self._per_second is None:
            return
        self._left[principal] = (now(), self._now(principal) - 1.0)
        self._left.move_to_end(principal)
        if len(self._left) > _REMEMBERED:
            self._left.popitem(last=False)

    def _now(self, principal: tuple[str, str]) -> float:
        at, left = self._left.get(principal, (now(), self._most))
        return min(self._most, left + (now() - at) * (self._per_second or 0.0))
