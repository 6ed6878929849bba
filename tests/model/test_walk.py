"""Every short sequence of moves of two principals on two jobs, and every sequence of moves of one lane."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.model.model import Model
from tests.model.pair import Pair
from tests.model.walk import (
    Move,
    Walk,
    beside_moves,
    nearly_exhausted,
    one_job,
    plain_moves,
    repeated_moves,
    two_principals,
)
from tests.queue import Queue

Moves = Callable[[Model], Iterator[Move]]


def walk(pair: Pair, depth: int, moves: Moves = plain_moves) -> tuple[int, int]:
    """Give how many distinct states were met, and how many moves were tried in them."""
    walked = Walk(pair, moves)
    walked.from_here(depth)
    return len(walked.seen), walked.tried


def assert_at_least(counted: tuple[int, int], states: int, moves: int) -> None:
    """Hold the size of a walk, so that it cannot shrink unnoticed."""
    assert counted[0] >= states, counted
    assert counted[1] >= moves, counted


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
def test_every_sequence_of_five_moves_on_fresh_jobs_is_as_the_model_says(queue: Queue) -> None:
    assert_at_least(walk(two_principals(queue), 5), states=392, moves=8_676)


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
def test_every_sequence_of_three_moves_on_nearly_exhausted_jobs_is_as_the_model_says(queue: Queue) -> None:
    assert_at_least(walk(nearly_exhausted(two_principals(queue)), 3), states=234, moves=2_915)


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
def test_every_sequence_of_four_moves_under_request_ids_is_as_the_model_says(queue: Queue) -> None:
    assert_at_least(walk(one_job(two_principals(queue)), 4, repeated_moves), states=959, moves=4_572)


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
def test_every_sequence_of_five_moves_with_delays_renewals_and_limits_is_as_the_model_says(queue: Queue) -> None:
    assert_at_least(walk(two_principals(queue), 5, beside_moves), states=362, moves=3_936)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("engine", ["memory"], indirect=True)
def test_every_sequence_of_seven_moves_with_delays_renewals_and_limits_is_as_the_model_says(queue: Queue) -> None:
    assert_at_least(walk(two_principals(queue), 7, beside_moves), states=362, moves=3_936)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("engine", ["memory"], indirect=True)
def test_every_sequence_of_six_moves_under_request_ids_is_as_the_model_says(queue: Queue) -> None:
    assert_at_least(walk(one_job(two_principals(queue)), 6, repeated_moves), states=6_904, moves=50_346)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("engine", ["memory"], indirect=True)
def test_every_sequence_of_nine_moves_on_fresh_jobs_is_as_the_model_says(queue: Queue) -> None:
    assert_at_least(walk(two_principals(queue), 9), states=4_852, moves=164_378)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("engine", ["memory"], indirect=True)
def test_every_sequence_of_seven_moves_on_nearly_exhausted_jobs_is_as_the_model_says(queue: Queue) -> None:
    assert_at_least(walk(nearly_exhausted(two_principals(queue)), 7), states=4_244, moves=144_902)


LANE_PEOPLE = {  # client_id: (conductor, grants)
    "boss": (True, ("p",)),
    "assignee": (False, ("p",)),
    "member": (False, ("p",)),
    "outsider": (False, ("p",)),
    "star": (False, ("*",)),
}
LANE_MOVES: tuple[tuple[str, dict[str, Any]], ...] = (
    *(
        ("lane_set_state", {"state": state})
        for state in ("open", "in_progress", "done", "failed", "cancelled", "", "Open")
    ),
    *(("lane_review", {"decision": decision}) for decision in ("submit", "approve", "request-changes")),
    *(
        ("lane_merge", {"outcome": outcome, "result_commit": commit})
        for outcome in ("merged", "conflicted", "skipped")
        for commit in (None, "one", "two")
    ),
)


Step = tuple[str, str, dict[str, Any]]


def lane_standing(model: Model) -> tuple[str, ...]:
    """The three standings of the newest lane, and its commit."""
    lane = next(reversed(model.lanes.values()))
    return tuple(lane[name] for name in ("state", "review_state", "merge_state", "result_commit"))


def new_lane(pair: Pair, path: tuple[Step, ...]) -> str:
    """Create a lane and lead it along the path."""
    quorum_id = next(iter(pair.model.quorums))
    created = pair.call("boss", "lane_create", {"quorum_id": quorum_id, "assignee_client_id": "assignee"})
    lane_id: str = created["lane_id"]
    for who, tool, facts in path:
        pair.call(who, tool, {"lane_id": lane_id, **facts})
    return lane_id


def reachable() -> int:
    """Count by hand: what was never in progress cannot be conflicted, only what is done and approved is merged."""
    commits = len(("", "one", "two"))
    never_begun = 1 + commits  # no outcome, or skipped
    begun = 1 + 2 * commits  # no outcome, skipped or conflicted
    reviews, states_once_begun, merged = 4, 4, commits - 1
    return reviews * (never_begun + states_once_begun * begun) + merged


@pytest.mark.parametrize("engine", ["embedded", pytest.param("memory", marks=pytest.mark.slow)], indirect=True)
def test_every_sequence_of_moves_of_a_lane_is_as_the_model_says(queue: Queue) -> None:
    pair = Pair(queue)
    for name, (conductor, grants) in LANE_PEOPLE.items():
        pair.operator("add_principal", name, conductor, grants)
    pair.open_quorum("p", "assignee", "member")
    new_lane(pair, ())
    tried = 0
    paths: dict[tuple[str, ...], tuple[Step, ...]] = {lane_standing(pair.model): ()}
    front = list(paths)
    while front:
        here = front.pop(0)
        lane_id = new_lane(pair, paths[here])
        for who, (tool, facts) in itertools.product(LANE_PEOPLE, LANE_MOVES):
            pair.advance(1)
            tried += 1
            if isinstance(pair.call(who, tool, {"lane_id": lane_id, **facts}), str):
                continue
            there = lane_standing(pair.model)
            if there not in paths:
                paths[there] = (*paths[here], (who, tool, facts))
                front.append(there)
            pair.call("member", "lane_list", {"limit": 3})
            lane_id = new_lane(pair, paths[here])
    assert len(paths) == reachable()
    assert tried == len(paths) * len(LANE_PEOPLE) * len(LANE_MOVES)
    pair.compare()
