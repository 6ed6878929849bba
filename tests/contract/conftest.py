"""Keep the embedded server up between the tests: without a user it goes down, and starting one takes its time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shampoo_queue import Shampoo
from tests.queue import Engine


@pytest.fixture(scope="session")
def _kept() -> Iterator[dict[str, Shampoo]]:
    kept: dict[str, Shampoo] = {}
    yield kept
    for opened in kept.values():
        opened.close()


@pytest.fixture
def engine(engine: Engine, _kept: dict[str, Shampoo]) -> Engine:
    """Each engine in turn, as everywhere."""
    if engine.name == "embedded" and engine.url not in _kept:
        _kept[engine.url] = Shampoo.connect(engine.url, profile="kept")
    return engine
