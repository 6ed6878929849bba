"""Carry moves to the server and their replies back, once each, over redis-py's connections.

An operation is a generator that yields moves and is sent their replies; it does no I/O. The two wires here run
operations, one blocking and one on asyncio, and share everything but the waiting.

Sending again is decided here and nowhere below: a try that failed without an answer is repeated under the same
request id, so that the script recognises it; only NOSCRIPT, which says that nothing ran, is repeated as it stands.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import time
import uuid
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from redis.exceptions import NoScriptError, RedisError, ResponseError, TimeoutError

from . import errors, keys, scripts
from .engines import Route, cannot_reach, check_server
from .errors import EngineError, Internal, Refusal, Unavailable

log = logging.getLogger("shampoo_queue")

T = TypeVar("T")


@dataclass(slots=True)
class Move:
    """One run of a script: its name and its arguments; the key is the profile's."""

    script: str
    arguments: tuple[str | bytes, ...]
    request_id: str | None = None


@dataclass(slots=True)
class Command:
    """One plain command of an operator's reading, for instance SCAN."""

    arguments: tuple[str | bytes | int, ...]
    request_id: str | None = None


Operation = Generator[Move | Command, Any, T]

# First words of an error that says: nothing ran, try again in a moment.
PASSING = {
    "LOADING": "it is loading its data",
    "BUSY": "it is busy with a long script",
    "READONLY": "this node is a replica and takes no writes",
    "MASTERDOWN": "this replica has lost its primary",
    "CLUSTERDOWN": "the cluster is down",
    "TRYAGAIN": "the profile is moving to another node",
    "ASK": "the profile is moving to another node",
    "MOVED": "the profile has moved to another node",
    "NOREPLICAS": "too few replicas are connected",
}
# Those that waiting a moment will not mend; still no fault of the call.
LASTING = {
    "OOM": "it is out of memory and takes no new work; claim, complete and release go on",
    "MISCONF": "it cannot save to disk and takes no writes",
    "NOAUTH": "it asks for a password",
    "WRONGPASS": "it refuses the user or password",
    "NOPERM": "the Redis user lacks a permission",
}
# redis-py drops the first word of the errors it has a class for.
_WORD_OF_CLASS = {
    "BusyLoadingError": "LOADING",
    "ReadOnlyError": "READONLY",
    "MasterDownError": "MASTERDOWN",
    "ClusterDownError": "CLUSTERDOWN",
    "TryAgainError": "TRYAGAIN",
    "AskError": "ASK",
    "MovedError": "MOVED",
    "OutOfMemoryError": "OOM",
    "NoPermissionError": "NOPERM",
    "AuthenticationError": "WRONGPASS",
}


def error_word(error: Exception) -> str:
    """Give the first word of a server's error, the one that programs are meant to read."""
    return _WORD_OF_CLASS.get(type(error).__name__) or str(error).partition(" ")[0]


def leaves_clean(error: BaseException) -> bool:
    """Tell whether a connection is fit for the next call: its reply was read, and it leads to a primary."""
    return isinstance(error, ResponseError) and error_word(error) not in ("READONLY", "MASTERDOWN")


@dataclass(slots=True)
class Sending:
    """Whether any byte of a try may have reached the server."""

    begun: bool = False


class Patience:
    """Decide after a failed try whether, and when, to try again; give up with the error that the caller sees."""

    def __init__(self, move: Move | Command, seconds: float) -> None:
        self._move = move
        self._until = time.monotonic() + seconds
        self._tries = 0
        self._unknown = False

    def pause(self, error: Exception, sent: bool) -> float:
        """Give the seconds to wait before the next try, or raise."""
        if not isinstance(error, RedisError | OSError):
            raise error if isinstance(error, errors.ShampooError) else self._defect(error) from error
        word = error_word(error)
        if isinstance(error, ResponseError) and word not in PASSING and word not in LASTING:
            raise self._refusal(error, word) from None
        answered = word in PASSING or word in LASTING
        self._unknown = self._unknown or (sent and not answered)
        self._tries += 1
        pause = random.uniform(0.5, 1.0) * min(1.0, 0.01 * 2.0**self._tries)
        if word in LASTING or time.monotonic() + pause > self._until:
            raise self._unavailable(error, word) from error
        return pause

    def _refusal(self, error: Exception, word: str) -> Refusal:
        kind = errors.REFUSALS.get(word.lower())
        if kind:
            return kind(request_id=self._move.request_id)
        return self._defect(error)

    def _defect(self, error: Exception) -> Internal:
        """Log what went wrong under an id, and give the caller that id."""
        number = uuid.uuid4().hex[:12]
        where = scripts.script(self._move.script).locate(str(error)) if isinstance(self._move, Move) else "a command"
        log.error("internal error %s in %s: %s: %s", number, where, type(error).__name__, error)
        return Internal(f"see the log for {number}", request_id=self._move.request_id, outcome_unknown=True)

    def _unavailable(self, error: Exception, word: str) -> Unavailable:
        reason = PASSING.get(word) or LASTING.get(word)
        if reason is None:
            reason = "no answer in time" if isinstance(error, TimeoutError) else "the connection failed"
        refusal = Unavailable(reason, request_id=self._move.request_id, outcome_unknown=self._unknown)
        refusal.retryable = word not in ("NOAUTH", "WRONGPASS", "NOPERM")
        return refusal


