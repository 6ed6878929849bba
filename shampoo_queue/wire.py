"""Carry moves to the server and their replies back, once each, over redis-py's connections.

The two wires here run operations, one blocking and one on asyncio, and share everything but the waiting. Sending again
is decided here and nowhere below; only NOSCRIPT, which says that nothing ran, is repeated at once.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from redis.exceptions import NoScriptError, RedisError, ResponseError

from . import errors, keys, scripts
from .engines import Route, cannot_reach, check_server
from .errors import EngineError, Unavailable
from .moves import Abandoned, Block, Command, Move, Operation, Pause, Sent, Step, T, parts
from .packets import Packets, give_back
from .patience import PASSING, Patience, Sending, error_word, leaves_clean
from .trace import span

log = logging.getLogger("shampoo_queue")

_FAREWELL_SECONDS = 0.5


def _missing(moves: list[Sent], replies: list[Any]) -> dict[int, Move]:
    """Give the moves, by place, that did not run because their script was not loaded."""
    pairs = enumerate(zip(moves, replies, strict=True))
    return {n: move for n, (move, reply) in pairs if isinstance(reply, NoScriptError) and isinstance(move, Move)}


def _filled(replies: list[Any], places: Iterable[int], again: list[Any]) -> list[Any]:
    found = dict(zip(places, again, strict=True))
    return [found.get(n, reply) for n, reply in enumerate(replies)]


def not_missing(error: Exception) -> Exception | None:
    """Leave out that a script was not loaded: nothing ran, and the next try loads it."""
    return None if isinstance(error, NoScriptError) else error


class _Wire:
    """What both wires share: the route, the profile, and how a move is spelled on the connection."""

    def __init__(self, route: Route, profile: str, retry_seconds: float, lua: Path | None = None) -> None:
        self.route, self.profile = route, profile
        self.retry_seconds = retry_seconds
        self.warnings: list[str] = []
        self._key = keys.spell(profile, "profile")
        self._lua = lua
        self._outside: Any = None

    def _for_outside(self) -> Any:
        """Give the wire to what belongs to no profile, when that is another server than the profile's."""
        if self._outside is None and (route := self.route.outside()):
            self._outside = type(self)(route, keys.OUTSIDE, self.retry_seconds)
        return self._outside

    def _script(self, move: Move) -> scripts.Script:
        script = scripts.script(move.script, self._lua)
        return script.plain if self.route.in_memory else script

    def _spelled(self, move: Sent, pool: Any) -> tuple[Any, ...]:
        if isinstance(move, Command):
            return move.arguments
        if isinstance(move, Block):
            # Shorter than the time after which a silent server counts as gone.
            silence = pool.connection_kwargs.get("socket_timeout")
            seconds = min(move.seconds, silence * 0.8) if silence else move.seconds
            return ("BLPOP", keys.spell(self.profile, move.family, move.name), f"{max(seconds, 0.001):.3f}")
        return ("EVALSHA", self._script(move).sha, 1, self._key, *move.arguments)

    def _loading(self, move: Sent, error: NoScriptError) -> tuple[str, str, str]:
        if not isinstance(move, Move):
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

    def __init__(self, route: Route, profile: str, retry_seconds: float, lua: Path | None = None) -> None:
        super().__init__(route, profile, retry_seconds, lua)
        self._pool: Any = None
        self._renewing = threading.Lock()

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
            raise cannot_reach(self.route.name, self.route.reason(error), target) from None

    def run(self, operation: Operation[T]) -> T:
        """Run one operation to its result."""
        go_on: Callable[[Any], Step] = operation.send
        reply: Any = None
        try:
            while True:
                step = go_on(reply)
                try:
                    go_on, reply = operation.send, self._take(step)
                except errors.ShampooError as refusal:
                    go_on, reply = operation.throw, refusal
                except BaseException:
                    with suppress(Abandoned, StopIteration, RedisError, OSError):
                        last = operation.throw(Abandoned())
                        if isinstance(last, Move):
                            self._exchange(self._spelled(last, self._pool))
                    raise
        except StopIteration as end:
            result: T = end.value
            return result

    def _take(self, step: Step) -> Any:
        if isinstance(step, Pause):
            return time.sleep(step.seconds)
        if isinstance(step, list):
            return [reply for part in parts(step) for reply in self._carry_together(part)]
        if isinstance(step, Command) and step.outside and (outside := self._for_outside()):
            if outside._pool is None:
                outside.start(None)
            return outside._carry(step)
        if isinstance(step, Move):
            with span(f"shampoo.move {step.script}", profile=self.profile):
                return self._carry(step)
        return self._carry(step)

    def close(self) -> None:
        """Close every connection that is ours."""
        if self._outside is not None:
            self._outside.close()
        if self._pool is not None and self.route.owned:
            self.route.close_pools(self._pool)
        self.route.close()

    def _carry(self, move: Sent, patience: Patience | None = None, failed: Exception | None = None) -> Any:
        """Carry one move; ``failed`` is how its first try ended, if it had one in company."""
        patience = patience or Patience(move, self.retry_seconds)
        sent = True
        while True:
            if failed:
                time.sleep(patience.pause(failed, sent))
                self._mend(failed)
                patience.still()
            sending = Sending()
            try:
                try:
                    return self._exchange(self._spelled(move, self._pool), sending)
                except NoScriptError as missing:
                    self._exchange(self._loading(move, missing))
                    return self._exchange(self._spelled(move, self._pool), sending)
            except Exception as error:
                failed, sent = error, sending.begun

    def _carry_together(self, moves: list[Sent]) -> list[Any]:
        """Send moves in one go; those without an answer are carried on one by one, each under its request id."""
        patiences = [Patience(move, self.retry_seconds) for move in moves]
        replies = self._exchange_together([self._spelled(move, self._pool) for move in moves])
        if missing := _missing(moves, replies):
            loads = {move.script: ("SCRIPT", "LOAD", self._script(move).text) for move in missing.values()}
            again = [*loads.values(), *(self._spelled(move, self._pool) for move in missing.values())]
            replies = _filled(replies, missing, self._exchange_together(again)[len(loads) :])
        for n, (move, reply) in enumerate(zip(moves, replies, strict=True)):
            if isinstance(reply, Exception):
                try:
                    replies[n] = self._carry(move, patiences[n], not_missing(reply))
                except errors.ShampooError as refusal:
                    replies[n] = refusal
        return replies

    def _mend(self, error: Exception) -> None:
        try:
            self.route.mend(error)
            with self._renewing:
                before, self._pool = self._pool, self.route.renewed(self._pool, False)
            if before is not self._pool:
                before.disconnect(inuse_connections=False)
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

    def _exchange_together(self, spelled: list[tuple[Any, ...]]) -> list[Any]:
        """Send commands in one go and read a reply or an error for each."""
        pool = self._pool
        replies: list[Any] = []
        try:
            connection = pool.get_connection()
        except (RedisError, OSError) as error:
            return [error] * len(spelled)
        try:
            connection.send_packed_command(connection.pack_commands(spelled))
            while len(replies) < len(spelled):
                try:
                    replies.append(connection.read_response(disable_decoding=True))
                except ResponseError as error:
                    replies.append(error)
            if not all(leaves_clean(reply) for reply in replies if isinstance(reply, Exception)):
                connection.disconnect()
        except (RedisError, OSError) as error:
            connection.disconnect()
            replies += [error] * (len(spelled) - len(replies))
        except BaseException:
            connection.disconnect()
            raise
        finally:
            pool.release(connection)
        return replies


