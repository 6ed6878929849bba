"""Whoever presents a token calls as its principal, while it is live; whoever presents anything else is nobody.

No test measures how long a comparison takes, for there is nothing to learn from it: both sides are SHA-256 of whole
tokens. Somebody who guesses cannot choose the digest byte by byte, and a digest found in full tells nothing of the
238 random bits behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
from redis.crc import key_slot

from shampoo_queue import Client, errors, keys, scripts, tokens
from shampoo_queue.errors import Unauthenticated
from shampoo_queue.moves import Command
from shampoo_queue.ops import OpsOperations
from shampoo_queue.registry import Operator, RegistryOperations
from tests.conftest import REAL
from tests.contract.cast import MISSING, PROJECT, quorum_with, refused
from tests.faults.test_round_trips import calls as sent
from tests.queue import Clock, Queue, _one
from tests.servers import wait_until
from tests.tokens.cast import DISOWNED, SPOILED, TAKING_TOKENS, client, forged, presented, raw

on_real_servers = pytest.mark.parametrize("engine", REAL, indirect=True)


def calls(known: Client) -> list[Callable[[], Any]]:
    """Every tool, and what the library has beside them."""
    a_uuid = {"job_id": MISSING}
    tools: dict[str, dict[str, Any]] = {
        "job_claim": {},
        "job_complete": a_uuid | {"outcome": "completed"},
        "job_create": {"kind": "k", "project": PROJECT},
        "job_release": a_uuid,
        "lane_create": {"quorum_id": MISSING},
        "lane_list": {},
        "lane_merge": {"lane_id": MISSING, "outcome": "merged"},
        "lane_review": {"lane_id": MISSING, "decision": "submit"},
        "lane_set_state": {"lane_id": MISSING, "state": "done"},
    }
    beside = [lambda: known.job(MISSING), lambda: known.claim_wait(timeout=0), lambda: known.claim_many(2)]
    return [lambda tool=tool, given=given: known.call(tool, given) for tool, given in tools.items()] + beside


def nobody(queue: Queue, known: Client, caller: str = "") -> None:
    """Every call is refused as unauthenticated, and nothing is written; scripts refuse such a caller at sight."""
    before = queue.facts()
    for call in calls(known):
        with pytest.raises(Unauthenticated) as refusal:
            call()
        assert (refusal.value.code, refusal.value.message) == ("unauthenticated", Unauthenticated.words)
    for script in TAKING_TOKENS if caller else ():
        with pytest.raises(Unauthenticated):
            raw(queue, script, caller)
    assert queue.facts() == before


@pytest.mark.parametrize("spoil", SPOILED.values(), ids=SPOILED.keys())
def test_a_token_that_is_not_live_is_nobodys(queue: Queue, clock: Clock, spoil: Any) -> None:
    queue.principal("w", PROJECT)
    token = queue.shampoo.registry.issue_token("w", expires_seconds=1_000)
    known = client(queue, token)
    clock.advance(999.999)
    assert known.lane_list().count == 0
    clock.set(clock.now - 999_999)
    with spoil(queue, clock, token):
        nobody(queue, known, str(presented(token)))


@pytest.mark.parametrize("spoil", DISOWNED.values(), ids=DISOWNED.keys())
def test_a_token_whose_principal_is_gone_is_nobodys(queue: Queue, clock: Clock, spoil: Any) -> None:
    queue.principal("w", PROJECT)
    token = queue.shampoo.registry.issue_token("w")
    assert client(queue, token).lane_list().count == 0
    with spoil(queue, clock, token):
        nobody(queue, client(queue, token))
        with pytest.raises(Unauthenticated):
            raw(queue, "token_check", str(presented(token)))


def test_who_does_not_have_the_token_is_nobody(queue: Queue, clock: Clock) -> None:
    queue.principal("w", PROJECT)
    token, other = (queue.shampoo.registry.issue_token("w") for _ in range(2))
    for known in forged(token, other).values():
        nobody(queue, client(queue, known), str(known))


def test_text_that_pretends_to_be_what_a_token_becomes_is_nobodys_name(queue: Queue, clock: Clock) -> None:
    queue.principal("w", PROJECT)
    token = queue.shampoo.registry.issue_token("w")
    for name in (str(presented(token)), "\0", "\0w", f"\0{token.token_id}"):
        for call in calls(queue.shampoo.client(name)):
            with pytest.raises(Unauthenticated):
                call()
    for caller in ("\0", "\0 ", "\0w", "\0\n", "\0" * 9, f"\0{token.token_id}", f"{presented(token)} "):
        for script in TAKING_TOKENS:
            with pytest.raises(Unauthenticated):
                raw(queue, script, caller)


def test_a_token_is_good_until_the_very_millisecond_of_its_end(queue: Queue, clock: Clock) -> None:
    queue.principal("w", PROJECT)
    known = client(queue, queue.shampoo.registry.issue_token("w", expires_seconds=1))
    clock.advance(0.999)
    assert known.lane_list().count == 0
    clock.advance(0.001)
    refused(queue, "unauthenticated", known.lane_list)


def test_what_a_principal_may_do_is_read_by_every_call(queue: Queue, clock: Clock) -> None:
    registry = queue.shampoo.registry
    queue.principal("c", PROJECT, conductor=True)
    known = client(queue, registry.issue_token("c"))
    job_id = known.job_create(kind="k", project=PROJECT).job_id
    registry.set_conductor("c", False)
    refused(queue, "denied", known.job_create, kind="k", project=PROJECT)
    registry.set_conductor("c")
    registry.revoke("c", PROJECT)
    refused(queue, "denied", known.job_create, kind="k", project=PROJECT)
    assert not known.job_claim()
    registry.grant("c", PROJECT)
    assert known.job_claim().job_id == job_id
    registry.disable_principal("c")
    refused(queue, "unauthenticated", known.job_complete, job_id=job_id, outcome="completed")
    registry.enable_principal("c")
    assert known.job_complete(job_id=job_id, outcome="completed").state == "completed"


def a_day(queue: Queue, clock: Clock, c: Client, w: Client) -> list[tuple[Any, ...]]:
    """Make every move that a caller can make, and give what the history tells of it."""
    start = len(queue.shampoo.history(limit=1000))
    quorum = quorum_with(queue, "w")
    stream = c.lane_create(quorum_id=quorum, assignee_client_id="w").lane_id
    first, second = (c.job_create(kind="k", lane_id=stream, payload="x").job_id for _ in range(2))
    claim = w.job_claim(lease_seconds=10)
    w.renew(claim, lease_seconds=20)
    w.job_release(job_id=first)
    clock.advance(1)
    for found in w.claim_many(2):
        w.complete(found)
    assert w.job(second).state == "completed"
    c.lane_set_state(lane_id=stream, state="in_progress")
    w.lane_review(lane_id=stream, decision="submit")
    c.lane_review(lane_id=stream, decision="approve")
    c.lane_set_state(lane_id=stream, state="done")
    c.lane_merge(lane_id=stream, outcome="merged", result_commit="abc")
    assert c.lane_list(quorum_id=quorum).lanes[0].assignee == "w"
    names = {quorum: "Q", stream: "L", first: "1", second: "2"}
    apart = ("id", "at", "request_id", "digest", "entity_id", "fence")
    return [
        (names[event.entity_id], {name: value for name, value in event.items() if name not in apart})
        for event in queue.shampoo.history(after=start, limit=1000)
    ]


def test_a_day_with_tokens_is_the_same_day(queue: Queue, clock: Clock) -> None:
    c, w = queue.principal("c", PROJECT, conductor=True, holder="desk"), queue.principal("w", PROJECT)
    named = a_day(queue, clock, c, w)
    issue = queue.shampoo.registry.issue_token
    presenting = a_day(queue, clock, client(queue, issue("c"), "desk"), client(queue, issue("w")))
    assert presenting == named
    actors = {event["actor"] for _, event in presenting}
    assert actors == {"operator", "c", "w"}


def test_a_repeat_belongs_to_the_principal_whatever_token_it_comes_with(queue: Queue, clock: Clock) -> None:
    issue = queue.shampoo.registry.issue_token
    c = queue.principal("c", PROJECT, conductor=True)
    queue.principal("d", PROJECT, conductor=True)
    given = {"kind": "k", "project": PROJECT}
    first, second, others = (client(queue, issue(who)) for who in ("c", "c", "d"))
    answer = first.call("job_create", given, request_id="r")
    for known in (first, second, c):
        again = known.call("job_create", given, request_id="r")
        assert (again, again.meta.replayed) == (answer, True)
    assert others.call("job_create", given, request_id="r")["job_id"] != answer["job_id"]
    with pytest.raises(errors.RequestIdReused):
        second.call("job_claim", {}, request_id="r")


@pytest.mark.parametrize("engine", ["embedded", "redis7", "cluster"], indirect=True)
def test_who_waits_with_a_token_is_woken(queue: Queue) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    queue.principal("w", PROJECT)
    known = client(queue, queue.shampoo.registry.issue_token("w"))
    with ThreadPoolExecutor(1) as threads:
        found = threads.submit(known.claim_wait, timeout=30)
        wait_until(lambda: queue.command("ZCARD", queue.key("waiting", "")) == 1, "the caller waits")
        ((_, facts),) = [fact for key, fact in queue.facts().items() if ":waiter:" in key]
        assert facts["client_id"] == "w"
        (job_id,) = queue.create(conductor, project=PROJECT)
        assert found.result(20).job_id == job_id


def test_who_waits_is_refused_when_the_token_is_revoked_meanwhile(queue: Queue, clock: Clock) -> None:
    queue.principal("w", PROJECT)
    token = queue.shampoo.registry.issue_token("w")
    known = client(queue, token)
    assert not known.claim_wait(timeout=0)
    queue.shampoo.registry.revoke_token(token.token_id)
    refused(queue, "unauthenticated", known.claim_wait, timeout=5)


@on_real_servers
def test_a_call_with_a_token_is_one_evalsha_and_nothing_else(queue: Queue, clock: Clock) -> None:
    queue.principal("c", PROJECT, conductor=True)
    known = client(queue, queue.shampoo.registry.issue_token("c"))
    for script in scripts.names():
        queue.command("SCRIPT", "LOAD", scripts.script(script, queue.shampoo._wire._lua).text)
    for call in calls(known)[:9]:
        queue.command("CONFIG", "RESETSTAT")
        with suppress(*_REFUSED):
            call()
        assert sent(queue)["evalsha"] == 1
        assert not {"eval", "script|load"} & sent(queue).keys()


_REFUSED = tuple(kind for code, kind in errors.TOOL_ERRORS.items() if code != "unauthenticated")


# Operators behind a door ----------------------------------------------------------------------------------------


def test_an_operator_behind_a_door_is_bound_by_its_role_and_its_grants(queue: Queue, clock: Clock) -> None:
    registry, run = queue.shampoo.registry, queue.shampoo._wire.run
    c = queue.principal("c", PROJECT, "q", conductor=True)
    for who, grant in (("all", "*"), ("some", PROJECT), ("w", PROJECT), ("star", "*")):
        queue.principal(who, grant, conductor=who in ("all", "some"))
    theirs = {who: registry.issue_token(who, scope="ops:write") for who in ("all", "some", "w", "star")}
    ended = {project: queue.create(c, project=project)[0] for project in (PROJECT, "q")}
    for job_id in ended.values():
        queue.shampoo.ops.cancel(job_id, "enough")
    fence = (queue.shampoo.ops.job(ended[PROJECT]) or {}).get("fence", 0)
    ops = {who: OpsOperations(Operator(presented(token)), queue.profile) for who, token in theirs.items()}
    kept = {who: RegistryOperations(Operator(presented(token)), queue.profile) for who, token in theirs.items()}
    for who in ("w", "star"):
        for job_id in (*ended.values(), "none"):
            with pytest.raises(errors.Denied):
                run(ops[who].requeue(job_id))
    with pytest.raises(errors.JobNotFound):
        run(ops["some"].requeue(ended["q"]))
    with pytest.raises(errors.LeaseExpired):
        run(ops["some"].requeue(ended[PROJECT], fence=fence + 1))
    run(ops["some"].requeue(ended[PROJECT], fence=fence))
    run(ops["all"].requeue(ended["q"]))
    assert [queue.shampoo.history(job_id)[-1].actor for job_id in ended.values()] == ["some", "all"]
    for who in ("some", "star"):
        with pytest.raises(errors.UnknownToken):
            run(kept[who].revoke_token(theirs["w"].token_id))
    assert run(kept["some"].revoke_token(theirs["some"].token_id))
    assert run(kept["all"].revoke_token(theirs["w"].token_id))
    with pytest.raises(Unauthenticated):
        run(kept["some"].revoke_token(theirs["w"].token_id))
    assert [entry.live for entry in registry.tokens()] == [True, False, False, True]


# Keeping them ---------------------------------------------------------------------------------------------------


def way(queue: Queue, token_id: str) -> Any:
    """Read what leads from a token's id to its profile."""
    command = Command(("GET", keys.spell(keys.OUTSIDE, "token", token_id)), outside=True)
    return queue.shampoo._wire.run(_one(command))


