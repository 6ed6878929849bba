"""The blocking library and the asyncio one behind one face, so that a case is written once and run through both."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from shampoo_queue import AsyncClient, AsyncShampoo, Client, Shampoo
from shampoo_queue.tools import Answer
from tests.queue import Queue


class Flavour(Protocol):
    """One opened profile. Each principal has one client, as in a program."""

    def tool(self, client_id: str, name: str, **given: Any) -> Any:
        """Call a tool; ``request_id`` and ``fence`` among the arguments go beside them."""

    def library(self, client_id: str, name: str, *given: Any, **named: Any) -> Any:
        """Call a client's method by name, as it stands in the library."""

    def registry(self, name: str, *given: Any, **named: Any) -> Any:
        """Make a move of the registry."""

    def ops(self, name: str, *given: Any) -> Any:
        """Make an operator's move."""

    def close(self) -> None:
        """Let go of the server."""


def apart(given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Part the arguments of a tool from what travels beside them."""
    beside: dict[str, Any] = {name: given.pop(name) for name in ("request_id", "fence") if name in given}
    return given, beside


class Blocking:
    """`Shampoo`."""

    def __init__(self, queue: Queue, url: str, **options: Any) -> None:
        self.shampoo = Shampoo.connect(url, profile=queue.profile, operator="operator", **options)
        self.shampoo._wire._lua = queue.shampoo._wire._lua
        self._clients: dict[str, Client] = {}

    def client(self, client_id: str) -> Client:
        return self._clients.setdefault(client_id, self.shampoo.client(client_id, holder="h"))

    def tool(self, client_id: str, name: str, **given: Any) -> Answer:
        arguments, beside = apart(given)
        return self.client(client_id).call(name, arguments, **beside)

    def library(self, client_id: str, name: str, *given: Any, **named: Any) -> Any:
        return getattr(self.client(client_id), name)(*given, **named)

    def registry(self, name: str, *given: Any, **named: Any) -> Any:
        return getattr(self.shampoo.registry, name)(*given, **named)

    def ops(self, name: str, *given: Any) -> Any:
        return getattr(self.shampoo.ops, name)(*given)

    def close(self) -> None:
        self.shampoo.close()


class Asyncio:
    """`AsyncShampoo`, on an event loop of its own."""

    def __init__(self, queue: Queue, url: str, **options: Any) -> None:
        self._runner, self._closed = asyncio.Runner(), False
        self.shampoo = AsyncShampoo.connect(url, profile=queue.profile, operator="operator", **options)
        self.shampoo._wire._lua = queue.shampoo._wire._lua
        self._clients: dict[str, AsyncClient] = {}
        self.run(self.shampoo.__aenter__)

    def client(self, client_id: str) -> AsyncClient:
        return self._clients.setdefault(client_id, self.shampoo.client(client_id, holder="h"))

    def run(self, act: Callable[..., Awaitable[Any]], *given: Any, **named: Any) -> Any:
        """Run one call, or a coroutine function of the test, to its end."""

        async def awaited() -> Any:
            return await act(*given, **named)

        return self._runner.run(awaited())

    def tool(self, client_id: str, name: str, **given: Any) -> Answer:
        arguments, beside = apart(given)
        answer: Answer = self.run(self.client(client_id).call, name, arguments, **beside)
        return answer

    def library(self, client_id: str, name: str, *given: Any, **named: Any) -> Any:
        return self.run(getattr(self.client(client_id), name), *given, **named)

    def registry(self, name: str, *given: Any, **named: Any) -> Any:
        return self.run(getattr(self.shampoo.registry, name), *given, **named)

    def ops(self, name: str, *given: Any) -> Any:
        return self.run(getattr(self.shampoo.ops, name), *given)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self.run(self.shampoo.close)
            self._runner.close()


FLAVOURS: dict[str, type[Blocking] | type[Asyncio]] = {"sync": Blocking, "async": Asyncio}


class Around:
    """A flavour around another, for tests that call tools in a way of their own."""

    def __init__(self, flavour: Blocking | Asyncio) -> None:
        self._flavour = flavour

    def tool(self, client_id: str, name: str, **given: Any) -> Any:
        return self._flavour.tool(client_id, name, **given)

    def library(self, client_id: str, name: str, *given: Any, **named: Any) -> Any:
        return self._flavour.library(client_id, name, *given, **named)

    def registry(self, name: str, *given: Any, **named: Any) -> Any:
        return self._flavour.registry(name, *given, **named)

    def ops(self, name: str, *given: Any) -> Any:
        return self._flavour.ops(name, *given)

    def close(self) -> None:
        self._flavour.close()
