"""The bridge to a remote server: the same answers, one request id through all attempts, a token that stays hidden."""

from __future__ import annotations

import asyncio
import datetime
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from shampoo_queue.errors import (
    ConfigurationError,
    InvalidArgument,
    RateLimited,
    ToolError,
    Unauthenticated,
    Unavailable,
)
from shampoo_queue.server.bridge import Remote
from tests.mcp.middle import LOSE_REPLY, LOSE_REQUEST, Middle
from tests.mcp.serving import EMBEDDED, PROGRAM, Serving, run
from tests.queue import Queue

pytestmark = EMBEDDED

AWAY = (503, {"Retry-After": "0"}, b'{"error":{"code":"unavailable","message":"queue unavailable: resting"}}')
BUSY = (429, {"Retry-After": "0"}, b'{"error":{"code":"rate_limited","message":"rate limited"}}')
PROXY_ERROR = (502, {"Content-Type": "text/html"}, b"<h1>Bad gateway</h1>")


@pytest.fixture
def middle(serving: Serving) -> Iterator[Middle]:
    with Middle(serving.url) as started:
        yield started


@pytest.fixture
def token(queue: Queue) -> str:
    queue.principal("boss", "", conductor=True)
    return queue.shampoo.registry.issue_token("boss").token


@pytest.mark.parametrize("fate", [LOSE_REPLY, LOSE_REQUEST, AWAY, PROXY_ERROR], ids=["reply", "request", "503", "502"])
def test_a_call_is_repeated_under_its_own_id_until_it_is_answered(
    queue: Queue, middle: Middle, token: str, fate: Any
) -> None:
    async def story() -> None:
        async with Remote(middle.url, token) as remote:
            for given in (None, "mine"):
                middle.seen.clear()
                middle.plan = [fate, fate]
                made = await remote.call("job_create", {"kind": "k"}, request_id=given, door="mcp")
                ids = {headers["idempotency-key"] for headers in middle.seen}
                assert (len(middle.seen), len(ids)) == (3, 1)
                assert ids == {made.meta.request_id}
                assert given is None or ids == {given}
                assert len({headers["shampoo-holder"] for headers in middle.seen}) == 1
                assert made.meta.replayed == (fate == LOSE_REPLY)
            middle.plan = [fate]
            claim = await remote.call("job_claim", {}, door="mcp")
            assert claim["attempts"] == 1
            middle.plan = [fate]
            done = {"job_id": claim["job_id"], "outcome": "completed"}
            assert (await remote.call("job_complete", done, fence=claim.meta.fence, door="mcp"))["state"] == "completed"

    run(story)
    assert queue.events().count("job.created") == 2
    assert queue.events().count("job.claimed") == 1


def test_a_call_that_is_never_answered_says_that_its_outcome_is_unknown(middle: Middle, token: str) -> None:
    async def story() -> None:
        async with Remote(middle.url, token, retry_seconds=0.5) as remote:
            middle.plan = [LOSE_REPLY] * 100
            with pytest.raises(Unavailable) as lost:
                await remote.call("job_create", {"kind": "k"}, door="mcp")
            assert lost.value.outcome_unknown
            middle.plan = [AWAY] * 100
            with pytest.raises(Unavailable) as away:
                await remote.call("job_create", {"kind": "k"}, door="mcp")
            assert away.value.message == "queue unavailable: resting"
            middle.plan = [BUSY] * 100
            with pytest.raises(RateLimited) as busy:
                await remote.call("job_create", {"kind": "k"}, door="mcp")
            assert not busy.value.outcome_unknown
        with pytest.raises(Unavailable) as nobody:
            await Remote("http://127.0.0.1:1", token, retry_seconds=0.5).__aenter__()
        assert not nobody.value.outcome_unknown

    run(story)


def test_a_server_that_asks_for_patience_gets_it(middle: Middle, token: str) -> None:
    async def story() -> None:
        async with Remote(middle.url, token) as remote:
            middle.plan = [(503, {"Retry-After": "1"}, b"{}")]
            began = asyncio.get_running_loop().time()
            await remote.call("job_claim", {}, door="mcp")
            assert asyncio.get_running_loop().time() - began >= 0.75

    run(story)


