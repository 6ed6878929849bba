"""Turn a URL, or a ready-made redis-py client, into a route: connection pools for the one server to talk to.

=========================================== ====================================================================
``embedded://PATH``                         a real Valkey of this machine, data and unix socket in PATH
``memory://NAME``                           fakeredis inside the process, for unit tests (extra ``[memory]``)
``redis://`` ``rediss://`` ``unix://``      Redis from 7.0 or Valkey from 8
``redis+sentinel://H1:P1,H2:P2/SERVICE/DB`` the primary that Sentinel names; ``rediss+sentinel`` for TLS
``redis+cluster://H1:P1,H2:P2``             the node that holds the profile's slot; ``rediss+cluster`` for TLS
=========================================== ====================================================================

Options of redis-py may follow as a query, for instance ``?socket_timeout=2&ssl_ca_certs=/etc/ca.pem``. User and
password reach the sentinels too; ``sentinel_username`` and ``sentinel_password`` replace them there.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.cluster import key_slot  # type: ignore[attr-defined]
from redis.exceptions import AuthenticationError, MovedError, ResponseError
from redis.retry import Retry

from . import keys
from .errors import ConfigurationError, EngineError

log = logging.getLogger("shampoo_queue")

SCHEMES = (
    "embedded",
    "memory",
    "redis",
    "rediss",
    "unix",
    "redis+sentinel",
    "rediss+sentinel",
    "redis+cluster",
    "rediss+cluster",
)
_TIMEOUTS = {"socket_timeout": 5.0, "socket_connect_timeout": 5.0}
# Each thread and each wait for work takes one; the server's own limit is what bounds them.
_CONNECTIONS = 65_536


class Route:
    """Where the calls of one profile go. ``sync_pool`` and ``async_pool`` give a redis-py connection pool.

    ``start`` and ``mend`` may block; `mend` is told of a failed try and makes the next one likelier to succeed.
    """

    def __init__(
        self,
        name: str,
        sync_pool: Callable[[], Any] | None = None,
        async_pool: Callable[[], Any] | None = None,
        *,
        in_memory: bool = False,
        owned: bool = True,
    ) -> None:
        self.name = name
        self.in_memory = in_memory
        self.owned = owned
        self._makers = (sync_pool, async_pool)

    def start(self) -> None:
        """Make the server reachable."""

    def mend(self, error: Exception) -> None:
        """Learn from a failed try."""

    def close(self) -> None:
        """Let go of what `start` took."""

    def close_pools(self, pool: Any) -> None:
        """Close the connections of a pool, and those beside it."""
        pool.disconnect()

    async def close_async_pools(self, pool: Any) -> None:
        """Close the connections of an asyncio pool, and those beside it."""
        await pool.disconnect()

    def pool(self, asynchronous: bool) -> Any:
        """Make a pool of connections to the server, of the asked flavour."""
        maker = self._makers[asynchronous]
        if maker is None:
            other = ("AsyncShampoo", "Shampoo") if not asynchronous else ("Shampoo", "AsyncShampoo")
            raise ConfigurationError(f"this redis-py client belongs to {other[0]}, not to {other[1]}")
        return maker()

    def reason(self, error: Exception) -> Exception:
        """Find what is behind a failed start; may block."""
        return error

    def try_options(self) -> None:
        """Make a connection without connecting it, so that a wrong option is an error now."""
        if self._makers[0]:
            self._makers[0]().make_connection()

    def renewed(self, pool: Any, asynchronous: bool) -> Any:
        """Give the pool to use after `mend`: the same one, unless the server is now another."""
        return pool

    def outside(self) -> Route | None:
        """Give the route to what belongs to no profile; None when it is this one."""
        return None


def route(target: Any, profile: str) -> Route:
    """Find the route for a URL or a ready-made client; raise `ConfigurationError` when it cannot be right."""
    if not isinstance(target, str):
        return _client_route(target, profile)
    try:
        found = _url_route(target, profile)
        found.try_options()
    except (ValueError, TypeError) as error:
        # redis-py's own sentence may quote a piece of the password; only what names an option is passed on.
        option = re.search(r"unexpected keyword argument '(\w+)'", str(error))
        reason = (
            f"there is no option {option[1]!r}" if option else "host, port or an option is not written as it must be"
        )
        hint = "in user and password, reserved characters are percent-encoded: / as %2F, : as %3A"
        raise ConfigurationError(f"{redacted(target)}: {reason} ({hint})") from None
    return found


def _url_route(target: str, profile: str) -> Route:
    scheme, separator, rest = target.partition("://")
    _, slash, path = rest.partition("?")[0].partition("/")
    if scheme.startswith("redis") and slash and "@" in path:
        raise ValueError("an @ behind the host: a piece of a password that was not encoded")
    if not separator:
        raise ConfigurationError(f"a URL begins with one of {', '.join(f'{s}://' for s in SCHEMES)}; see the README")
    if scheme == "embedded":
        return EmbeddedRoute(rest)
    if scheme == "memory":
        return _memory_route(rest)
    if scheme in ("redis", "rediss", "unix"):
        return _plain_route(target)
    if scheme in ("redis+sentinel", "rediss+sentinel"):
        return _sentinel_route(target)
    if scheme in ("redis+cluster", "rediss+cluster"):
        parts = _split(target)
        return ClusterRoute(_hosts(parts, 6379), parts.options, profile, redacted(target))
    raise ConfigurationError(f"no engine has the scheme {scheme[:20]!r}; use one of {', '.join(SCHEMES)}")


def redacted(url: str) -> str:
    """Show a URL without its secrets: no user info, no value of an option that may be one."""
    shown = re.sub(r"//.*@", "//***@", url, count=1, flags=re.DOTALL)
    return re.sub(r"([?&][^=&]*(?:pass|secret|token|user)[^=&]*=)[^&]*", r"\1***", shown, flags=re.IGNORECASE)


def _no_resend(asynchronous: bool) -> Any:
    """Give the retry policy that sends nothing twice by itself: resending is ours, under the call's request id."""
    return redis.asyncio.retry.Retry(NoBackoff(), 0) if asynchronous else Retry(NoBackoff(), 0)


