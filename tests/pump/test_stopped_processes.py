"""A pump that stood still past its lease sends nothing any more, and completes nothing that is not its own."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import Counter, defaultdict
from random import Random

import pytest

from tests.conftest import REAL
from tests.pump.child import LEASE_SECONDS, process, wait_for_line
from tests.pump.queue import Sender
from tests.pump.sink import Received, Sink, say
from tests.queue import Queue

pytestmark = pytest.mark.parametrize("engine", REAL, indirect=True)


@pytest.mark.parametrize("where", ["looking up", "connected"])
def test_a_pump_stopped_between_claim_and_sending_sends_nothing_when_it_goes_on(queue: Queue, where: str) -> None:
    with Sink() as sink:
        sender = Sender(queue)
        job_id = sender.create(f"http://sink.example:{sink.port}/")
        with process(queue.engine.url, queue.profile, "first", where) as first:
            wait_for_line(first, f"stopping: {where}")
            with process(queue.engine.url, queue.profile, "second"):
                assert sender.ended(job_id).state == "completed"
                first.send_signal(signal.SIGCONT)
                wait_for_line(first, "outcome=lost")
            first.send_signal(signal.SIGTERM)
            assert first.wait(10) == 0
        (request,) = sink.requests
        claims = [event["holder"] for event in sender.events(job_id) if event.get("to") == "claimed"]
        assert claims == ["first", "second"]
        assert request.fence == sender.claims(job_id)[1]
        assert Counter(queue.events(job_id))["job.completed"] == 1


class Strict:
    """A receiver that refuses fences lower than it has seen of a job, and counts them."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._newest: dict[str, int] = defaultdict(int)
        self.accepted: list[Received] = []
        self.stale: list[Received] = []

    async def __call__(self, request: Received, writer: asyncio.StreamWriter) -> None:
        stale = request.fence < self._newest[request.job_id]
        (self.stale if stale else self.accepted).append(request)
        self._newest[request.job_id] = max(request.fence, self._newest[request.job_id])
        await asyncio.sleep(self._seconds)
        await say(writer, b"HTTP/1.1 %d Whatever\r\nContent-Length: 0\r\n\r\n" % (409 if stale else 200))


@pytest.mark.parametrize("stops", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_no_stale_delivery_arrives_from_a_pump_that_is_stopped_past_its_lease_again_and_again(
    queue: Queue, stops: int
) -> None:
    random = Random(stops)
    with Sink() as sink:
        strict, sender = Strict(0.03), Sender(queue)
        sink.on("/", strict)
        jobs: list[str] = []
        with (
            process(queue.engine.url, queue.profile, "first") as first,
            process(queue.engine.url, queue.profile, "second"),
        ):
            sender.ended(sender.create(f"http://sink.example:{sink.port}/"))
            for _ in range(stops):
                jobs += [sender.create(f"http://sink.example:{sink.port}/") for _ in range(60)]
                time.sleep(random.uniform(0.0, 0.3))  # anywhere in the life of those jobs
                first.send_signal(signal.SIGSTOP)
                time.sleep(LEASE_SECONDS * 1.3)
                first.send_signal(signal.SIGCONT)
            assert {sender.ended(job_id, 30).state for job_id in jobs} == {"completed"}
        assert not strict.stale
        assert {one.job_id for one in strict.accepted} >= set(jobs)
        for job_id in jobs:
            assert Counter(queue.events(job_id))["job.completed"] == 1
