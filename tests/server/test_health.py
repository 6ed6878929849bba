"""What orchestrators and Prometheus ask for: alive, ready, and the metrics."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shampoo_queue import __version__
from shampoo_queue.server.desk import Desk
from shampoo_queue.server.guard import Rules
from shampoo_queue.server.serve import Place
from tests.queue import Engine, Queue
from tests.server.conftest import token
from tests.server.door import Door, Reply, answer
from tests.servers import Server, valkey, wait_until

CHECKS = {"redis", "primary", "memory", "scripts", "draining"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server of this test's own, which it may hurt."""
    with Server(valkey(), tmp_path, "--maxmemory-policy", "noeviction") as started:
        yield started


@pytest.fixture
def hurt(server: Server) -> Iterator[Queue]:
    """A profile on that server."""
    queue = Queue(Engine("own", server.url, server.stop))
    yield queue
    queue.shampoo.close()


def ready(door: Door) -> Reply:
    """Ask whether the server is ready; the answer takes no longer than two seconds and names every check."""
    began = time.monotonic()
    reply = door.ask("GET", "/readyz")
    assert time.monotonic() - began < 3
    assert set(reply.json["checks"]) == CHECKS
    assert (reply.json["status"] == "ready") is (reply.status == 200)
    assert ("retry-after" in reply.headers) is (reply.status == 503)
    return reply


def is_ready(door: Door) -> bool:
    return ready(door).status == 200


@pytest.mark.parametrize("engine", ["embedded", "redis7", "memory"], indirect=True)
def test_a_server_on_a_sound_redis_is_ready(door: Door) -> None:
    assert ready(door).json == {"status": "ready", "version": __version__, "checks": dict.fromkeys(CHECKS, "ok")}


def test_being_asked_writes_nothing(server: Server, hurt: Queue) -> None:
    with Door(server.url) as door:
        before = server.call("DBSIZE")
        assert is_ready(door)
        assert server.call("DBSIZE") == before


def test_a_redis_that_is_away_is_said_and_it_comes_back(server: Server, hurt: Queue) -> None:
    worker = token(hurt, "worker")
    with Door(server.url, retry_seconds=0.5) as door:
        assert door.call("job_claim", {}, worker).status == 200
        server.kill()
        reply = door.call("job_claim", {}, worker)
        assert reply.error == (503, "unavailable")
        assert int(reply.headers["retry-after"]) > 0
        found = ready(door)
        assert (found.status, found.json["checks"]["redis"], found.json["checks"]["scripts"]) == (
            *(503, "it is away"),
            "unknown",
        )
        assert door.ask("GET", "/livez").json == {"status": "live", "version": __version__}
        server.restart()
        wait_until(lambda: is_ready(door), "the server is ready again")
        fresh = token(hurt, "worker-2")
        assert door.call("job_claim", {}, fresh).status == 200


def test_a_redis_that_does_not_answer_is_said_within_two_seconds(server: Server, hurt: Queue) -> None:
    with Door(server.url) as door:
        assert is_ready(door)
        server.pause()
        try:
            found = ready(door)
            assert (found.status, found.json["checks"]["redis"]) == (503, "no answer within 2 seconds")
        finally:
            server.resume()
        wait_until(lambda: is_ready(door), "the server is ready again")


def test_a_full_memory_is_said(server: Server, hurt: Queue) -> None:
    with Door(server.url) as door:
        assert is_ready(door)
        server.call("CONFIG", "SET", "maxmemory", 1_000_000)
        found = ready(door)
        assert found.status == 503
        assert "out of memory" in found.json["checks"]["memory"]
        assert found.json["checks"]["redis"] == "ok"
        server.call("CONFIG", "SET", "maxmemory", 0)
        assert is_ready(door)


def test_a_bad_token_hears_so_although_the_server_takes_no_work(server: Server, hurt: Queue) -> None:
    hurt.principal("c", "", conductor=True)
    good, bad = (hurt.shampoo.registry.issue_token("c") for _ in range(2))
    hurt.shampoo.registry.revoke_token(bad.token_id)
    with Door(server.url) as door:
        assert door.call("job_create", {"kind": "k"}, good.token).status == 200
        server.call("CONFIG", "SET", "maxmemory", 1_000_000)
        assert door.call("job_create", {"kind": "k"}, good.token).error == (503, "unavailable")
        assert door.call("job_create", {"kind": "k"}, bad.token).error == (401, "unauthenticated")
        server.call("CONFIG", "SET", "maxmemory", 0)


