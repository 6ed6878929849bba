"""Servers forget scripts at any time; every call loads what it needs and acts once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shampoo_queue import scripts
from shampoo_queue.moves import Move
from tests.conftest import REAL
from tests.faults.cases import Stage, call_every_tool
from tests.faults.conftest import Open, Start, closing_all_of
from tests.faults.flavours import Asyncio, Blocking
from tests.queue import Clock, Queue
from tests.servers import Cluster, SentinelTrio, Server

Connect = Callable[..., Blocking | Asyncio]


def known(queue: Queue) -> int:
    """How many of the scripts the server of the profile knows at the moment."""
    every = [queue.shampoo._wire._script(Move(name, ())).sha for name in scripts.names()]
    return sum(queue.command("SCRIPT", "EXISTS", *every))


@pytest.mark.parametrize("engine", REAL, indirect=True)
def test_every_tool_acts_once_after_a_flush_before_each_call(queue: Queue, clock: Clock, connect: Connect) -> None:
    """Field report 13: SCRIPT FLUSH, then each of the nine tools."""
    flavour = connect(queue, queue.engine.url)
    call_every_tool(flavour, Stage(queue), lambda: queue.command("SCRIPT", "FLUSH"))


def test_every_tool_acts_once_after_a_restart_of_the_server(start: Start, opened: Open, connect: Connect) -> None:
    """Field report 13: the server is restarted with its data; the open connections are dead and no script is known."""
    server = start("--appendonly", "yes")
    queue = opened(server.url)
    queue.stop_clock()
    stage = Stage(queue)
    flavour = connect(queue, server.url)
    call_every_tool(flavour, stage)
    server.restart()
    assert known(queue) == 0
    call_every_tool(flavour, stage)
    assert known(queue) > 0


def test_a_move_cut_by_a_restart_of_the_server_is_made_once(start: Start, opened: Open, connect: Connect) -> None:
    """Field report 13: a connection of the pool breaks between any two calls; the call itself is not refused."""
    server = start("--appendonly", "yes", "--appendfsync", "always")
    queue = opened(server.url)
    stage, flavour = Stage(queue), connect(queue, server.url)
    jobs = []
    for _ in range(3):
        jobs.append(flavour.tool("c", "job_create", kind="k", project="p")["job_id"])
        server.kill()
        server.start()
    for job_id in jobs:
        assert flavour.tool("w", "job_claim")["job_id"] == job_id
    assert stage.events_after(0).count("job.created") == len(jobs)


def test_every_tool_acts_once_after_a_failover(trio: SentinelTrio, opened: Open, connect: Connect) -> None:
    """Field report 13: the new primary never saw a script."""
    queue = opened(trio.url)
    queue.stop_clock()
    stage, flavour = Stage(queue), connect(queue, trio.url)
    call_every_tool(flavour, stage)
    trio.failover()
    trio.primary.call("SCRIPT", "FLUSH")  # it may have been primary in another test
    call_every_tool(flavour, stage)


def test_every_tool_acts_once_on_a_cluster_whose_nodes_forget(cluster: Cluster, opened: Open, connect: Connect) -> None:
    """Field report 13: flush each node of a cluster before each of the nine tools."""
    queue = opened(cluster.url)
    queue.stop_clock()

    def flush() -> None:
        for node in cluster.nodes:
            node.call("SCRIPT", "FLUSH")

    call_every_tool(connect(queue, cluster.url), Stage(queue), flush)


def test_every_tool_acts_once_after_the_profile_moved_to_another_node(
    cluster: Cluster, opened: Open, connect: Connect
) -> None:
    """Field report 13: the slot moves while nobody calls; the new node knows no script, and the old one redirects."""
    queue = opened(cluster.url)
    queue.stop_clock()
    stage, flavour = Stage(queue), connect(queue, cluster.url)
    call_every_tool(flavour, stage)
    slot = int(cluster.nodes[0].call("CLUSTER", "KEYSLOT", queue.key("profile")))
    there = move_slot(cluster, slot)
    there.call("SCRIPT", "FLUSH")
    call_every_tool(flavour, stage)
    assert there.call("CLUSTER", "COUNTKEYSINSLOT", slot) == len(queue.snapshot())


def test_closing_leaves_no_connection_to_the_node_that_held_the_profile(
    cluster: Cluster, opened: Open, connect: Connect
) -> None:
    """Field report 13: nor to the one that holds it now."""
    queue = opened(cluster.url)
    stage = Stage(queue)
    slot = int(cluster.nodes[0].call("CLUSTER", "KEYSLOT", queue.key("profile")))
    with closing_all_of(cluster.nodes):
        flavour = connect(queue, cluster.url)
        flavour.tool("c", "lane_list")
        move_slot(cluster, slot)
        flavour.tool("c", "lane_list")
        flavour.close()
    assert stage.events_after(0)  # and the other clients found it too


def move_slot(cluster: Cluster, slot: int) -> Server:
    """Move a slot with its keys to the next node, as an operator does, and give that node."""
    nodes = cluster.nodes[:3]
    holder = next(n for n, node in enumerate(nodes) if node.call("CLUSTER", "COUNTKEYSINSLOT", slot))
    here, there = nodes[holder], nodes[(holder + 1) % 3]
    ids = {node: str(node.call("CLUSTER", "MYID")) for node in (here, there)}
    there.call("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[here])
    here.call("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[there])
    while keys := here.call("CLUSTER", "GETKEYSINSLOT", slot, 100):
        here.call("MIGRATE", there.host, there.port, "", 0, 5000, "KEYS", *keys)
    for node in (there, here, *nodes):
        node.call("CLUSTER", "SETSLOT", slot, "NODE", ids[there])
    return there
