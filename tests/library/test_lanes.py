"""Lanes under many hands: one legal move wins, what was answered is what is stored, and links hold nothing back."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from shampoo_queue import AsyncShampoo, Client, ToolError, errors, replay
from tests.library.flavours import REAL, THREE
from tests.queue import Clock, Queue

CALLERS = 50


class Hands:
    """Many threads that call at the same moment."""

    def __init__(self, count: int) -> None:
        self._pool = ThreadPoolExecutor(count)
        self._count = count

    def __enter__(self) -> Hands:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    def race(self, call: Callable[[int], Any]) -> list[str]:
        """Let every hand call once, all together; give each one's answer, or the code of its refusal."""
        barrier = threading.Barrier(self._count)

        def one(number: int) -> str:
            barrier.wait(10)
            try:
                return f"won {call(number)}"
            except ToolError as refused:
                return refused.code

        return list(self._pool.map(one, range(self._count)))


def new_lane(queue: Queue, conductor: Client, **facts: Any) -> str:
    return conductor.lane_create(quorum_id=queue.shampoo.registry.open_quorum("p"), **facts).lane_id


def shown(client: Client, lane_id: str) -> tuple[str, str, str, str]:
    (lane,) = (lane for lane in client.lane_list(limit=100).lanes if lane.lane_id == lane_id)
    return lane.state, lane.review_state, lane.merge_state, lane.result_commit


@REAL
def test_of_fifty_callers_who_move_a_lane_at_once_exactly_one_wins(queue: Queue) -> None:
    """Field report 46: the others hear that the move is illegal, there is one event, and others read what was won."""
    conductor = queue.principal("c", "p", conductor=True)
    elsewhere = queue.connect()
    lane_id = new_lane(queue, conductor)
    targets = ("done", "failed", "cancelled")
    with Hands(CALLERS) as hands:
        first = hands.race(lambda n: conductor.lane_set_state(lane_id=lane_id, state="in_progress").state)
        assert shown(elsewhere.client("c"), lane_id)[0] == "in_progress"
        second = hands.race(lambda n: conductor.lane_set_state(lane_id=lane_id, state=targets[n % 3]).state)
        final = shown(elsewhere.client("c"), lane_id)[0]
        third = hands.race(lambda n: conductor.lane_set_state(lane_id=lane_id, state=targets[n % 3]).state)
    assert Counter(first) == {"won in_progress": 1, "illegal_lane_transition": CALLERS - 1}
    assert Counter(second) == {f"won {final}": 1, "illegal_lane_transition": CALLERS - 1}
    assert Counter(third) == {"illegal_lane_transition": CALLERS}
    events = queue.shampoo.history(lane_id)
    assert [event["to"] for event in events] == ["open", "in_progress", final]
    assert shown(elsewhere.client("c"), lane_id)[0] == final
    elsewhere.close()


@REAL
def test_of_fifty_asyncio_callers_who_move_a_lane_at_once_exactly_one_wins(queue: Queue) -> None:
    """Field report 46: the same race on one event loop."""
    conductor = queue.principal("c", "p", conductor=True)
    lane_id = new_lane(queue, conductor)

    async def race() -> Counter[str]:
        async with AsyncShampoo.connect(queue.engine.url, profile=queue.profile) as shampoo:
            client = shampoo.client("c")
            calls = (client.lane_set_state(lane_id=lane_id, state="in_progress") for _ in range(CALLERS))
            answers = await asyncio.gather(*calls, return_exceptions=True)
        return Counter(type(answer).__name__ for answer in answers)

    assert asyncio.run(race()) == {"LaneSetStateResult": 1, "IllegalLaneTransition": CALLERS - 1}
    assert queue.events(lane_id) == ["lane.created", "lane.state_changed"]


@REAL
def test_of_fifty_verdicts_at_once_exactly_one_counts(queue: Queue) -> None:
    """Field report 46: approve and request-changes race; review and execution do not disturb each other."""
    conductor = queue.principal("c", "p", conductor=True)
    lane_id = new_lane(queue, conductor)
    decisions = ("approve", "request-changes", "submit")
    with Hands(CALLERS) as hands:
        submitted = hands.race(lambda n: conductor.lane_review(lane_id=lane_id, decision="submit").review_state)
        assert Counter(submitted) == {"won pending": 1, "review_closed": CALLERS - 1}
        judged = hands.race(lambda n: conductor.lane_review(lane_id=lane_id, decision=decisions[n % 2]).review_state)
    final = shown(conductor, lane_id)[1]
    assert Counter(judged) == {f"won {final}": 1, "nothing_under_review": CALLERS - 1}
    assert shown(conductor, lane_id)[0] == "open"
    assert queue.events(lane_id) == ["lane.created", "lane.reviewed", "lane.reviewed"]


