"""The text of every script: its head says what it does, refusals stand above writes, and its work is bounded."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from shampoo_queue import contract, scripts
from shampoo_queue.errors import REFUSALS, TOOL_ERRORS
from tests.contract import lua

NAMES = scripts.names()
PIECES = {path.stem[1:]: path.read_text("utf-8") for path in sorted(scripts.folder().glob("_*.lua"))}

# Moves that still run when memory is full, so that a full queue can drain and a caller can be stopped.
DRAINING = {
    "job_cancel",
    "job_claim",
    "job_complete",
    "job_expire",
    "job_release",
    "job_renew",
    "job_wait",
    "kind_limit",
    "principal_revoke",
    "principal_set_conductor",
    "principal_set_standing",
    "quorum_close",
    "quorum_remove_participant",
    "task_close",
    "token_revoke",
}


def body(name: str) -> str:
    return (scripts.folder() / f"{name}.lua").read_text("utf-8")


def move(name: str) -> lua.Move:
    return lua.Move(name, body(name), PIECES)


@pytest.mark.parametrize("name", NAMES)
def test_a_script_is_what_its_head_says(name: str) -> None:
    assert lua.problems(name, body(name), PIECES) == []


def test_every_piece_is_known_and_used() -> None:
    assert set(PIECES) == set(scripts.PIECES)
    assert {piece for name in NAMES for piece in move(name).pieces} == set(PIECES)


@pytest.mark.parametrize("tool", contract.TOOLS, ids=lambda tool: tool.name)
def test_a_tools_script_refuses_what_the_contract_promises(tool: contract.Tool) -> None:
    promised = {"unauthenticated", *tool.refusals}
    assert {code.lower() for code in move(tool.name).listed("Refuses")} == promised


def test_every_refusal_has_somebody_who_makes_it() -> None:
    in_lua = {code.lower() for name in NAMES for code in move(name).listed("Refuses")}
    in_python = {"invalid_argument", "unknown_tool", "unavailable", "internal"}
    promised = {code for tool in contract.TOOLS for code in (*contract.COMMON_REFUSALS, *tool.refusals)}
    assert promised <= set(TOOL_ERRORS)
    assert not in_lua & in_python
    # The closed set holds a code for quotas, which no operator can set so far.
    assert set(REFUSALS) - in_lua - in_python <= {"quota_exceeded"}


def test_what_drains_a_full_queue_still_runs_when_memory_is_full() -> None:
    draining = {name for name in NAMES if move(name).shebang == "#!lua flags=allow-oom"}
    assert draining & DRAINING == DRAINING
    assert "job_create" not in draining
    assert "lane_create" not in draining


def test_what_only_reads_says_so() -> None:
    reading = {name for name in NAMES if move(name).shebang == "#!lua flags=no-writes"}
    assert reading >= {"job_get", "lane_list", "history_read", "registry_list"}
    assert {tool.name for tool in contract.TOOLS if not tool.writes} == {"lane_list"}


def test_an_event_is_recorded_before_anything_else_is_written() -> None:
    for name in NAMES:
        found = move(name)
        if "event" not in found.pieces or name == "job_claim":
            continue
        first = next(found_ for found_ in re.finditer(r"redis\.call|\b(record|next_event|move_lane)\(", found.write))
        assert first[1], f"{name} writes before its event"


def edit(old: str, new: str) -> Callable[[str], str]:
    def edited(text: str) -> str:
        assert text.count(old) >= 1, f"{old!r} is not there to be edited"
        return text.replace(old, new, 1)

    return edited


def above_write(line: str) -> Callable[[str], str]:
    return edit("\n-- write\n", f"\n{line}\n\n-- write\n")


def below_write(line: str) -> Callable[[str], str]:
    return edit("\n-- write\n", f"\n-- write\n{line}\n")


# Each is one script with one fault, and a word of the sentence that must name it.
PLANTED: list[tuple[str, Callable[[str], str], str]] = [
    ("job_release", edit("#!lua flags=allow-oom\n", ""), "first line"),
    ("job_release", edit("flags=allow-oom", "flags=allow-all"), "first line"),
    ("job_release", edit("-- Give a claimed job back to the queue.\n", ""), "one sentence"),
    ("job_release", edit("-- Reply:", "-- Answer:"), "the head has the lines"),
    ("job_release", edit("-- Cost:    O(log N)", "-- Cost:    little"), "no cost"),
    ("job_release", edit("-- Again: ", "--Again: "), "the head has the lines"),
    ("job_release", edit("running, job", "running, job, lane"), "not used"),
    ("job_release", edit("running, job", "running, job, leases"), "no piece leases"),
    ("job_release", edit("Refuses: UNAUTHENTICATED, ", "Refuses: "), "it can refuse"),
    ("job_release", edit("LEASE_EXPIRED\n", "LEASE_EXPIRED, DENIED\n"), "it can refuse"),
    ("job_release", edit("LEASE_EXPIRED\n", "LEASE_EXPIRED, LEASE_EXPIRED\n"), "it can refuse"),
    ("job_release", edit("refuse('LEASE_EXPIRED')", "refuse('LEASE_LAPSED')"), "no class has the code"),
    ("job_release", edit("Touches: token, principal, replay", "Touches: token, principal"), "it touches"),
    ("job_release", edit("spent, running", "spent, payload, running"), "it touches"),
    ("job_release", edit("Touches: ", "Touches: jobs, "), "it touches"),
    ("job_release", edit("key_job(job_id), 'standing'", "key_jobs(job_id), 'standing'"), "table of keys has no jobs"),
    ("job_release", edit("\n-- write\n", "\n"), "a line `-- write`"),
    ("job_release", below_write("if not live then return refuse('JOB_NOT_FOUND') end"), "refuse after"),
    ("job_release", below_write("local _, late = recall()"), "refuse after"),
    ("job_release", below_write("if not live then return redis.error_reply('JOB_NOT_FOUND') end"), "refuse after"),
    ("job_release", above_write("redis.call('HSET', key_job(job_id), 'a', 'b')"), "write before"),
    ("job_release", above_write("remember('')"), "write before"),
    ("job_release", above_write("restand(job_id, job, now)"), "write before"),
    ("job_release", above_write("local f = next_event"), "write before"),
    ("job_release", edit("allow-oom", "no-writes"), "no-writes"),
    ("lane_list", edit("\nreturn lanes", "\nredis.call('DEL', key_lane(''))\nreturn lanes"), "write"),
    ("lane_list", edit("#!lua flags=no-writes", "#!lua"), "never writes"),
    ("lane_list", edit("rank, rank, 'REV'", "0, -1, 'REV'"), "no bound"),
    ("lane_list", edit("rank, rank, 'REV'", "0, rank, 'REV'"), "no bound"),
    ("lane_list", edit("HGETALL', key_joined(", "HGETALL', key_quorum("), "whole"),
    ("lane_list", edit("'HGETALL', key_joined(client_id)", "'KEYS', 'lane:*'"), "sends KEYS"),
    ("lane_list", edit("'HGETALL', key_joined(client_id)", "'SMEMBERS', key_joined(client_id)"), "sends SMEMBERS"),
    ("lane_list", edit("'HGETALL', key_joined", "has_state and 'HGETALL' or 'HKEYS', key_joined"), "not written out"),
    ("lane_list", edit("redis.call('HGETALL'", "redis.pcall('HGETALL'"), "redis.pcall"),
    ("lane_list", edit("local heap = {}", "local heap = { math.random() }"), "beside its arguments"),
    ("history_read", edit(", 'COUNT', most", ""), "no bound"),
    ("job_look", edit("bytes - 1", "-1"), "no bound"),
    ("job_list", edit(", 'COUNT', 100", ""), "no bound"),
    ("claims_list", edit("'BYSCORE', 'LIMIT', 0, share,", "'BYSCORE',"), "no bound"),
    ("queue_status", edit("'BYSCORE', 'LIMIT', 0, share", "'BYSCORE'"), "no bound"),
    ("kind_limit", edit("'BYSCORE', 'LIMIT', 0, 16", "'BYSCORE'"), "no bound"),
    ("job_wait", edit("'BYSCORE', 'LIMIT', 0, 8,", "'BYSCORE',"), "no bound"),
    ("job_claim", above_write("redis.call('TIME')"), "the time 2 times"),
    ("quorum_close", edit("Pieces:  clock, call, replay, event", "Pieces:  call, replay, event"), "declares now"),
    ("job_renew", edit("clock, call, token, caller", "clock, call, caller"), "it touches"),
    ("quorum_close", edit("Pieces:  clock, call, replay, event", "Pieces:  clock, call, replay"), "declares record"),
    ("quorum_close", edit("local quorum = ", "quorom = "), "declares quorum"),
    ("quorum_close", edit("refuse('UNKNOWN_QUORUM')", "refuse(why)"), "code that is not written out"),
]


@pytest.mark.parametrize(("name", "plant", "word"), PLANTED, ids=lambda part: part if isinstance(part, str) else "")
def test_a_fault_in_a_script_is_named(name: str, plant: Callable[[str], str], word: str) -> None:
    found = lua.problems(name, plant(body(name)), PIECES)
    assert any(word in sentence for sentence in found), found


def test_a_fault_in_a_piece_is_named() -> None:
    pieces = PIECES | {"call": PIECES["call"] + "\nredis.call('SET', key_profile(), '1')\n"}
    assert any("writes by itself" in sentence for sentence in lua.problems("task_close", body("task_close"), pieces))
    unbound = PIECES["claimable"].replace("'BYSCORE', 'LIMIT', 0, STAR_PROJECTS", "'BYSCORE'")
    for name in ("job_claim", "job_wait"):
        assert any(
            "no bound" in sentence for sentence in lua.problems(name, body(name), PIECES | {"claimable": unbound})
        )
    pieces = PIECES | {"clock": PIECES["clock"].replace("'TIME'", "'TIME', 'TIME'")}
    pieces["event"] = PIECES["event"].replace(
        "local function record", "local again = redis.call('TIME')\nlocal function record"
    )
    assert any("the time 2 times" in sentence for sentence in lua.problems("task_close", body("task_close"), pieces))
    pieces = PIECES | {
        "caller": PIECES["caller"].replace("return found[1]", "redis.call('DEL', client_id) return found[1]")
    }
    assert any("write before" in sentence for sentence in lua.problems("lane_merge", body("lane_merge"), pieces))
