"""What uvicorn does with the bytes of a connection, made to speak the doors' words and to bound what it reads."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from ..errors import BadRequest
from . import answers

_FRAMING = (b"content-length", b"transfer-encoding")
_MOST_IN_HEAD = 512 * 1024  # bytes
_MOST_IN_REQUEST = 64 * 1024 * 1024  # bytes; chunks of one byte take six


class _InOurWords(asyncio.Protocol):
    """Answer what is no HTTP in the doors' own form, and keep no log that shows queries."""

    transport: asyncio.Transport
    cycle: Any

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.access_log = False  # whatever handlers a program has set up: the guard's own log hides what is secret
        super().connection_made(transport)

    def let_go(self) -> None:
        """Cut the connection; from now on nothing is written to it."""
        self.hang_up()
        self.transport.abort()

    def hang_up(self) -> None:
        """Let the request that is read or answered know that its client has gone."""
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    def send_400_response(self, _message: str) -> None:
        body = answers.error_body(BadRequest("this is no HTTP request"))
        head = (
            b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncache-control: no-store\r\n"
            b"x-content-type-options: nosniff\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
        )
        self.transport.write(head % len(body) + body)
        self.transport.close()

    def _unsupported_upgrade_warning(self) -> None:
        """Say nothing: whoever asks for an upgrade gets the plain answer."""


class Plain(_InOurWords, H11Protocol):
    """h11, which bounds a head by itself."""


def fast() -> Any:
    """Give the protocol over httptools, where that is installed."""
    import httptools
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    class Fast(_InOurWords, HttpToolsProtocol):
        """httptools, which bounds nothing: neither a head, nor what stands around the chunks of a body.

        Of requests that came in one go, uvicorn tells only the last that its client has gone.
        """

        _in_head, _taken, _muted = True, 0, False
        _answered: Any = None

        def _start_asgi_task(self, cycle: Any, app: Any) -> None:
            self._answered = cycle
            super()._start_asgi_task(cycle, app)

        def connection_lost(self, exc: Exception | None) -> None:
            self.hang_up()
            super().connection_lost(exc)

        def hang_up(self) -> None:
            super().hang_up()
            if self._answered is not None and not self._answered.response_complete:
                self._answered.disconnected = True
                self._answered.message_event.set()
            self.pipeline.clear()

        def on_message_begin(self) -> None:
            if not self._muted:
                self._in_head, self._taken = True, 0
                super().on_message_begin()

        def on_url(self, url: bytes) -> None:
            if not self._muted:
                super().on_url(url)

        def on_header(self, name: bytes, value: bytes) -> None:
            # What stands behind a body is no header: nobody in front has looked at it (RFC 9110, 6.5.1).
            if self._in_head and not self._muted:
                super().on_header(name, value)

        def on_headers_complete(self) -> None:
            if self._in_head:  # not at the end of the head that `_read_on` makes up
                self._in_head = False
                super().on_headers_complete()

        def on_message_complete(self) -> None:
            # The parser takes the body of whoever asks for an upgrade for another protocol; nobody gets one here.
            if not self.parser.should_upgrade():
                super().on_message_complete()

        def _read_on(self) -> None:
            """Read the body with a parser that has not heard of an upgrade."""
            framing = [(name, value) for name, value in self.headers if name in _FRAMING]
            self.parser, self._muted = httptools.HttpRequestParser(self), True
            self.parser.feed_data(b"POST / HTTP/1.1\r\n" + b"".join(b"%s: %s\r\n" % pair for pair in framing))
            self._muted = False  # from the end of the head on, as a request without a body ends with it
            self.parser.feed_data(b"\r\n")

        def data_received(self, data: bytes) -> None:
            self._unset_keepalive_if_required()
            rest = data
            while rest:
                try:
                    self.parser.feed_data(rest)
                    break
                except httptools.HttpParserUpgrade as upgrade:
                    rest = rest[upgrade.args[0] :]
                    self._read_on()
                except httptools.HttpParserError:
                    self.send_400_response("")
                    break
            self._taken += len(data)
            if self._taken > (_MOST_IN_HEAD if self._in_head else _MOST_IN_REQUEST):
                self.let_go()

    return Fast