def _options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Add our timeouts to the options of a URL."""
    return {**_TIMEOUTS, "protocol": 2, "max_connections": _CONNECTIONS, **given}


class EmbeddedRoute(Route):
    """The embedded server: started by whoever needs it first, and again by whoever finds it gone."""

    def __init__(self, path: str) -> None:
        from .embedded import EmbeddedServer, default_path

        self._server = EmbeddedServer(unquote(path) or default_path())
        super().__init__(f"embedded://{self._server.path}", self._sync, self._async)

    def start(self) -> None:
        self._server.ensure()

    def mend(self, error: Exception) -> None:
        if isinstance(error, redis.ConnectionError | OSError):
            self._server.ensure()

    def close(self) -> None:
        self._server.close()

    def _sync(self) -> Any:
        return redis.ConnectionPool(
            connection_class=redis.UnixDomainSocketConnection,
            path=self._server.socket_path,
            retry=_no_resend(False),
            **_options({}),
        )

    def _async(self) -> Any:
        return redis.asyncio.ConnectionPool(
            connection_class=redis.asyncio.UnixDomainSocketConnection,
            path=self._server.socket_path,
            retry=_no_resend(True),
            **_options({}),
        )


_MEMORY: dict[str, Any] = {}


def _memory_route(name: str) -> Route:
    try:
        import fakeredis
    except ImportError:
        raise ConfigurationError("memory:// needs fakeredis: pip install 'shampoo_queue[memory]'") from None
    server = _MEMORY.setdefault(name, fakeredis.FakeServer())
    return Route(
        f"memory://{name}",
        lambda: fakeredis.FakeRedis(server=server, protocol=2).connection_pool,
        lambda: fakeredis.FakeAsyncRedis(server=server, protocol=2).connection_pool,
        in_memory=True,
    )


def _plain_route(url: str) -> Route:
    path = url.partition("://")[2].partition("?")[0].rpartition("@")[2]
    if url.startswith("unix"):
        if not path.strip("/"):
            raise ConfigurationError("a unix:// URL names the path of a socket")
    elif not path.partition("/")[2].isdigit() and path.partition("/")[2]:
        raise ConfigurationError(f"{redacted(url)}: what follows the host is the number of a database")

    def make(asynchronous: bool) -> Callable[[], Any]:
        pool: Any = redis.asyncio.ConnectionPool if asynchronous else redis.ConnectionPool

        return lambda: pool.from_url(url, retry=_no_resend(asynchronous), **_options({}))

    return Route(redacted(url), make(False), make(True))


class _Parts:
    """A URL of several hosts, taken apart."""

    def __init__(self, netloc: str, path: str, options: dict[str, Any]) -> None:
        self.netloc, self.path, self.options = netloc, path, options


def _split(url: str) -> _Parts:
    """Take apart a URL of several hosts into hosts, path and redis-py options (TLS, user, password among them)."""
    scheme, _, rest = url.partition("://")
    # urlsplit would read the port of the last host; the hosts are ours to split.
    parts = urlsplit(f"x://{rest}")
    user_info, _, hosts = parts.netloc.rpartition("@")
    options: dict[str, Any] = {}
    for name, text in parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)):
        parse = redis.connection.URL_QUERY_ARGUMENT_PARSERS.get(name)
        options[name] = parse(text) if parse else text  # type: ignore[operator]
    if scheme.startswith("rediss"):
        options["ssl"] = True
    if user_info:
        user, _, password = user_info.partition(":")
        options |= {"username": unquote(user)} if user else {}
        options |= {"password": unquote(password)} if password else {}
    return _Parts(hosts, unquote(parts.path), options)


def _hosts(parts: _Parts, default_port: int) -> list[tuple[str, int]]:
    """Split ``H1:P1,H2:P2``; an IPv6 address stands in brackets."""
    found = []
    for text in parts.netloc.split(","):
        match = re.fullmatch(r"(\[[^\]]+\]|[^:\[\]]+)(?::(\d{1,5}))?", text.strip())
        if not match or not 0 < int(match[2] or default_port) < 65536:
            raise ConfigurationError("hosts are written as host:port,host:port; an IPv6 address stands in brackets")
        found.append((match[1].strip("[]"), int(match[2] or default_port)))
    return found


def _sentinel_route(url: str) -> Route:
    parts = _split(url)
    hosts = _hosts(parts, 26379)
    service, _, db = parts.path.strip("/").partition("/")
    if not service or (db and not db.isdigit()):
        raise ConfigurationError("a sentinel URL ends with /SERVICE or /SERVICE/DB")
    own = {k: parts.options.pop(f"sentinel_{k}") for k in ("username", "password") if f"sentinel_{k}" in parts.options}
    link = {k: v for k, v in parts.options.items() if k in ("username", "password") or k.startswith(("ssl", "socket_"))}
    link |= own

    def make(asynchronous: bool) -> Callable[[], Any]:
        flavour: Any = redis.asyncio.sentinel if asynchronous else redis.sentinel

        def maker() -> Any:
            retry = {"retry": _no_resend(asynchronous)}
            manager = flavour.Sentinel(hosts, sentinel_kwargs={**_TIMEOUTS, **link, **retry})
            pool = flavour.SentinelConnectionPool(
                service, manager, **_options({**parts.options, "db": int(db or 0), **retry})
            )
            # The pool keeps only a weak hold of the sentinels; they must live as long as it does.
            pool.shampoo_sentinels = manager
            return pool

        return maker

    return SentinelRoute(redacted(url), make(False), make(True))


class SentinelRoute(Route):
    """The primary that Sentinel names; the links to the sentinels close with the pool that asks them."""

    def reason(self, error: Exception) -> Exception:
        """Sentinel's "no master" hides why no sentinel answered: ask each again for its own reason."""
        if not isinstance(error, redis.sentinel.MasterNotFoundError | redis.asyncio.sentinel.MasterNotFoundError):
            return error
        sentinels = self.pool(False).shampoo_sentinels.sentinels
        for sentinel in sentinels:
            try:
                sentinel.sentinel_masters()
            except (redis.RedisError, OSError) as why:
                return why
            finally:
                sentinel.close()
        return error

    def close_pools(self, pool: Any) -> None:
        super().close_pools(pool)
        for sentinel in pool.shampoo_sentinels.sentinels:
            sentinel.close()

    async def close_async_pools(self, pool: Any) -> None:
        await super().close_async_pools(pool)
        for sentinel in pool.shampoo_sentinels.sentinels:
            await sentinel.aclose()


