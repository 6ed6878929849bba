"""``job_get``, a move of the library: how one job stands, told to whoever covers its project."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from shampoo_queue.errors import Internal
from shampoo_queue.tools import iso
from tests.contract.cast import MISSING, PROJECT, cast, everybody, face, lane, odd_ids, outcome, raw, refused
from tests.queue import Clock, Queue


def test_a_job_is_followed_from_its_creation_to_its_end(queue: Queue, clock: Clock) -> None:
    conductor, worker = queue.principal("c", PROJECT, conductor=True), queue.principal("w", PROJECT)
    start = clock.now
    job_id = conductor.job_create(kind="k", project=PROJECT, payload="x", delay_seconds=2).job_id
    told = conductor.job(job_id)
    assert told.model_dump() == {
        "job_id": job_id,
        "kind": "k",
        "project": PROJECT,
        "lane_id": "",
        "state": "queued",
        "attempts": 0,
        "result_ref": "",
        "reason": "",
        "created_at": iso(start),
        "changed_at": iso(start),
        "due_at": iso(start + 2_000),
    }
    assert not told.ended
    clock.advance(2)
    claim = worker.job_claim()
    told = conductor.job(job_id)
    assert (told.state, told.attempts, told.due_at, told.changed_at) == ("claimed", 1, "", iso(clock.now))
    clock.advance(1)
    worker.fail(claim, reason="no disk", result_ref="log:1")
    told = conductor.job(job_id)
    assert (told.state, told.reason, told.result_ref, told.ended) == ("failed", "no disk", "log:1", True)
    assert (told.created_at, told.changed_at) == (iso(start), iso(start + 3_000))
    queue.shampoo.ops.requeue(job_id)
    told = conductor.job(job_id)
    assert (told.state, told.attempts, told.reason, told.result_ref, told.ended) == ("queued", 0, "", "", False)
    worker.complete(worker.job_claim(), result_ref="log:2")
    told = conductor.job(job_id)
    assert (told.state, told.result_ref, told.reason, told.ended) == ("completed", "log:2", "", True)


def test_a_job_of_a_lane_names_it(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    lane_id = lane(queue, conductor)
    told = conductor.job(conductor.job_create(kind="k", lane_id=lane_id).job_id)
    assert (told.lane_id, told.project) == (lane_id, PROJECT)


def test_looking_writes_nothing(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    (job_id,) = queue.create(conductor, project=PROJECT)
    before = raw(queue)
    conductor.job(job_id)
    assert raw(queue) == before


def test_every_role_gets_its_answer(queue: Queue, clock: Clock) -> None:
    callers = cast(queue)
    (job_id,) = queue.create(callers["conductor"], project=PROJECT)
    answers = {role: outcome(caller.job, job_id) for role, caller in callers.items()}
    assert answers == everybody("done", outsider="job_not_found", bare_conductor="job_not_found")


def test_missing_malformed_and_foreign_jobs_are_told_apart_by_nobody(queue: Queue, clock: Clock) -> None:
    conductor, outsider = queue.principal("c", PROJECT, conductor=True), queue.principal("o", "q")
    (job_id,) = queue.create(conductor, project=PROJECT)
    names = [job_id, MISSING, *odd_ids(job_id)]
    assert len({face(refused(queue, "job_not_found", outsider.job, name)) for name in names}) == 1
    for name in names[1:]:
        refused(queue, "job_not_found", conductor.job, name)
    odd: list[Any] = [5, None, [job_id]]
    for name in odd:
        refused(queue, "job_not_found", conductor.job, name)


def test_a_revoked_grant_hides_the_job_from_the_next_call(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    (job_id,) = queue.create(conductor, project=PROJECT)
    conductor.job(job_id)
    queue.shampoo.registry.revoke("c", PROJECT)
    refused(queue, "job_not_found", conductor.job, job_id)


def test_a_hash_edited_beyond_reading_shows_what_can_be_read(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    (job_id,) = queue.create(conductor, project=PROJECT)
    key = queue.key("job", job_id)
    for field, value in (("attempts", "many"), ("created_at", "once"), ("due_at", "-5")):
        before = queue.command("HGET", key, field)
        queue.command("HSET", key, field, value)
        told = conductor.job(job_id)
        assert (told.kind, getattr(told, field)) == ("k", 0 if field == "attempts" else "")
        queue.command("HSET", key, field, before) if before else queue.command("HDEL", key, field)


def test_a_standing_that_there_is_not_is_a_defect_by_name(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    (job_id,) = queue.create(conductor, project=PROJECT)
    queue.command("HSET", queue.key("job", job_id), "standing", "asleep")
    with pytest.raises(Internal, match="edited beyond use"):
        conductor.job(job_id)
    queue.command("HSET", queue.key("job", job_id), "standing", "queued")


def test_a_producer_waits_for_the_end_of_its_job(queue: Queue) -> None:
    conductor, worker = queue.principal("c", PROJECT, conductor=True), queue.principal("w", PROJECT)
    (job_id,) = queue.create(conductor, project=PROJECT)
    claim = worker.job_claim()
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(conductor.wait, job_id, timeout=10)
        worker.complete(claim, result_ref="r")
        told = waiting.result(5)
    assert (told.state, told.result_ref) == ("completed", "r")
    assert conductor.wait(job_id, timeout=0).ended
    assert conductor.wait(job_id).ended


def test_who_waits_too_short_is_told_so_and_when(queue: Queue) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    (job_id,) = queue.create(conductor, project=PROJECT)
    begun = time.monotonic()
    with pytest.raises(TimeoutError):
        conductor.wait(job_id, timeout=0.2)
    assert 0.2 <= time.monotonic() - begun < 2
    refused(queue, "job_not_found", conductor.wait, MISSING, timeout=0)
    wrong: list[Any] = ["5", True, float("nan")]
    for timeout in wrong:
        refused(queue, "invalid_argument", conductor.wait, job_id, timeout=timeout)
