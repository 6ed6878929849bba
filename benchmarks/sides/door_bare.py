"""The floor beside ``shampoo serve``: one route of Starlette that runs one no-op EVALSHA, on the same server below.

``python -m benchmarks.sides.door_bare REDIS_URL`` prints its own URL and serves until it is ended.
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from redis.asyncio import Redis
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route


def app(target: str) -> Starlette:
    redis: Any = Redis.from_url(target)
    sha = ""

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        nonlocal sha
        sha = await redis.script_load("return 1")
        yield
        await redis.aclose()

    async def call(request: Request) -> JSONResponse:
        await request.json()
        return JSONResponse({"answer": await redis.evalsha(sha, 0)})

    return Starlette(routes=[Route("/call", call, methods=["POST"])], lifespan=lifespan)


class Server(uvicorn.Server):
    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        port = self.servers[0].sockets[0].getsockname()[1]
        print(json.dumps({"url": f"http://127.0.0.1:{port}"}), flush=True)


if __name__ == "__main__":
    Server(uvicorn.Config(app(sys.argv[1]), port=0, log_config=None, access_log=False)).run()
