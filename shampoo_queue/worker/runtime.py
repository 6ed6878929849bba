"""Run a worker: claim, hand to handlers, send endings; in batches, from one thread that owns all the bookkeeping.

Other threads only post to the dispatcher's inbox: handlers their outcomes, the scout its signs, the watches their
losses, a signal its request to stop. A batch is what has gathered meanwhile; nothing waits for a batch to fill.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from queue import Empty, SimpleQueue

from .. import systemd
from ..claims import Ending
from ..client import Shampoo
from ..clock import now
from ..contract import JobClaimResult
from ..errors import Internal, ToolError, Unavailable
from .endings import Endings
from .handlers import Handler
from .held import Held, Leases
from .job import Lost
from .link import InProcess
from .observe import Hooks, Spans, Stats, Teller, log_failure, running
from .outage import Outage
from .outcome import Verdict, drained, ending, timed_out
from .places import Kind, Places
from .processes import ProcessSlots
from .scout import Scout
from .slots import AsyncSlots, Slots, ThreadSlots
from .stopping import Step, Stop
from .watch import Deadlines, Renewals

log = logging.getLogger("shampoo_queue.worker")

CLAIM_AT_MOST = 100
TICK_SECONDS = 1.0
HUNG_SECONDS = 60.0  # without a turn of the dispatcher, which a call to a silent server may hold up for 45


@dataclass(frozen=True, slots=True)
class Options:
    """How one run of a worker goes about it; ``concurrency`` bounds all kinds together."""

    client_id: str
    holder: str | None = None
    concurrency: int | None = None
    burst: bool = False
    grace_seconds: float = 30.0


class Runtime:
    """One run of a worker. `start` it, then wait for ``over``."""

    def __init__(
        self,
        shampoo: Shampoo,
        handlers: Iterable[Handler],
        hooks: Hooks,
        options: Options,
        loop: asyncio.AbstractEventLoop | None,
        over: Callable[[], None],
    ) -> None:
        self.fatal: BaseException | None = None
        self._options, self._loop, self._tell_over = options, loop, over
        self._client = shampoo.client(options.client_id, holder=options.holder)
        self._inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._spans, self._leases = Spans(), Leases()
        self._outage = Outage(lambda: self._inbox.put(self._try_again))
        self._teller = Teller(hooks)
        kinds = (
            Kind(handler, self._slots(handler), shampoo.client(options.client_id, holder=options.holder))
            for handler in handlers
        )
        self._places = Places(kinds, options.concurrency)
        self._endings = Endings(self._client, self._outage, self._spans, self._teller)
        self._claim_at = -inf
        self._stop = Stop(options.grace_seconds)
        self._turned_at = now()
        self._ready = self._warm = False
        self._scout = Scout(
            self._client, lambda kinds: self._inbox.put(partial(self._places.work_seen, kinds)), self._outage
        )
        self._renewals = Renewals(self._leases, self._client.renew_many, self.lose, self._outage)
        self._deadlines = Deadlines(self._leases, self.lose, self._time_out, self._beat)
        self._dispatcher = threading.Thread(target=self._run, name="shampoo-dispatcher", daemon=True)
        self._beat_seconds = systemd.watchdog_seconds()

    def _slots(self, handler: Handler) -> Slots:
        match handler.runs_in:
            case "thread":
                return ThreadSlots(handler, self._post_over, self._spans)
            case "process":
                return ProcessSlots(handler, self._post_over, self._spans, self.check)
            case _:
                assert self._loop is not None
                return AsyncSlots(handler, self._post_over, self._spans, self._loop)

    # From any thread -----------------------------------------------------------------------------------------

    def start(self) -> None:
        for thread in (self._teller, self._scout, self._renewals, self._deadlines, self._dispatcher):
            thread.start()

    def stop(self, at_once: bool = False) -> None:
        """Stop after the grace time, or at once. Fit to be called from a signal's handler: nothing here blocks."""
        self._stop.ask(at_once)
        self._inbox.put(_nothing)

    def stats(self) -> Stats:
        """Take a picture of what goes on."""
        state = "stopping" if self._stop.asked else "away" if self._outage.lasting else "working"
        slots = {name: kind.handler.concurrency for name, kind in self._places.kinds.items()}
        at_work = tuple(map(running, list(self._places.running)))
        return replace(self._endings.counts, state=state, slots=slots, running=at_work)

    def check(self, held: Held) -> None:
        """Ask the queue whether a job is still ours, and renew it; raise `Lost`, or `Unavailable` without an answer."""
        if held.told or not held.open:
            raise Lost(held.why or "the job has ended")
        sent_at = now()
        try:
            self._client.renew(held.claim)
        except (Unavailable, Internal):
            raise
        except ToolError as error:
            self.lose(held, error.message)
        else:
            held.extend(sent_at)
        if held.told:
            raise Lost(held.why)

    def lose(self, held: Held, why: str) -> None:
        """Take a job for lost, unless it has come to an ending: tell its handler to stop."""
        if held.lose(why):
            self._leases.discard(held)
            self._interrupt(held)
            self._inbox.put(partial(self._endings.note_lost, held, why))

    def _time_out(self, held: Held) -> None:
        limit = held.handler.time_limit
        assert limit is not None
        verdict = timed_out(limit)
        if held.settle():
            held.tell(verdict.reason)
            self._interrupt(held)
            self._inbox.put(partial(self._settled, held, verdict))

    def _interrupt(self, held: Held) -> None:
        self._places.kinds[held.handler.kind].slots.interrupt(held)

    def _post_over(self, held: Held, verdict: Verdict) -> None:
        self._inbox.put(partial(self._handler_over, held, verdict))

    def _beat(self) -> float:
        """Tell the service manager that the worker lives, as long as its dispatcher does; give the next instant."""
        if self._beat_seconds is None:
            return inf
        if now() - self._turned_at < HUNG_SECONDS:
            systemd.notify("WATCHDOG=1")
        return now() + self._beat_seconds

    # The dispatcher ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while True:
                self._turned_at = now()
                self._endings.send()
                self._claim()
                self._tend_stop()
                if self._done():
                    return
                self._listen()
        except BaseException as error:
            self._die(error)
        finally:
            self._finish()

    def _die(self, error: BaseException) -> None:
        """Leave after a defect, or because the queue will never take us; what runs is told, its leases lapse."""
        self.fatal = error
        if not isinstance(error, ToolError):
            log.exception("the dispatcher failed")
        self._stop.ask(at_once=True)
        for held in list(self._places.running):
            held.tell("the worker failed")
            self._interrupt(held)

    def _finish(self) -> None:
        with suppress(Empty):
            while True:
                self._inbox.get_nowait()()
        for held in list(self._places.running):
            self._leases.discard(held)
        self._scout.close()
        for kind in self._places.kinds.values():
            kind.slots.close()
        for thread in (self._renewals, self._deadlines):
            thread.close()
            thread.join(TICK_SECONDS)
        self._scout.join(TICK_SECONDS)
        self._endings.note_unsent()
        self._teller.close()
        self._tell_over()

    def _listen(self) -> None:
        """Take what was posted; wait for it as long as there is nothing else to do."""
        try:
            self._inbox.get(timeout=self._idle_seconds())()
            while True:
                self._inbox.get_nowait()()
        except Empty:
            pass

    def _idle_seconds(self) -> float:
        """Tell how long nothing is to be done."""
        if self._options.burst and not self._places.running and not self._outage.lasting:
            return 0.0
        following = min(now() + TICK_SECONDS, self._stop.next_at())
        if self._endings:
            following = min(following, self._endings.send_at)
        if not self._stop.asked and self._places.anything_to_claim():
            following = min(following, self._claim_at)
        return max(0.0, following - now())

    # Claims --------------------------------------------------------------------------------------------------

    def _claim(self) -> None:
        """Claim for every kind that has free places and may have work; let the scout wait for the others."""
        for kind in self._places.to_claim():
            if self._stop.asked or now() < self._claim_at:
                return
            self._claim_kind(kind, min(self._places.free(kind), CLAIM_AT_MOST))
        if not self._stop.asked:
            self._scout.want(self._places.wanted(), self._places.vain)

    def _claim_kind(self, kind: Kind, count: int) -> None:
        sent_at = now()
        try:
            claims = kind.client.claim_many(count, kind=kind.handler.kind, lease_seconds=kind.handler.lease_seconds)
        except (Unavailable, Internal) as error:
            self._claim_at = now() + self._outage.gone(error)
            return
        self._outage.back()
        self._say_ready()
        self._places.claimed(kind, count, len(claims))
        if claims:
            self._warm_up(claims[0])
            self._begin(kind, claims, sent_at)

    def _warm_up(self, claim: JobClaimResult) -> None:
        """Renew the very first claim at once: its script is loaded before handlers compete for the processor."""
        if not self._warm:
            self._warm = True
            with suppress(ToolError):
                self._client.renew(claim)

    def _begin(self, kind: Kind, claims: Sequence[JobClaimResult], sent_at: float) -> None:
        """Hand claims to the handler; those that came too late, for the lease or for the stop, are given back."""
        batch = []
        for claim in claims:
            held = Held(claim, kind.handler, sent_at, self._deadlines.notice)
            if self._stop.asked or held.deadline <= now():
                held.settle()
                self._endings.add(held, drained(claim) if self._stop.asked else Ending(claim, "released"))
                continue
            held.bind(InProcess(held, kind.client, self.check))
            self._spans.begin(held)
            self._places.take(held, kind)
            self._leases.add(held)
            self._teller.claimed(held)
            batch.append(held)
        if batch:
            # First, for starting many threads may take longer than a short lease lasts.
            self._renewals.expect(batch)
            self._deadlines.notice(min(held.deadline for held in batch))
            kind.slots.start(batch)

    def _say_ready(self) -> None:
        if not self._ready:
            self._ready = True
            systemd.notify("READY=1")

    # Endings -------------------------------------------------------------------------------------------------

    def _handler_over(self, held: Held, verdict: Verdict) -> None:
        """Free the place; what the handler came to counts unless the job was lost or ended before."""
        if not self._places.give_back(held):
            return
        if held.settle():
            self._settled(held, verdict)

    def _settled(self, held: Held, verdict: Verdict) -> None:
        self._leases.discard(held)
        if held.draining and verdict.way == "raised":
            self._endings.add(held, drained(held.claim))
            return
        if verdict.way in ("raised", "fail"):
            log_failure(held, verdict)
        self._endings.add(held, ending(held.claim, held.handler, verdict))

    # The end -------------------------------------------------------------------------------------------------

    def _done(self) -> bool:
        if self._places.running:
            return False
        if self._stop.asked:
            return self._stop.over(bool(self._endings), self._outage.lasting)
        return self._options.burst and not self._endings and self._places.exhausted()

    def _tend_stop(self) -> None:
        """Begin to stop when asked; interrupt what runs when the grace time is over, and then give up on it."""
        match self._stop.step():
            case Step.BEGIN:
                systemd.notify("STOPPING=1")
                self._scout.close()
            case Step.INTERRUPT:
                for held in self._places.running:
                    held.draining = True
                    held.tell("the worker stops")
                    self._interrupt(held)
            case Step.ABANDON:
                self._abandon()

    def _try_again(self) -> None:
        """Wait no longer: some thread has had an answer."""
        self._claim_at = self._endings.send_at = -inf

    def _abandon(self) -> None:
        """Give back the jobs whose handlers do not end, and send what can be sent."""
        for held in list(self._places.running):
            self._places.give_back(held)
            self._endings.note_abandoned(held)
            if held.settle():
                self._leases.discard(held)
                self._endings.add(held, drained(held.claim))
        self._endings.send()


def _nothing() -> None:
    """Wake the dispatcher."""
