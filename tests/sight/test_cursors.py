"""Every cursor: one that no page gave is refused or leads nowhere, and is never an error of the server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from shampoo_queue.errors import InvalidArgument
from shampoo_queue.extensions import operation
from shampoo_queue.tools import Caller
from tests.queue import Queue
from tests.sight.looks import Looks, people

Page = dict[str, Any]
# A reader of pages: the looks of one caller, a job, a lane, and the cursor, which only some give.
PAGES: dict[str, Callable[..., Page]] = {
    "job_list": lambda looks, job_id, lane_id, **cursor: looks.job_list(**cursor),
    "job_list of a lane": lambda looks, job_id, lane_id, **cursor: looks.job_list(lane_id=lane_id, **cursor),
    "feed_read back": lambda looks, job_id, lane_id, **cursor: looks.feed_read(**cursor),
    "job_history": lambda looks, job_id, lane_id, **cursor: looks.job_history(job_id, **cursor),
    "lane_history": lambda looks, job_id, lane_id, **cursor: looks.lane_history(lane_id, **cursor),
}
FORWARDS: dict[str, Callable[..., Page]] = {
    "feed_read forwards": lambda looks, job_id, lane_id, **cursor: looks.feed_read(back=False, **cursor),
}
WRONG = (
    "-1",
    "-0",
    "+1",
    " 1",
    "1 ",
    "1\n",
    "٣",
    "²",
    "1_0",
    "1-0",
    "1.0",
    "1e3",
    "0x1",
    "x",
    "(1",
    "+",
    "-",
    "$",
    "*",
)
WRONG += ("\0", "\ud800", "9" * 19, "9" * 30, "9" * 10_000)  # type: ignore[assignment]
NOT_TEXT = (7, 0, True, 1.5, b"1", ["1"], {"cursor": "1"})


def reader(queue: Queue, read: Callable[..., Page]) -> Callable[..., Page]:
    boss = people(queue)["boss"]
    lane_id = boss.lane_create(quorum_id=queue.shampoo.registry.open_quorum("a")).lane_id
    job_id = queue.create(boss, 3, lane_id=lane_id)[0]
    return lambda **cursor: read(Looks(queue, "star"), job_id, lane_id, **cursor)


def held(page: Page) -> list[Any]:
    found = page["jobs"] if "jobs" in page else page["events"]
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize("name", [*PAGES, *FORWARDS])
def test_what_is_no_number_of_an_event_is_refused(queue: Queue, name: str) -> None:
    read = reader(queue, (PAGES | FORWARDS)[name])
    for wrong in (*WRONG, *NOT_TEXT):
        with pytest.raises(InvalidArgument):
            read(cursor=wrong)
    assert held(read(cursor="")) == held(read(cursor=None)) == held(read()) != []


@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_before_the_first_event(queue: Queue, name: str) -> None:
    read = reader(queue, PAGES[name])
    for none in ("0", "00", "0" * 18):
        page = read(cursor=none)
        assert (held(page), page["cursor"], page.get("more", False)) == ([], "", False)


@pytest.mark.parametrize("name", [*PAGES, *FORWARDS])
def test_a_number_may_be_written_longer_and_be_of_no_event(queue: Queue, name: str) -> None:
    read = reader(queue, (PAGES | FORWARDS)[name])
    for number in ("1", "7", "9", "9" * 18):
        assert held(read(cursor=number.zfill(18))) == held(read(cursor=number))
    if name in FORWARDS:
        assert held(read(cursor="0")) == held(read()) and held(read(cursor="9" * 18)) == []
    elif not name.endswith("history"):
        assert held(read(cursor="9" * 18)) == held(read())


@pytest.mark.parametrize("tool", ["job_list", "job_history"])
def test_the_extension_tools_take_the_same_cursors(queue: Queue, tool: str) -> None:
    job_id = queue.create(people(queue)["boss"], project="a")[0]
    beside = {"job_id": job_id} if tool == "job_history" else {}

    def read(cursor: Any) -> Page:
        return queue.shampoo._wire.run(operation(Caller("a"), tool, {"cursor": cursor, **beside}))

    for wrong in (*WRONG, *NOT_TEXT):
        with pytest.raises(InvalidArgument):
            read(wrong)
    for none in ("0", "00"):
        assert (held(read(none)), read(none)["cursor"]) == ([], "")
