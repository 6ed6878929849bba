"""One client in many threads, and what becomes of it in the children of a process."""

from __future__ import annotations

import asyncio
import gc
import json
import multiprocessing
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import pytest

from shampoo_queue import AsyncShampoo, Client, Shampoo
from shampoo_queue.moves import Command, Operation
from tests.library.flavours import FIVE, REAL, REDIS7, THREE
from tests.queue import Queue

CHILDREN = 8
CALLS = 12
PATIENCE = 60  # seconds after which a child gives up for good


@dataclass
class Report:
    """What one process saw: the payloads it claimed, who it was, and on which connection it spoke."""

    payloads: list[str] = field(default_factory=list)
    job_ids: list[str] = field(default_factory=list)
    holder: str = ""
    connection: int = 0
    error: str = ""


def connection_id() -> Operation[int]:
    """Ask the server which connection this is."""
    return int((yield Command(("CLIENT", "ID"))))


def work(shampoo: Shampoo, client: Client, name: str) -> Report:
    """Create and claim jobs of a kind of this process's own; every reply must be about that kind."""
    report = Report(holder=client.holder, connection=shampoo._wire.run(connection_id()))
    for n in range(CALLS):
        report.job_ids.append(client.job_create(kind=name, payload=f"{name}:{n}", project="p").job_id)
        claim = client.job_claim(kind=name)
        report.payloads.append(claim.payload)
        client.job_complete(job_id=claim.job_id, outcome="completed", result_ref=name, fence=claim.fence)
    return report


async def work_on_asyncio(shampoo: AsyncShampoo, name: str) -> Report:
    """The same through an asyncio client that may have been made, and used, before a fork."""
    client = shampoo.client("c")
    report = Report(holder=client.holder)
    for n in range(CALLS):
        report.job_ids.append((await client.job_create(kind=name, payload=f"{name}:{n}", project="p")).job_id)
        claim = await client.job_claim(kind=name)
        report.payloads.append(claim.payload)
        await client.job_complete(job_id=claim.job_id, outcome="completed", result_ref=name, fence=claim.fence)
    return report


def expected(name: str) -> list[str]:
    return [f"{name}:{n}" for n in range(CALLS)]


class Forked:
    """Children of `os.fork` that begin together when told to; each hands its report back through a pipe."""

    def __init__(self, tasks: dict[str, Callable[[], Report]]) -> None:
        self._gate, opener = os.pipe()
        self.children = {name: self._fork(task, opener) for name, task in tasks.items()}
        os.close(self._gate)
        self._opener = opener

    def _fork(self, task: Callable[[], Report], opener: int) -> tuple[int, int]:
        reader, writer = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of threads in the parent
            pid = os.fork()
        if pid:
            os.close(writer)
            return pid, reader
        try:
            signal.alarm(PATIENCE)
            os.close(opener)
            os.read(self._gate, 1)
            try:
                report = task()
            except BaseException as error:
                report = Report(error=repr(error))
            with os.fdopen(writer, "w") as out:
                json.dump(asdict(report), out)
        finally:
            os._exit(0)

    def begin(self) -> None:
        os.close(self._opener)

    def reports(self) -> dict[str, Report]:
        found = {}
        for name, (pid, reader) in self.children.items():
            with os.fdopen(reader) as out:
                found[name] = Report(**json.loads(out.read() or '{"error": "no report"}'))
            os.waitpid(pid, 0)
        return found


def check(reports: dict[str, Report], queue: Queue) -> None:
    """No foreign reply, and identities, connections and request ids of one process each."""
    for name, report in reports.items():
        assert not report.error, (name, report.error)
        assert report.payloads == expected(name)
    assert len({report.holder for report in reports.values()}) == len(reports)
    clients: dict[str, set[str]] = {}
    for name, report in reports.items():
        for job_id in report.job_ids:
            events = queue.shampoo.history(job_id)
            assert {event["holder"] for event in events} == {report.holder}
            clients.setdefault(name, set()).update(event["request_id"].split(".")[0] for event in events)
    for name, own in clients.items():
        others = set().union(*(ids for other, ids in clients.items() if other != name))
        assert not own & others


