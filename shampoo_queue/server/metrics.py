"""What Prometheus reads: calls counted in this process, and the counts of the queues that the asker may see.

Labels come from closed sets, but for the profile and, of each profile, its 20 largest kinds; the rest are ``other``.
No label tells of a project, a principal or a token. Every replica reads the same counts, so take ``max``, not ``sum``,
of those over replicas.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from .. import __version__
from ..clock import now
from ..contract import TOOLS
from ..errors import DOOR_ERRORS, REFUSALS, ShampooError
from ..extensions import EXTENSIONS
from ..moves import Command, Operation
from ..registry import Operator
from ..sight import SightOperations
from ..tools import text

if TYPE_CHECKING:
    from ..client import AsyncShampoo

DOORS = ("http", "mcp", "stdio", "ui")
LARGEST_KINDS = 20
STANDINGS = ("queued", "claimed", "delayed", "lapsed", "exhausted")

_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_TOOLS = frozenset(tool.name for tool in (*TOOLS, *EXTENSIONS))
_CODES = frozenset((*REFUSALS, *DOOR_ERRORS, "ok", "cancelled"))
_CACHE_SECONDS = 2.0
_READ_SECONDS = 3.0  # for one profile; less than a scrape's time
_TOGETHER = 8  # profiles read at the same time


@dataclass(slots=True)
class _Profile:
    """What one profile tells: its counts by kind, and of its server the facts of INFO by section."""

    status: dict[str, Any]
    server: dict[str, str]


class Metrics:
    """The metrics of one process, in a registry of its own. Needs the extra ``[serve]``."""

    def __init__(self) -> None:
        import prometheus_client as prometheus

        self._prometheus = prometheus
        self.content_type = "text/plain; version=0.0.4; charset=utf-8"
        registry = self._registry = prometheus.CollectorRegistry()
        self._calls = prometheus.Counter(
            "shampoo_tool_calls", "Tool calls, by what came of them.", ("tool", "door", "code"), registry=registry
        )
        self._seconds = prometheus.Histogram(
            "shampoo_tool_seconds",
            "How long tool calls took, waits included.",
            ("tool", "door"),
            registry=registry,
            buckets=_BUCKETS,
        )
        self._failures = prometheus.Counter(
            "shampoo_auth_failures", "Calls with a missing or bad credential.", registry=registry
        )
        self.in_flight = prometheus.Gauge(
            "shampoo_tool_calls_in_flight", "Tool calls begun and not ended.", registry=registry
        )
        build = prometheus.Gauge(
            "shampoo_build_info", "Always 1; the version is a label.", ("version",), registry=registry
        )
        build.labels(__version__).set(1)
        prometheus.ProcessCollector(registry=registry)
        # What labels lead to, since finding it takes longer than counting.
        self._counted: dict[tuple[str, str, str], tuple[Any, Any]] = {}
        # Of each profile, when it was looked at last, and what was found if it could be read.
        self._seen: dict[str, tuple[float, _Profile | None]] = {}
        self._looking = asyncio.Lock()

    def tool_call(self, tool: str, door: str, code: str, seconds: float) -> None:
        """Count one call and how long it took; ``code`` is ``ok`` or the refusal's."""
        named = tool, door, code
        counted = self._counted.get(named)
        if counted is None:
            tool, door = tool if tool in _TOOLS else "other", door if door in DOORS else "other"
            code = code if code in _CODES else "other"
            counted = self._calls.labels(tool, door, code), self._seconds.labels(tool, door)
            if named == (tool, door, code):
                self._counted[named] = counted
        counted[0].inc()
        counted[1].observe(seconds)

    def auth_failed(self) -> None:
        """Count one call with a missing or bad credential."""
        self._failures.inc()

    async def text(self, queues: Mapping[str, AsyncShampoo]) -> bytes:
        """Give what this process counts, and the counts of these queues and no others, in Prometheus' text format.

        Each queue is read at most every 2 seconds. With a Redis that is away, or with no queues, ``shampoo_up`` is 0
        and what comes from there is missing.
        """
        async with self._looking:
            await self._look({name: queue for name, queue in queues.items() if not self._is_fresh(name)})
            self._seen = {name: seen for name, seen in self._seen.items() if name in queues or self._is_fresh(name)}
            found = {name: self._seen[name][1] for name in queues}
        rendered: bytes = self._prometheus.generate_latest(_Told(self._registry, _Queues(found)))
        return rendered

    def _is_fresh(self, name: str) -> bool:
        return name in self._seen and now() - self._seen[name][0] < _CACHE_SECONDS

    async def _look(self, queues: Mapping[str, AsyncShampoo]) -> None:
        together = asyncio.Semaphore(_TOGETHER)

        async def read(queue: AsyncShampoo) -> _Profile | None:
            async with together:
                try:
                    async with asyncio.timeout(_READ_SECONDS):
                        return await queue._run(_read(queue._route.in_memory))
                except (ShampooError, TimeoutError):
                    return None

        found = await asyncio.gather(*map(read, queues.values()))
        self._seen |= {name: (now(), one) for name, one in zip(queues, found, strict=True)}


