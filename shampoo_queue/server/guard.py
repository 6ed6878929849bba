"""What stands before every route: who may ask at all, how much at once, and what becomes of a defect."""

from __future__ import annotations

import asyncio
import ipaddress
import itertools
import logging
import re
import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starlette.exceptions import HTTPException

from ..errors import BadRequest, Denied, MethodNotAllowed, NotFound, Refusal, TooLarge, Unavailable
from ..trace import continued
from . import answers
from .answers import App, ClientGone, Header, Message, Passage, Receive, Scope, Send
from .rest import CALLS, ToolCalls
from .visitor import internal

if TYPE_CHECKING:
    from .desk import Desk

log = logging.getLogger("shampoo_queue.server")
access = logging.getLogger("shampoo_queue.server.access")

HEADERS_LIMIT = 32 * 1024  # bytes of all headers
HEADERS_COUNT = 100
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
PROBES = frozenset(("/livez", "/readyz"))
# These routes read their body in an order of their own: a bad token is refused before a large body.
OWN_LIMIT = (CALLS, "/mcp")

_SANE_ID = re.compile(rb"[A-Za-z0-9._:/+=@~-]{1,128}")
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^:\[\]/@\s]+)(?::[0-9]{1,5})?")
_WITHOUT_PORT = re.compile(r"^(?:([0-9.]+)|\[([0-9a-fA-F:.]+)\])(?::[0-9]{1,5})?$")
_HIDDEN = re.compile(r"[^ -~]")


@dataclass(frozen=True)
class Rules:
    """What an operator allows."""

    hosts: Iterable[str] = ()
    origins: Iterable[str] = ()
    behind_proxy: bool = False
    concurrency: int = 1_000
    open_metrics: bool = False
    challenge: bytes = b"Bearer"


