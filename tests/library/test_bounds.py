"""What is kept has a size: arguments are capped before the server sees them, and remembered answers are few."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from shampoo_queue import Client, errors
from shampoo_queue.contract import limit
from shampoo_queue.tools import slot_of
from tests.library.flavours import MEMORY, REDIS7, THREE, Flavour
from tests.queue import Clock, Queue

MIB = 1_048_576

LIMITS = [
    ("job_create", "kind", 64),
    ("job_claim", "kind", 64),
    ("job_create", "project", 128),
    ("job_create", "lane_id", 128),
    ("lane_create", "depends_on", 128),
    ("lane_create", "task_id", 128),
    ("lane_create", "assignee_client_id", 128),
    ("lane_create", "repo", 512),
    ("lane_create", "branch", 512),
    ("lane_create", "base_ref", 512),
    ("lane_create", "worktree", 512),
    ("lane_merge", "result_commit", 128),
]


@MEMORY
@pytest.mark.parametrize(("tool", "name", "most"), LIMITS, ids=lambda value: str(value))
@pytest.mark.parametrize("letter", ["x", "é", "🧴"])
def test_a_name_is_measured_in_characters_and_one_too_many_is_refused(
    queue: Queue, tool: str, name: str, most: int, letter: str
) -> None:
    """Field report 32: overlong names are refused; those of exactly the limit get past the check of arguments."""
    client = queue.principal("c", "p", conductor=True)
    arguments: dict[str, Any] = {
        "job_create": {"kind": "k", "project": "p"},
        "job_claim": {},
        "lane_create": {"quorum_id": "q"},
        "lane_merge": {"lane_id": "l", "outcome": "merged"},
    }[tool]
    before = queue.facts()
    for length in (most + 1, MIB):
        with pytest.raises(errors.InvalidArgument, match=f"{name} is longer than {most}"):
            client.call(tool, {**arguments, name: letter * length})
    assert queue.facts() == before
    with suppress(errors.LaneNotFound, errors.Denied, errors.UnknownLane):
        client.call(tool, {**arguments, name: letter * most})


@REDIS7
def test_what_is_too_large_is_refused_before_the_server_sees_a_byte(queue: Queue, flavour: Flavour) -> None:
    """Field report 32: a payload of a byte too many, of 16 MiB or of 600 MiB never travels."""
    queue.principal("c", "p", conductor=True)
    client = flavour.open(queue).client("c")
    client.job_claim()
    seen = received(queue)
    for payload in ("x" * (MIB + 1), "é" * (MIB // 2 + 1), "🧴" * (MIB // 4 + 1), "x" * (16 * MIB), "x" * (600 * MIB)):
        with pytest.raises(errors.InvalidArgument, match="payload is l"):
            client.job_create(kind="k", payload=payload, project="p")
    with pytest.raises(errors.InvalidArgument, match="kind is longer"):
        client.job_create(kind="k" * MIB, project="p")
    with pytest.raises(errors.InvalidArgument, match="result_ref is l"):
        client.job_complete(job_id="x", outcome="failed", result_ref="x" * MIB)
    assert received(queue) - seen < 1_000


def received(queue: Queue) -> int:
    """How many bytes the server has been sent."""
    lines = queue.command("INFO", "stats").decode().split()
    return int(dict(line.split(":") for line in lines if ":" in line)["total_net_input_bytes"])


@THREE
def test_a_payload_of_exactly_a_mebibyte_is_carried(queue: Queue, clock: Clock, flavour: Flavour) -> None:
    """Field report 32: the documented cap itself is allowed, and is counted in UTF-8 bytes."""
    queue.principal("c", "p", conductor=True)
    client = flavour.open(queue).client("c")
    for payload in ("x" * MIB, "é" * (MIB // 2), "🧴" * (MIB // 4), "\x00" * MIB):
        job_id = client.job_create(kind="k", payload=payload, project="p").job_id
        claim = client.job_claim()
        assert claim.job_id == job_id
        assert claim.payload == payload


@REDIS7
def test_no_listing_and_no_move_but_a_claim_reads_a_payload(queue: Queue, flavour: Flavour) -> None:
    """Field report 32: listing, completing, history and an operator's look move no payload over the wire."""
    conductor = queue.principal("c", "p", conductor=True)
    quorum = queue.shampoo.registry.open_quorum("p")
    lane_id = conductor.lane_create(quorum_id=quorum).lane_id
    for _ in range(3):
        conductor.job_create(kind="k", lane_id=lane_id, payload="x" * MIB)
    shampoo = flavour.open(queue)
    client = shampoo.client("c")
    claim = client.job_claim()
    sent = replied(queue)
    client.lane_list()
    client.job_complete(job_id=claim.job_id, outcome="completed")
    shampoo.history()
    shampoo.history(claim.job_id)
    shampoo.ops.job(claim.job_id)
    shampoo.ops.lane(lane_id)
    shampoo.ops.expire()
    shampoo.registry.principals()
    assert replied(queue) - sent < 50_000
    assert len(client.job_claim().payload) == MIB
    assert replied(queue) - sent > MIB


