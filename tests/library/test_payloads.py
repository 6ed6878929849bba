"""What callers store is opaque: no text of theirs breaks a move, and all of it comes back as given."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from shampoo_queue import ToolError, contract, errors
from tests.library.flavours import MEMORY, THREE, TWO, Flavour
from tests.queue import Clock, Queue

ODD = (
    "not json",
    "",
    r'"\ud800"',
    "[" * 1001,
    '{"a":' * 200 + "1" + "}" * 200,
    "NaN",
    "[]",
    "{}",
    "9007199254740993",
    "0.1000000000000000055511151231257827",
    "\x00",
    "before\x00after\n\r\n\ttrailing\n",
    "\r",
    " spaced ",
    "\x1b[31mred\x1b[0m",
    "\ufeffwith a mark",
    "\u2028\u2029\x85",
    "héllo 队列 🧴 e\u0301",
    "'; return redis.error_reply('DENIED') --",
    "$5\r\nhello\r\n",
    "null",
    "%s %1 {0} {profile}",
)


@THREE
def test_no_payload_blocks_a_claim_and_each_comes_back_as_given(queue: Queue, clock: Clock, flavour: Flavour) -> None:
    """Field report 19: a payload is opaque, so none of these can fail, and what stands behind them is served."""
    queue.principal("c", "p", conductor=True)
    client = flavour.open(queue).client("c")
    sent = [*ODD, *(f'{{"n":{n}}}' for n in range(10))]
    made = {client.job_create(kind="k", payload=payload, project="p").job_id: payload for payload in sent}
    taken = {}
    while claim := client.job_claim():
        taken[claim.job_id] = claim.payload
        client.job_complete(job_id=claim.job_id, outcome="completed", result_ref=claim.payload[:500])
    assert taken == made
    for job_id, payload in made.items():
        assert queue.shampoo.ops.payload(job_id) == payload
        assert (queue.shampoo.ops.job(job_id) or {}).get("result_ref", "") == payload[:500]


@THREE
def test_a_repeated_claim_gives_the_same_payload_byte_for_byte(queue: Queue, clock: Clock) -> None:
    """Field report 19: a replay reads the payload itself, so it is as whole as the first answer."""
    client = queue.principal("c", "p", conductor=True)
    for payload in ODD:
        client.job_create(kind="k", payload=payload, project="p")
        first = client.job_claim(request_id="r-1" + str(hash(payload)))
        again = client.job_claim(request_id="r-1" + str(hash(payload)))
        assert (again.payload, again.job_id, again.replayed) == (payload, first.job_id, True)


@TWO
@pytest.mark.parametrize(
    "damage",
    [
        ("HDEL", "standing"),
        ("HSET", "standing", "half-way"),
        ("HSET", "project", "elsewhere"),
        ("HSET", "kind", "other"),
        ("HSET", "attempts", "many"),
        ("HSET", "attempts", "-1"),
        ("HDEL", "seq"),
        ("HSET", "seq", "nan-sense"),
        ("HSET", "fence", "x"),
        ("DEL",),
    ],
    ids=" ".join,
)
def test_a_job_edited_beyond_use_is_set_aside_and_named(
    queue: Queue, clock: Clock, damage: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    """Field report 19: a hand-damaged hash blocks nobody; the claim that met it says which one it is."""
    client = queue.principal("c", "p", conductor=True)
    poisoned, sound = queue.create(client, 2, project="p")
    key = queue.key("job", poisoned)
    before = queue.snapshot()[key][1]
    queue.command(damage[0], key, *damage[1:])
    caplog.set_level(logging.WARNING)
    claim = client.call("job_claim")
    assert (claim["job_id"], claim.meta.damaged) == (sound, (poisoned,))
    assert poisoned in caplog.text
    assert client.call("job_claim") == {"claimed": False}
    queue.command("DEL", key)
    queue.command("HSET", key, *(part for pair in before.items() for part in pair))
    assert queue.shampoo.ops.expire().put_back == 1
    assert client.job_claim().job_id == poisoned


@THREE
def test_a_claim_of_a_bare_job_has_every_key_with_the_right_value(queue: Queue, clock: Clock, flavour: Flavour) -> None:
    """Field report 20: no kind asked for, no payload, no lane, no project; a missing fact swallows no later one."""
    queue.principal("c", "", conductor=True)
    client = flavour.open(queue).client("c")
    job_id = client.job_create(kind="k").job_id
    claim = client.call("job_claim", {"lease_seconds": 1})
    assert claim == {
        "claimed": True,
        "job_id": job_id,
        "kind": "k",
        "payload": "",
        "lease_until": "2027-01-15T08:00:01.000Z",
        "attempts": 1,
    }
    assert claim.meta.fence == clock.now


@THREE
def test_a_job_without_its_attempts_counts_them_from_nought(queue: Queue, clock: Clock) -> None:
    """Field report 20: a missing counter is 0, not a crash of the script."""
    client = queue.principal("c", "p", conductor=True)
    (job_id,) = queue.create(client, project="p")
    queue.command("HDEL", queue.key("job", job_id), "attempts")
    claim = client.job_claim()
    assert (claim.job_id, claim.attempts) == (job_id, 1)
    assert client.job_complete(job_id=job_id, outcome="completed").state == "completed"


@THREE
def test_milliseconds_of_a_lease_are_kept_and_never_rounded(queue: Queue, clock: Clock) -> None:
    """Field report 20: a lease ends at the millisecond that was promised, and not one earlier or later."""
    client = queue.principal("c", "p", conductor=True)
    (job_id,) = queue.create(client, project="p")
    clock.set(1_800_000_000_987)
    claim = client.job_claim(lease_seconds=1)
    assert claim.lease_until == "2027-01-15T08:00:01.987Z"
    clock.set(1_800_000_001_986)
    assert not client.job_claim()
    clock.set(1_800_000_001_987)
    assert client.job_claim().job_id == job_id


@THREE
def test_a_lane_with_nothing_optional_shows_empty_texts_in_every_place(
    queue: Queue, clock: Clock, flavour: Flavour
) -> None:
    """Field report 20: unset facts are empty texts, and the facts after them stand where they belong."""
    queue.principal("c", "", conductor=True)
    client = flavour.open(queue).client("c")
    quorum = queue.shampoo.registry.open_quorum("")
    lane_id = client.lane_create(quorum_id=quorum).lane_id
    stamp = "2027-01-15T08:00:00.000Z"
    assert client.call("lane_list")["lanes"] == [
        {
            "lane_id": lane_id,
            "quorum_id": quorum,
            "project": "",
            "state": "open",
            "review_state": "",
            "merge_state": "",
            "assignee": "",
            "task_id": "",
            "result_commit": "",
            "created_at": stamp,
            "changed_at": stamp,
        }
    ]


@THREE
def test_a_result_ref_that_is_absent_or_empty_is_not_stored(queue: Queue, clock: Clock) -> None:
    """Field report 20: absent and empty read alike."""
    client = queue.principal("c", "p", conductor=True)
    for result_ref in (None, ""):
        queue.create(client, project="p")
        job_id = client.job_claim().job_id
        client.job_complete(job_id=job_id, outcome="failed", result_ref=result_ref)
        assert "result_ref" not in (queue.shampoo.ops.job(job_id) or {})


@TWO
def test_any_result_ref_ends_the_job_once_and_comes_back_as_given(queue: Queue, clock: Clock, flavour: Flavour) -> None:
    """Field report 35: NUL, control characters and ANSI codes in the outcome cannot keep the outcome from counting."""
    queue.principal("c", "p", conductor=True)
    client = flavour.open(queue).client("c")
    controls = ("\x00", "a\x00b\nc\r\nd\t\x1b[31m", "\x1b]0;title\x07", "\x7f\x80\x9f")
    for result_ref in (*controls, "é" * 1024, "🧴" * 512, "x" * 2048):
        job_id = client.job_create(kind="k", project="p").job_id
        client.job_claim()
        assert client.job_complete(job_id=job_id, outcome="failed", result_ref=result_ref).state == "failed"
        assert (queue.shampoo.ops.job(job_id) or {})["result_ref"] == result_ref
        assert queue.events(job_id) == ["job.created", "job.claimed", "job.failed"]
        assert client.job_complete(job_id=job_id, outcome="failed", result_ref="other").idempotent
        assert (queue.shampoo.ops.job(job_id) or {})["result_ref"] == result_ref


@TWO
def test_a_result_ref_that_cannot_be_kept_is_refused_before_anything_is_stored(queue: Queue, clock: Clock) -> None:
    """Field report 35: refused whole, with a clear sentence; the job can still be ended."""
    client = queue.principal("c", "p", conductor=True)
    (job_id,) = queue.create(client, project="p")
    client.job_claim()
    before = queue.facts()
    bad: list[Any] = ["x" * 2049, "é" * 1025, "x" * 1_048_576, "\ud800", b"\xff", 7, ["x"]]
    for result_ref in bad:
        with pytest.raises(errors.InvalidArgument, match="result_ref"):
            client.job_complete(job_id=job_id, outcome="failed", result_ref=result_ref)
    assert queue.facts() == before
    assert client.job_complete(job_id=job_id, outcome="failed", result_ref="x" * 2048).state == "failed"


@TWO
def test_a_reason_keeps_its_nul_controls_and_colours(queue: Queue, clock: Clock, flavour: Flavour) -> None:
    """Field report 35: the reason of a failure may hold anything that is text, and history reads it back."""
    client = queue.principal("c", "p", conductor=True)
    ops = flavour.open(queue).ops
    for reason in ("\x00", "a\x00b\n\x1b[31mred\x1b[0m\x07", "x" * 512, "队" * 512, " "):
        (job_id,) = queue.create(client, project="p")
        ops.cancel(job_id, reason)
        event = queue.shampoo.history(job_id)[-1]
        assert (event.event, event.reason) == ("job.failed", reason)
        assert (queue.shampoo.ops.job(job_id) or {})["reason"] == reason


@TWO
def test_a_reason_that_cannot_be_kept_is_refused_before_anything_is_stored(queue: Queue, clock: Clock) -> None:
    """Field report 35: never half stored."""
    (job_id,) = queue.create(queue.principal("c", "p", conductor=True), project="p")
    before = queue.facts()
    bad: list[Any] = ["", "x" * 513, "\ud800", None, b"x", 7]
    for reason in bad:
        with pytest.raises(errors.InvalidArgument, match="reason"):
            queue.shampoo.ops.cancel(job_id, reason)
    assert queue.facts() == before


@THREE
def test_text_that_is_not_unicode_is_refused_in_every_argument_that_is_kept(queue: Queue, clock: Clock) -> None:
    """Field report 35: a lone surrogate is refused before any write; as an id or a standing it names nothing."""
    client = queue.principal("c", "p", conductor=True)
    before = queue.facts()
    for tool in contract.TOOLS:
        for name in set(tool.arguments.model_fields) - {"limit", "lease_seconds"}:
            arguments = {**tool.example, name: "a\ud800b"}
            try:
                assert client.call(tool.name, arguments) == {"lanes": [], "count": 0}, (tool.name, name)
                code = "matches nothing"
            except ToolError as refused:
                code = refused.code
            names_nothing = name in ("job_id", "lane_id", "quorum_id", "state")
            assert code == "invalid_argument" or names_nothing, (tool.name, name, code)
    assert queue.facts() == before


@MEMORY
def test_a_payload_that_is_no_text_is_refused_before_anything_is_stored(queue: Queue) -> None:
    """Field report 37: bytes that are not UTF-8, and whatever else is no text, never come near a key."""
    client = queue.principal("c", "p", conductor=True)
    before = queue.facts()
    bad: list[Any] = [b"x", b"\xff\xfe", 7, 1.5, True, {"a": 1}, ["a"], bytearray(b"x")]
    for payload in bad:
        with pytest.raises(errors.InvalidArgument, match="payload must be"):
            client.job_create(kind="k", payload=payload, project="p")
    assert queue.facts() == before
