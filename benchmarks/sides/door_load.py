"""Ask a door as fast as it answers, over a number of connections that each wait for their answer.

Reads one JSON object on standard input: ``port``, ``token``, ``connections`` and what to do: ``calls`` plain ones,
``jobs`` to claim and complete, or ``seconds`` of creating, claiming and completing. Writes one: how many calls, in how
many seconds, and the milliseconds of each quantile. A process of its own, on bare transports, so that it does not
become what is measured.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Generator
from typing import Any

# What a connection asks, given each answer: path and body.
Script = Generator[tuple[str, bytes], bytes, None]


class Connection(asyncio.Protocol):
    """One connection, with one request under way."""

    def __init__(self, load: Load) -> None:
        self._load, self._script = load, load.script()
        self._buffer, self._sent = b"", 0.0
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._ask(next(self._script))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, body = self._buffer.partition(b"\r\n\r\n")
        if not found or len(body) < int(head.lower().partition(b"content-length:")[2].split(b"\r", 1)[0]):
            return
        self._load.milliseconds.append((time.perf_counter() - self._sent) * 1000)
        if not head.startswith(b"HTTP/1.1 200"):
            self.ended.set_exception(RuntimeError(self._buffer.decode(errors="replace")))
            return
        self._buffer = b""
        try:
            self._ask(self._script.send(body))
        except StopIteration:
            self._transport.close()
            self.ended.set_result(None)

    def connection_lost(self, _error: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_exception(ConnectionError("the server hung up"))

    def _ask(self, request: tuple[str, bytes]) -> None:
        path, body = request
        head = f"POST {path} HTTP/1.1\r\n{self._load.headers}Content-Length: {len(body)}\r\n\r\n"
        self._sent = time.perf_counter()
        self._transport.write(head.encode() + body)


class Load:
    """All connections of one run."""

    def __init__(self, given: dict[str, Any]) -> None:
        self._given = given
        self._left = given.get("calls", 0)
        self._until = time.perf_counter() + given.get("seconds", 0)
        self.milliseconds: list[float] = []
        token = f"Authorization: Bearer {given['token']}\r\n" if given.get("token") else ""
        self.headers = f"Host: 127.0.0.1\r\n{token}Content-Type: application/json\r\n"
        kinds: dict[str, Callable[[], Script]] = {"calls": self._plain, "jobs": self._work, "seconds": self._on_and_on}
        self.script = next(script for name, script in kinds.items() if name in given)

    def _plain(self) -> Script:
        while self._left > 0:
            self._left -= 1
            yield "/call", b"{}"

    def _work(self) -> Script:
        while (claim := json.loads((yield "/v1/tools/job_claim", b'{"kind":"k"}')))["claimed"]:
            yield "/v1/tools/job_complete", json.dumps({"job_id": claim["job_id"], "outcome": "completed"}).encode()

    def _on_and_on(self) -> Script:
        while time.perf_counter() < self._until:
            yield "/v1/tools/job_create", b'{"kind":"k","payload":"{}"}'
            claim = json.loads((yield "/v1/tools/job_claim", b'{"kind":"k"}'))
            if claim["claimed"]:
                yield "/v1/tools/job_complete", json.dumps({"job_id": claim["job_id"], "outcome": "completed"}).encode()

    async def run(self) -> dict[str, Any]:
        loop, began = asyncio.get_running_loop(), time.perf_counter()
        opened = [loop.create_connection(lambda: Connection(self), "127.0.0.1", self._given["port"]) for _ in
                  range(self._given["connections"])]  # fmt: skip
        await asyncio.gather(*[protocol.ended for _, protocol in await asyncio.gather(*opened)])
        taken, found = time.perf_counter() - began, sorted(self.milliseconds)
        quantiles = {f"p{percent}_ms": round(found[len(found) * percent // 100], 3) for percent in (50, 90, 99)}
        return {"calls": len(found), "seconds": taken, **quantiles}


if __name__ == "__main__":
    try:
        from uvloop import run
    except ImportError:
        from asyncio import run
    print(json.dumps(run(Load(json.load(sys.stdin)).run())))
