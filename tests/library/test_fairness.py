"""Who is served next, and that work which is due is found by a claim alone."""

from __future__ import annotations

from pathlib import Path

from shampoo_queue import Client
from tests.library.flavours import REDIS7, THREE, Flavour
from tests.queue import Clock, Engine, Queue
from tests.servers import Server


def claimed(client: Client, clock: Clock, kind: str | None = None) -> str:
    """Claim one job a millisecond later, and give its id."""
    clock.advance(0.001)
    return client.job_claim(kind=kind, lease_seconds=3600).job_id


@THREE
def test_jobs_that_are_given_back_at_once_do_not_hold_up_those_behind_them(queue: Queue, clock: Clock) -> None:
    """Field report 10: retried entries keep no place at the head, and end at five attempts."""
    client = queue.principal("c", "p", conductor=True)
    bad = queue.create(client, 20, project="p")
    good = queue.create(client, 200, project="p")
    taken: list[str] = []
    while job_id := claimed(client, clock):
        taken.append(job_id)
        if job_id in bad:
            client.job_release(job_id=job_id)
        else:
            client.job_complete(job_id=job_id, outcome="completed")
    assert taken == bad + good + bad * 4
    assert {(queue.shampoo.ops.job(job_id) or {})["attempts"] for job_id in bad} == {5}


@THREE
def test_a_claim_for_one_kind_passes_over_whatever_stands_before_it(queue: Queue, clock: Clock) -> None:
    """Field report 10: a hundred jobs of one kind do not hide five of another."""
    client = queue.principal("c", "p", conductor=True)
    first = queue.create(client, 100, kind="a", project="p")
    wanted = queue.create(client, 5, kind="b", project="p")
    assert [claimed(client, clock, "b") for _ in range(6)] == [*wanted, ""]
    assert [claimed(client, clock) for _ in range(3)] == first[:3]


@REDIS7
def test_the_cost_of_a_claim_does_not_grow_with_the_backlog_of_other_kinds(queue: Queue, clock: Clock) -> None:
    """Field report 10: a claim runs the same commands before ten jobs of another kind and before a thousand."""
    client = queue.principal("c", "p", conductor=True)
    costs = []
    for more in (10, 990):
        queue.create(client, more, kind="a", project="p")
        queue.create(client, 2, kind="b", project="p")
        claimed(client, clock, "b")
        before = commands(queue)
        claimed(client, clock, "b")
        costs.append({name: calls - before.get(name, 0) for name, calls in commands(queue).items()})
    assert costs[0] == costs[1]
    assert costs[0]["evalsha"] == 1
    assert costs[0].get("scan", 0) == 0


def commands(queue: Queue) -> dict[str, int]:
    """How often the server has run each command, those of its scripts included."""
    text = queue.command("INFO", "commandstats").decode()
    lines = [line.removeprefix("cmdstat_").split(":calls=") for line in text.split() if line.startswith("cmdstat_")]
    return {name: int(rest.partition(",")[0]) for name, rest in lines if name != "info"}


@THREE
def test_a_small_project_is_served_in_turn_with_a_large_one(queue: Queue, clock: Clock) -> None:
    """Field report 10: projects take turns, however different their backlogs are."""
    client = queue.principal("c", "large", "small", conductor=True)
    large = queue.create(client, 50, project="large")
    small = queue.create(client, 5, project="small")
    taken = [claimed(client, clock) for _ in range(12)]
    assert taken[:10] == [job_id for pair in zip(large, small, strict=False) for job_id in pair]
    assert taken[10:] == large[5:7]


@THREE
def test_jobs_of_the_same_instant_come_out_in_the_order_of_their_creation(queue: Queue, clock: Clock) -> None:
    """Field report 10: equal age is decided by creation, over all kinds of a project."""
    client = queue.principal("c", "p", conductor=True)
    made = [queue.create(client, kind=kind, project="p")[0] for kind in "zaqbzcmaab"]
    assert [client.job_claim().job_id for _ in made] == made


@THREE
def test_lapsed_work_is_found_by_a_claim_alone(queue: Queue, clock: Clock, flavour: Flavour) -> None:
    """Field report 11: an idle queue with one lapsed lease needs no other event to hand the job out again."""
    worker = queue.principal("w", "p")
    (job_id,) = queue.create(queue.principal("c", "p", conductor=True), project="p")
    held = worker.job_claim(lease_seconds=2)
    other = flavour.open(queue).client("w", holder="another process")
    clock.advance(1.999)
    assert not other.job_claim()
    clock.advance(0.001)
    claim = other.job_claim()
    assert (claim.job_id, claim.attempts) == (job_id, 2)
    assert claim.fence > (held.fence or 0)
    assert queue.events(job_id)[-2:] == ["job.reclaimed", "job.claimed"]


def test_lapsed_work_is_found_by_a_claim_alone_after_a_restart_of_the_server(own: Queue, server: Server) -> None:
    """Field report 11: a lease that lapses while the server is down, or just after, is due like any other."""
    clock = own.stop_clock()
    worker = own.principal("w", "p")
    jobs = own.create(own.principal("c", "p", conductor=True), 2, project="p")
    for seconds in (2, 10):
        worker.job_claim(lease_seconds=seconds)
    server.restart()
    clock.advance(2)
    assert (worker.job_claim(lease_seconds=60).job_id, worker.job_claim().job_id) == (jobs[0], "")
    clock.advance(8)
    late = worker.job_claim()
    assert (late.job_id, late.attempts) == (jobs[1], 2)


def test_lapsed_work_is_found_by_a_claim_alone_after_a_restart_of_the_embedded_server(tmp_path: Path) -> None:
    """Field report 11: closing the last user ends the embedded server; the next one finds what is due."""
    engine = Engine("embedded", f"embedded://{tmp_path}/queue", lambda: None)
    first = Queue(engine)
    clock = first.stop_clock()
    (job_id,) = first.create(first.principal("c", "p", conductor=True), project="p")
    first.shampoo.client("c").job_claim(lease_seconds=1)
    clock.advance(1)
    first.shampoo.close()
    first.shampoo = first.connect()
    claim = first.shampoo.client("c").job_claim()
    assert (claim.job_id, claim.attempts) == (job_id, 2)
    assert first.problems() == []
    first.shampoo.close()
