"""Send what became of jobs to the queue, until it knows or their leases are over; and tell everybody else."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from math import inf

from ..claims import Ending
from ..clock import now
from ..contract import JobCompleteResult, JobReleaseResult
from ..errors import (
    Internal,
    JobAlreadyTerminal,
    JobNotClaimed,
    JobNotFound,
    LeaseExpired,
    ToolError,
    Unauthenticated,
    Unavailable,
)
from ..facade import Client
from .held import Held
from .observe import LOST, Spans, Stats, Teller, ended_as, log_end
from .outage import Outage

log = logging.getLogger("shampoo_queue.worker")

# What says that the job is not ours, whatever came between.
NOT_OURS = (JobNotFound, JobNotClaimed, JobAlreadyTerminal, LeaseExpired)

Answer = JobCompleteResult | JobReleaseResult | ToolError


class Endings:
    """The endings that the queue does not know yet. Only the dispatcher's thread comes here."""

    def __init__(self, client: Client, outage: Outage, spans: Spans, teller: Teller) -> None:
        self._client, self._outage, self._spans, self._teller = client, outage, spans, teller
        self._unsent: deque[tuple[Held, Ending]] = deque()
        self.counts = Stats()
        self.send_at = -inf

    def __len__(self) -> int:
        return len(self._unsent)

    def add(self, held: Held, ending: Ending) -> None:
        self._unsent.append((held, ending))

    def send(self) -> None:
        """Send all in one batch, but nothing of a handler's whose lease may be over.

        Raises `ToolError` when the queue refuses the caller altogether.
        """
        if not self._unsent or now() < self.send_at:
            return
        batch: list[tuple[Held, Ending]] = []
        while self._unsent:
            held, ending = self._unsent.popleft()
            if held.job and held.deadline <= now():
                self.note_lost(held, "the lease ran out before the ending could be sent")
            else:
                batch.append((held, ending))
        answers: Sequence[Answer]
        try:
            answers = self._client.end_many([ending for _, ending in batch]) if batch else []
        except (Unavailable, Internal) as error:
            answers = [error] * len(batch)
        for (held, ending), answer in zip(batch, answers, strict=True):
            self._take(held, ending, answer)

    def _take(self, held: Held, ending: Ending, answer: Answer) -> None:
        match answer:
            case Unavailable() | Internal():
                held.unknown = held.unknown or answer.outcome_unknown
                self.send_at = now() + self._outage.gone(answer)
                self._unsent.append((held, ending))
            case JobNotClaimed() | LeaseExpired() if held.unknown and ending.outcome == "released":
                self._note_end(held, ending)  # by the call whose answer never came
            case ToolError():
                if held.job:  # else no handler has seen it
                    self.note_lost(held, answer.message)
                if isinstance(answer, Unauthenticated):
                    raise answer
                if not isinstance(answer, NOT_OURS):
                    log.error("the ending of job %s was refused: %s", held.claim.job_id, answer.message)
            case _:
                self._outage.back()
                self._note_end(held, ending)

    def _note_end(self, held: Held, ending: Ending) -> None:
        if held.job is None:
            return
        seconds = held.seconds
        self.counts = replace(self.counts, **{ending.outcome: getattr(self.counts, ending.outcome) + 1})
        log_end(held, ending.outcome, seconds)
        self._spans.end(held, ending.outcome)
        self._teller.done(held, ended_as(ending, seconds))

    def note_lost(self, held: Held, why: str) -> None:
        """Tell that a job is lost."""
        self.counts = replace(self.counts, lost=self.counts.lost + 1)
        log_end(held, LOST, held.seconds, logging.WARNING, why)
        self._spans.end(held, LOST)
        self._teller.lost(held)

    def note_unsent(self) -> None:
        """Tell that what is left cannot be sent any more."""
        if self._unsent:
            self.counts = replace(self.counts, unsent=len(self._unsent))
            log.error("the queue could not be told of %d jobs; their leases lapse", len(self._unsent))

    def note_abandoned(self, held: Held) -> None:
        """Tell that a handler is left behind."""
        self.counts = replace(self.counts, abandoned=self.counts.abandoned + 1)
        log.error("the handler of job %s does not end and is left behind", held.claim.job_id)
