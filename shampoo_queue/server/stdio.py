"""``shampoo mcp``: the MCP door for one principal, over standard input and output."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, BinaryIO

import anyio
import anyio.to_thread
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server.lowlevel import Server
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp_types import INVALID_REQUEST

from ..tools import own_holder
from .answers import BODY_LIMIT
from .bridge import Remote
from .desk import Desk
from .jsonrpc import Malformed, encode, is_answer, is_request, read
from .mcp import Call, Visits, build, quiet_sdk

# Seconds that calls under way get when the client closes its end.
_LAST_ANSWERS = 10.0


async def over_redis(
    target: str,
    *,
    token: str | None = None,
    client_id: str = "",
    profile: str = "",
    extensions: bool = False,
    holder: str | None = None,
) -> None:
    """Serve with direct access to Redis: as the principal of a token, or as one that is taken at its word.

    Raises `Unauthenticated` when there is no such principal, `Unavailable` or `EngineError` when Redis does not serve.
    """
    async with Desk(target, extensions=extensions) as desk:
        visitor = desk.local(client_id, profile) if token is None else await desk.admit(token)
        await visitor.prove()
        await serve(build(desk.offered), visitor, own_holder() if holder is None else holder)


async def over_http(url: str, token: str, *, allow_http: bool = False, holder: str | None = None) -> None:
    """Serve what a remote ``shampoo serve`` offers; raises its refusal of the token, or `Unavailable`."""
    async with Remote(url, token, allow_http=allow_http) as remote:
        await remote.prove()
        await serve(build(remote.offered), remote, holder)


async def serve(server: Server[Any], visitor: Visits, holder: str | None = None) -> None:
    """Answer one client on standard input and output until it closes its end; ``holder`` is who calls unless it says.

    SIGINT and SIGTERM leave the process at once with 128 and the signal's number: a reader blocked on standard input
    could not be woken, and there is nothing to clean up, as leases live in Redis.
    """
    quiet_sdk()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_leave_on_signals)
        async with _Wire(visitor, holder).streams() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())
        tasks.cancel_scope.cancel()


async def _leave_on_signals() -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for number in signals:
            os._exit(128 + number)


class _Wire:
    """Standard input and output as the SDK's streams of messages.

    The SDK has such streams too, but they parse each line with a parser that refuses lone surrogates and ends calls
    under way when the input ends: whoever pipes its requests in would get no answers.
    """

    def __init__(self, visitor: Visits, holder: str | None) -> None:
        self._visitor = visitor
        self._beside = {} if holder is None else {"holder": holder}
        self._unanswered = 0
        self._settled = anyio.Event()
        self._input, self._output = _own_streams()

    @asynccontextmanager
    async def streams(self) -> AsyncIterator[tuple[Any, Any]]:
        """Run the two pumps; give what the SDK reads from and writes to."""
        to_server, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        outgoing, from_server = anyio.create_memory_object_stream[SessionMessage](0)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._read, to_server)
            tasks.start_soon(self._write, from_server)
            yield incoming, outgoing

    async def _read(self, to_server: MemoryObjectSendStream[SessionMessage | Exception]) -> None:
        async with to_server:
            while line := await anyio.to_thread.run_sync(self._line, abandon_on_cancel=True):
                try:
                    message = self._message(line)
                except Malformed as malformed:
                    await self._send(encode(malformed.body()))
                    continue
                if message is not None:
                    self._unanswered += is_request(message.message)
                    await to_server.send(message)
            await self._last_answers()

    def _line(self) -> bytes:
        """Read one line; of one that is too long, what makes it too long. Empty at the end of the input."""
        line = self._input.readline(BODY_LIMIT + 2)
        rest = line
        while len(rest) == BODY_LIMIT + 2 and not rest.endswith(b"\n"):
            rest = self._input.readline(BODY_LIMIT + 2)
        return line

    def _message(self, line: bytes) -> SessionMessage | None:
        if len(line) > BODY_LIMIT + 1:
            raise Malformed(INVALID_REQUEST, f"a message has at most {BODY_LIMIT:,} bytes")
        if not line.strip():
            return None
        found = read(line)
        call = Call(self._visitor, found.arguments, {**self._beside, **found.beside})
        # A call that its client cancels is never answered.
        beside = ServerMessageMetadata(request_context=call, on_request_unanswered=self._settle)
        return SessionMessage(found.message, beside)

    async def _write(self, from_server: MemoryObjectReceiveStream[SessionMessage]) -> None:
        async with from_server:
            async for sent in from_server:
                body = sent.message.model_dump_json(by_alias=True, exclude_unset=True)
                await self._send(body.encode())
                if is_answer(sent.message):
                    await self._settle()

    async def _settle(self) -> None:
        self._unanswered -= 1
        self._settled.set()

    async def _send(self, body: bytes) -> None:
        await anyio.to_thread.run_sync(self._put, body + b"\n")

    def _put(self, line: bytes) -> None:
        try:
            self._output.write(line)
            self._output.flush()
        except BrokenPipeError:
            os._exit(0)  # nobody is left to answer

    async def _last_answers(self) -> None:
        with anyio.move_on_after(_LAST_ANSWERS):
            while self._unanswered > 0:
                self._settled = anyio.Event()
                await self._settled.wait()


def _own_streams() -> tuple[BinaryIO, BinaryIO]:
    """Take standard input and output for the protocol alone; what prints by mistake goes to standard error."""
    sys.stdout.flush()
    given = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return given
