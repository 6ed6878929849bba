"""Make one delivery, from the connection to the verdict, within one deadline.

Each delivery has a connection of its own. At this level of the HTTP stack nothing follows a redirect, reads a proxy
from the environment or unpacks a body; the status decides, and nothing that the receiver says beyond it is kept.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from collections.abc import Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Literal

import httpcore2

from .network import Connector, NotFound, Refused
from .payload import Delivery

RETRIED = frozenset({408, 425, 429})
RETRY_AFTER_MOST_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class Limits:
    """How long and how much one delivery may take, in seconds and bytes."""

    total_seconds: float = 30.0
    connect_seconds: float = 5.0
    silence_seconds: float = 10.0
    drain_seconds: float = 2.0
    body_bytes: int = 65_536
    received_bytes: int = 262_144


@dataclass(frozen=True, slots=True)
class Verdict:
    """How an attempt ended.

    ``text`` is the ``result_ref`` of a completed one and the reason of any other. ``floor_seconds`` is the wait the
    receiver asked for. ``alive`` says whether the host answered, whatever it said: False counts against it, None says
    nothing.
    """

    outcome: Literal["completed", "failed", "retry"]
    text: str
    floor_seconds: float = 0.0
    alive: bool | None = None


class Stale(Exception):
    """The lease was over before the next byte was sent."""


class TooMuch(Exception):
    """The receiver sends more than is read."""


async def deliver(
    delivery: Delivery,
    headers: Iterable[tuple[str, str]],
    connector: Connector,
    tls: ssl.SSLContext,
    limits: Limits,
    may_send: Callable[[], bool],
) -> Verdict:
    """Send a delivery with further headers and judge the answer; ``may_send`` is asked before bytes leave.

    Raises nothing but what cancels it.
    """
    network = _Watched(connector, may_send, limits.received_bytes)
    request = _request(delivery, headers, limits)
    connection = httpcore2.AsyncHTTPConnection(request.url.origin, ssl_context=tls, network_backend=network)
    try:
        async with asyncio.timeout(limits.total_seconds):
            response = await connection.handle_async_request(request)
        # Outside the deadline: an answer that came in time counts, however its body goes on.
        await _drain(response, limits)
        return judge(response.status, response.headers)
    except Exception as error:
        return _explain(error, limits)
    finally:
        await network.aclose()


def judge(status: int, headers: Iterable[tuple[bytes, bytes]]) -> Verdict:
    """Say what a status means for the job."""
    text = f"http:{status}"
    if 200 <= status < 300:
        return Verdict("completed", text, alive=True)
    if status in RETRIED or 500 <= status < 600:
        return Verdict("retry", text, retry_after(headers), alive=True)
    return Verdict("failed", text, alive=True)


def retry_after(headers: Iterable[tuple[bytes, bytes]]) -> float:
    """Read how many seconds the receiver asks to wait, at most an hour; what cannot be read asks for none."""
    value = next((value.decode("latin-1").strip() for name, value in headers if name.lower() == b"retry-after"), "")
    if re.fullmatch("[0-9]+", value):
        # Python refuses to read thousands of digits.
        return min(float(value[:20]), RETRY_AFTER_MOST_SECONDS)
    try:
        seconds = parsedate_to_datetime(value).timestamp() - time.time()
    except (ValueError, OverflowError, OSError):
        return 0.0
    return min(max(seconds, 0.0), RETRY_AFTER_MOST_SECONDS)


def _request(delivery: Delivery, headers: Iterable[tuple[str, str]], limits: Limits) -> httpcore2.Request:
    origin = delivery.origin
    return httpcore2.Request(
        delivery.method,
        httpcore2.URL(scheme=origin.scheme, host=origin.host, port=origin.port, target=delivery.target),
        headers=[
            ("Host", origin.authority),
            *delivery.headers,
            *headers,
            ("Content-Length", str(len(delivery.body))),
            ("Connection", "close"),
        ],
        content=delivery.body,
        extensions={
            "timeout": {
                "connect": limits.connect_seconds,
                "read": limits.silence_seconds,
                "write": limits.silence_seconds,
            }
        },
    )


async def _drain(response: httpcore2.Response, limits: Limits) -> None:
    """Take a small body, so that an ordinary receiver can finish its answer; whatever happens, the status stands."""
    left = limits.body_bytes
    try:
        async with asyncio.timeout(limits.drain_seconds), aclosing(response.aiter_stream()) as chunks:
            async for chunk in chunks:
                left -= len(chunk)
                if left < 0:
                    return
    except Exception:
        return


def _explain(error: Exception, limits: Limits) -> Verdict:
    """Name what went wrong without an answer. The words of other libraries may name addresses and are left out."""
    match error:
        case Refused():
            return Verdict("failed", f"refused: {error}")
        case Stale():
            return Verdict("retry", "lease: it was over before the delivery was sent")
        case NotFound():
            return Verdict("retry", f"network: {error}", alive=False)
        case httpcore2.LocalProtocolError():
            return Verdict("failed", "payload: it makes no valid HTTP request")
        case TooMuch():
            return Verdict("retry", f"network: no answer within {limits.received_bytes} bytes", alive=False)
        case TimeoutError():
            return Verdict("retry", f"timeout: no answer within {limits.total_seconds:g} s", alive=False)
        case httpcore2.ConnectTimeout():
            return Verdict("retry", f"timeout: no connection within {limits.connect_seconds:g} s", alive=False)
        case httpcore2.TimeoutException():
            return Verdict("retry", f"timeout: silent for {limits.silence_seconds:g} s", alive=False)
        case httpcore2.RemoteProtocolError():
            return Verdict("retry", "network: the answer is not HTTP, or ended early", alive=False)
        case httpcore2.ConnectError() if _caused_by(error, ssl.SSLCertVerificationError):
            return Verdict("retry", "network: the certificate is not trusted", alive=False)
        case httpcore2.ConnectError():
            return Verdict("retry", "network: no connection", alive=False)
        case httpcore2.NetworkError() | OSError():
            return Verdict("retry", "network: the connection broke", alive=False)
    raise error


def _caused_by(error: BaseException | None, kind: type[BaseException]) -> bool:
    while error is not None and not isinstance(error, kind):
        error = error.__cause__ or error.__context__
    return error is not None


class _Watched(httpcore2.AsyncNetworkBackend):
    """A connection that sends only while it may, and takes no more than it is told to."""

    def __init__(self, connector: Connector, may_send: Callable[[], bool], most_bytes: int) -> None:
        self._connector, self._may_send, self._most_bytes = connector, may_send, most_bytes
        self._opened: httpcore2.AsyncNetworkStream | None = None

    async def connect_tcp(self, *args: Any, **kwargs: Any) -> httpcore2.AsyncNetworkStream:
        self._opened = await self._connector.connect_tcp(*args, **kwargs)
        return _WatchedStream(self._opened, self._may_send, self._most_bytes)

    async def aclose(self) -> None:
        """Close what was opened, however far it got: a cancelled TLS handshake closes nothing itself."""
        if self._opened is not None:
            await self._opened.aclose()


class _WatchedStream(httpcore2.AsyncNetworkStream):
    PIECE_BYTES = 65_536

    def __init__(self, stream: httpcore2.AsyncNetworkStream, may_send: Callable[[], bool], left: int) -> None:
        self._stream, self._may_send, self._left = stream, may_send, left

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if self._left <= 0:
            raise TooMuch
        data = await self._stream.read(min(max_bytes, self._left), timeout)
        self._left -= len(data)
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        # Asked again for every piece: a process can be stopped at any of them, for longer than its lease.
        for start in range(0, len(buffer), self.PIECE_BYTES):
            if not self._may_send():
                raise Stale
            await self._stream.write(buffer[start : start + self.PIECE_BYTES], timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.AsyncNetworkStream:
        inner = await self._stream.start_tls(ssl_context, server_hostname, timeout)
        return _WatchedStream(inner, self._may_send, self._left)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
