"""The table of cases at every door: what a caller learns, and what then stands in Redis, is the same."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from tests.parity.cases import LAST, STORY, UNKNOWN_TOOLS, Case, odd_arguments, wrong_arguments
from tests.parity.conftest import Open
from tests.parity.doors import DOORS, NOTHING, Door, Heard
from tests.parity.stage import Names, set_up

pytestmark = pytest.mark.parametrize(
    "engine", ["embedded", pytest.param("redis7", marks=pytest.mark.slow)], indirect=True
)
each_door = pytest.mark.parametrize("name", [name for name in DOORS if name != "python"])
# A process a principal: the older of MCP's two eras on standard input tells the story only, but for the slow tier.
MOST = [pytest.param(name, marks=[pytest.mark.slow] if name == "mcp-stdio-2025" else []) for name in DOORS]

Told = list[tuple[Case, Heard]]


def play(door: Door, ids: dict[str, str], cases: Iterable[Case]) -> Told:
    """Make the calls in turn, each of which must end as the table says."""
    told, last = [], 0
    for case in cases:
        beside = case.beside
        if beside.fence is not None and beside.fence <= LAST and beside.fence > -(10**9):
            beside = replace(beside, fence=last + beside.fence - LAST)
        heard = door.call(case.client_id, case.tool, case.text(ids), beside)
        assert case.code in ("", heard.code), f"{case}: {heard}"
        last = heard.fence or last
        told.append((case, heard))
    return told


def same(names: Names, told: Told, other_names: Names, other: Told) -> None:
    for (case, heard), (_, there) in zip(told, other, strict=True):
        assert names.plain(vars_of(heard)) == other_names.plain(vars_of(there)), str(case)


def vars_of(heard: Heard) -> dict[str, Any]:
    return {field: getattr(heard, field) for field in ("code", "message", "result", "fence", "replayed")}


@each_door
def test_one_story_is_heard_alike_and_leaves_the_same_behind(opened: Open, name: str) -> None:
    ended = []
    for door in (opened("python"), opened(name)):
        told = play(door, set_up(door), STORY)
        ended.append((Names(door.queue), told))
    (here, heard), (there, told) = ended
    same(here, heard, there, told)
    assert there.history() == here.history()
    assert there.facts() == here.facts()


@pytest.mark.parametrize("name", MOST[1:])
def test_wrong_arguments_are_refused_in_the_same_words_and_change_nothing(opened: Open, name: str) -> None:
    cases = list(wrong_arguments())
    ended = []
    for door in (opened("python"), opened(name)):
        ids = set_up(door)
        for client_id in ("c", "w"):
            door.call(client_id, "lane_list", "{}")
        before = door.queue.facts()
        ended.append((Names(door.queue), play(door, ids, cases)))
        assert door.queue.facts() == before
    same(*ended[0], *ended[1])


@pytest.mark.parametrize("name", MOST[1:])
def test_odd_arguments_that_are_right_have_the_same_effect(opened: Open, name: str) -> None:
    cases = list(odd_arguments())
    ended = []
    for door in (opened("python"), opened(name)):
        told = play(door, set_up(door), cases)
        ended.append((Names(door.queue), told))
    same(*ended[0], *ended[1])
    assert ended[0][0].history() == ended[1][0].history()
    assert ended[0][0].facts() == ended[1][0].facts()


@pytest.mark.parametrize("name", MOST)
def test_an_unknown_tool_has_one_sentence(opened: Open, name: str) -> None:
    python, door = opened("python"), opened(name)
    for opened_ in (python, door):
        set_up(opened_)
    for tool in UNKNOWN_TOOLS:
        for arguments in ("{}", '{"no_such":["x"]}'):
            heard = door.call("w", tool, arguments)
            assert heard == python.call("w", tool, arguments)
            assert heard.code == "unknown_tool"


@pytest.mark.parametrize("name", MOST)
def test_who_is_not_live_is_refused_by_every_tool(opened: Open, name: str) -> None:
    """A door that carries a credential checks it first; one that is told a name checks the arguments first."""
    door = opened(name)
    ids = set_up(door)
    assert door.call("w", "lane_list", "{}").code == "ok"
    door.queue.shampoo.registry.disable_principal("w")
    before = door.queue.facts()
    for case in STORY:
        if case.client_id == "w" and case.beside == NOTHING:
            heard = door.call("w", case.tool, case.text(ids))
            assert (heard.code, heard.message) == ("unauthenticated", "unauthenticated"), str(case)
    first = {True: "unauthenticated", False: "invalid_argument"}[door.credential]
    assert door.call("w", "job_claim", '{"kind":""}').code == first
    first = {True: "unauthenticated", False: "unknown_tool"}[door.credential]
    assert door.call("w", "nope", "{}").code == first
    assert door.queue.facts() == before


@pytest.mark.parametrize("name", MOST[3:])
def test_a_revoked_token_is_refused_on_the_same_connection(opened: Open, name: str) -> None:
    door = opened(name)
    set_up(door)
    assert door.call("w", "job_claim", '{"kind":"none"}').result == {"claimed": False}
    door.queue.shampoo.registry.revoke_token(door.token("w")[4:16])
    heard = door.call("w", "job_claim", '{"kind":"none"}')
    assert (heard.code, heard.message) == ("unauthenticated", "unauthenticated")