def replied(queue: Queue) -> int:
    """How many bytes the server has sent."""
    lines = queue.command("INFO", "stats").decode().split()
    return int(dict(line.split(":") for line in lines if ":" in line)["total_net_output_bytes"])


@THREE
def test_a_page_of_lanes_is_clamped_to_a_hundred(queue: Queue, clock: Clock) -> None:
    """Field report 32: whatever limit is asked for, a page has 1 to 100 lanes, and 50 when none is."""
    conductor = queue.principal("c", "p", conductor=True)
    quorum = queue.shampoo.registry.open_quorum("p")
    made = [conductor.lane_create(quorum_id=quorum).lane_id for _ in range(103)]
    sizes = {None: 50, 0: 1, -5: 1, -(10**30): 1, 7: 7, 100: 100, 101: 100, 10**30: 100}
    for asked, size in sizes.items():
        listed = conductor.lane_list(limit=asked)
        assert [lane.lane_id for lane in listed.lanes] == made[::-1][:size]
        assert listed.count == size


def replay_keys(queue: Queue) -> list[str]:
    return [key for key in queue.facts() if key.startswith(queue.key("replay", "").rstrip(":"))]


@pytest.mark.parametrize("calls", [4_000, pytest.param(20_000, marks=pytest.mark.slow)])
@REDIS7
def test_thousands_of_calls_of_one_client_leave_one_remembered_answer(queue: Queue, calls: int) -> None:
    """Field report 32: what is remembered is bounded by the calls in flight, not by the calls made."""
    conductor = queue.principal("c", "p", conductor=True)
    lane_id = conductor.lane_create(quorum_id=queue.shampoo.registry.open_quorum("p")).lane_id
    for _ in range(calls // 2):
        conductor.lane_review(lane_id=lane_id, decision="submit")
        conductor.lane_review(lane_id=lane_id, decision="request-changes")
    mine = [key for key in replay_keys(queue) if key.endswith(":c")]
    assert len(mine) == 1
    assert 0 < int(queue.command("PTTL", mine[0])) <= limit("replay_library")


@THREE
def test_calls_that_are_refused_in_between_leave_no_more_remembered_answers(queue: Queue, flavour: Flavour) -> None:
    """Field report 32: a refused call gives its place back to the next one."""
    conductor = queue.principal("c", "p", conductor=True)
    lane_id = conductor.lane_create(quorum_id=queue.shampoo.registry.open_quorum("p")).lane_id
    client = flavour.open(queue).client("c")
    before = len(replay_keys(queue))
    for _ in range(50):
        client.lane_review(lane_id=lane_id, decision="submit")
        with pytest.raises(errors.ReviewClosed):
            client.lane_review(lane_id=lane_id, decision="submit")
        client.lane_review(lane_id=lane_id, decision="request-changes")
    assert len(replay_keys(queue)) - before == 1


@THREE
def test_operators_moves_that_are_refused_in_between_leave_no_more_remembered_answers(queue: Queue) -> None:
    """Field report 32: an operator's refused move gives its place back too."""
    (job_id,) = queue.create(queue.principal("c", "p", conductor=True), project="p")
    queue.shampoo.ops.cancel(job_id, "once")
    before = len(replay_keys(queue))
    for _ in range(20):
        queue.shampoo.ops.requeue(job_id)
        with pytest.raises(errors.JobNotRequeueable):
            queue.shampoo.ops.requeue(job_id)
        queue.shampoo.ops.cancel(job_id, "again")
    assert len(replay_keys(queue)) == before


@THREE
def test_empty_claims_and_reads_leave_nothing_behind(queue: Queue, clock: Clock) -> None:
    """Field report 32: idle polling writes no key at all."""
    worker = queue.principal("w", "p")
    before = queue.facts()
    for n in range(100):
        worker.job_claim()
        worker.job_claim(request_id=f"poll-{n}")
        worker.lane_list()
    assert queue.facts() == before


def on_one_shelf() -> Iterator[str]:
    """Request ids that the server remembers in one and the same place."""
    shelf = slot_of("first")
    return (name for name in map("id-{}".format, range(10**9)) if slot_of(name) == shelf)


@THREE
def test_ids_of_callers_are_bounded_on_their_shelf(queue: Queue, clock: Clock, flavour: Flavour) -> None:
    """Field report 32: a shelf keeps its newest answers; the oldest is forgotten first, and the call acts anew."""
    queue.principal("c", "p", conductor=True)
    client = flavour.open(queue).client("c")
    most = limit("replay_shelf")
    ids = [name for name, _ in zip(on_one_shelf(), range(most + 3), strict=False)]
    made = [create(client, name) for name in ids]
    (key,) = (key for key in replay_keys(queue) if "ids-" in key)
    assert len(queue.facts()[key][1].splitlines()) == most
    assert [create(client, name) for name in ids[3:]] == made[3:]
    assert create(client, ids[0]) not in made
    assert len(queue.facts()[key][1].splitlines()) == most


def create(client: Client, request_id: str) -> str:
    return client.job_create(kind="k", project="p", request_id=request_id).job_id


@THREE
def test_an_id_of_a_caller_is_forgotten_after_its_time(queue: Queue, clock: Clock, flavour: Flavour) -> None:
    """Field report 32: remembered until the last millisecond of the window, and by itself gone after it."""
    queue.principal("c", "p", conductor=True)
    client = flavour.open(queue).client("c")
    first = create(client, "r-1")
    window = limit("replay_caller")
    assert window == 600_000
    clock.advance(window / 1000 - 0.001)
    assert create(client, "r-1") == first
    clock.advance(0.001)
    second = create(client, "r-1")
    assert second != first
    (key,) = (key for key in replay_keys(queue) if "ids-" in key)
    assert 0 < int(queue.command("PTTL", key)) <= window
    assert queue.facts()[key][1].count("\n") == 1


@THREE
def test_a_shelf_in_use_drops_what_is_past_its_time(queue: Queue, clock: Clock) -> None:
    """Field report 32: a shelf that is written again and again does not keep old ids alive."""
    client = queue.principal("c", "p", conductor=True)
    for name, _ in zip(on_one_shelf(), range(20), strict=False):
        create(client, name)
        clock.advance(200)
    (key,) = (key for key in replay_keys(queue) if "ids-" in key)
    assert queue.facts()[key][1].count("\n") == 3


@MEMORY
def test_the_ids_of_two_principals_never_meet(queue: Queue, clock: Clock) -> None:
    """Field report 32: an id belongs to the principal that chose it."""
    one = queue.principal("one", "p", conductor=True)
    two = queue.principal("two", "p", conductor=True)
    assert create(one, "r-1") != create(two, "r-1")
    assert create(one, "r-1") == create(one, "r-1")


@MEMORY
def test_remembered_answers_hold_no_payload(queue: Queue, clock: Clock) -> None:
    """Field report 32: only ids and small answers are remembered."""
    client = queue.principal("c", "p", conductor=True)
    client.job_create(kind="k", payload="x" * MIB, project="p", request_id="r-1")
    assert client.job_claim(request_id="r-2").payload == "x" * MIB
    client.job_complete(job_id=client.job_claim(request_id="r-2").job_id, outcome="failed", result_ref="x" * 2_048)
    assert all(len(queue.facts()[key][1]) < 200 for key in replay_keys(queue))


@THREE
def test_a_thousand_grants_are_the_most_a_principal_holds(queue: Queue, clock: Clock) -> None:
    """Field report 32: a claim's cost is bounded by the grants, so those have a bound of their own."""
    worker = queue.principal("w", *(f"p{n}" for n in range(1_000)))
    with pytest.raises(errors.LimitReached):
        queue.shampoo.registry.grant("w", "one more")
    with pytest.raises(errors.InvalidArgument):
        queue.shampoo.registry.add_principal("v", grants=[f"p{n}" for n in range(1_001)])
    conductor = queue.principal("c", "p999", conductor=True)
    (job_id,) = queue.create(conductor, project="p999")
    assert worker.job_claim().job_id == job_id
