"""The audit of the raw keys, on which every other test leans: it must see, and name, whatever is planted."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest

from shampoo_queue.keys import BY_NAME, KEYS
from tests import audit
from tests.contract.cast import PROJECT, lane, quorum_with
from tests.queue import Clock, Queue

on_two_engines = pytest.mark.parametrize("engine", ["memory", "embedded"], indirect=True)
on_one_engine = pytest.mark.parametrize("engine", ["memory"], indirect=True)

# A claim sets a job aside here only when its hash was edited, so that a sound profile has no such key.
FAMILIES = [key.name for key in KEYS if key.name != "damaged"]
SINGLE = {key.name for key in KEYS if not key.parts}

STRAY = {"hash": {"a": "b"}, "zset": [("a", 9e12)], "stream": [("1-1", ["a", "b"])], "string": "a", "list": ["a"]}

# What expires by itself; of some of it, nothing else tells that it was there.
PASSING = ("replay", "waiting", "waiter", "wake", "watched")
MAY_BE_GONE = ("replay", "wake", "watched")
# Nothing else tells until when an idle caller is awaited back, or a job watched; it only says how long it is kept.
UNTOLD_SCORES = ("waiting", "watched")

# Words by which a sentence may name what is wrong, where it is not the family or the entity.
WORDS = {"profile": ("counter",), "history": ("event", "digest"), "payload": ("digest",), "replay": ("replay",)}

Key = tuple[str, str]
Content = Any


def rich(queue: Queue, clock: Clock) -> None:
    """Fill a profile so that every family of keys has something to lose."""
    registry = queue.shampoo.registry
    conductor = queue.principal("c", "", PROJECT, "a:b", "idle", conductor=True)
    worker = queue.principal("w", PROJECT, "*")
    queue.principal("i", "idle")
    queue.principal("gone", PROJECT)
    registry.disable_principal("gone")
    rotated, revoked = (registry.issue_token("w", scope=scope, expires_seconds=9) for scope in ("tools", "metrics"))
    registry.rotate_token(rotated.token_id, overlap_seconds=5)
    registry.revoke_token(revoked.token_id)
    quorum_id, closed = quorum_with(queue, "w", "c"), quorum_with(queue, "w", project="a:b")
    registry.add_task("t")
    registry.add_task("ended")
    stream = lane(queue, conductor, quorum_id=quorum_id, assignee_client_id="w", task_id="t", branch="b")
    lane(queue, conductor, quorum_id=quorum_id, state="done", review="approved", depends_on=stream, repo="r")
    conductor.lane_merge(lane_id=lane(queue, conductor, quorum_id=closed), outcome="skipped", result_commit="abc")
    registry.close_task("ended")
    registry.close_quorum(closed)
    for kind in ("spent", "lapsing"):
        queue.create(conductor, kind=kind, project=PROJECT, payload=kind)
        for _ in range(5):
            clock.advance(10)
            spent = worker.job_claim(kind=kind, lease_seconds=10)
    worker.job_release(job_id=spent.job_id)
    clock.advance(10)
    for project in (PROJECT, "a:b", ""):
        queue.create(conductor, 3, project=project, payload="x")
        queue.create(conductor, kind="other:%", project=project, lane_id=stream if project == PROJECT else None)
    worker.job_claim(kind="k", lease_seconds=300, request_id="r")
    for ended in ("completed", "failed"):
        job_id = worker.job_claim(kind="k").job_id
        worker.job_complete(job_id=job_id, outcome=ended, result_ref="ref")
    worker.job_release(job_id=worker.job_claim(kind="k", lease_seconds=60).job_id)
    queue.shampoo.ops.cancel(conductor.job_create(kind="k", project=PROJECT).job_id, "enough")
    for kind, most in (("k", 9), ("other:%", 3), ("k", 10), ("lifted", 1), ("lifted", None)):
        queue.shampoo.ops.limit_kind(kind, most)
    # Last, for it passes.
    conductor.job_create(kind="k", project="idle", delay_seconds=7)
    for waiter, *kinds in (("first", "k", "x:y"), ("second", "k"), ("third", ""), ("gone", "")):
        queue.move("job_wait", "i", "h", "", "", "", "", waiter, "30000", *kinds)
    queue.move("job_wait", "i", "h", "", "", "", "", "gone", "-1")


def split(queue: Queue, key: str) -> Key:
    """Give a key's family and the rest of its name."""
    family, _, rest = key.removeprefix(queue.key("profile").removesuffix("profile")).partition(":")
    return family, rest


