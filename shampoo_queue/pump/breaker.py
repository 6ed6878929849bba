"""Let each host hold back only itself: so many deliveries at once, and none but a probe while the host is down.

A claim has spent an attempt already, so a job whose host is full or down is kept here, under its lease, instead of
being tried or given back. Jobs are given back only for a host that shows no sign of life, and only when too many are
kept or one is kept for too long: that costs a job one attempt, untried. A host that answers, however slowly, costs its
jobs none; when all places are taken by such jobs, the pump claims no more until there is room.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from math import inf

from .payload import Origin

MOST_REMEMBERED = 1_024
LATE_SECONDS = 0.5  # for a look, by which it shows that the whole process stood still

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Patience:
    """How a host is spared, in seconds and counts."""

    per_host: int = 4
    opens_after: int = 5
    first_pause_seconds: float = 5.0
    most_pause_seconds: float = 600.0
    quiet_seconds: float = 5.0  # without a sign of life from a host that has jobs waiting
    most_waiting: int = 256
    most_wait_seconds: float = 600.0
    look_seconds: float = 0.25


class Crowded(Exception):
    """This job should be given back: it cannot be kept any longer for a host that does not answer.

    ``delay_seconds`` is how long the host is left alone at least.
    """

    def __init__(self, reason: str, delay_seconds: float) -> None:
        super().__init__(reason)
        self.delay_seconds = delay_seconds


class Stopping(Crowded):
    """This job should be given back because the pump stops."""


@dataclass(slots=True)
class Turn:
    """One delivery's leave to be sent. Set ``alive`` to what the host showed: True, False, or None for nothing."""

    alive: bool | None = None


@dataclass(slots=True)
class _Host:
    alive_at: float
    running: int = 0
    failures: int = 0
    pause_seconds: float = 0.0
    next_probe_at: float = 0.0
    timer: asyncio.TimerHandle | None = None
    waiting: list[_Waiter] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _Waiter:
    attempts: int
    number: int
    began_at: float
    called: asyncio.Future[None]


