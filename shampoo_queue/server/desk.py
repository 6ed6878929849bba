"""Admit callers and make their calls: what every door of one process shares.

A credential is never checked here: it travels with the call and is held against what Redis has in the very script of
the call. Only what can never change is kept: whose a token is, of which profile, and what it is good for.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from .. import contract, extensions, keys, tokens
from ..client import AsyncShampoo
from ..contract import Tool
from ..engines import route
from ..errors import RateLimited, Unauthenticated
from ..moves import Command, Move, Operation, Sent
from ..tokens import Presented
from ..tools import Caller, RequestIds, text
from ..wire import AsyncWire
from .jwt import Verifier
from .metrics import Metrics
from .pace import Failures, Pace
from .sessions import Sessions
from .visitor import Visitor

log = logging.getLogger("shampoo_queue.server")

_REMEMBERED = 10_000
_PROFILES = 256
K = TypeVar("K")
V = TypeVar("V")


class Recent(Generic[K, V]):
    """The entries used last, up to a number of them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._entries: OrderedDict[K, V] = OrderedDict()

    def get(self, key: K) -> V | None:
        found = self._entries.get(key)
        if found is not None:
            self._entries.move_to_end(key)
        return found

    def put(self, key: K, value: V) -> V | None:
        """Keep an entry; give one that had to go for it."""
        self._entries[key] = value
        self._entries.move_to_end(key)
        return self._entries.popitem(last=False)[1] if len(self._entries) > self._most else None

    def values(self) -> list[V]:
        return list(self._entries.values())


@dataclass(frozen=True, slots=True)
class Facts:
    """What never changes of a token."""

    scope: str
    profile: str
    client_id: str


class Desk:
    """What all doors of one process share. Open it with ``async with``."""

    def __init__(
        self,
        target: str,
        *,
        extensions: bool = False,
        verifiers: Sequence[Verifier] = (),
        failed_per_minute: int = 60,
        calls_per_second: float | None = None,
        waits: int = 1_000,
        retry_seconds: float = 5.0,
    ) -> None:
        """``waits`` is how many claims may wait for work at a time, each on a connection to Redis; more do not wait."""
        self.draining = False
        self.waiting, self.most_waiting = 0, waits
        self.metrics = Metrics()
        self.pace = Pace(calls_per_second)
        self.offered: tuple[Tool, ...] = contract.TOOLS + (_EXTENSIONS if extensions else ())
        self.by_name = {tool.name: tool for tool in self.offered}
        self._target = target
        self._retry_seconds = retry_seconds
        self.verifiers = verifiers
        self._failures = Failures(failed_per_minute)
        self._outside = AsyncWire(route(target, keys.OUTSIDE), keys.OUTSIDE, retry_seconds)
        self._known: Recent[str, Facts] = Recent(_REMEMBERED)
        self._queues: Recent[str, AsyncShampoo] = Recent(_PROFILES)
        self._ids = RequestIds()
        self.sessions = Sessions(self)

    async def open(self) -> None:
        """Reach Redis and check it; raise `EngineError` when it cannot serve."""
        await self._outside.start(self._target)

    async def close(self) -> None:
        """Close every connection."""
        for queue in self._queues.values():
            await queue.close()
        await self._outside.close()

    async def __aenter__(self) -> Desk:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # Who calls ------------------------------------------------------------------------------------------------

    async def admit(self, credential: str | bytes | None, *, address: str = "") -> Visitor:
        """Find out as whom somebody calls who presents a credential. Whether it is live is told by the call itself.

        Raises `Unauthenticated`, the same for all that is wrong with a credential, `RateLimited` after too many
        failures of one token from one address, or of an address without a token that there is, or `Unavailable`.
        """
        visitor = await self._visitor_of(credential, address)
        mark = visitor.mark if visitor else address
        if self._failures.too_many(mark):
            raise RateLimited("too many failed attempts")
        if visitor is None:
            self.failed(address)
            raise Unauthenticated
        return visitor

    async def _visitor_of(self, credential: str | bytes | None, address: str) -> Visitor | None:
        presented = tokens.read(credential) if credential else None
        if presented is not None:
            facts = await self.facts(presented.token_id)
            return self.visitor(presented, facts, address) if facts else None
        for verifier in self.verifiers if credential else ():
            claims = await verifier.visitor_of(text(credential))
            if claims is not None:
                return Visitor(self, self._caller(claims.client_id), claims.scope, claims.profile, "", address)
        return None

    def local(self, client_id: str, profile: str, holder: str | None = None) -> Visitor:
        """Give a visitor who is whom it says to be: somebody with access to Redis needs no token."""
        return Visitor(self, Caller(client_id, holder, self._ids), "tools", profile, "", "")

    def visitor(self, presented: Presented, facts: Facts, address: str) -> Visitor:
        """Give the visitor behind a token that is presented."""
        visitor = Visitor(self, self._caller(presented), facts.scope, facts.profile, presented.token_id, address)
        visitor.client_id = facts.client_id
        return visitor

    def _caller(self, client_id: str | Presented) -> Caller:
        # A call may be repeated through another process of the same service: none of them is its holder.
        return Caller(client_id, "", self._ids)

    async def facts(self, token_id: str) -> Facts | None:
        """Look up what never changes of a token; None for an id that was never given."""
        facts = self._known.get(token_id)
        if facts is None:
            stored = await self.outside("GET", keys.spell(keys.OUTSIDE, "token", token_id))
            scope, _, rest = text(stored or b"").partition(" ")
            profile, _, client_id = rest.partition(" ")
            if scope not in tokens.SCOPES or not keys.PROFILE.fullmatch(profile):
                return None
            facts = Facts(scope, profile, client_id)
            self._known.put(token_id, facts)
        return facts

    async def outside(self, *command: str | bytes | int) -> Any:
        """Send one command about what belongs to no profile."""
        return await self._outside.run(_one(Command(command)))

    async def once(self, move: Move) -> Any:
        """Send one move of no profile, as a probe: no failure is waited out."""
        await self._outside.start(None)
        return await self._outside.once(move)

    def failed(self, mark: str) -> None:
        """Count a failed attempt under an address, or under a token that there is and an address."""
        self.metrics.auth_failed()
        self._failures.add(mark)

    # Profiles -------------------------------------------------------------------------------------------------

    def queue(self, profile: str) -> AsyncShampoo:
        """Give a profile of the queue."""
        queue = self._queues.get(profile)
        if queue is None:
            queue = AsyncShampoo.connect(self._target, profile=profile, retry_seconds=self._retry_seconds)
            # One that had to go keeps its idle connections until it is collected; running calls are not cut.
            self._queues.put(profile, queue)
        return queue

    async def queues(self) -> dict[str, AsyncShampoo]:
        """Give the profiles in which tokens were issued, by name; the first 256 of them."""
        found = await self.outside("SMEMBERS", keys.spell(keys.OUTSIDE, "profiles"))
        names = sorted(name for name in map(text, found) if keys.PROFILE.fullmatch(name))
        return {name: self.queue(name) for name in names[:_PROFILES]}


def _one(step: Sent) -> Operation[Any]:
    return (yield step)


_EXTENSIONS = extensions.EXTENSIONS
