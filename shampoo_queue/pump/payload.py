"""Read one delivery out of a job's payload, and refuse what cannot be delivered before anything is connected.

A payload is a JSON object with ``uri`` and, if wanted, ``method``, ``headers`` and ``body``. Other members are the
sender's own: without ``body`` the payload's text itself is what the receiver gets, byte for byte.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NoReturn

METHODS = ("DELETE", "GET", "PATCH", "POST", "PUT")
PORTS = {"http": 80, "https": 443}
MOST_HEADERS = 64

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)(/?[^?#]*)(\?[^#]*)?(#.*)?")
_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]*))?")
_HOST = re.compile(r"[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*")
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,256}")
_VALUE = re.compile(r"([!-~]([ -~]*[!-~])?)?")
# What frames the message belongs to the connection, and what names the delivery to the pump.
_RESERVED = re.compile(
    "host|content-length|transfer-encoding|connection|keep-alive|te|trailer|upgrade|expect"
    "|proxy-.*|webhook-.*|shampoo-.*",
    re.IGNORECASE,
)


class BadPayload(Exception):
    """A payload that can never be delivered; the message says why and quotes nothing of it."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a delivery goes to: one server, as far as a client can tell."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        """Spell the origin as a URL does."""
        return f"{self.scheme}://{self.authority}"

    @property
    def authority(self) -> str:
        """The host as the ``Host`` header names it, with the port unless it is the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Delivery:
    """One request to be made. ``target`` is the path with the query; ``repr`` shows no more than where it goes."""

    origin: Origin
    target: str
    method: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def __repr__(self) -> str:
        return f"<Delivery to {self.origin}>"


def parse(payload: str) -> Delivery:
    """Read a payload; raise `BadPayload`."""
    facts = json_object(payload)
    origin, target = _uri(facts.get("uri"))
    method = facts.get("method", "POST")
    if method not in METHODS:
        raise BadPayload(f"method must be one of {', '.join(METHODS)}")
    body = facts.get("body", payload)
    if not isinstance(body, str):
        raise BadPayload("body must be a string")
    kind = "application/json" if "body" not in facts else "text/plain; charset=utf-8" if body else ""
    return Delivery(origin, target, method, _headers(facts.get("headers", {}), kind), _encoded(body))


def json_object(text: str) -> dict[str, Any]:
    """Read a JSON object, strictly but for its numbers, which all become 0; raise `BadPayload`."""
    try:
        # Numbers are not looked at, and a long one must not cost time or fail.
        found = json.loads(
            text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_int=_number, parse_float=_number
        )
    except (json.JSONDecodeError, RecursionError):
        raise BadPayload("not a JSON document") from None
    if not isinstance(found, dict):
        raise BadPayload("not a JSON object")
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise BadPayload("a name is given twice in one object")
    return found


def _no_constant(_: str) -> NoReturn:
    raise BadPayload("NaN and Infinity are not JSON")


def _number(_: str) -> int:
    return 0


def _encoded(body: str) -> bytes:
    try:
        return body.encode()
    except UnicodeEncodeError:
        raise BadPayload("body holds half of a surrogate pair, which no byte can stand for") from None


def _uri(uri: Any) -> tuple[Origin, str]:
    if not isinstance(uri, str):
        raise BadPayload("uri is missing" if uri is None else "uri must be a string")
    if not re.fullmatch("[!-~]*", uri) or "\\" in uri:
        raise BadPayload(
            "uri may hold visible ASCII without backslashes only: write other names as xn--, others as %XX"
        )
    parts = _URI.fullmatch(uri)
    scheme = parts[1].lower() if parts else ""
    if parts is None or scheme not in PORTS:
        raise BadPayload("uri must begin with http:// or https://")
    if "@" in parts[2]:
        raise BadPayload("uri may not hold credentials: send them in a header")
    path, query = parts[3], parts[4] or ""
    return _origin(scheme, parts[2]), (path or "/") + query


def _origin(scheme: str, authority: str) -> Origin:
    parts = _AUTHORITY.fullmatch(authority)
    if parts is None:
        raise BadPayload("uri has no valid host")
    # The dot at the end of an absolute name is no part of the name that a certificate or a server knows.
    host = _ipv6(parts[1]) if parts[1].startswith("[") else parts[1].removesuffix(".").lower()
    if ":" not in host and (len(host) > 253 or not _HOST.fullmatch(host)):
        raise BadPayload("uri has no valid host")
    port = int((parts[2] or "")[:6] or PORTS[scheme])
    if not 0 < port < 65536:
        raise BadPayload("uri has no valid port")
    return Origin(scheme, host, port)


def _ipv6(bracketed: str) -> str:
    text = bracketed.strip("[]").lower()
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        raise BadPayload("uri has no valid host") from None
    return text


def _headers(given: Any, kind: str) -> tuple[tuple[str, str], ...]:
    if not isinstance(given, dict):
        raise BadPayload("headers must be an object of strings")
    if len(given) > MOST_HEADERS:
        raise BadPayload(f"headers may hold at most {MOST_HEADERS}")
    for name, value in given.items():
        _check_header(name, value)
    names = _lowered(given)
    if len(names) < len(given):
        raise BadPayload("a header is given twice")
    defaults = {"Content-Type": kind} if kind and "content-type" not in names else {}
    return (*given.items(), *defaults.items())


def _check_header(name: str, value: Any) -> None:
    if not _NAME.fullmatch(name):
        raise BadPayload("a header's name is no HTTP token")
    # Receivers behind CGI or WSGI take both spellings for one header.
    if _RESERVED.fullmatch(name.replace("_", "-")):
        raise BadPayload(f"the header {name} may not be set")
    if not isinstance(value, str):
        raise BadPayload(f"the header {name} must be a string")
    if not _VALUE.fullmatch(value):
        raise BadPayload(f"the header {name} may hold visible ASCII only, with spaces between")


def _lowered(names: Iterable[str]) -> set[str]:
    return {name.lower() for name in names}
