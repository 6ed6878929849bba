"""Admit callers by JSON Web Tokens that somebody else issues: the mode of an OAuth resource server, beside our tokens.

Nothing here issues tokens. A JSON Web Token cannot be revoked: it is good until it expires, so its life should be
short. What its subject may do, roles and grants, stays the principal's, and is read by every call.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import http.client
import json
import logging
import socket
import ssl
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from .. import keys
from ..clock import now
from ..contract import limit
from ..errors import ConfigurationError, Unavailable
from ..tokens import SCOPES
from ..tools import is_unicode

log = logging.getLogger("shampoo_queue.server")

# The algorithms that may sign, each with the kind of key and the curve it needs. None is symmetric: whoever knows the
# key with which signatures are checked, and everybody does, could sign too.
ALGORITHMS: dict[str, tuple[str, str | None]] = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), ("RSA", None)),
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "EdDSA": ("OKP", "Ed25519"),
}
_LONGEST_TOKEN = 8_192  # characters
_LARGEST_SET = 256 * 1024  # bytes of a key set
_MOST_KEYS = 100
_LAST_INSTANT = 10**12  # seconds since 1970
_FRESH_SECONDS = 600.0  # a key that was withdrawn is good no longer than this
_STALE_SECONDS = 86_400.0  # unless the set cannot be had; then no longer than this
_FETCH_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Claims:
    """What a credential says of who presents it. ``expires_at`` is in seconds since 1970, None for never."""

    client_id: str
    profile: str
    scope: str
    expires_at: float | None


class Verifier(Protocol):
    """Whoever can tell by a credential who presents it."""

    async def visitor_of(self, credential: str) -> Claims | None:
        """Give what a credential says; None when it is no good, whatever is wrong with it."""


class JwtVerifier:
    """Admit whoever presents a JSON Web Token of one issuer that is meant for this server.

    ``audience`` is what ``aud`` must hold: best the URL at which clients reach this server. ``jwks`` is the issuer's
    key set, a file or an https URL (http only for a server on this machine). ``client_claim`` names the claim that
    holds the client_id, ``scope_claim`` the one that holds the scopes, apart by blanks or as a list; of those that are
    ours, the first in the order of `SCOPES` counts, for a caller has one. Raises `ConfigurationError`.
    """

    def __init__(
        self,
        issuer: str,
        audience: str,
        jwks: str | Path,
        *,
        profile: str = "default",
        client_claim: str = "sub",
        scope_claim: str = "scope",
        algorithms: Sequence[str] = ("RS256", "ES256", "EdDSA"),
        leeway_seconds: float = 30.0,
        refresh_seconds: float = 30.0,
    ) -> None:
        if unknown := set(algorithms) - ALGORITHMS.keys():
            named = ", ".join(sorted(unknown))
            raise ConfigurationError(f"tokens cannot be signed with {named}: use {', '.join(ALGORITHMS)}")
        if not issuer or not audience or not algorithms:
            raise ConfigurationError("an issuer, an audience and an algorithm must be given")
        if not keys.PROFILE.fullmatch(profile):
            raise ConfigurationError(f"{profile!r} cannot be the name of a profile")
        self._issuer, self._audience, self._profile = issuer, audience, profile
        self._client_claim, self._scope_claim = client_claim, scope_claim
        self._algorithms, self._leeway = tuple(algorithms), leeway_seconds
        self._keys = KeySet(jwks, refresh_seconds)

    def metadata(self) -> dict[str, Any]:
        """Give the document of RFC 9728, served at ``/.well-known/oauth-protected-resource``."""
        return {
            "resource": self._audience,
            "authorization_servers": [self._issuer],
            "scopes_supported": list(SCOPES),
            "bearer_methods_supported": ["header"],
            "resource_name": "SHAMPOO work queue",
        }

    async def visitor_of(self, credential: str) -> Claims | None:
        """Give what a token says when it is genuine, meant for this server and in its time; else None.

        Raises `Unavailable` when the issuer's keys were never to be had.
        """
        header = self._header(credential)
        if header is None:
            return None
        key = await self._keys.find(header.get("kid"), header["alg"])
        claims = None if key is None else self._decoded(credential, key)
        return None if claims is None else self._claims(claims)

    def _header(self, credential: str) -> dict[str, Any] | None:
        """Read what a token says of itself, before anything of it is believed."""
        parts = credential.split(".")
        if len(credential) > _LONGEST_TOKEN or len(parts) != 3:
            return None
        header, claims = _part(parts[0]), _part(parts[1])
        if header is None or claims is None or claims.get("iss") != self._issuer:
            return None
        known = header.get("alg") in self._algorithms and isinstance(header.get("kid", ""), str)
        return header if known and "crit" not in header else None

    def _decoded(self, credential: str, key: Any) -> dict[str, Any] | None:
        import jwt

        try:
            claims: dict[str, Any] = jwt.decode(
                credential,
                key,
                algorithms=[key.algorithm_name],
                issuer=self._issuer,
                audience=self._audience,
                leeway=self._leeway,
                options={"require": ["exp", "iss", "aud"]},
            )
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError):
            return None
        return claims

    def _claims(self, claims: dict[str, Any]) -> Claims | None:
        client_id, scopes = claims.get(self._client_claim), claims.get(self._scope_claim)
        given = scopes.split(" ") if isinstance(scopes, str) else scopes if isinstance(scopes, list) else []
        scope = next((name for name in SCOPES if name in given), None)
        if scope is None or not isinstance(client_id, str) or not 1 <= len(client_id) <= limit("project"):
            return None
        if not is_unicode(client_id) or "\0" in client_id:
            return None
        ends_at = claims["exp"]
        if not isinstance(ends_at, int | float) or ends_at > _LAST_INSTANT:
            return None
        return Claims(client_id, self._profile, scope, float(ends_at))


def _part(encoded: str) -> dict[str, Any] | None:
    """Read one part of a token: base64url of a JSON object."""
    try:
        found = json.loads(base64.b64decode(encoded + "=" * (-len(encoded) % 4), b"-_", validate=True))
    except (ValueError, binascii.Error, RecursionError):
        return None
    return found if isinstance(found, dict) else None


class KeySet:
    """The keys of an issuer, kept for a while. An unknown one has the set read anew, but not too often."""

    def __init__(self, source: str | Path, refresh_seconds: float) -> None:
        self._source, self._refresh_seconds = str(source), refresh_seconds
        scheme, host = urlsplit(self._source).scheme, urlsplit(self._source).hostname
        if scheme == "http" and host not in ("127.0.0.1", "::1", "localhost"):
            raise ConfigurationError("a key set is read from a file or over https")
        self._keys: list[dict[str, Any]] = []
        self._made: dict[tuple[str, str], Any] = {}
        self._tried_at = self._read_at = float("-inf")
        self._reading = asyncio.Lock()

    async def find(self, kid: str | None, algorithm: str) -> Any:
        """Give the key that a token names and its algorithm can use; None when there is none. Raises `Unavailable`."""
        key = self._find(kid, algorithm)
        # Who has a key does not wait for another's reading of the set.
        if key is None or (now() - self._read_at > _FRESH_SECONDS and not self._reading.locked()):
            await self._refresh()
            key = self._find(kid, algorithm)
        if now() - self._read_at > _STALE_SECONDS:
            raise Unavailable("the keys of the issuer cannot be had")
        return key

    def _find(self, kid: str | None, algorithm: str) -> Any:
        fitting = [key for key in self._keys if _fits(key, algorithm) and kid in (None, key.get("kid"))]
        if len(fitting) != 1:  # without a kid, only a set of one key says which is meant
            return None
        named = (str(fitting[0].get("kid")), algorithm)
        if named not in self._made:
            self._made[named] = _made(fitting[0], algorithm)
        return self._made[named]

    async def _refresh(self) -> None:
        """Read the set anew, unless that was tried a moment ago; when it fails, what was read before stays."""
        async with self._reading:
            if now() - self._tried_at < self._refresh_seconds:
                return
            self._tried_at = now()
            try:
                async with asyncio.timeout(_FETCH_SECONDS):
                    found = _keys_of(await asyncio.to_thread(_read, self._source))
            except (OSError, ValueError, TypeError, http.client.HTTPException, RecursionError) as error:
                # What the error says may hold what was read; its name is enough.
                log.warning("the key set of the issuer cannot be read: %s", type(error).__name__)
                return
            self._keys, self._made, self._read_at = found, {}, now()


def _fits(key: dict[str, Any], algorithm: str) -> bool:
    kind, curve = ALGORITHMS[algorithm]
    return key["kty"] == kind and curve in (None, key.get("crv")) and key.get("alg", algorithm) == algorithm


def _made(key: dict[str, Any], algorithm: str) -> Any:
    """Make a key usable; None when it is none, or so short that its signatures can be forged."""
    import jwt

    try:
        made = jwt.PyJWK(key, algorithm)
    except (jwt.PyJWTError, ValueError, TypeError):
        return None
    return None if key["kty"] == "RSA" and made.key.key_size < 2048 else made


def _keys_of(content: bytes) -> list[dict[str, Any]]:
    found = json.loads(content)
    listed = found.get("keys") if isinstance(found, dict) else None
    if listed is None:
        raise ValueError("no key set")
    signing = [key for key in list(listed) if isinstance(key, dict) and key.get("use", "sig") == "sig"]
    return [key for key in signing if key.get("kty") in ("RSA", "EC", "OKP")][:_MOST_KEYS]


def _read(source: str) -> bytes:
    """Read a file or fetch a URL, in a thread. No redirect is followed: only the host that was named is believed."""
    url = urlsplit(source)
    if url.scheme not in ("http", "https"):
        with Path(source).open("rb") as file:
            return _bounded(file.read(_LARGEST_SET + 1))
    if url.scheme == "http":
        link = http.client.HTTPConnection(url.hostname or "", url.port, timeout=_FETCH_SECONDS)
    else:
        context = ssl.create_default_context()
        link = http.client.HTTPSConnection(url.hostname or "", url.port, timeout=_FETCH_SECONDS, context=context)
    late = threading.Timer(_FETCH_SECONDS, _cut, (link,))
    late.start()
    try:
        link.request("GET", f"{url.path or '/'}{'?' if url.query else ''}{url.query}", headers={"Accept": "*/*"})
        answer = link.getresponse()
        if answer.status != 200:
            raise ValueError(f"status {answer.status}")
        return _bounded(answer.read(_LARGEST_SET + 1))
    finally:
        late.cancel()
        link.close()


def _cut(link: http.client.HTTPConnection) -> None:
    """End a reading that takes too long, however steadily the server drips."""
    with suppress(OSError, AttributeError):
        link.sock.shutdown(socket.SHUT_RDWR)


def _bounded(content: bytes) -> bytes:
    if len(content) > _LARGEST_SET:
        raise ValueError("the key set is too large")
    return content


# Where tokens come from -----------------------------------------------------------------------------------------

METADATA = "/.well-known/oauth-protected-resource"


def routes(verifiers: Sequence[Verifier]) -> list[Route]:
    """Give the routes that tell a client where tokens come from; none without an issuer of somebody else's."""
    documents = [verifier.metadata() for verifier in verifiers if isinstance(verifier, JwtVerifier)]
    if not documents:
        return []

    async def endpoint(_request: Request) -> Response:
        return JSONResponse(documents[0], headers={"cache-control": "no-cache", "x-content-type-options": "nosniff"})

    return [Route(path, endpoint, methods=["GET"]) for path in (METADATA, f"{METADATA}/mcp")]


def challenge(verifiers: Sequence[Verifier]) -> bytes:
    """Give what a 401 asks for; with an issuer, and an audience that is a URL, where to read of it (RFC 9728, 5.1)."""
    for verifier in verifiers:
        resource = urlsplit(str(verifier.metadata()["resource"])) if isinstance(verifier, JwtVerifier) else None
        if resource and resource.scheme in ("http", "https") and resource.netloc.isascii():
            return f'Bearer resource_metadata="{resource.scheme}://{resource.netloc}{METADATA}"'.encode()
    return b"Bearer"
