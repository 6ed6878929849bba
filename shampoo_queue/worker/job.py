"""What a handler sees: the job it works on, and the ways to end it other than by returning or raising."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol

from ..contract import limit

if TYPE_CHECKING:
    from ..facade import Client


class Fail(Exception):
    """Raise in a handler to end the job as failed at once, with this reason, whatever attempts are left."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class Release(Exception):
    """Raise in a handler to give the job back: claimable now, or after ``delay`` seconds.

    ``delay`` is in seconds, from 0 to a year, else ValueError. The attempt counts. A job that has no attempt left can
    be claimed by nobody, so it fails instead.
    """

    def __init__(self, delay: float = 0.0, reason: str = "") -> None:
        if isinstance(delay, bool) or not isinstance(delay, int | float) or not 0 <= delay <= limit("delay"):
            raise ValueError(f"a delay is a number of seconds from 0 to {limit('delay'):,}")
        super().__init__(reason)
        self.delay, self.reason = delay, reason


class Lost(Exception):
    """The job is no longer this handler's: its lease was lost, its time is over, or the worker gives it back.

    `Job.check` and `Job.acheck` raise it. Let it pass: whatever the handler returns or raises then is dropped.
    """


class Link(Protocol):
    """How a job asks the worker about itself."""

    @property
    def lost(self) -> bool: ...

    @property
    def client(self) -> Client: ...

    def check(self) -> None: ...

    async def acheck(self) -> None: ...


class Unbound:
    """The link of a job that no worker runs, as in a unit test of a handler: never lost, without a queue."""

    lost = False

    @property
    def client(self) -> Client:
        raise RuntimeError("here is no client: a handler in a process opens the queue for itself")

    def check(self) -> None:
        return

    async def acheck(self) -> None:
        self.check()


class Job:
    """One claimed job. ``attempts`` counts its claims, this one too; ``fence`` numbers this very claim.

    A receiver of side effects that remembers the highest fence it has seen can refuse an older claim's. To try a
    handler without a queue, make a job by hand: ``Job(payload="{}")`` is never lost.
    """

    __slots__ = ("_link", "attempts", "fence", "job_id", "kind", "payload")

    def __init__(
        self,
        job_id: str = "",
        *,
        kind: str = "",
        payload: str = "",
        attempts: int = 1,
        fence: int | None = None,
        link: Link | None = None,
    ) -> None:
        self.job_id, self.kind, self.payload, self.attempts, self.fence = job_id, kind, payload, attempts, fence
        self._link: Link = link or Unbound()

    def __repr__(self) -> str:
        return f"Job({self.job_id!r}, kind={self.kind!r}, attempts={self.attempts})"  # never the payload

    def json(self) -> Any:
        """Read the payload as JSON. One that is none fails the job at once: another attempt would read the same."""
        try:
            return json.loads(self.payload)
        except (ValueError, RecursionError) as error:
            raise Fail(f"the payload is no JSON: {error}") from None

    @property
    def client(self) -> Client:
        """The worker's own client, for instance to create the jobs that follow. Blocking; not in processes."""
        return self._link.client

    @property
    def lost(self) -> bool:
        """Tell whether the worker already knows that the handler must stop. Costs nothing, asks nobody."""
        return self._link.lost

    def check(self) -> None:
        """Ask the queue whether the job is still ours, just before a side effect, and renew its lease.

        For handlers in threads and processes; blocks for one round trip. Raises `Lost`, or `Unavailable` when the
        queue does not answer. On an event loop it raises RuntimeError: await `acheck` there.
        """
        self._link.check()

    async def acheck(self) -> None:
        """Do what `check` does without holding up the event loop; for async handlers."""
        await self._link.acheck()
