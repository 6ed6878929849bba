"""What went wrong at the doors of other queues, tried at every door of this one."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from shampoo_queue import contract, tokens
from tests.contract.cast import PROJECT
from tests.contract.test_arguments import EMPTY_IS_ABSENT, REQUIRED
from tests.parity.cases import STORY
from tests.parity.conftest import Open
from tests.parity.doors import DOORS, HANDSHAKE, NOTHING, McpHttp, message
from tests.parity.serving import Serve, serve
from tests.parity.stage import Names, set_up
from tests.parity.test_parity import play
from tests.queue import Engine, Queue
from tests.server.door import answer

pytestmark = pytest.mark.parametrize("engine", ["embedded"], indirect=True)
each_door = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if "stdio" in name else []) for name in DOORS]
)


# 40. null sent for an optional argument ------------------------------------------------------------------------


@each_door
def test_null_is_the_same_as_absent(opened: Open, name: str) -> None:
    door = opened(name)
    set_up(door)
    for tool in contract.TOOLS:
        plain = REQUIRED[tool.name]
        ways = [{}, *({one: None} for one in tool.optional), dict.fromkeys(tool.optional)]
        ways += [{one: ""} for one in EMPTY_IS_ABSENT.get(tool.name, ())]
        heard = [door.call("c", tool.name, json.dumps(plain | way)) for way in ways]
        facts = {Names(door.queue).plain([one.code, one.message]).__repr__() for one in heard}
        assert len(facts) == 1, (tool.name, facts)
        for required in tool.required:
            refused = door.call("c", tool.name, json.dumps(plain | {required: None}))
            assert (refused.code, refused.message) == ("invalid_argument", f"invalid argument: {required} is required")


@each_door
def test_a_null_payload_reads_back_as_empty_and_a_null_project_slips_past_no_grant(opened: Open, name: str) -> None:
    door = opened(name)
    door.queue.principal("c", PROJECT, conductor=True)
    door.queue.principal("w", PROJECT)
    for payload in ("null", '""'):
        created = door.call("c", "job_create", f'{{"kind":"k","payload":{payload},"project":"{PROJECT}"}}')
        claim = door.call("w", "job_claim", '{"kind":null,"lease_seconds":null}')
        assert (claim.result["job_id"], claim.result["payload"]) == (created.result["job_id"], "")
    for project in ("", ',"project":null', ',"project":""'):
        heard = door.call("c", "job_create", f'{{"kind":"k"{project}}}')
        assert (heard.code, heard.message) == ("denied", "outside client scope")


# 41. Booleans and numeric strings accepted as integers ----------------------------------------------------------

NUMBERS = ("true", "false", '"300"', '"0300"', '" 300 "', '"\\uff13\\uff10\\uff10"', '"1_0"', '""', "[300]", "{}")
FRACTIONS = ("300.0", "300.5", "1e2", "1E+2", "-0.0", "1e400", "0.1")
OUTSIDE = ("0", "-0", "-1", "3601", str(10**20), str(-(10**20)), "9" * 900)


@each_door
def test_only_whole_numbers_are_whole_numbers(opened: Open, name: str) -> None:
    door = opened(name)
    set_up(door)
    (job_id,) = door.queue.create(door.queue.shampoo.client("c"), kind="n", project=PROJECT)
    for client_id in ("c", "w"):
        door.call(client_id, "lane_list", "{}")
    before = door.queue.facts()
    for spelled in (*NUMBERS, *FRACTIONS, *OUTSIDE):
        heard = door.call("w", "job_claim", f'{{"kind":"n","lease_seconds":{spelled}}}')
        assert (heard.code, "lease_seconds" in heard.message) == ("invalid_argument", True), (spelled, heard)
    for spelled in (*NUMBERS, *FRACTIONS):
        assert door.call("w", "lane_list", f'{{"limit":{spelled}}}').code == "invalid_argument", spelled
    assert door.queue.facts() == before
    for spelled in OUTSIDE:
        assert door.call("w", "lane_list", f'{{"limit":{spelled}}}').code == "ok"  # clamped
    for attempts, spelled in ((1, "1"), (2, "3600")):
        heard = door.call("w", "job_claim", f'{{"kind":"n","lease_seconds":{spelled}}}')
        assert heard.result["attempts"] == attempts
        door.call("w", "job_release", json.dumps({"job_id": job_id}))


# 43. Errors break the output schema, or become silent success ---------------------------------------------------


@each_door
def test_every_success_matches_its_schema_and_every_refusal_is_one(opened: Open, name: str) -> None:
    """That an error brings no structured content, and that text and structure agree, every call here asserts."""
    door = opened(name)
    shapes: dict[str, set[frozenset[str]]] = {}
    for case, heard in play(door, set_up(door), STORY):
        if heard.code == "ok":
            jsonschema.validate(heard.result, contract.result_schema(contract.BY_NAME[case.tool]))
            shapes.setdefault(case.tool, set()).add(frozenset(heard.result))
        else:
            assert heard.message
            assert heard.result is None
    assert shapes.keys() == contract.BY_NAME.keys()
    assert {len(shape) for shape in shapes["job_claim"]} == {1, 6}
    assert {"idempotent" in shape for shape in shapes["job_complete"]} == {True, False}
    empty = door.call("w", "lane_list", '{"state":"none"}')
    assert empty.result == {"lanes": [], "count": 0}


# 44. MCP session lost when the server restarts ------------------------------------------------------------------


def test_a_claim_outlives_the_server_that_made_it(engine: Engine, opened: Open) -> None:
    door = opened("mcp-http-2025")
    assert isinstance(door, McpHttp)
    set_up(door)
    with serve(engine.url) as first:
        door.serving = first
        job_id = door.call("w", "job_claim", '{"kind":"w"}').result["job_id"]
    with serve(engine.url) as second:
        door.serving = second
        sent = message(1, HANDSHAKE, "job_complete", json.dumps({"job_id": job_id, "outcome": "completed"}), NOTHING)
        with_session = {"MCP-Protocol-Version": HANDSHAKE, "Mcp-Session-Id": "of-the-first-server"}
        refused = door.post("/mcp", sent, tokens.mint(), with_session)
        assert (refused.status_code, refused.json()["error"]["code"]) == (401, "unauthenticated")
        answered = door.post("/mcp", sent, door.token("w"), with_session)
        assert answered.status_code == 200
        assert answered.json()["result"]["structuredContent"] == {"job_id": job_id, "state": "completed"}
        ended = door.http.delete(f"{second.url}/mcp", headers=with_session)
        assert ended.status_code == 405


# 49. Non-ASCII bearer token gives a 500; non-constant-time compare ----------------------------------------------


def bad_credentials(good: str) -> dict[str, list[bytes]]:
    """Give lines of a request's head that prove nothing."""
    raw = good.encode()
    values = {
        "a raw byte": b"Bearer \xe9",
        "a raw byte in a token": b"Bearer " + raw[:30] + b"\xe9" + raw[31:],
        "an emoji": "Bearer \U0001f600".encode(),
        "nothing": b"",
        "no token": b"Bearer",
        "an empty token": b"Bearer ",
        "blanks": b"Bearer    ",
        "another scheme": b"Basic " + base64.b64encode(b"w:" + raw),
        "no scheme": raw,
        "a token too many": b"Bearer " + raw + b" " + raw,
        "a comma": b"Bearer " + raw + b",",
        "a quoted token": b'Bearer "' + raw + b'"',
        "a typing error": b"Bearer " + raw[:-1] + (b"0" if raw[-1:] != b"0" else b"1"),
        "another token": b"Bearer " + tokens.mint().encode(),
        "a web token": b"Bearer eyJhbGciOiJub25lIn0.e30.",
        "tabs": b"Bearer\t" + raw,
    }
    lines = {name: [b"Authorization: " + value] for name, value in values.items()}
    twice = [b"Authorization: Bearer " + raw] * 2
    return lines | {"no header": [], "two headers": twice, "a cookie": [b"Cookie: token=" + raw]}


