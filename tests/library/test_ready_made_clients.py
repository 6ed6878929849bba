"""A redis-py client that the caller made gives the same answers as the URL, whatever its options."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import fakeredis
import pytest
import redis
import redis.asyncio
from redis._parsers import _AsyncHiredisParser, _AsyncRESP2Parser, _HiredisParser, _RESP2Parser
from redis.backoff import ConstantBackoff
from redis.cache import CacheConfig
from redis.retry import Retry

from shampoo_queue import AsyncShampoo, ConfigurationError, EngineError, Shampoo
from shampoo_queue.engines import _MEMORY
from tests.library.flavours import MEMORY, REDIS7, TWO, Flavour, on
from tests.library.script import Names, told
from tests.queue import Engine, Queue
from tests.servers import Server

PARSERS = {
    ("sync", "hiredis"): _HiredisParser,
    ("sync", "python"): _RESP2Parser,
    ("async", "hiredis"): _AsyncHiredisParser,
    ("async", "python"): _AsyncRESP2Parser,
}
OPTIONS = list(itertools.product([False, True], [2, 3], ["hiredis", "python"]))
NAMED = [f"{'decoding' if decode else 'raw'}-resp{protocol}-{parser}" for decode, protocol, parser in OPTIONS]


def hosts(url: str) -> list[tuple[str, int]]:
    pairs = (pair.rpartition(":") for pair in urlsplit(url).netloc.split(","))
    return [(host, int(port)) for host, _, port in pairs]


def made(engine: Engine, flavour: str, **options: Any) -> Any:
    """Make a client of redis-py, or of fakeredis, for an engine."""
    library: Any = redis if flavour == "sync" else redis.asyncio
    if engine.name == "memory":
        kind = fakeredis.FakeRedis if flavour == "sync" else fakeredis.FakeAsyncRedis
        return kind(server=_MEMORY.setdefault("tests", fakeredis.FakeServer()), **options)
    if engine.name == "cluster":
        nodes = [library.cluster.ClusterNode(host, port) for host, port in hosts(engine.url)]
        return library.RedisCluster(startup_nodes=nodes, **options)
    if engine.name == "sentinel":
        sentinel = library.sentinel.Sentinel(hosts(engine.url))
        return sentinel.master_for("shampoo", **options)
    return library.Redis.from_url(engine.url, **options)


_by_url: dict[tuple[str, str], list[Any]] = {}


@pytest.fixture
def same_as_url(engine: Engine, flavour: Flavour) -> Iterator[Any]:
    """Play the long run through a target, and hold its answers against those through the engine's URL."""
    opened: list[Queue] = []

    def played(target: Any) -> list[Any]:
        queue = Queue(engine)
        opened.append(queue)
        clock = queue.stop_clock()
        shampoo = flavour.connect(target, profile=queue.profile, operator="op")
        shampoo._wire._lua = queue.shampoo._wire._lua
        answers: list[Any] = Names(queue.profile).plain(told(shampoo, clock))
        return answers

    def compare(target: Any) -> None:
        known = (engine.name, flavour.name)
        if known not in _by_url:
            _by_url[known] = played(engine.url)
        for step, (by_url, by_client) in enumerate(zip(_by_url[known], played(target), strict=True)):
            assert by_client == by_url, f"step {step}"

    yield compare
    for queue in opened:
        queue.close()


def shut(client: Any, flavour: Flavour) -> None:
    if flavour.name == "sync":
        client.close()
        client.connection_pool.disconnect() if hasattr(client, "connection_pool") else None
    else:
        flavour.runner.run(client.aclose())


@pytest.mark.parametrize(("decode", "protocol", "parser"), OPTIONS, ids=NAMED)
@on("redis7", "sentinel")
def test_any_client_gives_the_answers_of_the_url(
    engine: Engine, flavour: Flavour, same_as_url: Any, decode: bool, protocol: int, parser: str
) -> None:
    """Field report 37: decoding, protocol, parser and flavour change nothing in any answer."""
    client = made(
        engine,
        flavour.name,
        decode_responses=decode,
        protocol=protocol,
        parser_class=PARSERS[flavour.name, parser],
    )
    same_as_url(client)
    shut(client, flavour)


@pytest.mark.parametrize(("decode", "protocol"), [(False, 2), (False, 3), (True, 2), (True, 3)])
@on("cluster", "memory")
def test_any_client_whose_parser_is_not_the_callers_gives_the_answers_of_the_url(
    engine: Engine, flavour: Flavour, same_as_url: Any, decode: bool, protocol: int
) -> None:
    """Field report 37: of a cluster, whose node is found through the client's own nodes and options, and a double."""
    client = made(engine, flavour.name, decode_responses=decode, protocol=protocol)
    same_as_url(client)
    shut(client, flavour)


@pytest.mark.parametrize("options", ["?protocol=3&decode_responses=true", "?protocol=2", "?decode_responses=false"])
@on("redis7", "cluster", "sentinel")
def test_options_in_the_url_change_no_answer(engine: Engine, same_as_url: Any, options: str) -> None:
    """Field report 37: the same options as part of a URL."""
    same_as_url(engine.url + options)


