"""The servers of the tests come up, work, and leave nothing behind."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from redis.cluster import RedisCluster
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeout

from tests.servers import HOST, Cluster, SentinelTrio, Server, free_port, redis, valkey, wait_until


@pytest.fixture(params=["valkey", "redis"])
def binary(request: pytest.FixtureRequest) -> str:
    path = valkey() if request.param == "valkey" else redis()
    if path is None:
        pytest.skip("no redis-server installed")
    return path


def listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) == 0


def ended(*servers: Server) -> bool:
    return not any(server.running or listening(server.port) or listening(server.bus) for server in servers)


def test_standalone(binary: str, tmp_path: Path) -> None:
    with Server(binary, tmp_path, "--appendonly", "yes", "--maxmemory", "50mb", "--save", "60 1 300 10") as server:
        assert server.url == f"redis://{HOST}:{server.port}/0"
        assert server.call("INFO", "memory")["maxmemory"] == 50 << 20
        assert server.call("SET", "key", "value")
        first = server.pid, server.port
        server.restart()
        assert (server.pid != first[0], server.port) == (True, first[1])
        assert server.call("GET", "key") == "value"
        server.kill()
        assert ended(server)
        server.start()
        assert server.port == first[1]
    assert ended(server)


def test_password(binary: str, tmp_path: Path) -> None:
    with Server(binary, tmp_path, "--requirepass", 'a "b\\c/d') as server:
        assert server.call("PING")
        assert "://:a%20%22b%5Cc%2Fd@" in server.url
        with server.client(password=None, retry=None) as client, pytest.raises(RedisError):
            client.ping()


def test_pause(binary: str, tmp_path: Path) -> None:
    with Server(binary, tmp_path) as server:
        server.pause()
        with server.client(socket_timeout=0.2, retry=None) as client, pytest.raises(RedisTimeout):
            client.ping()
        server.resume()
        assert server.call("PING")
        server.pause()
    assert ended(server)


def test_port_taken(binary: str, tmp_path: Path) -> None:
    taken = free_port()
    with socket.create_server((HOST, taken)):
        with pytest.raises(RuntimeError, match=f"port {taken} is taken"):
            Server(binary, tmp_path, port=taken).start()
        server = Server(binary, tmp_path)
        server.port = taken
        with server:
            assert server.port != taken
            assert server.call("PING")


def test_refused_option(binary: str, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="no-such-option"):
        Server(binary, tmp_path, "--no-such-option", "1").start()


def test_started_in_a_thread(binary: str, tmp_path: Path) -> None:
    server = Server(binary, tmp_path)
    thread = threading.Thread(target=server.start)
    thread.start()
    thread.join()
    with server:
        assert server.call("PING")
        with pytest.raises(TimeoutError):
            wait_until(lambda: not server.running, "the server ends with the thread", 0.3)


@pytest.mark.parametrize("replicas", [0, 1])
def test_cluster(binary: str, tmp_path: Path, replicas: int) -> None:
    with Cluster(binary, tmp_path, replicas=replicas) as cluster:
        assert len(cluster.nodes) == 3 + 3 * replicas
        assert cluster.url == "redis+cluster://" + ",".join(f"{HOST}:{node.port}" for node in cluster.nodes[:3])
        client = RedisCluster(host=HOST, port=cluster.nodes[0].port)
        for number in range(30):
            assert client.set(f"key:{number}", "value")
        client.close()
        assert all(node.call("DBSIZE") for node in cluster.nodes[:3])
    assert ended(*cluster.nodes)


def test_cluster_failover(tmp_path: Path) -> None:
    with Cluster(valkey(), tmp_path, replicas=1) as cluster:
        cluster.nodes[0].kill()
        replica = cluster.nodes[3]
        wait_until(lambda: replica.call("ROLE")[0] == "master", "the replica takes over")
        wait_until(lambda: "cluster_state:ok" in str(replica.call("CLUSTER", "INFO")), "the cluster works again")


@pytest.mark.parametrize("password", [None, "s3 cret"])
def test_sentinels(binary: str, tmp_path: Path, password: str | None) -> None:
    with SentinelTrio(binary, tmp_path, password=password) as trio:
        before = trio.primary
        assert before.call("SET", "key", "value")
        wait_until(lambda: trio.replica.call("GET", "key") == "value", "the replica has the key")
        trio.failover()
        assert trio.replica is before
        for sentinel in trio.sentinels:
            address = sentinel.call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", trio.service)
            assert int(address[1]) == trio.primary.port
        assert trio.primary.call("GET", "key") == "value"
    assert ended(*trio.servers)


def test_sentinels_notice_a_dead_primary(tmp_path: Path) -> None:
    with SentinelTrio(valkey(), tmp_path) as trio:
        trio.primary.kill()
        trio.wait_failover()
        assert trio.primary.call("SET", "key", "value")


def abandon(how: str, binary: str, folder: Path) -> list[int]:
    """Start a cluster in another interpreter that ends without stopping it; return the ports."""
    script = (
        "import os, sys, signal; from pathlib import Path; from tests.servers import Cluster\n"
        "cluster = Cluster(sys.argv[1], Path(sys.argv[2]))\n"
        "for node in cluster.nodes: node.start()\n"
        "cluster.nodes[0].pause()\n"
        f"print(*(node.port for node in cluster.nodes), flush=True); {how}\n"
    )
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", script, binary, str(folder)],
        env={**os.environ, "PYTHONPATH": root},
        stdout=subprocess.PIPE,
        timeout=60,
        check=False,
    )
    return [int(port) for port in done.stdout.split()]


@pytest.mark.parametrize("how", ["sys.exit()", "raise KeyboardInterrupt", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_nothing_is_left(how: str, binary: str, tmp_path: Path) -> None:
    if "SIGKILL" in how and sys.platform != "linux":
        pytest.skip("only Linux ends the servers of a killed process")
    ports = abandon(how, binary, tmp_path)
    assert len(ports) == 3
    wait_until(lambda: not any(map(listening, ports)), "the servers end", 3)
