"""Batches: moves that travel together, each still a move of its own."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from shampoo_queue import ToolError, errors
from shampoo_queue.claims import Ending
from shampoo_queue.contract import JobClaimResult
from tests.faults.proxy import Proxy
from tests.library.flavours import FIVE, REAL, REDIS7, THREE, Flavour
from tests.queue import Queue

MEBIBYTE = 2**20


def opened(queue: Queue, flavour: Flavour, url: str | None = None) -> Any:
    """Give the client of a conductor of one project, in this flavour."""
    queue.principal("c", "p", conductor=True)
    if url is None:
        return flavour.open(queue).client("c", holder="h")
    return flavour.connect(url, profile=queue.profile).client("c", holder="h")


def codes(found: list[Any]) -> list[str]:
    """Say of each result what it is, or the code of its refusal."""
    return [each.code if isinstance(each, ToolError) else getattr(each, "state", "renewed") for each in found]


@FIVE
def test_a_batch_goes_through_its_whole_life_in_order(queue: Queue, flavour: Flavour) -> None:
    client = opened(queue, flavour)
    jobs = [{"kind": "k", "project": "p", "payload": f"{n}"} for n in range(250)]
    created = [each.job_id for each in client.create_many(jobs)]
    claims = client.claim_many(250, kind="k", lease_seconds=60)
    assert [claim.job_id for claim in claims] == created
    assert [claim.payload for claim in claims] == [f"{n}" for n in range(250)]
    assert len({(claim.job_id, claim.fence) for claim in claims}) == 250
    assert len({claim.meta.request_id for claim in claims}) == 250
    assert codes(client.renew_many(claims, lease_seconds=90)) == ["renewed"] * 250
    endings = [
        Ending(claim, ("completed", "failed", "released")[n % 3], f"r{n}", f"why {n}") for n, claim in enumerate(claims)
    ]
    ended = client.end_many(endings)
    assert [each.job_id for each in ended] == created
    assert codes(ended) == (["completed", "failed", "queued"] * 84)[:250]
    for n in (0, 1, 2):
        told = client.job(created[n])
        shown = [("completed", "r0", ""), ("failed", "r1", "why 1"), ("queued", "", "")][n]
        assert (told.state, told.result_ref, told.reason) == shown
        assert len(queue.events(created[n])) == 3
    again = client.claim_many(300)
    assert [claim.attempts for claim in again] == [2] * 83
    assert codes(client.complete_many((claim, None) for claim in again)) == ["completed"] * 83
    assert client.claim_many(5) == []


@THREE
def test_each_meets_its_own_error_in_its_place(queue: Queue, flavour: Flavour) -> None:
    client = opened(queue, flavour)
    jobs: list[dict[str, Any]] = [
        {"kind": "k", "project": "p"},
        {"kind": "k", "project": "not granted"},
        {"kind": "", "project": "p"},
        {"kind": "k", "project": "p", "delay_seconds": -1},
        {"kind": "k", "project": "p", "more": 1},
        {"kind": "k", "project": "p", "lane_id": "x"},
        {"kind": "k", "project": "p", "payload": "last"},
    ]
    expected = ["queued", "denied", *["invalid_argument"] * 3, "lane_not_found", "queued"]
    assert codes(client.create_many(jobs)) == expected
    first, second = client.claim_many(9)
    nothing = client.job_claim()
    client.release(first)
    wrong = Ending(second, "done")  # type: ignore[arg-type]
    ended = client.end_many([Ending(first, "completed"), Ending(nothing, "failed"), wrong, Ending(second, "completed")])
    assert codes(ended) == ["job_not_claimed", "invalid_argument", "invalid_argument", "completed"]
    assert codes(client.renew_many([first, nothing, second])) == [
        "job_not_claimed",
        "invalid_argument",
        "job_already_terminal",
    ]
    for empty in (client.create_many([]), client.end_many([]), client.complete_many([]), client.renew_many([])):
        assert empty == []


@THREE
def test_a_batch_of_claims_raises_only_when_none_succeeded(queue: Queue, flavour: Flavour) -> None:
    client = opened(queue, flavour)
    assert client.claim_many(0) == client.claim_many(3) == []
    wrong: list[Any] = [-1, 10_001, True, "3", 1.5, None]
    for count in wrong:
        with pytest.raises(errors.InvalidArgument):
            client.claim_many(count)
    with pytest.raises(errors.InvalidArgument):
        client.claim_many(3, kind="")
    with pytest.raises(errors.InvalidArgument):
        client.claim_many(3, lease_seconds=0)
    queue.shampoo.registry.disable_principal("c")
    with pytest.raises(errors.Unauthenticated):
        client.claim_many(3)
    assert codes(client.create_many([{"kind": "k", "project": "p"}] * 2)) == ["unauthenticated"] * 2


@REDIS7
def test_an_idle_queue_is_asked_once_and_a_full_one_in_few_sendings(queue: Queue, flavour: Flavour) -> None:
    pool = queue.shampoo._wire._pool.connection_kwargs
    with Proxy((pool["host"], pool["port"])) as proxy:
        client = opened(queue, flavour, proxy.url)
        assert not client.job_claim()  # opens the connection, and lets the server know the script
        for _ in range(3):
            before = proxy.requests
            assert client.claim_many(100) == []
            assert proxy.requests - before == 1
        client.create_many([{"kind": "k", "project": "p"}] * 60)
        assert len(client.claim_many(50)) == 50
        before = proxy.requests
        assert len(client.claim_many(50)) == 10  # plenty last time: asked all at once
        assert proxy.requests - before == 50
        before = proxy.requests
        assert client.claim_many(50) == []
        assert proxy.requests - before == 1


@REAL
def test_payloads_of_a_mebibyte_each_travel_in_sendings_of_their_own(queue: Queue, flavour: Flavour) -> None:
    client = opened(queue, flavour)
    payloads = [f"{n}" + "é" * (MEBIBYTE // 2 - 1) for n in range(8)]
    found = client.create_many([{"kind": "k", "project": "p", "payload": payload} for payload in payloads])
    assert codes(found) == ["queued"] * 8
    claims = client.claim_many(8)
    assert [claim.payload for claim in claims] == payloads
    too_long = [{"kind": "k", "project": "p", "payload": "x" * (MEBIBYTE + 1)}, {"kind": "k", "project": "p"}]
    assert codes(client.create_many(too_long)) == ["invalid_argument", "queued"]
    client.complete_many((claim, None) for claim in claims)


@FIVE
def test_a_batch_before_which_every_script_was_forgotten_acts_once(queue: Queue, flavour: Flavour) -> None:
    """Field report 13: NOSCRIPT answers a whole sending; each move is still made once."""
    client = opened(queue, flavour)
    for _ in range(3):
        queue.command("SCRIPT", "FLUSH")
        created = [each.job_id for each in client.create_many([{"kind": "k", "project": "p"}] * 30)]
        queue.command("SCRIPT", "FLUSH")
        claims = client.claim_many(30)
        assert sorted(claim.job_id for claim in claims) == sorted(created)
        queue.command("SCRIPT", "FLUSH")
        assert codes(client.renew_many(claims)) == ["renewed"] * 30
        queue.command("SCRIPT", "FLUSH")
        assert codes(client.complete_many((claim, None) for claim in claims)) == ["completed"] * 30
    events = queue.events()
    assert [events.count(f"job.{what}") for what in ("created", "claimed", "completed")] == [90, 90, 90]


@REAL
def test_a_storm_of_flushes_makes_no_move_twice(queue: Queue, flavour: Flavour) -> None:
    """Field report 13: scripts vanish between the moves of one sending."""
    client = opened(queue, flavour)
    over = threading.Event()

    def flush() -> None:
        while not over.is_set():
            queue.command("SCRIPT", "FLUSH")
            over.wait(0.001)

    with ThreadPoolExecutor(1) as pool:
        storm = pool.submit(flush)
        try:
            created = client.create_many([{"kind": "k", "project": "p"}] * 200)
            claims: list[JobClaimResult] = []
            while len(claims) < 200:
                claims += client.claim_many(200 - len(claims))
            ended = client.complete_many((claim, None) for claim in claims)
        finally:
            over.set()
            storm.result(10)
    assert codes(created) == ["queued"] * 200
    assert codes(ended) == ["completed"] * 200
    assert len({claim.job_id for claim in claims}) == 200
    assert queue.events().count("job.claimed") == 200
    assert queue.events().count("job.completed") == 200


@REDIS7
def test_many_threads_share_one_clients_batches(queue: Queue) -> None:
    client = queue.principal("c", "p", conductor=True)
    client.create_many([{"kind": "k", "project": "p"}] * 400)

    def work(_: int) -> list[str]:
        done: list[str] = []
        while claims := client.claim_many(7):
            assert codes(client.complete_many((claim, None) for claim in claims)) == ["completed"] * len(claims)
            done += [claim.job_id for claim in claims]
        return done

    with ThreadPoolExecutor(8) as pool:
        done = [job_id for part in pool.map(work, range(8)) for job_id in part]
    assert len(done) == len(set(done)) == 400