@REDIS7
def test_a_client_that_cannot_speak_to_its_server_is_refused_when_it_is_handed_over(queue: Queue) -> None:
    """Field report 37: redis-py caches on its side only with newer servers; that is said in one clear line."""
    client = redis.Redis.from_url(queue.engine.url, protocol=3, cache_config=CacheConfig())
    with pytest.raises(EngineError, match="client-side caching"):
        Shampoo.connect(client, profile=queue.profile)
    client.close()


@TWO
def test_one_client_may_serve_several_profiles_and_stays_open_when_they_close(queue: Queue, flavour: Flavour) -> None:
    """Field report 37: a connection pool that the caller made is the caller's to close."""
    queue.principal("c", "p", conductor=True)
    client = made(queue.engine, flavour.name)
    first, second = (flavour.connect(client, profile=queue.profile) for _ in range(2))
    job_id = first.client("c").job_create(kind="k", project="p").job_id
    first.close()
    assert second.client("c").job_claim().job_id == job_id
    second.close()
    pong = client.ping()
    assert flavour.runner.run(pong) if flavour.name == "async" else pong
    shut(client, flavour)


@MEMORY
def test_a_client_of_the_other_flavour_is_refused_with_a_hint(engine: Engine, flavour: Flavour) -> None:
    """Field report 37: a clear refusal when the client is handed over, not a strange error later."""
    other = {"sync": "async", "async": "sync"}[flavour.name]
    client = made(engine, other)
    with pytest.raises(ConfigurationError, match=f"belongs to {'AsyncShampoo' if other == 'async' else 'Shampoo'}"):
        flavour.connect(client, profile="p")


@pytest.mark.parametrize("target", [None, 7, b"redis://x", ["redis://x"], object(), redis.ConnectionPool()])
def test_what_is_neither_a_url_nor_a_client_is_refused(target: object) -> None:
    with pytest.raises(ConfigurationError, match="a URL or a redis-py client"):
        Shampoo.connect(target, profile="p")


@REDIS7
@pytest.mark.parametrize("limited", [redis.BlockingConnectionPool, redis.ConnectionPool])
def test_a_pool_with_one_connection_is_enough(queue: Queue, limited: Any) -> None:
    """Field report 37: a call takes one connection and gives it back, also after a refusal."""
    queue.principal("c", "p", conductor=True)
    pool = limited.from_url(queue.engine.url, max_connections=1, decode_responses=True)
    shampoo = Shampoo.connect(redis.Redis(connection_pool=pool), profile=queue.profile)
    client = shampoo.client("c")
    for _ in range(3):
        job_id = client.job_create(kind="k", project="p").job_id
        assert client.call("job_claim")["job_id"] == job_id
        with pytest.raises(Exception, match="job not found"):
            client.job_release(job_id="x")
    shampoo.close()
    pool.disconnect()


def test_a_client_with_retries_of_its_own_does_nothing_twice(own: Queue, server: Server, flavour: Flavour) -> None:
    """Field report 37: a reply that is late by more than the socket's patience is asked for again, not acted anew."""
    own.principal("c", "p", conductor=True)
    library: Any = redis if flavour.name == "sync" else redis.asyncio
    retry = (
        Retry(ConstantBackoff(0.01), 5)
        if flavour.name == "sync"
        else redis.asyncio.retry.Retry(ConstantBackoff(0.01), 5)
    )
    client = library.Redis.from_url(
        server.url, socket_timeout=0.15, retry=retry, retry_on_error=[redis.TimeoutError], retry_on_timeout=True
    )
    caller = flavour.connect(client, profile=own.profile, retry_seconds=10).client("c")
    caller.job_create(kind="warm-up", project="p")
    server.call("CLIENT", "PAUSE", "500", "WRITE")
    created = caller.job_create(kind="k", project="p")
    assert created.job_id
    assert own.events().count("job.created") == 2
    server.call("CLIENT", "PAUSE", "400", "WRITE")
    claim = caller.job_claim(kind="k")
    assert (claim.job_id, claim.attempts) == (created.job_id, 1)
    server.call("CLIENT", "PAUSE", "400", "WRITE")
    assert caller.job_release(job_id=claim.job_id, fence=claim.fence).state == "queued"
    assert own.events(created.job_id) == ["job.created", "job.claimed", "job.released"]
    shut(client, flavour)


@REDIS7
def test_an_asyncio_client_made_by_the_caller_works_in_the_loop_it_was_made_for(queue: Queue) -> None:
    """Field report 37: many calls at once through a caller's pool of two connections."""
    queue.principal("c", "p", conductor=True)

    async def story() -> int:
        pool = redis.asyncio.BlockingConnectionPool.from_url(queue.engine.url, max_connections=2, timeout=10)
        client = redis.asyncio.Redis(connection_pool=pool)
        async with AsyncShampoo.connect(client, profile=queue.profile) as shampoo:
            caller = shampoo.client("c")
            made = await asyncio.gather(*(caller.job_create(kind="k", project="p") for _ in range(40)))
        await pool.disconnect()
        return len({created.job_id for created in made})

    assert asyncio.run(story()) == 40
