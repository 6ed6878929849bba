"""Wait at the queue for work that the worker has free places for, so that the dispatcher need not ask again."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from random import uniform

from ..claims import new_waiter
from ..errors import Internal, ToolError, Unavailable
from ..facade import Client
from .outage import Outage

log = logging.getLogger("shampoo_queue.worker")

WAIT_SECONDS = 600.0
LONGEST_REST = 2.0

Kinds = tuple[str, ...]


class Scout(threading.Thread):
    """Sit in ``wait_for_work`` for the kinds that the dispatcher wants, and tell it when there may be some.

    A sign is spent once it has come, until the dispatcher has tried and wants more. Signs in vain, for instance for
    work that others were quicker to claim, make it rest a little before it looks again.
    """

    def __init__(self, client: Client, found: Callable[[Kinds], None], outage: Outage) -> None:
        super().__init__(name="shampoo-scout", daemon=True)
        self._client, self._found, self._outage = client, found, outage
        self._waiter = new_waiter()
        self._condition = threading.Condition()
        self._wanted: Kinds = ()
        self._waiting: Kinds = ()
        self._rest = 0.0
        self._closed = False

    def want(self, kinds: Kinds, vain: int = 0) -> None:
        """Wait for these kinds from now on; ``vain`` counts the signs since the last that led to a claim."""
        with self._condition:
            self._rest = min(LONGEST_REST, 0.01 * 2.0 ** min(vain, 10)) * uniform(0.5, 1.0) if vain else 0.0
            if kinds == self._wanted:
                return
            self._wanted = kinds
            called_back = self._waiting
            self._condition.notify()
        if called_back:
            self._call_back()

    def close(self) -> None:
        with self._condition:
            self._closed = True
            self._wanted = ()
            called_back = self._waiting
            self._condition.notify()
        if called_back and not self._outage.lasting:
            self._call_back()

    def run(self) -> None:
        while kinds := self._next():
            try:
                found = self._client.wait_for_work(self._waiter, kinds, WAIT_SECONDS * uniform(0.8, 1.0))
                self._outage.back()
                pause = 0.0
            except (Unavailable, Internal) as error:
                found, pause = False, self._outage.gone(error)
            except ToolError:
                found, pause = True, LONGEST_REST  # the dispatcher will meet the same refusal, and decide
            except Exception:
                log.exception("waiting for work failed and goes on")
                found, pause = False, LONGEST_REST
            with self._condition:
                self._waiting = ()
                if found and self._wanted == kinds:
                    self._wanted = ()
                elif pause and not self._closed:
                    self._condition.wait(pause)
            if found:
                self._found(kinds)

    def _next(self) -> Kinds:
        """Give the kinds to wait for, once there are some; none when it is over."""
        with self._condition:
            while not self._closed:
                if not self._wanted:
                    self._condition.wait()
                elif self._rest:
                    rest, self._rest = self._rest, 0.0
                    self._condition.wait(rest)
                else:
                    self._waiting = self._wanted
                    return self._waiting
        return ()

    def _call_back(self) -> None:
        try:
            self._client.leave(self._waiter)
        except ToolError as error:
            self._outage.gone(error)
