"""JSON Web Tokens of another issuer: only genuine ones in their time and meant for us, whatever becomes of the keys."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import logging
import time
from pathlib import Path
from typing import Any

import jwt as pyjwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from shampoo_queue import tokens
from shampoo_queue.errors import ConfigurationError, Unavailable
from shampoo_queue.server import jwt
from shampoo_queue.server.jwt import ALGORITHMS, Claims, JwtVerifier
from tests.tokens.issuer import AUDIENCE, ISSUER, Key, key_set, serving

KEYS = {algorithm: Key(f"key-{algorithm}", algorithm) for algorithm in ("RS256", "ES256", "ES384", "EdDSA")}
RSA, EC, ED = KEYS["RS256"], KEYS["ES256"], KEYS["EdDSA"]


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the keys of the issuer."""
    file = tmp_path_factory.mktemp("keys") / "jwks.json"
    file.write_bytes(key_set(*KEYS.values()))
    return file


def seen(verifier: JwtVerifier, *credentials: str) -> list[Claims | None]:
    async def one_by_one() -> list[Claims | None]:
        return [await verifier.visitor_of(credential) for credential in credentials]

    return asyncio.run(one_by_one())


def made(source: Path | str, **options: Any) -> JwtVerifier:
    return JwtVerifier(ISSUER, AUDIENCE, source, **options)


@pytest.mark.parametrize("key", [RSA, EC, ED], ids=lambda key: key.algorithm)
def test_a_genuine_token_says_who_comes(known: Path, key: Key) -> None:
    ends_at = int(time.time()) + 60
    (claims,) = seen(made(known, profile="p1"), key.sign(exp=ends_at))
    assert claims == Claims("w", "p1", "tools", float(ends_at))


def test_the_claims_that_count_may_have_other_names(known: Path) -> None:
    verifier = made(known, client_claim="azp", scope_claim="scp")
    token = RSA.sign(azp="agent-7", scp=["openid", "metrics"], scope=None)
    (claims,) = seen(verifier, token)
    assert claims is not None
    assert (claims.client_id, claims.scope) == ("agent-7", "metrics")


@pytest.mark.parametrize(
    "given, scope",
    [
        ("tools", "tools"),
        ("openid tools:read profile", "tools:read"),
        ("ops:write tools", "tools"),
        (["ops:read"], "ops:read"),
        ("openid", None),
        ("toolsx", None),
        ("", None),
        (None, None),
        (7, None),
        ([["tools"]], None),
        ({"tools": 1}, None),
    ],
)
def test_of_the_scopes_one_of_ours_counts(known: Path, given: Any, scope: str | None) -> None:
    (claims,) = seen(made(known), RSA.sign(scope=given))
    assert (claims and claims.scope) == scope


NOW = int(time.time())
BAD_CLAIMS: dict[str, dict[str, Any]] = {
    "another issuer": {"iss": "https://evil.example"},
    "an issuer with a slash": {"iss": ISSUER + "/"},
    "no issuer": {"iss": None},
    "another audience": {"aud": "https://other.example/"},
    "audiences of others": {"aud": ["a", "b"]},
    "no audience": {"aud": None},
    "an audience that only begins so": {"aud": AUDIENCE + "x"},
    "expired": {"exp": NOW - 31},
    "no end": {"exp": None},
    "an end that is no number": {"exp": "soon"},
    "not yet valid": {"nbf": NOW + 3_600},
    "issued in the future": {"iat": NOW + 3_600},
    "no subject": {"sub": None},
    "an empty subject": {"sub": ""},
    "a subject that is no text": {"sub": 7},
    "a subject as a list": {"sub": ["w"]},
    "a subject too long": {"sub": "w" * 129},
    "a subject as a token becomes": {"sub": "\0abc 0123"},
    "a lone surrogate": {"sub": "\ud800"},
}


@pytest.mark.parametrize("claims", BAD_CLAIMS.values(), ids=BAD_CLAIMS.keys())
def test_a_token_that_is_not_for_us_or_not_for_now_is_none(known: Path, claims: dict[str, Any]) -> None:
    assert seen(made(known), RSA.sign(claims), RSA.sign())[0] is None


