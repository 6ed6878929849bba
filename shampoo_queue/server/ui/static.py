"""Serve the style sheet, the script and the icon, from memory."""

from __future__ import annotations

import hashlib

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from .door import HEADERS, HERE

_TYPES = {"style.css": "text/css", "live.js": "text/javascript", "icon.svg": "image/svg+xml"}


def routes() -> list[BaseRoute]:
    """Give one route a file."""
    return [_route(name, kind) for name, kind in _TYPES.items()]


def _route(name: str, kind: str) -> BaseRoute:
    content = (HERE / "static" / name).read_bytes()
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    # They hold nothing of the queue: a browser may keep them and ask whether they changed.
    headers = {**HEADERS, "Cache-Control": "no-cache", "ETag": tag}

    async def file(request: Request) -> Response:
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers, media_type=kind)

    return Route(f"/ui/static/{name}", file)
