"""Servers differ in their words and versions; callers read the contract's words, whatever the server."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from shampoo_queue.engines import check_server
from shampoo_queue.errors import EngineError, Refusal
from tests.conftest import REAL
from tests.faults.cases import Stage
from tests.queue import Clock, Queue

every_engine = pytest.mark.parametrize("engine", REAL, indirect=True)


@pytest.fixture
def stage(queue: Queue, clock: Clock) -> Stage:
    """One claimed job, one lane under way, a worker of another project, one who is disabled, a closed quorum."""
    stage = Stage(queue)
    stage.claimed()
    stage.in_progress()
    queue.principal("x", "q")
    queue.principal("gone", "p")
    queue.shampoo.registry.disable_principal("gone")
    return stage


def by(client_id: str, tool: str, **given: Any) -> Callable[[Stage], Any]:
    """Call a tool; an argument that is a function gets the stage."""
    return lambda stage: stage.queue.shampoo.client(client_id, holder="h").call(
        tool, {name: value(stage) if callable(value) else value for name, value in given.items()}
    )


def job(stage: Stage) -> str:
    return stage.job


def other(stage: Stage) -> str:
    return stage.other


def lane(stage: Stage) -> str:
    return stage.lane


def quorum(stage: Stage) -> str:
    return stage.quorum


def ended(call: Callable[[Stage], Any]) -> Callable[[Stage], Any]:
    """Complete the job first."""

    def act(stage: Stage) -> Any:
        stage.worker.job_complete(job_id=stage.job, outcome="completed")
        return call(stage)

    return act


def fenced(tool: str, **given: Any) -> Callable[[Stage], Any]:
    """Call under the fence of no claim."""
    return lambda stage: stage.worker.call(tool, {"job_id": stage.job, **given}, fence=1)


def reused(stage: Stage) -> Any:
    stage.conductor.job_create(kind="k", project="p", request_id="mine")
    return stage.conductor.job_create(kind="other", project="p", request_id="mine")


def closed(stage: Stage) -> Any:
    stage.queue.shampoo.registry.close_quorum(stage.quorum)
    return stage.conductor.lane_create(quorum_id=stage.quorum)


REFUSALS: list[tuple[str, Callable[[Stage], Any]]] = [
    ("unauthenticated", by("gone", "job_claim")),
    ("unauthenticated", by("nobody", "lane_list")),
    ("outside client scope", by("w", "job_create", kind="k", project="p")),
    ("outside client scope", by("w", "lane_review", lane_id=lane, decision="approve")),
    ("job not found", by("w", "job_complete", job_id="none", outcome="failed")),
    ("job not found", by("x", "job_release", job_id=job)),
    ("job is not claimed", by("w", "job_complete", job_id=other, outcome="failed")),
    ("job is not claimed", by("w2", "job_release", job_id=job)),
    ("lease expired", fenced("job_complete", outcome="failed")),
    ("lease expired", fenced("job_release")),
    ("job already terminal", ended(by("w", "job_complete", job_id=job, outcome="failed"))),
    ("lane not found", by("c", "job_create", kind="k", lane_id="none")),
    ("project does not match lane", by("c", "job_create", kind="k", lane_id=lane, project="q")),
    ("unknown_lane", by("c", "lane_set_state", lane_id="none", state="done")),
    ("unknown_lane", by("c", "lane_create", quorum_id="none")),
    ("quorum is not open", closed),
    ("unknown client", by("c", "lane_create", quorum_id=quorum, assignee_client_id="gone")),
    ("task not found", by("c", "lane_create", quorum_id=quorum, task_id="none")),
    (
        "depends_on must name a lane of the same quorum",
        by("c", "lane_create", quorum_id=quorum, depends_on="none"),
    ),
    ("illegal lane transition", by("c", "lane_set_state", lane_id=lane, state="open")),
    ("nothing under review", by("c", "lane_review", lane_id=lane, decision="approve")),
    ("lane not mergeable", by("c", "lane_merge", lane_id=lane, outcome="merged", result_commit="abc")),
    ("request id was used for another call", reused),
]


@every_engine
@pytest.mark.parametrize(("words", "call"), REFUSALS, ids=[f"{n} {words}" for n, (words, _) in enumerate(REFUSALS)])
def test_a_refusal_reads_the_same_on_every_server(
    words: str, call: Callable[[Stage], Any], stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    """Field report 14: the contract's very words, without digest, line number or prefix of a server; no log line."""
    caplog.set_level(logging.INFO, "shampoo_queue")
    caplog.clear()
    with pytest.raises(Refusal) as refused:
        call(stage)
    assert refused.value.message == words
    assert (refused.value.retryable, refused.value.outcome_unknown) == (False, False)
    assert not caplog.records


@every_engine
def test_a_second_submission_is_refused_in_the_same_words(stage: Stage) -> None:
    """Field report 14."""
    stage.worker.lane_review(lane_id=stage.lane, decision="submit")
    with pytest.raises(Refusal, match=r"^review closed$"):
        stage.worker.lane_review(lane_id=stage.lane, decision="submit")


@pytest.mark.parametrize(
    ("info", "fits"),
    [
        ({"redis_version": "7.0.0"}, True),
        ({"redis_version": "8.2.1"}, True),
        ({"redis_version": "6.2.14"}, False),
        ({"redis_version": "7.2.4", "valkey_version": "8.0.0"}, True),
        ({"redis_version": "7.2.4", "valkey_version": "9.1.0"}, True),
        ({"redis_version": "7.2.4", "valkey_version": "7.2.5"}, False),
        ({"redis_version": "6.0.0", "valkey_version": "10.0.0"}, True),
    ],
)
def test_a_version_is_read_from_the_field_of_its_own_flavour(info: dict[str, str], fits: bool) -> None:
    """Field report 14: Valkey pins ``redis_version`` for old clients, so that field says nothing about it."""
    if fits:
        assert check_server("redis://here", info | {"aof_enabled": "1"}, "noeviction") == []
    else:
        with pytest.raises(EngineError, match="too old"):
            check_server("redis://here", info, "noeviction")
