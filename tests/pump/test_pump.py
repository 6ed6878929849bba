"""Pumps beside one another, beside the lanes, and when they stop."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from shampoo_queue import scripts
from shampoo_queue.pump import Limits
from tests.conftest import REAL
from tests.pump.queue import QUICK_PATIENCE, Sender, pump, pumping
from tests.pump.sink import Sink, after, silence
from tests.queue import Queue

pytestmark = pytest.mark.parametrize("engine", REAL, indirect=True)


def test_two_pumps_side_by_side_make_each_delivery_once(queue: Queue) -> None:
    with Sink() as sink:
        sender = Sender(queue)
        sink.on("/", after(0.01, 200))
        patience = replace(QUICK_PATIENCE, most_waiting=4)
        with pumping(queue, pump(patience=patience, concurrency=4), pump(patience=patience, concurrency=4)):
            jobs = [sender.create(sink.uri()) for _ in range(200)]
            assert {sender.ended(job_id).state for job_id in jobs} == {"completed"}
        assert Counter(one.job_id for one in sink.requests) == Counter(jobs)
        holders = {
            event["holder"] for job_id in jobs for event in sender.events(job_id) if event.get("to") == "claimed"
        }
        assert holders == {"pump-0", "pump-1"}


def _lane_keys(queue: Queue) -> dict[str, Any]:
    return {key: facts for key, facts in queue.facts().items() if key.split(":")[2].startswith(("lane", "quorum"))}


def test_the_pump_touches_no_lane_and_runs_no_script_but_those_of_a_workers_jobs(queue: Queue) -> None:
    with Sink() as sink:
        sender = Sender(queue)
        quorum = queue.shampoo.registry.open_quorum("p", ["c"])
        lane = sender.client.lane_create(quorum_id=quorum).lane_id
        paths = [sink.on("/ok", 200), sink.on("/no", 400), sink.on("/again", 503, 200), "http://10.0.0.1/", "no uri"]
        for uri in paths:
            sender.client.job_create(kind="delivery", lane_id=lane, payload=json.dumps({"uri": uri}))
        before = _lane_keys(queue)
        assert before
        queue.command("SCRIPT", "FLUSH")
        with pumping(queue, pump()):
            while _open_jobs(queue):
                time.sleep(0.02)
        ran = _loaded(queue)
        assert ran <= {"job_claim", "job_complete", "job_release", "job_renew", "job_wait", "job_get"}
        assert {"job_claim", "job_complete", "job_renew"} <= ran
        assert _lane_keys(queue) == before
        assert sender.client.lane_list(project="p").lanes[0].state == "open"


def _open_jobs(queue: Queue) -> int:
    # Read from the raw keys, since a move of ours would be taken for the pump's.
    states = [facts[1]["standing"] for key, facts in queue.facts().items() if key.split(":")[2] == "job"]
    return sum(state not in ("completed", "failed") for state in states)


def _loaded(queue: Queue) -> set[str]:
    """The scripts that the server was given since it was told to forget all."""
    names = [path.stem for path in scripts.folder().glob("[a-z]*.lua")]
    shas = [hashlib.sha1(scripts.script(name).text.encode()).hexdigest() for name in names]
    found = queue.command("SCRIPT", "EXISTS", *shas)
    return {name for name, there in zip(names, found, strict=True) if there}


def test_a_stop_gives_back_at_once_what_waits_for_its_host_and_lets_the_rest_end(queue: Queue) -> None:
    with Sink() as sink:
        sender = Sender(queue)
        jobs = [sender.create(sink.on("/", after(1.0, 200))) for _ in range(6)]
        one = pump(limits=Limits(), patience=replace(QUICK_PATIENCE, per_host=2))
        with pumping(queue, one):
            sink.wait_for(2)
            began = time.monotonic()
            one.worker.stop()
            while one.worker.stats().state != "stopped":
                time.sleep(0.01)
        assert time.monotonic() - began < 3
        states = Counter(sender.client.job(job_id).state for job_id in jobs)
        assert states == {"completed": 2, "queued": 4}
        assert Counter(reason for job_id in jobs for reason in sender.reasons(job_id)) == {"drained: the pump stops": 4}


def test_a_host_that_comes_back_gets_its_jobs_without_having_burnt_their_attempts(queue: Queue) -> None:
    with Sink() as sink:
        sender = Sender(queue)
        sink.on("/", *[500] * 8, 200)
        jobs = [sender.create(sink.uri()) for _ in range(100)]
        patience = replace(QUICK_PATIENCE, first_pause_seconds=0.3)
        with pumping(queue, pump(patience=patience, backoff_seconds=(0.3,))):
            attempts = [sender.ended(job_id).attempts for job_id in jobs]
        assert sum(attempts) == len(sink.requests) == 108
        assert max(attempts) <= 3


def test_a_cancelled_jobs_delivery_is_cut_at_the_next_renewal(queue: Queue) -> None:
    with Sink() as sink:
        sender = Sender(queue)
        job_id = sender.create(sink.on("/", silence))
        with pumping(queue, pump(limits=Limits(), lease_seconds=3)):
            sink.wait_for(1)
            queue.shampoo.ops.cancel(job_id, "no longer wanted")
            until = time.monotonic() + 5
            while sink.open_now and time.monotonic() < until:
                time.sleep(0.01)
            assert not sink.open_now
        assert sender.client.job(job_id).state == "failed"


def test_neither_payloads_nor_receivers_words_reach_the_log_or_the_history(
    queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with Sink() as sink:
        sender = Sender(queue)
        facts: dict[str, Any] = {"headers": {"Authorization": "Bearer MARKER"}, "body": "MARKER"}
        jobs = [
            sender.create(sink.on("/MARKER?MARKER", 500, 400), **facts),
            sender.create("http://MARKER:MARKER@example.com/", **facts),
            sender.create(sink.uri(), headers={"Host": "MARKER"}),
            sender.create_raw('{"uri": MARKER'),
        ]
        with pumping(queue, pump()):
            assert {sender.ended(job_id).state for job_id in jobs} == {"failed"}
        said = caplog.text + repr([sender.events(job_id) for job_id in jobs])
        assert "outcome" in caplog.text
        assert "MARKER" not in said