def test_clocks_may_differ_a_little(known: Path) -> None:
    now = int(time.time())
    lately, soon = RSA.sign(exp=now - 20), RSA.sign(nbf=now + 20, iat=now + 20)
    assert None not in seen(made(known), lately, soon)
    assert seen(made(known, leeway_seconds=0), lately, soon) == [None, None]


def part(value: Any) -> str:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def test_a_signature_that_does_not_fit_is_none(known: Path) -> None:
    head, claims, signature = RSA.sign().split(".")
    other = RSA.sign(sub="c").split(".")
    bad = [f"{head}.{other[1]}.{signature}", f"{head}.{claims}.", f"{head}.{claims}.{signature[:-4]}AAAA"]
    assert seen(made(known), *bad) == [None] * 3


def test_no_token_chooses_how_it_is_checked(known: Path) -> None:
    """The public key as a shared secret, no signature at all, another key's algorithm: the classic confusions."""
    claims = RSA.sign().split(".")[1]
    pem = RSA.private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    forged = []
    for name in ("none", "None", "NONE", "", "HS256", "HS384", "hs256", "RS256 ", "ES256K", None, 7, ["RS256"]):
        forged.append(f"{part({'alg': name, 'kid': RSA.kid})}.{claims}.")
    for secret in (pem, json.dumps(RSA.public()).encode(), b""):
        head = part({"alg": "HS256", "kid": RSA.kid, "typ": "JWT"})
        forged.append(f"{head}.{claims}." + part(hmac.digest(secret, f"{head}.{claims}".encode(), hashlib.sha256)))
    forged.append(RSA.sign(header={"kid": EC.kid}))
    forged.append(EC.sign(header={"kid": RSA.kid}))
    forged.append(KEYS["ES384"].sign())  # a good key, and an algorithm that is not allowed
    assert seen(made(known), *forged) == [None] * len(forged)


def test_a_key_that_a_token_brings_along_is_not_believed(known: Path) -> None:
    evil = Key("evil", "RS256")
    with serving() as served:
        served.body = key_set(evil)
        headers: list[dict[str, Any]] = [
            {"jwk": evil.public()},
            {"jku": served.url},
            {"x5u": served.url},
            {"crit": ["b64"], "b64": False},
        ]
        forged = [evil.sign(header=header | {"kid": kid}) for header in headers for kid in ("evil", str(RSA.kid))]
        assert seen(made(known), *forged) == [None] * len(forged)
        assert served.asked == 0


def test_an_unknown_critical_header_is_not_understood(known: Path) -> None:
    assert seen(made(known), RSA.sign(header={"crit": ["exp"]})) == [None]


def test_what_is_no_token_is_none(known: Path) -> None:
    head, claims, signature = RSA.sign().split(".")
    deep = b'{"a":' * 5_000 + b"1" + b"}" * 5_000
    odd = [
        "",
        ".",
        "..",
        "...",
        f"{head}.{claims}",
        f"{head}.{claims}.{signature}.x",
        f" {head}.{claims}.{signature}",
        f"{head}.{claims}.{signature}\n",
        f"{head}=.{claims}.{signature}",
        f"é{head}.{claims}.{signature}",
        f"{part([])}.{claims}.{signature}",
        f"{head}.{part([1])}.{signature}",
        f"{head}.{part(b'{')}.{signature}",
        f"{part(deep)}.{claims}.{signature}",
        RSA.sign(sub="w", more="x" * 9_000),
        tokens.mint(),
        "\ud800.\ud800.\ud800",
        "\0",
    ]
    assert seen(made(known), *odd) == [None] * len(odd)
    endless = [RSA.sign({"exp": number}) for number in (10**400, float(10**300))]
    assert seen(made(known), *endless) == [None, None]


