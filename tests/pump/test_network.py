"""Which addresses may be connected, in every spelling, and that the judged address is the connected one."""

from __future__ import annotations

import asyncio
import ipaddress
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shampoo_queue.errors import ConfigurationError
from shampoo_queue.pump.deliver import Verdict
from shampoo_queue.pump.network import Address, NotFound, SystemResolver, parse_networks, why_not
from tests.pump.core import send
from tests.pump.sink import Sink

INNER = [
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.1",
    "100.64.0.1",
    "100.100.100.200",
    "100.127.255.255",
    "127.0.0.1",
    "127.255.255.254",
    "168.63.129.16",
    "169.254.169.254",
    "172.16.0.1",
    "172.31.255.255",
    "192.0.0.1",
    "192.0.0.192",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.1.1",
    "198.18.0.1",
    "198.19.255.255",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.250",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",  # IPv4-compatible
    "::8.8.8.8",
    "::ffff:127.0.0.1",
    "::ffff:7f00:1",
    "::ffff:169.254.169.254",
    "::ffff:0:127.0.0.1",  # IPv4-translated
    "64:ff9b::7f00:1",
    "64:ff9b::10.0.0.1",
    "64:ff9b:1::8.8.8.8",
    "64:ff9b:1:ffff::1",
    "100::1",
    "2001::1",  # Teredo
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "2001:2::1",
    "2001:10::1",
    "2001:20::1",
    "2001:db8::1",
    "2002:7f00:1::1",  # 6to4
    "2002:808:808::1",
    "3fff::1",
    "5f00::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%eth0",
    "2a00:1450:4001:830::200e%eth0",
    "fec0::1",
    "ff02::1",
    "ff0e::1",
]
PUBLIC = [
    "1.1.1.1",
    "8.8.8.8",
    "93.184.216.34",
    "100.63.255.255",
    "100.128.0.0",
    "172.15.255.255",
    "172.32.0.0",
    "2606:4700:4700::1111",
    "2a00:1450:4001:830::200e",
    "::ffff:8.8.8.8",
    "64:ff9b::8.8.8.8",
]
SPELLINGS_OF_LOOPBACK = [
    "127.0.0.1",
    "127.1",
    "127.0.1",
    "127.0.0.1.",
    "0x7f.1",
    "0x7f000001",
    "0177.0.0.1",
    "0177.0.0.01",
    "2130706433",
    "017700000001",
    "localhost",
    "LOCALHOST",
    "localhost.",
    "[::1]",
    "[0:0:0:0:0:0:0:1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[::127.0.0.1]",
    "[64:ff9b::127.0.0.1]",
    "0",
    "0.0.0.0",
    "[::]",
]


@pytest.mark.parametrize("text", INNER)
def test_an_inner_address_is_not_public(text: str) -> None:
    assert why_not(ipaddress.ip_address(text))


@pytest.mark.parametrize("text", PUBLIC)
def test_a_public_address_is(text: str) -> None:
    assert why_not(ipaddress.ip_address(text)) is None


@settings(deadline=None)
@given(st.ip_addresses())
def test_what_python_calls_inner_is_inner_here_too(address: Address) -> None:
    wraps = isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None
    assert address.is_global or wraps or why_not(address)


def test_an_allowed_network_opens_what_is_inside_it_and_nothing_else() -> None:
    allowed = parse_networks(["10.1.0.0/16", " fd00::/8 "])
    inside = ["10.1.2.3", "::ffff:10.1.2.3", "64:ff9b::10.1.2.3", "fd12::1"]
    outside = ["10.2.0.1", "::ffff:10.2.0.1", "127.0.0.1", "fe80::1", "fd12::1%eth0"]
    assert [why_not(ipaddress.ip_address(text), allowed) for text in inside] == [None] * 4
    assert all(why_not(ipaddress.ip_address(text), allowed) for text in outside)


@pytest.mark.parametrize("text", ["", "10.0.0.1/8", "10.0.0.0/33", "example.com", "::/129"])
def test_what_is_no_network_is_a_configuration_error(text: str) -> None:
    with pytest.raises(ConfigurationError, match="not a network"):
        parse_networks([text])


