"""What orchestrators and Prometheus ask for: ``/livez``, ``/readyz`` and ``/metrics``."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import orjson
from redis.exceptions import RedisError, ResponseError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from .. import __version__
from ..errors import Denied, EngineError, Refusal
from ..moves import Move
from ..patience import LASTING, PASSING, error_word
from . import answers

if TYPE_CHECKING:
    from ..client import AsyncShampoo
    from .desk import Desk
    from .visitor import Visitor

PROBE_SECONDS = 2.0
SCRAPE_SECONDS = 5.0
CHECKS = ("redis", "primary", "memory", "scripts")
_PLAIN = {"cache-control": "no-store", "x-content-type-options": "nosniff"}

# A script that grows the queue, so that the server holds it back exactly when it would hold back real work; without a
# caller it is refused by its own first check and writes nothing.
_PROBE = Move("job_create", ("", "", "", "", "", "", "-", "-", "", "", "", ""))
_CHECK_OF = {"LOADING": "redis", "READONLY": "primary", "MASTERDOWN": "primary", "OOM": "memory"}


def routes(desk: Desk, *, open_metrics: bool = False) -> list[Route]:
    """Give the routes; ``open_metrics`` gives those of all profiles to programs on this machine without a token."""
    health = _Health(desk, open_metrics)
    return [
        Route("/livez", health.livez, methods=["GET"]),
        Route("/readyz", health.readyz, methods=["GET"]),
        Route("/metrics", health.metrics, methods=["GET"]),
    ]


class _Health:
    def __init__(self, desk: Desk, open_metrics: bool) -> None:
        self._desk, self._open = desk, open_metrics
        self._queues: Mapping[str, AsyncShampoo] = {}
        self._probing: asyncio.Task[dict[str, str]] | None = None

    async def livez(self, _request: Request) -> Response:
        return _json({"status": "live", "version": __version__})

    async def readyz(self, _request: Request) -> Response:
        """Run a real script; askers at the same moment share one."""
        if self._probing is None or self._probing.done():
            self._probing = asyncio.ensure_future(_probe(self._desk))
        checks = await asyncio.shield(self._probing)
        checks["draining"] = "this server is going down" if self._desk.draining else "ok"
        ready = all(found == "ok" for found in checks.values())
        document = {"status": "ready" if ready else "not ready", "version": __version__, "checks": checks}
        return _json(document) if ready else _json(document, 503, {"retry-after": "2"})

    async def metrics(self, request: Request) -> Response:
        """Tell a token's holder of its own profile, and whoever an operator let in without one of all."""
        if self._open and _is_local(request):
            queues = await self._every_queue()
        else:
            visitor = await self._let_in(request)
            queues = {visitor.profile: visitor.queue}
        text = await self._desk.metrics.text(queues)
        return Response(text, headers=_PLAIN | {"content-type": self._desk.metrics.content_type})

    async def _every_queue(self) -> Mapping[str, AsyncShampoo]:
        """Give the queues of all profiles; those of the last time when their list cannot be read now."""
        with suppress(Refusal, EngineError, TimeoutError):
            async with asyncio.timeout(SCRAPE_SECONDS):
                self._queues = await self._desk.queues()
        return self._queues

    async def _let_in(self, request: Request) -> Visitor:
        passage, given = answers.passage(request.scope), request.headers.getlist("authorization")
        credential = answers.credential(given[0].encode("latin-1")) if len(given) == 1 else None
        visitor = await self._desk.admit(credential, address=passage.address)
        passage.token_id = visitor.token_id
        await visitor.prove()
        if not visitor.may("metrics"):
            raise Denied("the metrics need a token of scope metrics")
        return visitor


def _json(document: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    beside = _PLAIN | (headers or {})
    return Response(orjson.dumps(document), status, media_type="application/json", headers=beside)


def _is_local(request: Request) -> bool:
    try:
        return ipaddress.ip_address(request.client.host if request.client else "").is_loopback
    except ValueError:
        return False


async def _probe(desk: Desk) -> dict[str, str]:
    """Give each check's finding, within `PROBE_SECONDS`: "ok", what is wrong, or "unknown" behind what is."""
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            await desk.once(_PROBE)
    except TimeoutError:
        return _found("redis", f"no answer within {PROBE_SECONDS:g} seconds")
    except EngineError:
        return _found("redis", "it cannot serve as it is set up")
    except (RedisError, OSError) as error:
        word = error_word(error)
        if word == "UNAUTHENTICATED":
            return dict.fromkeys(CHECKS, "ok")
        # redis-py counts some answers of a server, that it is loading for one, as failures of the connection.
        answered = isinstance(error, ResponseError)
        why = PASSING.get(word) or LASTING.get(word) or ("the script failed" if answered else "it is away")
        return _found(_CHECK_OF.get(word, "scripts" if answered else "redis"), why)
    return _found("scripts", "the script answered what it cannot answer")


def _found(failed: str, why: str) -> dict[str, str]:
    """Give the findings when one check failed. What a full memory holds back is only what makes the queue grow."""
    others = dict.fromkeys(CHECKS, "unknown")
    others["redis"] = "ok"
    if failed == "memory":
        others |= {"primary": "ok", "scripts": "ok"}
    return others | {failed: why}
