"""The MCP door: the contract's tools for agents, over streamable HTTP and standard input, in every protocol revision.

Nothing here decides anything: schemas and texts come from the contract, answers and refusals from the visitor.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import mcp_types as t
import orjson
from mcp.server.caching import CacheHint
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from starlette.requests import Request
from starlette.routing import Route

from .. import __version__
from ..contract import Tool
from ..errors import (
    Internal,
    InvalidArgument,
    MethodNotAllowed,
    Refusal,
    TooLarge,
    Unauthenticated,
    UnknownTool,
    UnsupportedMediaType,
)
from ..tools import Answer, check_request_id
from .advertise import INSTRUCTIONS, advertised
from .answers import (
    BODY_LIMIT,
    ClientGone,
    Message,
    Receive,
    Scope,
    Send,
    answer,
    content_length,
    credential,
    discard,
    passage,
    read_body,
    refuse,
)
from .jsonrpc import BESIDE, Malformed, Read, encode, read

if TYPE_CHECKING:
    from .desk import Desk

log = logging.getLogger("shampoo_queue.server")

_CALL = "shampoo.call"


class Visits(Protocol):
    """Who calls: a visitor of this process's desk, or of a remote server's."""

    async def prove(self) -> None: ...

    async def call(
        self,
        tool: str,
        arguments: Any,
        *,
        request_id: Any = None,
        fence: Any = None,
        holder: Any = None,
        door: str,
    ) -> Answer: ...


@dataclass(slots=True)
class Call:
    """One message on its way through the SDK: who sent it, and what the SDK does not see of it.

    ``heard`` says that the visitor answered, and so that the token was live; ``refused`` that it was not.
    """

    visitor: Visits
    arguments: Any = None
    beside: Mapping[str, Any] = field(default_factory=dict)
    heard: bool = False
    refused: Unauthenticated | None = None


# Tools ----------------------------------------------------------------------------------------------------------


def build(offered: Iterable[Tool], visitor: Visits | None = None) -> Server[Any]:
    """Make the SDK's server over some tools; ``visitor`` calls when a message brings no `Call` of its own."""
    tools = [advertised(tool) for tool in offered]

    async def on_list(_context: Any, _params: Any) -> t.ListToolsResult:
        return t.ListToolsResult(tools=tools)

    async def on_call(context: Any, params: t.CallToolRequestParams) -> t.CallToolResult:
        call = _call_of(context)
        if call is None:
            assert visitor is not None, "a server without a visitor is only called through a door"
            meta = (context.params or {}).get("_meta") or {}
            beside = {name: meta[key] for name, key in BESIDE.items() if key in meta}
            call = Call(visitor, params.arguments, beside)
        return await _called(call, params.name)

    return Server(
        "shampoo-queue",
        version=__version__,
        title="Shampoo queue",
        instructions=INSTRUCTIONS,
        cache_hints={"tools/list": CacheHint(ttl_ms=300_000, scope="public")},
        on_list_tools=on_list,
        on_call_tool=on_call,
        # Without this the SDK lists the tools again before each call, to look for arguments that headers repeat.
        get_tool_input_schema={tool.name: tool.input_schema for tool in tools}.get,
    )


def quiet_sdk() -> None:
    """Keep the SDK's log from showing tracebacks, and with them what agents sent: an answer tells what went wrong."""
    logging.getLogger("mcp").setLevel(logging.CRITICAL)


def _call_of(context: Any) -> Call | None:
    sent = context.request
    found: Call | None = sent.scope.get(_CALL) if isinstance(sent, Request) else sent
    return found


async def _called(call: Call, name: str) -> t.CallToolResult:
    """Carry out one call. Nothing escapes but the protocol error for an unknown tool: the SDK would show its text."""
    arguments = {} if call.arguments is None else call.arguments
    try:
        answered = await call.visitor.call(name, arguments, **call.beside, door="mcp")
    except UnknownTool as refusal:
        call.heard = True
        raise MCPError(code=t.INVALID_PARAMS, message=refusal.message) from None
    except Unauthenticated as refusal:
        call.heard, call.refused = True, refusal
        return _failed(refusal)
    except Refusal as refusal:
        call.heard = True
        return _failed(refusal)
    except Exception:
        log.exception("a call met a defect")
        return _failed(Internal())
    call.heard = True
    meta = answered.meta
    beside = {"request_id": meta.request_id, "fence": meta.fence, "replayed": meta.replayed or None}
    return t.CallToolResult(
        _meta=_shown(beside),
        content=[t.TextContent(text=orjson.dumps(answered).decode())],
        structured_content=dict(answered),
    )


