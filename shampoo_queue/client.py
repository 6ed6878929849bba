"""Open a queue: `Shampoo` for blocking code, `AsyncShampoo` for asyncio, the same in all else."""

from __future__ import annotations

import getpass
from types import TracebackType
from typing import Any, Self

from . import keys
from .contract import safe_name
from .engines import Route, route
from .errors import ConfigurationError
from .facade import AsyncClient, AsyncOps, AsyncRegistry, Client, Ops, Registry
from .history import Event, HistoryOperations
from .moves import Operation, T
from .ops import OpsOperations
from .registry import Operator, RegistryOperations
from .tools import Caller
from .wire import AsyncWire, Wire

DEFAULT_URL = "embedded://"


class _Opened:
    """What both flavours hold: the operations of one profile."""

    def __init__(self, target: Any, profile: str, operator: str | None, retry_seconds: float) -> None:
        if not isinstance(profile, str) or not keys.PROFILE.fullmatch(profile):
            raise ConfigurationError(f"profile {safe_name(profile)} must match {keys.PROFILE.pattern}")
        if not 0 <= retry_seconds <= 45:
            # Requests of the library are remembered for 60 seconds; a later repeat could act twice.
            raise ConfigurationError("retry_seconds must be from 0 to 45")
        self.profile = profile
        self._target = target
        self._retry_seconds = retry_seconds
        self._route: Route = route(target, profile)
        operator_ = Operator(operator or _user())
        self._registry = RegistryOperations(operator_, profile)
        self._ops = OpsOperations(operator_, profile)
        self._history = HistoryOperations(operator_)

    @property
    def url(self) -> str:
        """The server's URL, without secrets."""
        return self._route.name


def _user() -> str:
    try:
        return getpass.getuser()[:128] or "operator"
    except (KeyError, OSError, ImportError):  # no such user on this machine
        return "operator"


class Shampoo(_Opened):
    """One profile of a queue, for blocking code. Safe to share between threads; a fork gets its own connections.

    ``registry`` keeps principals, quorums and tasks; ``ops`` makes operators' moves; `client` calls the tools.
    """

    def __init__(self, target: Any, profile: str, operator: str | None, retry_seconds: float) -> None:
        super().__init__(target, profile, operator, retry_seconds)
        self._wire = Wire(self._route, profile, retry_seconds)
        self.registry = Registry(self._registry, self._wire.run)
        self.ops = Ops(self._ops, self._wire.run)

    @classmethod
    def connect(
        cls,
        target: Any = DEFAULT_URL,
        *,
        profile: str = "default",
        operator: str | None = None,
        retry_seconds: float = 10.0,
    ) -> Self:
        """Open a profile of the queue behind a URL or a ready-made redis-py client, and check the server.

        ``operator`` names who makes registry and operators' moves in the history; the system's user unless given.
        A call that gets no answer is repeated for ``retry_seconds``, from 0 to 45, under its request id.
        Raises `ConfigurationError`, or `EngineError` when the server cannot serve.
        """
        opened = cls(target, profile, operator, retry_seconds)
        try:
            opened._wire.start(target)
        except BaseException:
            opened.close()
            raise
        return opened

    @property
    def warnings(self) -> list[str]:
        """What the start-up check found unsafe about the server."""
        return list(self._wire.warnings)

    def client(self, client_id: str, *, holder: str | None = None) -> Client:
        """Call the tools as this principal. ``holder`` names the process in history; host/pid unless given."""
        return Client(Caller(client_id, holder), self._wire.run)

    def history(self, entity_id: str | None = None, after: int | str | None = None, limit: int = 100) -> list[Event]:
        """Read events, oldest first: of the whole profile, or of the job, lane, principal, quorum or task named.

        ``after`` is the ``id`` of the last event already read; ``limit`` is at most 1,000.
        """
        return self._wire.run(self._history.history(entity_id, after, limit))

    def close(self) -> None:
        """Close the connections; an embedded server that this process started goes down with its last user here."""
        self._wire.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncShampoo(_Opened):
    """One profile of a queue, for asyncio. `connect` is a plain function; the server is reached at first use."""

    def __init__(self, target: Any, profile: str, operator: str | None, retry_seconds: float) -> None:
        super().__init__(target, profile, operator, retry_seconds)
        self._wire = AsyncWire(self._route, profile, retry_seconds)
        self.registry = AsyncRegistry(self._registry, self._run)
        self.ops = AsyncOps(self._ops, self._run)

    @classmethod
    def connect(
        cls,
        target: Any = DEFAULT_URL,
        *,
        profile: str = "default",
        operator: str | None = None,
        retry_seconds: float = 10.0,
    ) -> Self:
        """Open a profile of the queue behind a URL or a ready-made redis.asyncio client.

        The server is reached and checked on ``async with``, or by the first call. Otherwise as `Shampoo.connect`.
        """
        return cls(target, profile, operator, retry_seconds)

    @property
    def warnings(self) -> list[str]:
        """What the start-up check found unsafe about the server."""
        return list(self._wire.warnings)

    def client(self, client_id: str, *, holder: str | None = None) -> AsyncClient:
        """Call the tools as this principal. ``holder`` names the process in history; host/pid unless given."""
        return AsyncClient(Caller(client_id, holder), self._run)

    async def history(
        self, entity_id: str | None = None, after: int | str | None = None, limit: int = 100
    ) -> list[Event]:
        """Read events, oldest first: of the whole profile, or of the job, lane, principal, quorum or task named.

        ``after`` is the ``id`` of the last event already read; ``limit`` is at most 1,000.
        """
        return await self._run(self._history.history(entity_id, after, limit))

    async def _run(self, operation: Operation[T]) -> T:
        await self._wire.start(self._target)
        return await self._wire.run(operation)

    async def close(self) -> None:
        """Close the connections; an embedded server that this process started goes down with its last user here."""
        await self._wire.close()

    async def __aenter__(self) -> Self:
        try:
            await self._wire.start(self._target)
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