@REAL
def test_a_lane_is_merged_only_while_it_is_done_approved_and_has_a_commit(queue: Queue) -> None:
    """Field report 46: while state and review change, an accepted merge stands on what held at that very moment."""
    conductor = queue.principal("c", "p", conductor=True)
    assignee = queue.principal("w", "p")
    merged = 0
    with Hands(9) as hands:
        for _ in range(12):
            quorum = queue.shampoo.registry.open_quorum("p", ["w"])
            lane_id = conductor.lane_create(quorum_id=quorum, assignee_client_id="w").lane_id
            conductor.lane_set_state(lane_id=lane_id, state="in_progress")
            assignee.lane_review(lane_id=lane_id, decision="submit")
            answers = hands.race(lambda n, lane_id=lane_id: one_of_many_moves(conductor, assignee, lane_id, n))  # type: ignore[misc]
            events = queue.shampoo.history(lane_id)
            merges = [n for n, event in enumerate(events) if event["event"] == "lane.merged"]
            for n in merges:
                standing = replay(events[:n])[lane_id]
                assert (standing["state"], standing["review_state"]) == ("done", "approved")
            assert len(events) == 3 + sum(answer.startswith("won") for answer in answers)
            assert len(merges) <= 1
            assert (shown(conductor, lane_id)[2:] == ("merged", "abc")) == bool(merges)
            merged += len(merges)
        assert merged < 12 * 9


def one_of_many_moves(conductor: Client, assignee: Client, lane_id: str, n: int) -> str:
    if n == 0:
        return conductor.lane_set_state(lane_id=lane_id, state="done").state
    if n == 1:
        return conductor.lane_review(lane_id=lane_id, decision="approve").review_state
    if n == 2:
        return assignee.lane_review(lane_id=lane_id, decision="submit").review_state
    return conductor.lane_merge(lane_id=lane_id, outcome="merged", result_commit="abc").merge_state


@THREE
def test_a_merge_outcome_moves_no_other_standing_and_keeps_a_recorded_commit(queue: Queue, clock: Clock) -> None:
    """Field report 46: conflicted and skipped may be superseded; merged is final and needs its commit each time."""
    conductor = queue.principal("c", "p", conductor=True)
    lane_id = new_lane(queue, conductor)

    def merge(outcome: str, commit: str | None = None) -> tuple[str, str, str, str]:
        conductor.lane_merge(lane_id=lane_id, outcome=outcome, result_commit=commit)
        return shown(conductor, lane_id)

    assert merge("skipped") == ("open", "", "skipped", "")
    conductor.lane_set_state(lane_id=lane_id, state="in_progress")
    assert merge("conflicted", "one") == ("in_progress", "", "conflicted", "one")
    conductor.lane_review(lane_id=lane_id, decision="submit")
    conductor.lane_review(lane_id=lane_id, decision="approve")
    conductor.lane_set_state(lane_id=lane_id, state="done")
    assert merge("conflicted") == ("done", "approved", "conflicted", "one")
    before = queue.facts()
    for outcome, commit in (("merged", None), ("merged", ""), ("skipped", "two")):
        with pytest.raises(errors.LaneNotMergeable):
            merge(outcome, commit)
    assert queue.facts() == before
    assert merge("merged", "two") == ("done", "approved", "merged", "two")
    for outcome in ("merged", "conflicted", "skipped"):
        with pytest.raises(errors.LaneNotMergeable):
            merge(outcome, "three")
    assert shown(conductor, lane_id) == ("done", "approved", "merged", "two")


@THREE
def test_a_project_filter_never_answers_from_another_project(queue: Queue, clock: Clock) -> None:
    """Field report 46: narrowed by project, quorum or state, a listing holds exactly the lanes that match."""
    conductor = queue.principal("c", "p", "q", "", conductor=True)
    quorums = {project: queue.shampoo.registry.open_quorum(project) for project in ("p", "q", "")}
    lanes = {project: conductor.lane_create(quorum_id=quorum).lane_id for project, quorum in quorums.items()}
    conductor.lane_set_state(lane_id=lanes["q"], state="cancelled")
    for project, lane_id in lanes.items():
        assert [lane.lane_id for lane in conductor.lane_list(project=project).lanes] == [lane_id]
        assert [lane.lane_id for lane in conductor.lane_list(quorum_id=quorums[project]).lanes] == [lane_id]
    assert [lane.lane_id for lane in conductor.lane_list(state="cancelled").lanes] == [lanes["q"]]
    assert conductor.lane_list(project="p", quorum_id=quorums["q"]).count == 0
    assert conductor.lane_list(project="q", state="open").count == 0
    assert conductor.lane_list(state="closed").count == conductor.lane_list(project="x" * 10_000).count == 0


