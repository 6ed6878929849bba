"""Sign people in to the pages: a token for a cookie. Redis keeps the session under the cookie's digest, for hours."""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson

from .. import keys
from ..errors import Denied
from ..tokens import Presented
from ..tools import text
from .visitor import Visitor

if TYPE_CHECKING:
    from .desk import Desk

SESSION_SECONDS = 43_200
_COOKIE = re.compile(r"[A-Za-z0-9_-]{43}")


@dataclass(frozen=True, slots=True)
class Session:
    """Who looks at the pages, and the word that every form of theirs must carry."""

    visitor: Visitor
    csrf: str


class Sessions:
    """The sessions of a desk. None holds a token, only what a script needs to hold one against what is stored."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def begin(self, token: str, *, address: str = "") -> tuple[str, Session]:
        """Sign somebody in who presents a token with an ops scope; give the cookie and the session.

        Raises `Unauthenticated`, `Denied` for a live token of another scope, `RateLimited` or `Unavailable`.
        """
        visitor = await self._desk.admit(token, address=address)
        await visitor.prove()
        presented = visitor.caller.client_id
        if not visitor.may("ops:read") or not isinstance(presented, Presented):
            raise Denied("the pages need a token with the scope ops:read or ops:write")
        cookie, csrf = secrets.token_urlsafe(32), secrets.token_urlsafe(24)
        stored = orjson.dumps([presented.token_id, presented.digest, csrf])
        await self._desk.outside("SET", _key(cookie), stored, "EX", SESSION_SECONDS)
        return cookie, Session(visitor, csrf)

    async def find(self, cookie: str | None, *, address: str = "") -> Session | None:
        """Give the session of a cookie; None when there is none. Whether its token is live is told by each call."""
        if not cookie or not _COOKIE.fullmatch(cookie):
            return None
        stored = await self._desk.outside("GET", _key(cookie))
        if stored is None:
            return None
        token_id, digest, csrf = orjson.loads(text(stored))
        facts = await self._desk.facts(token_id)
        if facts is None:
            return None
        return Session(self._desk.visitor(Presented(token_id, digest), facts, address), csrf)

    async def end(self, cookie: str | None) -> None:
        """Sign out."""
        if cookie and _COOKIE.fullmatch(cookie):
            await self._desk.outside("DEL", _key(cookie))


def _key(cookie: str) -> str:
    return keys.spell(keys.OUTSIDE, "session", hashlib.sha256(cookie.encode()).hexdigest())