class _Wire:
    """What both wires share: the route, the profile, and how a move is spelled on the connection."""

    def __init__(self, route: Route, profile: str, retry_seconds: float, lua: Path | None = None) -> None:
        self.route, self.profile = route, profile
        self.retry_seconds = retry_seconds
        self.warnings: list[str] = []
        self._key = keys.spell(profile, "profile")
        self._lua = lua
        self._pool: Any = None

    def _script(self, move: Move) -> scripts.Script:
        script = scripts.script(move.script, self._lua)
        return script.plain if self.route.in_memory else script

    def _spelled(self, move: Move | Command) -> tuple[Any, ...]:
        if isinstance(move, Command):
            return move.arguments
        return ("EVALSHA", self._script(move).sha, 1, self._key, *move.arguments)

    def _loading(self, move: Move | Command, error: NoScriptError) -> tuple[str, str, str]:
        if isinstance(move, Command):
            raise error
        return ("SCRIPT", "LOAD", self._script(move).text)

    def _accept(self, info: Any, config: Any) -> None:
        """Hold the server against what the queue needs, at start-up."""
        facts = dict(line.split(":", 1) for line in _text(info).splitlines() if ":" in line)
        settings = _pairs(config)
        self.warnings = check_server(
            self.route.name, facts | {"save": settings.get("save", "?")}, settings.get("maxmemory-policy")
        )
        for warning in self.warnings:
            log.warning(warning)


_INFO = ("INFO",)
_CONFIG = ("CONFIG", "GET", "maxmemory-policy", "save")


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _pairs(reply: Any) -> dict[str, str]:
    """Read CONFIG GET's reply, a map under RESP3 and a flat list under RESP2; nothing when the server kept it."""
    if isinstance(reply, dict):
        return {_text(name): _text(value) for name, value in reply.items()}
    flat = [_text(part) for part in reply or ()]
    return dict(zip(flat[::2], flat[1::2], strict=True))


class Wire(_Wire):
    """Run operations on blocking connections; safe to share between threads, and across a fork."""

    def start(self, target: Any) -> None:
        """Reach the server and check it; raise `EngineError` with one clear line when it cannot serve."""
        try:
            self.route.start()
            self._pool = self.route.pool(False)
            if not self.route.in_memory:
                info = self._exchange(_INFO)
                try:
                    config = self._exchange(_CONFIG)
                except ResponseError:  # a managed server may keep its settings to itself
                    config = None
                self._accept(info, config)
        except (RedisError, OSError) as error:
            raise cannot_reach(self.route.name, error, target) from None

    def run(self, operation: Operation[T]) -> T:
        """Run one operation to its result."""
        step: Callable[[Any], Move | Command] = operation.send
        reply: Any = None
        try:
            while True:
                move = step(reply)
                try:
                    step, reply = operation.send, self._carry(move)
                except errors.ShampooError as refusal:
                    step, reply = operation.throw, refusal
        except StopIteration as end:
            result: T = end.value
            return result

    def close(self) -> None:
        """Close every connection that is ours."""
        if self._pool is not None and self.route.owned:
            self._pool.disconnect()
        self.route.close()

    def _carry(self, move: Move | Command) -> Any:
        patience: Patience | None = None
        while True:
            sending = Sending()
            try:
                try:
                    return self._exchange(self._spelled(move), sending)
                except NoScriptError as missing:
                    self._exchange(self._loading(move, missing))
                    return self._exchange(self._spelled(move), sending)
            except Exception as error:
                patience = patience or Patience(move, self.retry_seconds)
                time.sleep(patience.pause(error, sending.begun))
                self._mend(error)

    def _mend(self, error: Exception) -> None:
        try:
            self.route.mend(error)
            self._pool = self.route.renewed(self._pool, False)
        except (RedisError, OSError, EngineError) as still:
            log.debug("%s is still away: %s", self.route.name, still)

    def _exchange(self, spelled: tuple[Any, ...], sending: Sending | None = None) -> Any:
        """Send one command and read its reply. A connection that may hold an unread reply is dropped."""
        pool = self._pool
        connection = pool.get_connection()
        try:
            if sending:
                sending.begun = True
            connection.send_command(*spelled)
            return connection.read_response(disable_decoding=True)
        except BaseException as error:
            if not leaves_clean(error):
                connection.disconnect()
            raise
        finally:
            pool.release(connection)


