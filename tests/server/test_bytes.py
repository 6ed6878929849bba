"""Odd bytes: what never reaches a tool, and in which order it is refused."""

from __future__ import annotations

import socket

import pytest

from shampoo_queue.server import answers
from tests.queue import Queue
from tests.server.conftest import token
from tests.server.door import Door, answer
from tests.server.door import answers as several
from tests.servers import wait_until

pytestmark = pytest.mark.parametrize("engine", ["embedded"], indirect=True)

CLAIM = "/v1/tools/job_claim"
MARK = b"planted-in-the-body"

NO_OBJECT = {
    "empty": b"",
    "blank": b"  \n",
    "null": b"null",
    "a list": b"[]",
    "a text": b'"x"',
    "a number": b"5",
    "true": b"true",
    "half": b'{"kind":',
    "single quotes": b"{'kind':'k'}",
    "a comment": b'{"kind":"k"} // k',
    "a trailing comma": b'{"kind":"k",}',
    "two objects": b"{}{}",
    "a NUL behind": b"{}\0",
    "a name twice": b'{"kind":"a","kind":"b"}',
    "a name twice in two spellings": b'{"kind":"a","\\u006bind":"b"}',
    "a name twice inside": b'{"x":{"a":1,"a":1}}',
    "NaN": b'{"lease_seconds":NaN}',
    "Infinity": b'{"lease_seconds":Infinity}',
    "-Infinity": b'{"lease_seconds":-Infinity}',
    "BOM": b"\xef\xbb\xbf{}",
    "UTF-16": "{}".encode("utf-16"),
    "UTF-16 without a BOM": "{}".encode("utf-16-le"),
    "UTF-32": "{}".encode("utf-32"),
    "no UTF-8": b'{"kind":"\xff"}',
    "an encoded surrogate": b'{"kind":"\xed\xa0\x80"}',
    "overlong UTF-8": b'{"kind":"\xc0\xaf"}',
    "a raw newline in a text": b'{"kind":"a\nb"}',
    "a raw NUL in a text": b'{"kind":"a\0b"}',
    "5,000 digits": b'{"lease_seconds":' + b"1" * 5000 + b"}",
    "5,000 digits below zero": b'{"lease_seconds":-' + b"1" * 5000 + b"}",
    "65 levels": b'{"x":' * 64 + b"{}" + b"}" * 64,
    "100,000 lists": b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "100,000 objects": b'{"x":' * 100_000 + b"1" + b"}" * 100_000,
    "a leading zero": b'{"lease_seconds":0300}',
    "a plus": b'{"lease_seconds":+300}',
    "hexadecimal": b'{"lease_seconds":0x12c}',
    "a form": b"kind=k",
}

# JSON objects all of them, so the contract refuses them in its own words.
INVALID = {
    "a lone surrogate": b'{"kind":"\\ud800"}',
    "a lone surrogate as a name": b'{"\\udfff":1}',
    "an unknown name": b'{"planted-in-the-body":1}',
    "an object for a text": b'{"kind":{"a":[1]}}',
    "a list for a text": b'{"kind":["k"]}',
    "64 levels": b'{"kind":' + b"[" * 62 + b"]" * 62 + b"}",
    "a fraction": b'{"lease_seconds":1.5}',
    "a whole fraction": b'{"lease_seconds":300.0}',
    "a huge number": b'{"lease_seconds":' + b"1" * 900 + b"}",
    "beyond floats": b'{"lease_seconds":1e999}',
    "a boolean": b'{"lease_seconds":true}',
    "a numeric text": b'{"lease_seconds":"300"}',
    "an empty name": b'{"":1}',
    "an empty kind": b'{"kind":""}',
    "a NUL": b'{"kind":"\\u0000"}',
}


@pytest.mark.parametrize("body", NO_OBJECT.values(), ids=NO_OBJECT)
def test_what_is_no_json_object_is_a_bad_request(door: Door, worker: str, body: bytes) -> None:
    reply = door.ask("POST", "/v1/tools/job_claim", body, token=worker)
    assert reply.error == (400, "bad_request")
    assert door.ask("POST", "/v1/tools/job_claim", body, token="shp_x").error == (401, "unauthenticated")


@pytest.mark.parametrize("body", INVALID.values(), ids=INVALID)
def test_what_is_an_object_is_refused_by_the_contract(door: Door, worker: str, body: bytes) -> None:
    reply = door.ask("POST", "/v1/tools/job_claim", body, token=worker)
    assert reply.error == (422, "invalid_argument")
    assert door.ask("POST", "/v1/tools/job_claim", body, token="shp_x").error == (401, "unauthenticated")