@given(st.text(max_size=100) | st.builds(".".join, st.lists(st.binary(max_size=40).map(part), min_size=2, max_size=4)))
def test_arbitrary_text_is_none(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    assert seen(made("/nowhere/keys.json"), text) == [None]


# Keys -----------------------------------------------------------------------------------------------------------


def test_keys_that_are_none_or_too_weak_are_left_out(tmp_path: Path) -> None:
    weak = Key("weak", "RS256", rsa.generate_private_key(public_exponent=65537, key_size=1024))
    file = tmp_path / "keys.json"
    odd: list[Any] = [
        {"kty": "oct", "kid": "shared", "k": part(b"secret"), "alg": "HS256"},
        RSA.public(kid="for encryption", use="enc"),
        RSA.public(kid="for another", alg="RS512"),
        RSA.public(kid="broken", n="!"),
        {"kty": "RSA", "kid": "empty"},
        EC.public(kid="another curve", crv="P-384"),
        weak.public(),
        7,
        None,
        {"kid": "no type"},
    ]
    file.write_text(json.dumps({"keys": [*odd, ED.public()]}))
    with pytest.warns(pyjwt.warnings.InsecureKeyLengthWarning):
        weakly = weak.sign()
    named = [RSA.sign(header={"kid": str(key["kid"])}) for key in odd[:5]]
    named += [EC.sign(header={"kid": "another curve"}), weakly]
    shared = pyjwt.encode({"iss": ISSUER}, "secret" * 9, "HS256", headers={"kid": "shared"})
    found = seen(made(file), *named, shared, ED.sign())
    assert found[:-1] == [None] * (len(found) - 1)
    assert found[-1] is not None


def test_without_a_kid_the_only_key_that_fits_is_meant(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    nameless = Key(None, "RS256")
    file.write_bytes(key_set(nameless, ED))
    assert seen(made(file), nameless.sign())[0] is not None
    file.write_bytes(key_set(nameless, RSA))
    assert seen(made(file), nameless.sign()) == [None]


def test_a_new_key_is_read_when_it_is_first_seen_and_an_old_one_goes_with_its_entry() -> None:
    old, new = Key("old", "ES256"), Key("new", "ES256")
    with serving() as served:
        served.body = key_set(old)
        verifier = made(served.url, refresh_seconds=0.0)
        assert [bool(found) for found in seen(verifier, old.sign(), new.sign())] == [True, False]
        served.body = key_set(old, new)
        assert None not in seen(verifier, new.sign(), old.sign())
        served.body = key_set(new)
        assert seen(verifier, Key("?", "ES256").sign(), old.sign()) == [None, None]
        assert seen(verifier, new.sign()) != [None]


def test_unknown_keys_do_not_make_us_ask_again_and_again() -> None:
    with serving() as served:
        served.body = key_set(RSA)
        verifier = made(served.url)
        flood = [Key(f"kid{n}", "EdDSA", ED.private).sign() for n in range(50)]

        async def at_once() -> list[Claims | None]:
            return await asyncio.gather(*(verifier.visitor_of(token) for token in [RSA.sign(), *flood]))

        found = asyncio.run(at_once())
        assert found[0] is not None
        assert found[1:] == [None] * 50
        assert served.asked == 1


def test_a_token_of_another_issuer_makes_us_ask_nobody() -> None:
    with serving() as served:
        served.body = key_set(RSA)
        assert seen(made(served.url), RSA.sign(iss="https://evil.example"), "a.b.c", tokens.mint()) == [None] * 3
        assert served.asked == 0


BROKEN: dict[str, dict[str, Any]] = {
    "an error": {"status": 500},
    "not found": {"status": 404},
    "no JSON": {"body": b"<html>"},
    "no key set": {"body": b"[]"},
    "no keys": {"body": b'{"keys": 7}'},
    "too large": {"body": b" " * 300_000},
    "nested too deeply": {"body": b"[" * 100_000},
    "a body cut short": {"headers": {"Content-Length": "100000"}},
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN.keys())
def test_while_the_keys_were_never_to_be_had_the_server_says_so(broken: dict[str, Any]) -> None:
    with serving() as served:
        served.body = b"{"
        for name, value in broken.items():
            setattr(served, name, value)
        with pytest.raises(Unavailable):
            seen(made(served.url), RSA.sign())


def test_no_redirect_is_followed() -> None:
    with serving() as evil, serving() as served:
        evil.body = served.body = key_set(RSA)
        for status in (301, 302, 303, 307, 308):
            served.status, served.headers = status, {"Location": evil.url}
            with pytest.raises(Unavailable):
                seen(made(served.url), RSA.sign())
        assert evil.asked == 0


def test_keys_stay_good_while_their_server_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    passed = [1_000.0]
    monkeypatch.setattr(jwt, "now", lambda: passed[0])
    with serving() as served:
        served.body = key_set(RSA)
        verifier = made(served.url)
        assert None not in seen(verifier, RSA.sign())
        served.status = 503
        passed[0] += 700  # the set is no longer fresh
        assert None not in seen(verifier, RSA.sign(), RSA.sign())
        assert served.asked == 2
        passed[0] += 86_400
        with pytest.raises(Unavailable):
            seen(verifier, RSA.sign())
        served.status = 200
        passed[0] += 30
        assert None not in seen(verifier, RSA.sign())


def test_a_withdrawn_key_is_forgotten_within_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    passed = [1_000.0]
    monkeypatch.setattr(jwt, "now", lambda: passed[0])
    with serving() as served:
        served.body = key_set(RSA, ED)
        verifier = made(served.url)
        assert None not in seen(verifier, RSA.sign())
        served.body = key_set(ED)
        assert None not in seen(verifier, RSA.sign())
        passed[0] += 601
        assert seen(verifier, RSA.sign()) == [None]


def test_a_server_that_drips_holds_up_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jwt, "_FETCH_SECONDS", 0.5)

    async def beside(verifier: JwtVerifier) -> None:
        waiting = asyncio.ensure_future(verifier.visitor_of(RSA.sign()))
        longest, last = 0.0, time.monotonic()
        while not waiting.done():
            await asyncio.sleep(0.01)
            longest, last = max(longest, time.monotonic() - last), time.monotonic()
        assert longest < 0.4
        with pytest.raises(Unavailable):
            await waiting

    with serving() as served:
        served.body = key_set(RSA)
        served.drip.set()
        asyncio.run(beside(made(served.url)))


def test_no_server_at_all_is_unavailable_and_the_log_names_no_secret(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with serving() as served:
        url = served.url
    token = RSA.sign()
    with pytest.raises(Unavailable):
        seen(made(url), token)
    assert "cannot be read" in caplog.text
    assert token.split(".")[2] not in caplog.text


# Settings -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["none", "HS256", "HS384", "HS512", "RS1", "ES256K", ""])
def test_only_asymmetric_algorithms_can_be_allowed(known: Path, algorithm: str) -> None:
    with pytest.raises(ConfigurationError):
        made(known, algorithms=["RS256", algorithm])


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_each_algorithm_that_can_be_allowed_works(tmp_path: Path, algorithm: str) -> None:
    file, key = tmp_path / "keys.json", Key("k", algorithm)
    file.write_bytes(key_set(key))
    assert seen(made(file, algorithms=[algorithm]), key.sign()) != [None]


def test_settings_that_cannot_be_right_are_refused(known: Path) -> None:
    bad: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        (("", AUDIENCE, known), {}),
        ((ISSUER, "", known), {}),
        ((ISSUER, AUDIENCE, "http://login.example/keys"), {}),
        ((ISSUER, AUDIENCE, known), {"algorithms": ()}),
        ((ISSUER, AUDIENCE, known), {"profile": "P!"}),
    ]
    for given_, options in bad:
        with pytest.raises(ConfigurationError):
            JwtVerifier(*given_, **options)


def test_the_metadata_names_the_issuer_and_the_scopes(known: Path) -> None:
    document = made(known).metadata()
    assert document["resource"] == AUDIENCE
    assert document["authorization_servers"] == [ISSUER]
    assert document["bearer_methods_supported"] == ["header"]
    assert set(document["scopes_supported"]) == {"tools", "tools:read", "ops:read", "ops:write", "metrics"}
