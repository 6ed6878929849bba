"""The server changes its role, falls over or loses its last moments; what is left is a legal state, and calls go on."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from shampoo_queue.errors import JobNotClaimed, JobNotFound, LeaseExpired, Unavailable
from tests.faults.cases import TOOLS, Case, Stage, call_every_tool, clear, shown
from tests.faults.conftest import Open, Start, closing_all_of
from tests.faults.flavours import Asyncio, Blocking
from tests.faults.proxy import Kind, Proxy
from tests.queue import Clock, Engine, Queue
from tests.servers import HOST, SentinelTrio, Server, free_port, wait_until

Connect = Callable[..., Blocking | Asyncio]


def follow(replica: Server, primary: Server) -> None:
    """Make one server the replica of another, and wait until it has what the other has now."""
    replica.call("REPLICAOF", HOST, primary.port)
    await_replica(replica, primary)


def await_replica(replica: Server, primary: Server) -> None:
    reached = primary.call("INFO", "replication")["master_repl_offset"]

    def caught_up() -> bool:
        info = replica.call("INFO", "replication")
        return bool(info.get("master_link_status") == "up" and info["slave_repl_offset"] >= reached)

    wait_until(caught_up, "the replica has caught up")


# The role changes -----------------------------------------------------------------------------------------------


def demote(server: Server, other: Server) -> None:
    """Make a primary the replica of another server, which has the same data and takes over."""
    follow(other, server)
    other.call("REPLICAOF", "NO", "ONE")
    follow(server, other)


def test_every_tool_works_again_after_its_server_was_a_replica_for_a_while(
    start: Start, opened: Open, connect: Connect
) -> None:
    """Field report 22: a plain address made a replica by REPLICAOF and back; READONLY is a retryable refusal."""
    server, other = start(), start()
    queue = opened(server.url)
    queue.stop_clock()
    stage, flavour = Stage(queue), connect(queue, server.url, retry_seconds=0)
    call_every_tool(flavour, stage)
    demote(server, other)
    for case in TOOLS:
        with pytest.raises(Unavailable, match="takes no writes") as refused:
            case.act(flavour, stage)
        assert (refused.value.retryable, refused.value.outcome_unknown) == (True, False)
    server.call("REPLICAOF", "NO", "ONE")
    call_every_tool(flavour, stage)


@pytest.mark.parametrize("binary", ["redis"], indirect=True)
def test_a_call_waits_until_its_server_is_a_primary_again(start: Start, opened: Open, connect: Connect) -> None:
    """Field report 22: within the retry time the caller notices nothing but the delay."""
    server, other = start(), start()
    stage = Stage(opened(server.url))
    flavour = connect(stage.queue, server.url, retry_seconds=20)
    stage.queued()
    demote(server, other)
    promotion = threading.Timer(0.3, lambda: server.call("REPLICAOF", "NO", "ONE"))
    promotion.start()
    assert flavour.tool("w", "job_claim")["job_id"] == stage.job
    promotion.join()


def fail_over(trio: SentinelTrio) -> Server:
    """Let the roles be swapped with nothing lost, and give the old primary once it follows the new one.

    Until it does it still takes writes, from whoever has not heard, which are lost when it follows: a window that
    only ``min-replicas-to-write`` narrows. The sentinels would make it follow, but only seconds later.
    """
    await_replica(trio.replica, trio.primary)
    old = trio.primary
    trio.failover()
    follow(old, trio.primary)
    return old


def test_ten_pooled_connections_find_the_new_primary(trio: SentinelTrio, opened: Open) -> None:
    """Field report 22: SENTINEL FAILOVER while the old primary stays up; no call fails, no process restarts."""
    queue = opened(trio.url)
    stage = Stage(queue)
    shampoo = queue.connect(retry_seconds=20)
    conductor = shampoo.client("c", holder="h")
    meet = threading.Barrier(10)

    def create(_: int) -> str:
        meet.wait(10)
        return conductor.job_create(kind="k", project="p").job_id

    with ThreadPoolExecutor(10) as pool:
        before = list(pool.map(create, range(10)))
        assert fail_over(trio).running
        after = list(pool.map(create, range(10)))
    shampoo.close()
    assert {stage.worker.job_claim().job_id for _ in range(20)} == {*before, *after}


def test_without_retries_a_connection_fails_at_most_once_after_a_failover(
    trio: SentinelTrio, opened: Open, connect: Connect
) -> None:
    """Field report 22: the first call may find the old primary; every call after it works."""
    queue = opened(trio.url)
    queue.stop_clock()
    stage, flavour = Stage(queue), connect(queue, trio.url, retry_seconds=0)
    flavour.tool("c", "lane_list")
    fail_over(trio)
    job = {"kind": "k", "project": "p", "request_id": "mine"}
    with suppress(Unavailable):
        flavour.tool("c", "job_create", **job)
    flavour.tool("c", "job_create", **job)
    assert queue.events().count("job.created") == 1
    clear(stage)
    call_every_tool(flavour, stage)


def test_closing_leaves_no_connection_to_servers_and_sentinels(
    trio: SentinelTrio, opened: Open, connect: Connect
) -> None:
    """Field report 22: a process that reconnects for weeks must not gather sockets."""
    queue = opened(trio.url)
    queue.principal("c", "p", conductor=True)
    with closing_all_of(trio.servers):
        flavour = connect(queue, trio.url)
        flavour.tool("c", "lane_list")
        flavour.close()


# States in which a server refuses for a while -------------------------------------------------------------------


def without_replicas(server: Server) -> Callable[[], object]:
    server.call("CONFIG", "SET", "min-replicas-to-write", "1")
    return lambda: server.call("CONFIG", "SET", "min-replicas-to-write", "0")


def without_primary(server: Server) -> Callable[[], object]:
    server.call("CONFIG", "SET", "replica-serve-stale-data", "no")
    server.call("REPLICAOF", HOST, free_port())
    return lambda: server.call("REPLICAOF", "NO", "ONE")


@pytest.mark.parametrize(
    ("disturb", "writes", "reads"),
    [
        (without_replicas, "too few replicas", None),
        (without_primary, "takes no writes", "has lost its primary"),
    ],
)
def test_a_server_that_may_not_serve_refuses_retryably_and_then_goes_on(
    disturb: Callable[[Server], Callable[[], object]],
    writes: str,
    reads: str | None,
    start: Start,
    opened: Open,
    connect: Connect,
) -> None:
    """Field report 22: NOREPLICAS and MASTERDOWN say that nothing was done, and need no new client."""
    server = start()
    stage = Stage(opened(server.url))
    flavour = connect(stage.queue, server.url, retry_seconds=0)
    stage.claimed()
    before = stage.queue.facts()
    mend = disturb(server)
    try:
        for case in TOOLS:
            with pytest.raises(Unavailable, match=writes) as refused:
                case.act(flavour, stage)
            assert (refused.value.retryable, refused.value.outcome_unknown) == (True, False)
        if reads:
            with pytest.raises(Unavailable, match=reads):
                flavour.tool("w", "lane_list")
        else:
            assert flavour.tool("w", "lane_list")["count"] == 0
    finally:
        mend()
    assert stage.queue.facts() == before
    assert flavour.tool("w", "job_complete", job_id=stage.job, outcome="completed")["state"] == "completed"


@pytest.mark.parametrize("binary", ["redis"], indirect=True)
def test_a_call_waits_until_a_server_has_loaded_its_data(start: Start, opened: Open, connect: Connect) -> None:
    """Field report 22: LOADING is a retryable refusal; within the retry time it is only a delay."""
    slow = ("--key-load-delay", "2000", "--loading-process-events-interval-bytes", "1024")
    server = start("--appendonly", "no", *slow)
    stage = Stage(opened(server.url))
    stage.queued()
    hasty = connect(stage.queue, server.url, retry_seconds=0)
    patient = connect(stage.queue, server.url, retry_seconds=20)
    server.call("EVAL", "for n = 1, 400 do redis.call('SET', 'other:' .. n, ('x'):rep(100)) end", 0)
    server.call("SAVE")
    server.kill()
    starting = threading.Thread(target=server.start)
    starting.start()
    reasons: set[str] = set()
    while starting.is_alive() and not any("loading" in reason for reason in reasons):
        try:
            hasty.tool("c", "lane_list")
        except Unavailable as away:
            reasons.add(away.message if away.retryable else "for good")
    assert patient.tool("w", "job_claim")["job_id"] == stage.job
    starting.join()
    assert any("loading" in reason for reason in reasons)
    assert "for good" not in reasons


# What survives a lost moment ------------------------------------------------------------------------------------


class Pair:
    """A primary behind an address that can move to its replica, and a profile on it."""

    def __init__(self, start: Start) -> None:
        self.primary, self.replica = start(), start()
        self.proxy = Proxy((HOST, self.primary.port))
        self.queue = Queue(Engine("own", self.proxy.url, lambda: None))
        self.clock: Clock = self.queue.stop_clock()
        self.stage = Stage(self.queue)

    def part(self) -> None:
        """Let the replica know all so far, and hear nothing from now on."""
        follow(self.replica, self.primary)
        self.replica.call("REPLICAOF", "NO", "ONE")

    def fall_over(self) -> None:
        """Lose the primary, and let the address lead to the replica."""
        self.proxy.target = (HOST, self.replica.port)
        self.primary.kill()
        self.proxy.cut()
        self.clock.advance(1)  # and the replica's clock goes on from here


@pytest.fixture
def pair(start: Start) -> Iterator[Pair]:
    pair = Pair(start)
    yield pair
    found = pair.queue.problems()
    pair.queue.shampoo.close()
    pair.proxy.close()
    assert not found, "\n".join(found)


def test_a_create_lost_in_a_failover_leaves_no_trace(pair: Pair) -> None:
    """Field report 23: neither job nor index nor event; the next create is as any other."""
    pair.part()
    before = pair.queue.facts()
    lost = pair.stage.conductor.job_create(kind="k", project="p").job_id
    pair.fall_over()
    pair.clock.set(pair.clock.now - 1000)
    assert pair.queue.facts() == before
    assert not pair.stage.worker.job_claim()
    with pytest.raises(JobNotFound):
        pair.stage.worker.job_complete(job_id=lost, outcome="completed")


def test_a_lost_claim_can_be_claimed_at_once_and_its_fence_stays_behind(pair: Pair) -> None:
    """Field report 23: the former owner is refused, before the job is claimed again and after it."""
    stage = pair.stage
    stage.queued()
    pair.part()
    lost = stage.worker.job_claim()
    pair.fall_over()
    with pytest.raises(JobNotClaimed):
        stage.worker.job_complete(job_id=lost.job_id, outcome="completed", fence=lost.fence)
    again = pair.queue.shampoo.client("w2").job_claim()
    assert (again.job_id, again.attempts) == (lost.job_id, 1)
    assert again.fence is not None
    assert lost.fence is not None
    assert again.fence > lost.fence
    for fence in (lost.fence, None):
        with pytest.raises((JobNotClaimed, LeaseExpired)):
            stage.worker.job_complete(job_id=lost.job_id, outcome="completed", fence=fence)
    assert pair.queue.events(lost.job_id) == ["job.created", "job.claimed"]


@pytest.mark.parametrize("lapsed", [False, True])
def test_a_lost_completion_leaves_the_claim_until_its_lease_ends(lapsed: bool, pair: Pair) -> None:
    """Field report 23: the owner may complete again while the lease lives; then the job is claimable."""
    stage = pair.stage
    stage.claimed()
    pair.part()

    def complete() -> bool:
        return stage.worker.job_complete(job_id=stage.job, outcome="completed", result_ref="r").idempotent

    assert not complete()
    pair.fall_over()
    if lapsed:
        pair.clock.advance(60)
        with pytest.raises(LeaseExpired):
            complete()
        assert {stage.worker.job_claim().job_id for _ in range(2)} == {stage.job, stage.other}
    else:
        assert not complete()
        assert pair.queue.events(stage.job).count("job.completed") == 1


def test_a_lost_release_leaves_the_claim_which_can_be_released_again(pair: Pair) -> None:
    """Field report 23: nothing is in limbo."""
    stage = pair.stage
    stage.claimed()
    pair.part()
    stage.worker.job_release(job_id=stage.job)
    pair.fall_over()
    assert stage.worker.job_release(job_id=stage.job).state == "queued"
    claims = {stage.worker.job_claim().job_id for _ in range(2)}
    assert claims == {stage.job, stage.other}


def test_moves_of_a_lane_lost_in_a_failover_can_be_made_again(pair: Pair) -> None:
    """Field report 23: execution, review and merge fall back together to an earlier state."""
    stage = pair.stage
    stage.in_progress()
    pair.part()
    before = pair.queue.shampoo.ops.lane(stage.lane)
    for turn in range(2):
        stage.worker.lane_review(lane_id=stage.lane, decision="submit")
        stage.conductor.lane_review(lane_id=stage.lane, decision="approve")
        stage.conductor.lane_set_state(lane_id=stage.lane, state="done")
        stage.conductor.lane_merge(lane_id=stage.lane, outcome="merged", result_commit="abc")
        if turn == 0:
            pair.fall_over()
            assert pair.queue.shampoo.ops.lane(stage.lane) == before
    assert len(pair.queue.events(stage.lane)) == 6


@pytest.mark.parametrize("binary", ["redis"], indirect=True)
@pytest.mark.parametrize("case", [TOOLS[0], TOOLS[1], TOOLS[5]], ids=lambda case: case.name)
def test_a_call_in_flight_while_the_primary_is_lost_is_made_once_on_the_replica(
    case: Case, pair: Pair, connect: Connect
) -> None:
    """Field report 23: the primary acted, died before its reply arrived, and the replica never heard of it."""
    stage = pair.stage
    case.prepare(stage)
    stage.load_scripts()
    flavour = connect(pair.queue, pair.proxy.url, retry_seconds=20)
    pair.part()
    before = stage.newest_event()
    held = pair.proxy.plan(Kind.HOLD_REPLY)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(case.act, flavour, stage)
        held.await_met()
        pair.fall_over()
        wanted = case.answer(stage)
        assert shown(answer.result(20), wanted) == wanted
    assert stage.events_after(before) == list(case.events)


def test_an_append_only_file_cut_anywhere_leaves_an_earlier_legal_state(start: Start, opened: Open) -> None:
    """Field report 23: power fails within the fsync window, and the last writes are on disk in part."""
    server = start("--appendonly", "yes", "--auto-aof-rewrite-percentage", "0")
    queue = opened(server.url)
    queue.stop_clock()
    call_every_tool(Blocking(queue, server.url), Stage(queue))
    whole = queue.events()
    server.kill()
    (file,) = server.folder.glob("appendonlydir/*.incr.aof")
    content = file.read_bytes()
    lengths = set()
    for cut in sorted(random.Random(23).sample(range(len(content) // 3, len(content)), 12), reverse=True):
        file.write_bytes(content[:cut])
        server.start()
        found = queue.events()
        assert found == whole[: len(found)]
        assert not queue.problems()
        lengths.add(len(found))
        server.kill()
    assert len(lengths) > 6
    server.start()


def test_what_was_answered_before_a_kill_is_still_there_after_it(start: Start, opened: Open) -> None:
    """Field report 23: kill -9 under load, with the usual fsync once a second; every call ends well, and once."""
    server = start("--appendonly", "yes", "--appendfsync", "everysec")
    queue = opened(server.url)
    queue.principal("c", "p", conductor=True)
    shampoo = queue.connect(retry_seconds=20)
    conductor = shampoo.client("c")

    def create(_: int) -> str:
        return conductor.job_create(kind="k", project="p").job_id

    with ThreadPoolExecutor(4) as pool:
        answers = [pool.submit(create, n) for n in range(600)]
        for wait_for in (100, 300):
            answers[wait_for].result(20)
            server.kill()
            server.start()
        created = [answer.result(20) for answer in answers]
    shampoo.close()
    assert len(set(created)) == 600
    assert queue.events().count("job.created") == 600
