"""What one look costs the server does not grow with the queue."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import REAL
from tests.queue import Queue
from tests.sight.looks import Looks, people

pytestmark = pytest.mark.parametrize("engine", REAL, indirect=True)

SIZES = [pytest.param(3_000, id="3,000"), pytest.param(20_000, id="20,000", marks=pytest.mark.slow)]


def spent(queue: Queue, look: Callable[[], Any]) -> tuple[int, dict[str, int], int]:
    """Run a look; give how many scripts ran, the commands that those sent, and the slowest script's microseconds."""
    queue.command("CONFIG", "RESETSTAT")
    queue.command("CONFIG", "SET", "slowlog-log-slower-than", 0)
    queue.command("SLOWLOG", "RESET")
    try:
        look()
    finally:
        queue.command("CONFIG", "SET", "slowlog-log-slower-than", 10_000)
    log = queue.command("SLOWLOG", "GET", 128)
    slowest = max(int(entry[2]) for entry in log if entry[3][0].upper() == b"EVALSHA")
    found = dict(
        re.findall(r"^cmdstat_(\w+):calls=(\d+)", queue.command("INFO", "commandstats").decode(), re.MULTILINE)
    )
    calls = {name: int(count) for name, count in found.items() if not name.startswith(("config", "info", "slowlog"))}
    return calls.pop("evalsha", 0), calls, slowest


@pytest.mark.parametrize("size", SIZES)
def test_a_look_at_a_large_queue_is_bounded(queue: Queue, size: int) -> None:
    called = people(queue)
    queue.create(called["boss"], project="a")
    for _ in range(0, size, 1_000):
        called["boss"].create_many([{"kind": "k", "project": "b", "payload": "p" * 50}] * 1_000)
    claims = queue.principal("other", "b").claim_many(50)
    mine, every = Looks(queue, "a"), Looks(queue, "star")
    for looks in (mine, every):  # load the scripts
        looks.job_list(), looks.queue_status(), looks.feed_read(), looks.claims_list(), looks.queue_rates()
    for look in (every.job_explain, every.job_look, every.job_history):
        look(claims[0].job_id)
    pages = min(20, size // 1_000 + 1)
    # A look, how many scripts it runs at most, and how many commands each of these sends at most.
    bounds: list[tuple[Callable[[], Any], int, int]] = [
        (lambda: every.job_list(limit=100), 1, 270),
        (lambda: mine.job_list(limit=100), pages, 30),
        (lambda: every.job_list(owner="nobody"), 20, 420),
        (lambda: mine.feed_read(limit=100), pages, 30),
        (lambda: every.queue_status(), 1, 100),
        (lambda: mine.queue_status(), 1, 100),
        (lambda: every.claims_list(), 1, 200),
        (lambda: mine.claims_list(), 1, 200),
        (lambda: every.job_explain(claims[0].job_id), 1, 20),
        (lambda: every.job_look(claims[0].job_id), 1, 10),
        (lambda: every.job_history(claims[0].job_id), 1, 10),
        (lambda: every.queue_rates(), 4, 15 * 64 + 16 * 20 + 10),
    ]
    for n, (look, scripts, commands) in enumerate(bounds):
        ran, calls, slowest = spent(queue, look)
        assert 0 < ran <= scripts, (n, calls)
        assert sum(calls.values()) <= commands * ran, (n, calls)
        assert slowest < 250_000, f"look {n}: a script ran {slowest} µs"


def test_a_job_that_moved_often_is_looked_at_once(queue: Queue) -> None:
    called = people(queue)
    queue.create(called["boss"], 30, project="a")
    for _ in range(4):
        for claim in called["a"].claim_many(30):
            called["a"].release(claim)
    looks = Looks(queue, "star")
    looks.job_list()
    _, calls, _ = spent(queue, lambda: looks.job_list(owner="nobody"))
    assert len(looks.feed_read(limit=1_000)["events"]) > 270 and calls["hmget"] < 40