def test_the_way_to_the_profile_lies_outside_of_it(queue: Queue, clock: Clock) -> None:
    queue.principal("w w", PROJECT)
    token = queue.shampoo.registry.issue_token("w w", scope="metrics")
    assert way(queue, token.token_id) == f"metrics {queue.profile} w w".encode()
    slots = [key_slot(keys.spell(where, "token", "x").encode()) for where in (queue.profile, keys.OUTSIDE)]
    assert queue.engine.name != "cluster" or slots[0] != slots[1]
    queue.shampoo.registry.revoke_token(token.token_id)
    assert way(queue, token.token_id)


def test_a_token_that_was_not_issued_leaves_no_way(queue: Queue, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    token = tokens.mint()
    monkeypatch.setattr(tokens, "mint", lambda: token)
    refused(queue, "unknown_principal", queue.shampoo.registry.issue_token, "nobody")
    assert way(queue, token[4:16]) is None


def test_rotation_lets_both_be_good_for_the_overlap(queue: Queue, clock: Clock) -> None:
    registry = queue.shampoo.registry
    queue.principal("w", PROJECT)
    old = registry.issue_token("w", scope="tools:read")
    new = registry.rotate_token(old.token_id, overlap_seconds=10, expires_seconds=60)
    assert (new.client_id, new.scope, new.expires_at) == ("w", "tools:read", "2027-01-15T08:01:00.000Z")
    first, second = client(queue, old), client(queue, new)
    clock.advance(9.999)
    assert first.lane_list().count == second.lane_list().count == 0
    clock.advance(0.001)
    refused(queue, "unauthenticated", first.lane_list)
    assert second.lane_list().count == 0
    refused(queue, "token_not_live", registry.rotate_token, old.token_id)


def test_an_overlap_lengthens_no_life(queue: Queue, clock: Clock) -> None:
    registry = queue.shampoo.registry
    queue.principal("w", PROJECT)
    old = registry.issue_token("w", expires_seconds=5)
    registry.rotate_token(old.token_id, overlap_seconds=10**9)
    assert registry.tokens()[0].expires_at == "2027-01-15T08:00:05.000Z"
    gone = registry.issue_token("w")
    registry.rotate_token(gone.token_id, overlap_seconds=0)
    refused(queue, "unauthenticated", client(queue, gone).lane_list)


def test_a_repeat_of_an_issue_issues_once(queue: Queue, clock: Clock) -> None:
    queue.principal("w", PROJECT)
    given = (
        "op",
        "h",
        "~abcdefghijkl.0.1",
        "abcdefghijkl.0",
        "d",
        "",
        "0" * 12,
        "w",
        "tools",
        "a" * 64,
        "5000",
        "",
        "0",
    )
    first = queue.move("token_issue", *given)
    before = queue.facts()
    assert queue.move("token_issue", *given) == [*first, b"replay"]
    assert queue.facts() == before


def test_the_newest_tokens_come_last_in_the_list(queue: Queue, clock: Clock) -> None:
    registry = queue.shampoo.registry
    queue.principal("w", PROJECT)
    issued = [registry.issue_token("w", scope=scope) for scope in ("tools", "metrics", "ops:read")]
    registry.revoke_token(issued[1].token_id)
    found = registry.tokens()
    assert [token.token_id for token in found] == [token.token_id for token in issued]
    assert [token.live for token in found] == [True, False, True]
    assert {token.client_id for token in found} == {"w"}


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
def test_what_no_token_can_be_is_refused(queue: Queue) -> None:
    registry = queue.shampoo.registry
    queue.principal("w", PROJECT)
    stays: list[Any] = [0, -1, 1.5, True, "1", 315_360_001, 10**30]
    overlaps: list[Any] = [-1, 1.5, True, "1"]
    token_ids: list[Any] = ["", "x", "0" * 13, "\ud800", "*", 7, None]
    for stay in stays:
        refused(queue, "invalid_argument", registry.issue_token, "w", expires_seconds=stay)
    for scope in ("", "TOOLS", "tools ops:read", "*"):
        refused(queue, "invalid_argument", registry.issue_token, "w", scope=scope)
    for overlap in overlaps:
        refused(queue, "invalid_argument", registry.rotate_token, "0" * 12, overlap_seconds=overlap)
    for token_id in token_ids:
        refused(queue, "unknown_token", registry.revoke_token, token_id)
        refused(queue, "unknown_token", registry.rotate_token, token_id)
