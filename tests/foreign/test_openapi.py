"""The OpenAPI document in the hands of others: a validator, and schemathesis, which calls what it reads there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.foreign import clients
from tests.queue import Queue
from tests.server.door import Door

HERE = Path(__file__).parent

pytestmark = pytest.mark.parametrize("engine", ["embedded"], indirect=True)


@pytest.fixture
def door(queue: Queue) -> Iterator[Door]:
    with Door(queue.engine.url, failed_per_minute=1_000_000) as door:
        yield door


def test_the_document_is_valid(door: Door, queue: Queue, tmp_path: Path) -> None:
    clients.wanted("openapi")
    document = tmp_path / "openapi.json"
    document.write_bytes(door.ask("GET", "/v1/openapi.json").body)
    ended = clients.run(clients.program("openapi", "openapi-spec-validator"), document, home=tmp_path)
    assert (ended.returncode, "OK" in ended.stdout) == (0, True), ended.stdout[:2000]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_call_that_schemathesis_makes_up_is_answered_as_documented(
    door: Door, queue: Queue, tmp_path: Path
) -> None:
    """All checks, over examples, boundaries, random calls and whole stories along the links."""
    clients.wanted("schemathesis")
    queue.principal("worker-1", "shared-ops")
    queue.principal("boss", "", "p", "shared-ops", conductor=True)
    token = queue.shampoo.registry.issue_token("boss").token
    ended = clients.run(
        clients.program("schemathesis", "st"),
        *("run", f"http://127.0.0.1:{door.port}/v1/openapi.json", "-H", f"Authorization: Bearer {token}"),
        *("--checks", "all", "-n", "60", "--seed", "1", "--no-color"),
        home=tmp_path,
        timeout=500,
        SCHEMATHESIS_HOOKS="schemathesis_hooks",
        PYTHONPATH=str(HERE),
        QUORUM_ID=queue.shampoo.registry.open_quorum("shared-ops", ["boss"]),
    )
    told = ended.stdout.replace(token, "***")
    assert ended.returncode == 0, told[-6000:]
    covered = re.search(r"API Links: +(\d+) covered", told)
    assert covered is not None and int(covered[1]) >= 6, told[-6000:]
    done: set[str] = set()
    last: int | str | None = None
    while events := queue.shampoo.history(after=last, limit=1000):
        done |= {event["event"] for event in events}
        last = events[-1]["id"]
    assert {"job.created", "job.claimed", "lane.created"} <= done, done
    assert {"job.completed", "job.failed", "job.released"} & done, done