@pytest.mark.parametrize(
    "body",
    [
        b'{"kind":"planted-in-the-body\xff"}',
        b'["planted-in-the-body"]',
        b'{"planted-in-the-body":1,"planted-in-the-body":1}',
        b'{"kind":{"planted-in-the-body":1}}',
        b'{"kind":"planted-in-the-body\\ud800"}',
        b'{"kind":"' + MARK * 10 + b'"}',
    ],
)
def test_no_refusal_echoes_what_was_sent(door: Door, worker: str, body: bytes) -> None:
    reply = door.ask("POST", "/v1/tools/job_claim", body, token=worker)
    assert reply.status in (400, 422)
    assert MARK not in reply.body


def test_a_null_is_absent_where_it_may_be(door: Door, conductor: str) -> None:
    assert door.ask("POST", "/v1/tools/job_claim", b'{"kind":null,"lease_seconds":null}', token=conductor).status == 200
    reply = door.ask("POST", "/v1/tools/job_create", b'{"kind":null}', token=conductor)
    assert reply.json["error"] == {"code": "invalid_argument", "message": "invalid argument: kind is required"}


# The order ------------------------------------------------------------------------------------------------------


def test_every_bad_credential_hears_the_same(door: Door, queue: Queue, worker: str) -> None:
    registry = queue.shampoo.registry
    revoked, expired = registry.issue_token("worker").token, registry.issue_token("worker", expires_seconds=1).token
    registry.revoke_token(revoked.split("_")[1])
    disabled = token(queue, "gone")
    registry.disable_principal("gone")
    wrong = worker[:-20] + ("A" if worker[-20] != "A" else "B") + worker[-19:]
    credentials = [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Basic abc",
        f"Bearer {worker}x",
        f"Bearer {wrong}",
        f"Basic {worker}",
    ]
    credentials += [f"Bearer {revoked}", f"Bearer {disabled}", "Bearer " + "x" * 9000, "Bearer \x80\xff", worker]
    unknown = f"Bearer shp_{'0' * 12}_{'0' * 40}"
    heard = set()
    for value in [*credentials, unknown]:
        headers = {} if value is None else {"Authorization": value}
        reply = door.ask("POST", "/v1/tools/job_claim", b"{}", headers)
        assert reply.headers["www-authenticate"] == "Bearer"
        heard.add((reply.status, reply.body))
    twice = door.ask("POST", "/v1/tools/job_claim", b"{}", [("Authorization", f"Bearer {worker}")] * 2)
    heard.add((twice.status, twice.body))
    assert heard == {(401, b'{"error":{"code":"unauthenticated","message":"unauthenticated"}}')}
    wait_until(lambda: door.call("job_claim", {}, expired).status == 401, "the token has expired")
    last = door.call("job_claim", {}, expired)
    assert (last.status, last.body) in heard


def test_a_bad_token_is_refused_before_everything_else(door: Door) -> None:
    huge = {"Content-Length": str(9 * 1024 * 1024), "Expect": "100-continue"}
    path = "/v1/tools/job_claim"
    replies = [
        door.ask("POST", "/v1/tools/nothing", b"{}", token="x"),
        door.ask("POST", path, b"{}", {"Content-Type": "text/plain"}, "x"),
        door.ask("POST", path, b"{}", {"Shampoo-Fence": "x"}, "x"),
        door.ask("POST", path, b"{}", [("Shampoo-Fence", "1"), ("Shampoo-Fence", "1")], "x"),
        door.ask("POST", path, b"", huge, "x"),
    ]
    assert [reply.error for reply in replies] == [(401, "unauthenticated")] * 5


def test_a_revoked_token_is_refused_before_a_bad_body(door: Door, queue: Queue, worker: str) -> None:
    assert door.call("job_claim", {}, worker).status == 200
    queue.shampoo.registry.revoke_token(worker.split("_")[1])
    for body, headers in ((b"[", {}), (b"{}", {"Content-Type": "text/plain"}), (b"{}", {"Shampoo-Fence": "x"})):
        reply = door.ask("POST", "/v1/tools/job_claim", body, headers, worker)
        assert reply.error == (401, "unauthenticated")


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ("application/json", 200),
        ("Application/JSON; charset=UTF-8", 200),
        ('application/json;charset="utf-8"', 200),
        ("application/json; charset=latin-1", 415),
        ("application/jsonp", 415),
        ("text/json", 415),
        ("application/x-www-form-urlencoded", 415),
        ("", 415),
    ],
)
def test_only_json_is_read(door: Door, worker: str, kind: str, status: int) -> None:
    reply = door.ask("POST", "/v1/tools/job_claim", b"{}", {"Content-Type": kind}, worker)
    assert reply.status == status
    if status == 415:
        assert reply.error == (415, "unsupported_media_type")


