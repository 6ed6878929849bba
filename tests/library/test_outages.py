"""The queue goes away and comes back: how long a call waits, and what it says when it gives up."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from shampoo_queue import ConfigurationError, Shampoo, ToolError, errors
from tests.library.flavours import Flavour
from tests.queue import Queue
from tests.servers import Server


@pytest.fixture
def job_id(own: Queue) -> str:
    (created,) = own.create(own.principal("c", "p", conductor=True), project="p")
    return created


@contextmanager
def away(server: Server, seconds: float) -> Iterator[None]:
    """Stop the server, and start it again after a while, from another thread."""
    server.stop()
    timer = threading.Timer(seconds, server.start)
    timer.start()
    try:
        yield
    finally:
        timer.join()


@contextmanager
def gone(server: Server, flavour: Flavour) -> Iterator[None]:
    """Stop the server and let its clients notice, which asyncio does only while a loop runs; start it at the end."""
    server.stop()
    flavour.runner.run(asyncio.sleep(0.05))
    try:
        yield
    finally:
        server.start()


def test_a_queue_that_is_away_for_three_seconds_is_ridden_through_by_every_call(
    own: Queue, server: Server, job_id: str
) -> None:
    """Sixteen calls at once, through both flavours, each carried out exactly once."""
    flavours = [Flavour("sync"), Flavour("async")]
    clients = [flavour.connect(server.url, profile=own.profile, retry_seconds=20).client("c") for flavour in flavours]
    for client in clients:
        client.lane_list()
    before = len(own.events())
    with ThreadPoolExecutor(9) as pool, away(server, 3):
        began = time.monotonic()
        calls = [pool.submit(clients[0].job_create, kind="k", project="p", payload=str(n)) for n in range(7)]
        calls.append(pool.submit(clients[0].job_claim))
        clients[1].job_create(kind="k", project="p", payload="7")
        done = [call.result(30) for call in calls]
        assert time.monotonic() - began > 2
    assert done[-1].claimed
    assert len(own.events()) == before + 9
    for flavour in flavours:
        flavour.close()


def test_a_queue_that_refuses_connections_for_too_long_is_unavailable_and_nothing_was_done(
    own: Queue, server: Server, job_id: str, flavour: Flavour
) -> None:
    """No byte of the call left, so its outcome is known: it was not carried out."""
    client = flavour.connect(server.url, profile=own.profile, retry_seconds=0.3).client("c")
    client.lane_list()
    with gone(server, flavour):
        began = time.monotonic()
        with pytest.raises(errors.Unavailable) as failed:
            client.job_claim(request_id="r-1")
        assert time.monotonic() - began < 2
    error = failed.value
    assert (error.code, error.retryable, error.outcome_unknown, error.request_id) == ("unavailable", True, False, "r-1")
    assert error.message == "queue unavailable: the connection failed"
    assert own.events(job_id) == ["job.created"]
    assert client.job_claim(request_id="r-1").job_id == job_id


def test_a_call_that_was_sent_and_got_no_reply_has_an_unknown_outcome(
    own: Queue, server: Server, job_id: str, flavour: Flavour
) -> None:
    """The server holds still past the deadline, then carries the call out; its request id tells what became of it."""
    client = flavour.connect(f"{server.url}?socket_timeout=0.2", profile=own.profile, retry_seconds=0.5).client("c")
    assert not client.job_claim(kind="none")
    server.pause()
    try:
        with pytest.raises(errors.Unavailable) as failed:
            client.job_claim(request_id="r-1")
    finally:
        server.resume()
    assert failed.value.message == "queue unavailable: no answer in time"
    assert (failed.value.outcome_unknown, failed.value.retryable, failed.value.request_id) == (True, True, "r-1")
    again = client.job_claim(request_id="r-1")
    assert (again.job_id, again.attempts, again.replayed) == (job_id, 1, True)
    assert own.events(job_id) == ["job.created", "job.claimed"]


def test_a_connection_that_breaks_after_the_call_was_sent_leaves_its_outcome_unknown(
    own: Queue, server: Server, job_id: str, flavour: Flavour
) -> None:
    """The first try left, later ones were refused: what the first one did stays unknown."""
    client = flavour.connect(server.url, profile=own.profile, retry_seconds=0.5).client("c")
    assert not client.job_claim(kind="none")
    server.pause()
    killer = threading.Timer(0.2, server.kill)
    killer.start()
    with pytest.raises(errors.Unavailable) as failed:
        client.job_claim()
    killer.join()
    server.start()
    assert failed.value.outcome_unknown
    assert client.job_claim().job_id == job_id


def test_no_patience_at_all_means_one_try(own: Queue, server: Server, job_id: str, flavour: Flavour) -> None:
    client = flavour.connect(server.url, profile=own.profile, retry_seconds=0).client("c")
    client.lane_list()
    with gone(server, flavour):
        began = time.monotonic()
        with pytest.raises(errors.Unavailable):
            client.job_claim()
        assert time.monotonic() - began < 0.5


def test_the_registry_and_operators_moves_ride_through_and_give_up_alike(
    own: Queue, server: Server, job_id: str, flavour: Flavour
) -> None:
    shampoo = flavour.connect(server.url, profile=own.profile, retry_seconds=0.2)
    acts: list[Callable[[], Any]] = [
        lambda: shampoo.registry.add_principal("w"),
        lambda: shampoo.registry.principals(),
        lambda: shampoo.ops.cancel(job_id, "x"),
        lambda: shampoo.ops.job(job_id),
        lambda: shampoo.history(),
    ]
    with gone(server, flavour):
        for act in acts:
            with pytest.raises(errors.Unavailable) as failed:
                act()
            assert not failed.value.outcome_unknown
    assert shampoo.registry.add_principal("w") is True
    shampoo.ops.cancel(job_id, "x")


@pytest.mark.parametrize(
    ("setting", "back", "words"),
    [
        (("CONFIG", "SET", "maxmemory", "1"), ("CONFIG", "SET", "maxmemory", "0"), "out of memory"),
        (("REPLICAOF", "127.0.0.1", "1"), ("REPLICAOF", "NO", "ONE"), "takes no writes"),
    ],
    ids=["full", "replica"],
)
def test_a_server_that_takes_no_writes_is_unavailable_with_the_reason(
    own: Queue, server: Server, job_id: str, flavour: Flavour, setting: tuple[str], back: tuple[str], words: str
) -> None:
    """The server answered, so nothing was carried out, and the words say what is wrong with it."""
    client = flavour.connect(server.url, profile=own.profile, retry_seconds=0.2).client("c")
    before = len(own.events())
    server.call(*setting)
    try:
        with pytest.raises(errors.Unavailable, match=words) as failed:
            client.job_create(kind="k", project="p")
    finally:
        server.call(*back)
    assert (failed.value.retryable, failed.value.outcome_unknown) == (True, False)
    assert len(own.events()) == before
    assert client.job_create(kind="k", project="p").state == "queued"


def test_a_user_whose_rights_were_taken_is_told_that_trying_again_will_not_help(
    own: Queue, server: Server, job_id: str, flavour: Flavour
) -> None:
    server.call("ACL", "SETUSER", "u", "on", ">pw", "~*", "+@all")
    url = server.url.replace("redis://", "redis://u:pw@")
    client = flavour.connect(url, profile=own.profile).client("c")
    server.call("ACL", "SETUSER", "u", "-evalsha")
    began = time.monotonic()
    with pytest.raises(errors.Unavailable, match="lacks a permission") as failed:
        client.job_claim()
    assert (failed.value.retryable, failed.value.outcome_unknown) == (False, False)
    assert time.monotonic() - began < 2


@pytest.mark.parametrize("seconds", [-1, 45.001, 60, 1e9, float("nan"), float("inf")])
def test_patience_that_would_outlast_what_the_server_remembers_is_refused(seconds: float) -> None:
    with pytest.raises(ConfigurationError, match="retry_seconds must be from 0 to 45"):
        Shampoo.connect("redis://127.0.0.1:1", profile="p", retry_seconds=seconds)


def test_a_call_interrupted_in_its_wait_leaves_the_client_fit_for_use(own: Queue, server: Server, job_id: str) -> None:
    """Many calls that gave up leave no connection behind that could answer somebody else's question."""
    shampoo = Shampoo.connect(f"{server.url}?socket_timeout=0.1", profile=own.profile, retry_seconds=0)
    client = shampoo.client("c")
    assert not client.job_claim(kind="none")
    for n in range(5):
        server.pause()
        with suppress(ToolError):
            client.job_create(kind=f"k{n}", project="p", payload=str(n))
        server.resume()
        assert client.lane_list().count == 0
        created = client.job_create(kind=f"own-{n}", project="p", payload=f"own {n}")
        claim = client.job_claim(kind=f"own-{n}")
        assert (claim.job_id, claim.payload) == (created.job_id, f"own {n}")
    shampoo.close()