class ClusterRoute(Route):
    """The node of a cluster that holds the profile's one slot, asked of any node that answers.

    A redirection for a moved slot is followed; one that asks to look elsewhere for single keys (ASK) never is,
    for a script could see half a profile.
    """

    def __init__(self, seeds: list[tuple[str, int]], options: Mapping[str, Any], profile: str, name: str) -> None:
        super().__init__(name, lambda: self._pool(False), lambda: self._pool(True))
        self._seeds = list(seeds)
        self._options = dict(options)
        self._profile = profile
        self._slot = key_slot(keys.spell(profile, "profile").encode())
        self._node: tuple[str, int] | None = None

    def start(self) -> None:
        if self._node is None:
            self._node = self._ask_around()

    def mend(self, error: Exception) -> None:
        if isinstance(error, MovedError):
            self._node = (error.host or self._node_host(), error.port)
        elif not isinstance(error, ResponseError):
            self._node = self._ask_around()

    def renewed(self, pool: Any, asynchronous: bool) -> Any:
        held = pool.connection_kwargs
        return pool if (held["host"], held["port"]) == self._node else self._pool(asynchronous)

    def outside(self) -> Route | None:
        if self._profile == keys.OUTSIDE:
            return None
        return ClusterRoute(self._seeds, self._options, keys.OUTSIDE, self.name)

    def _node_host(self) -> str:
        return self._node[0] if self._node else self._seeds[0][0]

    def _ask_around(self) -> tuple[str, int]:
        """Ask the known nodes, one after another, who holds the slot; get to know the others on the way."""
        failure: Exception | None = None
        for host, port in tuple(self._seeds):
            try:
                with redis.Redis(host=host, port=port, retry=_no_resend(False), **_options(self._options)) as node:
                    ranges = node.execute_command("CLUSTER SLOTS", NEVER_DECODE=True)
            except redis.RedisError as error:
                failure = error
                continue
            holders = {}
            for first, last, *nodes in ranges:
                addresses = [(address[0].decode() or host, address[1]) for address in nodes]
                self._seeds += [address for address in addresses if address not in self._seeds]
                holders[first, last] = addresses[0]
            for (first, last), holder in holders.items():
                if first <= self._slot <= last:
                    return holder
            failure = EngineError(f"{self.name}: no node holds slot {self._slot} of this profile")
        assert failure is not None
        raise failure

    def _pool(self, asynchronous: bool) -> Any:
        """Make a pool for the node of the moment."""
        self.start()
        assert self._node is not None
        return self._pool_of(asynchronous, *self._node)

    def _pool_of(self, asynchronous: bool, host: str, port: int) -> Any:
        options = dict(self._options)
        flavour: Any = redis.asyncio if asynchronous else redis
        if options.pop("ssl", False):
            options["connection_class"] = flavour.SSLConnection
        return flavour.ConnectionPool(host=host, port=port, retry=_no_resend(asynchronous), **_options(options))

    def try_options(self) -> None:
        self._pool_of(False, *self._seeds[0]).make_connection()


