"""One job with its payload and its events."""

from __future__ import annotations

import pytest

from shampoo_queue.errors import InvalidArgument
from shampoo_queue.tools import iso
from tests.conftest import REAL
from tests.queue import Clock, Queue
from tests.sight.looks import Looks, people

pytestmark = pytest.mark.parametrize("engine", REAL, indirect=True)


def test_a_job_is_shown_with_all_its_facts(queue: Queue, clock: Clock) -> None:
    called = people(queue)
    created_at = iso(clock.now)
    job_id = queue.create(called["boss"], kind="k", project="a", payload="ä" * 10)[0]
    clock.advance(5)
    claim = called["a"].job_claim(lease_seconds=60)
    shown = Looks(queue, "a").job_look(job_id)
    event = shown["job"].pop("event")
    assert shown == {
        "job": {
            "job_id": job_id,
            "standing": "claimed",
            "kind": "k",
            "project": "a",
            "lane_id": "",
            "state": "claimed",
            "owner": "a",
            "holder": "h",
            "attempts": 1,
            "fence": claim.fence,
            "lease_until": iso(clock.now + 60_000),
            "due_at": "",
            "created_at": created_at,
            "changed_at": iso(clock.now),
            "result_ref": "",
            "reason": "",
        },
        "payload": "ä" * 10,
        "payload_bytes": 20,
        "truncated": False,
        "attempts_max": 5,
        "now": iso(clock.now),
    }
    assert Looks(queue, "a").job_history(job_id)["events"][0]["id"] == event


def test_a_large_payload_is_shown_in_part_and_never_a_part_of_a_character(queue: Queue) -> None:
    called = people(queue)
    job_id = queue.create(called["boss"], project="a", payload="ä" * 500_000)[0]
    looks = Looks(queue, "a")
    shown = looks.job_look(job_id)
    assert (len(shown["payload"]), shown["payload_bytes"], shown["truncated"]) == (32_768, 1_000_000, True)
    assert looks.job_look(job_id, payload_bytes=3)["payload"] == "ä"
    assert looks.job_look(job_id, payload_bytes=0)["payload"] == ""
    whole = looks.job_look(job_id, payload_bytes=10**9)
    assert whole["payload"] == "ä" * 500_000 and not whole["truncated"]
    for wrong in (-1, True, "3", None):
        with pytest.raises(InvalidArgument):
            looks.job_look(job_id, payload_bytes=wrong)


def test_the_events_of_a_job_are_those_of_the_history(queue: Queue) -> None:
    called = people(queue)
    job_id = queue.create(called["boss"], project="a")[0]
    for _ in range(4):
        called["a"].release(called["a"].job_claim(), reason="later")
    looks, whole = Looks(queue, "a"), queue.shampoo.history(job_id)[::-1]
    assert looks.job_history(job_id) | {"now": ""} == {"events": whole, "cursor": "", "now": ""}
    found, cursor = [], None
    while cursor != "":
        page = looks.job_history(job_id, limit=2, cursor=cursor)
        found += page["events"]
        cursor = page["cursor"]
    assert found == whole and len(whole) == 9
