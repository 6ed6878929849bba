"""Field reports 52 and 53: what went wrong for users of other queues' deliveries, as tests for these."""

from __future__ import annotations

import base64
import json
import time
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from standardwebhooks import Webhook

from shampoo_queue.pump import Limits, Signer
from tests.conftest import REAL
from tests.pump.core import QUICK
from tests.pump.queue import QUICK_PATIENCE, Sender, pump, pumping
from tests.pump.sink import Sink, endless, silence, status
from tests.queue import Queue

pytestmark = pytest.mark.parametrize("engine", REAL, indirect=True)

SECRET = "whsec_" + base64.b64encode(b"a secret of some length!").decode()
OK = b"HTTP/1.1 200 OK\r\n"


# 52: slow or endless responses; wrong retry decision ----------------------------------------------------------


@pytest.mark.parametrize("how", ["silence", "dribble", "endless"])
def test_one_hung_endpoint_does_not_block_the_deliveries_behind_it(queue: Queue, how: str) -> None:
    hung = {
        "silence": silence,
        "dribble": endless(OK, b"a", 0.2),
        "endless": endless(OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\na\r\n", 0.2),
    }[how]
    with Sink() as slow, Sink() as healthy:
        sender = Sender(queue)
        for _ in range(40):
            sender.create(slow.on("/", hung))
        behind = sender.create(healthy.uri())
        began = time.monotonic()
        with pumping(queue, pump(limits=Limits(), concurrency=8)):
            assert sender.ended(behind).state == "completed"
        assert time.monotonic() - began < 3
        assert slow.most_at_once <= 4


def test_a_hung_host_with_more_jobs_than_can_be_kept_does_not_block_either_and_is_not_hammered(queue: Queue) -> None:
    # What is given back comes again after the longest pause.
    patience = replace(QUICK_PATIENCE, quiet_seconds=0.5, most_waiting=10, most_pause_seconds=60.0)
    with Sink() as slow, Sink() as healthy:
        sender = Sender(queue)
        hung = [sender.create(slow.on("/", silence)) for _ in range(60)]
        behind = sender.create(healthy.uri())
        with pumping(queue, pump(limits=Limits(), concurrency=8, patience=patience)):
            assert sender.ended(behind).state == "completed"
            attempts = [sender.client.job(job_id).attempts for job_id in hung]
        assert max(attempts) == 1
        assert len(slow.requests) <= 4


def test_a_delivery_never_outlives_its_lease(queue: Queue) -> None:
    with Sink() as sink:
        sender = Sender(queue)
        job_id = sender.create(sink.on("/", endless(OK, b"a", 0.05), 200))
        with pumping(queue, pump(limits=Limits(), lease_seconds=1)):
            assert sender.ended(job_id).attempts == 2
        assert sender.reasons(job_id) == ["timeout: no answer within 0.8 s"]
        assert "job.reclaimed" not in queue.events(job_id)


def test_retry_after_is_a_floor_and_jitter_never_makes_the_retry_earlier(queue: Queue) -> None:
    with Sink() as sink:
        sender = Sender(queue)
        jobs = [sender.create(sink.on(f"/{n}", status(429, ["Retry-After: 1"]), 200)) for n in range(8)]
        with pumping(queue, pump()):
            assert {sender.ended(job_id).state for job_id in jobs} == {"completed"}
        for n in range(8):
            first, second = sink.got(f"/{n}")
            assert second.at - first.at >= 1


@pytest.mark.parametrize("value, seconds", [("120", 120), ("1000000000000", 3600)])
def test_retry_after_delays_the_job_in_the_queue_up_to_an_hour(queue: Queue, value: str, seconds: int) -> None:
    with Sink() as sink:
        sender = Sender(queue)
        job_id = sender.create(sink.on("/", status(503, [f"Retry-After: {value}"])))
        with pumping(queue, pump()):
            sink.wait_for(1)
            while not (standing := sender.client.job(job_id)).due_at:
                time.sleep(0.01)
        due = datetime.fromisoformat(standing.due_at).timestamp() - time.time()
        assert seconds - 5 < due <= seconds * 1.25
        assert sender.reasons(job_id) == ["http:503"]


def test_a_delivery_whose_outcome_is_unknown_is_tried_again_under_the_same_id(queue: Queue) -> None:
    with Sink() as sink:
        sender = Sender(queue)
        job_id = sender.create(sink.on("/", silence, 200))
        with pumping(queue, pump()):
            assert sender.ended(job_id).state == "completed"
        assert [one.job_id for one in sink.requests] == [job_id, job_id]


# 53: bytes sent differ from bytes stored or signed ------------------------------------------------------------

PAYLOADS = {
    "non-ASCII": '{"uri": "URI", "text": "žluťoučký 🐎 \\u00e9 \u2028"}',
    "odd spacing": '\t{ "uri"  :\n"URI",\r\n\r\n"a":1 , "b" : [ ] }  ',
    "big integers": '{"uri": "URI", "n": 123456789012345678901234567890, "f": 1.10, "e": 1E400, "z": -0}',
    "trailing newline": '{"uri": "URI"}\n',
    "lone carriage return": '\r{"uri": "URI"}\r',
    "escapes": '{"uri": "URI", "a": "\\ud800", "b": "\\u0000", "\\u0061b": null}',
}
BODIES = {
    "empty": "",
    "newline": "\n",
    "lone carriage return": "a\rb\r",
    "NUL": "\x00",
    "non-ASCII": "ž🐎\u2028\ufeff",
    "JSON": '{ "n": 12345678901234567890 }\n',
}


@pytest.mark.parametrize("name", PAYLOADS)
def test_the_payload_is_sent_and_signed_byte_for_byte_on_every_attempt(queue: Queue, name: str) -> None:
    with Sink() as sink:
        payload = PAYLOADS[name].replace("URI", sink.on("/", 500, 503, 200))
        _deliver_and_verify(queue, sink, payload, payload.encode())


@pytest.mark.parametrize("name", BODIES)
def test_a_body_is_sent_and_signed_byte_for_byte_on_every_attempt(queue: Queue, name: str) -> None:
    with Sink() as sink:
        payload = json.dumps({"uri": sink.on("/", 500, 503, 200), "body": BODIES[name]})
        _deliver_and_verify(queue, sink, payload, BODIES[name].encode())


def _deliver_and_verify(queue: Queue, sink: Sink, payload: str, body: bytes) -> None:
    sender = Sender(queue)
    job_id = sender.create_raw(payload)
    with pumping(queue, pump(Signer({"p": SECRET}))):
        assert sender.ended(job_id).state == "completed"
    assert len(sink.requests) == 3
    for attempt, request in enumerate(sink.requests, 1):
        assert request.body == body
        assert (request.job_id, request.attempt) == (job_id, attempt)
        Webhook(SECRET).verify(request.body, request.headers, json_parse=False)
    assert sorted(one.fence for one in sink.requests) == [one.fence for one in sink.requests]


def test_each_attempt_has_a_timestamp_of_its_own(queue: Queue) -> None:
    """A receiver that takes no signature older than five minutes must take a retry after half an hour."""
    with Sink() as sink:
        sender = Sender(queue)
        job_id = sender.create(sink.on("/", status(503, ["Retry-After: 2"]), 200))
        with pumping(queue, pump(Signer({"*": SECRET}))):
            assert sender.ended(job_id).state == "completed"
        first, second = (int(one.headers["webhook-timestamp"]) for one in sink.requests)
        assert second >= first + 2
        assert abs(second - datetime.now(UTC).timestamp()) < 10


def test_header_values_cannot_be_injected_through_kind_or_headers(queue: Queue) -> None:
    kind = "delivery: x, y; \u2028 z\"'"
    with Sink() as sink:
        sender = Sender(queue)
        payload = json.dumps({"uri": sink.uri()})
        clean = sender.client.job_create(kind=kind, project="p", payload=payload).job_id
        bad = [{"X": "a\r\nInjected: 1"}, {"X\r\nInjected": "1"}, {"Shampoo-Fence": "9"}, {"webhook-id": "other"}]
        refused = [
            sender.client.job_create(kind=kind, project="p", payload=json.dumps({"uri": sink.uri(), "headers": one}))
            for one in bad
        ]
        with pumping(queue, pump(Signer({"p": SECRET}), kind=kind)):
            assert sender.ended(clean).state == "completed"
            assert {sender.ended(one.job_id).state for one in refused} == {"failed"}
        (request,) = sink.requests
        assert request.job_id == clean
        assert set(request.headers) == {
            "host",
            "content-type",
            "content-length",
            "connection",
            "user-agent",
            "webhook-id",
            "webhook-timestamp",
            "webhook-signature",
            "shampoo-fence",
            "shampoo-attempt",
        }


def test_a_rotation_signs_with_both_secrets_and_each_project_with_its_own(queue: Queue) -> None:
    other = base64.b64encode(b"another secret as long!!").decode()
    with Sink() as sink:
        sender = Sender(queue)
        queue.shampoo.registry.grant("c", "q")
        queue.shampoo.registry.grant("w", "q")
        both = sender.create(sink.uri("/both"))
        theirs = sender.client.job_create(kind="delivery", project="q", payload=json.dumps({"uri": sink.uri("/q")}))
        with pumping(queue, pump(Signer({"p": [other, SECRET], "*": other}))):
            assert sender.ended(both).state == sender.ended(theirs.job_id).state == "completed"
        (request,) = sink.got("/both")
        for secret in (SECRET, other):
            Webhook(secret).verify(request.body, request.headers, json_parse=False)
        (request,) = sink.got("/q")
        Webhook(other).verify(request.body, request.headers, json_parse=False)


def test_a_project_without_a_secret_among_secrets_is_not_sent_unsigned(queue: Queue) -> None:
    with Sink() as sink:
        sender = Sender(queue)
        job_id = sender.create(sink.uri())
        with pumping(queue, pump(Signer({"q": SECRET}), limits=QUICK)):
            end = sender.ended(job_id)
        assert (end.state, end.reason) == ("failed", "signing: no secret is configured for the project of this job")
        assert not sink.connections
