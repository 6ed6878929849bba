"""What every HTTP door says and hears in one way: the error body and its headers, a request's body and its JSON."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from ..errors import BadRequest, Refusal, TooLarge

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Header = tuple[bytes, bytes]

BODY_LIMIT = 8 * 1024 * 1024  # bytes; a payload of 1 MiB of NUL is 6 MiB of JSON
UNPROVEN_LIMIT = 64 * 1024  # bytes that are kept for a caller whose token has not been proved
_DISCARDED = 32 * 1024 * 1024  # bytes of a refused body that are read on, so that the sender comes to hear the refusal
_DISCARD_SECONDS = 5.0
_SILENT_SECONDS = 1.0

_DEPTH = 64
_DIGITS = 1_000

# Seconds after which a refused caller should come again.
_RETRY_AFTER = {429: b"1", 503: b"2"}

_PLAIN: tuple[Header, ...] = (
    (b"content-type", b"application/json"),
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
)

_TOKEN = re.compile(r"(shp_[0-9A-Za-z]{12}_)[0-9A-Za-z]+|shp_[0-9A-Za-z_]*")


class ClientGone(Exception):
    """The client hung up, so nobody is left to answer."""


@dataclass(slots=True)
class Passage:
    """What the guard knows of one request: its id, the address it came from, and whether the server is leaving.

    The doors note who came, by the id of the token; the access log shows it.
    """

    request_id: str = "-"
    address: str = ""
    leaving: asyncio.Event = field(default_factory=asyncio.Event)
    status: int = 0
    token_id: str = ""
    cycle: Any = None

    def is_gone(self) -> bool:
        """Tell whether the server below knows that the client has hung up: it would drop what is sent now."""
        return bool(getattr(self.cycle, "disconnected", False))


def passage(scope: Scope) -> Passage:
    """Give the request's passage; one that knows nothing when no guard stands before the door."""
    found: Passage | None = scope.get("shampoo")
    return Passage() if found is None else found


def hidden(text: str) -> str:
    """Leave the secret of every token out of a text."""
    return _TOKEN.sub(lambda found: f"{found[1] or 'shp_'}***", text) if "shp_" in text else text


# Out ------------------------------------------------------------------------------------------------------------


def error_body(refusal: Refusal) -> bytes:
    """Spell a refusal as every door does."""
    return orjson.dumps({"error": {"code": refusal.code, "message": refusal.message}})


def error_headers(refusal: Refusal) -> list[Header]:
    """Give the headers that go with a refusal's status."""
    status = refusal.http_status
    if status == 401:
        return [(b"www-authenticate", b"Bearer")]
    if status in _RETRY_AFTER:
        return [(b"retry-after", _RETRY_AFTER[status])]
    if status == 413:
        return [(b"connection", b"close")]
    return []


async def answer(send: Send, body: bytes, headers: Iterable[Header] = (), status: int = 200) -> None:
    """Send one JSON document."""
    length = (b"content-length", b"%d" % len(body))
    await send({"type": "http.response.start", "status": status, "headers": [*_PLAIN, length, *headers]})
    await send({"type": "http.response.body", "body": body})


async def refuse(send: Send, refusal: Refusal, headers: Iterable[Header] = ()) -> None:
    """Send a refusal."""
    await answer(send, error_body(refusal), [*error_headers(refusal), *headers], refusal.http_status)


# In -------------------------------------------------------------------------------------------------------------


def credential(value: bytes | None) -> str | None:
    """Give what follows ``Bearer`` in an Authorization header; None when nothing does."""
    scheme, _, rest = (value or b"").partition(b" ")
    return rest.strip(b" ").decode("latin-1") if scheme.lower() == b"bearer" else None


def content_length(value: bytes | None) -> int | None:
    """Read a Content-Length header; None without one. The server below has refused what is no number."""
    return int(value) if value is not None and value.isdigit() and len(value) < 20 else None


