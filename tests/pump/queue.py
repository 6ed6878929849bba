"""Pumps at work on a profile under test: what the tests with a queue share."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from shampoo_queue import Client
from shampoo_queue.contract import JobStanding
from shampoo_queue.pump import Patience, Pump, Signer
from tests.pump.core import LOOPBACK, QUICK
from tests.queue import Queue

# As patient with hosts as usual, but quick in all that a test would wait for.
QUICK_PATIENCE = replace(Patience(), first_pause_seconds=0.1, most_pause_seconds=0.4)
QUICK_BACKOFF = (0.01, 0.01, 0.01, 0.01)


def pump(signer: Signer | None = None, **options: Any) -> Pump:
    """Set up a pump that may reach this machine and tries again at once."""
    usual = {"allowed": LOOPBACK, "limits": QUICK, "patience": QUICK_PATIENCE, "backoff_seconds": QUICK_BACKOFF}
    return Pump(signer, **{**usual, **options})


@contextmanager
def pumping(queue: Queue, *pumps: Pump) -> Iterator[None]:
    """Run pumps, each in a thread and on a connection of its own, as principal ``w``."""
    errors: list[BaseException] = []
    shampoos = [queue.connect() for _ in pumps]

    def run(one: Pump, number: int) -> None:
        try:
            one.run(shampoos[number], "w", holder=f"pump-{number}", signals=False)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(one, number)) for number, one in enumerate(pumps)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for one, thread in zip(pumps, threads, strict=True):
            while thread.is_alive():
                one.worker.stop(now=True)
                thread.join(0.1)
        for shampoo in shampoos:
            shampoo.close()
    assert not errors


class Sender:
    """A principal who creates deliveries in project ``p`` and follows them."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        queue.principal("w", "p")
        self.client: Client = queue.principal("c", "p", conductor=True)

    def create(self, uri: str, **facts: Any) -> str:
        """Create a delivery and give its id."""
        return self.create_raw(json.dumps({"uri": uri, **facts}))

    def create_raw(self, payload: str) -> str:
        return self.client.job_create(kind="delivery", project="p", payload=payload).job_id

    def ended(self, job_id: str, seconds: float = 20.0) -> JobStanding:
        """Wait until a job has ended, and tell how."""
        return self.client.wait(job_id, timeout=seconds)

    def claims(self, job_id: str) -> list[int]:
        """The fences under which a job was claimed, by its history."""
        return [int(event["fence"]) for event in self.events(job_id) if event["event"] == "job.claimed"]

    def reasons(self, job_id: str) -> list[str]:
        """The reasons with which a job was released or failed, oldest first."""
        ways = ("job.released", "job.failed")
        return [str(event.get("reason", "")) for event in self.events(job_id) if event["event"] in ways]

    def events(self, job_id: str) -> list[Any]:
        return self.queue.shampoo.history(job_id, limit=1000)
