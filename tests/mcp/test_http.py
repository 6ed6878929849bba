"""``POST /mcp`` byte by byte: what the SDK's own parsers would let in, change, refuse or echo."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest

from shampoo_queue import Shampoo
from shampoo_queue.server.answers import BODY_LIMIT
from tests.mcp.serving import EMBEDDED, Serving, over_http, run
from tests.queue import Queue
from tests.servers import Server, valkey

pytestmark = EMBEDDED

MODERN = "2026-07-28"
ERAS = ("2025-06-18", MODERN)


class Poster:
    """Raw requests with a live token."""

    def __init__(self, queue: Queue, serving: Serving, http: httpx2.Client, token: str | None = None) -> None:
        self.queue, self.serving, self.http = queue, serving, http
        self.token = token or queue.shampoo.registry.issue_token("boss").token

    def post(self, body: Any, era: str = ERAS[0], token: str | None = None, **headers: str) -> httpx2.Response:
        """Send bytes as they are, anything else as JSON."""
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        named = body["method"] if isinstance(body, dict) and "method" in body else "tools/call"
        given = {
            "Authorization": f"Bearer {token or self.token}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": era,
            **({"Mcp-Method": named, "Mcp-Name": "job_create"} if era == MODERN else {}),
            **headers,
        }
        return self.http.post(f"{self.serving.url}/mcp", content=raw, headers=given)

    def create(self, arguments: str, era: str, meta: str = "") -> httpx2.Response:
        """Call job_create with arguments that are spelled by the test."""
        envelope = (
            f'"io.modelcontextprotocol/protocolVersion":"{era}","io.modelcontextprotocol/clientCapabilities":{{}}'
        )
        parts = [part for part in (envelope if era == MODERN else "", meta) if part]
        params = f'"name":"job_create","arguments":{arguments},"_meta":{{{",".join(parts)}}}'
        return self.post(f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{{params}}}}}'.encode(), era)


@pytest.fixture
def poster(queue: Queue, serving: Serving) -> Iterator[Poster]:
    queue.principal("boss", "", conductor=True)
    with httpx2.Client(trust_env=False, timeout=20) as http:
        yield Poster(queue, serving, http)


def until(seen: Callable[[], bool], seconds: float = 10) -> None:
    """Wait for something that tells nobody when it happens."""
    deadline = time.monotonic() + seconds
    while not seen():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.005)


def refusal(response: httpx2.Response) -> str:
    """The code of a refusal that came as a tool's result."""
    result = response.json()["result"]
    assert result["isError"] is True
    assert "structuredContent" not in result
    return str(json.loads(result["content"][0]["text"])["error"]["code"])


@pytest.mark.parametrize("era", ERAS)
def test_a_lone_surrogate_among_the_arguments_is_refused_by_the_contract(poster: Poster, era: str) -> None:
    for arguments in (
        r'{"kind":"k","payload":"\ud800"}',
        r'{"kind":"\udc00"}',
        r'{"kind":"k","\ud800":1}',
        r'{"kind":{"\ud800":"\ud800"}}',
    ):
        assert refusal(poster.create(arguments, era)) == "invalid_argument"
    for meta in (r'"shampoo/request_id":"\ud800"', r'"shampoo/holder":"\ud800"'):
        assert refusal(poster.create('{"kind":"k"}', era, meta)) == "invalid_argument"
    assert poster.create(r'{"kind":"k","payload":"😀"}', era).json()["result"]["structuredContent"]
    assert poster.queue.shampoo.client("boss").job_claim().payload == "😀"


@pytest.mark.parametrize("era", ERAS)
def test_what_is_no_strict_json_is_a_parse_error_that_echoes_nothing(poster: Poster, era: str) -> None:
    for arguments in (
        '{"kind":"k","kind":"secret"}',
        '{"kind":"k","payload":NaN}',
        '{"kind":"k","payload":-Infinity}',
        '{"kind":' + "[" * 100 + "]" * 100 + "}",
        '{"kind":' + "[" * 200_000 + "]" * 200_000 + "}",
        '{"kind":' + "7" * 5_000 + "}",
        '{"kind":"secret}',
    ):
        answered = poster.create(arguments, era)
        assert answered.status_code == 400
        assert answered.json() | {"error": None} == {"jsonrpc": "2.0", "id": None, "error": None}
        assert answered.json()["error"]["code"] == -32700
        assert "secret" not in answered.text
    for raw in (b"", b"\xff", b"\xef\xbb\xbf{}", "{}".encode("utf-16"), b"[]", b"1", b"{} {}"):
        assert poster.post(raw, era).status_code == 400


