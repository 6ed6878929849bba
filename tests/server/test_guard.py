"""The guard: who may ask at all, how much at once, and what becomes of a defect."""

from __future__ import annotations

import json
import logging
import re
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Any

import pytest
from uvicorn.protocols.http.h11_impl import H11Protocol

from shampoo_queue import tokens
from shampoo_queue.server import answers
from shampoo_queue.server.guard import Guard, Rules
from shampoo_queue.server.serve import SLOWEST, Place
from tests.conftest import IN_CI
from tests.queue import Queue
from tests.server.door import SECONDS, Door, answer
from tests.servers import wait_until

pytestmark = pytest.mark.parametrize("engine", ["embedded"], indirect=True)

CLAIM = "/v1/tools/job_claim"


# Hosts and origins ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8080", "127.0.0.1", "127.0.0.1:1", "[::1]", "[::1]:443", "queue.example:8443"]
)
def test_a_known_host_is_served(queue: Queue, worker: str, host: str) -> None:
    with Door(queue.engine.url, Rules(hosts=("queue.example",))) as door:
        assert door.ask("POST", CLAIM, b"{}", {"Host": host}, worker).status == 200


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "localhost:", "localhost:x", "a b"),
        *("localhost@evil.example", "evil.example/localhost", "127.0.0.2", "[::2]", "localhost, evil.example", "é"),
    ],
)
def test_another_host_is_refused(door: Door, worker: str, host: str) -> None:
    reply = door.ask("POST", CLAIM, b"{}", {"Host": host}, worker)
    assert reply.status == 400
    assert not host or host.encode() not in reply.body


def test_a_host_given_twice_or_not_at_all_is_refused(door: Door, worker: str) -> None:
    hosts = [("Host", "localhost"), ("Host", "evil.example")]
    assert door.ask("POST", CLAIM, b"{}", hosts, worker).status == 400
    raw = re.sub(rb"Host: [^\r]*\r\n", b"", door.spelled("POST", CLAIM, b"{}", token=worker))
    assert door.send(raw).status == 400
    assert door.send(raw.replace(b"HTTP/1.1", b"HTTP/1.0")).status == 400


def test_probes_are_answered_whatever_the_host(door: Door) -> None:
    assert door.ask("GET", "/livez", headers={"Host": "10.0.0.7:8080"}).status == 200
    assert door.ask("GET", "/readyz", headers={"Host": "pod.cluster.local"}).status == 200
    assert door.ask("GET", "/v1/tools", headers={"Host": "pod.cluster.local"}).status == 400


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost", "http://127.0.0.1", "file://"])
def test_a_page_of_another_origin_is_refused(door: Door, worker: str, origin: str) -> None:
    reply = door.ask("POST", CLAIM, b"{}", {"Origin": origin}, worker)
    assert reply.error == (403, "denied")
    assert "access-control-allow-origin" not in reply.headers


def test_a_page_of_our_own_is_served(door: Door, worker: str) -> None:
    reply = door.ask("POST", CLAIM, b"{}", {"Origin": f"http://127.0.0.1:{door.port}"}, worker)
    assert reply.status == 200


def test_a_page_of_our_own_that_sends_no_referrer_is_served(door: Door, worker: str) -> None:
    """Browsers then keep the origin to themselves, and tell only whether it is the same."""
    for site, status in (("same-origin", 200), ("same-site", 403), ("cross-site", 403), ("none", 403)):
        assert door.ask("POST", CLAIM, b"{}", {"Origin": "null", "Sec-Fetch-Site": site}, worker).status == status
    foreign = {"Origin": "https://evil.example", "Sec-Fetch-Site": "same-origin"}
    assert door.ask("POST", CLAIM, b"{}", foreign, worker).status == 403


def test_a_page_of_an_allowed_origin_may_call_and_read(queue: Queue, worker: str) -> None:
    origin = {"Origin": "https://board.example"}
    with Door(queue.engine.url, Rules(origins=("https://board.example/",))) as door:
        asked = door.ask("OPTIONS", CLAIM, headers=origin | {"Access-Control-Request-Method": "POST"})
        assert asked.status == 204
        assert "Authorization" in asked.headers["access-control-allow-headers"]
        for reply in (asked, door.ask("POST", CLAIM, b"{}", origin, worker), door.ask("POST", CLAIM, b"{}", origin)):
            assert reply.headers["access-control-allow-origin"] == "https://board.example"
        other = door.ask("POST", CLAIM, b"{}", {"Origin": "https://board.example.evil"}, worker)
        assert other.error == (403, "denied")


