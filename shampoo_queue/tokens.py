"""Make and read access tokens: ``shp_<id>_<secret><check>``, of which the queue keeps only a digest."""

from __future__ import annotations

import hashlib
import re
import secrets
import zlib
from dataclasses import dataclass

_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_TOKEN = re.compile(rb"shp_([0-9A-Za-z]{12})_([0-9A-Za-z]{40})([0-9A-Za-z]{6})")
TOKEN_ID = re.compile(r"[0-9A-Za-z]{12}")

# What a token is good for, and what else that includes.
SCOPES: dict[str, tuple[str, ...]] = {
    "tools": ("tools", "tools:read"),
    "tools:read": ("tools:read",),
    "ops:read": ("ops:read",),
    "ops:write": ("ops:write", "ops:read"),
    "metrics": ("metrics",),
}


@dataclass(frozen=True, slots=True)
class Presented:
    """A token that somebody presents: its id, and the digest to hold against the stored one. Never the secret."""

    token_id: str
    digest: str

    def __str__(self) -> str:
        """Give the form in which a script is told of it, instead of a client_id: no client_id begins with a NUL."""
        return f"\0{self.token_id} {self.digest}"


def mint() -> str:
    """Make a token: 40 random characters of base 62, 238 bits, and a check that tells typing errors by itself."""
    body = f"shp_{_random(12)}_{_random(40)}"
    return body + _check(body.encode())


def read(token: str | bytes) -> Presented | None:
    """Read a token as it was presented; None when it cannot be one, whatever bytes it holds."""
    raw = token.encode("utf-8", "replace") if isinstance(token, str) else token
    found = _TOKEN.fullmatch(raw)
    if found is None or _check(raw[:-6]) != found[3].decode():
        return None
    return Presented(found[1].decode(), hashlib.sha256(raw).hexdigest())


def _random(length: int) -> str:
    return "".join(secrets.choice(_DIGITS) for _ in range(length))


def _check(body: bytes) -> str:
    number, text = zlib.crc32(body), ""
    for _ in range(6):
        number, digit = divmod(number, 62)
        text = _DIGITS[digit] + text
    return text
