"""What a payload may say, and what is refused before anything is connected."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shampoo_queue.pump.payload import BadPayload, Origin, parse


def said(**facts: Any) -> str:
    return json.dumps({"uri": "http://example.com/hook", **facts})


def refusal(payload: str) -> str:
    with pytest.raises(BadPayload) as refused:
        parse(payload)
    return str(refused.value)


def test_a_uri_alone_posts_the_payload_itself_as_json() -> None:
    payload = ' {"uri": "https://example.com/hook?a=1#part",\t"n": 9007199254740993.0e1, "é": "é"}\r\n'
    delivery = parse(payload)
    assert delivery.origin == Origin("https", "example.com", 443)
    assert delivery.target == "/hook?a=1"
    assert delivery.method == "POST"
    assert delivery.headers == (("Content-Type", "application/json"),)
    assert delivery.body == payload.encode()


@pytest.mark.parametrize("body", ["", "ü", "a\r", "\n", "\x00", '{"a":  1}'])
def test_a_body_is_sent_byte_for_byte_as_plain_text(body: str) -> None:
    delivery = parse(said(body=body, method="PUT"))
    assert delivery.body == body.encode()
    assert delivery.method == "PUT"
    assert dict(delivery.headers) == ({"Content-Type": "text/plain; charset=utf-8"} if body else {})


def test_the_senders_own_headers_stand_and_the_content_type_is_theirs_to_say() -> None:
    given = {"content-type": "text/csv", "Authorization": "Bearer x", "X-Empty": ""}
    assert parse(said(headers=given)).headers == tuple(given.items())


@pytest.mark.parametrize(
    "uri, origin, target",
    [
        ("HTTP://Example.COM", Origin("http", "example.com", 80), "/"),
        ("http://example.com.:8080?q", Origin("http", "example.com", 8080), "/?q"),
        ("http://[::FFFF:7F00:1]/", Origin("http", "::ffff:7f00:1", 80), "/"),
        ("https://xn--mnchen-3ya.example:/a//b/../c", Origin("https", "xn--mnchen-3ya.example", 443), "/a//b/../c"),
        ("http://2130706433/%2e", Origin("http", "2130706433", 80), "/%2e"),
    ],
)
def test_a_uri_is_taken_apart_as_it_is_written(uri: str, origin: Origin, target: str) -> None:
    delivery = parse(said(uri=uri))
    assert (delivery.origin, delivery.target) == (origin, target)


@pytest.mark.parametrize(
    "payload, why",
    [
        ("", "not a JSON document"),
        ("not json", "not a JSON document"),
        ("[" * 100_000, "not a JSON document"),
        ("[]", "not a JSON object"),
        ("{}", "uri is missing"),
        ('{"uri": "http://example.com", "uri": "http://example.org"}', "a name is given twice in one object"),
        ('{"uri": "http://example.com", "n": NaN}', "NaN and Infinity are not JSON"),
        (said(uri=5), "uri must be a string"),
        (said(uri=None), "uri is missing"),
        (said(body=5), "body must be a string"),
        (said(body=None), "body must be a string"),
        (said(body="\ud800"), "body holds half of a surrogate pair, which no byte can stand for"),
        (said(method="post"), "method must be one of DELETE, GET, PATCH, POST, PUT"),
        (said(method="POST / HTTP/1.1\r\nX: y"), "method must be one of DELETE, GET, PATCH, POST, PUT"),
        (said(method=["POST"]), "method must be one of DELETE, GET, PATCH, POST, PUT"),
        (said(headers=[]), "headers must be an object of strings"),
        (said(headers={str(n): "" for n in range(65)}), "headers may hold at most 64"),
        (said(headers={"A": 1}), "the header A must be a string"),
        (said(headers={"A": "1", "a": "2"}), "a header is given twice"),
    ],
)
def test_a_payload_that_cannot_be_delivered_says_why(payload: str, why: str) -> None:
    assert refusal(payload) == why


def test_a_number_of_a_million_digits_in_the_payload_costs_nothing() -> None:
    payload = f'{{"uri": "http://example.com", "n": {"9" * 1_000_000}}}'
    assert parse(payload).body == payload.encode()


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "example.com",
        "//example.com/",
        "ftp://example.com/",
        "file:///etc/passwd",
        "gopher://127.0.0.1/",
        "http:/example.com",
        "http:example.com",
        "http://",
        "http:///path",
        "http://:80/",
        "http://example..com/",
        "http://.example.com/",
        "http://example.com../",
        "http://exa mple.com/",
        "http://example.com/a b",
        "http://example.com/\r\nX: y",
        "http://example.com\t/",
        " http://example.com/",
        "http://user@example.com/",
        "http://user:secret@example.com/",
        "http://@example.com/",
        "http://example.com:80@127.0.0.1/",
        "http://example.com\\@127.0.0.1/",
        "http://%6c%6fcalhost/",
        "http://127.0.0.1%00.example.com/",
        "http://１２７.0.0.1/",
        "http://ⓛocalhost/",
        "http://127。0。0。1/",
        "http://münchen.example/",
        "http://[fe80::1%25eth0]/",
        "http://[::1/",
        "http://::1/",
        "http://[127.0.0.1]/",
        "http://[v1.a]/",
        "http://[]/",
        "http://example.com:0/",
        "http://example.com:65536/",
        "http://example.com:99999999999/",
        "http://example.com:-1/",
        "http://example.com:80:80/",
        "http://example.com:٨٠/",
        f"http://{'a' * 64}.com/",
        f"http://{'a.' * 127}aa/",
    ],
)
def test_a_uri_that_is_no_plain_http_address_is_refused(uri: str) -> None:
    assert "uri" in refusal(said(uri=uri))


def test_a_refused_uri_with_credentials_is_not_repeated() -> None:
    assert refusal(said(uri="http://user:hunter2@example.com/")) == (
        "uri may not hold credentials: send them in a header"
    )


@pytest.mark.parametrize(
    "name",
    [
        "Host",
        "content-length",
        "TRANSFER-ENCODING",
        "Connection",
        "Keep-Alive",
        "TE",
        "Trailer",
        "Upgrade",
        "Expect",
        "Proxy-Authorization",
        "webhook-id",
        "Webhook-Anything",
        "Webhook_Id",
        "SHAMPOO_Fence",
        "Content_Length",
        "Shampoo-Fence",
        "shampoo-attempt",
    ],
)
def test_headers_that_frame_or_name_the_delivery_may_not_be_set(name: str) -> None:
    assert refusal(said(headers={name: "x"})) == f"the header {name} may not be set"


@pytest.mark.parametrize("name", ["", "a b", "a:b", "a\r\nb", "ä", "a\x00", "a" * 257, "(a)"])
def test_a_header_name_that_is_no_token_is_refused(name: str) -> None:
    assert refusal(said(headers={name: "x"})) == "a header's name is no HTTP token"


@pytest.mark.parametrize("value", ["a\r\nB: c", "a\nb", "a\rb", "\x00", "\x7f", "ä", " a", "a ", "a\tb", "\ud800"])
def test_a_header_value_that_could_end_the_header_is_refused(value: str) -> None:
    assert "may hold visible ASCII only" in refusal(said(headers={"X-A": value}))


@settings(deadline=None)
@given(st.text(), st.text(), st.text(), st.dictionaries(st.text(), st.text(), max_size=3), st.text())
def test_whatever_a_payload_holds_it_is_read_or_refused(
    uri: str, method: str, body: str, headers: dict[str, str], noise: str
) -> None:
    for payload in (said(uri=uri, method=method, body=body, headers=headers), said(headers=headers), noise):
        try:
            delivery = parse(payload)
        except BadPayload:
            continue
        for name, value in delivery.headers:
            assert f"{name}: {value}".isascii() and f"{name}: {value}".isprintable()


@settings(deadline=None)
@given(st.from_regex(r"https?://[a-z0-9.:@\[\]%/\\?#-]{0,40}", fullmatch=True))
def test_a_read_uri_has_one_host_that_no_other_reader_would_read_otherwise(uri: str) -> None:
    try:
        delivery = parse(said(uri=uri))
    except BadPayload:
        return
    assert f"{delivery.origin.scheme}://" == uri[: len(delivery.origin.scheme) + 3]
    assert not set(delivery.origin.host) & set("@/\\?#[]% ")
    assert delivery.target.startswith("/")
