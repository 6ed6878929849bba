"""What an operation asks for, step by step. An operation is a generator that yields steps and is sent their replies; it
does no I/O, so that one text serves blocking code and asyncio.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(slots=True)
class Move:
    """One run of a script: its name and its arguments; the key is the profile's."""

    script: str
    arguments: tuple[str | bytes, ...]
    request_id: str | None = None


@dataclass(slots=True)
class Command:
    """One plain command of an operator's reading, for instance SCAN; ``outside`` says that its key is of no profile."""

    arguments: tuple[str | bytes | int, ...]
    request_id: str | None = None
    outside: bool = False


@dataclass(slots=True)
class Block:
    """Wait until a sign appears in a list of the profile, or for so many seconds; the reply is empty then."""

    family: str
    name: str
    seconds: float
    request_id: str | None = None


@dataclass(slots=True)
class Pause:
    """Wait, without asking the server."""

    seconds: float


class Abandoned(BaseException):
    """Raised inside an operation whose caller was cancelled or interrupted: it may send one last move, and must end."""


Sent = Move | Command | Block
# A list of moves travels together; its reply is a list of replies and `ShampooError`, in order.
Step = Sent | Pause | list[Sent]
Operation = Generator[Step, Any, T]

_TOGETHER = 100  # moves in one sending
_BYTES_TOGETHER = 2**20


def parts(moves: list[Sent]) -> Iterator[list[Sent]]:
    """Cut a list into sendings of bounded number and size."""
    part: list[Sent] = []
    size = 0
    for move in moves:
        weight = sum(len(argument) for argument in move.arguments) if isinstance(move, Move) else 0
        if part and (len(part) == _TOGETHER or size + weight > _BYTES_TOGETHER):
            yield part
            part, size = [], 0
        part.append(move)
        size += weight
    if part:
        yield part
