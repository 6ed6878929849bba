"""Nothing is sent under a lease that may be over, whatever the worker has noticed yet."""

from __future__ import annotations

import asyncio
import json

import pytest

from shampoo_queue import Client
from shampoo_queue.worker import Job, Lost, Release
from tests.pump.queue import pump
from tests.pump.sink import Sink


class Link:
    """How a job asks about itself here: its answer takes its time, and may be that the job is lost."""

    def __init__(self, seconds: float = 0.0, lost: bool = False, refused: bool = False) -> None:
        self._seconds, self.lost, self._refused = seconds, lost, refused

    @property
    def client(self) -> Client:
        raise AssertionError("nothing is asked of the queue")

    def check(self) -> None:
        raise AssertionError("it would hold up the event loop")

    async def acheck(self) -> None:
        await asyncio.sleep(self._seconds)
        if self._refused:
            raise Lost("the lease was over")


def handled(sink: Sink, link: Link) -> str:
    job = Job("an-id", payload=json.dumps({"uri": sink.uri()}), fence=7, link=link)
    return asyncio.run(pump(lease_seconds=1)._handle(job))


def test_a_job_that_is_ours_is_sent_under_its_fence() -> None:
    with Sink() as sink:
        assert handled(sink, Link()) == "http:200"
        assert [(one.fence, one.attempt) for one in sink.requests] == [(7, 1)]


def test_nothing_is_sent_when_the_queue_says_that_the_job_is_not_ours() -> None:
    with Sink() as sink, pytest.raises(Lost):
        handled(sink, Link(refused=True))
    assert not sink.connections


@pytest.mark.parametrize("link", [Link(lost=True), Link(seconds=0.9)], ids=["told", "by the clock alone"])
def test_nothing_is_sent_when_the_lease_is_over_before_the_first_byte(link: Link) -> None:
    with Sink() as sink:
        with pytest.raises(Release, match="lease: it was over before the delivery was sent"):
            handled(sink, link)
        assert not sink.requests
