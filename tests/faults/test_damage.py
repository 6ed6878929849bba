"""Keys are lost or edited by hand; whatever is left stays visible to a claim or to the repair, and blocks nobody."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from shampoo_queue import Client, Shampoo
from shampoo_queue.errors import Internal, LeaseExpired
from tests.conftest import REAL
from tests.faults.cases import Stage
from tests.faults.conftest import Open, Start
from tests.queue import Clock, Queue

every_engine = pytest.mark.parametrize("engine", REAL, indirect=True)


@pytest.fixture
def stage(queue: Queue, clock: Clock) -> Stage:
    stage = Stage(queue)
    queue.principal("s", "*")
    return stage


def member(stage: Stage, job_id: str) -> str:
    """How a job is written in the index of its project and kind."""
    seq = stage.queue.command("HGET", stage.queue.key("job", job_id), "seq")
    return f"{int(seq):012d}:{job_id}"


# A lease without its record -------------------------------------------------------------------------------------


@every_engine
def test_a_claim_whose_index_entry_is_lost_is_repaired_and_claimed_again(stage: Stage, clock: Clock) -> None:
    """Field report 5: expire puts the entry back where the job's own lease says; the claim itself is untouched."""
    stage.queued()
    stage.queue.shampoo.ops.cancel(stage.other, "out of the way")
    claim = stage.worker.job_claim(lease_seconds=10)
    stage.queue.command("ZREM", stage.queue.key("ready", "p", "k"), member(stage, stage.job))
    found = stage.queue.shampoo.ops.expire()
    assert (found.put_back, found.lapsed, found.damaged) == (1, 0, ())
    assert not stage.worker.job_claim()
    clock.advance(10)
    assert stage.queue.shampoo.ops.expire().lapsed == 1
    again = stage.worker.job_claim()
    assert (again.job_id, again.attempts) == (claim.job_id, 2)


@every_engine
def test_a_claim_whose_lease_is_lost_lapses_when_its_index_says(stage: Stage, clock: Clock) -> None:
    """Field report 5: the owner must claim again, and nobody else before the lease that was promised is over."""
    stage.queued()
    stage.queue.shampoo.ops.cancel(stage.other, "out of the way")
    stage.worker.job_claim(lease_seconds=10)
    stage.queue.command("HDEL", stage.queue.key("job", stage.job), "lease_until")
    with pytest.raises(LeaseExpired):
        stage.worker.job_complete(job_id=stage.job, outcome="completed")
    assert not stage.worker.job_claim()
    clock.advance(10)
    assert stage.worker.job_claim().attempts == 2


@every_engine
def test_a_claim_that_lost_both_records_of_its_lease_is_found_by_expire(stage: Stage) -> None:
    """Field report 5: without any record the lease counts as over."""
    stage.queued()
    stage.queue.shampoo.ops.cancel(stage.other, "out of the way")
    stage.worker.job_claim(lease_seconds=10)
    stage.queue.command("HDEL", stage.queue.key("job", stage.job), "lease_until")
    stage.queue.command("ZREM", stage.queue.key("ready", "p", "k"), member(stage, stage.job))
    # It stands where it is claimable, and no longer counts as running.
    assert stage.queue.shampoo.ops.expire().put_back == 2
    assert stage.queue.shampoo.ops.expire().put_back == 0
    assert stage.worker.job_claim().attempts == 2


INDEXES = [("ready", "p", "k"), ("kinds", "p"), ("projects",), ("projects_of", "k")]
CLAIMS: dict[str, Callable[[Queue], tuple[Client, str | None]]] = {
    "a worker, any kind": lambda queue: (queue.shampoo.client("w"), None),
    "a worker, one kind": lambda queue: (queue.shampoo.client("w"), "k"),
    "a star, any kind": lambda queue: (queue.shampoo.client("s"), None),
    "a star, one kind": lambda queue: (queue.shampoo.client("s"), "k"),
}


@every_engine
@pytest.mark.parametrize("who", CLAIMS)
@pytest.mark.parametrize("lost", INDEXES, ids="-".join)
def test_jobs_whose_index_is_lost_can_be_claimed_after_the_repair(
    lost: tuple[str, ...], who: str, stage: Stage, clock: Clock
) -> None:
    """Field report 5: whichever index key is lost, whoever asks, nothing is invisible to both claim and repair."""
    stage.queued()
    assert stage.queue.command("DEL", stage.queue.key(*lost))
    stage.queue.shampoo.ops.expire()
    client, kind = CLAIMS[who](stage.queue)
    assert [client.job_claim(kind=kind).job_id for _ in range(2)] == [stage.job, stage.other]


@every_engine
def test_an_exhausted_job_whose_index_is_lost_is_found_and_requeued(stage: Stage, clock: Clock) -> None:
    """Field report 5: the repair counts it, and an operator can queue it again."""
    stage.queued()
    stage.queue.shampoo.ops.cancel(stage.other, "out of the way")
    for _ in range(5):
        assert stage.worker.job_claim(lease_seconds=10)
        clock.advance(10)
    assert stage.queue.command("DEL", stage.queue.key("spent"))
    found = stage.queue.shampoo.ops.expire()
    assert (found.exhausted, found.put_back) == (1, 1)
    stage.queue.shampoo.ops.requeue(stage.job)
    assert stage.worker.job_claim().attempts == 1


