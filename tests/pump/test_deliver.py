"""Single deliveries to receivers that behave in every way known: each ends in time and with the right verdict."""

from __future__ import annotations

import resource
import ssl
import subprocess
import time
import zlib
from email.utils import formatdate
from pathlib import Path

import pytest

from shampoo_queue.pump.deliver import Verdict, judge, retry_after
from tests.pump.core import QUICK, send
from tests.pump.sink import Behaviour, Sink, after, endless, nobody, raw, silence, status

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
CHUNK = b"10000\r\n" + b"x" * 65_536 + b"\r\n"
GIB = 1 << 30


@pytest.mark.parametrize(
    "code, outcome",
    [
        (200, "completed"),
        (202, "completed"),
        (204, "completed"),
        (299, "completed"),
        (300, "failed"),
        (301, "failed"),
        (304, "failed"),
        (307, "failed"),
        (308, "failed"),
        (400, "failed"),
        (401, "failed"),
        (404, "failed"),
        (408, "retry"),
        (409, "failed"),
        (410, "failed"),
        (425, "retry"),
        (429, "retry"),
        (499, "failed"),
        (500, "retry"),
        (501, "retry"),
        (503, "retry"),
        (599, "retry"),
        (600, "failed"),
        (999, "failed"),
    ],
)
def test_the_status_decides(code: int, outcome: str) -> None:
    verdict = judge(code, [])
    assert (verdict.outcome, verdict.text) == (outcome, f"http:{code}")


def test_only_a_fault_of_the_server_counts_against_its_host() -> None:
    assert [judge(code, []).alive for code in (200, 301, 404, 429, 500, 503)] == [True] * 6


@pytest.mark.parametrize(
    "value, seconds",
    [
        ("120", 120),
        ("0", 0),
        ("-5", 0),
        ("+5", 0),
        ("1.5", 0),
        ("1000000000000", 3600),
        ("9" * 90_000, 3600),
        (" 7 ", 7),
        ("", 0),
        ("soon", 0),
        ("٣", 0),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0),
        ("Wed, 21 Oct 2999 07:28:00 GMT", 3600),
        ("Wed, 99 Oct 2999 07:28:00 GMT", 0),
        ("Wed, 21 Oct 99999999999 07:28:00 GMT", 0),
    ],
)
def test_retry_after_is_a_floor_with_a_cap_and_nonsense_is_none(value: str, seconds: float) -> None:
    assert retry_after([(b"Date", b"x"), (b"Retry-After", value.encode())]) == seconds


def test_retry_after_may_be_a_date() -> None:
    assert 85 < retry_after([(b"retry-after", formatdate(time.time() + 90, usegmt=True).encode())]) <= 90


def test_no_retry_after_is_no_floor() -> None:
    assert retry_after([]) == 0


NEVER_IN_TIME: dict[str, tuple[Behaviour, str]] = {
    "silence": (silence, "timeout: silent for 0.4 s"),
    "dribble": (endless(OK, b"a", 0.1), "timeout: no answer within 1 s"),
    "slow 1xx": (endless(b"", b"HTTP/1.1 102 Processing\r\n\r\n", 0.1), "timeout: no answer within 1 s"),
    "1xx flood": (
        endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 99),
        "network: no answer within 262144 bytes",
    ),
    "endless head": (endless(OK + b"A: ", b"a" * 65_536), "network: the answer is not HTTP, or ended early"),
    "no answer": (raw(b""), "network: the answer is not HTTP, or ended early"),
    "half a head": (raw(OK), "network: the answer is not HTTP, or ended early"),
    "another protocol": (raw(b"220 mail ESMTP\r\n"), "network: the answer is not HTTP, or ended early"),
    "binary": (raw(bytes(range(256)) * 100), "network: the answer is not HTTP, or ended early"),
    "unasked upgrade": (
        raw(b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"),
        "network: the answer is not HTTP, or ended early",
    ),
}


@pytest.mark.parametrize("name", NEVER_IN_TIME)
def test_a_receiver_that_never_answers_is_given_up_and_tried_again(name: str) -> None:
    behaviour, reason = NEVER_IN_TIME[name]
    with Sink() as sink:
        began = time.monotonic()
        verdict = send(sink.on("/", behaviour))
        assert time.monotonic() - began < QUICK.total_seconds + 1
        assert verdict == Verdict("retry", reason, alive=False)


def _bomb() -> bytes:
    """A quarter of a gibibyte of nothing, packed; made in pieces, so that it takes no memory here either."""
    packer = zlib.compressobj(level=1, wbits=31)
    return b"".join(packer.compress(bytes(1 << 20)) for _ in range(256)) + packer.flush()


BOMB = _bomb()
ANSWERED: dict[str, Behaviour] = {
    "slow accept": after(0.3, 200),
    "dribbled body": endless(CHUNKED, b"1\r\na\r\n", 0.05),
    "endless body": endless(CHUNKED, CHUNK),
    "a gigabyte": endless(OK + b"Content-Length: %d\r\n\r\n" % GIB, bytes(65_536), most_bytes=GIB),
    "gzip bomb": raw(OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(BOMB) + BOMB),
    "silent body": endless(OK + b"Content-Length: 5\r\n\r\n", b"", 60),
    "cut body": raw(OK + b"Content-Length: 500\r\n\r\nhello"),
    "broken chunks": raw(CHUNKED + b"zz\r\n"),
    "after 1xx": raw(b"HTTP/1.1 102 Processing\r\n\r\n" * 5 + OK + b"\r\n"),
    "old HTTP": raw(b"HTTP/1.0 200 OK\r\n\r\nhello"),
}