def test_no_content_type_and_an_encoding_are_refused(door: Door, worker: str) -> None:
    raw = door.spelled("POST", "/v1/tools/job_claim", b"{}", token=worker).replace(
        b"Content-Type: application/json\r\n", b""
    )
    assert door.send(raw).error == (415, "unsupported_media_type")
    reply = door.ask("POST", "/v1/tools/job_claim", b"{}", {"Content-Encoding": "gzip"}, worker)
    assert reply.error == (415, "unsupported_media_type")


def test_a_body_has_an_end(door: Door, worker: str) -> None:
    size = answers.BODY_LIMIT
    fits = b'{"kind":"k"' + b" " * (size - 12) + b"}"
    assert len(fits) == size
    assert door.ask("POST", "/v1/tools/job_claim", fits, token=worker).status == 200
    over = door.ask("POST", "/v1/tools/job_claim", fits + b" ", token=worker)
    assert over.error == (413, "too_large")
    chunked = b"%x\r\n" % (size + 1) + fits + b" \r\n0\r\n\r\n"
    reply = door.ask("POST", "/v1/tools/job_claim", chunked, {"Transfer-Encoding": "chunked"}, worker)
    assert reply.error == (413, "too_large")
    twice = door.ask("POST", "/v1/tools/job_claim", fits * 2, token=worker)  # its sender hears it, too
    assert twice.error == (413, "too_large")


def test_a_client_that_asks_first_is_spared_the_upload(door: Door, worker: str) -> None:
    headers = {"Content-Length": str(answers.BODY_LIMIT + 1), "Expect": "100-continue"}
    assert door.ask("POST", "/v1/tools/job_claim", b"", headers, worker).error == (413, "too_large")


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_another_method_hears_which_one_is_taken(door: Door, worker: str, method: str) -> None:
    reply = door.ask(method, "/v1/tools/job_claim", token=worker)
    assert reply.error == (405, "method_not_allowed")
    assert reply.headers["allow"] == "POST"
    if method != "GET":
        listed = door.ask(method, "/v1/tools")
        assert (listed.error, listed.headers["allow"]) == ((405, "method_not_allowed"), "GET, HEAD")


def test_what_is_not_there_is_not_found(door: Door, worker: str) -> None:
    assert door.call("job_steal", {}, worker).error == (404, "unknown_tool")
    assert door.call("job_steal" + "x" * 500, {"a": 1}, worker).error == (404, "unknown_tool")
    for path in ("/", "/v1", "/v1/tools/", "/v1/tools/job_claim/", "/v1/tools/a/b", "//v1/tools", "/v1/openapi.json/"):
        reply = door.ask("GET", path)
        assert reply.status == 404 or (path == "/v1/tools/" and reply.status == 405), path
        assert reply.error[1] in ("not_found", "method_not_allowed")
    reply = door.ask("POST", "/v1/tools/%3Cscript%3E%0a%00", b"{}", token=worker)
    assert reply.error == (404, "unknown_tool")
    assert reply.json["error"]["message"] == "unknown tool: there is no tool '<script>??'"


@pytest.mark.parametrize(
    "raw",
    [
        b"\0\0\0\0\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"\x16\x03\x01\x02\0\x01\0",
    ],
    ids=["NUL", "no path", "HTTP/9", "no colon", "TLS"],
)
def test_what_is_no_http_hears_so_in_the_doors_words(door: Door, raw: bytes) -> None:
    reply = door.send(raw)
    assert reply.error == (400, "bad_request")
    assert reply.headers["connection"] == "close"


def test_two_lengths_and_a_length_beside_chunks_are_no_http(door: Door, worker: str) -> None:
    for beside in ("Content-Length: 3", "Transfer-Encoding: chunked"):
        raw = door.spelled("POST", "/v1/tools/job_claim", b"{}", token=worker)
        assert door.send(raw.replace(b"\r\n\r\n", f"\r\n{beside}\r\n\r\n".encode(), 1)).status == 400