# Limits ---------------------------------------------------------------------------------------------------------


def test_too_many_or_too_large_headers_are_refused(door: Door, worker: str) -> None:
    many = [(f"X-{n}", "x") for n in range(101)]
    large = [("X-Large", "x" * 33_000)]
    for headers in (many, large):
        assert door.ask("POST", CLAIM, b"{}", headers, worker).error == (400, "bad_request")


def test_a_head_without_end_is_cut_off(door: Door) -> None:
    with door.connected() as connection, pytest.raises((BrokenPipeError, ConnectionResetError)):
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n" + (b"X-More: " + b"x" * 1000 + b"\r\n") * 20_000)
    assert door.ask("GET", "/livez").status == 200


def test_a_body_for_no_tool_has_an_end_too(door: Door) -> None:
    headers = {"Content-Length": str(answers.BODY_LIMIT + 1)}
    assert door.ask("POST", "/nowhere", b"", headers).error == (413, "too_large")


def test_beyond_the_limit_of_calls_at_once_more_are_put_off(queue: Queue, worker: str) -> None:
    """The work of one call is held up inside Redis; what comes meanwhile is told to come again."""
    with Door(queue.engine.url, Rules(concurrency=1)) as door:
        queue.command("CLIENT", "PAUSE", 1500, "ALL")
        with door.connected() as first:
            first.sendall(door.spelled("POST", CLAIM, b"{}", token=worker))
            wait_until(lambda: door.guard._running == 1, "one call runs")
            second = door.call("job_claim", {}, worker)
            assert second.error == (503, "unavailable")
            assert int(second.headers["retry-after"]) > 0
            assert door.ask("GET", "/livez").status == 200
            assert answer(first).status == 200
        assert door.call("job_claim", {}, worker).status == 200


def test_calls_a_second_are_bounded_where_an_operator_says_so(queue: Queue, worker: str) -> None:
    with Door(queue.engine.url, calls_per_second=1.0) as door:
        assert door.call("job_claim", {}, worker).status == 200
        reply = door.call("job_claim", {}, worker)
        assert reply.error == (429, "rate_limited")
        assert int(reply.headers["retry-after"]) > 0


def test_who_fails_too_often_is_put_off_and_its_neighbours_are_not(queue: Queue, worker: str, conductor: str) -> None:
    """Behind one address: guesses count together, and a token that is no good any more shuts out only itself."""
    registry = queue.shampoo.registry
    revoked = registry.issue_token("worker")
    registry.revoke_token(revoked.token_id)
    with Door(queue.engine.url, failed_per_minute=3) as door:
        for bad in ("x", revoked.token):
            statuses = [door.call("job_claim", {}, bad).status for _ in range(5)]
            assert statuses == [401, 401, 401, 429, 429]
        for good in (worker, conductor):
            assert door.call("job_claim", {}, good).status == 200
        assert door.call("job_claim", {}, tokens.mint()).status == 429


def test_only_behind_a_proxy_the_last_hop_names_the_address(queue: Queue) -> None:
    def failed(door: Door, forwarded: str) -> int:
        return door.call("job_claim", {}, "x", X_Forwarded_For=forwarded).status

    with Door(queue.engine.url, Rules(behind_proxy=True), failed_per_minute=1) as door:
        assert failed(door, "10.0.0.1") == 401
        assert failed(door, "10.0.0.1, 10.0.0.2") == 401
        assert failed(door, "10.0.0.9, 10.0.0.1") == 429
        assert failed(door, "10.0.0.2, 10.0.0.1:4000") == 429
        assert failed(door, "[2001:db8::1]:4000") == 401
        assert failed(door, "2001:db8::1") == 429
        assert failed(door, "10.0.0.1:4000, nonsense") == 401  # the proxy's own address, then
        assert failed(door, "nonsense") == 429
    with Door(queue.engine.url, failed_per_minute=1) as door:
        assert [failed(door, f"10.0.0.{n}") for n in range(2)] == [401, 429]


# Slow clients ---------------------------------------------------------------------------------------------------


