"""Callers at the same time, on the server's own clock: what each was answered must be explained by one order of moves.

The history names that order. Told the accepted calls in it, at the instants it gives, the model must answer as the
callers were answered; every other call must have a place between its invocation and its return where the model
refuses it in the same words; and no call may stand before one that had returned when it began.
"""

from __future__ import annotations

import multiprocessing
import pickle
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest

from shampoo_queue import Shampoo, replay
from shampoo_queue.errors import Refusal
from tests.conftest import REAL
from tests.model.model import Model
from tests.model.pair import ms
from tests.model.registry import Refused
from tests.queue import Queue

PEOPLE = {
    "boss": (True, ("p", "q")),
    "one": (False, ("p",)),
    "both": (False, ("p", "q")),
    "star": (False, ("*",)),
}
SECONDS = 2.4  # longer than the leases, so that some lapse


@dataclass
class Told:
    """One call and its answer: when it began and ended, by the machine's steady clock and by the time of day."""

    who: str
    tool: str
    arguments: dict[str, Any]
    beside: dict[str, Any]
    said: Any = None
    began: int = 0
    ended: int = 0
    began_at: int = 0
    ended_at: int = 0

    def make(self, shampoo: Shampoo) -> Any:
        """Make the call and remember what came of it."""
        self.began, self.began_at = time.monotonic_ns(), time.time_ns() // 1_000_000
        try:
            answer = shampoo.client(self.who).call(self.tool, self.arguments, **self.beside)
            self.said = (dict(answer), answer.meta.fence, answer.meta.replayed)
        except Refusal as refusal:
            self.said = refusal.code
        self.ended, self.ended_at = time.monotonic_ns(), time.time_ns() // 1_000_000
        return self.said

    def was_accepted(self) -> bool:
        return not isinstance(self.said, str) and self.said[0].get("claimed", True) and not self.said[2]

    def by(self, model: Model) -> Any:
        """Say what the model answers to it, and change the model."""
        new_id = self.said[0].get("job_id", "") if self.was_accepted() else ""
        try:
            return model.call(self.who, self.tool, self.arguments, new_id=new_id, **self.beside)
        except Refused as refused:
            return str(refused)


def work(shampoo: Shampoo, who: str, number: int, known: list[str], start: Callable[[], Any]) -> list[Told]:
    """Call at random as one principal: claim, end own claims or forget them, try others' jobs; the boss creates."""
    dice, told = random.Random(number), list[Told]()
    facts: dict[str, Any]
    mine: list[tuple[str, int]] = []
    start()
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        fence = None
        if who == "boss" and dice.random() < 0.2:
            tool, facts = "job_create", {"kind": dice.choice("kl"), "project": dice.choice("pq")}
        elif dice.random() < 0.4 or not mine:
            tool, facts = "job_claim", {"kind": dice.choice((None, "k", "l")), "lease_seconds": 1}
        else:
            job_id, its_fence = mine.pop(dice.randrange(len(mine))) if dice.random() < 0.7 else (dice.choice(known), 5)
            tool, facts = dice.choice(("job_complete", "job_release")), {"job_id": job_id}
            if tool == "job_complete":
                facts["outcome"] = dice.choice(("completed", "failed"))
            fence = dice.choice((None, its_fence))
        beside = {"fence": fence, "request_id": f"{who}/{number}/{len(told)}", "holder": f"{number}"}
        told.append(Told(who, tool, facts, beside))
        said = told[-1].make(shampoo)
        if told[-1].was_accepted() and tool == "job_claim" and dice.random() < 0.8:
            mine.append((said[0]["job_id"], said[1]))
        if dice.random() < 0.2:
            time.sleep(dice.random() * 0.1)
    return told


def prepare(queue: Queue) -> tuple[Model, list[Told]]:
    """Register everybody, and create the first jobs."""
    model = Model(0)
    for name, (conductor, grants) in PEOPLE.items():
        queue.principal(name, *grants, conductor=conductor)
        model.add_principal(name, conductor, grants)
    created = [
        Told("boss", "job_create", {"kind": "kl"[n % 2], "project": "pq"[n % 3 == 0]}, {"request_id": f"first/{n}"})
        for n in range(12)
    ]
    for call in created:
        call.make(queue.shampoo)
    return model, created


def jobs_events(queue: Queue) -> list[Any]:
    found: list[Any] = []
    while page := queue.shampoo.history(after=found[-1].id if found else None, limit=1000):
        found += page
    return [event for event in found if event.event.startswith("job.")]


