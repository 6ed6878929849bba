"""Whose queue a scrape is told of, and what it is told while Redis is away."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shampoo_queue.server.guard import Rules
from tests.conftest import REAL
from tests.queue import Engine, Queue
from tests.server.door import Door
from tests.servers import Server, valkey
from tests.sight.looks import people
from tests.sight.test_metrics import named, one, samples

real = pytest.mark.parametrize("engine", REAL, indirect=True)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server of this test's own, which it may stop."""
    with Server(valkey(), tmp_path, "--maxmemory-policy", "noeviction") as started:
        yield started


@pytest.fixture
def lost(server: Server) -> Iterator[Queue]:
    """A profile on that server."""
    queue = Queue(Engine("own", server.url, server.stop))
    yield queue
    queue.shampoo.close()


@pytest.fixture
def other(queue: Queue) -> Iterator[Queue]:
    """A second profile on the same server."""
    opened = Queue(queue.engine)
    yield opened
    opened.close()


def filled(queue: Queue, kind: str, count: int) -> str:
    """Create jobs of a kind; give a token for the metrics."""
    queue.create(people(queue)["boss"], count, kind=kind, project="a")
    return queue.shampoo.registry.issue_token("star", scope="metrics").token


def profiles(text: bytes) -> set[str]:
    return {value for _, labels in samples(text) for name, value in labels if name == "profile"}


@real
def test_a_token_is_told_of_its_own_profile_alone(queue: Queue, other: Queue) -> None:
    tokens = {queue.profile: filled(queue, "mine", 2), other.profile: filled(other, "theirs", 3)}
    with Door(queue.engine.url) as door:
        for profile in (queue.profile, other.profile, queue.profile, other.profile):
            text = door.ask("GET", "/metrics", token=tokens[profile]).body
            assert profiles(text) == {profile}
            kinds = {labels["kind"]: value for labels, value in named(text, "shampoo_jobs") if value}
            assert kinds == ({"mine": 2} if profile == queue.profile else {"theirs": 3})
            assert one(text, "shampoo_up") == 1
        # What the process counts is of all that it serves.
        job = b'{"kind": "none"}'
        assert door.ask("POST", "/v1/tools/job_claim", job, token=tokens[other.profile]).status == 403
        text = door.ask("GET", "/metrics", token=tokens[queue.profile]).body
        assert one(text, "shampoo_tool_calls_total", tool="job_claim", door="http", code="denied") == 1


@real
def test_an_open_scrape_is_told_of_all_profiles(queue: Queue, other: Queue) -> None:
    tokens = [filled(queue, "mine", 2), filled(other, "theirs", 3)]
    with Door(queue.engine.url, Rules(open_metrics=True)) as door:
        for token in (None, *tokens):
            text = door.ask("GET", "/metrics", token=token).body
            assert profiles(text) >= {queue.profile, other.profile}


def test_a_scrape_with_a_token_fails_while_redis_is_away_and_comes_back(server: Server, lost: Queue) -> None:
    token = filled(lost, "k", 1)
    with Door(server.url, retry_seconds=0.5) as door:
        assert one(door.ask("GET", "/metrics", token=token).body, "shampoo_up") == 1
        server.pause()
        try:
            assert door.ask("GET", "/metrics", token=token).error == (503, "unavailable")
        finally:
            server.resume()
        assert one(door.ask("GET", "/metrics", token=token).body, "shampoo_up") == 1
        server.stop()
        assert door.ask("GET", "/metrics", token=token).error == (503, "unavailable")


def test_an_open_scrape_tells_that_redis_is_away(server: Server, lost: Queue) -> None:
    filled(lost, "k", 1)
    with Door(server.url, Rules(open_metrics=True), retry_seconds=0.5) as door:
        text = door.ask("GET", "/metrics").body
        assert one(text, "shampoo_up") == 1 and profiles(text) == {lost.profile}
        server.stop()
        while one(text := door.ask("GET", "/metrics").body, "shampoo_up"):  # what was read is told for 2 seconds
            pass
        assert profiles(text) == set() and list(named(text, "process_resident_memory_bytes"))
