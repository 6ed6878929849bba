"""The server's memory or disk is full: new work is refused whole, and the backlog still drains."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from shampoo_queue import scripts
from shampoo_queue.errors import Internal, Unavailable
from tests.conftest import REAL
from tests.faults.cases import TOOLS, WRITES, Case, Stage
from tests.faults.conftest import Open, Start
from tests.faults.flavours import Asyncio, Blocking
from tests.queue import Clock, Queue
from tests.servers import Server, wait_until

Connect = Callable[..., Blocking | Asyncio]

GROWING = ("job_create", "lane_create", "add_principal", "grant", "open_quorum", "add_participant", "add_task")
DRAINING = (
    *("job_claim", "job_complete", "job_release", "cancel", "limit_kind"),
    *("renew", "release", "fail", "complete"),
    *("revoke", "set_conductor", "disable_principal", "close_quorum", "remove_participant", "close_task"),
)


@pytest.fixture
def server(start: Start) -> Server:
    return start("--maxmemory-policy", "noeviction")


def fill(server: Server) -> None:
    """Set the limit just under what is in use, the buffers of a few connections aside."""
    server.call("CONFIG", "SET", "maxmemory", int(server.call("INFO", "memory")["used_memory"]) - 200_000)


def make_room(server: Server) -> None:
    server.call("CONFIG", "SET", "maxmemory", 0)


@pytest.mark.parametrize("case", [case for case in WRITES if case.tool in GROWING], ids=lambda case: case.name)
def test_at_the_limit_new_work_is_refused_by_name_and_leaves_nothing(
    case: Case, server: Server, opened: Open, connect: Connect
) -> None:
    """Field report 17: the refusal names the memory, is retryable, and nothing was written."""
    stage = Stage(opened(server.url))
    flavour = connect(stage.queue, server.url)
    case.prepare(stage)
    before = stage.queue.facts()
    fill(server)
    with pytest.raises(Unavailable, match="out of memory") as refused:
        case.act(flavour, stage)
    assert (refused.value.retryable, refused.value.outcome_unknown) == (True, False)
    assert stage.queue.facts() == before
    make_room(server)
    case.act(flavour, stage)
    assert stage.queue.facts() != before


@pytest.mark.parametrize("case", [case for case in WRITES if case.tool in DRAINING], ids=lambda case: case.name)
def test_at_the_limit_what_drains_and_what_protects_goes_on(
    case: Case, server: Server, opened: Open, connect: Connect
) -> None:
    """Field report 17: claim, complete, release, cancel, revoke, disable and close are never held up."""
    stage = Stage(opened(server.url))
    flavour = connect(stage.queue, server.url)
    case.prepare(stage)
    number = stage.newest_event()
    fill(server)
    case.act(flavour, stage)
    assert stage.events_after(number) == list(case.events)


def test_at_the_limit_a_whole_backlog_is_worked_off(server: Server, opened: Open, connect: Connect) -> None:
    """Field report 17: two hundred jobs, some released, some lapsed, some failed, go through on no free memory."""
    queue = opened(server.url)
    stage, clock = Stage(queue), queue.stop_clock()
    flavour = connect(queue, server.url)
    jobs = queue.create(stage.conductor, 200, project="p", payload="x" * 500)
    lapsing = {stage.worker.job_claim(lease_seconds=1).job_id for _ in range(20)}
    clock.advance(2)
    fill(server)
    done: dict[str, str] = {}
    while (claim := flavour.tool("w", "job_claim"))["claimed"]:
        number = len(done)
        if number % 10 == 5 and claim["attempts"] == 1:
            flavour.tool("w", "job_release", job_id=claim["job_id"])
            continue
        outcome = "failed" if number % 7 == 0 else "completed"
        flavour.tool("w", "job_complete", job_id=claim["job_id"], outcome=outcome, result_ref="r", fence=None)
        done[claim["job_id"]] = outcome
        with pytest.raises(Unavailable):
            flavour.tool("c", "job_create", kind="k", project="p")
    assert set(done) == set(jobs)
    assert lapsing <= set(done)
    assert flavour.ops("expire").put_back == 0


@pytest.mark.parametrize("margin", range(0, 3_200_000, 400_000))
def test_a_large_create_near_the_limit_is_whole_or_nothing(margin: int, server: Server, opened: Open) -> None:
    """Field report 17: the limit is crossed between any two writes of the script, which then goes on."""
    stage = Stage(opened(server.url))
    stage.load_scripts()
    before = stage.queue.facts()
    server.call("CONFIG", "SET", "maxmemory", int(server.call("INFO", "memory")["used_memory"]) + margin)
    created = None
    with suppress(Unavailable):
        created = stage.conductor.job_create(kind="k", project="p", payload="x" * 1_000_000).job_id
    make_room(server)
    assert not stage.queue.problems()
    if created is None:
        assert stage.queue.facts() == before
    else:
        assert stage.worker.job_claim().job_id == created


def test_a_disk_that_takes_nothing_is_named_and_nothing_is_written(
    start: Start, opened: Open, connect: Connect
) -> None:
    """Field report 17: MISCONF, after a snapshot failed, is storage pressure too and not a fault of the call."""
    server = start("--save", "3600 1", "--stop-writes-on-bgsave-error", "yes")
    stage = Stage(opened(server.url))
    flavour = connect(stage.queue, server.url)
    before = stage.queue.facts()
    in_the_way = server.folder / "dump.rdb"
    in_the_way.mkdir()
    server.call("BGSAVE")
    wait_until(lambda: server.call("INFO", "persistence")["rdb_last_bgsave_status"] == "err", "the snapshot fails")
    for case in TOOLS[:5]:
        with pytest.raises(Unavailable, match="cannot save to disk") as refused:
            case.act(flavour, stage)
        assert (refused.value.retryable, refused.value.outcome_unknown) == (True, False)
    assert stage.queue.facts() == before
    in_the_way.rmdir()
    server.call("BGSAVE")
    wait_until(lambda: server.call("INFO", "persistence")["rdb_last_bgsave_status"] == "ok", "the snapshot is made")
    assert flavour.tool("c", "job_create", kind="k", project="p")["state"] == "queued"


# A command that fails inside a script ---------------------------------------------------------------------------

FAULTY = """
local FAULT, writes, real = tonumber(redis.call('GET', P .. 'test-fault') or '0'), 0, redis
local READS = { GET = 1, HGET = 1, HMGET = 1, HGETALL = 1, HLEN = 1, HEXISTS = 1, EXISTS = 1, ZRANGE = 1, ZSCORE = 1,
  ZCOUNT = 1, XRANGE = 1, TIME = 1 }
