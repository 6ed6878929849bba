"""The tools over HTTP: what goes in, what comes out, and what stands beside."""

from __future__ import annotations

import json

import httpx2
import pytest

from shampoo_queue import contract
from tests.queue import Queue
from tests.server.conftest import token
from tests.server.door import Door

pytestmark = pytest.mark.parametrize("engine", ["embedded", "redis7"], indirect=True)


def test_a_job_is_created_claimed_and_completed(door: Door, queue: Queue, conductor: str, worker: str) -> None:
    created = door.call("job_create", {"kind": "k", "payload": "é\0\n", "project": "p"}, conductor)
    assert created.status == 200
    assert created.json == {"job_id": created.json["job_id"], "state": "queued"}
    claimed = door.call("job_claim", {}, worker)
    assert (claimed.json["payload"], claimed.json["attempts"]) == ("é\0\n", 1)
    fence = claimed.headers["shampoo-fence"]
    ending = {"job_id": created.json["job_id"], "outcome": "completed"}
    ended = door.call("job_complete", ending, worker, Shampoo_Fence=fence)
    assert ended.json == {"job_id": created.json["job_id"], "state": "completed"}
    assert queue.events(created.json["job_id"]) == ["job.created", "job.claimed", "job.completed"]


def test_nothing_to_claim_is_exactly_false(door: Door, worker: str) -> None:
    reply = door.call("job_claim", {}, worker)
    assert (reply.status, reply.json, "shampoo-fence" in reply.headers) == (200, {"claimed": False}, False)


def test_every_answer_is_json_that_nobody_stores_or_sniffs(door: Door, worker: str) -> None:
    replies = (
        door.call("job_claim", {}, worker),
        door.call("job_claim", {"kind": 5}, worker),
        door.ask("GET", "/nowhere"),
    )
    for reply in replies:
        assert reply.headers["content-type"] == "application/json"
        assert (reply.headers["cache-control"], reply.headers["x-content-type-options"]) == ("no-store", "nosniff")
        assert reply.headers["x-request-id"]
        assert "server" not in reply.headers


def test_a_repeat_under_its_key_gets_the_first_answer(door: Door, queue: Queue, conductor: str, worker: str) -> None:
    first = door.call("job_create", {"kind": "k"}, conductor, Idempotency_Key='"a b"'.replace(" ", "_"))
    again = door.call("job_create", {"kind": "k"}, conductor, Idempotency_Key='"a b"'.replace(" ", "_"))
    assert first.json == again.json
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    other = door.call("job_create", {"kind": "other"}, conductor, Idempotency_Key='"a_b"')
    assert other.error == (409, "request_id_reused")
    assert queue.events().count("job.created") == 1
    claim = door.call("job_claim", {}, worker, Idempotency_Key="c")
    repeat = door.call("job_claim", {}, worker, Idempotency_Key="c")
    assert claim.json == repeat.json
    assert claim.headers["shampoo-fence"] == repeat.headers["shampoo-fence"]
    assert repeat.headers["idempotency-replayed"] == "true"


def test_a_fence_of_another_claim_is_refused(door: Door, conductor: str, worker: str) -> None:
    job_id = door.call("job_create", {"kind": "k"}, conductor).json["job_id"]
    fence = int(door.call("job_claim", {}, worker).headers["shampoo-fence"])
    late = door.call("job_release", {"job_id": job_id}, worker, Shampoo_Fence=str(fence - 1))
    assert late.error == (409, "lease_expired")
    assert door.call("job_release", {"job_id": job_id}, worker, Shampoo_Fence=str(fence)).status == 200


