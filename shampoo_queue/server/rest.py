"""The tools over plain HTTP: ``POST /v1/tools/{tool}``, an arguments object in, the contract's result object out."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ..contract import limit
from ..errors import BadRequest, Denied, InvalidArgument, MethodNotAllowed, Refusal, TooLarge, UnsupportedMediaType
from ..tools import Answer
from . import answers, openapi
from .answers import ClientGone, Header, Receive, Scope, Send

if TYPE_CHECKING:
    from ..contract import Tool
    from .desk import Desk
    from .visitor import Visitor

CALLS = "/v1/tools/"
LONGEST_WAIT = 30  # seconds of `Prefer: wait=…`

_READ = frozenset(
    (
        b"authorization",
        b"content-encoding",
        b"content-length",
        b"content-type",
        b"expect",
        b"idempotency-key",
        b"prefer",
        b"shampoo-fence",
        b"shampoo-holder",
    )
)
_JSON = re.compile(rb'application/json\s*(;\s*charset\s*=\s*("utf-8"|utf-8)\s*)?;?', re.IGNORECASE)
_FENCE = re.compile(rb"-?[0-9]{1,18}")
_WAIT = re.compile(rb"wait\s*=\s*(?:\"([0-9]+)\"|([0-9]+))", re.IGNORECASE)


def routes(desk: Desk) -> list[Route]:
    """Give the routes of this door, the one that is called most first."""
    return [
        Route(CALLS + "{tool}", ToolCalls(desk)),
        Route("/v1/tools", _fixed(partial(_list, desk)), methods=["GET"]),
        Route("/v1/openapi.json", _fixed(lambda: openapi.document(desk.offered)), methods=["GET"]),
    ]


def _fixed(make: Any) -> Any:
    """Serve one document, made when it is first asked for."""
    made: list[bytes] = []

    async def endpoint(_request: Request) -> Response:
        if not made:
            made.append(orjson.dumps(make()))
        headers = {"cache-control": "no-cache", "x-content-type-options": "nosniff"}
        return Response(made[0], media_type="application/json", headers=headers)

    return endpoint


def _list(desk: Desk) -> dict[str, Any]:
    return {"tools": [_described(tool) for tool in desk.offered]}


def _described(tool: Tool) -> dict[str, Any]:
    takes, gives = openapi.schemas(tool)
    return {
        "name": tool.name,
        "access": tool.access,
        "description": f"{tool.summary}\n\n{tool.boundaries}\n\n{tool.lifecycle}",
        "inputSchema": takes,
        "outputSchema": gives,
        "refusals": list(tool.refusals),
    }


# A call ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Beside:
    """What a call carries beside its arguments."""

    request_id: str | None = None
    fence: int | None = None
    holder: str | None = None
    wait: int | None = None


class ToolCalls:
    """Call one tool. Written on bare ASGI, for this is the path that is worth its microseconds."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._names = {tool.name for tool in desk.offered}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            await answers.refuse(send, MethodNotAllowed(), [(b"allow", b"POST")])
            return
        try:
            answer, headers = await self._called(scope, receive)
        except Refusal as refusal:
            if isinstance(refusal, TooLarge) and b"expect" not in {name for name, _ in scope["headers"]}:
                await answers.discard(receive)
            await answers.refuse(send, refusal)
        else:
            await answers.answer(send, orjson.dumps(answer), headers)

    async def _called(self, scope: Scope, receive: Receive) -> tuple[Answer, list[Header]]:
        passage, tool = answers.passage(scope), scope["path"][len(CALLS) :]
        given, twice = _headers(scope["headers"])
        credential = None if b"authorization" in twice else answers.credential(given.get(b"authorization"))
        visitor = await self._desk.admit(credential, address=passage.address)
        passage.token_id = visitor.token_id
        if tool not in self._names:
            return await visitor.call(tool, {}, door="http"), []  # which refuses it, a bad token first
        try:
            beside = _beside(given, twice)
            arguments = answers.parse(await _body(given, receive, visitor))
        except Refusal as refusal:
            await visitor.prove()
            if not visitor.may("tools:read"):
                raise Denied from None
            raise refusal from None
        wait = beside.wait if tool == "job_claim" and self._desk.waiting < self._desk.most_waiting else None
        calling = visitor.call(
            tool,
            arguments,
            request_id=beside.request_id,
            fence=beside.fence,
            holder=beside.holder,
            wait=float(wait or 0),
            door="http",
        )
        answer = await (_unless_gone(calling, receive, passage.leaving) if wait else calling)
        # Nothing comes between this look and the sending: whoever is there now is sent the answer. What was claimed
        # under an id of the caller's own stays, as whoever repeats the call is promised it.
        if wait and passage.is_gone():
            if beside.request_id is None:
                await _put_back(answer, visitor)
            raise ClientGone
        return answer, _facts(answer, wait)