def _read(in_memory: bool) -> Operation[_Profile]:
    """Read one profile in an operator's name, and what its server, if there is one, says of itself."""
    status = yield from SightOperations(Operator("metrics")).queue_status()
    if in_memory:
        return _Profile(status, {})
    info = yield Command(("INFO", "memory", "clients", "commandstats"))
    lines = (line.split(":", 1) for line in text(info).splitlines() if ":" in line)
    return _Profile(status, dict(lines))


class _Told:
    """Several collectors rendered as one."""

    def __init__(self, *collectors: Any) -> None:
        self._collectors = collectors

    def collect(self) -> Iterable[Any]:
        """Give the metrics of each, in turn."""
        return chain.from_iterable(collector.collect() for collector in self._collectors)


class _Queues:
    """Render what was found of the queues of one scrape; None for one that could not be read."""

    def __init__(self, found: Mapping[str, _Profile | None]) -> None:
        self._profiles = {name: one for name, one in found.items() if one is not None}
        self._up = bool(found) and len(self._profiles) == len(found)

    def collect(self) -> Iterable[Any]:
        """Give the metrics of the queues and of their server."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        up = GaugeMetricFamily("shampoo_up", "1 when every profile could be read, else 0.")
        up.add_metric((), int(self._up))
        yield up
        jobs = GaugeMetricFamily("shampoo_jobs", "Jobs without an outcome.", labels=("profile", "kind", "standing"))
        oldest = GaugeMetricFamily(
            "shampoo_oldest_queued_seconds", "How long the earliest claimable job stands.", labels=("profile", "kind")
        )
        damaged = GaugeMetricFamily(
            "shampoo_damaged_jobs", "Jobs set aside because they were edited beyond use.", labels=("profile",)
        )
        partial = GaugeMetricFamily(
            "shampoo_counts_partial", "1 when there is more than one look counts.", labels=("profile",)
        )
        for profile, one in self._profiles.items():
            for kind, row in _by_kind(one.status["kinds"]).items():
                for standing in STANDINGS:
                    jobs.add_metric((profile, kind, standing), row[standing])
                oldest.add_metric((profile, kind), row["oldest_seconds"])
            damaged.add_metric((profile,), one.status["damaged"] or 0)
            partial.add_metric((profile,), int(one.status["partial"]))
        yield from (jobs, oldest, damaged, partial)
        # The profiles of a process stand on one server; on a cluster this is the node of the first.
        for one in [one for one in self._profiles.values() if one.server][:1]:
            for name, meaning, value in _of_server(one.server):
                family = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
                metric = family(name.removesuffix("_total"), meaning)
                metric.add_metric((), value)
                yield metric


def _by_kind(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Keep the largest kinds apart and put the rest, and a kind that is called so, together as ``other``."""
    kinds: dict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys((*STANDINGS, "oldest_seconds"), 0.0))
    for n, row in enumerate(rows):
        kind = kinds[row["kind"] if n < LARGEST_KINDS else "other"]
        for standing in STANDINGS:
            kind[standing] += row[standing]
        kind["oldest_seconds"] = max(kind["oldest_seconds"], row["oldest_seconds"])
    return kinds


def _of_server(info: Mapping[str, str]) -> Iterable[tuple[str, str, float]]:
    """Give the metrics of the server: name, meaning, value."""
    scripts = dict(part.split("=", 1) for part in info.get("cmdstat_evalsha", "").split(",") if "=" in part)
    yield "shampoo_redis_memory_used_bytes", "Memory that Redis uses.", _float(info.get("used_memory"))
    yield (
        "shampoo_redis_memory_max_bytes",
        "Memory that Redis may use; 0 without a limit.",
        _float(info.get("maxmemory")),
    )
    yield "shampoo_redis_clients", "Connections to Redis.", _float(info.get("connected_clients"))
    yield "shampoo_redis_script_calls_total", "Scripts that Redis ran.", _float(scripts.get("calls"))
    yield "shampoo_redis_script_seconds_total", "Time that Redis spent in them.", _float(scripts.get("usec")) / 1e6


def _float(digits: str | None) -> float:
    try:
        return float(digits or 0)
    except ValueError:
        return 0.0
