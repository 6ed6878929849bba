"""``shampoo mcp --remote URL``: a visitor whose calls go to a remote ``shampoo serve``; no Redis is needed here.

A call keeps one request id through all its attempts: a lost answer can neither create, claim nor move twice.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import random
import re
import ssl
from typing import Any
from urllib.parse import urlsplit

import httpx2

from .. import contract, extensions
from ..clock import now
from ..contract import Meta, Tool, safe_name
from ..errors import (
    DOOR_ERRORS,
    REFUSALS,
    ConfigurationError,
    Internal,
    InvalidArgument,
    Refusal,
    Unavailable,
    UnknownTool,
)
from ..tools import Answer, RequestIds, check_fence, check_holder, check_request_id, own_holder

KNOWN: dict[str, Tool] = {tool.name: tool for tool in (*contract.TOOLS, *extensions.EXTENSIONS)}

# Seconds. A server remembers the request ids made here for 60, and the last attempt must come before that.
RETRY_SECONDS = 45.0
_CONNECT, _READ = 10.0, 15.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0

# Whoever answers with these may answer otherwise a little later, under the same request id.
_PASSING = (429, 502, 503, 504)
_TOKEN = re.compile("[!-~]{1,8192}")
_CONTROL = re.compile("[\x00-\x1f\x7f]")


class Remote:
    """A remote server, and the token with which it is visited. Open it with ``async with``.

    Raises `ConfigurationError` for a URL that is none or that would send the token in clear.
    """

    offered: tuple[Tool, ...] = ()

    def __init__(self, url: str, token: str, *, allow_http: bool = False, retry_seconds: float = RETRY_SECONDS) -> None:
        if not _TOKEN.fullmatch(token):
            raise ConfigurationError("SHAMPOO_TOKEN holds no token")
        base = _checked(url, allow_http)
        self._retry_seconds = retry_seconds
        self._ids = RequestIds()
        self._http = httpx2.AsyncClient(
            base_url=base,
            headers={"authorization": f"Bearer {token}", "accept": "application/json"},
            timeout=httpx2.Timeout(_READ, connect=_CONNECT),
            # A proxy of the environment would see a token that is sent in clear.
            trust_env=base.startswith("https:"),
        )

    async def __aenter__(self) -> Remote:
        try:
            _, body, _ = await self._answered("GET", "v1/tools")
            self.offered = _offered(body)
        except BaseException:
            await self._http.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def prove(self) -> None:
        """Raise `Unauthenticated` unless the token is live now, and `Denied` unless it is for tools."""
        await self._call("lane_list", {"limit": 1}, {})

    async def call(
        self,
        tool: str,
        arguments: Any,
        *,
        request_id: Any = None,
        fence: Any = None,
        holder: Any = None,
        door: str,
    ) -> Answer:
        """Call a tool of the remote server; raises what that server refuses with, or `Unavailable`."""
        if tool not in KNOWN:
            await self.prove()
            raise UnknownTool(f"there is no tool {safe_name(tool)}")
        taken = self._ids.take() if request_id is None else None
        known_as = taken.request_id if taken else request_id
        try:
            answer = await self._call(tool, arguments, await self._beside(arguments, known_as, fence, holder))
        except Refusal as refusal:
            if taken and not refusal.outcome_unknown:
                taken.give_back()
            refusal.request_id = known_as if isinstance(known_as, str) else None
            raise
        if taken:
            taken.give_back()
        answer.meta = Meta(known_as, answer.meta.fence, answer.meta.replayed)
        return answer

    async def _beside(self, arguments: Any, *facts: Any) -> dict[str, bytes]:
        try:
            return _headers(arguments, *facts)
        except InvalidArgument:
            await self.prove()  # a bad token is refused before anything else
            raise

    async def _call(self, tool: str, arguments: dict[str, Any], headers: dict[str, bytes]) -> Answer:
        # ASCII alone: a lone surrogate travels as an escape, and is refused in the contract's words.
        content = json.dumps(arguments).encode()
        headers = {"content-type": b"application/json", **headers}
        status, body, beside = await self._answered("POST", f"v1/tools/{tool}", content=content, headers=headers)
        if status != 200:
            raise _refusal(status, body)
        answer = Answer(body)
        fence = beside.get("shampoo-fence", "")
        answer.meta = Meta(
            fence=int(fence) if fence.isascii() and fence.isdigit() else None,
            replayed=beside.get("idempotency-replayed") == "true",
        )
        return answer

    async def _answered(self, method: str, path: str, **request: Any) -> tuple[int, dict[str, Any], Any]:
        """Ask until there is an answer that stands, or the time is up; then raise `Unavailable`."""
        until, pause, lost = now() + self._retry_seconds, _FIRST_PAUSE, False
        while True:
            try:
                response = await self._http.request(method, path, **request)
            except httpx2.TransportError as error:
                lost = lost or not isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout)
                failure: Refusal = Unavailable(_reason(error), outcome_unknown=lost)
                wait = pause
                if _is_lasting(error):
                    raise failure from None
            else:
                body = _body(response)
                if response.status_code not in _PASSING and body is not None:
                    return response.status_code, body, response.headers
                lost = lost or response.status_code >= 500  # it may not have heard itself what became of the call
                failure = _refusal(response.status_code, body or {})
                failure.outcome_unknown = lost
                if response.status_code not in _PASSING:
                    raise failure
                wait = max(pause, _retry_after(response))
            wait *= random.uniform(0.8, 1.2)
            if now() + wait >= until:
                raise failure from None
            await asyncio.sleep(wait)
            pause = min(pause * 2, _LONGEST_PAUSE)


def _headers(arguments: Any, request_id: Any, fence: Any, holder: Any) -> dict[str, bytes]:
    """Spell what stands beside the arguments; raise `InvalidArgument` for what no header or body can carry."""
    if not isinstance(arguments, dict):
        raise InvalidArgument("arguments must be an object")
    headers = {"idempotency-key": check_request_id(request_id).encode()}
    if spelled := check_fence(fence):
        headers["shampoo-fence"] = spelled.encode()
    named = own_holder() if holder is None else check_holder(holder)
    if _CONTROL.search(named):
        raise InvalidArgument("holder must not hold control characters")
    return headers | {"shampoo-holder": named.encode()}


def _checked(url: str, allow_http: bool) -> str:
    """Give the base URL, with a slash at its end."""
    try:
        parts = urlsplit(url)
        host, _port = parts.hostname, parts.port
    except ValueError:
        raise ConfigurationError("--remote is no URL") from None
    if parts.scheme not in ("http", "https") or not host:
        raise ConfigurationError("--remote wants a URL like https://queue.example")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ConfigurationError("--remote wants a plain URL; the token belongs in SHAMPOO_TOKEN")
    if parts.scheme == "http" and not allow_http and not _is_loopback(host):
        raise ConfigurationError("plain http would show the token to the network: use https, or --allow-http")
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}/"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _body(response: httpx2.Response) -> dict[str, Any] | None:
    """Read a JSON object; None for anything else, which then comes from somebody in between."""
    try:
        found = json.loads(response.content)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _retry_after(response: httpx2.Response) -> float:
    text = response.headers.get("retry-after", "")
    return float(text) if re.fullmatch("[0-9]{1,4}", text) else 0.0


def _refusal(status: int, body: dict[str, Any]) -> Refusal:
    """Give the refusal that a remote server spelled, in its own words."""
    error = body.get("error")
    error = error if isinstance(error, dict) else {}
    kind = (REFUSALS | DOOR_ERRORS).get(str(error.get("code")))
    if kind is None:
        return (
            Internal() if status == 500 and error else Unavailable(f"the remote server answered with status {status}")
        )
    refusal = kind()
    refusal.message = str(error.get("message"))
    refusal.args = (refusal.message,)
    return refusal


def _offered(body: dict[str, Any]) -> tuple[Tool, ...]:
    """Give the tools that a remote server lists and this version knows."""
    listed = body.get("tools")
    names = [entry.get("name") for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    if "job_claim" not in names:
        raise ConfigurationError("there is no shampoo serve behind --remote")
    return tuple(KNOWN[name] for name in names if name in KNOWN)


def _is_lasting(error: httpx2.TransportError) -> bool:
    """Tell whether trying again cannot help."""
    if isinstance(error, httpx2.UnsupportedProtocol | httpx2.LocalProtocolError):
        return True
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def _reason(error: httpx2.TransportError) -> str:
    """Say why there was no answer; the library's own text may hold the URL and more."""
    if _is_lasting(error):
        return "the certificate of the remote server cannot be verified"
    kind = re.sub("(?<=[a-z])(?=[A-Z])", " ", type(error).__name__).lower()
    return f"no answer from the remote server ({kind})"