def _client_route(client: Any, profile: str) -> Route:
    """Use the connections of a client the user made; its decoding and its protocol do not matter."""
    if isinstance(client, redis.RedisCluster | redis.asyncio.RedisCluster):
        return _cluster_client_route(client, profile)
    if not isinstance(client, redis.Redis | redis.asyncio.Redis):
        raise ConfigurationError("connect takes a URL or a redis-py client")
    pool: Any = client.connection_pool
    makers = (None, lambda: pool) if isinstance(client, redis.asyncio.Redis) else (lambda: pool, None)
    fake = pool.connection_class.__module__.startswith("fakeredis")
    return Route(type(client).__name__, *makers, in_memory=fake, owned=False)


def _cluster_client_route(client: Any, profile: str) -> Route:
    nodes = client.get_nodes() or client.nodes_manager.startup_nodes.values()
    known = getattr(client, "connection_kwargs", None) or client.nodes_manager.connection_kwargs
    wanted = ("username", "password", "socket_timeout", "socket_connect_timeout", "protocol", "credential_provider")
    options = {k: v for k, v in known.items() if (k in wanted or k.startswith("ssl")) and v is not None}
    if "SSL" in getattr(known.get("connection_class"), "__name__", ""):
        options["ssl"] = True
    return ClusterRoute([(node.host, node.port) for node in nodes], options, profile, type(client).__name__)