def ask(serving: Serve, path: str, lines: list[bytes], body: bytes) -> Any:
    head = [b"POST %s HTTP/1.1" % path.encode(), b"Host: 127.0.0.1", b"Content-Type: application/json"]
    head += [b"Accept: application/json, text/event-stream", b"Content-Length: %d" % len(body), *lines]
    with socket.create_connection(("127.0.0.1", serving.port), 30) as connection:
        connection.sendall(b"\r\n".join(head) + b"\r\n\r\n" + body)
        return answer(connection)


@pytest.mark.parametrize("path", ["/v1/tools/job_claim", "/v1/tools/nope", "/mcp"])
def test_every_bad_credential_has_one_answer(queue: Queue, serving: Serve, path: str) -> None:
    queue.principal("w", PROJECT)
    registry = queue.shampoo.registry
    good, revoked = registry.issue_token("w"), registry.issue_token("w")
    replaced = registry.issue_token("w")
    registry.revoke_token(revoked.token_id)
    registry.rotate_token(replaced.token_id, overlap_seconds=0)
    before = queue.facts()
    bad = bad_credentials(good.token)
    bad |= {name: [b"Authorization: Bearer " + token.token.encode()] for name, token in
            {"revoked": revoked, "replaced": replaced}.items()}  # fmt: skip
    body = message(1, HANDSHAKE, "job_claim", "{}", NOTHING) if path == "/mcp" else b"{}"
    seen = {name: ask(serving, path, lines, body) for name, lines in bad.items()}
    seen["in the address"] = ask(serving, f"{path}?token={good.token}&access_token={good.token}", [], body)
    faces = {name: (reply.status, reply.body, reply.headers.get("www-authenticate")) for name, reply in seen.items()}
    expected = (401, b'{"error":{"code":"unauthenticated","message":"unauthenticated"}}', "Bearer")
    assert set(faces.values()) == {expected}, faces
    assert queue.facts() == before
    for scheme in (b"Bearer ", b"bearer ", b"BEARER ", b"Bearer  "):
        line = b"Authorization: " + scheme + good.token.encode() + b" "
        assert ask(serving, path, [line], body).status != 401, scheme


def test_a_token_of_a_megabyte_is_no_defect(queue: Queue, serving: Serve) -> None:
    with contextlib.suppress(ConnectionError):
        reply = ask(serving, "/v1/tools/job_claim", [b"Authorization: Bearer " + b"x" * 1_048_576], b"{}")
        assert reply.status in (400, 401, 413, 431)
    assert "Traceback" not in serving.err


@pytest.mark.parametrize("name", [name for name, door in DOORS.items() if door.credential])
def test_star_scope_never_creates(opened: Open, name: str) -> None:
    door = opened(name)
    set_up(door)
    heard = door.call("star", "job_create", f'{{"kind":"k","project":"{PROJECT}"}}')
    assert (heard.code, heard.message) == ("denied", "outside client scope")