@THREE
def test_eight_threads_share_a_client_and_each_gets_its_own_replies(queue: Queue) -> None:
    client = queue.principal("c", "p", conductor=True)
    barrier = threading.Barrier(CHILDREN)

    def one(n: int) -> list[str]:
        barrier.wait(10)
        payloads = []
        for i in range(CALLS):
            created = client.job_create(kind=f"k{n}", payload=f"k{n}:{i}", project="p")
            claim = client.job_claim(kind=f"k{n}")
            assert claim.job_id == created.job_id
            assert claim.request_id != created.request_id
            done = client.job_complete(job_id=claim.job_id, outcome="completed", fence=claim.fence)
            assert done.job_id == claim.job_id
            payloads.append(claim.payload)
        return payloads

    with ThreadPoolExecutor(CHILDREN) as pool:
        assert list(pool.map(one, range(CHILDREN))) == [expected(f"k{n}") for n in range(CHILDREN)]
    ids = [event["request_id"] for event in queue.shampoo.history(limit=1000)]
    assert len(set(ids)) == len(ids) - 1  # adding a principal with one grant is one move and two events


@pytest.fixture
def heartbeat(queue: Queue) -> Iterator[threading.Event]:
    """A thread that lists lanes in the parent all the while, as one that renews leases would."""
    client = queue.principal("beating", "p")
    over, failed = threading.Event(), threading.Event()

    def beat() -> None:
        while not over.wait(0.001):
            if client.lane_list().count != 0:
                failed.set()

    thread = threading.Thread(target=beat)
    thread.start()
    yield failed
    over.set()
    thread.join()


@REAL
def test_forked_children_call_beside_their_parent_and_nobody_gets_a_foreign_reply(
    queue: Queue, heartbeat: threading.Event
) -> None:
    """Field report 29: the client was used before the fork, and a thread of the parent goes on using it."""
    client = queue.principal("c", "p", conductor=True, holder=None)
    client.lane_list()
    names = [f"child-{n}" for n in range(CHILDREN)]
    children = Forked({name: partial(work, queue.shampoo, client, name) for name in names})
    children.begin()
    mine = work(queue.shampoo, client, "parent")
    reports = children.reports()
    check({"parent": mine, **reports}, queue)
    assert len({report.connection for report in (mine, *reports.values())}) == CHILDREN + 1
    assert not heartbeat.is_set()
    assert work(queue.shampoo, client, "parent").payloads == expected("parent")


@REDIS7
def test_a_child_carries_a_holder_of_its_own_even_where_one_was_given(queue: Queue) -> None:
    """Field report 29: two processes are never one holder in history, and the name stays within its limit."""
    client = queue.principal("c", "p", conductor=True, holder="h" * 128)
    children = Forked({"child": partial(work, queue.shampoo, client, "child")})
    children.begin()
    report = children.reports()["child"]
    assert not report.error
    assert (report.holder != client.holder, len(report.holder) <= 128) == (True, True)
    assert report.holder.endswith(f"+{children.children['child'][0]}")
    assert {event["holder"] for event in queue.shampoo.history(report.job_ids[0])} == {report.holder}


def in_a_loop_of_its_own(shampoo: AsyncShampoo, name: str) -> Report:
    """Work in a child as a program would: its warnings are no errors, and the garbage collector runs."""
    warnings.simplefilter("ignore", ResourceWarning)
    report = asyncio.run(work_on_asyncio(shampoo, name))
    gc.collect()
    return report


@REAL
def test_an_asyncio_client_used_before_a_fork_is_rebuilt_in_the_children(queue: Queue) -> None:
    """Field report 29: children run loops of their own, and the parent's loop hears all its replies as before."""
    queue.principal("c", "p", conductor=True)
    shampoo = AsyncShampoo.connect(queue.engine.url, profile=queue.profile, retry_seconds=0)
    names = [f"child-{n}" for n in range(4)]

    async def parent() -> Report:
        children.begin()
        return await work_on_asyncio(shampoo, "parent")

    with asyncio.Runner() as runner:
        runner.run(work_on_asyncio(shampoo, "before"))
        children = Forked({name: partial(in_a_loop_of_its_own, shampoo, name) for name in names})
        mine = runner.run(parent())
        check({"parent": mine, **children.reports()}, queue)
        assert runner.run(work_on_asyncio(shampoo, "after")).payloads == expected("after")
        runner.run(shampoo.close())