def test_a_thousand_slow_clients_do_not_stop_others(queue: Queue, conductor: str) -> None:
    """Half of them send a head without end, half promise a body that does not come."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = 2_300  # both ends of each are in this process
    if soft != resource.RLIM_INFINITY and soft < files:
        try:
            most = hard if hard == resource.RLIM_INFINITY else max(hard, files)
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, most))
        except (ValueError, OSError):
            assert not IN_CI, "a process may open enough files in CI"
            pytest.skip(f"a process may open {hard:,} files here, and this takes {files:,}: ulimit -Hn")
    head = b"POST /v1/tools/job_claim HTTP/1.1\r\nHost: localhost\r\n"
    body = head + b"Authorization: Bearer x\r\nContent-Type: application/json\r\nContent-Length: 50\r\n\r\n{"
    with Door(queue.engine.url, failed_per_minute=10**9) as door, ExitStack() as stack:
        for n in range(1_000):
            connection = stack.enter_context(door.connected())
            connection.sendall((head, body)[n % 2])
        began = time.monotonic()
        for _ in range(20):
            assert door.call("job_create", {"kind": "k"}, conductor).status == 200
        assert time.monotonic() - began < 5


@pytest.mark.parametrize("slow", ["nothing", "head", "body", "second head", "answer"])
def test_who_is_too_slow_is_let_go(queue: Queue, conductor: str, slow: str, caplog: pytest.LogCaptureFixture) -> None:
    place = Place(port=0, slowest=dict.fromkeys(SLOWEST, 1.0))
    with Door(queue.engine.url, place=place) as door, door.connected() as connection:
        whole = door.spelled("POST", CLAIM, b'{"kind":"k"}', token=conductor)
        if slow == "answer":
            payload = json.dumps({"kind": "k", "payload": "x" * 1_000_000}).encode()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            for _ in range(12):
                assert door.ask("POST", "/v1/tools/job_create", payload, token=conductor).status == 200
            connection.sendall(whole * 12)
        elif slow == "second head":
            connection.sendall(whole)
            assert answer(connection).status == 200
            connection.sendall(whole[:30])
        else:
            connection.sendall({"nothing": b"", "head": whole[:30], "body": whole[:-3]}[slow])
        wait_until(lambda: not door.server.server_state.connections, "the connection is closed", SECONDS)
        wait_until(lambda: door.guard.open == 0, "no request is open")
    assert "defect" not in caplog.text and "ASGI" not in caplog.text


def test_without_the_fast_parser_all_is_the_same(queue: Queue, conductor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httptools", None)  # as if it were not installed
    place = Place(port=0, slowest=dict.fromkeys(SLOWEST, 1.0))
    with Door(queue.engine.url, place=place) as door, door.connected() as connection:
        assert issubclass(door.server.config.http, H11Protocol)  # type: ignore[arg-type]
        assert door.call("job_create", {"kind": "k"}, conductor).status == 200
        assert door.send(b"\0\0\r\n\r\n").error == (400, "bad_request")
        connection.sendall(b"GET / HTTP/1.1\r\n" + b"X-More: x\r\n" * 20_000)
        assert answer(connection).error == (400, "bad_request")
        with door.connected() as slow:
            slow.sendall(b"GET / HT")
            wait_until(lambda: not door.server.server_state.connections, "the connection is closed", SECONDS)


def test_who_is_idle_between_calls_stays(queue: Queue, worker: str) -> None:
    place = Place(port=0, slowest=dict.fromkeys(SLOWEST, 1.0))
    with Door(queue.engine.url, place=place) as door, door.connected() as connection:
        for pause in (2.5, 0):
            connection.sendall(door.spelled("POST", CLAIM, b"{}", token=worker))
            assert answer(connection).status == 200
            time.sleep(pause)


# Going down -----------------------------------------------------------------------------------------------------


def test_going_down_lets_running_calls_end_and_takes_no_new_ones(queue: Queue, conductor: str) -> None:
    with Door(queue.engine.url) as door, door.connected() as running, door.connected() as idle:
        whole = door.spelled("POST", "/v1/tools/job_create", b'{"kind":"k"}', token=conductor)
        running.sendall(whole[:-5])
        wait_until(lambda: door.guard.open == 1, "the call is under way")
        door.soon(door.server.leave)
        wait_until(lambda: door.guard.leaving.is_set(), "the server leaves")
        refused = door.call("job_create", {"kind": "k"}, conductor)
        assert refused.error == (503, "unavailable")
        assert int(refused.headers["retry-after"]) > 0
        assert door.ask("GET", "/livez").status == 200
        ready = door.ask("GET", "/readyz")
        assert (ready.status, ready.json["checks"]["draining"]) == (503, "this server is going down")
        running.sendall(whole[-5:])
        assert answer(running).status == 200
        door._thread.join(SECONDS)
        assert not door._thread.is_alive()
        idle.settimeout(SECONDS)
        assert idle.recv(1) == b""
    assert queue.events().count("job.created") == 1


def test_going_down_under_load_loses_no_answer(queue: Queue, conductor: str) -> None:
    """Whoever heard 200 made a job, and nobody else did."""
    heard: list[int] = []

    def create(door: Door) -> None:
        with suppress(OSError):  # nobody listens any more
            while True:
                heard.append(door.call("job_create", {"kind": "k"}, conductor).status)

    with Door(queue.engine.url) as door, ThreadPoolExecutor(8) as threads:
        running = [threads.submit(create, door) for _ in range(8)]
        wait_until(lambda: len(heard) > 50, "calls run")
        door.soon(door.server.leave)
        for one in running:
            one.result(SECONDS)
    assert set(heard) <= {200, 503}
    assert queue.events().count("job.created") == min(heard.count(200), 1000)


def test_going_down_waits_no_longer_than_the_grace_time(queue: Queue, conductor: str) -> None:
    with Door(queue.engine.url, place=Place(port=0, grace_seconds=0.5)) as door, door.connected() as running:
        running.sendall(door.spelled("POST", CLAIM, b"{}", token=conductor)[:-1])
        wait_until(lambda: door.guard.open == 1, "the call is under way")
        began = time.monotonic()
        door.soon(door.server.leave)
        door._thread.join(SECONDS)
        assert time.monotonic() - began < 5


# Defects and the log --------------------------------------------------------------------------------------------


class _Desk:
    draining = False


async def _asked(app: Any, path: str = "/", **scope: Any) -> tuple[int, dict[bytes, bytes], bytes]:
    """Ask an app through a guard, without a server between."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    asked = {"type": "http", "method": "GET", "path": path, "headers": [(b"host", b"localhost")], **scope}
    await Guard(app, _Desk())(asked, receive, send)  # type: ignore[arg-type]
    return sent[0]["status"], dict(sent[0]["headers"]), sent[1]["body"]


