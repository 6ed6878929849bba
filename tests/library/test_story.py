"""The library as the README shows it, in both flavours."""

from __future__ import annotations

import asyncio
import inspect
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from shampoo_queue import AsyncClient, AsyncShampoo, Client, Shampoo, contract, errors
from shampoo_queue.facade import AsyncOps, AsyncRegistry, Ops, Registry
from tests.library.flavours import TWO, Flavour, on
from tests.queue import Clock, Engine, Queue


def the_readme(folder: str) -> tuple[Any, ...]:
    with Shampoo.connect(f"embedded://{folder}", profile="default") as shampoo:
        shampoo.registry.add_principal("conductor-1", conductor=True, grants=["shared-ops"])
        shampoo.registry.add_principal("worker-1", grants=["shared-ops"])
        conductor = shampoo.client("conductor-1")
        worker = shampoo.client("worker-1", holder="host-7/4242")
        created = conductor.job_create(kind="delivery", payload='{"uri":"example"}', project="shared-ops")
        claim = worker.job_claim(kind="delivery", lease_seconds=300)
        worker.job_complete(job_id=claim.job_id, outcome="completed", result_ref="verdict:1", fence=claim.fence)
        empty = worker.call("job_claim", {"kind": "delivery"})
        with pytest.raises(errors.JobNotFound):
            worker.call("job_release", {"job_id": "…"}, request_id="r-1", fence=3)
        return created, claim, empty, shampoo.history(created.job_id)


async def the_readme_on_asyncio(folder: str) -> tuple[Any, ...]:
    async with AsyncShampoo.connect(f"embedded://{folder}", profile="default") as shampoo:
        await shampoo.registry.add_principal("conductor-1", conductor=True, grants=["shared-ops"])
        await shampoo.registry.add_principal("worker-1", grants=["shared-ops"])
        conductor = shampoo.client("conductor-1")
        worker = shampoo.client("worker-1", holder="host-7/4242")
        created = await conductor.job_create(kind="delivery", payload='{"uri":"example"}', project="shared-ops")
        claim = await worker.job_claim(kind="delivery", lease_seconds=300)
        await worker.job_complete(job_id=claim.job_id, outcome="completed", result_ref="verdict:1", fence=claim.fence)
        empty = await worker.call("job_claim", {"kind": "delivery"})
        with pytest.raises(errors.JobNotFound):
            await worker.call("job_release", {"job_id": "…"}, request_id="r-1", fence=3)
        return created, claim, empty, await shampoo.history(created.job_id)


def test_the_example_of_the_readme_works_twice_on_the_same_folder_in_either_flavour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    seen = []
    for _ in range(2):
        seen += [the_readme("./data"), asyncio.run(the_readme_on_asyncio("./data"))]
    assert (tmp_path / "data" / "appendonlydir").is_dir()
    assert len({created.job_id for created, *_ in seen}) == 4
    for created, claim, empty, events in seen:
        assert (claim.job_id, claim.payload, claim.attempts) == (created.job_id, '{"uri":"example"}', 1)
        assert empty == {"claimed": False}
        assert [event.event for event in events] == ["job.created", "job.claimed", "job.completed"]
        assert events[2].holder == "host-7/4242"


def test_both_flavours_offer_the_same_methods_with_the_same_arguments() -> None:
    for blocking, asynchronous in ((Client, AsyncClient), (Registry, AsyncRegistry), (Ops, AsyncOps)):
        assert surface(blocking) == surface(asynchronous)
        assert all(inspect.iscoroutinefunction(getattr(asynchronous, name)) for name in surface(asynchronous))
        assert not any(inspect.iscoroutinefunction(getattr(blocking, name)) for name in surface(blocking))
    assert surface(Shampoo) == surface(AsyncShampoo)
    assert set(contract.BY_NAME) <= set(surface(Client))
    assert not inspect.iscoroutinefunction(AsyncShampoo.connect)


def surface(kind: type) -> dict[str, list[tuple[str, Any, Any, Any]]]:
    """A class's public methods with their parameters; what they give may differ by being awaited."""
    return {
        name: [(p.name, p.kind, p.default, p.annotation) for p in inspect.signature(method).parameters.values()]
        for name, method in inspect.getmembers(kind, callable)
        if not name.startswith("_")
    }


def test_every_tool_takes_the_arguments_of_its_contract_and_what_may_stand_beside_them() -> None:
    for tool in contract.TOOLS:
        parameters = inspect.signature(getattr(Client, tool.name)).parameters
        beside = set(parameters) - {"self"} - set(tool.arguments.model_fields)
        assert set(tool.arguments.model_fields) <= set(parameters)
        also = {"job_create": {"delay_seconds"}, "job_complete": {"fence"}, "job_release": {"fence"}}
        assert beside == ({"request_id"} if tool.writes else set()) | also.get(tool.name, set())


