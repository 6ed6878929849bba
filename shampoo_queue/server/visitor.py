"""One caller at a door: its calls, in the contract's order, whichever door they come through."""

from __future__ import annotations

import asyncio
import logging
import secrets
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from redis.exceptions import RedisError, ResponseError

from .. import extensions
from ..claims import ClaimOperations, new_waiter
from ..clock import now
from ..contract import BY_NAME, safe_name
from ..errors import (
    ConfigurationError,
    Denied,
    Internal,
    InvalidArgument,
    RateLimited,
    Refusal,
    Unauthenticated,
    Unavailable,
    UnknownTool,
)
from ..moves import Move, Operation, T
from ..ops import OpsOperations
from ..patience import error_word
from ..registry import Operator, Principal, RegistryOperations, Token
from ..tokens import SCOPES, Presented
from ..tools import Answer, Caller, text
from ..trace import span

if TYPE_CHECKING:
    from ..client import AsyncShampoo
    from .desk import Desk

log = logging.getLogger("shampoo_queue.server")

_LONGEST_PAUSE = 1.0


@dataclass(frozen=True, slots=True)
class Role:
    """What a principal is beside its grants."""

    conductor: bool
    star: bool


class Visitor:
    """Somebody who calls through a door: as whom, in which profile, and with what scope."""

    def __init__(self, desk: Desk, caller: Caller, scope: str, profile: str, token_id: str, address: str) -> None:
        self.caller, self.scope, self.profile = caller, scope, profile
        self.token_id, self.address = token_id, address
        self.client_id = str(caller.client_id) if not isinstance(caller.client_id, Presented) else ""
        self._desk = desk

    @property
    def principal(self) -> tuple[str, str]:
        """Who calls, told apart over all profiles."""
        return self.profile, self.client_id

    @property
    def mark(self) -> str:
        """Under what a failed attempt of this visitor counts: a bad credential shuts out nobody but itself."""
        return f"{self.address} {self.token_id or self.principal}"

    @property
    def queue(self) -> AsyncShampoo:
        """The visitor's profile."""
        return self._desk.queue(self.profile)

    def may(self, need: str) -> bool:
        """Tell whether the scope covers what is needed."""
        return need in SCOPES[self.scope]

    async def prove(self) -> None:
        """Raise `Unauthenticated` unless the credential and its principal are live now."""
        await self.run(self.caller.move("token_check"))

    async def run(self, operation: Operation[T]) -> T:
        """Run an operation of this visitor's caller; it is refused as unauthenticated like any call."""
        try:
            return await self.queue._run(operation)
        except Unauthenticated:
            self._desk.failed(self.mark)
            raise
        except ConfigurationError as error:
            log.warning("%s", error)
            raise Unavailable from None

    # Tools ----------------------------------------------------------------------------------------------------

    async def call(
        self,
        tool: Any,
        arguments: Any,
        *,
        request_id: str | None = None,
        fence: int | None = None,
        holder: str | None = None,
        wait: float = 0.0,
        door: str,
        need: str | None = None,
    ) -> Answer:
        """Call a tool: the contract's result object, with `Meta` beside it.

        ``wait`` lets a claim stay for so many seconds until there is something; cancelled in the moment of the claim,
        it gives what it won instead of ending. ``need`` is the scope, the tool's own unless given. Raises `ToolError`
        or `RateLimited`: a bad credential before everything else, then a scope too narrow, then what the contract says.
        """
        began, code = now(), "ok"
        known = tool if isinstance(tool, str) and tool in self._desk.by_name else "other"
        self._desk.metrics.in_flight.inc()
        try:
            with span(f"shampoo.call {known}", door=door, profile=self.profile, token=self.token_id):
                return await self._called(tool, arguments, request_id, fence, holder, wait, need)
        except Refusal as refusal:
            code = refusal.code
            raise
        except Exception as error:
            code = "internal"
            raise internal(tool, error) from None
        except asyncio.CancelledError:
            code = "cancelled"
            raise
        finally:
            self._desk.metrics.in_flight.dec()
            self._desk.metrics.tool_call(known, door, code, now() - began)

    async def act(self, tool: str, arguments: dict[str, Any], *, fence: int | None = None) -> Answer:
        """Call a tool from a page, with the scope that pages need."""
        return await self.call(tool, arguments, fence=fence, door="ui", need="ops:write")

    async def _called(
        self,
        tool: Any,
        arguments: Any,
        request_id: str | None,
        fence: int | None,
        holder: str | None,
        wait: float,
        need: str | None,
    ) -> Answer:
        spec = self._desk.by_name.get(tool) if isinstance(tool, str) else None
        writes = spec is None or spec.writes
        refusal: Refusal | None = None
        if not self.may(need or ("tools" if writes else "tools:read")):
            refusal = Denied()
        elif not self._desk.pace.allows(self.principal):
            refusal = RateLimited("too many calls of this principal")
        elif spec is None:
            refusal = UnknownTool(f"there is no tool {safe_name(tool)}")
        if refusal is not None or spec is None:
            await self.prove()
            raise refusal or UnknownTool
        beside: dict[str, Any] = {"request_id": request_id, "fence": fence, "holder": holder}
        try:
            if spec.name not in BY_NAME:
                answer = await self.run(extensions.operation(self.caller, spec.name, arguments, fence=fence))
            elif wait > 0 and spec.name == "job_claim":
                answer = await self._claim_waiting(arguments, now() + wait, beside)
            else:
                answer = await self.run(self.caller.call(spec.name, arguments, **beside))
        except InvalidArgument:
            await self.prove()  # arguments are checked before anything is sent
            self._desk.pace.spend(self.principal)
            raise
        except Unavailable as refused:
            # A server without memory, or one that takes no writes, refuses the move before its script can check.
            if not refused.outcome_unknown:
                await self._prove_if_it_answers()
            raise
        except Unauthenticated:
            raise
        except Refusal:
            self._desk.pace.spend(self.principal)
            raise
        self._desk.pace.spend(self.principal)
        return answer

    async def _prove_if_it_answers(self) -> None:
        """Raise `Unauthenticated` when the server says so; with one that says nothing there is no waiting."""
        check = next(self.caller.move("token_check"))
        assert isinstance(check, Move)
        try:
            await self.queue._wire.once(check)
        except ResponseError as error:
            if error_word(error) == "UNAUTHENTICATED":
                self._desk.failed(self.mark)
                raise Unauthenticated from None
        except (RedisError, OSError):
            pass

    async def _claim_waiting(self, arguments: Any, until: float, beside: dict[str, Any]) -> Answer:
        """Claim, waiting for work; the wait counts among the principal's calls from its beginning."""
        await self.prove()
        self._desk.pace.spend(self.principal)
        self._desk.waiting += 1
        try:
            return await self._claim_when_there_is_work(arguments, until, beside)
        finally:
            self._desk.waiting -= 1

    async def _claim_when_there_is_work(self, arguments: Any, until: float, beside: dict[str, Any]) -> Answer:
        waiter, pause = new_waiter(), 0.0
        while True:
            answer = await self._claim_to_the_end(arguments, beside)
            if answer["claimed"] or now() >= until or self._desk.draining:
                return answer
            if pause:
                await asyncio.sleep(max(0.0, min(pause, until - now())))
            kind = arguments.get("kind")
            waiting = ClaimOperations(self.caller).wait_for_work(waiter, (kind,) if kind else (), until - now())
            woken = await self.run(waiting)
            pause = min(max(0.01, pause * 2), _LONGEST_PAUSE) if woken else 0.0

    async def _claim_to_the_end(self, arguments: Any, beside: dict[str, Any]) -> Answer:
        """Claim; when the wait is cut short in this very moment, see all the same what came of it, and tell."""
        claim = asyncio.ensure_future(self.run(self.caller.call("job_claim", arguments, **beside)))
        try:
            return await asyncio.shield(claim)
        except asyncio.CancelledError:
            answer = await claim
            if not answer["claimed"]:
                raise
            return answer

    # Operators' moves -----------------------------------------------------------------------------------------

    async def role(self) -> Role:
        """Tell what the visitor's principal is now."""
        _, conductor, star = await self._operate(self.caller.move("token_check"))
        return Role(text(conductor) == "1", text(star) == "1")

    async def requeue(self, job_id: str, *, fence: int | None = None) -> None:
        """Queue an exhausted or failed job again, as `OpsOperations.requeue`. Needs the conductor role and its sight.

        ``fence`` is the one that the person saw: when the job was claimed since, it raises `LeaseExpired`.
        """
        await self._operate(OpsOperations(self._operator(), self.profile).requeue(job_id, fence=fence))

    async def revoke_token(self, token_id: str) -> bool:
        """Revoke a token of one's own; a conductor with star scope revokes any."""
        return await self._operate(self._registry().revoke_token(token_id))

    async def principals(self, after: str | None = None) -> tuple[list[Principal], str]:
        """List at most 100 of the principals that the visitor may see: with star scope all, else itself.

        Gives the cursor of the next page too, empty at the end.
        """
        return await self._operate(self._registry().principals_page(after))

    async def tokens(self, after: str | None = None) -> tuple[list[Token], str]:
        """List at most 100 of the tokens that the visitor may see: with star scope all, else none; as `principals`."""
        return await self._operate(self._registry().tokens_page(after))

    def _registry(self) -> RegistryOperations:
        return RegistryOperations(self._operator(), self.profile)

    def _operator(self) -> Operator:
        if not isinstance(self.caller.client_id, Presented):
            raise Denied("operators' moves need a token")
        return Operator(self.caller.client_id)

    async def _operate(self, operation: Operation[T]) -> T:
        try:
            return await self.run(operation)
        except Refusal:
            raise
        except Exception as error:
            raise internal("an operator's move", error) from None


def internal(what: object, error: BaseException, mark: str = "") -> Internal:
    """Log a defect under a mark: its type and places, but not what it says, which may hold anything, even a payload."""
    mark = mark or secrets.token_hex(6)
    places = "".join(traceback.format_tb(error.__traceback__))
    log.error("internal error %s in %s: %s\n%s", mark, safe_name(what), type(error).__name__, places)
    return Internal(f"the log has more under {mark}")