def test_the_holder_stands_in_history(door: Door, queue: Queue, conductor: str) -> None:
    for sent, kept in (("machine/7", "machine/7"), ("größe", "größe")):
        job_id = door.call("job_create", {"kind": "k"}, conductor, Shampoo_Holder=sent).json["job_id"]
        assert queue.shampoo.history(job_id)[0]["holder"] == kept


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("Idempotency-Key", ""),
        ("Idempotency-Key", "a b"),
        ("Idempotency-Key", "é"),
        ("Idempotency-Key", "x" * 129),
        ("Shampoo-Fence", ""),
        ("Shampoo-Fence", "1.0"),
        ("Shampoo-Fence", "+1"),
        ("Shampoo-Fence", "1e3"),
        ("Shampoo-Fence", "true"),
        ("Shampoo-Fence", "1" * 19),
        ("Shampoo-Fence", "٣"),
        ("Shampoo-Holder", "x" * 129),
    ],
)
def test_a_bad_header_is_named_and_not_echoed(door: Door, worker: str, name: str, value: str) -> None:
    reply = door.ask("POST", "/v1/tools/job_claim", b"{}", {name: value}, worker)
    assert reply.error == (422, "invalid_argument")
    message = reply.json["error"]["message"]
    assert name in message
    assert not value or value not in message


@pytest.mark.parametrize("name", ["Idempotency-Key", "Shampoo-Fence", "Shampoo-Holder", "Content-Type"])
def test_a_header_that_stands_twice_is_refused(door: Door, worker: str, name: str) -> None:
    value = "application/json" if name == "Content-Type" else "1"
    reply = door.ask("POST", "/v1/tools/job_claim", b"{}", [(name, value), (name, value)], worker)
    assert reply.error == (400, "bad_request")
    assert name in reply.json["error"]["message"]


@pytest.mark.parametrize(
    ("sent", "kept"),
    [("abc-123", True), ("a" * 128, True), ("a" * 129, False), ("a b", False), ("é", False), ("", False)],
)
def test_a_sane_request_id_comes_back(door: Door, worker: str, sent: str, kept: bool) -> None:
    reply = door.call("job_claim", {}, worker, X_Request_Id=sent)
    assert (reply.headers["x-request-id"] == sent) is kept
    assert reply.headers["x-request-id"]


def test_a_token_is_no_request_id(door: Door, worker: str) -> None:
    assert worker not in door.call("job_claim", {}, worker, X_Request_Id=worker).headers["x-request-id"]


def test_one_connection_carries_many_calls(door: Door, conductor: str) -> None:
    with httpx2.Client(base_url=f"http://127.0.0.1:{door.port}") as client:
        for _ in range(5):
            reply = client.post(
                "/v1/tools/job_create", json={"kind": "k"}, headers={"Authorization": f"bearer {conductor}"}
            )
            assert reply.status_code == 200


def test_the_largest_payload_passes_as_the_largest_json(door: Door, conductor: str, worker: str) -> None:
    payload = "\0" * contract.limit("payload")
    body = json.dumps({"kind": "k", "payload": payload}).encode()
    assert len(body) > 6_000_000
    assert door.ask("POST", "/v1/tools/job_create", body, token=conductor).status == 200
    assert door.call("job_claim", {}, worker).json["payload"] == payload


def test_the_tools_are_listed_without_a_token(door: Door) -> None:
    listed = door.ask("GET", "/v1/tools").json["tools"]
    assert [tool["name"] for tool in listed] == [tool.name for tool in contract.TOOLS]
    for tool in listed:
        assert tool["inputSchema"] == contract.argument_schema(tool["name"])
        assert tool["outputSchema"]["type"] == "object"


def test_a_chunked_body_is_a_body(door: Door, conductor: str) -> None:
    chunked = b'6\r\n{"kind\r\n6\r\n": "k"\r\n1\r\n}\r\n0\r\n\r\n'
    reply = door.ask("POST", "/v1/tools/job_create", chunked, {"Transfer-Encoding": "chunked"}, conductor)
    assert reply.status == 200


def test_a_scope_is_a_bound(door: Door, queue: Queue) -> None:
    reader = token(queue, "reader", scope="tools:read")
    assert door.call("lane_list", {}, reader).status == 200
    assert door.call("job_claim", {}, reader).error == (403, "denied")
    for scope in ("ops:read", "ops:write", "metrics"):
        other = queue.shampoo.registry.issue_token("reader", scope=scope).token
        assert door.call("lane_list", {}, other).error == (403, "denied")
        assert door.ask("POST", "/v1/tools/lane_list", b"[", token=other).error == (403, "denied")