@pytest.mark.parametrize("host", SPELLINGS_OF_LOOPBACK)
def test_no_spelling_of_an_inner_address_is_connected(host: str) -> None:
    with Sink() as sink:
        verdict = send(f"http://{host}:{sink.port}/", allowed=())
        assert sink.connections == 0
    # Where this system cannot read the spelling at all, there is nothing to connect to either.
    assert verdict.text in ("network: the name does not resolve",) or verdict.text.startswith("refused: ")
    assert host not in verdict.text


def test_a_refusal_is_final_names_the_rule_and_not_the_address() -> None:
    verdict = send("http://localhost/", allowed=())
    assert verdict == Verdict("failed", "refused: the address is not public (loopback)")


def test_allowed_spellings_reach_the_sink() -> None:
    with Sink() as sink:
        for host in ("127.0.0.1", "2130706433", "localhost", "[::ffff:127.0.0.1]"):
            assert send(f"http://{host}:{sink.port}/").text == "http:200"
        assert {request.headers["host"] for request in sink.requests} == {
            f"127.0.0.1:{sink.port}",
            f"2130706433:{sink.port}",
            f"localhost:{sink.port}",
            f"[::ffff:127.0.0.1]:{sink.port}",
        }


class Answers:
    """A name server that gives another answer each time."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.asked = 0

    async def __call__(self, host: str, port: int) -> list[Address]:
        self.asked += 1
        return [ipaddress.ip_address(text) for text in self.answers.pop(0)]


def test_a_name_that_changes_its_answer_after_the_check_is_never_asked_again() -> None:
    with Sink() as sink:
        answers = Answers(["127.0.0.1"], ["10.0.0.1"])
        assert send(f"http://rebound.example:{sink.port}/", resolve=answers).text == "http:200"
        assert answers.asked == 1
        answers = Answers(["10.0.0.1"], ["127.0.0.1"])
        assert send(f"http://rebound.example:{sink.port}/", resolve=answers).outcome == "failed"
        assert (answers.asked, sink.connections) == (1, 1)


def test_of_several_addresses_only_the_permitted_are_connected() -> None:
    with Sink() as sink:
        both = Answers(["10.0.0.1", "169.254.169.254", "127.0.0.1"])
        assert send(f"http://two.example:{sink.port}/", resolve=both).text == "http:200"
    none = Answers(["10.0.0.1", "169.254.169.254", "::1"])
    assert send("http://none.example/", resolve=none).text == (
        "refused: the address is not public (link-local, loopback, private)"
    )


def test_an_address_that_does_not_answer_leaves_time_for_the_next() -> None:
    with Sink() as sink:
        answers = Answers(["127.0.0.2", "127.0.0.1"])
        assert send(f"http://two.example:{sink.port}/", resolve=answers).text == "http:200"


def test_a_name_that_does_not_resolve_is_tried_again() -> None:
    verdict = send("http://no-such-name.invalid/")
    assert (verdict.outcome, verdict.text, verdict.alive) == ("retry", "network: the name does not resolve", False)


def test_a_name_server_that_is_silent_ends_with_the_time_to_connect() -> None:
    async def silent(host: str, port: int) -> list[Address]:
        await asyncio.sleep(60)
        return []

    verdict = send("http://example.com/", resolve=silent)
    assert (verdict.outcome, verdict.text) == ("retry", "network: the name is not resolved in time")


def test_one_name_is_looked_up_once_however_many_wait_and_outlives_who_gives_up() -> None:
    async def main() -> None:
        resolve = SystemResolver()
        before = threading.active_count()
        waiting = [asyncio.create_task(resolve("localhost", 80)) for _ in range(50)]
        await asyncio.sleep(0)
        assert threading.active_count() <= before + 1
        waiting.pop().cancel()
        found = await asyncio.gather(*waiting)
        assert all(ipaddress.ip_address("127.0.0.1") in addresses for addresses in found)
        with pytest.raises(NotFound):
            await resolve("no-such-name.invalid", 80)

    asyncio.run(main())


@pytest.mark.parametrize("variable", ["http_proxy", "HTTP_PROXY", "ALL_PROXY", "https_proxy"])
def test_proxies_from_the_environment_are_ignored(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Sink() as proxy, Sink() as sink:
        monkeypatch.setenv(variable, proxy.uri())
        assert send(sink.uri("/direct")).text == "http:200"
        assert (proxy.connections, sink.connections) == (0, 1)