def _headers(pairs: list[Header]) -> tuple[dict[bytes, bytes], set[bytes]]:
    """Give the headers that count here, and the names that stand twice; `Prefer` may."""
    given: dict[bytes, bytes] = {}
    twice: set[bytes] = set()
    for name, value in pairs:
        if name not in _READ:
            continue
        if name not in given:
            given[name] = value.strip(b" \t")  # not every parser does
        elif name == b"prefer":
            given[name] += b"," + value
        else:
            twice.add(name)
    return given, twice


def _beside(given: dict[bytes, bytes], twice: set[bytes]) -> _Beside:
    """Read what stands beside the arguments; raise `BadRequest` for a repeated header, else `InvalidArgument`."""
    if twice:
        raise BadRequest(f"the header {min(twice).decode().title()} stands twice")
    beside = _Beside()
    if (key := given.get(b"idempotency-key")) is not None:
        if not (1 <= len(key) <= limit("request_id") and all(0x21 <= byte <= 0x7E for byte in key)):
            raise InvalidArgument(f"Idempotency-Key must be 1 to {limit('request_id')} visible ASCII characters")
        beside.request_id = key.decode()
    if (fence := given.get(b"shampoo-fence")) is not None:
        if not _FENCE.fullmatch(fence):
            raise InvalidArgument("Shampoo-Fence must be a whole number")
        beside.fence = int(fence)
    if (holder := given.get(b"shampoo-holder")) is not None:
        beside.holder = _text(holder)
        if len(beside.holder) > limit("project"):
            raise InvalidArgument(f"Shampoo-Holder must be text of at most {limit('project')} characters")
    if (prefer := given.get(b"prefer")) is not None:
        beside.wait = _wait(prefer)
    return beside


def _text(value: bytes) -> str:
    """Read a header's text: UTF-8, or else what it was before there was UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _wait(prefer: bytes) -> int | None:
    """Read how long a claim may wait: RFC 7240 lets the first instance count, and nothing that is not understood."""
    for preference in prefer.split(b","):
        if found := _WAIT.fullmatch(preference.partition(b";")[0].strip()):
            return min(int((found[1] or found[2])[:9]), LONGEST_WAIT)
    return None


async def _body(given: dict[bytes, bytes], receive: Receive, visitor: Visitor) -> bytes:
    kind = given.get(b"content-type")
    if kind != b"application/json" and not _JSON.fullmatch((kind or b"").strip()):
        raise UnsupportedMediaType("send application/json")
    if given.get(b"content-encoding", b"identity").strip().lower() != b"identity":
        raise UnsupportedMediaType("send the body without a content encoding")
    if (answers.content_length(given.get(b"content-length")) or 0) > answers.BODY_LIMIT:
        raise TooLarge(f"a body has at most {answers.BODY_LIMIT:,} bytes")
    return await answers.read_body(receive, prove=visitor.prove)


def _facts(answer: Answer, wait: int | None) -> list[Header]:
    """Spell as headers what came back beside the result."""
    meta, headers = answer.meta, []
    if meta.fence is not None:
        headers.append((b"shampoo-fence", b"%d" % meta.fence))
    if meta.replayed:
        headers.append((b"idempotency-replayed", b"true"))
    if wait is not None:
        headers.append((b"preference-applied", b"wait=%d" % wait))
    return headers


# A long wait ----------------------------------------------------------------------------------------------------


async def _unless_gone(calling: Any, receive: Receive, leaving: asyncio.Event) -> Answer:
    """Wait for a claim no longer than the client stays and the server does; false when it was cut short."""
    work: asyncio.Future[Answer] = asyncio.ensure_future(calling)
    gone, left = asyncio.ensure_future(_hung_up(receive)), asyncio.ensure_future(leaving.wait())
    try:
        await asyncio.wait((work, gone, left), return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            work.cancel()
            await asyncio.wait((work,))
        return Answer(claimed=False) if work.cancelled() else work.result()
    finally:
        for waiting in (work, gone, left):
            waiting.cancel()
        await asyncio.gather(work, gone, left, return_exceptions=True)


async def _hung_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _put_back(answer: Answer, visitor: Visitor) -> None:
    """Give a job back whose claim was won in the moment in which the client hung up."""
    if answer["claimed"]:
        with suppress(Refusal):  # the lease ends by itself
            await visitor.call("job_release", {"job_id": answer["job_id"]}, fence=answer.meta.fence, door="http")
