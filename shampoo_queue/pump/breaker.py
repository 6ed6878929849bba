"""Let each host hold back only itself: so many deliveries at once, and none but a probe while the host is down.

A claim has spent an attempt already, so a job whose host is full or down is kept here, under its lease, instead of
being tried or given back. A job is given back untried only when too many are kept, or when it is kept for too long for
a host that shows no sign of life: that costs it one attempt. The last attempt is never given back, but made.
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

from ..contract import limit
from .payload import Origin

MOST_REMEMBERED = 1_024
LATE_SECONDS = 0.5  # for a look, by which it shows that the whole process stood still

_log = logging.getLogger("shampoo_queue.pump")


@dataclass(frozen=True, slots=True)
class Patience:
    """How a host is spared, in seconds and counts."""

    per_host: int = 4
    opens_after: int = 5
    first_pause_seconds: float = 5.0
    most_pause_seconds: float = 600.0
    quiet_seconds: float = 20.0  # without a sign of life from a host that is being sent to
    most_waiting: int = 1_000
    most_waiting_bytes: int = 64 * 2**20
    longest_guess_seconds: float = 3_600.0  # of the time that a busy host needs for what waits
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
    proven: bool = False
    running: int = 0
    seconds_each: float = 1.0
    failures: int = 0
    pause_seconds: float = 0.0
    next_probe_at: float = 0.0
    timer: asyncio.TimerHandle | None = None
    waiting: list[_Waiter] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _Waiter:
    attempts: int
    size: int
    number: int
    began_at: float
    called: asyncio.Future[None]

    @property
    def last(self) -> bool:
        """Whether this attempt is the job's last."""
        return self.attempts >= limit("attempts")


