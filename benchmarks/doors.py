"""Measure the HTTP door: calls a second and how long they take, beside a bare route that runs one EVALSHA.

``python -m benchmarks.doors --out results.json`` prints a table and writes every figure; README.md beside it says more.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import statistics
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shampoo_queue import Shampoo

from .report import table
from .servers import started
from .wake import machine

COLUMNS = ("name", "rounds", "calls_a_second", "p50_ms", "p90_ms", "p99_ms", "x_bare", "p99_x_bare")
MODULES = {"shampoo serve": "shampoo_queue.cli", "(bare route)": "benchmarks.sides.door_bare"}


@dataclass(frozen=True)
class Size:
    """How much is measured."""

    rounds: int = 8
    jobs: int = 4_000
    connections: int = 50
    minutes: float = 1.0


@dataclass(frozen=True)
class Side:
    """A server that is measured."""

    name: str
    port: int
    pid: int

    def resident_mib(self) -> float:
        """Read how much memory the process holds."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024


@contextmanager
def serving(name: str, *arguments: str) -> Iterator[Side]:
    """Run one side until the end of the block."""
    line = [sys.executable, "-m", MODULES[name], *arguments]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("SHAMPOO_")}
    with subprocess.Popen(line, stdout=subprocess.PIPE, env=environment) as process:
        try:
            assert process.stdout
            url: str = json.loads(process.stdout.readline())["url"]
            yield Side(name, int(url.rpartition(":")[2]), process.pid)
        finally:
            process.terminate()


def load(side: Side, token: str, connections: int, **what: float) -> dict[str, Any]:
    """Ask one side from a process of its own, and give what that saw."""
    given = {"port": side.port, "token": token, "connections": connections, **what}
    line = [sys.executable, "-m", "benchmarks.sides.door_load"]
    found = subprocess.run(line, input=json.dumps(given), stdout=subprocess.PIPE, check=True, text=True).stdout
    seen: dict[str, Any] = json.loads(found)
    return seen | {"calls_a_second": seen["calls"] / seen["seconds"]}


def run(size: Size, say: Callable[[str], None]) -> dict[str, Any]:
    """Let the two sides take turns on one server, then watch the door's memory; give all that was found."""
    with ExitStack() as stack:
        server = stack.enter_context(started("redis"))
        queue = stack.enter_context(Shampoo.connect(server.url))
        queue.registry.add_principal("c", conductor=True, grants=[""])
        token = queue.registry.issue_token("c").token
        options = ("serve", "--json", "--port", "0", "--url", server.url, "--log-level", "warning")
        door = stack.enter_context(serving("shampoo serve", *options))
        bare = stack.enter_context(serving("(bare route)", server.url))
        turns: dict[str, list[dict[str, Any]]] = {door.name: [], bare.name: []}
        for number in range(size.rounds):
            create(queue, size.jobs)
            say(f"round {number + 1} of {size.rounds}")
            turns[door.name].append(load(door, token, size.connections, jobs=size.jobs))
            turns[bare.name].append(load(bare, "", size.connections, calls=2 * size.jobs))
        say(f"memory over {size.minutes:g} minutes")
        memory = watched(door, token, size)
        return {
            "size": vars(size),
            "machine": machine(),
            "engine": server.version,
            "doors": [row(name, found, turns[bare.name]) for name, found in turns.items()],
            "turns": turns,
            "memory": memory,
        }


def create(queue: Shampoo, jobs: int) -> None:
    client = queue.client("c")
    for first in range(0, jobs, 500):
        client.create_many({"kind": "k", "payload": "{}"} for _ in range(min(500, jobs - first)))


def row(name: str, found: list[dict[str, Any]], floor: list[dict[str, Any]]) -> dict[str, Any]:
    """Give the medians of a side's turns, and of what each is of the floor's turn right after it."""
    medians = {column: round(statistics.median(turn[column] for turn in found), 2) for column in COLUMNS[2:6]}
    pairs = list(zip(found, floor, strict=True))
    ratio = statistics.median(turn["calls_a_second"] / bare["calls_a_second"] for turn, bare in pairs)
    slower = statistics.median(turn["p99_ms"] / bare["p99_ms"] for turn, bare in pairs)
    return {"name": name, "rounds": len(found), **medians, "x_bare": round(ratio, 2), "p99_x_bare": round(slower, 2)}


def watched(door: Side, token: str, size: Size) -> dict[str, Any]:
    """Keep the door busy and read its memory ten times a minute."""
    seen: list[float] = []
    ended = threading.Event()

    def watch() -> None:
        while not ended.is_set():
            seen.append(round(door.resident_mib(), 1))
            ended.wait(6.0)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        calls = load(door, token, size.connections, seconds=size.minutes * 60)["calls"]
    finally:
        ended.set()
        watching.join()
    seen.append(round(door.resident_mib(), 1))
    half = seen[len(seen) // 2 :]
    return {"minutes": size.minutes, "calls": calls, "resident_mib": seen, "grown_in_second_half": half[-1] - half[0]}


def text(found: dict[str, Any]) -> str:
    """Lay out what was found."""
    facts, memory = found["machine"], found["memory"]
    seen = memory["resident_mib"]
    return "\n\n".join(
        (
            f"{facts['cores']} cores, {facts['system']}, Python {facts['python']}; {found['engine']}",
            "job_claim and job_complete over HTTP, beside a route that runs one no-op EVALSHA",
            table(COLUMNS, ([str(entry[name]) for name in COLUMNS] for entry in found["doors"])),
            f"memory of shampoo serve: {seen[0]} MiB, then {max(seen)} MiB at most and {seen[-1]} MiB at the end of "
            f"{memory['minutes']:g} minutes and {memory['calls']:,} calls; {memory['grown_in_second_half']:+.1f} MiB "
            "in the second half",
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.doors", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="write every figure to this file as JSON")
    parser.add_argument("--rounds", type=int, default=Size.rounds, help="turns of each side")
    parser.add_argument("--jobs", type=int, default=Size.jobs, help="jobs claimed and completed in a turn")
    parser.add_argument("--connections", type=int, default=Size.connections, help="connections at a time")
    parser.add_argument("--minutes", type=float, default=Size.minutes, help="how long the memory is watched")
    given = parser.parse_args()
    # That the private server keeps nothing on disk need not be said at every turn.
    logging.getLogger("shampoo_queue").setLevel(logging.ERROR)
    if shutil.which("redis-server") is None:
        parser.exit(2, "redis-server is not on PATH\n")
    size = Size(given.rounds, given.jobs, given.connections, given.minutes)
    found = run(size, lambda line: print(line, file=sys.stderr, flush=True))
    print(text(found))
    if given.out:
        given.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