@TWO
def test_a_delay_stands_beside_the_arguments_in_the_library_and_is_no_argument_of_the_tool(
    queue: Queue, flavour: Flavour
) -> None:
    queue.principal("c", "p", conductor=True)
    client = flavour.open(queue).client("c")
    assert client.job_create(kind="k", project="p", delay_seconds=3600).state == "queued"
    with pytest.raises(errors.InvalidArgument):
        client.call("job_create", {"kind": "k", "project": "p", "delay_seconds": 3600})
    assert not client.job_claim()


def test_connect_is_a_plain_function_and_works_without_a_with_block(queue: Queue, flavour: Flavour) -> None:
    shampoo = flavour.open(queue)
    assert shampoo.registry.add_principal("c", conductor=True, grants=["p"]) is True
    assert shampoo.registry.add_principal("c", conductor=True, grants=["p"]) is False
    assert shampoo.client("c").job_create(kind="k", project="p").state == "queued"


def test_an_asyncio_queue_is_opened_without_a_loop_and_reached_by_its_first_call(queue: Queue) -> None:
    queue.principal("c", "p", conductor=True)
    shampoo = AsyncShampoo.connect(queue.engine.url, profile=queue.profile)
    client = shampoo.client("c")

    async def first_call() -> str:
        created = await client.job_create(kind="k", project="p")
        await shampoo.close()
        return created.job_id

    assert queue.shampoo.ops.job(asyncio.run(first_call())) is not None


@TWO
def test_results_are_typed_and_a_claim_is_true_when_there_is_one(queue: Queue, clock: Clock, flavour: Flavour) -> None:
    queue.principal("c", "p", conductor=True)
    client = flavour.open(queue).client("c", holder="h")
    created = client.job_create(kind="k", payload="x", project="p")
    assert isinstance(created, contract.JobCreateResult)
    claim = client.job_claim(lease_seconds=10)
    assert isinstance(claim, contract.JobClaimResult)
    assert claim
    assert (claim.claimed, claim.job_id, claim.kind, claim.payload) == (True, created.job_id, "k", "x")
    assert (claim.attempts, claim.fence, claim.replayed) == (1, clock.now, False)
    assert claim.lease_until == "2027-01-15T08:00:10.000Z"
    none = client.job_claim()
    assert not none
    assert (none.claimed, none.job_id, none.payload, none.attempts, none.fence) == (False, "", "", 0, None)
    done = client.job_complete(job_id=claim.job_id, outcome="completed", fence=claim.fence)
    assert (done.state, done.idempotent) == ("completed", False)
    again = client.job_complete(job_id=claim.job_id, outcome="completed", fence=claim.fence)
    assert (again.state, again.idempotent, again.replayed) == ("completed", True, True)


@TWO
def test_a_call_by_name_gives_the_very_object_of_the_contract_and_the_rest_beside_it(
    queue: Queue, clock: Clock, flavour: Flavour
) -> None:
    queue.principal("c", "p", conductor=True)
    client = flavour.open(queue).client("c")
    created = client.call("job_create", {"kind": "k", "project": "p"}, request_id="r-1")
    assert dict(created) == {"job_id": created["job_id"], "state": "queued"}
    assert (created.meta.request_id, created.meta.replayed, created.meta.fence) == ("r-1", False, None)
    again = client.call("job_create", {"kind": "k", "project": "p"}, request_id="r-1")
    assert (again, again.meta.replayed) == (created, True)
    claim = client.call("job_claim", {"kind": "k"})
    assert set(claim) == {"claimed", "job_id", "kind", "payload", "lease_until", "attempts"}
    assert claim.meta.fence == clock.now
    assert claim.meta.request_id.startswith("~")
    assert client.call("job_claim") == {"claimed": False}
    done = client.call("job_complete", {"job_id": claim["job_id"], "outcome": "failed"}, fence=claim.meta.fence)
    assert done == {"job_id": claim["job_id"], "state": "failed"}
    again = client.call("job_complete", {"job_id": claim["job_id"], "outcome": "failed"})
    assert (again, again.meta.replayed) == ({"job_id": claim["job_id"], "state": "failed", "idempotent": True}, True)
    assert client.call("lane_list") == {"lanes": [], "count": 0}


@TWO
def test_none_means_not_given_in_and_beside_the_arguments(queue: Queue, flavour: Flavour) -> None:
    queue.principal("c", "p", conductor=True)
    client = flavour.open(queue).client("c", holder=None)
    created = client.job_create(kind="k", lane_id=None, payload=None, project="p", request_id=None)
    claim = client.job_claim(kind=None, lease_seconds=None, request_id=None)
    assert (claim.job_id, claim.payload) == (created.job_id, "")
    client.job_release(job_id=claim.job_id, request_id=None, fence=None)
    claim = client.call("job_claim", None, request_id=None, fence=None, holder=None)
    done = client.job_complete(job_id=claim["job_id"], outcome="completed", result_ref=None, fence=None)
    assert done.state == "completed"
    listed = client.lane_list(limit=None, project=None, quorum_id=None, state=None)
    assert (listed.lanes, listed.count) == ([], 0)