class Hosts:
    """Who may send to which host now. It belongs to one event loop."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._hosts: dict[Origin, _Host] = {}
        self._waiting = 0
        self._looking = self._stopped = False
        self._looked_at = self._stood_still_at = -inf
        self._numbers = itertools.count()

    @property
    def waiting(self) -> int:
        """How many jobs are kept here."""
        return self._waiting

    @asynccontextmanager
    async def turn(self, origin: Origin, attempts: int) -> AsyncIterator[Turn]:
        """Wait until the host may be sent to, and count as one of its deliveries inside; raise `Crowded`.

        Of jobs kept for one host, those with more ``attempts`` behind them stay when room is short.
        """
        host = self._hosts.setdefault(origin, _Host(alive_at=asyncio.get_running_loop().time()))
        if host.waiting or not self._free(host):
            await self._wait(origin, host, attempts)
        else:
            host.running += 1
        self._look_again()
        turn, began_at = Turn(), asyncio.get_running_loop().time()
        try:
            yield turn
        finally:
            host.running -= 1
            # What failed because this process stood still says nothing of the host.
            blameless = turn.alive is False and began_at < self._stood_still_at
            self._learn(origin, host, None if blameless else turn.alive)
            self._call(host)
            self._forget(origin, host)

    def stop(self) -> None:
        """Give back every job that waits now or later; those that are being sent go on."""
        self._stopped = True
        for host in self._hosts.values():
            for waiter in list(host.waiting):
                self._give_back(host, waiter, Stopping("the pump stops", self._pause_left(host)))

    def _free(self, host: _Host) -> bool:
        """Whether one more delivery may go to the host now; a host that is down gets one at a time."""
        now = asyncio.get_running_loop().time()
        down = host.failures >= self._patience.opens_after
        return now >= host.next_probe_at and host.running < (1 if down else self._patience.per_host)

    async def _wait(self, origin: Origin, host: _Host, attempts: int) -> None:
        """Keep a job until it is called; it then counts as running already."""
        if self._stopped:
            raise Stopping("the pump stops", self._pause_left(host))
        loop = asyncio.get_running_loop()
        waiter = _Waiter(attempts, next(self._numbers), loop.time(), loop.create_future())
        host.waiting.append(waiter)
        self._waiting += 1
        self._look_again()
        self._call(host)
        self._make_room()
        try:
            await waiter.called
        except asyncio.CancelledError:
            if waiter in host.waiting:
                self._remove(host, waiter)
            elif not waiter.called.cancelled() and waiter.called.exception() is None:
                # Called and cancelled in the same moment: the next one may go.
                host.running -= 1
                self._call(host)
            raise
        finally:
            self._forget(origin, host)

    def _call(self, host: _Host) -> None:
        """Let those go who may; set a clock when a pause is all that they wait for."""
        while host.waiting and self._free(host):
            waiter = host.waiting[0]
            self._remove(host, waiter)
            if not waiter.called.done():  # else it was cancelled, and has not run since
                host.running += 1
                waiter.called.set_result(None)
        loop = asyncio.get_running_loop()
        if host.waiting and host.timer is None and host.next_probe_at > loop.time():
            host.timer = loop.call_at(host.next_probe_at, self._pause_over, host)

    def _pause_over(self, host: _Host) -> None:
        host.timer = None
        self._call(host)

    def _look_again(self) -> None:
        """Look after a while, as long as there is anything to look at."""
        if not self._looking and any(host.running or host.waiting for host in self._hosts.values()):
            self._looking = True
            loop = asyncio.get_running_loop()
            self._looked_at = loop.time()
            loop.call_later(self._patience.look_seconds, self._look)

    def _look(self) -> None:
        """Notice what time alone brings about: that this process stood still, that jobs were kept for too long."""
        self._looking = False
        now = asyncio.get_running_loop().time()
        if now - self._looked_at > self._patience.look_seconds + LATE_SECONDS:
            self._stood_still_at = now
            for host in self._hosts.values():
                host.alive_at = now
        for host in self._lifeless():
            for waiter in [one for one in host.waiting if one.began_at <= now - self._patience.most_wait_seconds]:
                self._give_back(host, waiter, self._crowded(host, "it does not answer"))
        self._make_room()
        self._look_again()

    def _make_room(self) -> None:
        """Make room at the cost of the lifeless host with most jobs waiting, and of those with most attempts left."""
        while self._waiting > self._patience.most_waiting and (hosts := self._lifeless()):
            host = max(hosts, key=lambda host: len(host.waiting))
            waiter = max(host.waiting, key=lambda waiter: (-waiter.attempts, waiter.number))
            self._give_back(host, waiter, self._crowded(host, "it does not answer, and too many jobs wait"))

    def _lifeless(self) -> list[_Host]:
        """Give the hosts that are down, or have been quiet for long, and have jobs waiting."""
        quiet_since = asyncio.get_running_loop().time() - self._patience.quiet_seconds
        return [
            host
            for host in self._hosts.values()
            if host.waiting and (host.failures >= self._patience.opens_after or host.alive_at <= quiet_since)
        ]

    def _crowded(self, host: _Host, reason: str) -> Crowded:
        """Say that a job must go untried, for the longest pause at once: each return costs it one more attempt."""
        return Crowded(reason, max(self._pause_left(host), self._patience.most_pause_seconds))

    def _pause_left(self, host: _Host) -> float:
        return max(0.0, host.next_probe_at - asyncio.get_running_loop().time())

    def _give_back(self, host: _Host, waiter: _Waiter, why: Crowded) -> None:
        self._remove(host, waiter)
        if not waiter.called.done():
            waiter.called.set_exception(why)

    def _remove(self, host: _Host, waiter: _Waiter) -> None:
        host.waiting.remove(waiter)
        self._waiting -= 1

    def _learn(self, origin: Origin, host: _Host, alive: bool | None) -> None:
        """Count a failure or a sign of life; each failure of a host that is down doubles its pause."""
        patience = self._patience
        if alive:
            if host.failures >= patience.opens_after:
                _log.info("%s answers again", origin)
            host.failures, host.pause_seconds, host.next_probe_at = 0, 0.0, 0.0
            host.alive_at = asyncio.get_running_loop().time()
        elif alive is False:
            host.failures += 1
            now = asyncio.get_running_loop().time()
            if host.failures >= patience.opens_after and now >= host.next_probe_at:
                if not host.pause_seconds:
                    _log.warning("%s failed %d times in a row; its jobs wait", origin, host.failures)
                host.pause_seconds = min(
                    max(host.pause_seconds * 2, patience.first_pause_seconds), patience.most_pause_seconds
                )
                # Spread, so that pumps side by side do not probe at the same moment.
                host.next_probe_at = now + host.pause_seconds * random.uniform(1.0, 1.25)

    def _forget(self, origin: Origin, host: _Host) -> None:
        """Drop what need not be remembered, so that memory does not grow with the hosts ever seen."""
        if not host.failures and not host.running and not host.waiting:
            self._hosts.pop(origin, None)
        elif len(self._hosts) > MOST_REMEMBERED:
            idle = [(one.next_probe_at, key) for key, one in self._hosts.items() if not one.running and not one.waiting]
            for _, key in sorted(idle, key=lambda pair: pair[0])[: len(idle) // 2]:
                del self._hosts[key]