def of_family(queue: Queue, family: str) -> list[tuple[str, Content]]:
    return [(key, content) for key, (_, content) in sorted(queue.facts().items()) if split(queue, key)[0] == family]


def named(problems: list[str], family: str, rest: str) -> bool:
    """Tell whether a sentence names the family, the entity, or what stands for it."""
    words = {family, *WORDS.get(family, ()), *(part for part in (rest, *rest.split(":")) if part)}
    return any(word in sentence for sentence in problems for word in words)


def write(queue: Queue, key: str, content: Content, ttl: int | None = None) -> None:
    """Write a key anew."""
    queue.command("DEL", key)
    if isinstance(content, dict):
        queue.command("HSET", key, *(part for pair in content.items() for part in pair))
    elif isinstance(content, str):
        queue.command("SET", key, content)
    elif isinstance(content[0], str):
        queue.command("RPUSH", key, *content)
    elif isinstance(content[0][1], list):
        for number, fields in content:
            queue.command("XADD", key, number, *fields)
    else:
        queue.command("ZADD", key, *(part for member, score in content for part in (f"{score:.0f}", member)))
    if ttl:
        queue.command("PEXPIRE", key, ttl)


def plants(family: str, content: Content) -> Iterator[tuple[str, Content]]:
    """Give faulty contents of one key: something stray, something changed, something missing."""
    if BY_NAME[family].type == "hash":
        name = "seq" if family == "profile" else next(iter(content))
        yield "stray", content | {"stray": "1"}
        yield "changed", content | {name: content[name] + "7"}
    elif BY_NAME[family].type == "zset":
        (member, score), *rest = content
        yield "stray", [*content, ("stray", score)]
        if family not in UNTOLD_SCORES:
            yield "changed", [(member, score + 1), *rest]
        yield "renamed", [(member[:-1], score), *rest]
        if rest and family not in MAY_BE_GONE:
            yield "missing", rest
    elif BY_NAME[family].type == "stream":
        number, fields = content[-1]
        yield "missing", content[:-1]
        yield "changed", [*content[:-1], (number, [*fields[:3], "nobody", *fields[4:]])]
        yield "stray", [*content, (f"{int(number.partition('-')[0]) + 1}-0", fields)]
    elif BY_NAME[family].type == "list":
        yield "stray", [*content, "2"]
        yield "changed", ["0"]
    else:
        yield "changed", content[:-1] + "x y" * (family == "replay")


@on_two_engines
def test_a_rich_profile_is_sound_and_has_every_family(queue: Queue, clock: Clock) -> None:
    rich(queue, clock)
    assert {split(queue, key)[0] for key in queue.facts()} == {*FAMILIES, "test-clock"}
    assert queue.problems() == []


@on_two_engines
@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_planted_in_a_family_is_named(queue: Queue, clock: Clock, family: str) -> None:
    rich(queue, clock)
    missed = []
    ttl = 500_000 if family in PASSING else None
    for key, content in of_family(queue, family)[:1]:
        for what, faulty in plants(family, content):
            write(queue, key, faulty, ttl)
            missed += [] if sees(queue, key) else [f"{what} in {key}"]
            write(queue, key, content, ttl)
        another_type = {"a": "b"} if BY_NAME[family].type == "string" else "text"
        for what, put in (("deleted", None), ("of another type", another_type), ("a list", ["x"])):
            queue.command("DEL", key)
            if put:
                write(queue, key, put, ttl)
            gone = what == "deleted" and family in MAY_BE_GONE  # by itself, which is no fault
            missed += [] if gone or sees(queue, key) else [f"{what}: {key}"]
            write(queue, key, content, ttl)
        queue.command("PERSIST", key) if family in PASSING else queue.command("PEXPIRE", key, 500_000)
        missed += [] if sees(queue, key) else [f"time to live: {key}"]
        write(queue, key, content, ttl)
    stray = queue.key(family, *("stray" for _ in BY_NAME[family].parts)) + (":more" if family in SINGLE else "")
    write(queue, stray, STRAY[BY_NAME[family].type], ttl)
    missed += [] if sees(queue, stray) else [f"stray: {stray}"]
    queue.command("DEL", stray)
    assert missed == []


def sees(queue: Queue, key: str) -> bool:
    """Tell whether the audit names a key; one that breaks down names nothing."""
    try:
        return named(queue.problems(), *split(queue, key))
    except Exception:
        return False


@on_two_engines
def test_a_key_outside_the_table_is_named(queue: Queue, clock: Clock) -> None:
    for name in ("jobs", "job", "lock:x", "", "JOB:x"):
        key = queue.key("profile").removesuffix("profile") + name
        queue.command("SET", key, "x")
        found = queue.problems()
        queue.command("DEL", key)
        assert [sentence for sentence in found if repr(key) in sentence and "outside the table" in sentence]


