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
from shampoo_queue.moves import Command, Move, Operation
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
        """Read every key of the profile, in one round trip: type, content, time to live."""
        found = self.command("EVAL", _SNAPSHOT, 1, self.key("profile"), f"{prefix(self.profile)}*")
        return {key.decode(): (kind.decode(), _read(kind, content), int(ttl)) for key, kind, ttl, content in found}

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


# Reading key by key would cost three round trips each, twice a test.
_SNAPSHOT = """
local found, cursor = {}, '0'
repeat
  local page = redis.call('SCAN', cursor, 'MATCH', ARGV[1], 'COUNT', 1000)
  cursor = page[1]
  for _, key in ipairs(page[2]) do
    local kind, content = redis.call('TYPE', key).ok, ''
    if kind == 'hash' then content = redis.call('HGETALL', key)
    elseif kind == 'zset' then content = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
    elseif kind == 'stream' then content = redis.call('XRANGE', key, '-', '+')
    elseif kind == 'list' then content = redis.call('LRANGE', key, 0, -1)
    elseif kind == 'string' then content = redis.call('GET', key) end
    found[#found + 1] = { key, kind, redis.call('PTTL', key), content }
  end
until cursor == '0'
return found
"""


def _read(kind: bytes, content: Any) -> Any:
    if kind == b"hash":
        flat = _decoded(content)
        return dict(zip(flat[::2], flat[1::2], strict=True))
    if kind == b"zset":
        flat = _decoded(content)
        return [(member, float(score)) for member, score in zip(flat[::2], flat[1::2], strict=True)]
    if kind == b"list":
        return _decoded(content)
    if kind == b"stream":
        return [(number.decode(), _decoded(fields)) for number, fields in content]
    return content.decode()


def _decoded(parts: Iterable[Any]) -> list[str]:
    return [part.decode() if isinstance(part, bytes) else str(part) for part in parts]