local redis = setmetatable({ call = function(command, ...)
  if not READS[command] then
    writes = writes + 1
    if writes == FAULT then error('a write that fails') end
  end
  return real.call(command, ...)
end }, { __index = real })
"""


@pytest.fixture
def fail_at(queue: Queue, clock: Clock, tmp_path: Path) -> Callable[[int], Any]:
    """Let the nth write of every script from now on fail; 0 for none."""
    shutil.copytree(queue.shampoo._wire._lua or scripts.folder(), tmp_path / "faulty")
    file = tmp_path / "faulty" / "_clock.lua"
    file.write_text(FAULTY + file.read_text())
    queue.shampoo._wire._lua = tmp_path / "faulty"
    key = queue.key("test-fault")
    return lambda n: queue.command("SET", key, n) if n else queue.command("DEL", key)


@pytest.mark.parametrize("engine", REAL, indirect=True)
@pytest.mark.parametrize("case", WRITES, ids=lambda case: case.name)
def test_a_first_write_that_fails_leaves_nothing(
    case: Case, queue: Queue, fail_at: Callable[[int], Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Field report 17: what alone can refuse, at the limit or for a missing right, is the first write of a script."""
    stage = Stage(queue)
    case.prepare(stage)
    before = queue.facts()
    fail_at(1)
    with pytest.raises(Internal) as failed:
        case.act(Blocking(queue, queue.engine.url), stage)
    fail_at(0)
    assert queue.facts() == before
    assert "a write that fails" in caplog.text
    assert "write" not in failed.value.message


@pytest.mark.parametrize("engine", REAL, indirect=True)
@pytest.mark.parametrize("case", [case for case in WRITES if case.events], ids=lambda case: case.name)
def test_the_event_is_written_before_anything_that_it_tells_of(
    case: Case, queue: Queue, fail_at: Callable[[int], Any]
) -> None:
    """Field report 17: where the feed refuses an event, as it would one whose number is not above the last, the
    move is not made; only the counter of events has risen."""
    stage = Stage(queue)
    case.prepare(stage)
    before = queue.facts()
    number = stage.newest_event()
    fail_at(2)
    with pytest.raises(Internal):
        case.act(Blocking(queue, queue.engine.url), stage)
    fail_at(0)
    counted = stage.newest_event()
    assert counted > number
    queue.command("HSET", queue.key("profile"), "seq", number)
    assert queue.facts() == before