@on_two_engines
def test_a_job_set_aside_is_named(queue: Queue, clock: Clock) -> None:
    rich(queue, clock)
    job_id = split(queue, of_family(queue, "job")[0][0])[1]
    write(queue, queue.key("damaged"), [(job_id, 1.0)])
    found = queue.problems()
    queue.command("DEL", queue.key("damaged"))
    assert named(found, "damaged", job_id)
    assert queue.problems() == []


# What no other key tells, so that a change of it cannot be seen.
TOLD_NOWHERE_ELSE = {
    ("job", "result_ref"),
    ("lane", "result_commit"),
    ("token", "expires_at"),
    ("waiter", "holder"),
    ("waiter", "watches"),
}
LEGAL = {
    "standing": ("queued", "claimed", "completed", "failed", "live", "disabled", "open", "closed", "revoked"),
    "conductor": ("0", "1"),
    "state": ("open", "in_progress", "done", "failed", "cancelled"),
    "review_state": ("", "pending", "approved", "changes_requested"),
    "merge_state": ("", "merged", "conflicted", "skipped"),
}


def other_values(name: str, value: str) -> set[str]:
    """Give values that a field could hold and does not."""
    found = {"", value + "x", "other", *LEGAL.get(name, ())}
    if value.isdigit():
        found |= {str(int(value) + 1), str(int(value) - 1), "x"}
    return found - {value}


@on_one_engine
@pytest.mark.parametrize("family", [key.name for key in KEYS if key.type == "hash"])
def test_every_field_of_every_hash_is_held_against_something(queue: Queue, clock: Clock, family: str) -> None:
    rich(queue, clock)
    snapshot, missed = queue.snapshot(), set()
    for key, content in of_family(queue, family):
        for name, value in content.items():
            changed = [content | {name: other} for other in other_values(name, value)]
            if value:  # an empty field and none are the same
                changed.append({field: kept for field, kept in content.items() if field != name})
            for faulty in changed:
                if (family, name) not in TOLD_NOWHERE_ELSE and not seen(queue, snapshot, key, faulty):
                    missed.add(f"{name.partition(':')[0]}: {value!r} as {faulty.get(name)!r}")
    assert not missed, sorted(missed)


@on_one_engine
@pytest.mark.parametrize("family", [key.name for key in KEYS if key.type == "zset" and key.name != "damaged"])
def test_every_member_of_every_index_is_held_against_something(queue: Queue, clock: Clock, family: str) -> None:
    rich(queue, clock)
    snapshot, missed = queue.snapshot(), set()
    for key, content in of_family(queue, family):
        for n, (member, score) in enumerate(content):
            rest = content[:n] + content[n + 1 :]
            moved = [] if family in UNTOLD_SCORES else [[(member, score + by), *rest] for by in (1, -1)]
            missing = [] if family in MAY_BE_GONE else [rest]
            for faulty in (*moved, [(member + "x", score), *rest], *missing):
                if not seen(queue, snapshot, key, sorted(faulty, key=lambda pair: (pair[1], pair[0]))):
                    missed.add(f"{key}: {member} at {score} as {set(faulty) - set(content)}")
    assert not missed, sorted(missed)


@on_one_engine
def test_every_fact_of_an_event_is_held_against_something(queue: Queue, clock: Clock) -> None:
    rich(queue, clock)
    snapshot, missed = queue.snapshot(), set()
    ((key, content),) = of_family(queue, "history")
    for n, (number, fields) in enumerate(content):
        for place in range(0, len(fields), 2):
            name, value = fields[place : place + 2]
            if name in ("holder", "request_id", "actor", "reason", "at"):
                continue  # told for people; what an entity keeps of them is seen by the fields of its hash
            for other in {value + "x"} if value else {"7"}:
                faulty = [*fields[: place + 1], other, *fields[place + 2 :]]
                if not seen(queue, snapshot, key, [*content[:n], (number, faulty), *content[n + 1 :]]):
                    missed.add(f"{fields[1]}.{name}")
    assert not missed, sorted(missed)


def seen(queue: Queue, snapshot: audit.Snapshot, key: str, faulty: Content) -> bool:
    """Tell whether the audit names a key whose content is another one."""
    kind, _, ttl = snapshot[key]
    planted = copy.copy(snapshot)
    planted[key] = (kind, faulty, ttl)
    if not faulty:
        del planted[key]
    try:
        found = audit.problems(queue.profile, planted)
    except Exception:
        return False
    return named(found, *split(queue, key))
