"""Send what the tasks of one event loop send in the same moment in one packet, over one connection.

Fifty callers then cost Redis and this process a few system calls instead of fifty, and a few connections. Each command
has its own reply; a caller that is cancelled leaves its reply unread by anybody else. At most a few packets are on the
way at a time, and what comes meanwhile goes with the next: callers that are cancelled while a server stands still, and
call again, pile nothing up.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from .patience import Sending, leaves_clean

_AT_ONCE = 8  # packets
_CROWDED = 64  # waiting commands from which on those whose caller is gone are cleared away
_COMMANDS = 100  # in one packet
_BYTES = 2**18

Spelled = tuple[Any, ...]


@dataclass(slots=True)
class _Leaving:
    """One command on its way, and where its reply is waited for."""

    spelled: Spelled
    sending: Sending
    reply: asyncio.Future[Any]

    def tell(self, reply: Any) -> None:
        if not self.reply.done():
            self.reply.set_result(reply)

    def fail(self, error: Exception) -> None:
        if not self.reply.done():
            self.reply.set_exception(error)
            self.reply.exception()  # a caller that is cancelled right now must leave no complaint behind


class Packets:
    """The packets of one event loop. ``pool`` gives the pool of the moment."""

    def __init__(self, pool: Callable[[], Any]) -> None:
        self._pool = pool
        self._leaving: deque[_Leaving] = deque()
        self._crowded_at = _CROWDED
        self._departing = False
        self._travelling: set[asyncio.Task[None]] = set()

    def send(self, spelled: Spelled, sending: Sending) -> asyncio.Future[Any]:
        """Send a command with the others of this turn of the event loop; give where its reply will be."""
        loop = asyncio.get_running_loop()
        leaving = _Leaving(spelled, sending, loop.create_future())
        if len(self._leaving) >= self._crowded_at:  # while a server stands still, some may have given up
            self._leaving = deque(one for one in self._leaving if not one.reply.done())
            self._crowded_at = max(_CROWDED, 2 * len(self._leaving))
        self._leaving.append(leaving)
        if not self._departing and len(self._travelling) < _AT_ONCE:
            self._departing = True
            loop.call_soon(self._depart)
        return leaving.reply

    def _depart(self) -> None:
        self._departing = False
        while len(self._travelling) < _AT_ONCE and (packet := self._next()):
            travel = asyncio.ensure_future(self._travel(packet))
            self._travelling.add(travel)
            travel.add_done_callback(partial(self._arrived, packet))

    def _arrived(self, packet: list[_Leaving], travel: asyncio.Task[None]) -> None:
        self._travelling.discard(travel)
        if not travel.cancelled():
            self._depart()
            return
        # Somebody cancels every task of the loop, or the loop ends; whoever still waits is told, and may try again.
        left, self._leaving = [*packet, *self._leaving], deque()
        for one in left:
            one.fail(RedisConnectionError("the sending was cancelled"))

    def _next(self) -> list[_Leaving]:
        """Take the next packet, of bounded number and size; those whose caller is gone stay behind."""
        packet: list[_Leaving] = []
        size = 0
        while self._leaving and len(packet) < _COMMANDS:
            one = self._leaving[0]
            weight = sum(len(part) for part in one.spelled if isinstance(part, str | bytes))
            if packet and size + weight > _BYTES:
                break
            self._leaving.popleft()
            if not one.reply.done():
                packet.append(one)
                size += weight
        return packet

    async def _travel(self, packet: list[_Leaving]) -> None:
        connection, pool, clean = None, self._pool(), False
        try:
            connection = await pool.get_connection()
            packet = [one for one in packet if not one.reply.done()]  # those whose caller is still there
            for one in packet:
                one.sending.begun = True
            await connection.send_packed_command(connection.pack_commands([one.spelled for one in packet]))
            clean = True
            for one in packet:
                try:
                    one.tell(await connection.read_response(disable_decoding=True))
                except ResponseError as refused:
                    clean = clean and leaves_clean(refused)
                    one.fail(refused)
        except Exception as error:
            clean = False
            for one in packet:
                one.fail(error)
        except BaseException:
            clean = False
            raise
        finally:
            if connection is not None:
                await give_back(pool, connection, clean)


async def give_back(pool: Any, connection: Any, clean: bool) -> None:
    """Give a connection back to its pool; one that may hold an unread reply is closed before."""
    if not clean:
        await connection.disconnect(nowait=True)
    await pool.release(connection)
