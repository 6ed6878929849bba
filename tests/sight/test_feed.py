"""The feed of what a caller sees, in both directions."""

from __future__ import annotations

from typing import Any

import pytest

from shampoo_queue.errors import InvalidArgument
from tests.conftest import REAL
from tests.queue import Clock, Queue
from tests.sight.looks import Looks, people, something_of_everything

real = pytest.mark.parametrize("engine", REAL, indirect=True)


def read(looks: Looks, **asked: Any) -> list[Any]:
    found, cursor, more = [], None, True
    while more:
        page = looks.feed_read(cursor=cursor, **asked)
        found += page["events"]
        cursor, more = page["cursor"], page["more"]
    return found


def test_both_directions_give_the_whole_history(queue: Queue, clock: Clock) -> None:
    something_of_everything(queue, clock)
    whole = queue.shampoo.history(limit=1000)
    assert 150 < len(whole) < 1000
    for limit in (37, 1000):
        assert read(Looks(queue, "star"), back=False, limit=limit) == whole
        assert read(Looks(queue, "star"), limit=limit) == whole[::-1]


@real
def test_every_filter_of_the_feed(queue: Queue, clock: Clock) -> None:
    something_of_everything(queue, clock)
    whole, looks = queue.shampoo.history(limit=1000), Looks(queue, "star")
    for asked in ({"event": "job."}, {"event": "job.claimed"}, {"event": "principal."}):
        found = read(looks, back=False, limit=20, **asked)
        assert found == [event for event in whole if event["event"].startswith(asked["event"])] != []
    for asked in ({"project": "a"}, {"project": "b"}, {"actor": "boss"}, {"actor": "one-b"}):
        ((name, value),) = asked.items()
        assert read(looks, back=False, limit=20, **asked) == [e for e in whole if e.get(name, "") == value] != []
    assert read(looks, event="none.") == read(looks, actor="nobody") == []


@real
def test_what_is_new_comes_after_the_cursor_of_the_end(queue: Queue) -> None:
    called = people(queue)
    looks = Looks(queue, "a")
    page = looks.feed_read(back=False)
    assert page["events"] == [] and not page["more"]
    assert looks.feed_read(back=False, cursor=page["cursor"])["cursor"] == page["cursor"]
    queue.create(called["boss"], project="b")
    job_id = queue.create(called["boss"], project="a")[0]
    page = looks.feed_read(back=False, cursor=page["cursor"])
    assert [event["entity_id"] for event in page["events"]] == [job_id]
    assert looks.feed_read(back=False, cursor=page["cursor"])["events"] == []


@real
@pytest.mark.parametrize("wrong", [{"limit": 1.5}, {"cursor": "x"}, {"event": 1}, {"actor": "x" * 200}], ids=str)
def test_an_argument_of_a_wrong_form_is_refused(queue: Queue, wrong: dict[str, Any]) -> None:
    people(queue)
    with pytest.raises(InvalidArgument):
        Looks(queue, "a").feed_read(**wrong)