async def read_body(receive: Receive, *, prove: Callable[[], Awaitable[object]], limit: int = BODY_LIMIT) -> bytes:
    """Read a request's body; raise `TooLarge` or `ClientGone`.

    ``prove`` is awaited once before more than `UNPROVEN_LIMIT` bytes are kept, so that only callers whose token is
    live can make the server hold large bodies.
    """
    parts: list[bytes] = []
    size, more, proved = 0, True, False
    while more:
        if size > UNPROVEN_LIMIT and not proved:
            await prove()
            proved = True
        part, more = await _part(receive)
        size += len(part)
        if size > limit:
            raise TooLarge(f"a body has at most {limit:,} bytes")
        parts.append(part)
    return b"".join(parts)


async def _part(receive: Receive) -> tuple[bytes, bool]:
    message = await receive()
    if message["type"] == "http.disconnect":
        raise ClientGone
    return message.get("body", b""), message.get("more_body", False)


async def discard(receive: Receive) -> None:
    """Read on what is left of a refused body, within bounds: a sender that is cut off would not hear why.

    One that sends nothing for a second has sent all, or is too slow to be waited for.
    """
    left = _DISCARDED
    try:
        async with asyncio.timeout(_DISCARD_SECONDS):
            while left > 0:
                part, more = await asyncio.wait_for(_part(receive), _SILENT_SECONDS)
                if not more:
                    return
                left -= len(part)
    except TimeoutError:
        return


# JSON -----------------------------------------------------------------------------------------------------------


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise BadRequest("a name stands twice in one object")
    return found


def _constant(_name: str) -> Any:
    raise BadRequest("NaN and Infinity are not JSON")


def _integer(digits: str) -> int:
    if len(digits) > _DIGITS:
        raise BadRequest(f"a number has at most {_DIGITS:,} digits")
    return int(digits)


_WEIGHED = 64 * 1024  # bytes
_STRINGS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+\\?+"?+', re.DOTALL)  # one without an end goes to the end


def _is_crowded(body: bytes) -> bool:
    """Tell whether a body holds so many values that reading them would keep everybody else waiting for seconds."""
    quotes = body.count(b'"') - body.count(b'\\"')
    return quotes > _WEIGHED or len(_STRINGS.sub(b"", body).translate(None, b" \t\r\n")) > _WEIGHED


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant, parse_int=_integer)


def parse(body: bytes) -> dict[str, Any]:
    """Read a request's JSON object strictly; raise `BadRequest` with a sentence that echoes nothing.

    Refused are a BOM, what is no UTF-8, trailing text, names that stand twice, NaN and Infinity, numbers of more than
    1,000 digits, more than 64 levels, and everything but an object. The standard library's reader is used, as a lone
    surrogate in an escape must come through here: the contract refuses it in its own words.
    """
    if not body:
        raise BadRequest("the body is empty; send a JSON object, {} for no arguments")
    if len(body) > _WEIGHED and _is_crowded(body):
        raise BadRequest(f"the body has more than {_WEIGHED:,} bytes outside of its strings")
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise BadRequest("the body is not UTF-8") from None
    if text.startswith("\ufeff"):
        raise BadRequest("the body begins with a byte order mark")
    try:
        found = _DECODER.decode(text)
    except RecursionError:
        raise _too_deep() from None
    except ValueError:
        raise BadRequest("the body is not JSON") from None
    if not isinstance(found, dict):
        raise BadRequest("the body is not a JSON object")
    _check_depth(found)
    return found


def _too_deep() -> BadRequest:
    return BadRequest(f"the body has more than {_DEPTH} levels")


def _check_depth(found: dict[str, Any]) -> None:
    level: list[Any] = [value for value in found.values() if isinstance(value, (dict, list))]
    depth = 1
    while level:
        depth += 1
        if depth > _DEPTH:
            raise _too_deep()
        inner = [value for outer in level for value in (outer.values() if isinstance(outer, dict) else outer)]
        level = [value for value in inner if isinstance(value, (dict, list))]
