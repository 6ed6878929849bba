"""What Prometheus is given: names, labels, values, and a server that is away."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from shampoo_queue import AsyncShampoo, __version__
from shampoo_queue.clock import now
from shampoo_queue.contract import TOOLS
from shampoo_queue.server.metrics import LARGEST_KINDS, STANDINGS, Metrics
from tests.conftest import REAL
from tests.queue import Clock, Queue
from tests.servers import free_port
from tests.sight.looks import people, something_of_everything
from tests.sight.programs import promtool
from tests.sight.test_queue_status import reckoned

real = pytest.mark.parametrize("engine", REAL, indirect=True)
Sample = tuple[str, frozenset[tuple[str, str]]]


async def scrape(metrics: Metrics, queue: Queue) -> bytes:
    """Read the metrics with the profile under test, on its clock."""
    opened = AsyncShampoo.connect(queue.engine.url, profile=queue.profile)
    opened._wire._lua = queue.shampoo._wire._lua
    try:
        return await metrics.text({queue.profile: opened})
    finally:
        await opened.close()


def samples(text: bytes) -> dict[Sample, float]:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def named(text: bytes, name: str) -> Iterator[tuple[dict[str, str], float]]:
    for (found, labels), value in samples(text).items():
        if found == name:
            yield dict(labels), value


def one(text: bytes, name: str, **labels: str) -> float:
    return samples(text)[name, frozenset(labels.items())]


def test_the_counts_are_those_of_the_queue(queue: Queue, clock: Clock) -> None:
    something_of_everything(queue, clock)
    text = asyncio.run(scrape(Metrics(), queue))
    assert one(text, "shampoo_up") == 1
    told: dict[str, dict[str, float]] = {}
    for labels, value in named(text, "shampoo_jobs"):
        assert labels["profile"] == queue.profile
        told.setdefault(labels["kind"], {})[labels["standing"]] = value
    assert told == reckoned(queue, clock.now)
    assert one(text, "shampoo_oldest_queued_seconds", profile=queue.profile, kind="k") > 0
    assert one(text, "shampoo_damaged_jobs", profile=queue.profile) == 0
    assert one(text, "shampoo_counts_partial", profile=queue.profile) == 0
    assert one(text, "shampoo_build_info", version=__version__) == 1


@real
def test_the_server_tells_of_itself(queue: Queue) -> None:
    people(queue)
    text = asyncio.run(scrape(Metrics(), queue))
    assert one(text, "shampoo_redis_memory_used_bytes") > 100_000
    assert one(text, "shampoo_redis_memory_max_bytes") == 0
    assert one(text, "shampoo_redis_clients") >= 1
    assert one(text, "shampoo_redis_script_calls_total") >= 5
    assert 0 < one(text, "shampoo_redis_script_seconds_total") < 3_600


@real
def test_only_the_largest_kinds_have_a_name(queue: Queue) -> None:
    boss = people(queue)["boss"]
    for n in range(LARGEST_KINDS + 5):
        queue.create(boss, 2 if n < LARGEST_KINDS - 1 else 1, kind=f"kind-{n:02}", project="a")
    queue.create(boss, 5, kind="other", project="a")
    text = asyncio.run(scrape(Metrics(), queue))
    kinds = {labels["kind"]: value for labels, value in named(text, "shampoo_jobs") if labels["standing"] == "queued"}
    assert len(kinds) == LARGEST_KINDS
    assert kinds["other"] == 5 + 6, "a kind that is called so counts with the rest"
    assert kinds["kind-18"] == 2 and "kind-19" not in kinds


def test_labels_come_from_closed_sets_whatever_is_called() -> None:
    metrics = Metrics()
    for name in ("job_claim", "secret-project", "job_list"):
        metrics.tool_call(name, "http", "ok", 0.003)
        metrics.tool_call(name, "10.0.0.7", "shp_secret", 0.003)
        metrics.tool_call(name, "mcp", "rate_limited", 0.003)
    text = asyncio.run(metrics.text({}))
    assert b"secret" not in text and b"10.0.0.7" not in text
    labels = [labels for labels, _ in named(text, "shampoo_tool_calls_total")]
    assert {label["tool"] for label in labels} == {"job_claim", "job_list", "other"}
    assert {label["door"] for label in labels} == {"http", "mcp", "other"}
    assert {label["code"] for label in labels} == {"ok", "rate_limited", "other"}
    assert one(text, "shampoo_tool_calls_total", tool="job_claim", door="http", code="ok") == 1
    assert one(text, "shampoo_tool_seconds_count", tool="job_claim", door="http") == 1
    assert one(text, "shampoo_tool_seconds_bucket", tool="job_claim", door="http", le="0.0025") == 0
    assert one(text, "shampoo_tool_seconds_bucket", tool="job_claim", door="http", le="0.005") == 1


def test_failures_and_calls_in_flight_are_counted() -> None:
    metrics = Metrics()
    metrics.auth_failed()
    metrics.auth_failed()
    with metrics.in_flight.track_inprogress():
        text = asyncio.run(metrics.text({}))
    assert one(text, "shampoo_auth_failures_total") == 2
    assert one(text, "shampoo_tool_calls_in_flight") == 1


def test_a_server_that_is_away_is_down_and_no_error() -> None:
    async def scraped() -> tuple[bytes, float]:
        away = AsyncShampoo.connect(f"redis://127.0.0.1:{free_port()}", profile="p", retry_seconds=30)
        metrics, began = Metrics(), now()
        metrics.tool_call("job_claim", "http", "unavailable", 0.1)
        text = await metrics.text({"p": away})
        await away.close()
        return text, now() - began

    text, seconds = asyncio.run(scraped())
    assert one(text, "shampoo_up") == 0 and not list(named(text, "shampoo_jobs")) and seconds < 5
    assert one(text, "shampoo_tool_calls_total", tool="job_claim", door="http", code="unavailable") == 1
    assert one(asyncio.run(Metrics().text({})), "shampoo_up") == 0


@real
def test_many_scrapes_at_once_read_the_queue_once(queue: Queue) -> None:
    people(queue)

    async def scraped() -> None:
        opened, metrics = AsyncShampoo.connect(queue.engine.url, profile=queue.profile), Metrics()
        first = await metrics.text({queue.profile: opened})
        before = one(first, "shampoo_redis_script_calls_total")
        for text in await asyncio.gather(*(metrics.text({queue.profile: opened}) for _ in range(20))):
            assert one(text, "shampoo_redis_script_calls_total") == before
        metrics._seen = {name: (at - 10, one) for name, (at, one) in metrics._seen.items()}
        again = await metrics.text({queue.profile: opened})
        assert one(again, "shampoo_up") == 1
        assert before < one(again, "shampoo_redis_script_calls_total") < before + 5
        await opened.close()

    asyncio.run(scraped())


def test_promtool_has_nothing_to_say(queue: Queue, clock: Clock) -> None:
    something_of_everything(queue, clock)
    metrics = Metrics()
    for tool in TOOLS:
        metrics.tool_call(tool.name, "mcp", "ok", 0.01)
    text = asyncio.run(scrape(metrics, queue))
    checked: Any = subprocess.run([promtool(), "check", "metrics"], input=text, capture_output=True, check=False)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")
    assert {labels["standing"] for labels, _ in named(text, "shampoo_jobs")} == set(STANDINGS)