class AsyncWire(_Wire):
    """Run operations on asyncio connections; each event loop and each process gets connections of its own."""

    def __init__(self, route: Route, profile: str, retry_seconds: float, lua: Path | None = None) -> None:
        super().__init__(route, profile, retry_seconds, lua)
        self._home: tuple[int, asyncio.AbstractEventLoop] | None = None
        self._starting: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None

    async def start(self, target: Any) -> None:
        """Reach the server and check it, once in each event loop; raise `EngineError` when it cannot serve."""
        loop = asyncio.get_running_loop()
        home = (os.getpid(), loop)
        if self._home == home:
            return
        if self._starting is None or self._starting[0] is not loop:
            self._starting = (loop, asyncio.Lock())
        async with self._starting[1]:
            if self._home != home:
                await self._start(target)
                self._home = home

    async def _start(self, target: Any) -> None:
        try:
            await asyncio.to_thread(self.route.start)
            self._pool = self.route.pool(True)
            if not self.route.in_memory:
                info = await self._exchange(_INFO)
                try:
                    config = await self._exchange(_CONFIG)
                except ResponseError:  # a managed server may keep its settings to itself
                    config = None
                self._accept(info, config)
        except (RedisError, OSError) as error:
            raise cannot_reach(self.route.name, error, target) from None

    async def run(self, operation: Operation[T]) -> T:
        """Run one operation to its result."""
        step: Callable[[Any], Move | Command] = operation.send
        reply: Any = None
        try:
            while True:
                move = step(reply)
                try:
                    step, reply = operation.send, await self._carry(move)
                except errors.ShampooError as refusal:
                    step, reply = operation.throw, refusal
        except StopIteration as end:
            result: T = end.value
            return result

    async def close(self) -> None:
        """Close every connection that is ours."""
        if self._pool is not None and self.route.owned and self._home == (os.getpid(), asyncio.get_running_loop()):
            await self._pool.disconnect()
        await asyncio.to_thread(self.route.close)

    async def _carry(self, move: Move | Command) -> Any:
        patience: Patience | None = None
        while True:
            sending = Sending()
            try:
                try:
                    return await self._exchange(self._spelled(move), sending)
                except NoScriptError as missing:
                    await self._exchange(self._loading(move, missing))
                    return await self._exchange(self._spelled(move), sending)
            except Exception as error:
                patience = patience or Patience(move, self.retry_seconds)
                await asyncio.sleep(patience.pause(error, sending.begun))
                await self._mend(error)

    async def _mend(self, error: Exception) -> None:
        try:
            await asyncio.to_thread(self.route.mend, error)
            self._pool = self.route.renewed(self._pool, True)
        except (RedisError, OSError, EngineError) as still:
            log.debug("%s is still away: %s", self.route.name, still)

    async def _exchange(self, spelled: tuple[Any, ...], sending: Sending | None = None) -> Any:
        """Send one command and read its reply. A connection that may hold an unread reply is dropped.

        Cancelling the caller counts as such; giving the connection back is shielded from a second cancellation.
        """
        pool = self._pool
        connection = await pool.get_connection()
        clean = False
        try:
            if sending:
                sending.begun = True
            await connection.send_command(*spelled)
            reply = await connection.read_response(disable_decoding=True)
            clean = True
            return reply
        except ResponseError as error:
            clean = leaves_clean(error)
            raise
        finally:
            await asyncio.shield(_give_back(pool, connection, clean))


async def _give_back(pool: Any, connection: Any, clean: bool) -> None:
    if not clean:
        await connection.disconnect(nowait=True)
    await pool.release(connection)
