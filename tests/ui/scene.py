"""A queue in the middle of its day: one hour of jobs and lanes, played on a clock that ends now."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

from shampoo_queue import Client
from shampoo_queue.contract import JobClaimResult
from tests.queue import Queue

KINDS = ("delivery", "review", "embed", "summarise", "nightly-report")
PROJECTS = ("shared-ops", "saphira-memory", "mind-maps", "")
STEP_SECONDS = 20
STEPS = 180
PAYLOAD = '{\n  "uri": "https://example.org/items/%d",\n  "note": "a payload is opaque text, carried as it is"\n}'


@dataclass
class Work:
    """A claim that a worker holds, and the step in which it ends."""

    worker: Client
    claim: JobClaimResult
    until: int


class Scene:
    """Plays the hour; the same every time but for the ids."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.dice = random.Random(7)
        self.lanes: list[str] = []
        self.held: list[Work] = []
        self.conductor = queue.principal("conductor-1", "*", *PROJECTS, conductor=True, holder="planner/1")
        queue.principal("ada", "*", *PROJECTS, conductor=True)
        grants = [("shared-ops", "saphira-memory"), ("shared-ops", "mind-maps", ""), PROJECTS, PROJECTS]
        self.workers = [queue.principal(f"worker-{n}", *g, holder=f"host-{n}/40{n}") for n, g in enumerate(grants, 1)]

    def play(self) -> str:
        """Play the hour up to now; give the text of a token that may look and move."""
        clock = self.queue.stop_clock(round(time.time() * 1000) - (STEPS + 2) * STEP_SECONDS * 1000)
        registry = self.queue.shampoo.registry
        token = registry.issue_token("ada", scope="ops:write", expires_seconds=90 * 86_400).token
        registry.issue_token("worker-1")
        registry.issue_token("conductor-1", scope="metrics", expires_seconds=1_800)
        registry.revoke_token(registry.issue_token("worker-2", scope="tools:read").token_id)
        self._open_lanes()
        for step in range(STEPS):
            clock.advance(STEP_SECONDS)
            self._create(step)
            self._end(step)
            self._claim(step)
        self._exhaust()
        clock.advance(2 * STEP_SECONDS)
        self.workers[3].job_claim(kind="embed", lease_seconds=900)
        return token

    def _open_lanes(self) -> None:
        registry, create = self.queue.shampoo.registry, self.conductor.lane_create
        quorums = [registry.open_quorum(project, ["worker-1"]) for project in ("shared-ops", "mind-maps")]
        for n in range(11):
            branch, base = f"feat-{self.dice.choice(KINDS)}-{n}", "main"
            lane = create(quorum_id=quorums[n % 2], repo="saphira-memory", branch=branch, base_ref=base,
                          assignee_client_id="worker-1")  # fmt: skip
            self.lanes.append(lane.lane_id)

    def _create(self, step: int) -> None:
        busy = 1 + 3 * (60 < step < 120)
        for _ in range(self.dice.randint(0, busy)):
            payload = PAYLOAD % self.dice.randrange(10_000)
            self.conductor.job_create(kind=self.dice.choice(KINDS), project=self.dice.choice(PROJECTS), payload=payload)
        if step % 16 == 8:
            n = step // 16
            self._move_lane(n)
            self.conductor.job_create(kind="review", lane_id=self.lanes[n % 11], payload=PAYLOAD % step)

    def _move_lane(self, n: int) -> None:
        lane, conductor = self.lanes[n % 11], self.conductor
        if n in (2, 3, 4, 5, 6, 7, 8, 9):
            conductor.lane_set_state(lane_id=lane, state="in_progress")
        if n in (4, 5, 6, 7, 8):
            self.workers[0].lane_review(lane_id=lane, decision="submit") if n % 2 == 0 else conductor.lane_review(
                lane_id=lane, decision="submit"
            )
        if n in (5, 6, 7):
            conductor.lane_review(lane_id=lane, decision="approve")
        if n == 8:
            conductor.lane_review(lane_id=lane, decision="request-changes")
        if n in (6, 7):
            conductor.lane_set_state(lane_id=lane, state="done")
        if n == 7:
            conductor.lane_merge(lane_id=lane, outcome="merged", result_commit="9f2c1ab")
        if n == 9:
            conductor.lane_set_state(lane_id=lane, state="failed")
        if n == 10:
            conductor.lane_set_state(lane_id=lane, state="cancelled")
            conductor.lane_merge(lane_id=lane, outcome="skipped")

    def _end(self, step: int) -> None:
        for work in [work for work in self.held if work.until <= step]:
            self.held.remove(work)
            luck = self.dice.random()
            if luck < 0.84:
                work.worker.complete(work.claim, result_ref=f"verdict:{work.claim.job_id}")
            elif luck < 0.93:
                work.worker.fail(work.claim, reason="the receiver answered 500")
            else:
                work.worker.release(work.claim, delay_seconds=1_500, reason="not yet")

    def _claim(self, step: int) -> None:
        for worker in self.workers:
            if sum(work.worker is worker for work in self.held) < 3 and self.dice.random() < 0.5:
                claim = worker.job_claim(lease_seconds=self.dice.choice((600, 900, 1_800)))
                if claim:
                    self.held.append(Work(worker, claim, step + self.dice.randint(1, 16)))

    def _exhaust(self) -> None:
        """Spend every attempt of one job."""
        self.conductor.job_create(kind="flaky-export", project="shared-ops", payload=PAYLOAD % 13)
        for _ in range(5):
            claim = self.workers[0].job_claim(kind="flaky-export")
            self.workers[0].release(claim, reason="the export broke off")