class Explained:
    """The calls of all callers, put into the order of the history and told to the model."""

    def __init__(self, model: Model, told: list[Told], events: list[Any]) -> None:
        self.model, self.events = model, [event for event in events if event.event != "job.reclaimed"]
        by_request = {call.beside["request_id"]: call for call in told}
        self.ordered = [by_request[event.request_id] for event in self.events]
        self.others = [call for call in told if not call.was_accepted()]

    def accepted_calls_are_the_models(self) -> None:
        """Tell the model the accepted calls in order, and look for a place for each of the others on the way."""
        windows = self._windows()
        for place, (call, event) in enumerate(zip(self.ordered, self.events, strict=True)):
            self.model.now = ms(event.at)
            assert call.by(self.model) == call.said, (place, call)
            self.model.events.clear()
            waiting = windows[place]
            if waiting:
                following = ms(self.events[place + 1].at) if place + 1 < len(self.events) else None
                state = pickle.dumps(self.model)
                for other in waiting:
                    if other in self.others and self._fits(state, other, following):
                        self.others.remove(other)
        assert not self.others, self.others[0]

    def _windows(self) -> dict[int, list[Told]]:
        """Give, for each place, the other calls that may have been answered right after it."""
        windows = defaultdict(list)
        for other in self.others:
            before = [n for n, call in enumerate(self.ordered) if call.ended < other.began]
            behind = [n for n, call in enumerate(self.ordered) if call.began > other.ended]
            for place in range(max(before, default=0), min(behind, default=len(self.ordered))):
                windows[place].append(other)
        return windows

    def _fits(self, state: bytes, call: Told, following: int | None) -> bool:
        """Try the earliest and the latest instant that the call can have had in this state."""
        for instant in (call.began_at, call.ended_at if following is None else min(call.ended_at, following)):
            model: Model = pickle.loads(state)
            model.now = max(model.now, instant)
            if call.by(model) == call.said:
                return True
        return False

    def nobody_is_before_who_had_finished(self) -> None:
        latest = 0
        for call in self.ordered:
            assert call.ended > latest, f"{call} returned before an earlier move had even begun"
            latest = max(latest, call.began)


def check(queue: Queue, model: Model, told: list[Told]) -> None:
    events = jobs_events(queue)
    accepted = [call.beside["request_id"] for call in told if call.was_accepted()]
    moved = Counter(event.request_id for event in events if event.event != "job.reclaimed")
    assert moved == Counter(accepted), "one event for each accepted move, none for any other"
    each_job_is_won_once_at_a_time(events)
    standings = replay(events)
    for job_id, standing in standings.items():
        stored = queue.shampoo.ops.job(job_id) or {}
        assert {name: stored.get(name) or type(value)() for name, value in standing.items()} == standing
    explained = Explained(model, told, events)
    explained.nobody_is_before_who_had_finished()
    explained.accepted_calls_are_the_models()
    assert any(event.event == "job.reclaimed" for event in events), "no lease lapsed: nothing was taken over"


def each_job_is_won_once_at_a_time(events: list[Any]) -> None:
    of_job = defaultdict(list)
    for event in events:
        of_job[event.entity_id].append(event)
    for own in of_job.values():
        fences = [event.fence for event in own if event.event == "job.claimed"]
        assert all(a < b for a, b in pairwise(fences)), "a fence did not rise"
        attempts = [event.attempts for event in own if event.event == "job.claimed"]
        assert attempts == list(range(1, len(attempts) + 1))
        assert len(attempts) <= 5
        ends = [n for n, event in enumerate(own) if event.to in ("completed", "failed")]
        assert ends in ([], [len(own) - 1]), "something followed the end of a job"


@pytest.mark.parametrize("turn", [0, *(pytest.param(turn, marks=pytest.mark.slow) for turn in range(1, 11))])
@pytest.mark.parametrize("engine", REAL, indirect=True)
def test_what_threads_are_told_is_explained_by_one_order_of_moves(queue: Queue, turn: int) -> None:
    model, told = prepare(queue)
    known = [call.said[0]["job_id"] for call in told]
    gate = threading.Barrier(2 * len(PEOPLE))
    with ThreadPoolExecutor(2 * len(PEOPLE)) as pool:
        for found in [
            pool.submit(work, queue.shampoo, who, number, known, gate.wait)
            for number, who in enumerate([*PEOPLE, *PEOPLE], 10 * turn)
        ]:
            told += found.result()
    check(queue, model, told)


_gate: Any = None


def enter(gate: Any) -> None:
    global _gate
    _gate = gate


def work_in_a_process(url: str, profile: str, who: str, number: int, known: list[str]) -> list[Told]:
    with Shampoo.connect(url, profile=profile) as shampoo:
        return work(shampoo, who, number, known, _gate.wait)


@pytest.mark.parametrize("engine", ["embedded", pytest.param("redis7", marks=pytest.mark.slow)], indirect=True)
def test_what_processes_are_told_is_explained_by_one_order_of_moves(queue: Queue) -> None:
    model, told = prepare(queue)
    known = [call.said[0]["job_id"] for call in told]
    spawn = multiprocessing.get_context("spawn")
    gate = spawn.Barrier(len(PEOPLE))
    with ProcessPoolExecutor(len(PEOPLE), spawn, enter, (gate,)) as pool:
        for found in [
            pool.submit(work_in_a_process, queue.engine.url, queue.profile, who, number, known)
            for number, who in enumerate(PEOPLE)
        ]:
            told += found.result()
    check(queue, model, told)
