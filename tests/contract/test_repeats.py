"""What is remembered of a call, of whom, and for how long; each tool's own repeat stands in that tool's file."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from shampoo_queue import Client, ToolError
from shampoo_queue.contract import TOOLS, limit
from shampoo_queue.tools import slot_of
from tests.contract.cast import MISSING, PROJECT, lane, quorum_with, refused
from tests.queue import Clock, Queue

CREATE: dict[str, Any] = {"kind": "k", "project": PROJECT}


def created(client: Client, request_id: str) -> tuple[str, bool]:
    """Create a job under a request id; give its id and whether the answer was a repeat."""
    answer = client.call("job_create", CREATE, request_id=request_id)
    return answer["job_id"], answer.meta.replayed


@cache
def one_shelf(count: int) -> tuple[str, ...]:
    """Find request ids that are remembered on one shelf."""
    shelf, found, number = slot_of("r0"), ["r0"], 0
    while len(found) < count:
        number += 1
        if slot_of(f"r{number}") == shelf:
            found.append(f"r{number}")
    return tuple(found)


def test_a_callers_id_is_remembered_for_ten_minutes(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    job_id, _ = created(conductor, "r")
    clock.advance(599.999)
    assert created(conductor, "r") == (job_id, True)
    clock.advance(0.001)
    other, replayed = created(conductor, "r")
    assert (other != job_id, replayed) == (True, False)
    assert created(conductor, "r") == (other, True)


def test_an_id_of_the_librarys_form_is_remembered_for_a_minute(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    job_id, _ = created(conductor, "~abcdefghij-_.0.1")
    clock.advance(59.999)
    assert created(conductor, "~abcdefghij-_.0.1") == (job_id, True)
    clock.advance(0.001)
    assert created(conductor, "~abcdefghij-_.0.1")[1] is False


def test_what_is_remembered_leaves_the_server_by_itself(queue: Queue) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    created(conductor, "r")
    created(conductor, "~abcdefghijkl.0.1")
    kept = {key: ttl for key, (_, _, ttl) in queue.snapshot().items() if ":replay:" in key and key.endswith(":c")}
    windows = {key.split(":")[3][:4]: ttl for key, ttl in kept.items()}
    assert set(windows) == {"ids-", "abcd"}
    assert 590_000 < windows["ids-"] <= 600_000
    assert 50_000 < windows["abcd"] <= 60_000


def test_the_librarys_own_id_can_be_repeated(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    first = conductor.job_create(**CREATE)
    assert first.request_id is not None
    assert first.request_id.startswith("~")
    assert created(conductor, first.request_id) == (first.job_id, True)
    assert conductor.job_create(**CREATE).job_id != first.job_id


def test_a_slot_keeps_its_newest_call_and_knows_an_older_one_as_late(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    slot, other = "~abcdefghijkl.4.", "~abcdefghijkl.5."
    created(conductor, slot + "9")
    elsewhere, _ = created(conductor, other + "10")
    newest, _ = created(conductor, slot + "11")
    for late in ("9", "10", "1"):
        refused(queue, "request_id_reused", conductor.call, "job_create", CREATE, request_id=slot + late)
    refused(queue, "request_id_reused", conductor.call, "job_create", CREATE | {"kind": "l"}, request_id=slot + "11")
    assert created(conductor, slot + "11") == (newest, True)
    assert created(conductor, other + "10") == (elsewhere, True)


def test_another_principals_same_id_is_its_own(queue: Queue, clock: Clock) -> None:
    clients = [queue.principal(name, PROJECT, conductor=True) for name in ("c", "d")]
    for request_id in ("r", "~abcdefghijkl.0.1"):
        ids = [created(client, request_id) for client in clients]
        assert [replayed for _, replayed in ids] == [False, False]
        assert ids[0] != ids[1]
        assert [created(client, request_id) for client in clients] == [(job_id, True) for job_id, _ in ids]


def test_another_profiles_same_id_is_its_own(queue: Queue, engine: Any) -> None:
    conductor, other = queue.principal("c", PROJECT, conductor=True), Queue(engine)
    try:
        job_id, _ = created(conductor, "r")
        assert created(other.principal("c", PROJECT, conductor=True), "r") != (job_id, True)
    finally:
        other.close()


def test_an_id_is_taken_to_the_letter(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    ids = [
        "r",
        "R",
        "r.1",
        "%72",
        "r:",
        "{r}",
        "~r",
        "~abcdefghijkl.0.x",
        "*",
        "r" * 128,
        "!\"#$&'()+,-/;<=>?@[\\]^_`|}",
    ]
    jobs = [created(conductor, request_id) for request_id in ids]
    assert not any(replayed for _, replayed in jobs)
    assert [created(conductor, request_id) for request_id in ids] == [(job_id, True) for job_id, _ in jobs]


def test_a_shelf_holds_a_bounded_number_of_answers(queue: Queue, clock: Clock) -> None:
    conductor, most = queue.principal("c", PROJECT, conductor=True), limit("replay_shelf")
    ids = one_shelf(most + 1)
    jobs = [created(conductor, request_id) for request_id in ids]
    assert [created(conductor, request_id) for request_id in ids[1:]] == [(job_id, True) for job_id, _ in jobs[1:]]
    assert created(conductor, ids[0])[1] is False


def test_a_shelf_drops_what_is_forgotten_first(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    old, new, newer = one_shelf(3)
    created(conductor, old)
    clock.advance(599)
    job_id, _ = created(conductor, new)
    clock.advance(1)
    created(conductor, newer)
    assert created(conductor, new) == (job_id, True)
    assert old + " " not in queue.facts()[queue.key("replay", slot_of(new), "c")][1]


def test_no_payload_is_kept_with_an_answer(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    conductor.job_create(**CREATE, payload="secret" * 100, request_id="r")
    conductor.job_claim(request_id="s")
    kept = [content for key, (_, content) in queue.facts().items() if ":replay:" in key]
    assert all(len(content) < 200 and "secret" not in content for content in kept)
    assert conductor.job_claim(request_id="s").payload == "secret" * 100


def test_an_id_is_looked_up_after_the_caller_and_before_the_entry(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    created(conductor, "r")
    queue.shampoo.registry.set_conductor("c", False)
    refused(queue, "request_id_reused", conductor.job_release, job_id=MISSING, request_id="r")
    refused(queue, "request_id_reused", conductor.lane_set_state, lane_id=MISSING, state="done", request_id="r")
    refused(queue, "invalid_argument", conductor.lane_review, lane_id=MISSING, decision="?", request_id="r")
    queue.shampoo.registry.disable_principal("c")
    refused(queue, "unauthenticated", conductor.job_release, job_id=MISSING, request_id="r")


@pytest.mark.parametrize("tool", [tool for tool in TOOLS if tool.writes], ids=lambda tool: tool.name)
def test_every_writing_tool_refuses_an_id_that_is_taken(queue: Queue, tool: Any) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    arguments = {
        "job_claim": {},
        "job_complete": {"job_id": MISSING, "outcome": "failed"},
        "job_create": CREATE,
        "job_release": {"job_id": MISSING},
        "lane_create": {"quorum_id": quorum_with(queue)},
        "lane_merge": {"lane_id": MISSING, "outcome": "skipped"},
        "lane_review": {"lane_id": MISSING, "decision": "submit"},
        "lane_set_state": {"lane_id": MISSING, "state": "open"},
    }
    conductor.call("lane_set_state", {"lane_id": lane(queue, conductor), "state": "cancelled"}, request_id="r")
    refused(queue, "request_id_reused", conductor.call, tool.name, arguments[tool.name], request_id="r")


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
def test_a_request_id_is_1_to_128_visible_characters(queue: Queue) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    for request_id in ("", "r" * 129, "a b", "a\n", "\x7f", "\xe9", "\U0001f600", "\ud800", 7, b"r", ["r"], True):
        refused(queue, "invalid_argument", conductor.call, "job_create", CREATE, request_id=request_id)  # type: ignore[arg-type]
    assert created(conductor, "!" + "~" * 127)[1] is False


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
def test_a_fence_is_a_whole_number_and_a_holder_a_short_text(queue: Queue) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    call = {"job_id": queue.create(conductor, project=PROJECT)[0]}
    for fence in ("1", 1.0, True, "", [1], b"1"):
        refused(queue, "invalid_argument", conductor.call, "job_release", call, fence=fence)  # type: ignore[arg-type]
    for holder in ("h" * 129, "\ud800", 7, b"h"):
        refused(queue, "invalid_argument", conductor.call, "job_release", call, holder=holder)  # type: ignore[arg-type]
    conductor.call("job_claim", holder="\U0001f600" * 128)
    assert queue.shampoo.history(call["job_id"])[-1].holder == "\U0001f600" * 128


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
def test_every_refusal_names_its_call(queue: Queue) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    calls: list[tuple[str, dict[str, Any]]] = [
        ("job_release", {"job_id": MISSING}),
        ("job_release", {"job_id": 7}),
        ("job_complete", {}),
        ("no such tool", {}),
    ]
    for tool, arguments in calls:
        with pytest.raises(ToolError) as caught:
            conductor.call(tool, arguments, request_id="r")
        assert caught.value.request_id == "r"
