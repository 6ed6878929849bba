"""Measure wake-ups: how soon a created job starts, what waiting costs, and how many are woken for a job.

``python -m benchmarks.wake --out results.json`` prints tables and writes every figure; see README.md beside this file.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from . import cost, idle, latency, waiters
from .contestants import BARE, PEERS, Contestant, Environments, ours
from .report import tables
from .servers import Server, started

STEPS = ("latency", "cost", "waiters", "idle")


@dataclass(frozen=True)
class Size:
    """How much is measured; lengths in seconds."""

    rounds: int
    jobs: int
    floor_seconds: float
    idle_seconds: float
    idle_settle: float
    cost_jobs: int
    waiters: int
    woken_jobs: int
    woken_settle: float


FULL = Size(8, 50, 0.2, 60.0, 12.0, 30, 200, 100, 3.0)
QUICK = Size(1, 12, 0.05, 12.0, 6.0, 5, 200, 40, 1.0)


def run(
    size: Size, contestants: Sequence[Contestant], environments: Environments, steps: Sequence[str] = STEPS
) -> dict[str, Any]:
    """Measure the contestants in one run; return everything found, ready to be written as JSON.

    Who fails is left out from there on, with the reason under ``left_out``.
    """
    began = time.monotonic()

    def say(what: str) -> None:
        print(f"{time.monotonic() - began:6.0f} s  {what}", file=sys.stderr, flush=True)

    field, used = list(contestants), sorted({one.engine for one in contestants})
    left_out: dict[str, str] = {}
    found: dict[str, Any] = {"size": asdict(size), "machine": machine(), "left_out": left_out}
    with ExitStack() as stack:
        servers = {engine: stack.enter_context(started(engine)) for engine in used}
        found["versions"] = _versions(servers, {one.env for one in contestants} - {""}, environments)
        if "latency" in steps:
            rows, failed = latency.measure(
                field, servers, environments, size.rounds, size.jobs, size.floor_seconds, say
            )
            found["latency"] = rows
            field = [one for one in field if one.label not in failed]
            left_out |= failed
        if "cost" in steps:
            found["cost"], failed = cost.measure(field, servers, environments, size.cost_jobs, say)
            field = [one for one in field if one.label not in failed]
            left_out |= failed
        if "waiters" in steps:
            found["waiters"] = []
            for server in servers.values():
                found["waiters"] += waiters.measure(
                    server, size.waiters, size.woken_jobs, environments, size.woken_settle, say
                )
    if "idle" in steps:
        herds = [(engine, size.waiters) for engine in used]
        found["idle"], failed = idle.measure(field, herds, environments, size.idle_seconds, size.idle_settle, say)
        left_out |= failed
    say("done")
    return found


def _versions(servers: Mapping[str, Server], envs: Iterable[str], environments: Environments) -> dict[str, Any]:
    versions: dict[str, Any] = {
        "engines": {engine: server.version for engine, server in servers.items()},
        "ours": {name: version(name) for name in ("shampoo_queue", "redis", "hiredis")},
        "peers": {env: environments.versions(env) for env in sorted(envs)},
    }
    if "node" in versions["peers"]:
        versions["node"] = subprocess.check_output(["node", "--version"], text=True).strip()  # noqa: S607
    return versions


def machine() -> dict[str, Any]:
    return {
        "cores": os.cpu_count(),
        "system": platform.system(),
        "processor": platform.machine(),
        "python": platform.python_version(),
    }


def choose(names: str | None, environments: Environments, install: bool) -> tuple[list[Contestant], dict[str, str]]:
    """Give the peers that can take part, and those left out with the reason."""
    known = {peer.name: peer for peer in PEERS}
    wanted = list(known) if names is None else [name for name in names.split(",") if name]
    if unknown := sorted(set(wanted) - set(known)):
        raise ValueError(f"no peer is called {', '.join(unknown)}; there are {', '.join(known)}")
    chosen, left_out = [], {}
    for name in wanted:
        peer = known[name]
        if not environments.ready(peer.env) and install:
            print(f"installing {peer.env}", file=sys.stderr, flush=True)
            try:
                environments.make(peer.env)
            except RuntimeError as error:
                left_out[name] = f"its installation failed: {error}"
                continue
        if environments.ready(peer.env):
            chosen.append(peer)
        else:
            left_out[name] = "it is not installed; a run without --quick does that"
    return chosen, left_out


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.wake", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="write every figure to this file as JSON")
    parser.add_argument("--quick", action="store_true", help="a small run, under two minutes, that installs nothing")
    parser.add_argument("--rounds", type=int, help="turns that each contestant takes in the latency part")
    parser.add_argument("--peers", help="only these, separated by commas; an empty text for none")
    parser.add_argument("--steps", help=f"some of {','.join(STEPS)}; all unless given, --quick leaves out cost")
    parser.add_argument("--envs", type=Path, help="the folder of the peers' environments")
    given = parser.parse_args()
    steps = given.steps.split(",") if given.steps else [step for step in STEPS if step != "cost" or not given.quick]
    if unknown := sorted(set(steps) - set(STEPS)):
        parser.error(f"no step is called {', '.join(unknown)}; there are {', '.join(STEPS)}")
    # That the private server keeps nothing on disk need not be said at every turn.
    logging.getLogger("shampoo_queue").setLevel(logging.ERROR)
    if shutil.which("redis-server") is None:
        parser.exit(2, "redis-server is not on PATH\n")
    environments = Environments(given.envs)
    try:
        peers, left_out = choose(given.peers, environments, install=not given.quick)
        contestants = [*ours("redis"), *ours("embedded"), BARE, *peers]
        size = QUICK if given.quick else FULL
        size = replace(size, rounds=given.rounds or size.rounds)
        found = run(size, contestants, environments, steps)
    except (ValueError, RuntimeError) as error:
        parser.exit(2, f"{error}\n")
    found["left_out"] |= left_out
    print(tables(found))
    if given.out:
        given.out.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
