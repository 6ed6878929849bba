"""JSON Web Tokens of another issuer at the doors of ``shampoo serve``: the same calls, as the principal they name."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.cast import PROJECT
from tests.parity.doors import HANDSHAKE, MODERN, NOTHING, Beside, Door, Http, McpHttp, McpHttpModern
from tests.parity.serving import Serve, serve
from tests.queue import Engine, Queue
from tests.tokens.issuer import AUDIENCE, ISSUER, Key, key_set

pytestmark = pytest.mark.parametrize("engine", ["embedded"], indirect=True)

RSA, EVIL = Key("k1", "RS256"), Key("k1", "RS256")
PATH = "/.well-known/oauth-protected-resource"
DOORS: list[type[Http]] = [Http, McpHttp, McpHttpModern]


@pytest.fixture
def believing(engine: Engine, queue: Queue, tmp_path: Path) -> Iterator[Serve]:
    """A server that lets in what the issuer signs, to the test's profile."""
    (tmp_path / "keys.json").write_bytes(key_set(RSA))
    options = {"issuer": ISSUER, "audience": AUDIENCE, "keys": str(tmp_path / "keys.json"), "profile": queue.profile}
    with serve(engine.url, *(f"--jwt-{name}={value}" for name, value in options.items())) as serving:
        yield serving


def heard(door: Door, credential: str, tool: str, arguments: str, beside: Beside = NOTHING) -> str:
    door.tokens["x"] = credential
    return door.call("x", tool, arguments, beside).code


def test_the_doors_let_in_what_the_issuer_signs_and_nothing_else(queue: Queue, believing: Serve) -> None:
    registry = queue.shampoo.registry
    for kind in DOORS:
        door, who = kind(queue, believing), f"agent/{kind.__name__}"
        queue.principal(who, PROJECT, conductor=True)
        good, reading = RSA.sign(sub=who), RSA.sign(sub=who, scope="openid tools:read")
        create = f'{{"kind":"k","project":"{PROJECT}"}}'
        assert heard(door, good, "job_create", create, Beside(request_id="once")) == "ok"
        again = RSA.sign(sub=who, exp=int(time.time()) + 90)
        door.tokens["x"] = again
        repeated = door.call("x", "job_create", create, Beside(request_id="once"))
        assert repeated.replayed  # what is remembered is the principal's, whatever it shows
        assert queue.shampoo.history()[-1].actor == who
        assert heard(door, reading, "lane_list", "{}") == "ok"
        assert heard(door, reading, "job_claim", "{}") == "denied"
        before = queue.facts()
        bad = [EVIL.sign(sub=who), RSA.sign(sub="nobody"), RSA.sign(sub=who, exp=int(time.time()) - 31)]
        bad += [RSA.sign(sub=who, aud="https://other.example/"), good[:-3] + "AAA", RSA.sign(sub=who, scope="openid")]
        for credential in bad:
            assert heard(door, credential, "job_create", create) == "unauthenticated"
            assert heard(door, credential, "nope", "{}") == "unauthenticated"
        assert queue.facts() == before
        registry.disable_principal(who)
        assert heard(door, good, "job_claim", '{"kind":""}') == "unauthenticated"
        registry.enable_principal(who)
        assert heard(door, good, "job_claim", '{"kind":"none"}') == "ok"
        for credential in (good, reading, *bad):
            for part in credential.split("."):
                assert part not in believing.err
                assert part not in repr(queue.snapshot())
        door.close()


def test_our_own_tokens_are_good_beside_them(queue: Queue, believing: Serve) -> None:
    queue.principal("w", PROJECT)
    door = Http(queue, believing)
    assert door.call("w", "job_claim", "{}").result == {"claimed": False}
    door.close()


def test_the_metadata_is_there_in_this_mode_alone(queue: Queue, believing: Serve, serving: Serve) -> None:
    door = Http(queue, believing)
    answer = door.http.get(f"{believing.url}{PATH}")
    assert answer.status_code == 200
    assert answer.json()["authorization_servers"] == [ISSUER]
    assert answer.json()["resource"] == AUDIENCE
    assert door.http.get(f"{serving.url}{PATH}").status_code == 404
    refused = door.post("/v1/tools/job_claim", b"{}", "x.y.z", {})
    assert refused.status_code == 401
    assert json.loads(refused.content)["error"]["code"] == "unauthenticated"
    door.close()


@pytest.mark.parametrize("era", [HANDSHAKE, MODERN])
def test_an_agent_without_a_token_is_asked_for_one(queue: Queue, believing: Serve, era: str) -> None:
    door = McpHttp(queue, believing)
    refused = door.post("/mcp", b"{}", None, {"MCP-Protocol-Version": era})
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"] == f'Bearer resource_metadata="{AUDIENCE[:-1]}{PATH}"'
    door.close()
