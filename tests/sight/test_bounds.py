"""What one look costs the server does not grow with the queue."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from shampoo_queue.rates import Kept
from tests.conftest import REAL
from tests.queue import Queue
from tests.sight.looks import Looks, people, spend

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
    queue.create(called["boss"], kind="rare", project="a")
    lane_id = called["boss"].lane_create(quorum_id=queue.shampoo.registry.open_quorum("a")).lane_id
    queue.create(called["boss"], lane_id=lane_id)
    for _ in range(0, size, 1_000):
        called["boss"].create_many([{"kind": "k", "project": "b", "payload": "p" * 50}] * 1_000)
    claims = queue.principal("other", "b").claim_many(50)
    mine, every = Looks(queue, "a"), Looks(queue, "star")
    for looks in (mine, every):  # load the scripts
        looks.job_list(), looks.queue_status(), looks.feed_read(), looks.claims_list(), looks.queue_rates()
    for look in (every.job_explain, every.job_look, every.job_history):
        look(claims[0].job_id)
    queue.create(called["boss"], lane_id=lane_id)
    pages = size // 1_000 + 1
    # A look, how many scripts it runs at most, and how many commands each of these sends at most.
    bounds: list[tuple[Callable[[], Any], int, int]] = [
        (lambda: every.job_list(limit=100), 1, 270),
        (lambda: mine.job_list(limit=100), pages, 30),
        (lambda: every.job_list(owner="nobody"), size // 300 + 2, 420),
        (lambda: every.job_list(lane_id=lane_id), 1, 10),
        (lambda: mine.feed_read(limit=100), pages, 30),
        (lambda: every.feed_read(limit=1_000), 5, 10),
        (lambda: every.feed_read(limit=1_000, back=False), 5, 10),
        (lambda: every.queue_status(), 1, 100),
        (lambda: mine.queue_status(), 1, 100),
        (lambda: every.claims_list(), 1, 200),
        (lambda: mine.claims_list(), 1, 200),
        (lambda: every.job_explain(claims[0].job_id), 1, 20),
        (lambda: every.job_look(claims[0].job_id), 1, 10),
        (lambda: every.job_history(claims[0].job_id), 1, 10),
        (lambda: Looks(queue, "star", Kept()).queue_rates(), 1 + 60 + 2, 60 * 21 + 10),
        (lambda: Looks(queue, "star", Kept()).queue_rates(minutes=2), 1 + 60 + 2, 25 + 500 + 10),
    ]
    for n, (look, scripts, commands) in enumerate(bounds):
        ran, calls, slowest = spent(queue, look)
        assert 0 < ran <= scripts, (n, calls)
        assert sum(calls.values()) <= commands * ran, (n, calls)
        assert slowest < 250_000, f"look {n}: a script ran {slowest} µs"
    # What is rare is found at once, however many others came after it.
    assert len(every.job_list(lane_id=lane_id)["jobs"]) == 2
    assert [job["kind"] for job in every.job_list(kind="rare")["jobs"]] == ["rare"]


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


def test_a_long_history_of_one_job_is_read_in_bounded_runs(queue: Queue) -> None:
    called = people(queue)
    (job_id,) = queue.create(called["boss"], project="a")
    for _ in range(40):
        spend(called["a"], "k", None)
        queue.shampoo.ops.requeue(job_id)
    whole, looks = queue.shampoo.history(job_id, limit=1_000), Looks(queue, "a")
    assert len(whole) == 1 + 40 * 11
    looks.job_history(job_id)
    found: list[Any] = []
    ran, calls, _ = spent(queue, lambda: found.append(looks.job_history(job_id, limit=1_000)))
    assert found[0]["events"] == whole[::-1] and found[0]["cursor"] == ""
    assert ran == 3 and calls["xrange"] == len(whole)
