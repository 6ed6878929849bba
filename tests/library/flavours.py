"""Both flavours of the library behind one blocking surface, so that a story is told once."""

from __future__ import annotations

import asyncio
import inspect
from dataclasses import dataclass, field
from typing import Any

import pytest

from shampoo_queue import AsyncShampoo, Shampoo
from shampoo_queue.facade import AsyncClient, AsyncOps, AsyncRegistry
from tests.queue import Queue

FLAVOURS = ("sync", "async")


def on(*engines: str) -> pytest.MarkDecorator:
    """Run a test on these engines, one after another."""
    return pytest.mark.parametrize("engine", list(engines), indirect=True)


MEMORY = on("memory")
REDIS7 = on("redis7")
REAL = on("embedded", "redis7")
TWO = on("memory", "redis7")
THREE = on("memory", "embedded", "redis7")
FIVE = on("memory", "embedded", "redis7", "cluster", "sentinel")


class OnLoop:
    """An asyncio object of the library whose coroutines run to their end on one loop, call by call."""

    def __init__(self, runner: asyncio.Runner, target: Any) -> None:
        self._runner, self._target = runner, target

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._target, name)
        if inspect.iscoroutinefunction(found):
            return lambda *given, **named: self._runner.run(found(*given, **named))
        if name == "client":
            return lambda *given, **named: OnLoop(self._runner, found(*given, **named))
        return OnLoop(self._runner, found) if isinstance(found, AsyncClient | AsyncOps | AsyncRegistry) else found


@dataclass
class Flavour:
    """One flavour of the library; what a test opens in it is closed after the test."""

    name: str
    runner: asyncio.Runner = field(default_factory=asyncio.Runner)
    opened: list[Any] = field(default_factory=list)

    def connect(self, target: Any, **options: Any) -> Any:
        """Open a queue and reach its server; its methods block, whatever the flavour."""
        if self.name == "sync":
            self.opened.append(Shampoo.connect(target, **options))
        else:
            self.opened.append(OnLoop(self.runner, AsyncShampoo.connect(target, **options)))
            self.runner.run(self.opened[-1]._target.__aenter__())
        return self.opened[-1]

    def open(self, queue: Queue, **options: Any) -> Any:
        """Open the profile under test once more, in this flavour and on the same clock."""
        opened = self.connect(queue.engine.url, profile=queue.profile, **options)
        opened._wire._lua = queue.shampoo._wire._lua
        return opened

    def close(self) -> None:
        for opened in self.opened:
            opened.close()
        self.runner.close()
