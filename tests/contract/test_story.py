"""The whole contract once, in the order a team would use it, blocking and on asyncio."""

from __future__ import annotations

import asyncio
import gc
import warnings
from typing import Any

from shampoo_queue import AsyncShampoo
from tests.contract.cast import refused
from tests.queue import Clock, Queue


def test_a_job_is_created_claimed_and_completed(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", "p", conductor=True)
    worker = queue.principal("w", "p")
    job = conductor.job_create(kind="k", payload="{}", project="p")
    claim = worker.job_claim(lease_seconds=10)
    assert (claim.claimed, claim.job_id, claim.attempts, claim.payload) == (True, job.job_id, 1, "{}")
    assert worker.job_complete(job_id=job.job_id, outcome="completed", fence=claim.fence).state == "completed"
    assert queue.events(job.job_id) == ["job.created", "job.claimed", "job.completed"]


def test_agreed_work_runs_through_a_lane_to_its_merge(queue: Queue, clock: Clock) -> None:
    conductor, worker = queue.principal("c", "shared-ops", conductor=True), queue.principal("w", "shared-ops")
    quorum_id = queue.shampoo.registry.open_quorum("shared-ops", ["w"])
    stream = conductor.lane_create(quorum_id=quorum_id, assignee_client_id="w", branch="feat-x", repo="r").lane_id
    conductor.lane_set_state(lane_id=stream, state="in_progress")
    job_id = conductor.job_create(kind="build", lane_id=stream, payload='{"step": 1}').job_id

    lost = worker.job_claim(lease_seconds=30)
    clock.advance(30)
    refused(queue, "lease_expired", worker.job_complete, job_id=job_id, outcome="completed", fence=lost.fence)
    again = worker.job_claim(lease_seconds=30)
    assert (again.job_id, again.attempts) == (job_id, 2)
    worker.job_release(job_id=job_id, fence=again.fence)
    third = worker.job_claim()
    worker.job_complete(job_id=job_id, outcome="completed", result_ref="verdict:1", fence=third.fence)
    assert conductor.lane_list(state="in_progress").lanes[0].review_state == ""

    worker.lane_review(lane_id=stream, decision="submit")
    conductor.lane_review(lane_id=stream, decision="request-changes")
    worker.lane_review(lane_id=stream, decision="submit")
    conductor.lane_review(lane_id=stream, decision="approve")
    refused(queue, "lane_not_mergeable", conductor.lane_merge, lane_id=stream, outcome="merged", result_commit="abc")
    conductor.lane_set_state(lane_id=stream, state="done")
    conductor.lane_merge(lane_id=stream, outcome="merged", result_commit="abc")

    (entry,) = worker.lane_list(quorum_id=quorum_id).lanes
    assert (entry.state, entry.review_state, entry.merge_state, entry.result_commit) == (
        "done",
        "approved",
        "merged",
        "abc",
    )
    assert queue.events(job_id)[1:] == [
        "job.claimed",
        "job.reclaimed",
        "job.claimed",
        "job.released",
        "job.claimed",
        "job.completed",
    ]
    assert queue.events(stream) == [
        "lane.created",
        "lane.state_changed",
        *["lane.reviewed"] * 4,
        "lane.state_changed",
        "lane.merged",
    ]


def test_the_same_story_on_asyncio_gives_the_same_answers(queue: Queue, clock: Clock) -> None:
    queue.principal("c", "p", conductor=True)
    quorum_id = queue.shampoo.registry.open_quorum("p")

    async def story() -> list[dict[str, Any]]:
        async with AsyncShampoo.connect(queue.engine.url, profile=queue.profile, operator="operator") as opened:
            opened._wire._lua = queue.shampoo._wire._lua
            c = opened.client("c", holder="h")
            stream = (await c.lane_create(quorum_id=quorum_id)).lane_id
            job_id = (await c.job_create(kind="k", lane_id=stream)).job_id
            won = await c.job_claim(lease_seconds=60)
            assert (won.job_id, won.fence) == (job_id, clock.now)
            return [
                await c.call("job_release", {"job_id": job_id}, fence=won.fence),
                await c.call("job_claim", {"kind": "other"}),
                await c.call("lane_set_state", {"lane_id": stream, "state": "in_progress"}),
                await c.call("lane_review", {"lane_id": stream, "decision": "submit"}),
                await c.call("lane_merge", {"lane_id": stream, "outcome": "conflicted"}),
                await c.call("job_complete", {"job_id": (await c.job_claim()).job_id, "outcome": "failed"}),
                await c.call("lane_list"),
            ]

    told = asyncio.run(story())
    client = queue.shampoo.client("c")
    assert told[-1] == client.call("lane_list")
    assert told[1] == {"claimed": False}
    assert [next(value for name, value in answer.items() if "state" in name) for answer in (told[0], *told[2:6])] == [
        "queued",
        "in_progress",
        "pending",
        "conflicted",
        "failed",
    ]
    repeated = client.call("job_complete", {"job_id": told[0]["job_id"], "outcome": "failed"})
    assert repeated == told[5] | {"idempotent": True}


def test_an_asyncio_queue_that_was_closed_leaves_nothing_open(queue: Queue) -> None:
    async def once() -> None:
        async with AsyncShampoo.connect(queue.engine.url, profile=queue.profile) as opened:
            assert await opened.registry.principals() == []

    gc.collect()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        asyncio.run(once())
        gc.collect()
    assert [str(warning.message) for warning in found if issubclass(warning.category, ResourceWarning)] == []
