"""Requests and replies get lost, cut, delayed and doubled on their way; every write still happens exactly once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from shampoo_queue.errors import JobAlreadyTerminal, Unavailable
from tests.conftest import REAL
from tests.faults.cases import LIBRARY, OPERATORS, TOOLS, WRITES, Case, Stage, shown
from tests.faults.flavours import Around, Asyncio, Blocking, apart
from tests.faults.proxy import Kind, Proxy
from tests.queue import Clock, Queue

Connect = Callable[..., Blocking | Asyncio]

every_engine = pytest.mark.parametrize("engine", REAL, indirect=True)
one_engine = pytest.mark.parametrize("engine", ["redis7"], indirect=True)
every_write = pytest.mark.parametrize("case", WRITES, ids=lambda case: case.name)

ACTED = (Kind.LOSE_REPLY, Kind.CUT_REPLY, Kind.HOLD_REPLY)


@pytest.fixture
def stage(queue: Queue, clock: Clock) -> Stage:
    return Stage(queue)


@pytest.fixture
def flavour(stage: Stage, proxy: Proxy, connect: Connect) -> Blocking | Asyncio:
    """The library, reaching the server through the proxy, with every script loaded."""
    stage.load_scripts()
    return connect(stage.queue, proxy.url)


def expected(case: Case, stage: Stage, replayed: bool) -> Any:
    """The right answer; a completion says that it is a repeat."""
    answer = case.answer(stage)
    return answer | {"idempotent": True} if replayed and case.tool == "job_complete" else answer


def hold_once(case: Case, stage: Stage, flavour: Blocking | Asyncio, replayed: bool) -> None:
    """Make the write and hold it to one effect and the right answer."""
    before = stage.newest_event()
    answer = case.act(flavour, stage)
    wanted = expected(case, stage, replayed)
    assert stage.events_after(before) == list(case.events)
    assert not stage.queue.problems()
    assert shown(answer, wanted) == wanted
    if case in TOOLS:
        assert answer.meta.replayed is replayed


@every_engine
@every_write
def test_a_write_whose_reply_is_lost_is_done_once_and_answered_right(
    case: Case, stage: Stage, proxy: Proxy, flavour: Blocking | Asyncio
) -> None:
    """Field reports 7 and 8: the reply of a committed move is lost, and the library asks again."""
    case.prepare(stage)
    lost = proxy.plan(Kind.LOSE_REPLY)
    hold_once(case, stage, flavour, replayed=True)
    assert lost.met.is_set()


@one_engine
@pytest.mark.parametrize("kind", [Kind.LOSE_REQUEST, Kind.CUT_REQUEST, Kind.CUT_REPLY], ids=lambda kind: kind.name)
@pytest.mark.parametrize("case", [*TOOLS, *LIBRARY, *OPERATORS], ids=lambda case: case.name)
def test_a_write_cut_anywhere_on_its_way_is_done_once(
    case: Case, kind: Kind, stage: Stage, proxy: Proxy, flavour: Blocking | Asyncio
) -> None:
    """Field reports 7 and 8: the link breaks before the request, in it, or in the reply."""
    case.prepare(stage)
    cut = proxy.plan(kind)
    hold_once(case, stage, flavour, replayed=kind in ACTED)
    assert cut.met.is_set()


@one_engine
@pytest.mark.parametrize("case", TOOLS[:4], ids=lambda case: case.name)
def test_a_reply_later_than_the_timeout_is_asked_for_again(
    case: Case, stage: Stage, proxy: Proxy, connect: Connect
) -> None:
    """Field report 7: the call times out while the server finishes the work; the late reply harms nobody."""
    stage.load_scripts()
    case.prepare(stage)
    flavour = connect(stage.queue, f"{proxy.url}?socket_timeout=0.15")
    late = proxy.plan(Kind.HOLD_REPLY)
    hold_once(case, stage, flavour, replayed=True)
    late.release()
    assert flavour.tool("w", "lane_list")["count"] == 0  # and not the late reply


@one_engine
@pytest.mark.parametrize(("nth", "command"), [(1, "EVALSHA"), (1, "SCRIPT"), (2, "EVALSHA")])
@pytest.mark.parametrize("case", TOOLS[:2], ids=lambda case: case.name)
def test_a_reply_lost_while_a_script_is_loaded_leaves_one_effect(
    case: Case, nth: int, command: str, stage: Stage, proxy: Proxy, connect: Connect
) -> None:
    """Field reports 8 and 13: NOSCRIPT, the loading and the second try each lose their reply."""
    case.prepare(stage)
    flavour = connect(stage.queue, proxy.url)
    stage.queue.command("SCRIPT", "FLUSH")
    lost = proxy.plan(Kind.LOSE_REPLY, nth=nth, command=command)
    hold_once(case, stage, flavour, replayed=nth == 2)
    assert lost.met.is_set()


@one_engine
@every_write
def test_a_copy_that_the_network_held_back_changes_nothing(
    case: Case, stage: Stage, proxy: Proxy, flavour: Blocking | Asyncio
) -> None:
    """Field report 8: the first request arrives after its retry was answered and after later calls."""
    case.prepare(stage)
    stale = proxy.plan(Kind.HOLD_REQUEST)
    case.act(flavour, stage)
    case.later(flavour, stage)
    before = stage.queue.facts()
    assert stale.deliver()
    assert stage.queue.facts() == before


@every_engine
@pytest.mark.parametrize("case", TOOLS, ids=lambda case: case.name)
def test_the_callers_own_retry_learns_what_became_of_the_call(
    case: Case, stage: Stage, proxy: Proxy, connect: Connect
) -> None:
    """Field reports 7 and 8: no retry in the library; the error carries the request id to ask again with."""
    stage.load_scripts()
    case.prepare(stage)
    flavour = connect(stage.queue, proxy.url, retry_seconds=0)
    before = stage.newest_event()
    proxy.plan(Kind.LOSE_REPLY)
    with pytest.raises(Unavailable) as lost:
        case.act(flavour, stage)
    assert (lost.value.outcome_unknown, lost.value.retryable) == (True, True)
    given = lost.value.request_id
    assert given
    answer = case.act(Under(flavour, given), stage)
    wanted = expected(case, stage, replayed=True)
    assert shown(answer, wanted) == wanted
    assert (answer.meta.request_id, answer.meta.replayed) == (given, True)
    assert stage.events_after(before) == list(case.events)


class Under(Around):
    """A flavour whose tool calls go out under a request id."""

    def __init__(self, flavour: Blocking | Asyncio, request_id: str) -> None:
        super().__init__(flavour)
        self._request_id = request_id

    def tool(self, client_id: str, name: str, **given: Any) -> Any:
        return super().tool(client_id, name, request_id=self._request_id, **given)


@one_engine
def test_a_call_that_was_never_sent_says_that_nothing_happened(stage: Stage, proxy: Proxy, connect: Connect) -> None:
    """Field report 7: an outcome is unknown only when the request may have left."""
    flavour = connect(stage.queue, proxy.url, retry_seconds=0)
    proxy.close()
    with pytest.raises(Unavailable) as cut:
        flavour.tool("c", "job_create", kind="k", project="p")  # on a connection that was open
    with pytest.raises(Unavailable) as refused:
        flavour.tool("c", "job_create", kind="k", project="p")  # and now none can be opened
    assert cut.value.retryable
    assert (refused.value.retryable, refused.value.outcome_unknown) == (True, False)


# Cancelled and timed-out calls ----------------------------------------------------------------------------------


@pytest.fixture
def patient(stage: Stage, proxy: Proxy) -> Iterator[Asyncio]:
    """The asyncio library through the proxy."""
    stage.load_scripts()
    flavour = Asyncio(stage.queue, proxy.url)
    yield flavour
    flavour.close()


class GivenUp(Around):
    """Give each call up once a fault is in effect, by cancelling it or by a timeout; answer with the fault."""

    def __init__(self, flavour: Asyncio, proxy: Proxy, kind: Kind, how: str = "cancel") -> None:
        super().__init__(flavour)
        self._patient, self._proxy, self._kind, self._how = flavour, proxy, kind, how

    def tool(self, client_id: str, name: str, **given: Any) -> Any:
        arguments, beside = apart(given)
        fault = self._proxy.plan(self._kind)

        async def give_up() -> None:
            call = asyncio.ensure_future(self._patient.client(client_id).call(name, arguments, **beside))
            await asyncio.to_thread(fault.await_met)
            if self._how == "cancel":
                call.cancel()
            with pytest.raises((asyncio.CancelledError, TimeoutError)):
                await asyncio.wait_for(call, 0.01)

        self._patient.run(give_up)
        return fault


@every_engine
@pytest.mark.parametrize("how", ["cancel", "timeout"])
@pytest.mark.parametrize("kind", [Kind.HOLD_REPLY, Kind.SWALLOW], ids=lambda kind: kind.name)
def test_a_create_given_up_and_retried_under_its_request_id_makes_one_job(
    how: str, kind: Kind, stage: Stage, proxy: Proxy, patient: Asyncio
) -> None:
    """Field report 7: a cancelled or timed-out create leaves nothing or one whole job, and the retry finds it."""
    job = {"kind": "k", "project": "p", "payload": "x", "request_id": "mine"}
    fault = GivenUp(patient, proxy, kind, how).tool("c", "job_create", **job)
    acted = kind is Kind.HOLD_REPLY
    assert stage.queue.events().count("job.created") == acted
    assert not stage.queue.problems()
    again = patient.tool("c", "job_create", **job)
    assert again.meta.replayed is acted
    if not acted:
        fault.deliver()
    fault.release()
    assert stage.queue.events().count("job.created") == 1
    assert patient.tool("w", "job_claim")["job_id"] == again["job_id"]
    assert patient.tool("w", "job_claim") == {"claimed": False}


@one_engine
@pytest.mark.parametrize("case", TOOLS, ids=lambda case: case.name)
def test_a_cancelled_write_is_whole_and_the_next_call_gets_its_own_answer(
    case: Case, stage: Stage, proxy: Proxy, patient: Asyncio
) -> None:
    """Field report 7: cancelling after the request left leaves neither half a move nor a reply for the next call."""
    case.prepare(stage)
    before = stage.newest_event()
    fault = case.act(GivenUp(patient, proxy, Kind.HOLD_REPLY), stage)
    fault.release()
    assert set(patient.tool("w", "lane_list")) == {"lanes", "count"}
    assert stage.events_after(before) == list(case.events)
    assert not stage.queue.problems()


# Repeats of a completion ----------------------------------------------------------------------------------------


@every_engine
def test_a_completion_may_be_repeated_at_any_time_by_its_owner_and_by_a_conductor(stage: Stage, clock: Clock) -> None:
    """Field report 8: a repeat is no error, no event and no change; only the other outcome is refused."""
    stage.claimed()
    worker, conductor = stage.worker, stage.conductor
    done = {"job_id": stage.job, "outcome": "completed"}
    assert worker.call("job_complete", done | {"result_ref": "first"}) == {"job_id": stage.job, "state": "completed"}
    before = stage.queue.facts()
    again = {"job_id": stage.job, "state": "completed", "idempotent": True}
    assert worker.call("job_complete", done) == again
    assert worker.call("job_complete", done | {"result_ref": "second"}) == again
    assert conductor.call("job_complete", done) == again
    assert worker.call("job_complete", done, fence=stage.fence) == again
    for client in (worker, conductor):
        with pytest.raises(JobAlreadyTerminal):
            client.job_complete(job_id=stage.job, outcome="failed")
    assert stage.queue.facts() == before
    clock.advance(3600)
    before = stage.queue.facts()
    assert worker.call("job_complete", done) == again
    assert stage.queue.facts() == before


@every_engine
def test_of_fifty_completions_at_once_one_is_the_first(stage: Stage) -> None:
    """Field report 8: one answer without the idempotent mark, one event."""
    stage.claimed()

    def complete(_: int) -> bool:
        return stage.worker.job_complete(job_id=stage.job, outcome="completed", result_ref="r").idempotent

    with ThreadPoolExecutor(10) as pool:
        marks = list(pool.map(complete, range(50)))
    assert marks.count(False) == 1
    assert stage.queue.events(stage.job) == ["job.created", "job.claimed", "job.completed"]