# What a server must be ---------------------------------------------------------------------------------------


def check_server(name: str, info: Mapping[str, str], policy: str | None) -> list[str]:
    """Hold a server's INFO against what the queue needs; raise `EngineError`, or give warnings.

    ``policy`` is the eviction policy, None when the server does not tell.
    """
    flavour, version, least = "Redis", info.get("redis_version", "0"), (7, 0)
    if "valkey_version" in info:
        flavour, version, least = "Valkey", info["valkey_version"], (8, 0)
    if tuple(int(part) for part in re.findall(r"\d+", version)[:2]) < least:
        need = ".".join(map(str, least))
        raise EngineError(f"{name} is {flavour} {version}, too old: Redis 7.0 or Valkey 8 is needed, here {need}")
    warnings = []
    if policy not in (None, "noeviction"):
        warnings.append(
            f"{name} evicts keys when memory is full (maxmemory-policy {policy}), so jobs can vanish: "
            "CONFIG SET maxmemory-policy noeviction"
        )
    if info.get("aof_enabled") == "0" and not info.get("save", "?"):
        warnings.append(
            f"{name} keeps nothing on disk, so a restart loses every job: CONFIG SET appendonly yes, or save points"
        )
    if info.get("role") in ("slave", "replica"):
        warnings.append(f"{name} is a replica and takes no writes: connect to its primary, or through Sentinel")
    return warnings


def cannot_reach(name: str, error: Exception, target: Any) -> EngineError:
    """Say in one line why a server cannot be used, without the secrets of its URL."""
    # Sentinel's sentence goes on with the whole configuration of each connection.
    text = _without_secrets(str(error).partition(" : <")[0], target)
    if isinstance(error, AuthenticationError) or re.search(r"NOAUTH|WRONGPASS|invalid username|NOPERM", text):
        return EngineError(f"{name} refuses the user or password ({text}): correct it in the URL")
    return EngineError(f"cannot reach {name}: {text}")


def _without_secrets(text: str, target: Any) -> str:
    """Strike out of a text every secret that a URL holds, as written and as decoded."""
    if not isinstance(target, str):
        return text
    address, _, query = target.partition("://")[2].partition("?")
    user_info = address.rpartition("@")[0]
    secrets = [user_info, user_info.partition(":")[2]]
    for option in query.split("&"):
        name, _, value = option.partition("=")
        if re.search("pass|secret|token", name, re.IGNORECASE):
            secrets.append(value)
    for secret in secrets:
        for spelled in (secret, unquote(secret)):
            if spelled:
                text = text.replace(spelled, "***")
    return text
