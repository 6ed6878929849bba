"""Claims that wait: woken by new work, bounded by the client's patience, holding nothing for who hung up."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from shampoo_queue.server.answers import Passage
from shampoo_queue.server.guard import Rules
from tests.queue import Queue
from tests.server.conftest import token
from tests.server.door import Door, Reply, answer
from tests.servers import wait_until

pytestmark = pytest.mark.parametrize("engine", ["embedded", "redis7"], indirect=True)

CLAIM = "/v1/tools/job_claim"


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(32) as pool:
        yield pool


def waiting(queue: Queue, count: int = 1, kind: str = "") -> None:
    wait_until(lambda: queue.command("ZCARD", queue.key("waiting", kind)) >= count, f"{count} wait")


def nobody_waits(door: Door, queue: Queue, kind: str = "") -> None:
    """Wait until the server has ended every wait. Whom it left in the table of idle callers holds nothing of a job."""
    wait_until(lambda: door.guard.open == 0, "no request is open")


def claim(threads: ThreadPoolExecutor, door: Door, token: str, seconds: int, **headers: str) -> Future[Reply]:
    return threads.submit(door.call, "job_claim", {}, token, Prefer=f"wait={seconds}", **headers)


def test_who_waits_is_woken_by_new_work(
    door: Door, queue: Queue, conductor: str, worker: str, threads: ThreadPoolExecutor
) -> None:
    found = claim(threads, door, worker, 20)
    waiting(queue)
    began = time.monotonic()
    job_id = door.call("job_create", {"kind": "k"}, conductor).json["job_id"]
    reply = found.result(20)
    assert time.monotonic() - began < 4
    assert reply.json["job_id"] == job_id
    assert reply.headers["shampoo-fence"]
    assert reply.headers["preference-applied"] == "wait=20"


def test_a_wait_without_work_ends_with_false(door: Door, worker: str) -> None:
    began = time.monotonic()
    reply = door.call("job_claim", {}, worker, Prefer="respond-async, wait=1; x=y")
    assert 0.9 < time.monotonic() - began < 4
    assert (reply.json, reply.headers["preference-applied"]) == ({"claimed": False}, "wait=1")


@pytest.mark.parametrize(
    "prefer", ["wait", "wait=", "wait=soon", "wait=-1", "wait=1.5", "respond-async", "waits=9", ""]
)
def test_a_preference_that_is_not_understood_does_not_count(door: Door, worker: str, prefer: str) -> None:
    reply = door.call("job_claim", {}, worker, Prefer=prefer)
    assert (reply.json, "preference-applied" in reply.headers) == ({"claimed": False}, False)


def test_no_wait_is_longer_than_thirty_seconds(door: Door, conductor: str) -> None:
    door.call("job_create", {"kind": "k"}, conductor)
    reply = door.call("job_claim", {}, conductor, Prefer="wait=" + "9" * 50)
    assert reply.headers["preference-applied"] == "wait=30"


def test_only_a_claim_waits(door: Door, conductor: str) -> None:
    reply = door.call("lane_list", {}, conductor, Prefer="wait=20")
    assert (reply.status, "preference-applied" in reply.headers) == (200, False)


def test_a_bad_token_and_bad_arguments_do_not_wait(door: Door, worker: str) -> None:
    began = time.monotonic()
    assert door.call("job_claim", {}, "x", Prefer="wait=20").status == 401
    assert door.call("job_claim", {"kind": ""}, worker, Prefer="wait=20").error == (422, "invalid_argument")
    assert time.monotonic() - began < 5


def test_who_hung_up_holds_nothing(door: Door, queue: Queue, conductor: str, worker: str) -> None:
    """Field report: a proxy cut the line of a waiting executor, and the job it never saw was leased to it."""
    for _ in range(5):
        with door.connected() as connection:
            connection.sendall(door.spelled("POST", CLAIM, b"{}", {"Prefer": "wait=30"}, worker))
            waiting(queue)
        nobody_waits(door, queue)
    job_id = door.call("job_create", {"kind": "k"}, conductor).json["job_id"]
    assert queue.events(job_id) == ["job.created"]
    claimed = door.call("job_claim", {}, worker)
    assert (claimed.json["job_id"], claimed.json["attempts"]) == (job_id, 1)


def test_who_hung_up_after_asking_twice_holds_nothing(door: Door, queue: Queue, worker: str) -> None:
    raw = door.spelled("POST", CLAIM, b"{}", {"Prefer": "wait=30"}, worker)
    with door.connected() as connection:
        connection.sendall(raw * 2)
        waiting(queue)
    nobody_waits(door, queue)


def test_a_job_made_in_the_moment_of_hanging_up_is_not_held(
    door: Door, queue: Queue, conductor: str, worker: str
) -> None:
    """Whoever won a claim that nobody hears gives it back: the job is queued, whichever came first."""
    for round_ in range(10):
        with door.connected() as connection:
            connection.sendall(door.spelled("POST", CLAIM, b"{}", {"Prefer": "wait=30"}, worker))
            waiting(queue)
            raw = door.spelled("POST", "/v1/tools/job_create", b'{"kind":"k"}', token=conductor)
            with door.connected() as other:
                if round_ % 2:
                    connection.close()
                other.sendall(raw)
                connection.close()
                job_id = answer(other).json["job_id"]
        nobody_waits(door, queue)
        events = queue.events(job_id)
        assert events[:1] == ["job.created"]
        if events[1:] == ["job.claimed"]:  # the answer was on its way before the line was cut
            door.call("job_release", {"job_id": job_id}, worker)
        else:
            assert events[1:] in ([], ["job.claimed", "job.released"])
        queue.shampoo.ops.cancel(job_id, "between rounds")


def test_what_was_claimed_under_an_id_is_whoever_repeats_it(
    door: Door, queue: Queue, conductor: str, worker: str
) -> None:
    """A client hangs up and repeats its claim at another server, which answers with a job: it stays the client's.

    The first server must not give that job back, or two hold it with a live lease.
    """
    with Door(queue.engine.url) as second:
        for round_ in range(20):
            asked = {"Prefer": "wait=30", "Idempotency-Key": f"try-{round_}"}
            with door.connected() as connection:
                connection.sendall(door.spelled("POST", CLAIM, b"{}", asked, worker))
                waiting(queue)
                with door.connected() as other:
                    other.sendall(door.spelled("POST", "/v1/tools/job_create", b'{"kind":"k"}', token=conductor))
                    time.sleep(round_ * 0.0005)
                    connection.close()
                    job_id = answer(other).json["job_id"]
            repeated = second.call("job_claim", {}, worker, Idempotency_Key=f"try-{round_}").json
            nobody_waits(door, queue)
            assert repeated["job_id"] == job_id
            assert queue.events(job_id) == ["job.created", "job.claimed"]
            queue.shampoo.ops.cancel(job_id, "between rounds")


@pytest.mark.parametrize("key", ["", "a-key"])
def test_who_is_found_gone_just_before_the_answer_holds_nothing(
    door: Door, queue: Queue, conductor: str, worker: str, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    """The server below would drop the answer, and the job would stand under a lease that nobody knows of."""
    job_id = door.call("job_create", {"kind": "k"}, conductor).json["job_id"]
    asked = {"Prefer": "wait=30"} | ({"Idempotency-Key": key} if key else {})
    with monkeypatch.context() as patched, door.connected() as connection:
        patched.setattr(Passage, "is_gone", lambda _: True)
        connection.sendall(door.spelled("POST", CLAIM, b"{}", asked, worker))
        nobody_waits(door, queue)
        wait_until(lambda: len(queue.events(job_id)) == (2 if key else 3), "what became of the claim")
    assert queue.events(job_id) == ["job.created", "job.claimed", *([] if key else ["job.released"])]
    if key:  # it is there for whoever repeats the call
        repeated = door.call("job_claim", {}, worker, Idempotency_Key=key)
        assert (repeated.json["job_id"], repeated.headers["idempotency-replayed"]) == (job_id, "true")


def test_many_who_wait_do_not_stop_others(queue: Queue, conductor: str, worker: str) -> None:
    """Each holds a connection to Redis; beyond so many a claim does not wait, and nobody is refused."""
    with Door(queue.engine.url, waits=150) as door, ExitStack() as stack:
        raw = door.spelled("POST", CLAIM, b"{}", {"Prefer": "wait=30"}, worker)
        for _ in range(150):
            stack.enter_context(door.connected()).sendall(raw)
        waiting(queue, 150)
        began = time.monotonic()
        assert door.call("job_claim", {}, worker, Prefer="wait=30").json == {"claimed": False}
        assert door.call("lane_list", {}, worker).status == 200
        assert door.call("job_claim", {}, "x").status == 401
        assert time.monotonic() - began < 4


def test_a_wait_counts_from_its_beginning(queue: Queue, worker: str) -> None:
    with Door(queue.engine.url, calls_per_second=2.0) as door, ExitStack() as stack:
        raw = door.spelled("POST", CLAIM, b"{}", {"Prefer": "wait=30"}, worker)
        for number in (1, 2):
            stack.enter_context(door.connected()).sendall(raw)
            waiting(queue, number)
        assert door.call("job_claim", {}, worker, Prefer="wait=30").error == (429, "rate_limited")


def test_many_wait_and_each_gets_one(
    door: Door, queue: Queue, conductor: str, worker: str, threads: ThreadPoolExecutor
) -> None:
    found = [claim(threads, door, worker, 20) for _ in range(20)]
    waiting(queue, 20)
    made = {door.call("job_create", {"kind": "k"}, conductor).json["job_id"] for _ in range(20)}
    assert {reply.result(20).json["job_id"] for reply in found} == made


def test_a_wait_is_no_running_call(queue: Queue, conductor: str, worker: str, threads: ThreadPoolExecutor) -> None:
    """However many wait, others are served: a wait takes no place of the limit on calls at once."""
    with Door(queue.engine.url, Rules(concurrency=2)) as door:
        found = []
        for count in range(1, 9):
            found.append(claim(threads, door, worker, 20))
            waiting(queue, count)
        assert door.call("lane_list", {}, worker).status == 200
        for _ in found:
            assert door.call("job_create", {"kind": "k"}, conductor).status == 200
        assert all(reply.result(20).json["claimed"] for reply in found)


def test_a_server_that_goes_down_lets_nobody_wait(queue: Queue, threads: ThreadPoolExecutor) -> None:
    worker = token(queue, "worker")
    with Door(queue.engine.url) as door:
        found = claim(threads, door, worker, 30)
        waiting(queue)
        began = time.monotonic()
        door.soon(door.server.leave)
        assert found.result(20).json == {"claimed": False}
        assert time.monotonic() - began < 4