def test_calls_sent_in_one_go_are_answered_in_order(door: Door, conductor: str) -> None:
    bodies = [b'{"kind":"a"}', b"[", b'{"kind":"b"}']
    raw = b"".join(door.spelled("POST", "/v1/tools/job_create", body, token=conductor) for body in bodies)
    with door.connected() as connection:
        connection.sendall(raw)
        statuses = [reply.status for reply in several(connection, len(bodies))]
    assert statuses == [200, 400, 200]


def test_blanks_around_a_header_are_no_part_of_it(door: Door, conductor: str) -> None:
    keys = ["a-key", "  a-key\t ", "a-key   "]
    created = [door.call("job_create", {"kind": "a"}, conductor, Idempotency_Key=key) for key in keys]
    assert {reply.status for reply in created} == {200}
    assert len({reply.json["job_id"] for reply in created}) == 1
    assert door.call("job_claim", {}, conductor, Shampoo_Fence="  ").error == (422, "invalid_argument")


def test_what_stands_behind_a_body_is_no_header(door: Door, conductor: str) -> None:
    chunked = b"2\r\n{}\r\n0\r\n"
    head = [("Transfer-Encoding", "chunked"), ("Content-Type", "application/json")]
    raw = door.spelled("POST", "/v1/tools/job_claim", None, head) + chunked
    assert door.send(raw + f"Authorization: Bearer {conductor}\r\n\r\n".encode()).error == (401, "unauthenticated")
    head.append(("Authorization", f"Bearer {conductor}"))
    raw = door.spelled("POST", "/v1/tools/job_create", None, head) + b'c\r\n{"kind":"a"}\r\n0\r\n'
    created = [door.send(raw + b"Idempotency-Key: behind\r\n\r\n").json["job_id"] for _ in range(2)]
    assert created[0] != created[1]


def test_only_chunks_are_a_transfer_coding(door: Door, conductor: str) -> None:
    for coding in ("gzip, chunked", "chunked, chunked", "identity"):
        raw = door.spelled("POST", "/v1/tools/job_claim", None, [("Transfer-Encoding", coding)], conductor)
        assert door.send(raw + b"2\r\n{}\r\n0\r\n\r\n").status == 400


@pytest.mark.parametrize("pieces", [1, 2, 1000], ids=["one packet", "two packets", "byte by byte"])
@pytest.mark.parametrize("upgrade", ["Upgrade", "UPGRADE", "upgrade"])
def test_who_asks_for_an_upgrade_gets_the_plain_answer(door: Door, conductor: str, upgrade: str, pieces: int) -> None:
    """As a client of Java does by default; also again on the same connection, and for what is sent right behind."""
    headers = {"Connection": f"{upgrade}, HTTP2-Settings", upgrade: "h2c", "HTTP2-Settings": "AAEAAEAAAAIAAAABAAMAAABk"}
    body = b'{"kind":"a","payload":"\\r\\nUpgrade: h2c"}'
    sized = door.spelled("POST", "/v1/tools/job_create", body, headers, conductor)
    chunked = door.spelled("POST", "/v1/tools/job_create", None, headers | CHUNKED, conductor)
    chunked += b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    bare = door.spelled("GET", "/v1/tools", None, headers)
    raw = sized + chunked + bare + sized
    with door.connected() as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        size = max(1, len(raw) // pieces)
        for start in range(0, len(raw), size):
            connection.sendall(raw[start : start + size])
        assert [reply.status for reply in several(connection, 4)] == [200] * 4
        connection.sendall(sized)
        assert answer(connection).status == 200


CHUNKED = {"Transfer-Encoding": "chunked", "Content-Type": "application/json"}


@pytest.mark.parametrize(
    "body",
    [
        b'{"kind":[' + b",".join([b"[]"] * 2_600_000) + b"]}",
        b"{" + b",".join(b'"%d":1' % n for n in range(500_000)) + b"}",
        b'{"kind":' + b'""' * 3_900_000,
    ],
    ids=["arrays", "names", "strings"],
)
def test_a_crowded_body_is_not_read(door: Door, worker: str, body: bytes) -> None:
    """Reading millions of small values takes seconds, in which the event loop hears nobody else."""
    reply = door.ask("POST", CLAIM, body, token=worker)
    assert reply.error == (400, "bad_request")
    assert "outside of its strings" in reply.json["error"]["message"]
