"""Idle callers for tests, as the scripts see them: registered under a name and signed, with no thread that blocks."""

from __future__ import annotations

from tests.queue import Queue

LOOK, STAY = 8_000, 60_000
"""Milliseconds between two looks of an idle caller, and for which it stays registered."""


class Idle:
    """Register, look and take back in the name of any principal of a queue."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue

    def _move(self, client_id: str, waiter: str, stay: str, *kinds: str) -> str:
        beside = (client_id, "h", "", "", "", "")
        (said,) = self._queue.move("job_wait", *beside, waiter, stay, *kinds)
        return str(said.decode())

    def wait(self, client_id: str, waiter: str, *kinds: str, stay: int = STAY) -> str:
        """Register for kinds (none: any); give ``now``, or the milliseconds until the next look."""
        return self._move(client_id, waiter, str(stay), *(kinds or ("",)))

    def waits(self, client_id: str, waiter: str, *kinds: str) -> bool:
        """Register; tell whether the caller now waits."""
        return self.wait(client_id, waiter, *kinds) != "now" and self.is_registered(waiter)

    def look(self, client_id: str, waiter: str, *kinds: str) -> str:
        """Look without registering anew."""
        return self._move(client_id, waiter, "", *(kinds or ("",)))

    def leave(self, client_id: str, waiter: str, sign: bool = True) -> None:
        """Take the registration back, and end a wait under way."""
        assert self._move(client_id, waiter, "-1" if sign else "0") == "now"

    def signed(self, waiter: str) -> int:
        """How many signs lie there for a caller."""
        return int(self._queue.command("LLEN", self._queue.key("wake", waiter)))

    def is_registered(self, waiter: str) -> bool:
        return bool(self._queue.command("EXISTS", self._queue.key("waiter", waiter)))

    def end(self, waiter: str) -> None:
        """Let a registration end by itself, as it does where the clock goes on."""
        self._queue.command("DEL", self._queue.key("waiter", waiter))
