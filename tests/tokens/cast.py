"""Principals who come with tokens, and whatever can be wrong with one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from shampoo_queue import Client, scripts, tokens
from shampoo_queue.registry import IssuedToken
from shampoo_queue.tokens import Presented
from tests.contract.test_scripts import move
from tests.queue import Clock, Queue

# Every script that a token may call: the piece `token` stands in each before anything of its own.
TAKING_TOKENS = [name for name in scripts.names() if "token" in move(name).pieces]


def presented(token: str | IssuedToken) -> Presented:
    found = tokens.read(token if isinstance(token, str) else token.token)
    assert found is not None
    return found


def client(queue: Queue, token: str | IssuedToken | Presented, holder: str = "h") -> Client:
    """Give the client of whoever presents a token."""
    caller: Any = token if isinstance(token, Presented) else presented(token)
    return queue.shampoo.client(caller, holder=holder)


def raw(queue: Queue, script: str, caller: str, *arguments: str) -> Any:
    """Run a script in a caller's name; arguments that are not given are empty."""
    return queue.move(script, caller, "h", "", "", "", "", *arguments, *[""] * (12 - len(arguments)))


@contextmanager
def _edited(queue: Queue, key: str, *command: str) -> Iterator[None]:
    """Change a key by hand, and put it back afterwards."""
    kept = queue.key("test-clock") + "-kept"
    queue.command("COPY", key, kept, "REPLACE")
    for line in command:
        queue.command(*line.split(" "))
    try:
        yield
    finally:
        queue.command("RENAME", kept, key)


def _hash(*lines: str) -> Callable[[Queue, Clock, IssuedToken], Any]:
    def spoil(queue: Queue, clock: Clock, token: IssuedToken) -> Any:
        key = queue.key("token", token.token_id)
        return _edited(queue, key, *(line.format(key=key) for line in lines))

    return spoil


@contextmanager
def _revoked(queue: Queue, clock: Clock, token: IssuedToken) -> Iterator[None]:
    queue.shampoo.registry.revoke_token(token.token_id)
    yield


@contextmanager
def _expired(queue: Queue, clock: Clock, token: IssuedToken) -> Iterator[None]:
    clock.advance(1_000)
    yield


@contextmanager
def _disabled(queue: Queue, clock: Clock, token: IssuedToken) -> Iterator[None]:
    queue.shampoo.registry.disable_principal(token.client_id)
    yield
    queue.shampoo.registry.enable_principal(token.client_id)


# What makes a token that was good no longer good: first what it does to the principal, then to the token itself.
DISOWNED: dict[str, Callable[[Queue, Clock, IssuedToken], Any]] = {
    "principal disabled": _disabled,
    "nobody's": _hash("HSET {key} client_id nobody"),
    "somebody long": _hash("HSET {key} client_id " + "x" * 5_000),
}
SPOILED: dict[str, Callable[[Queue, Clock, IssuedToken], Any]] = {
    "revoked": _revoked,
    "expired": _expired,
    "no record": _hash("DEL {key}"),
    "a text": _hash("DEL {key}", "SET {key} live"),
    "a list": _hash("DEL {key}", "RPUSH {key} live"),
    "a set": _hash("DEL {key}", "SADD {key} standing"),
    "no standing": _hash("HDEL {key} standing"),
    "no digest": _hash("HDEL {key} digest"),
    "no client_id": _hash("HDEL {key} client_id"),
    "no expires_at": _hash("HDEL {key} expires_at"),
    "another standing": _hash("HSET {key} standing LIVE"),
    "a cut digest": _hash(f"HSET {{key}} digest {'0' * 63}"),
    "an unreadable end": _hash("HSET {key} expires_at soon"),
    "an end that is no number": _hash("HSET {key} expires_at nan"),
    "an end before all time": _hash("HSET {key} expires_at -inf"),
}


def forged(token: IssuedToken, other: IssuedToken) -> dict[str, Presented]:
    """Give what somebody may present who does not have the token."""
    return {
        "a digest of nothing": Presented(token.token_id, hashlib.sha256(b"").hexdigest()),
        "another token's digest": Presented(token.token_id, presented(other).digest),
        "an unknown id": Presented("0" * 12, presented(token).digest),
        "a digest in capitals": Presented(token.token_id, presented(token).digest.upper()),
        "a digest cut short": Presented(token.token_id, presented(token).digest[:-1]),
        "no digest": Presented(token.token_id, ""),
        "no id": Presented("", presented(token).digest),
        "an id that would be another key": Presented(f"{token.token_id}:x", presented(token).digest),
    }