@pytest.mark.parametrize("era", ERAS)
def test_what_is_no_message_is_refused_and_echoes_nothing(poster: Poster, era: str) -> None:
    good = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    for change in (
        {"jsonrpc": "secret"},
        {"id": 1.5},
        {"id": True},
        {"id": None},
        {"id": ["secret"]},
        {"id": "\ud800"},
        {"method": ["secret"]},
        {"method": "\ud800secret"},
        {"params": "secret"},
        {"params": ["secret"]},
    ):
        answered = poster.post(json.dumps(good | change).encode(), era)
        assert answered.status_code == 400
        assert "secret" not in answered.text
        assert "pydantic" not in answered.text


def test_odd_arguments_are_refused_as_at_every_door(poster: Poster) -> None:
    for arguments in ('"k"', "[]", "7", "true", '{"kind":1e400}', '{"kind":' + "7" * 900 + "}"):
        assert refusal(poster.create(arguments, ERAS[0])) == "invalid_argument"
    assert refusal(poster.create("null", ERAS[0])) == "invalid_argument"  # kind is missing
    assert not poster.queue.events()[1:] or "job.created" not in poster.queue.events()


@pytest.mark.parametrize("era", ERAS)
def test_a_bad_token_hears_401_before_anything_else(poster: Poster, era: str) -> None:
    dead = poster.queue.shampoo.registry.issue_token("boss")
    poster.queue.shampoo.registry.revoke_token(dead.token_id)
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "job_create", "arguments": {}}}
    bodies: list[Any] = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}},
        {"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
        {"jsonrpc": "2.0", "id": 1, "method": "server/discover"},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        call,
        call | {"params": {"name": "job_steal", "arguments": {}}},
        call | {"params": {}},
        b"no json",
        b"[" * 100_000,
        b" " * (BODY_LIMIT + 1),
    ]
    seen = set()
    for body in bodies:
        for token in (dead.token, "shp_nothing", "Zm9v"):
            answered = poster.post(body, era, token)
            assert answered.headers["www-authenticate"] == "Bearer"
            seen.add((answered.status_code, answered.content))
    assert seen == {(401, b'{"error":{"code":"unauthenticated","message":"unauthenticated"}}')}
    # Two credentials are none, whichever of them is good.
    both = httpx2.Headers([("Authorization", f"Bearer {poster.token}"), ("Authorization", f"Bearer {dead.token}")])
    both["Content-Type"] = "application/json"
    assert poster.http.post(f"{poster.serving.url}/mcp", json=call, headers=both).status_code == 401


def test_refusals_of_the_door_have_the_doors_body(poster: Poster) -> None:
    def seen(answered: httpx2.Response) -> tuple[int, str]:
        return answered.status_code, answered.json()["error"]["code"]

    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    assert seen(poster.post(b"x" * (BODY_LIMIT + 1))) == (413, "too_large")
    assert seen(poster.post(ping, **{"Content-Type": "text/plain"})) == (415, "unsupported_media_type")
    assert seen(poster.post(ping, **{"Content-Encoding": "gzip"})) == (415, "unsupported_media_type")
    assert seen(poster.post(ping, Host="evil.example")) == (400, "bad_request")
    assert seen(poster.post(ping, Origin="http://evil.example")) == (403, "denied")
    for method in ("GET", "DELETE", "PUT"):
        answered = poster.http.request(method, f"{poster.serving.url}/mcp")
        assert seen(answered) == (405, "method_not_allowed")
        assert answered.headers["allow"] == "POST"
    answered = poster.http.post(
        f"{poster.serving.url}/mcp/", json=ping, headers={"Authorization": f"Bearer {poster.token}"}
    )
    assert answered.json() == {"jsonrpc": "2.0", "id": 1, "result": {}}


def test_a_body_in_chunks_is_bounded_too(poster: Poster) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(9):
            yield b" " * 1024 * 1024

    headers = {"Authorization": f"Bearer {poster.token}", "Content-Type": "application/json"}
    answered = poster.http.post(f"{poster.serving.url}/mcp", content=chunks(), headers=headers)
    assert answered.status_code == 413


