"""Tie deliveries to jobs: a worker with one handler, which makes the delivery of each job of its kind.

The pump sees the queue through the worker runtime like any other handler; it reads jobs and ends them, nothing else.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import httpcore2

from .. import __version__
from ..client import Shampoo
from ..clock import now
from ..worker import Fail, Job, Release, Stats, Worker
from .breaker import Crowded, Hosts, Patience, Stopping
from .deliver import Limits, Verdict, deliver
from .network import Connector, Network, Resolver
from .payload import BadPayload, Delivery, parse
from .signing import NoSecret, Signer

KIND = "delivery"
CONCURRENCY = 64
LEASE_SECONDS = 60
BACKOFF_SECONDS = (5.0, 300.0, 1_800.0, 7_200.0)
LEASE_SHARE = 0.8  # of the lease, at most, in which a delivery may still send
LOOK_SECONDS = 0.2

_log = logging.getLogger("shampoo_queue.pump")


class Pump:
    """One pump; several may run side by side, in one process or many. One pump runs once at a time."""

    def __init__(
        self,
        signer: Signer | None = None,
        *,
        kind: str = KIND,
        allowed: tuple[Network, ...] = (),
        concurrency: int = CONCURRENCY,
        lease_seconds: int = LEASE_SECONDS,
        limits: Limits | None = None,
        patience: Patience | None = None,
        backoff_seconds: Sequence[float] = BACKOFF_SECONDS,
        resolve: Resolver | None = None,
    ) -> None:
        """Set a pump up for the jobs of a kind; raise `ConfigurationError`.

        ``concurrency`` deliveries are made at once; up to ``patience.most_waiting`` jobs more are kept for hosts that
        are full or down. ``allowed`` names networks beyond the public ones. After attempt *n* a job waits at least
        ``backoff_seconds[n - 1]``, the last of them after all later ones.
        """
        self._signer = signer or Signer.none()
        self._lease_seconds = lease_seconds
        limits = limits or Limits()
        self._limits = replace(limits, total_seconds=min(limits.total_seconds, lease_seconds * LEASE_SHARE))
        self._backoff = tuple(backoff_seconds)
        self._connector = Connector(allowed, resolve)
        self._tls = httpcore2.default_ssl_context()
        self._patience = patience or Patience()
        self._concurrency = concurrency
        self._begin()
        self.worker = Worker()
        # A job that waits for its host takes a place of the worker, so that healthy hosts are still claimed for.
        places = concurrency + self._patience.most_waiting
        self.worker.handles(kind, lease_seconds=lease_seconds, concurrency=places, backoff=self._backoff)(self._handle)

    def run(self, shampoo: Shampoo, client_id: str, **options: Any) -> Stats:
        """Deliver as a principal until stopped, and tell what was done; options and errors as `Worker.run`."""
        return asyncio.run(self.run_async(shampoo, client_id, **{"signals": True} | options))

    async def run_async(self, shampoo: Shampoo, client_id: str, **options: Any) -> Stats:
        """Do what `run` does on the running loop; options and errors as `Worker.run_async`."""
        if self._signer.signs_nothing:
            _log.warning("no secret is configured: deliveries carry no signature")
        self._begin()
        watch = asyncio.create_task(self._watch_stop())
        try:
            return await self.worker.run_async(shampoo, client_id, **options)
        finally:
            watch.cancel()

    def _begin(self) -> None:
        self._hosts = Hosts(self._patience, self._concurrency)

    async def _watch_stop(self) -> None:
        """Give back the jobs that wait for their hosts as soon as the worker stops, not at the end of its grace."""
        while self.worker.stats().state != "stopping":
            await asyncio.sleep(LOOK_SECONDS)
        self._hosts.stop()

    async def _handle(self, job: Job) -> str:
        """Make the delivery of a job and give its ``result_ref``; raise `Fail`, `Release` or `Lost`."""
        try:
            delivery = parse(job.payload)
        except BadPayload as bad:
            raise Fail(f"payload: {bad}") from None
        project = await self._project(job)
        try:
            async with self._hosts.turn(delivery.origin, job.attempts, len(job.payload)) as turn:
                verdict = await self._send(job, delivery, project)
                turn.alive = verdict.alive
            _log.info("delivery of job %s, attempt %d: %s", job.job_id, job.attempts, verdict.text)
        except Stopping as stopping:
            raise Release(delay=stopping.delay_seconds, reason=f"drained: {stopping}") from None
        except Crowded as crowded:
            raise self._later(job, f"host: {crowded}", crowded.delay_seconds) from None
        except NoSecret:
            raise Fail("signing: no secret is configured for the project of this job") from None
        if verdict.outcome == "completed":
            return verdict.text
        if verdict.outcome == "failed":
            raise Fail(verdict.text)
        raise self._later(job, verdict.text, verdict.floor_seconds)

    async def _project(self, job: Job) -> str:
        """Ask for the project only where it matters: a claim does not tell it."""
        if not self._signer.asks_for_project:
            return ""
        return (await asyncio.to_thread(job.client.job, job.job_id)).project

    async def _send(self, job: Job, delivery: Delivery, project: str) -> Verdict:
        """Make one attempt under a lease that was just renewed, and is longer than the attempt can take."""
        until = now() + self._lease_seconds * LEASE_SHARE
        await job.acheck()
        headers = [
            *self._signer.headers(project, job.job_id, delivery.body),
            ("Shampoo-Fence", str(job.fence)),
            ("Shampoo-Attempt", str(job.attempts)),
        ]
        if not any(name.lower() == "user-agent" for name, _ in delivery.headers):
            headers.append(("User-Agent", f"shampoo_queue/{__version__}"))

        def may_send() -> bool:
            # The clock is asked too: after a stop of the whole process nobody may have told the job yet.
            return not job.lost and now() < until

        return await deliver(delivery, headers, self._connector, self._tls, self._limits, may_send)

    def _later(self, job: Job, reason: str, floor_seconds: float) -> Release:
        """Give the job back until its next attempt; the worker fails it when there is none left."""
        wait = max(self._backoff[min(job.attempts, len(self._backoff)) - 1], floor_seconds)
        # Jitter comes on top, so that what the receiver asked for is never cut short.
        return Release(delay=wait * random.uniform(1.0, 1.25), reason=reason)
