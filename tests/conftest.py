"""The engines every contract case runs on, and a fresh, audited profile for every test."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from shampoo_queue import Shampoo
from shampoo_queue import trace as spans
from tests.queue import Clock, Engine, Queue, test_lua
from tests.servers import Cluster, SentinelTrio, Server, redis, valkey

ENGINES = ("memory", "embedded", "redis7", "cluster", "sentinel")
REAL = ("embedded", "redis7")
IN_CI = bool(os.environ.get("CI"))


@pytest.fixture(scope="session")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Engine]]:
    """Servers started so far, by name; each is started when a test first asks for it."""
    started: dict[str, Engine] = {}
    yield started
    for engine in started.values():
        engine.stop()


def _start(name: str, folder: Path) -> Engine:
    if name == "memory":
        return Engine(name, "memory://tests", lambda: None)
    if name == "embedded":
        # Held open, or each test would start a server of its own.
        return Engine(name, f"embedded://{folder}", Shampoo.connect(f"embedded://{folder}").close)
    if name == "redis7":
        program = redis()
        if program is None:
            assert not IN_CI, "redis-server is always there in CI"
            pytest.skip("there is no redis-server on PATH: apt-get install redis-server")
        server = Server(program, folder)
        server.start()
        return Engine(name, server.url, server.stop)
    topology: Any = Cluster(valkey(), folder) if name == "cluster" else SentinelTrio(valkey(), folder)
    topology.start()
    return Engine(name, topology.url, topology.stop)


@pytest.fixture(params=ENGINES)
def engine(
    request: pytest.FixtureRequest, engines: dict[str, Engine], tmp_path_factory: pytest.TempPathFactory
) -> Engine:
    """Each engine in turn; narrow it with ``@pytest.mark.parametrize("engine", REAL, indirect=True)``."""
    name: str = request.param
    if name not in engines:
        engines[name] = _start(name, tmp_path_factory.mktemp(name))
    return engines[name]


@pytest.fixture
def queue(engine: Engine) -> Iterator[Queue]:
    """A fresh profile on the engine. Its raw keys are audited after the test, then deleted."""
    opened = Queue(engine)
    yield opened
    found = opened.problems()
    opened.close()
    assert not found, "\n".join(found)


@pytest.fixture
def clock(queue: Queue) -> Clock:
    """The queue with a clock that stands still until the test moves it."""
    return queue.stop_clock()


@pytest.fixture(scope="session", autouse=True)
def _lua_with_a_test_clock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("lua")
    test_lua(folder)
    yield
    shutil.rmtree(folder)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say what was skipped and why, always."""
    reasons = {str(report.longrepr[2]) for report in terminalreporter.stats.get("skipped", ()) if report.longrepr}
    for reason in sorted(reasons):
        terminalreporter.write_line(f"not run: {reason}")


@pytest.fixture(scope="session")
def exporter() -> InMemorySpanExporter:
    """The spans that this process records; a process can be given one provider only."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    spans._look_again_at = 0.0
    return exporter