# Eviction -------------------------------------------------------------------------------------------------------


def test_a_server_that_evicts_is_warned_of_and_one_that_evicts_only_the_perishable_loses_no_job(
    start: Start, opened: Open
) -> None:
    """Field report 5: maxmemory-policy volatile-lru under pressure evicts remembered answers, and nothing else."""
    server = start("--maxmemory-policy", "volatile-lru")
    queue = opened(server.url)
    assert any("noeviction" in warning for warning in queue.shampoo.warnings)
    stage = Stage(queue)
    jobs = []
    for number in range(40):
        jobs += queue.create(stage.conductor, project="p", payload="x" * 1000)
        stage.conductor.job_create(kind="k", project="p", request_id=f"mine-{number}")
    remembered = len([key for key in queue.facts() if ":replay:" in key])
    server.call("CONFIG", "SET", "maxmemory", int(server.call("INFO", "memory")["used_memory"]) - 100_000)
    claims = [stage.worker.job_claim(lease_seconds=60).job_id for _ in range(80)]
    server.call("CONFIG", "SET", "maxmemory", 0)
    assert int(server.call("INFO", "stats")["evicted_keys"]) > 0
    assert len([key for key in queue.facts() if ":replay:" in key]) < remembered
    assert len(set(claims)) == 80
    assert set(jobs) <= set(claims)


def test_a_server_that_never_evicts_is_not_warned_of(start: Start) -> None:
    """Field report 5: the start-up check is silent where nothing can vanish."""
    server = start("--appendonly", "yes")
    with Shampoo.connect(server.url) as shampoo:
        assert shampoo.warnings == []


# Entries edited by hand -----------------------------------------------------------------------------------------


@every_engine
@pytest.mark.parametrize(
    ("field", "value"), [("standing", "limbo"), ("attempts", "many"), ("seq", "x"), ("project", "q"), ("kind", "")]
)
def test_a_job_edited_beyond_use_is_set_aside_by_name_and_the_next_one_is_claimed(
    field: str, value: str, stage: Stage, clock: Clock
) -> None:
    """Field reports 5 and 19: the claim reports the damaged job beside its answer, and blocks nobody."""
    stage.queued()
    key = stage.queue.key("job", stage.job)
    good = stage.queue.command("HGET", key, field)
    stage.queue.command("HSET", key, field, value)
    claim = stage.worker.job_claim()
    assert (claim.job_id, claim.meta.damaged) == (stage.other, (stage.job,))
    stage.queue.command("HSET", key, field, good)
    assert stage.queue.shampoo.ops.expire().put_back == 1
    assert stage.worker.job_claim().job_id == stage.job


@pytest.fixture
def another_type(stage: Stage) -> Iterator[None]:
    """Two queued jobs, the first with a string in place of its hash; the hash comes back after the test."""
    stage.queued()
    key = stage.queue.key("job", stage.job)
    good = stage.queue.command("DUMP", key)
    stage.queue.command("SET", key, "no hash")
    yield
    stage.queue.command("RESTORE", key, 0, good, "REPLACE")
    stage.queue.shampoo.ops.expire()


@every_engine
@pytest.mark.usefixtures("another_type")
def test_a_key_of_another_type_in_place_of_a_job_blocks_no_other_job(stage: Stage) -> None:
    """Field report 19: the same damage at its worst."""
    claim = stage.worker.job_claim()
    assert (claim.job_id, claim.meta.damaged) == (stage.other, (stage.job,))


@every_engine
@pytest.mark.usefixtures("another_type")
def test_the_repair_names_a_key_of_another_type_and_goes_on(stage: Stage) -> None:
    """Field report 19: one key beyond use must not end the pass over all others."""
    stage.queue.command("DEL", stage.queue.key("ready", "p", "k"))
    found = stage.queue.shampoo.ops.expire()
    assert found.damaged == (stage.job,)
    assert stage.worker.job_claim().job_id == stage.other


@every_engine
def test_a_move_that_meets_a_key_of_another_type_says_nothing_of_its_insides(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """Field report 14: the caller gets a fixed sentence and an id, the log the file and line; nothing is written."""
    stage.claimed()
    key = stage.queue.key("profile")
    good = stage.queue.command("DUMP", key)
    stage.queue.command("SET", key, "no hash")
    before = stage.queue.facts()
    with pytest.raises(Internal) as failed:
        stage.worker.job_complete(job_id=stage.job, outcome="completed")
    assert stage.queue.facts() == before
    stage.queue.command("RESTORE", key, 0, good, "REPLACE")
    number = failed.value.message.rpartition(" ")[2]
    assert failed.value.message == f"internal error: see the log for {number}"
    (line,) = (record.getMessage() for record in caplog.records if number in record.getMessage())
    assert "_event.lua:" in line
    assert "WRONGTYPE" in line
