"""A worker outlives its server's absence: it resumes by itself, in few lines of log, and does nothing twice."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shampoo_queue import Shampoo
from shampoo_queue.worker import Job, Worker
from tests.conftest import IN_CI
from tests.queue import Engine, Queue
from tests.servers import Server, redis, valkey, wait_until
from tests.worker.bench import Bench

AWAY = [pytest.param(2.0, id="2 s"), pytest.param(15.0, id="15 s", marks=pytest.mark.slow)]


@pytest.fixture(params=["valkey", "redis"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    """A server of this test alone, which keeps its data over a restart."""
    binary = valkey() if request.param == "valkey" else redis()
    if binary is None:
        assert not IN_CI, "redis-server is always there in CI"
        pytest.skip("there is no redis-server on PATH: apt-get install redis-server")
    with Server(binary, tmp_path, "--appendonly", "yes", "--appendfsync", "always") as server:
        yield server


def connections(server: Server) -> int:
    return str(server.call("CLIENT", "LIST")).count("lib-name=redis-py")


@pytest.mark.parametrize("away", AWAY)
def test_a_server_that_goes_away_twice_is_met_again(
    server: Server, away: float, caplog: pytest.LogCaptureFixture
) -> None:
    """No job is lost, none is done twice under one claim, and no connection stays behind."""
    caplog.set_level(logging.INFO, "shampoo_queue.worker")
    queue = Queue(Engine("own", server.url, lambda: None))
    bench = Bench(queue)
    worker = Worker()

    @worker.handles("k", lease_seconds=1, concurrency=4)
    async def handle(job: Job) -> str:
        time.sleep(0.02)
        return job.job_id

    @worker.handles("long", lease_seconds=60)
    def handle_long(job: Job) -> str:
        time.sleep(away / 2)  # ends while the server is away, and its lease lives on
        return "kept"

    with Shampoo.connect(server.url, profile=queue.profile, retry_seconds=0.5) as shampoo:
        bench.shampoo = shampoo
        with bench.run(worker) as running:
            jobs: list[str] = []
            long = []
            for _ in range(2):
                jobs += bench.create_many(60)
                long.append(bench.create(kind="long"))
                bench.until(long[-1], "claimed")
                server.stop()
                time.sleep(away)
                server.start()
                jobs.append(bench.create())
                assert bench.ended(jobs[-1]).state == "completed"
            found = [bench.ended(job_id, 60) for job_id in [*jobs, *long]]
            assert {job.state for job in found} == {"completed"}
            running.stop()
    assert all(job.attempts == 1 and job.result_ref == "kept" for job in found[-2:])
    assert all(bench.events(job_id).count("completed") == 1 for job_id in jobs)
    said = [record.getMessage() for record in caplog.records if "queue" in record.getMessage()]
    assert 2 <= sum("trying again" in line for line in said) <= 4, said
    assert sum("is back after" in line for line in said) == sum("trying again" in line for line in said)
    assert len(said) < 12, said
    wait_until(lambda: connections(server) <= 2, "the worker's connections are gone", 5)
    assert queue.problems() == []
    queue.close()


def test_a_replica_takes_no_writes_and_the_worker_goes_on_when_it_does_again(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Field report 22, worker side: READONLY is an absence like any other, and needs no restart."""
    queue = Queue(Engine("own", server.url, lambda: None))
    bench = Bench(queue)
    worker = Worker()
    worker.handles("k", lease_seconds=1)(lambda job: job.job_id)
    with Shampoo.connect(server.url, profile=queue.profile, retry_seconds=0.3) as shampoo:
        bench.shampoo = shampoo
        with bench.run(worker):
            assert bench.ended(bench.create()).state == "completed"
            server.call("REPLICAOF", "127.0.0.1", 1)
            wait_until(lambda: "this node is a replica" in caplog.text, "the worker has met the replica")
            server.call("REPLICAOF", "NO", "ONE")
            assert bench.ended(bench.create()).state == "completed"
    assert queue.problems() == []
    queue.close()
