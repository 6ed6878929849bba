"""Put the doors of one process together: the tools, MCP, health, metrics, the catalogue and the pages."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from importlib.util import find_spec

from starlette.routing import Router

from . import catalogue, health, jwt, rest, ui
from .desk import Desk
from .guard import Guard, Rules

log = logging.getLogger("shampoo_queue.server")


def build(desk: Desk, rules: Rules | None = None) -> Guard:
    """Make the ASGI app of a desk that is open, behind its guard. Without the extra ``[mcp]`` there is no ``/mcp``."""
    rules = replace(rules or Rules(), challenge=jwt.challenge(desk.verifiers))
    routes = [
        *rest.routes(desk),
        *health.routes(desk, open_metrics=rules.open_metrics),
        *jwt.routes(desk.verifiers),
        *catalogue.routes(),
        *ui.routes(desk),
    ]
    if not find_spec("mcp"):
        log.warning("there is no /mcp: pip install 'shampoo_queue[mcp]'")
        return Guard(Router(routes, redirect_slashes=False), desk, rules)

    from .mcp import Door

    door = Door(desk)

    @asynccontextmanager
    async def lifespan(_app: Router) -> AsyncIterator[None]:
        async with door.lifespan():
            yield

    return Guard(Router([*routes, *door.routes], redirect_slashes=False, lifespan=lifespan), desk, rules)