def test_a_client_that_hangs_up_in_the_middle_of_a_call_leaves_it_whole(poster: Poster) -> None:
    arguments = {"kind": "k", "payload": "x"}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "job_create", "arguments": arguments}}
    body = json.dumps(call).encode()
    head = (
        f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {poster.token}\r\n"
        f"Content-Type: application/json\r\nAccept: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()
    address = ("127.0.0.1", int(poster.serving.url.rpartition(":")[2]))
    poster.queue.command("CLIENT", "PAUSE", 1_000, "ALL")
    connections = [socket.create_connection(address) for _ in range(21)]
    for connection in connections[1:]:
        connection.sendall(head + body)
    connections[0].sendall(head + body[:-5])  # this one never says all
    in_flight = poster.serving.desk.metrics.in_flight
    until(lambda: in_flight._value.get() == 20)
    for connection in connections:
        connection.close()
    until(lambda: in_flight._value.get() == 0)
    assert poster.queue.events().count("job.created") == 20
    assert poster.post({"jsonrpc": "2.0", "id": 1, "method": "ping"}).status_code == 200


def test_a_defect_shows_nothing_of_itself(
    poster: Poster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    planted = "planted-7f3a"

    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError(planted)

    monkeypatch.setattr("shampoo_queue.tools.Caller.call", broken)
    for era in ERAS:
        answered = poster.create('{"kind":"k"}', era)
        assert refusal(answered) == "internal"
        assert planted not in answered.text
        assert "RuntimeError" not in answered.text
    monkeypatch.setattr("shampoo_queue.server.visitor.Visitor.call", broken)
    for era in ERAS:
        answered = poster.create('{"kind":"k"}', era)
        assert refusal(answered) == "internal"
        assert planted not in answered.text


def test_no_token_and_no_payload_reaches_the_log(poster: Poster, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    secret = "planted-9b1c"
    poster.create(json.dumps({"kind": "k", "payload": secret}), ERAS[0])
    poster.create(json.dumps({"kind": secret * 20}), ERAS[0])
    poster.post(f'{{"jsonrpc":"2.0","id":1,"method":"{secret}"}}'.encode())
    own = [record.getMessage() for record in caplog.records if record.name.startswith("shampoo_queue")]
    assert not any(secret in line or poster.token in line for line in own)


def test_limits_are_told_as_the_doors_tell_them(queue: Queue) -> None:
    queue.principal("boss", "", conductor=True)
    with (
        Serving(queue.engine.url, calls_per_second=1, failed_per_minute=3) as serving,
        httpx2.Client(trust_env=False, timeout=20) as http,
    ):
        poster = Poster(queue, serving, http)
        answers = [poster.create('{"kind":"k"}', era) for era in ERAS * 10]
        refused = [answered for answered in answers if answered.json()["result"]["isError"]]
        assert refused
        assert {refusal(answered) for answered in refused} == {"rate_limited"}
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        statuses = [poster.post(ping, token="shp_nothing").status_code for _ in range(5)]
        assert statuses == [401, 401, 401, 429, 429]
        limited = poster.post(ping, token="shp_nothing")
        assert limited.json()["error"]["code"] == "rate_limited"
        assert int(limited.headers["retry-after"]) > 0
        assert poster.post(ping).status_code == 200  # whoever was good before is not shut out by others


def test_a_queue_that_is_away_is_a_result_for_a_call_and_503_for_the_rest(
    queue: Queue, tmp_path_factory: pytest.TempPathFactory
) -> None:
    server = Server(valkey(), tmp_path_factory.mktemp("away"))
    server.start()
    with Shampoo.connect(server.url) as shampoo:
        shampoo.registry.add_principal("boss", conductor=True, grants=[""])
        token = shampoo.registry.issue_token("boss").token
    with Serving(server.url, retry_seconds=0.2) as serving, httpx2.Client(trust_env=False, timeout=20) as http:
        poster = Poster(queue, serving, http, token)
        assert poster.create('{"kind":"k"}', ERAS[0]).json()["result"]["isError"] is False
        server.stop()
        for era in ERAS:
            assert refusal(poster.create('{"kind":"k"}', era)) == "unavailable"
        away = poster.post({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
        assert (away.status_code, away.json()["error"]["code"]) == (503, "unavailable")
        assert int(away.headers["retry-after"]) > 0


def test_the_doors_can_be_opened_again_after_they_were_closed(queue: Queue) -> None:
    queue.principal("boss", "", conductor=True)
    token = queue.shampoo.registry.issue_token("boss").token
    for _ in range(2):
        with Serving(queue.engine.url) as serving:

            async def story(url: str = serving.url) -> None:
                async with over_http(url, token, "auto") as agent:
                    assert (await agent.call("job_claim")).body == {"claimed": False}

            run(story)


def test_many_agents_at_once_get_their_own_answers(poster: Poster) -> None:
    async def story() -> None:
        async def work(n: int) -> str:
            async with over_http(poster.serving.url, poster.token, "auto" if n % 2 else "legacy") as agent:
                made = await agent.call("job_create", {"request_id": f"r{n}"}, kind=f"k{n}", payload=str(n))
                claim = await agent.call("job_claim", kind=f"k{n}")
                assert claim.body["job_id"] == made.body["job_id"]
                return str(claim.body["payload"])

        assert await asyncio.gather(*(work(n) for n in range(16))) == [str(n) for n in range(16)]

    run(story)
    assert threading.active_count() < 50