@dataclass(slots=True)
class _Home:
    """What one event loop of one process has for itself."""

    pid: int
    starting: asyncio.Lock
    pool: Any = None
    packets: Packets = field(init=False)
    loading: dict[str, asyncio.Future[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.packets = Packets(lambda: self.pool)


class AsyncWire(_Wire):
    """Run operations on asyncio connections; each event loop and each process gets connections of its own."""

    def __init__(self, route: Route, profile: str, retry_seconds: float, lua: Path | None = None) -> None:
        super().__init__(route, profile, retry_seconds, lua)
        self._homes: dict[asyncio.AbstractEventLoop, _Home] = {}

    async def start(self, target: Any) -> None:
        """Reach the server and check it, once in each event loop; raise `EngineError` when it cannot serve."""
        home = self._home()
        if home.pool is not None:
            return
        async with home.starting:
            if home.pool is None:
                await self._start(home, target)

    def _home(self) -> _Home:
        loop = asyncio.get_running_loop()
        home = self._homes.get(loop)
        if home is None or home.pid != os.getpid():
            for other in [other for other in self._homes if other.is_closed()]:
                del self._homes[other]
            home = self._homes[loop] = _Home(os.getpid(), asyncio.Lock())
        return home

    async def _start(self, home: _Home, target: Any) -> None:
        pool = None
        try:
            await asyncio.to_thread(self.route.start)
            pool = self.route.pool(True)
            if not self.route.in_memory:
                info = await self._exchange(pool, _INFO)
                try:
                    config = await self._exchange(pool, _CONFIG)
                except ResponseError:  # a managed server may keep its settings to itself
                    config = None
                self._accept(info, config)
            home.pool = pool
        except (RedisError, OSError) as error:
            raise cannot_reach(self.route.name, await asyncio.to_thread(self.route.reason, error), target) from None
        finally:
            if pool is not None and home.pool is None and self.route.owned:
                await self.route.close_async_pools(pool)

    async def run(self, operation: Operation[T]) -> T:
        """Run one operation to its result."""
        go_on: Callable[[Any], Step] = operation.send
        reply: Any = None
        task = asyncio.current_task()
        cancelled_before = task.cancelling() if task else 0
        try:
            while True:
                step = go_on(reply)
                try:
                    go_on, reply = operation.send, await self._take(step)
                    _unless_cancelled(task, cancelled_before)
                except errors.ShampooError as refusal:
                    go_on, reply = operation.throw, refusal
                except BaseException:
                    with suppress(Abandoned, StopIteration, RedisError, OSError):  # a timeout is an OSError
                        last = operation.throw(Abandoned())
                        if isinstance(last, Move) and (pool := self._home().pool) is not None:
                            sending = self._exchange(pool, self._spelled(last, pool))
                            await asyncio.wait_for(sending, _FAREWELL_SECONDS)
                    raise
        except StopIteration as end:
            result: T = end.value
            return result

    async def _take(self, step: Step) -> Any:
        if isinstance(step, Pause):
            return await asyncio.sleep(step.seconds)
        if isinstance(step, list):
            return [reply for part in parts(step) for reply in await self._carry_together(part)]
        if isinstance(step, Command) and step.outside and (outside := self._for_outside()):
            await outside.start(None)
            return await outside._carry(step)
        if isinstance(step, Move):
            with span(f"shampoo.move {step.script}", profile=self.profile):
                return await self._carry(step)
        return await self._carry(step)

    async def close(self) -> None:
        """Close every connection of this event loop that is ours."""
        if self._outside is not None:
            await self._outside.close()
        home = self._homes.pop(asyncio.get_running_loop(), None)
        if home is not None and home.pid == os.getpid() and home.pool is not None and self.route.owned:
            await self.route.close_async_pools(home.pool)
        await asyncio.to_thread(self.route.close)

    async def _carry(self, move: Sent, patience: Patience | None = None, failed: Exception | None = None) -> Any:
        """Carry one move; ``failed`` is how its first try ended, if it had one in company."""
        home = self._home()
        if home.pool is None:
            raise Unavailable("the queue was closed")
        patience = patience or Patience(move, self.retry_seconds)
        sent = True
        while True:
            if failed:
                await asyncio.sleep(patience.pause(failed, sent))
                await self._mend(home, failed)
                patience.still()
            sending = Sending()
            try:
                if not isinstance(move, Move):
                    return await self._exchange(home.pool, self._spelled(move, home.pool), sending)
                try:
                    return await home.packets.send(self._spelled(move, home.pool), sending)
                except NoScriptError:
                    await self._load(home, move)
                    return await home.packets.send(self._spelled(move, home.pool), sending)
            except Exception as error:
                failed, sent = error, sending.begun

    async def _load(self, home: _Home, move: Move) -> None:
        """Load a move's script, once for all who miss it at this moment."""
        loading = home.loading.get(move.script)
        if loading is None:
            load = ("SCRIPT", "LOAD", self._script(move).text)
            loading = home.loading[move.script] = asyncio.ensure_future(self._exchange(home.pool, load))
            loading.add_done_callback(lambda ended: _forget(home.loading, move.script, ended))
        await asyncio.shield(loading)

    async def once(self, move: Move) -> Any:
        """Carry one move without any patience; raise what the connection or the server says."""
        home = self._home()
        try:
            try:
                return await self._exchange(home.pool, self._spelled(move, home.pool))
            except NoScriptError as missing:
                await self._exchange(home.pool, self._loading(move, missing))
                return await self._exchange(home.pool, self._spelled(move, home.pool))
        except (RedisError, OSError) as error:
            if not isinstance(error, ResponseError) or error_word(error) in PASSING:
                await self._mend(home, error)
            raise

    async def _carry_together(self, moves: list[Sent]) -> list[Any]:
        """Send moves in one go; those without an answer are carried on one by one, each under its request id."""
        pool = self._home().pool
        patiences = [Patience(move, self.retry_seconds) for move in moves]
        replies = await self._exchange_together(pool, [self._spelled(move, pool) for move in moves])
        if missing := _missing(moves, replies):
            loads = {move.script: ("SCRIPT", "LOAD", self._script(move).text) for move in missing.values()}
            again = [*loads.values(), *(self._spelled(move, pool) for move in missing.values())]
            replies = _filled(replies, missing, (await self._exchange_together(pool, again))[len(loads) :])
        for n, (move, reply) in enumerate(zip(moves, replies, strict=True)):
            if isinstance(reply, Exception):
                try:
                    replies[n] = await self._carry(move, patiences[n], not_missing(reply))
                except errors.ShampooError as refusal:
                    replies[n] = refusal
        return replies

    async def _mend(self, home: _Home, error: Exception) -> None:
        try:
            await asyncio.to_thread(self.route.mend, error)
            before, home.pool = home.pool, self.route.renewed(home.pool, True)
            if before is not home.pool:
                await before.disconnect(inuse_connections=False)
        except (RedisError, OSError, EngineError) as still:
            log.debug("%s is still away: %s", self.route.name, still)

    async def _exchange(self, pool: Any, spelled: tuple[Any, ...], sending: Sending | None = None) -> Any:
        """Send one command and read its reply. A connection that may hold an unread reply is dropped.

        Cancelling the caller counts as such; giving the connection back is shielded from a second cancellation.
        """
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
            await asyncio.shield(give_back(pool, connection, clean))

    async def _exchange_together(self, pool: Any, spelled: list[tuple[Any, ...]]) -> list[Any]:
        """Send commands in one go and read a reply or an error for each."""
        replies: list[Any] = []
        try:
            connection = await pool.get_connection()
        except (RedisError, OSError) as error:
            return [error] * len(spelled)
        clean = False
        try:
            await connection.send_packed_command(connection.pack_commands(spelled))
            while len(replies) < len(spelled):
                try:
                    replies.append(await connection.read_response(disable_decoding=True))
                except ResponseError as error:
                    replies.append(error)
            clean = all(leaves_clean(reply) for reply in replies if isinstance(reply, Exception))
        except (RedisError, OSError) as error:
            replies += [error] * (len(spelled) - len(replies))
        finally:
            await asyncio.shield(give_back(pool, connection, clean))
        return replies


def _forget(loading: dict[str, asyncio.Future[Any]], script: str, ended: asyncio.Future[Any]) -> None:
    del loading[script]
    if not ended.cancelled():
        ended.exception()  # when all who wanted it were cancelled, it leaves no complaint behind


def _unless_cancelled(task: asyncio.Task[Any] | None, before: int) -> None:
    """Cancel what was asked to be and goes on: Python 3.11 can lose a request that comes as a command is sent."""
    if task and task.cancelling() > before:
        raise asyncio.CancelledError