class Guard:
    """One piece of pure ASGI before the app: Host, Origin, limits, drain, request ids, the access log, defects."""

    def __init__(self, app: App, desk: Desk, rules: Rules | None = None) -> None:
        self.rules = rules or Rules()
        self.leaving = asyncio.Event()
        self.open = 0  # requests that came in and are not answered yet; probes do not count
        self._app = app
        self._calls = _calls(app)
        self._desk = desk
        self._hosts = {name.lower() for name in (*LOOPBACK, *self.rules.hosts)}
        self._known: set[str] = set()  # as they were sent, with their ports
        self._origins = {origin.lower().rstrip("/") for origin in self.rules.origins}
        self._running = 0  # of those, the ones that do not wait for their client
        self._prefix, self._numbers = secrets.token_hex(4), itertools.count(1)

    def leave(self) -> None:
        """Take no new work from now on, and let no call wait any longer."""
        self._desk.draining = True
        self.leaving.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        if scope["type"] != "http":
            return await send({"type": "websocket.close", "code": 1008})
        began = time.perf_counter()
        given = _Given(scope["headers"])
        passage = Passage(self._request_id(given.request_id), self._address(scope, given), self.leaving)
        passage.cycle = getattr(receive, "__self__", None)
        scope["shampoo"], scope["app"] = passage, self
        if self.rules.behind_proxy:
            scope["scheme"] = "http" if given.proto == b"http" else "https"
        probe = scope["path"] in PROBES
        self.open += not probe
        self._running += 1
        sending = _Sending(passage, send, self._beside(given), self.rules.challenge)
        try:
            await self._guarded(scope, receive, sending, given, probe)
        except ClientGone:
            passage.status = passage.status or 499
        finally:
            self.open -= not probe
            self._running -= 1
            if access.isEnabledFor(logging.INFO):
                _log(scope, passage, time.perf_counter() - began)

    async def _guarded(self, scope: Scope, receive: Receive, sending: _Sending, given: _Given, probe: bool) -> None:
        try:
            if refusal := self._refusal(scope, given, probe):
                return await self._refuse(sending, refusal)
            if scope["method"] == "OPTIONS" and given.preflight and given.origin:
                return await _preflight(sending)
            with continued(scope["headers"]):
                await self._door(scope["path"])(scope, self._counted(receive, scope["path"]), sending.send)
        except ClientGone:
            raise
        except asyncio.CancelledError:
            if not self.leaving.is_set() or sending.passage.status:
                raise
            # Its time is over, and nobody else answers in the doors' own form.
            await self._refuse(sending, Unavailable("this server went down; the call may have been carried out"))
        except Refusal as refusal:
            await self._refuse(sending, refusal)
        except HTTPException as error:
            await self._refuse(sending, *_translated(error))
        except Exception as error:
            await self._refuse(sending, internal("a request", error, sending.passage.request_id))

    def _door(self, path: str) -> App:
        """Give who answers: the calls of tools are worth the way past the router, which tries route by route."""
        if self._calls and path.startswith(CALLS) and "/" not in path[len(CALLS) :] and len(path) > len(CALLS):
            return self._calls
        return self._app

    async def _refuse(self, sending: _Sending, refusal: Refusal, headers: Sequence[Header] = ()) -> None:
        if sending.passage.status:
            raise ClientGone  # half an answer is out: the server below closes the connection
        await answers.refuse(sending.send, refusal, headers)

    def _refusal(self, scope: Scope, given: _Given, probe: bool) -> Refusal | None:
        """Give the reason to refuse a request before it goes anywhere."""
        if given.size > HEADERS_LIMIT or given.count > HEADERS_COUNT:
            return BadRequest(f"the headers are more than {HEADERS_COUNT}, or larger than {HEADERS_LIMIT:,} bytes")
        if given.coding not in (b"", b"chunked"):
            return BadRequest("a body is sent as it is, or chunked")
        if probe:
            return None
        if not self._knows_host(scope, given.host):
            return BadRequest("this host is not served here; an operator can allow it with --allow-host")
        if given.origin and not self._knows_origin(given):
            return Denied("this origin is not allowed; an operator can allow it with --allow-origin")
        if self.leaving.is_set():
            return Unavailable("this server is going down")
        if self._running > self.rules.concurrency:
            return Unavailable("too many calls at once")
        if given.length > answers.BODY_LIMIT and not scope["path"].startswith(OWN_LIMIT):
            return TooLarge(f"a body has at most {answers.BODY_LIMIT:,} bytes")
        return None

    def _knows_host(self, scope: Scope, host: str) -> bool:
        if host in self._known:
            return True
        found = _HOST.fullmatch(host)
        if found is None:
            return False
        if found[1] in self._hosts and len(self._known) < 100:
            self._known.add(host)
        # The very address at which the connection arrived cannot be another site's name.
        local = (scope.get("server") or ("", 0))[0]
        return found[1] in self._hosts or "*" in self._hosts or (bool(local) and found[1].strip("[]") == local)

    def _knows_origin(self, given: _Given) -> bool:
        if given.origin == "null" and given.site == "same-origin":
            return True  # a browser keeps the origin of a page that sends no referrer to itself, but tells this
        return given.origin in self._origins or given.origin.partition("://")[2] == given.host

    def _beside(self, given: _Given) -> list[Header]:
        """Give the headers that let a page of an allowed origin read the answer."""
        if not given.origin or given.origin not in self._origins:
            return []
        exposed = b"Shampoo-Fence, Idempotency-Replayed, Preference-Applied, X-Request-Id, Retry-After"
        return [
            (b"access-control-allow-origin", given.origin.encode("latin-1")),
            (b"access-control-expose-headers", exposed),
            (b"vary", b"Origin"),
        ]

    def _request_id(self, given: bytes | None) -> str:
        if given and _SANE_ID.fullmatch(given) and b"shp_" not in given:
            return given.decode()
        return f"{self._prefix}-{next(self._numbers):x}"

    def _address(self, scope: Scope, given: _Given) -> str:
        """Give the address that the request came from: the peer's, or the one that our own proxy saw."""
        if self.rules.behind_proxy and given.forwarded:
            last = given.forwarded.rpartition(b",")[2].strip().decode("latin-1")
            for spelled in (last, _WITHOUT_PORT.sub(r"\1\2", last)):
                try:
                    return str(ipaddress.ip_address(spelled))
                except ValueError:
                    continue
        return str((scope.get("client") or ("",))[0])

    def _counted(self, receive: Receive, path: str) -> Receive:
        """Count a request that waits for its client as not running, and bound the body where the route does not."""
        left, bounded = answers.BODY_LIMIT, not path.startswith(OWN_LIMIT)

        async def counted() -> Message:
            nonlocal left
            self._running -= 1
            try:
                message = await receive()
            finally:
                self._running += 1
            if bounded:
                left -= len(message.get("body", b""))
                if left < 0:
                    raise TooLarge(f"a body has at most {answers.BODY_LIMIT:,} bytes")
            return message

        return counted