@pytest.mark.parametrize("name", ANSWERED)
def test_an_answer_counts_however_its_body_goes_on(name: str) -> None:
    with Sink() as sink:
        began = time.monotonic()
        assert send(sink.on("/", ANSWERED[name])) == Verdict("completed", "http:200", alive=True)
        assert time.monotonic() - began < 1
        # What the kernel takes in between is not bounded by us, but far from a gigabyte.
        assert sink.sent["/"] < 32 << 20


def test_a_204_with_a_body_is_completed() -> None:
    with Sink() as sink:
        assert send(sink.on("/", raw(b"HTTP/1.1 204 No\r\nContent-Length: 5\r\n\r\nhello"))).text == "http:204"


def test_bombs_and_endless_bodies_take_no_memory() -> None:
    with Sink() as sink:
        send(sink.uri())
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for name in ("gzip bomb", "a gigabyte", "endless body"):
            send(sink.on("/", ANSWERED[name]))
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 48 << 10


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_no_redirect_is_followed(code: int) -> None:
    with Sink() as sink:
        uri = sink.on("/", status(code, [f"Location: {sink.uri('/secret')}"]))
        assert send(uri) == Verdict("failed", f"http:{code}", alive=True)
        assert sink.connections == 1


def test_nobody_listening_is_tried_again() -> None:
    with nobody() as uri:
        assert send(uri) == Verdict("retry", "network: no connection", alive=False)


def test_the_request_has_what_it_must_have_and_nothing_else() -> None:
    with Sink() as sink:
        send(sink.uri("/a?b=c#d"), headers={"X-Own": "1  2"}, body="ü\r")
        (request,) = sink.requests
        assert request.raw_headers.decode() == (
            f"POST /a?b=c HTTP/1.1\r\nHost: 127.0.0.1:{sink.port}\r\nX-Own: 1  2\r\n"
            "Content-Type: text/plain; charset=utf-8\r\nWebhook-Id: an-id\r\n"
            "Content-Length: 3\r\nConnection: close\r\n\r\n"
        )
        assert request.body == "ü\r".encode()


@pytest.mark.parametrize("method", ["DELETE", "GET", "PATCH", "POST", "PUT"])
def test_every_method_carries_the_body(method: str) -> None:
    with Sink() as sink:
        assert send(sink.uri(), method=method, body="x").text == "http:200"
        assert [(request.method, request.body) for request in sink.requests] == [(method, b"x")]


def test_nothing_is_sent_once_the_lease_is_over() -> None:
    with Sink() as sink:
        assert send(sink.uri(), may_send=lambda: False) == Verdict(
            "retry", "lease: it was over before the delivery was sent"
        )
        assert not sink.requests


def test_a_lease_that_ends_between_head_and_body_ends_the_sending() -> None:
    answers = iter([True, True, False])
    with Sink() as sink:
        verdict = send(sink.uri(), body="x" * 200_000, may_send=lambda: next(answers))
        assert verdict.text.startswith("lease: ")
        assert not sink.requests


def test_an_answer_before_the_body_is_read_still_counts() -> None:
    with Sink() as sink:
        sink.impatient.add("/")
        assert send(sink.on("/", 413), body="x" * 900_000) == Verdict("failed", "http:413", alive=True)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for localhost, signed by itself, with its key in one file."""
    folder = tmp_path_factory.mktemp("tls")
    line = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -keyout key.pem -out cert.pem"
    naming = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run([*line.split(), *naming], cwd=folder, check=True, capture_output=True)
    return folder


def _server(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    return context


def test_tls_verifies_the_name_of_the_uri_though_an_address_was_connected(certificate: Path) -> None:
    trusting = ssl.create_default_context(cafile=str(certificate / "cert.pem"))
    with Sink(_server(certificate)) as sink:
        assert send(f"https://localhost:{sink.port}/", tls=trusting).text == "http:200"
        assert send(f"https://LOCALHOST.:{sink.port}/", tls=trusting).text == "http:200"
        wrong_name = send(f"https://127.0.0.1:{sink.port}/", tls=trusting)
        assert wrong_name == Verdict("retry", "network: the certificate is not trusted", alive=False)
        assert len(sink.requests) == 2


def test_an_untrusted_certificate_is_never_overlooked(certificate: Path) -> None:
    with Sink(_server(certificate)) as sink:
        verdict = send(f"https://localhost:{sink.port}/")
        assert verdict == Verdict("retry", "network: the certificate is not trusted", alive=False)
        assert not sink.requests


def test_a_tls_handshake_that_hangs_or_is_none_is_given_up() -> None:
    with Sink() as sink:
        # The sink waits for the end of a head that never comes.
        verdict = send(f"https://127.0.0.1:{sink.port}/")
        assert (verdict.outcome, verdict.text) == ("retry", "timeout: no connection within 0.5 s")