def test_a_defect_is_an_id_and_nothing_else(engine: object, caplog: pytest.LogCaptureFixture) -> None:
    import asyncio

    async def broken(*_: Any) -> None:
        raise ValueError("planted in the defect")

    status, headers, body = asyncio.run(_asked(broken))
    request_id = headers[b"x-request-id"].decode()
    assert (status, json.loads(body)["error"]["code"]) == (500, "internal")
    assert request_id in body.decode()
    assert b"planted" not in body
    assert request_id in caplog.text


def test_the_access_log_shows_neither_token_nor_query(
    door: Door, queue: Queue, worker: str, caplog: pytest.LogCaptureFixture
) -> None:
    planted = tokens.mint()
    with caplog.at_level(logging.DEBUG):
        door.call("job_claim", {}, worker)
        door.call("job_claim", {"kind": planted}, planted, X_Request_Id=planted, Idempotency_Key=planted)
        door.ask("GET", f"/v1/tools?access_token={planted}")
        door.ask("GET", f"/v1/{planted}")
        door.ask("GET", f"/v1/%73hp_{planted[4:]}%0aINFO%20all%20is%20well")
        door.ask("POST", f"/v1/tools/{planted}", planted.encode(), {"Shampoo-Holder": planted}, worker)
        wait_until(lambda: caplog.text.count("GET /v1/") >= 3, "all is logged")
    secret = planted.split("_")[2]
    assert secret not in caplog.text
    assert worker.split("_")[2] not in caplog.text
    assert f"token={worker.split('_')[1]}" in caplog.text
    assert "access_token" not in caplog.text
    assert not any(line.startswith("INFO all is well") for line in caplog.text.splitlines())


def test_no_answer_holds_a_planted_secret(door: Door, worker: str) -> None:
    planted = tokens.mint()
    replies = [
        door.call("job_claim", {planted: 1}, worker),
        door.call("job_claim", {"kind": {"a": planted}}, worker),
        door.call("job_release", {"job_id": planted}, worker),
        door.ask("GET", f"/{planted}"),
        door.ask("POST", CLAIM, planted.encode(), token=worker),
        door.call("job_claim", {}, planted),
        door.ask("GET", "/livez", headers={"Host": planted, "X-Request-Id": planted}),
        door.ask("GET", "/v1/tools", headers={"Host": planted, "Origin": f"https://{planted}"}),
    ]
    secret = planted.split("_")[2]
    for reply in replies[1:]:
        assert secret not in reply.body.decode() + repr(reply.headers)
    # Of an unknown argument's name the contract shows forty characters, which is less than a token's secret.
    assert secret not in replies[0].body.decode()