def test_what_cannot_travel_is_refused_in_the_contracts_order(middle: Middle, queue: Queue, token: str) -> None:
    async def story() -> None:
        async with Remote(middle.url, token) as remote:
            bad: list[dict[str, Any]] = [
                {"request_id": 7},
                {"request_id": "two words"},
                {"fence": True},
                {"fence": 10**30},
                {"holder": 7},
                {"holder": "a\r\nb: c"},
                {"holder": "\ud800"},
            ]
            for beside in bad:
                with pytest.raises(InvalidArgument):
                    await remote.call("job_claim", {}, **beside, door="mcp")
            odd: list[Any] = [[], "x", 7, {"kind": "\ud800"}, {"\ud800": 1}]
            for arguments in odd:
                with pytest.raises(InvalidArgument):
                    await remote.call("job_claim", arguments, door="mcp")
            queue.shampoo.registry.revoke_token(token[4:16])
            for beside in bad:
                with pytest.raises(Unauthenticated):
                    await remote.call("job_claim", {}, **beside, door="mcp")
            with pytest.raises(Unauthenticated):
                await remote.call("job_steal", {}, door="mcp")

    run(story)


def test_a_server_that_is_no_queue_is_told_at_the_start(middle: Middle, token: str) -> None:
    async def story() -> None:
        with pytest.raises(ConfigurationError, match="no shampoo serve"):
            await Remote(f"{middle.url}/elsewhere", token).__aenter__()

    run(story)


def test_somebody_else_behind_the_url_is_told_apart(middle: Middle, token: str) -> None:
    async def story() -> None:
        async with Remote(middle.url, token) as remote:
            for answer in (
                (404, {}, b"<html>"),
                (302, {"Location": "https://elsewhere.example/"}, b""),
                (200, {}, b"<html>"),
                (200, {}, b"[]"),
                (418, {}, b'{"error":{"code":"teapot","message":"x"}}'),
            ):
                middle.plan = [answer]
                with pytest.raises(Unavailable):
                    await remote.call("job_claim", {}, door="mcp")
            middle.plan = [(500, {}, b'{"error":{"code":"new_code","message":"x"}}')]
            with pytest.raises(ToolError) as error:
                await remote.call("job_claim", {}, door="mcp")
            assert error.value.code == "internal"

    run(story)


def test_a_certificate_that_cannot_be_verified_ends_the_call_at_once(token: str, tmp_path: Path) -> None:
    async def story() -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self_signed(tmp_path))
        server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0, ssl=context)
        async with server:
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(Unavailable, match="certificate"):
                async with asyncio.timeout(5), Remote(f"https://127.0.0.1:{port}", token):
                    pass

    run(story)


def self_signed(folder: Path) -> Path:
    """Make a certificate that nobody trusts, with its key in the same file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    day = datetime.datetime(2025, 1, 1, tzinfo=datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(day).not_valid_after(day.replace(year=2100))
    made = builder.sign(key, hashes.SHA256())
    plain = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    file = folder / "server.pem"
    file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, *plain) + made.public_bytes(serialization.Encoding.PEM)
    )
    return file


def test_the_program_says_in_one_line_why_it_cannot_start(serving: Serving, token: str) -> None:
    def ended(*options: str, **environment: str) -> tuple[int, str]:
        line = [*PROGRAM, "mcp", *options]
        done = subprocess.run(line, env=environment, input="", capture_output=True, text=True, timeout=60, check=False)
        assert done.stdout == ""
        assert token not in done.stderr
        return done.returncode, "".join(done.stderr.strip().splitlines()[-1:])

    flipped = token[:-1] + ("A" if token[-1] != "A" else "B")
    assert ended("--remote", serving.url)[0] == 2
    assert ended("--remote", "http://queue.example", SHAMPOO_TOKEN=token)[0] == 2
    assert ended("--remote", serving.url, SHAMPOO_TOKEN=flipped) == (1, "unauthenticated: unauthenticated")
    assert ended("--remote", serving.url, SHAMPOO_TOKEN=token) == (0, "")
