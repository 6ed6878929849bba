"""A batch is hurt in the middle: no move of it is made twice and none is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from shampoo_queue import ToolError
from shampoo_queue.claims import Ending
from shampoo_queue.errors import Unavailable
from tests.conftest import REAL
from tests.faults.cases import Stage
from tests.faults.conftest import Open, Start
from tests.faults.flavours import Asyncio, Blocking
from tests.faults.proxy import Kind, Proxy
from tests.queue import Clock, Queue
from tests.servers import SentinelTrio

Connect = Callable[..., Blocking | Asyncio]

COUNT = 40
every_engine = pytest.mark.parametrize("engine", REAL, indirect=True)
one_engine = pytest.mark.parametrize("engine", ["redis7"], indirect=True)
hurt = pytest.mark.parametrize(
    "kind",
    [Kind.LOSE_REPLY, Kind.LOSE_REQUEST, Kind.CUT_REPLY, Kind.CUT_REQUEST],
    ids=lambda kind: kind.name,
)


@pytest.fixture
def stage(queue: Queue, clock: Clock) -> Stage:
    stage = Stage(queue)
    stage.load_scripts()
    return stage


def states(found: list[Any]) -> list[str]:
    return [each.code if isinstance(each, ToolError) else getattr(each, "state", "renewed") for each in found]


def jobs(count: int = COUNT) -> list[dict[str, str]]:
    return [{"kind": "k", "project": "p", "payload": f"{n}"} for n in range(count)]


@every_engine
@hurt
@pytest.mark.parametrize("nth", [1, COUNT // 2, COUNT])
def test_creations_cut_anywhere_make_each_job_once(
    kind: Kind, nth: int, stage: Stage, proxy: Proxy, connect: Connect
) -> None:
    flavour = connect(stage.queue, proxy.url)
    cut = proxy.plan(kind, nth=nth)
    created = flavour.library("c", "create_many", jobs())
    assert cut.met.is_set()
    assert states(created) == ["queued"] * COUNT
    assert stage.queue.events().count("job.created") == COUNT
    payloads = [stage.queue.shampoo.ops.payload(each.job_id) for each in created]
    assert payloads == [f"{n}" for n in range(COUNT)]


@every_engine
@hurt
@pytest.mark.parametrize("nth", [1, 2, 4, 20, COUNT])
def test_claims_cut_anywhere_give_each_job_once(
    kind: Kind, nth: int, stage: Stage, proxy: Proxy, connect: Connect
) -> None:
    stage.conductor.create_many(jobs())
    flavour = connect(stage.queue, proxy.url)
    cut = proxy.plan(kind, nth=nth)
    claims = flavour.library("w", "claim_many", COUNT)
    assert cut.met.is_set()
    assert len({claim.job_id for claim in claims}) == COUNT
    assert {claim.attempts for claim in claims} == {1}
    assert stage.queue.events().count("job.claimed") == COUNT
    assert stage.worker.claim_many(5) == []
    assert states(stage.worker.complete_many((claim, None) for claim in claims)) == ["completed"] * COUNT


@every_engine
@hurt
@pytest.mark.parametrize("nth", [1, COUNT // 2, COUNT])
def test_endings_cut_anywhere_are_made_once(kind: Kind, nth: int, stage: Stage, proxy: Proxy, connect: Connect) -> None:
    stage.conductor.create_many(jobs())
    claims = stage.worker.claim_many(COUNT)
    flavour = connect(stage.queue, proxy.url)
    cut = proxy.plan(kind, nth=nth)
    outcomes = ("completed", "failed", "released", "released")
    endings = [
        Ending(claim, outcomes[n % 4], "r", "why", 0.0 if n % 4 == 2 else 60.0)  # type: ignore[arg-type]
        for n, claim in enumerate(claims)
    ]
    ended = flavour.library("w", "end_many", endings)
    assert cut.met.is_set()
    assert states(ended) == ["completed", "failed", "queued", "queued"] * (COUNT // 4)
    events = stage.queue.events()
    assert [events.count(f"job.{what}") for what in ("completed", "failed", "released")] == [10, 10, 20]
    assert len(stage.worker.claim_many(COUNT)) == 10


@one_engine
@hurt
def test_renewals_cut_anywhere_all_hold(kind: Kind, stage: Stage, proxy: Proxy, connect: Connect, clock: Clock) -> None:
    stage.conductor.create_many(jobs())
    claims = stage.worker.claim_many(COUNT, lease_seconds=10)
    flavour = connect(stage.queue, proxy.url)
    clock.advance(9)
    cut = proxy.plan(kind, nth=COUNT // 2)
    assert states(flavour.library("w", "renew_many", claims, lease_seconds=10)) == ["renewed"] * COUNT
    assert cut.met.is_set()
    clock.advance(9)
    assert stage.worker.claim_many(1) == []


@one_engine
def test_without_patience_those_without_an_answer_say_so_and_can_be_asked_again(
    stage: Stage, proxy: Proxy, connect: Connect
) -> None:
    """Each error carries the request id under which its own move can be repeated."""
    flavour = connect(stage.queue, proxy.url, retry_seconds=0)
    proxy.plan(Kind.LOSE_REPLY, nth=5)
    created = flavour.library("c", "create_many", jobs(10))
    assert states(created[:4]) == ["queued"] * 4
    for n, each in enumerate(created[4:], 4):
        assert isinstance(each, Unavailable)
        assert each.outcome_unknown
        again = flavour.tool("c", "job_create", **jobs(10)[n], request_id=each.request_id)
        assert again["state"] == "queued"
    assert stage.queue.events().count("job.created") == 10


@one_engine
def test_a_copy_of_a_batched_move_that_the_network_held_back_changes_nothing(
    stage: Stage, proxy: Proxy, connect: Connect
) -> None:
    stage.conductor.create_many(jobs())
    flavour = connect(stage.queue, proxy.url)
    stale = proxy.plan(Kind.HOLD_REQUEST, nth=COUNT // 2)
    claims = flavour.library("w", "claim_many", COUNT)
    assert len(claims) == COUNT
    flavour.library("w", "complete_many", [(claim, None) for claim in claims])
    before = stage.queue.facts()
    assert stale.deliver()
    assert stage.queue.facts() == before


def test_batches_ride_through_a_restart_of_the_server(start: Start, opened: Open, connect: Connect) -> None:
    server = start("--appendonly", "yes", "--appendfsync", "always")
    queue = opened(server.url)
    stage, flavour = Stage(queue), connect(queue, server.url)
    created = flavour.library("c", "create_many", jobs(250))
    server.kill()
    server.start()
    claims = flavour.library("w", "claim_many", 250)
    server.kill()
    server.start()
    assert states(flavour.library("w", "renew_many", claims)) == ["renewed"] * 250
    assert states(flavour.library("w", "complete_many", [(claim, None) for claim in claims])) == ["completed"] * 250
    assert {claim.job_id for claim in claims} == {each.job_id for each in created}
    assert stage.events_after(0).count("job.claimed") == 250


def test_batches_ride_through_a_failover(trio: SentinelTrio, opened: Open, connect: Connect) -> None:
    queue = opened(trio.url)
    stage, flavour = Stage(queue), connect(queue, trio.url)
    created = flavour.library("c", "create_many", jobs(120))
    trio.failover()
    claims = flavour.library("w", "claim_many", 120)
    assert {claim.job_id for claim in claims} == {each.job_id for each in created}
    assert states(flavour.library("w", "complete_many", [(claim, None) for claim in claims])) == ["completed"] * 120
    assert stage.events_after(0).count("job.completed") == 120