@TWO
def test_a_holder_given_for_one_call_stands_in_the_history_of_that_call_alone(queue: Queue, flavour: Flavour) -> None:
    queue.principal("c", "p", conductor=True)
    client = flavour.open(queue).client("c", holder="process-1")
    assert (client.client_id, client.holder) == ("c", "process-1")
    job_id = client.call("job_create", {"kind": "k", "project": "p"}, holder="conversation-9")["job_id"]
    client.job_claim()
    assert [event["holder"] for event in queue.shampoo.history(job_id)] == ["conversation-9", "process-1"]


@TWO
def test_the_whole_life_of_a_lane_reads_alike_in_either_flavour(queue: Queue, clock: Clock, flavour: Flavour) -> None:
    shampoo = flavour.open(queue, operator="op")
    shampoo.registry.add_principal("c", conductor=True, grants=["p"])
    shampoo.registry.add_principal("w", grants=["p"])
    conductor, worker = shampoo.client("c"), shampoo.client("w")
    quorum = shampoo.registry.open_quorum("p", ["w"])
    task = shampoo.registry.add_task("t")
    lane = conductor.lane_create(quorum_id=quorum, assignee_client_id="w", task_id=task, branch="b")
    assert (lane.project, lane.state) == ("p", "open")
    assert conductor.lane_set_state(lane_id=lane.lane_id, state="in_progress").state == "in_progress"
    assert worker.lane_review(lane_id=lane.lane_id, decision="submit").review_state == "pending"
    assert conductor.lane_review(lane_id=lane.lane_id, decision="approve").review_state == "approved"
    assert conductor.lane_set_state(lane_id=lane.lane_id, state="done").state == "done"
    merged = conductor.lane_merge(lane_id=lane.lane_id, outcome="merged", result_commit="abc123")
    assert merged.merge_state == "merged"
    listed = worker.lane_list(quorum_id=quorum)
    assert (listed.count, listed.lanes[0].lane_id, listed.lanes[0].assignee) == (1, lane.lane_id, "w")
    assert (listed.lanes[0].result_commit, listed.lanes[0].merge_state) == ("abc123", "merged")
    assert (shampoo.ops.lane(lane.lane_id) or {})["branch"] == "b"
    assert [quorum_.participants for quorum_ in shampoo.registry.quorums()] == [("w",)]
    assert [task_.live for task_ in shampoo.registry.tasks()] == [True]
    assert [principal.client_id for principal in shampoo.registry.principals()] == ["c", "w"]
    assert shampoo.history()[0].actor == "op"


@TWO
def test_operators_moves_work_in_either_flavour(queue: Queue, clock: Clock, flavour: Flavour) -> None:
    shampoo = flavour.open(queue, operator="op")
    shampoo.registry.add_principal("c", conductor=True, grants=["p"])
    client = shampoo.client("c")
    job_id = client.job_create(kind="k", payload="x", project="p").job_id
    shampoo.ops.cancel(job_id, "no longer wanted")
    assert (shampoo.ops.job(job_id) or {})["standing"] == "failed"
    shampoo.ops.requeue(job_id)
    assert client.job_claim(lease_seconds=1).job_id == job_id
    clock.advance(1)
    assert shampoo.ops.expire().lapsed == 1
    assert shampoo.ops.payload(job_id) == "x"
    assert shampoo.ops.job("00000000-0000-4000-8000-000000000000") is None
    with pytest.raises(errors.JobNotRequeueable):
        shampoo.ops.requeue(job_id)
    events = shampoo.history(job_id)
    assert [event.event for event in events] == ["job.created", "job.failed", "job.requeued", "job.claimed"]
    assert events[1].reason == "no longer wanted"
    assert [event.id for event in shampoo.history(after=events[0].id, limit=2)] == [events[1].id, events[2].id]


@on("embedded", "redis7", "cluster", "sentinel")
@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="open sockets are counted in /proc")
def test_closing_leaves_no_connection_open(engine: Engine, flavour: Flavour) -> None:
    flavour.runner.run(asyncio.sleep(0))
    before = sockets()
    shampoo = flavour.connect(engine.url, profile="closing")
    shampoo.registry.principals()
    assert sockets() - before
    shampoo.close()
    flavour.runner.run(asyncio.sleep(0))
    assert sockets() - before == set()


def sockets() -> set[str]:
    """The sockets that this process holds open."""
    links = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the descriptor of this very listing
            links.append(str(link.readlink()))
    return {link for link in links if link.startswith("socket:")}


@TWO
def test_a_queue_closed_twice_or_used_by_two_clients_is_no_trouble(queue: Queue, flavour: Flavour) -> None:
    queue.principal("c", "p", conductor=True)
    first, second = flavour.open(queue), flavour.open(queue)
    job_id = first.client("c").job_create(kind="k", project="p").job_id
    first.close()
    first.close()
    assert second.client("c").job_claim().job_id == job_id
