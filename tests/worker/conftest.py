"""A bench: a fresh profile with a conductor ``c`` and an executor ``w``, who both hold ``p``."""

from __future__ import annotations

import pytest

from tests.conftest import _start
from tests.queue import Engine, Queue
from tests.worker.bench import Bench


@pytest.fixture(params=["embedded"])
def engine(
    request: pytest.FixtureRequest, engines: dict[str, Engine], tmp_path_factory: pytest.TempPathFactory
) -> Engine:
    """The embedded server unless a test asks for others: what the runtime is made of is not the server's."""
    name: str = request.param
    if name not in engines:
        engines[name] = _start(name, tmp_path_factory.mktemp(name))
    return engines[name]


@pytest.fixture
def bench(queue: Queue) -> Bench:
    return Bench(queue)