class _Given:
    """What the guard reads of a request's headers, in one pass."""

    __slots__ = (
        "coding",
        "count",
        "forwarded",
        "host",
        "length",
        "origin",
        "preflight",
        "proto",
        "request_id",
        "site",
        "size",
    )

    def __init__(self, headers: list[Header]) -> None:
        self.count, self.size, self.length = len(headers), 0, 0
        self.host, self.origin, self.site, self.preflight = "", "", "", False
        self.request_id: bytes | None = None
        self.forwarded: bytes | None = None
        self.proto, self.coding = b"", b""
        hosts = 0
        for name, value in headers:
            self.size += len(name) + len(value)
            if name == b"host":
                hosts += 1
                self.host = value.decode("latin-1").lower() if hosts == 1 else ""
            elif name == b"origin":
                self.origin = value.decode("latin-1").lower()
            elif name == b"sec-fetch-site":
                self.site = value.decode("latin-1").lower()
            elif name == b"x-request-id":
                self.request_id = value
            elif name == b"transfer-encoding":
                self.coding = (self.coding + b"," + value if self.coding else value).strip().lower()
            elif name == b"x-forwarded-proto":
                self.proto = value.rpartition(b",")[2].strip().lower()
            elif name == b"x-forwarded-for":
                self.forwarded = value
            elif name == b"content-length":
                self.length = answers.content_length(value) or 0
            elif name == b"access-control-request-method":
                self.preflight = True


class _Sending:
    """Mark every answer with the request's id, and note its status."""

    __slots__ = ("_challenge", "_send", "headers", "passage")

    def __init__(self, passage: Passage, send: Send, headers: list[Header], challenge: bytes) -> None:
        self.passage, self._send, self._challenge = passage, send, challenge
        self.headers = [(b"x-request-id", passage.request_id.encode()), *headers]

    def send(self, message: Message) -> Any:
        if message["type"] == "http.response.start":
            self.passage.status = message["status"]
            message["headers"] = [*message.get("headers", ()), *self.headers]
            if message["status"] == 401:
                others = [header for header in message["headers"] if header[0] != b"www-authenticate"]
                message["headers"] = [*others, (b"www-authenticate", self._challenge)]
        return self._send(message)


def _calls(app: App) -> App | None:
    """Find who answers the calls of tools among an app's routes."""
    endpoints = (getattr(route, "endpoint", None) for route in getattr(app, "routes", ()))
    return next((endpoint for endpoint in endpoints if isinstance(endpoint, ToolCalls)), None)


async def _preflight(sending: _Sending) -> None:
    allowed = b"Authorization, Content-Type, Idempotency-Key, Shampoo-Fence, Shampoo-Holder, Prefer, X-Request-Id"
    headers = [
        (b"access-control-allow-methods", b"GET, POST"),
        (b"access-control-allow-headers", allowed),
        (b"access-control-max-age", b"600"),
    ]
    await sending.send({"type": "http.response.start", "status": 204, "headers": headers})
    await sending.send({"type": "http.response.body", "body": b""})


def _translated(error: HTTPException) -> tuple[Refusal, list[Header]]:
    """Give a framework's refusal the words of the doors."""
    if error.status_code == 405:
        allowed = sorted(dict(error.headers or {}).get("Allow", "").split(", "))
        return MethodNotAllowed(), [(b"allow", ", ".join(allowed).encode())]
    kinds = {kind.http_status: kind for kind in (BadRequest, Denied, NotFound, TooLarge)}
    return kinds.get(error.status_code, BadRequest)(), []


def _log(scope: Scope, passage: Passage, seconds: float) -> None:
    """Write one line of the access log: never a header, a query or a token."""
    path = _HIDDEN.sub("?", answers.hidden(scope["path"]))[:200]
    access.info(
        "%s %s %s %d %.1fms id=%s token=%s",
        passage.address or "-",
        scope["method"],
        path,
        passage.status,
        seconds * 1000,
        passage.request_id,
        passage.token_id or "-",
    )