class Hosts:
    """Who may send to which host now. It belongs to one event loop."""

    def __init__(self, patience: Patience, concurrency: float = inf) -> None:
        self._patience, self._concurrency = patience, concurrency
        self._hosts: dict[Origin, _Host] = {}
        self._running = self._waiting = self._bytes = 0
        self._looking = self._stopped = False
        self._looked_at = self._stood_still_at = -inf
        self._numbers = itertools.count()

    @property
    def waiting(self) -> int:
        """How many jobs are kept here."""
        return self._waiting

    @asynccontextmanager
    async def turn(self, origin: Origin, attempts: int, size: int = 0) -> AsyncIterator[Turn]:
        """Wait until the host may be sent to, and count as one of its deliveries inside; raise `Crowded`.

        Of jobs kept for one host, those with more ``attempts`` behind them stay when room is short. ``size`` is what
        keeping the job costs, in bytes.
        """
        host = self._hosts.setdefault(origin, _Host(alive_at=asyncio.get_running_loop().time()))
        if host.waiting or not self._free(host):
            await self._wait(origin, host, attempts, size)
        else:
            self._begin(host)
        self._look_again()
        turn, began_at = Turn(), asyncio.get_running_loop().time()
        try:
            yield turn
        finally:
            self._end(host)
            # What failed because this process stood still says nothing of the host.
            blameless = turn.alive is False and began_at < self._stood_still_at
            self._learn(origin, host, None if blameless else turn.alive)
            if turn.alive:
                host.seconds_each += 0.2 * (asyncio.get_running_loop().time() - began_at - host.seconds_each)
            self._call_all()
            self._forget(origin, host)

    def stop(self) -> None:
        """Give back every job that waits now or later, or make its last attempt; those that are being sent go on."""
        self._stopped = True
        for host in self._hosts.values():
            for waiter in list(host.waiting):
                self._send_off(host, waiter, Stopping("the pump stops", self._pause_left(host)))

    def _begin(self, host: _Host) -> None:
        if not host.running:
            host.alive_at = asyncio.get_running_loop().time()  # its silence counts from now
        host.running += 1
        self._running += 1

    def _end(self, host: _Host) -> None:
        host.running -= 1
        self._running -= 1

    def _free(self, host: _Host) -> bool:
        """Whether one more delivery may go to the host now.

        A host that is down gets one at a time; and so does, when every second place is taken, one that has not
        answered yet, lest hosts that hang take the places of those that do not.
        """
        if self._running >= self._concurrency or asyncio.get_running_loop().time() < host.next_probe_at:
            return False
        doubtful = host.failures > 0 or not host.proven
        alone = host.failures >= self._patience.opens_after or (doubtful and self._running >= self._concurrency / 2)
        return host.running < (1 if alone else self._patience.per_host)

    async def _wait(self, origin: Origin, host: _Host, attempts: int, size: int) -> None:
        """Keep a job until it is called; it then counts as running already."""
        loop = asyncio.get_running_loop()
        waiter = _Waiter(attempts, size, next(self._numbers), loop.time(), loop.create_future())
        if self._stopped and not waiter.last:
            raise Stopping("the pump stops", self._pause_left(host))
        if self._stopped:
            return self._begin(host)
        host.waiting.append(waiter)
        self._waiting += 1
        self._bytes += size
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
                self._end(host)
                self._call_all()
            raise
        finally:
            self._forget(origin, host)

    def _call(self, host: _Host) -> None:
        """Let those go who may; set a clock when a pause is all that they wait for."""
        while host.waiting and self._free(host):
            waiter = host.waiting[0]
            self._remove(host, waiter)
            self._let_go(host, waiter)
        loop = asyncio.get_running_loop()
        if host.waiting and host.timer is None and host.next_probe_at > loop.time():
            host.timer = loop.call_at(host.next_probe_at, self._pause_over, host)

    def _call_all(self) -> None:
        """Let those go for whom there is a place now: hosts with few deliveries under way first."""
        for host in sorted((one for one in self._hosts.values() if one.waiting), key=lambda one: one.running):
            self._call(host)

    def _let_go(self, host: _Host, waiter: _Waiter) -> None:
        if not waiter.called.done():  # else it was cancelled, and has not run since
            self._begin(host)
            waiter.called.set_result(None)

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
                self._send_off(host, waiter, self._crowded(host, "it does not answer"))
        self._make_room()
        self._look_again()

    def _make_room(self) -> None:
        """Make room at the cost of the host with most jobs waiting, a lifeless one if any, and of its newest jobs."""
        patience = self._patience
        while self._waiting > patience.most_waiting or self._bytes > patience.most_waiting_bytes:
            lifeless = self._lifeless()
            host = max(lifeless or self._hosts.values(), key=lambda host: len(host.waiting))
            waiter = max(host.waiting, key=lambda waiter: (-waiter.attempts, waiter.number))
            if lifeless:
                crowded = self._crowded(host, "it does not answer, and too many jobs wait")
            else:
                needed = len(host.waiting) * host.seconds_each / patience.per_host
                delay = min(max(needed, self._pause_left(host)), patience.longest_guess_seconds)
                crowded = Crowded("it is busy, and too many jobs wait", delay)
            self._send_off(host, waiter, crowded)

    def _lifeless(self) -> list[_Host]:
        """Give the hosts that are down, or have been quiet for long, and have jobs waiting."""
        quiet_since = asyncio.get_running_loop().time() - self._patience.quiet_seconds
        return [
            host
            for host in self._hosts.values()
            if host.waiting
            and (host.failures >= self._patience.opens_after or (host.running and host.alive_at <= quiet_since))
        ]

    def _crowded(self, host: _Host, reason: str) -> Crowded:
        """Say that a job must go untried, for the longest pause at once: each return costs it one more attempt."""
        return Crowded(reason, max(self._pause_left(host), self._patience.most_pause_seconds))

    def _pause_left(self, host: _Host) -> float:
        return max(0.0, host.next_probe_at - asyncio.get_running_loop().time())

    def _send_off(self, host: _Host, waiter: _Waiter, why: Crowded) -> None:
        """Give a job back; or let it be tried, where another claim could not be had."""
        self._remove(host, waiter)
        if waiter.last:
            self._let_go(host, waiter)
        elif not waiter.called.done():
            waiter.called.set_exception(why)

    def _remove(self, host: _Host, waiter: _Waiter) -> None:
        host.waiting.remove(waiter)
        self._waiting -= 1
        self._bytes -= waiter.size

    def _learn(self, origin: Origin, host: _Host, alive: bool | None) -> None:
        """Count a failure or a sign of life; each failure of a host that is down doubles its pause."""
        patience = self._patience
        if alive:
            if host.failures >= patience.opens_after:
                _log.info("%s answers again", origin)
            host.failures, host.pause_seconds, host.next_probe_at, host.proven = 0, 0.0, 0.0, True
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
