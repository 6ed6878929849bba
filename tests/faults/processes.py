"""Many real processes for tests: a nursery imports the library once and forks whatever the test asks for.

The nursery takes orders on its standard input, one JSON line each, and kills what it forked when that ends, however
the test process ended. It reaps nothing before it is told to, so a process id never names a stranger. Each child
calls back on a socket of its own and does what its role says: a *caller* makes the tool calls it is sent, a *worker*
works until it is killed.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).parent.parent.parent
HOST = "127.0.0.1"
WAIT = 20.0


class Child:
    """One process of the nursery, as the test sees it."""

    def __init__(self, pid: int, connection: socket.socket, kill: Callable[[Child], None]) -> None:
        self.pid = pid
        self._connection, self._kill = connection, kill
        self._lines = connection.makefile("rb")

    def send(self, tool: str, beside: dict[str, Any] | None = None, **arguments: Any) -> None:
        """Let a caller make a call, without waiting for the answer."""
        self._connection.sendall(json.dumps([tool, arguments, beside or {}]).encode() + b"\n")

    def receive(self) -> dict[str, Any]:
        """Wait for the next answer: the tool's own, with ``fence`` and ``now`` or ``error`` beside it."""
        line = self._lines.readline()
        assert line, f"process {self.pid} ended before it answered"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def call(self, tool: str, beside: dict[str, Any] | None = None, **arguments: Any) -> dict[str, Any]:
        """Let a caller make a call and wait for the answer."""
        self.send(tool, beside, **arguments)
        return self.receive()

    def kill(self) -> None:
        """Kill the process where it stands."""
        self._kill(self)
        self.close()

    def close(self) -> None:
        self._lines.close()
        self._connection.close()


class Nursery:
    """Fork processes on the cheap; ``skew`` seconds are added to the wall clock they see."""

    def __init__(self, skew: float = 0) -> None:
        self._listener = socket.create_server((HOST, 0), backlog=128)
        self._listener.settimeout(WAIT)
        command = [sys.executable, "-m", "tests.faults.processes", str(self._listener.getsockname()[1]), str(skew)]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._children: list[Child] = []

    def fork(self, role: str, url: str, profile: str, client_id: str, holder: str, *more: str) -> Child:
        """Fork a process in a role, and wait until it stands ready."""
        return self.fork_many(1, role, url, profile, client_id, holder, *more)[0]

    def fork_many(self, count: int, *order: str) -> list[Child]:
        """Fork several alike."""
        for _ in range(count):
            self._order(["fork", *order])
        found = []
        for _ in range(count):
            connection, _address = self._listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.settimeout(WAIT)
            child = Child(0, connection, self._kill)
            child.pid = child.receive()["pid"]
            found.append(child)
        self._children += found
        return found

    def _order(self, words: Sequence[Any]) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(words).encode() + b"\n")
        self._process.stdin.flush()

    def _kill(self, child: Child) -> None:
        self._children.remove(child)
        self._order(["kill", child.pid])
        assert self._process.stdout
        assert self._process.stdout.readline() == f"{child.pid}\n".encode()

    def clear(self) -> None:
        """Kill every process, for the next test to begin anew."""
        for child in list(self._children):
            child.kill()

    def close(self) -> None:
        """Kill what still runs, and wait until all is gone."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.wait(WAIT)
        self._process.stdout.close()
        for child in self._children:
            child.close()
        self._listener.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# In the nursery -------------------------------------------------------------------------------------------------


def _shift_clock(seconds: float) -> None:
    """Let this process, and what it forks, see another wall clock."""
    import datetime

    import pydantic  # noqa: F401 - it looks at the real class while it loads

    real_time, real_ns = time.time, time.time_ns

    class Shifted(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Any:
            return cls.fromtimestamp(real_time() + seconds, tz)

    time.time = lambda: real_time() + seconds
    time.time_ns = lambda: real_ns() + round(seconds * 1e9)
    datetime.datetime = Shifted  # type: ignore[misc]


def _opened(url: str, profile: str, lua: str) -> Any:
    from shampoo_queue import Shampoo

    shampoo = Shampoo.connect(url, profile=profile, retry_seconds=30)
    if lua:
        shampoo._wire._lua = Path(lua)
    return shampoo


def caller(connection: socket.socket, url: str, profile: str, client_id: str, holder: str, lua: str = "") -> None:
    """Make each call that comes down the socket, and send its answer back."""
    from shampoo_queue.errors import ToolError

    client = _opened(url, profile, lua).client(client_id, holder=f"{holder}-{os.getpid()}")
    with connection.makefile("rb") as orders:
        connection.sendall(json.dumps({"pid": os.getpid()}).encode() + b"\n")
        for order in orders:
            tool, arguments, beside = json.loads(order)
            try:
                answer = client.call(tool, arguments, **beside)
                shown = {"answer": answer, "fence": answer.meta.fence, "now": time.time()}
            except ToolError as error:
                shown = {"error": error.code}
            connection.sendall(json.dumps(shown).encode() + b"\n")


def worker(connection: socket.socket, url: str, profile: str, client_id: str, holder: str, work: str) -> None:
    """Claim under the shortest lease, work for a moment, complete under the fence; again and again, until killed."""
    from shampoo_queue.errors import JobAlreadyTerminal, JobNotClaimed, LeaseExpired

    client = _opened(url, profile, "").client(client_id, holder=f"{holder}-{os.getpid()}")
    connection.sendall(json.dumps({"pid": os.getpid()}).encode() + b"\n")
    while True:
        claim = client.job_claim(lease_seconds=1)
        time.sleep(float(work))
        if claim.claimed:
            try:
                client.job_complete(job_id=claim.job_id, outcome="completed", result_ref=holder, fence=claim.fence)
            except (LeaseExpired, JobNotClaimed, JobAlreadyTerminal):  # the machine was too slow for the lease
                continue


ROLES: dict[str, Callable[..., None]] = {"caller": caller, "worker": worker}


def _fork(port: int, role: str, *given: str) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        sys.stdin.close()
        with socket.create_connection((HOST, port)) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            ROLES[role](connection, *given)
    except OSError:
        pass  # the test has gone
    finally:
        os._exit(0)


def _end(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def main(port: int, skew: float) -> None:
    """Take orders until there are no more, then kill what is left."""
    if skew:
        _shift_clock(skew)
    import shampoo_queue  # noqa: F401 - once, for all children

    children: set[int] = set()
    try:
        for line in sys.stdin:
            order, *given = json.loads(line)
            if order == "fork":
                children.add(_fork(port, *given))
            else:
                children.remove(given[0])
                _end(given[0])
                print(given[0], flush=True)
    finally:
        for pid in children:
            _end(pid)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
