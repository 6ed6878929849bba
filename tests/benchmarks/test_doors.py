"""The benchmark of the HTTP door, in its tiniest form, so that its code cannot rot. Its figures mean nothing here."""

from __future__ import annotations

import json
import shutil

import pytest

from benchmarks.doors import Size, row, run, text
from tests.conftest import IN_CI


@pytest.mark.skipif(not IN_CI and not shutil.which("redis-server"), reason="there is no redis-server on PATH")
def test_a_tiny_run_measures_every_figure() -> None:
    size = Size(rounds=1, jobs=40, connections=4, minutes=0.01)
    found = json.loads(json.dumps(run(size, lambda _line: None)))
    door, bare = found["doors"]
    assert (door["name"], bare["name"]) == ("shampoo serve", "(bare route)")
    assert 0 < door["p50_ms"] <= door["p99_ms"]
    assert bare["x_bare"] == 1.0
    (turn,) = found["turns"]["shampoo serve"]
    assert turn["calls"] >= 2 * size.jobs  # each connection asks once more, and hears that nothing is left
    assert turn["calls"] <= 2 * size.jobs + size.connections
    assert found["turns"]["(bare route)"][0]["calls"] == 2 * size.jobs
    assert found["memory"]["calls"] > 0
    assert min(found["memory"]["resident_mib"]) > 20
    assert all(entry["name"] in text(found) for entry in found["doors"])


def test_a_ratio_is_that_of_a_turn_and_the_one_right_after_it() -> None:
    calm, busy = {"calls_a_second": 100.0, "p50_ms": 1.0, "p90_ms": 2.0, "p99_ms": 3.0}, {}
    busy = {name: value / 2 if name == "calls_a_second" else value * 2 for name, value in calm.items()}
    assert row("x", [calm, busy], [calm, busy])["x_bare"] == 1.0
    assert row("x", [busy, busy, calm], [calm, calm, calm])["x_bare"] == 0.5