def test_a_call_that_outlasts_the_grace_time_hears_so_in_the_doors_words(server: Server, hurt: Queue) -> None:
    boss = token(hurt, "boss", conductor=True)
    with Door(server.url, place=Place(port=0, grace_seconds=0.2)) as door, door.connected() as running:
        assert door.call("job_create", {"kind": "k"}, boss).status == 200
        server.pause()
        try:
            running.sendall(door.spelled("POST", "/v1/tools/job_create", b'{"kind":"k"}', token=boss))
            wait_until(lambda: door.guard.open == 1, "the call runs")
            door.soon(door.server.leave)
            reply = answer(running)
        finally:
            server.resume()
    assert reply.error == (503, "unavailable")
    assert "may have been carried out" in reply.json["error"]["message"]


@pytest.mark.parametrize("key", [None, "a-key"])
def test_a_claim_that_is_cut_short_tells_what_it_won(server: Server, hurt: Queue, key: str | None) -> None:
    """As at a stop, while the client is still there: a claim that nobody hears of would stand for its whole lease."""
    (job_id,) = hurt.create(hurt.principal("boss", "", conductor=True))
    issued = hurt.shampoo.registry.issue_token("boss").token

    async def story() -> None:
        async with Desk(server.url) as desk:
            visitor = await desk.admit(issued)
            assert not (await visitor.call("job_claim", {"kind": "none"}, door="http"))["claimed"]
            server.pause()
            beside = {"request_id": key, "fence": None, "holder": None}
            claim = asyncio.ensure_future(visitor._claim_to_the_end({}, beside))
            await asyncio.sleep(0.2)
            claim.cancel()
            server.resume()
            assert (await claim)["job_id"] == job_id

    asyncio.run(story())
    assert hurt.events(job_id) == ["job.created", "job.claimed"]


def test_a_replica_is_said(server: Server, hurt: Queue, tmp_path: Path) -> None:
    with Server(valkey(), tmp_path) as primary, Door(server.url) as door:
        assert is_ready(door)
        server.call("REPLICAOF", "127.0.0.1", primary.port)
        wait_until(lambda: server.call("INFO", "replication")["master_link_status"] == "up", "the link is up")
        found = ready(door)
        assert found.status == 503
        assert "replica" in found.json["checks"]["primary"]
        server.call("REPLICAOF", "NO", "ONE")
        wait_until(lambda: is_ready(door), "the server is ready again")


def test_scripts_that_may_not_run_are_said(server: Server, hurt: Queue) -> None:
    with Door(server.url) as door:
        assert is_ready(door)
        server.call("ACL", "SETUSER", "default", "-evalsha", "-eval")
        try:
            found = ready(door)
        finally:
            server.call("ACL", "SETUSER", "default", "+@all")
        assert found.status == 503
        assert "permission" in found.json["checks"]["scripts"]
        assert is_ready(door)


# Metrics --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["embedded"], indirect=True)
def test_the_metrics_need_a_token_of_their_own(door: Door, queue: Queue, worker: str) -> None:
    scraper = queue.shampoo.registry.issue_token("worker", scope="metrics").token
    found = door.ask("GET", "/metrics", token=scraper)
    assert found.status == 200
    assert found.headers["content-type"].startswith("text/plain")
    assert b"# TYPE " in found.body
    assert door.ask("GET", "/metrics").error == (401, "unauthenticated")
    assert door.ask("GET", "/metrics", token="x").error == (401, "unauthenticated")
    assert door.ask("GET", "/metrics", token=worker).error == (403, "denied")
    queue.shampoo.registry.revoke_token(scraper.split("_")[1])
    assert door.ask("GET", "/metrics", token=scraper).error == (401, "unauthenticated")


@pytest.mark.parametrize("engine", ["embedded"], indirect=True)
def test_the_metrics_are_open_to_this_machine_where_an_operator_says_so(queue: Queue) -> None:
    with Door(queue.engine.url, Rules(open_metrics=True)) as door:
        assert door.ask("GET", "/metrics").status == 200
        assert door.ask("GET", "/metrics", headers={"Host": "evil.example"}).status == 400


def test_the_metrics_of_the_process_are_told_while_redis_is_away(server: Server, hurt: Queue) -> None:
    worker = token(hurt, "worker")
    with Door(server.url, Rules(open_metrics=True), retry_seconds=0.5) as door:
        assert door.call("job_claim", {}, worker).status == 200
        server.kill()
        found = door.ask("GET", "/metrics")
        assert found.status == 200
        assert b'tool="job_claim"' in found.body