@contextmanager
def loops_that_end_unclosed() -> Iterator[None]:
    """Bear with the garbage collector, which says of each connection that its loop ended before it was closed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield
        gc.collect()


@FIVE
def test_an_asyncio_client_works_in_a_second_event_loop(queue: Queue) -> None:
    """Field report 28: each loop gets connections of its own; those of a closed loop are not touched again."""
    queue.principal("c", "p", conductor=True)
    with loops_that_end_unclosed():
        shampoo = AsyncShampoo.connect(queue.engine.url, profile=queue.profile)
        for n in range(3):
            assert asyncio.run(work_on_asyncio(shampoo, f"loop-{n}")).payloads == expected(f"loop-{n}")
        asyncio.run(shampoo.close())


@FIVE
def test_an_asyncio_client_is_shared_by_two_threads_with_a_loop_each(queue: Queue) -> None:
    """Field report 29: safe to share between threads is what its documentation says."""
    queue.principal("c", "p", conductor=True)
    barrier = threading.Barrier(2)
    seen: dict[str, Report] = {}

    def one(name: str) -> None:
        barrier.wait(10)
        try:
            seen[name] = asyncio.run(asyncio.wait_for(work_on_asyncio(shampoo, name), 10))
        except Exception as error:
            seen[name] = Report(error=repr(error))

    with loops_that_end_unclosed():
        shampoo = AsyncShampoo.connect(queue.engine.url, profile=queue.profile)
        threads = [threading.Thread(target=one, args=(name,), daemon=True) for name in ("left", "right")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(12)
        assert {name: report.error or report.payloads for name, report in seen.items()} == {
            "left": expected("left"),
            "right": expected("right"),
        }
        asyncio.run(shampoo.close())


def child(url: str, profile: str, name: str, start: Any, results: Any) -> None:
    """What a child of `multiprocessing` does: open the queue, wait for the others, work."""
    signal.alarm(PATIENCE)
    try:
        with Shampoo.connect(url, profile=profile) as shampoo:
            client = shampoo.client("c")
            start.wait(PATIENCE)
            results.put((name, asdict(work(shampoo, client, name))))
    except BaseException as error:
        results.put((name, asdict(Report(error=repr(error)))))


@contextmanager
def started(processes: list[Any]) -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for process in processes:
            process.start()
    try:
        yield
    finally:
        for process in processes:
            process.join(PATIENCE)
            process.kill()


def by_multiprocessing(queue: Queue, method: str, count: int) -> None:
    client = queue.principal("c", "p", conductor=True, holder=None)
    client.lane_list()
    context: Any = multiprocessing.get_context(method)
    if method == "forkserver":
        context.set_forkserver_preload(["shampoo_queue"])
    start, results = context.Barrier(count + 1), context.Queue()
    names = [f"{method}-{n}" for n in range(count)]
    arguments = (queue.engine.url, queue.profile)
    with started([context.Process(target=child, args=(*arguments, name, start, results)) for name in names]):
        start.wait(PATIENCE)
        mine = work(queue.shampoo, client, "parent")
        reports = {name: Report(**report) for name, report in (results.get(timeout=PATIENCE) for _ in names)}
    check({"parent": mine, **reports}, queue)
    assert len({report.connection for report in (mine, *reports.values())}) == count + 1


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
@REDIS7
def test_children_of_multiprocessing_call_beside_their_parent(queue: Queue, method: str) -> None:
    """Field report 29: two children of each start method."""
    by_multiprocessing(queue, method, 2)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
@REAL
def test_eight_children_of_multiprocessing_call_beside_their_parent(queue: Queue, method: str) -> None:
    """Field report 29: eight children of each start method, on each kind of server."""
    by_multiprocessing(queue, method, CHILDREN)