@THREE
def test_a_dependency_is_a_lane_of_the_same_quorum_or_nothing_is_created(queue: Queue, clock: Clock) -> None:
    """Field report 47: missing, foreign, hidden and malformed targets read alike, and leave nothing behind."""
    conductor = queue.principal("c", "p", "q", conductor=True)
    queue.principal("other", "hidden", conductor=True)
    quorum = queue.shampoo.registry.open_quorum("p")
    foreign = conductor.lane_create(quorum_id=queue.shampoo.registry.open_quorum("q")).lane_id
    twin = conductor.lane_create(quorum_id=queue.shampoo.registry.open_quorum("p")).lane_id
    hidden = queue.shampoo.client("other").lane_create(quorum_id=queue.shampoo.registry.open_quorum("hidden")).lane_id
    before = queue.facts()
    messages = set()
    for target in (foreign, twin, hidden, "00000000-0000-4000-8000-000000000000", "x", quorum, "*", foreign.upper()):
        with pytest.raises(errors.DependencyNotInQuorum) as refused:
            conductor.lane_create(quorum_id=quorum, depends_on=target)
        messages.add(str(refused.value))
    for bad in ([twin], {"lane_id": twin}, 7, "", "x" * 129):
        with pytest.raises(errors.InvalidArgument, match="depends_on"):
            conductor.call("lane_create", {"quorum_id": quorum, "depends_on": bad})
    assert messages == {"depends_on must name a lane of the same quorum"}
    assert queue.facts() == before


@THREE
def test_a_lane_can_depend_on_none_that_comes_after_it(queue: Queue, clock: Clock) -> None:
    """Field report 47: a link is fixed at creation and its target must exist by then, so there are no cycles."""
    conductor = queue.principal("c", "p", conductor=True)
    quorum = queue.shampoo.registry.open_quorum("p")
    made: list[str] = []
    for _ in range(5):
        made.append(conductor.lane_create(quorum_id=quorum, depends_on=made[-1] if made else None).lane_id)
    links = {lane_id: (queue.shampoo.ops.lane(lane_id) or {}).get("depends_on", "") for lane_id in made}
    assert list(links.values()) == ["", *made[:-1]]
    for tool in ("lane_set_state", "lane_review", "lane_merge"):
        with pytest.raises(errors.InvalidArgument, match="takes no argument 'depends_on'"):
            conductor.call(tool, {"lane_id": made[0], "depends_on": made[-1]})


@REAL
def test_a_hundred_lanes_on_one_dependency_are_created_side_by_side(queue: Queue) -> None:
    """Field report 47: parallel creation gives each lane whole, in one order of creation that all agree on."""
    conductor = queue.principal("c", "p", conductor=True)
    quorum = queue.shampoo.registry.open_quorum("p")
    root = conductor.lane_create(quorum_id=quorum).lane_id
    with ThreadPoolExecutor(10) as pool:
        made = list(pool.map(lambda _: conductor.lane_create(quorum_id=quorum, depends_on=root).lane_id, range(100)))
    assert len(set(made)) == 100
    assert {(queue.shampoo.ops.lane(lane_id) or {})["depends_on"] for lane_id in made} == {root}
    created = [event["entity_id"] for event in queue.shampoo.history(limit=1000) if event["event"] == "lane.created"]
    assert [lane.lane_id for lane in conductor.lane_list(limit=100).lanes] == created[::-1][:100]


@THREE
@pytest.mark.parametrize("ending", ["failed", "cancelled"])
def test_a_dependency_that_failed_holds_back_no_move_of_its_dependent(queue: Queue, clock: Clock, ending: str) -> None:
    """Field report 47: links are checked when they are made and never again; the documented effect is none."""
    conductor = queue.principal("c", "p", conductor=True)
    quorum = queue.shampoo.registry.open_quorum("p")
    first = conductor.lane_create(quorum_id=quorum).lane_id
    second = conductor.lane_create(quorum_id=quorum, depends_on=first).lane_id
    for state in ("in_progress", ending):
        conductor.lane_set_state(lane_id=first, state=state)
    third = conductor.lane_create(quorum_id=quorum, depends_on=first).lane_id
    for lane_id in (second, third):
        conductor.lane_set_state(lane_id=lane_id, state="in_progress")
        conductor.lane_review(lane_id=lane_id, decision="submit")
        conductor.lane_review(lane_id=lane_id, decision="approve")
        conductor.lane_set_state(lane_id=lane_id, state="done")
        conductor.lane_merge(lane_id=lane_id, outcome="merged", result_commit="abc")
        assert shown(conductor, lane_id) == ("done", "approved", "merged", "abc")
    assert shown(conductor, first)[0] == ending
