"""A profile under test: its clients, its raw keys, and a clock that can be moved."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shampoo_queue import Client, Shampoo, scripts
from shampoo_queue.keys import prefix, spell
from shampoo_queue.wire import Command, Move, Operation
from tests import audit

_numbers = itertools.count(1)
_lua: list[Path] = []


def test_lua(folder: Path) -> None:
    """Copy the scripts with a clock that reads the key ``test-clock`` of the profile instead of the server's time."""
    shutil.copytree(scripts.folder(), folder, dirs_exist_ok=True)
    (folder / "_clock.lua").write_text("local now = tonumber(redis.call('GET', P .. 'test-clock'))\n")
    _lua.append(folder)


test_lua.__test__ = False  # type: ignore[attr-defined]


@dataclass
class Engine:
    """One server, or set of servers, of the test session."""

    name: str
    url: str
    stop: Callable[[], None]


class Clock:
    """The server's clock of one profile, in milliseconds, standing still between moves of it."""

    def __init__(self, queue: Queue, now: int) -> None:
        self._queue = queue
        self.set(now)

    def set(self, now: int) -> None:
        self.now = now
        self._queue.command("SET", self._queue.key("test-clock"), str(now))

    def advance(self, seconds: float) -> None:
        self.set(self.now + round(seconds * 1000))


class Queue:
    """A fresh profile on an engine."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.profile = f"t{os.getpid()}-{next(_numbers)}"
        self.shampoo = self.connect()

    def connect(self, **options: Any) -> Shampoo:
        """Open the same profile once more, on the same clock."""
        options.setdefault("operator", "operator")
        opened = Shampoo.connect(self.engine.url, profile=self.profile, **options)
        if hasattr(self, "shampoo"):
            opened._wire._lua = self.shampoo._wire._lua
        return opened

    def stop_clock(self, now: int = 1_800_000_000_000) -> Clock:
        self.shampoo._wire._lua = _lua[-1]
        return Clock(self, now)

    def principal(self, client_id: str, *grants: str, conductor: bool = False, holder: str | None = "h") -> Client:
        """Register a principal and give its client."""
        self.shampoo.registry.add_principal(client_id, conductor=conductor, grants=grants)
        return self.shampoo.client(client_id, holder=holder)

    def create(self, client: Client, count: int = 1, kind: str = "k", **facts: Any) -> list[str]:
        """Create jobs and give their ids."""
        return [client.job_create(kind=kind, **facts).job_id for _ in range(count)]

    def key(self, name: str, *parts: str) -> str:
        return spell(self.profile, name, *parts)

    def command(self, *arguments: str | int) -> Any:
        """Send one plain command to the server that holds the profile."""
        return self.shampoo._wire.run(_one(Command(tuple(arguments))))

    def move(self, script: str, *arguments: str) -> Any:
        """Run a script with raw arguments."""
        return self.shampoo._wire.run(_one(Move(script, arguments)))

    def events(self, entity_id: str | None = None) -> list[str]:
        """The names of the events of one entity, or of the whole profile, oldest first."""
        return [event["event"] for event in self.shampoo.history(entity_id, limit=1000)]

    def snapshot(self) -> audit.Snapshot:
        """Read every key of the profile: type, content, time to live."""
        found: audit.Snapshot = {}
        cursor: Any = "0"
        while True:
            cursor, names = self.command("SCAN", cursor, "MATCH", f"{prefix(self.profile)}*", "COUNT", "1000")
            for name in names:
                found[name.decode()] = self._read(name)
            if cursor in (0, b"0", "0"):
                return found

    def _read(self, key: Any) -> tuple[str, Any, int]:
        kind = self.command("TYPE", key).decode()
        ttl = int(self.command("PTTL", key))
        if kind == "hash":
            flat = _decoded(self.command("HGETALL", key))
            return kind, dict(zip(flat[::2], flat[1::2], strict=True)), ttl
        if kind == "zset":
            flat = _decoded(self.command("ZRANGE", key, 0, -1, "WITHSCORES"))
            return kind, [(m, float(s)) for m, s in zip(flat[::2], flat[1::2], strict=True)], ttl
        if kind == "stream":
            return kind, [(n.decode(), _decoded(f)) for n, f in self.command("XRANGE", key, "-", "+")], ttl
        return kind, self.command("GET", key).decode() if kind == "string" else None, ttl

    def problems(self) -> list[str]:
        """What the audit says of the raw keys."""
        return audit.problems(self.profile, self.snapshot())

    def facts(self) -> dict[str, Any]:
        """The raw keys without times to live, to compare before and after."""
        return {key: (kind, content) for key, (kind, content, _) in self.snapshot().items()}

    def close(self) -> None:
        """Delete the profile's keys and let go of the server."""
        keys = list(self.snapshot())
        for n in range(0, len(keys), 500):
            self.command("DEL", *keys[n : n + 500])
        self.shampoo.close()


def _one(move: Move | Command) -> Operation[Any]:
    return (yield move)


def _decoded(parts: Iterable[Any]) -> list[str]:
    return [part.decode() if isinstance(part, bytes) else str(part) for part in parts]
