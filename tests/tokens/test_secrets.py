"""A token's text is given to whoever issues it and to nobody else: not to Redis, nor to what Redis tells of itself."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis

from shampoo_queue.errors import Unauthenticated
from shampoo_queue.registry import IssuedToken
from tests.conftest import REAL
from tests.contract.cast import PROJECT
from tests.queue import Clock, Queue
from tests.tokens.cast import client, presented

on_real_servers = pytest.mark.parametrize("engine", REAL, indirect=True)


@pytest.fixture
def server(queue: Queue) -> Iterator[Any]:
    """A plain connection to the server behind a queue."""
    queue.command("PING")
    pool = queue.shampoo._wire._pool
    assert pool is not None
    kept = {
        name: pool.connection_kwargs.get(name) for name in ("host", "port", "path") if name in pool.connection_kwargs
    }
    if "path" in kept:
        kept = {"unix_socket_path": kept["path"]}
    with Redis(**kept) as link:
        yield link


def use(queue: Queue) -> list[IssuedToken]:
    """Issue, use, rotate and revoke tokens, and present one that is no good."""
    registry = queue.shampoo.registry
    queue.principal("c", PROJECT, conductor=True)
    first = registry.issue_token("c", expires_seconds=60)
    known = client(queue, first)
    known.job_create(kind="k", project=PROJECT, payload="x")
    known.job_complete(job_id=known.job_claim().job_id, outcome="completed")
    second = registry.rotate_token(first.token_id)
    registry.revoke_token(first.token_id)
    with pytest.raises(Unauthenticated):
        known.job_claim()
    client(queue, second).lane_list()
    registry.tokens()
    return [first, second]


def secrets(token: IssuedToken) -> list[str]:
    """Every part of a token's text that nobody else may see, whole or in pieces."""
    secret = token.token[17:]
    return [secret[n : n + 12] for n in range(0, len(secret), 12)]


@on_real_servers
def test_no_key_no_log_and_no_monitor_sees_a_token(queue: Queue, clock: Clock, server: Any) -> None:
    server.config_set("slowlog-log-slower-than", 0)
    server.slowlog_reset()
    lines: list[str] = []
    with server.monitor() as monitor:
        listening = threading.Thread(target=lambda: lines.extend(_until_end(monitor)))
        listening.start()
        tokens = use(queue)
        server.echo("the end of it")
        listening.join(20)
    server.config_set("slowlog-log-slower-than", 10_000)
    assert not listening.is_alive()
    seen = "\n".join(
        [*lines, repr(server.slowlog_get(10_000)), everything(server), repr(queue.shampoo.history(limit=1000))]
    )
    assert any("evalsha" in line.lower() for line in lines)
    for token in tokens:
        assert token.token_id in seen
        assert presented(token).digest in seen  # so that what is looked at is what holds it
        assert not [part for part in secrets(token) if part in seen]


def _until_end(monitor: Any) -> Iterator[str]:
    for command in monitor.listen():
        yield command["command"]
        if "the end of it" in command["command"]:
            return


def everything(server: Any) -> str:
    """Read every key of the server, whatever it holds."""
    return repr([(key, server.dump(key)) for key in server.scan_iter(count=1000)])


def test_the_history_tells_ids_alone(queue: Queue, clock: Clock) -> None:
    tokens = use(queue)
    told = repr(queue.shampoo.history(limit=1000)) + repr(queue.shampoo.registry.tokens())
    for token in tokens:
        assert token.token_id in told
        assert presented(token).digest not in told
        assert not [part for part in secrets(token) if part in told]


def test_no_object_shows_a_token_when_it_is_printed(queue: Queue, clock: Clock) -> None:
    token = use(queue)[1]
    known = client(queue, token)
    shown = f"{token!r} {presented(token)!r} {known!r} {known.client_id!r}"
    assert not [part for part in secrets(token) if part in shown]
    assert f"{token.token_id}" in repr(token)


def test_no_log_line_of_a_refused_call_shows_a_token(
    queue: Queue, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(0)
    queue.principal("w", PROJECT)
    token = queue.shampoo.registry.issue_token("w")
    key = queue.key("token", token.token_id)
    facts = queue.command("HGETALL", key)
    queue.command("DEL", key)
    queue.command("SET", key, "text")
    with pytest.raises(Unauthenticated) as refusal:
        client(queue, token).job_claim()
    queue.command("DEL", key)
    queue.command("HSET", key, *facts)
    said = caplog.text + repr(refusal.value) + str(refusal.value)
    assert not [part for part in secrets(token) if part in said]
