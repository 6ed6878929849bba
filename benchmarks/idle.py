"""Count what idle workers send to Redis, and what Redis executes for them, each contestant on a server of its own."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

from .contestants import Contestant, Entry, Environments
from .servers import Monitor, Server, started
from .waiters import Herd


@dataclass(frozen=True)
class Resting:
    """Idle workers on a server of their own; ``why`` tells why they have ended, if they have."""

    name: str
    workers: int
    server: Server
    why: Callable[[], str]


def measure(
    contestants: Sequence[Contestant],
    herds: Sequence[tuple[str, int]],
    environments: Environments,
    seconds: float,
    settle: float,
    say: Callable[[str], None],
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Let all be idle at the same time; give their figures, and who failed and why.

    ``herds`` are engines and numbers of this project's waiters.
    """
    with ExitStack() as stack:
        resting = [stack.enter_context(_working(one, environments)) for one in contestants]
        resting += [stack.enter_context(_herd(engine, count, environments)) for engine, count in herds]
        say(f"idle: {len(resting)} servers, {settle + seconds:.0f} seconds")
        time.sleep(settle)
        clients = [stack.enter_context(rest.server.client()) for rest in resting]
        for client in clients:
            client.ping()  # the greeting of the connection is not to be counted
        before = [_processed(client) for client in clients]
        monitors = [stack.enter_context(Monitor(rest.server)) for rest in resting]
        time.sleep(seconds)
        rows, failed = [], {}
        for rest, was, client, monitor in zip(resting, before, clients, monitors, strict=True):
            sent, now = monitor.sent - OWN, _processed(client)
            if why := rest.why():
                failed[f"{rest.name} on {rest.server.engine}"] = why
            else:
                rows.append(_row(rest, seconds, sent, now - was - OWN.total()))
    return rows, failed


def _processed(client: redis.Redis) -> int:
    """Give the commands processed so far, those that scripts called too."""
    return int(client.info("stats")["total_commands_processed"])


OWN = Counter({"monitor": 1, "info": 1})  # what the counting itself sends between its two readings


def _row(rest: Resting, seconds: float, sent: Counter[str], processed: int) -> dict[str, Any]:
    a_worker_second = rest.workers * seconds
    return {
        "name": rest.name,
        "engine": rest.server.engine,
        "workers": rest.workers,
        "seconds": seconds,
        "sent": dict(sent.most_common()),
        "processed": processed,
        "sent_a_worker_second": round(sent.total() / a_worker_second, 3),
        "processed_a_worker_second": round(processed / a_worker_second, 3),
    }


@contextmanager
def _working(contestant: Contestant, environments: Environments) -> Iterator[Resting]:
    with started(contestant.engine) as server, tempfile.TemporaryDirectory(prefix="bench-") as folder:
        entry = Entry(contestant, server, environments, Path(folder))
        entry.clear()
        with entry.running(contestant.work, talks=False) as process:
            yield Resting(contestant.name, 1, server, lambda: entry.why() if process.poll() is not None else "")


@contextmanager
def _herd(engine: str, count: int, environments: Environments) -> Iterator[Resting]:
    with started(engine) as server, Herd(server, count, environments) as herd:
        yield Resting("shampoo wait_for_work", count, server, lambda: "" if herd.told() else "no answer")
