"""Ten callers with different grants over fifty projects: every claim takes the very job that the contract names."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.model.pair import Pair
from tests.queue import Queue

ENGINES = ("memory", "embedded", "redis7")
PROJECTS = ["", *(f"p{n:02}" for n in range(48)), "p:1%", "é"]
KINDS = ("build", "ship", "a:b", "%3A")
SEEDS = [1, 2]
SLOW_SEEDS = [pytest.param(n, marks=pytest.mark.slow) for n in range(3, 13)]


def callers(dice: random.Random) -> dict[str, tuple[str, ...]]:
    """Ten mixes of grants."""
    some = {f"some-{n}": tuple(dice.sample(PROJECTS, n)) for n in (1, 2, 5, 10, 30)}
    rest = {"star": ("*",), "star-and-some": ("*", "p01", ""), "untagged": ("",), "all": tuple(PROJECTS), "none": ()}
    return some | rest


class Mix:
    """A profile in motion, and the dice that move it."""

    def __init__(self, queue: Queue, number: int) -> None:
        self.pair, self.dice = Pair(queue), random.Random(number)
        self.callers = callers(self.dice)
        self.pair.operator("add_principal", "creator", True, PROJECTS)
        for name, grants in self.callers.items():
            self.pair.operator("add_principal", name, False, grants)

    def anybody(self) -> str:
        return self.dice.choice(list(self.callers))

    def claim(self, who: str, kind: str | None, lease_seconds: int) -> Any:
        return self.pair.call(who, "job_claim", {"kind": kind, "lease_seconds": lease_seconds})

    def kind_or_any(self) -> str | None:
        return self.dice.choice((None, None, *KINDS))

    def round(self) -> None:
        """Create, claim, give back and end some jobs within a few milliseconds; some leases will lapse."""
        dice = self.dice
        self.pair.advance(dice.choice((0, 0, 1, 1, 7, 400, 1000)))
        busy = dice.sample(PROJECTS, 12)
        for _ in range(dice.randrange(20)):
            self.pair.call("creator", "job_create", {"kind": dice.choice(KINDS), "project": dice.choice(busy)})
        for _ in range(dice.randrange(10)):
            who = self.anybody()
            won = self.claim(who, self.kind_or_any(), dice.choice((1, 1, 2, 3600)))
            if won["claimed"] and dice.random() < 0.6:
                self.pair.advance(dice.choice((0, 0, 0, 1)))
                self.end(who, won["job_id"])

    def end(self, who: str, job_id: str) -> None:
        if self.dice.random() < 0.7:
            self.pair.call(who, "job_release", {"job_id": job_id})
        else:
            self.pair.call(
                who, "job_complete", {"job_id": job_id, "outcome": self.dice.choice(("completed", "failed"))}
            )

    def drain(self) -> int:
        """Let callers take turns at random until nobody finds anything; give how many jobs were claimed."""
        claimed, hungry = 0, set(self.callers)
        while hungry:
            who = self.dice.choice(sorted(hungry))
            kind = self.kind_or_any()
            if self.claim(who, kind, 3600)["claimed"]:
                claimed += 1
            elif kind is None:
                hungry.discard(who)
            self.pair.advance(self.dice.choice((0, 0, 1)))
        return claimed


@pytest.mark.parametrize("number", [*SEEDS, *SLOW_SEEDS])
@pytest.mark.parametrize("engine", ENGINES, indirect=True)
def test_every_claim_takes_the_job_whose_turn_it_is(queue: Queue, number: int) -> None:
    mix = Mix(queue, number)
    for _ in range(30):
        mix.round()
    mix.pair.advance(1500)  # some leases lapse now, some in the middle of what follows
    assert mix.drain() > 100
    mix.pair.advance(3_600_000)
    assert mix.drain() > 50
    assert not any(mix.claim(who, kind, 1)["claimed"] for who in mix.callers for kind in (None, *KINDS))
    mix.pair.compare()


@pytest.mark.parametrize("kind", [None, "build"])
@pytest.mark.parametrize("engine", ENGINES, indirect=True)
def test_a_star_principal_considers_the_64_projects_that_have_waited_longest(queue: Queue, kind: str | None) -> None:
    pair, dice = Pair(queue), random.Random(7)
    projects = [f"p{n:03}" for n in range(90)]
    for name, conductor, grants in (("creator", True, projects), ("star", False, ["*"]), ("all", False, projects)):
        pair.operator("add_principal", name, conductor, grants)
    waiting = dice.sample(projects, 90)
    for project in waiting * 2:
        pair.call("creator", "job_create", {"kind": dice.choice(("build", "build", "ship")), "project": project})
        pair.advance(dice.choice((0, 0, 1)))

    def served(who: str) -> str:
        won = pair.call(who, "job_claim", {"kind": kind, "lease_seconds": 3600})
        return pair.model.jobs[won["job_id"]].project if won["claimed"] else ""

    if kind is None:
        assert served("star") == min(waiting[:64]) != "p000"
        assert served("all") == "p000"
    while served(dice.choice(("star", "star", "all"))):
        pair.advance(dice.choice((0, 1)))
    assert not served("star")
    assert not served("all")
    pair.compare()
