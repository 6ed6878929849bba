"""Decide which addresses may be connected, and connect to the very address that was decided about.

A name is looked up here, once; every address it stands for is judged, and the connection is made to a judged
address, never to the name again. So no spelling of an address and no name that changes its answer gets past the rule.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import threading
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any

import httpcore2

from ..errors import ConfigurationError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolver = Callable[[str, int], Awaitable[list[Address]]]

MOST_LOOK_UPS = 256
MOST_ADDRESSES = 8

# Written out, because what Python calls global changes between its releases.
_NOT_PUBLIC = {
    ipaddress.ip_network(network): rule
    for network, rule in {
        "0.0.0.0/8": "unspecified",
        "10.0.0.0/8": "private",
        "100.64.0.0/10": "shared by carriers",
        "127.0.0.0/8": "loopback",
        "168.63.129.16/32": "the platform of a cloud",
        "169.254.0.0/16": "link-local",
        "172.16.0.0/12": "private",
        "192.0.0.0/24": "reserved",
        "192.0.2.0/24": "documentation",
        "192.88.99.0/24": "a relay",
        "192.168.0.0/16": "private",
        "198.18.0.0/15": "benchmarks",
        "198.51.100.0/24": "documentation",
        "203.0.113.0/24": "documentation",
        "224.0.0.0/4": "multicast",
        "240.0.0.0/4": "reserved",
        "::1/128": "loopback",
        "::/128": "unspecified",
        "fc00::/7": "private",
        "fe80::/10": "link-local",
        "ff00::/8": "multicast",
        "2001::/23": "reserved",
        "2001:db8::/32": "documentation",
        "2002::/16": "a relay",
        "3fff::/20": "documentation",
    }.items()
}
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


class Refused(Exception):
    """The target may not be connected, now or later; the message names the rule and no address."""


class NotFound(Exception):
    """The name stands for no address at the moment."""


def parse_networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Read networks such as ``10.0.0.0/8``; raise `ConfigurationError`."""
    found = []
    for text in texts:
        try:
            found.append(ipaddress.ip_network(text.strip()))
        except ValueError as error:
            raise ConfigurationError(f"not a network in CIDR form: {error}") from None
    return tuple(found)


def why_not(address: Address, allowed: tuple[Network, ...] = ()) -> str | None:
    """Give the rule that forbids to connect to an address; None when it is public, or inside an allowed network."""
    address = _inner(address)
    if getattr(address, "scope_id", None):
        return "link-local"
    if any(address in network for network in allowed):
        return None
    for network, rule in _NOT_PUBLIC.items():
        if address in network:
            return rule
    return None if address.version == 4 or address in _GLOBAL_UNICAST else "reserved"


def _inner(address: Address) -> Address:
    """Give the IPv4 address that an IPv6 one merely wraps and the network would unwrap."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in _NAT64 and not address.scope_id:
            return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address


class SystemResolver:
    """Look names up as the system does, each in a thread of its own, so that a slow name holds no other back.

    One name is looked up once at a time however many wait for it. The threads are daemons: none outlives the process.
    """

    def __init__(self) -> None:
        self._under_way: dict[tuple[str, int], asyncio.Future[list[Address]]] = {}

    async def __call__(self, host: str, port: int) -> list[Address]:
        """Give the addresses of a name in the system's order of preference; raise `NotFound`."""
        under_way = self._under_way.get((host, port))
        if under_way is None:
            if len(self._under_way) >= MOST_LOOK_UPS:
                raise NotFound("too many names are being looked up")
            under_way = self._start(host, port)
        # Shielded, since the others who wait for this name must not lose it when one of them gives up.
        return await asyncio.shield(under_way)

    def _start(self, host: str, port: int) -> asyncio.Future[list[Address]]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[Address]] = loop.create_future()
        self._under_way[host, port] = future
        future.add_done_callback(lambda _: self._under_way.pop((host, port), None))

        def look_up() -> None:
            found, error = _look_up(host, port)
            with suppress(RuntimeError):  # the loop has ended, and with it whoever waited
                loop.call_soon_threadsafe(_settle, future, found, error)

        threading.Thread(target=look_up, name="look-up", daemon=True).start()
        return future


def _look_up(host: str, port: int) -> tuple[list[Address], Exception | None]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return [ipaddress.ip_address(place[0]) for *_, place in found], None
    except (OSError, UnicodeError, ValueError):
        return [], NotFound("the name does not resolve")


def _settle(future: asyncio.Future[list[Address]], found: list[Address], error: Exception | None) -> None:
    if future.cancelled():
        return
    if error is None:
        future.set_result(found)
    else:
        future.set_exception(error)
        future.exception()  # it may be that nobody waits any more


class Connector(httpcore2.AsyncNetworkBackend):
    """Connect to judged addresses only; ``allowed`` names networks beyond the public ones."""

    def __init__(self, allowed: tuple[Network, ...] = (), resolve: Resolver | None = None) -> None:
        self._allowed = allowed
        self._resolve = resolve or SystemResolver()
        self._plain = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Look a host up, judge its addresses, and connect to the first permitted one that answers.

        ``timeout`` is in seconds and covers all of it. Raises `Refused`, `NotFound`, or httpcore2's `ConnectError`
        and `ConnectTimeout`.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + (timeout or 60.0)
        try:
            async with asyncio.timeout_at(until):
                addresses = self._permitted(await self._resolve(host, port))
        except TimeoutError:
            raise NotFound("the name is not resolved in time") from None
        for n, address in enumerate(addresses):
            # One address that stays silent must leave time for those after it.
            share = max(0.0, until - loop.time()) / (len(addresses) - n)
            try:
                return await self._plain.connect_tcp(str(address), port, share, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                if n == len(addresses) - 1:
                    raise
        raise NotFound("the name stands for no address")

    def _permitted(self, found: list[Address]) -> list[Address]:
        judged = {address: why_not(address, self._allowed) for address in found}
        permitted = [address for address, rule in judged.items() if rule is None]
        if judged and not permitted:
            rules = ", ".join(sorted({rule for rule in judged.values() if rule}))
            raise Refused(f"the address is not public ({rules})")
        return permitted[:MOST_ADDRESSES]