def _failed(refusal: Refusal) -> t.CallToolResult:
    # No structured content: clients in wide use hold it against the schema of the result, and lose the refusal.
    body = {"error": {"code": refusal.code, "message": refusal.message}}
    return t.CallToolResult(
        _meta=_shown(
            {"request_id": _sane(refusal.request_id), "outcome_unknown": refusal.outcome_unknown or None},
        ),
        content=[t.TextContent(text=orjson.dumps(body).decode())],
        is_error=True,
    )


def _sane(request_id: str | None) -> str | None:
    """Leave out a request id that was refused: nothing is echoed but what the contract lets in."""
    try:
        return None if request_id is None else check_request_id(request_id)
    except InvalidArgument:
        return None


def _shown(beside: Mapping[str, Any]) -> dict[str, Any] | None:
    return {f"shampoo/{name}": value for name, value in beside.items() if value is not None} or None


# HTTP -----------------------------------------------------------------------------------------------------------


class Door:
    """``POST /mcp``: stateless, one JSON answer a request. Enter `lifespan` while the app runs."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._manager: StreamableHTTPSessionManager | None = None
        # The path with a slash would be answered by a redirect, which not every client follows.
        self.routes = [Route(path, self) for path in ("/mcp", "/mcp/")]

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Run what the SDK runs behind the routes; may be entered again after it was left."""
        quiet_sdk()
        # A manager serves one run only. Host and Origin are checked by the guard before every route.
        self._manager = StreamableHTTPSessionManager(
            build(self._desk.offered), stateless=True, json_response=True, max_request_body_size=2 * BODY_LIMIT
        )
        async with self._manager.run():
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            return await refuse(send, MethodNotAllowed(), [(b"allow", b"POST")])
        try:
            await self._serve(scope, receive, send)
        except ClientGone:
            pass  # nobody is left to answer
        except Malformed as malformed:
            await answer(send, orjson.dumps(malformed.body()), status=400)
        except TooLarge as refusal:
            if b"expect" not in dict(scope["headers"]):  # else the client has sent nothing yet
                await discard(receive)
            await refuse(send, refusal)
        except Refusal as refusal:
            await refuse(send, refusal)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Spaces around a value are not part of it, and not every parser below takes them off.
        pairs = [(name, value.strip(b" \t")) for name, value in scope["headers"]]
        here, headers = passage(scope), dict(pairs)
        shown = [value for name, value in pairs if name == b"authorization"]
        # Two of them are none: one reader could take the first and another the last.
        presented = credential(shown[0]) if len(shown) == 1 else None
        visitor = await self._desk.admit(presented, address=here.address)
        here.token_id = visitor.token_id
        try:
            message = await _message(headers, receive, visitor)
        except (Refusal, Malformed):
            await visitor.prove()
            raise
        call = Call(visitor, message.arguments, message.beside)
        if message.method != "tools/call":
            await visitor.prove()
            call.heard = True
        held: list[Message] = []
        assert self._manager is not None, "the app enters lifespan before it serves"
        inner = {**scope, "headers": pairs, _CALL: call}
        await self._manager.handle_request(inner, _again(message, receive), _into(held))
        # A call that the SDK refused has not been to the queue.
        if not call.heard:
            await visitor.prove()
        if call.refused is not None:
            raise call.refused
        for part in held:
            await send(part)


async def _message(headers: Mapping[bytes, bytes], receive: Receive, visitor: Visits) -> Read:
    kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if kind != b"application/json":
        raise UnsupportedMediaType("send application/json")
    if headers.get(b"content-encoding", b"identity").lower() != b"identity":
        raise UnsupportedMediaType("send the body without a content encoding")
    length = content_length(headers.get(b"content-length"))
    if length is not None and length > BODY_LIMIT:
        raise TooLarge(f"a body has at most {BODY_LIMIT:,} bytes")
    return read(await read_body(receive, prove=visitor.prove))


def _again(message: Read, receive: Receive) -> Receive:
    """Let the SDK receive what is left of a message; after that, what the client still sends."""
    body: list[Message] = [{"type": "http.request", "body": encode(message.body), "more_body": False}]

    async def again() -> Message:
        return body.pop() if body else await receive()

    return again


def _into(held: list[Message]) -> Send:
    async def hold(part: Message) -> None:
        held.append(part)

    return hold
