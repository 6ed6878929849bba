"""The whole contract once, in the order a team would use it."""

from tests.queue import Clock, Queue


def test_a_job_is_created_claimed_and_completed(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", "p", conductor=True)
    worker = queue.principal("w", "p")
    job = conductor.job_create(kind="k", payload="{}", project="p")
    claim = worker.job_claim(lease_seconds=10)
    assert (claim.claimed, claim.job_id, claim.attempts, claim.payload) == (True, job.job_id, 1, "{}")
    assert worker.job_complete(job_id=job.job_id, outcome="completed", fence=claim.fence).state == "completed"
    assert queue.events(job.job_id) == ["job.created", "job.claimed", "job.completed"]
