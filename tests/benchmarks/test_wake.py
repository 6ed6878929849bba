"""The benchmark of wake-ups, in its tiniest form, so that its code cannot rot. Its figures mean nothing here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.contestants import PEERS, Contestant, Environments, ours
from benchmarks.latency import quantile
from benchmarks.report import tables
from benchmarks.wake import Size, choose, run

TINY = Size(
    rounds=1,
    jobs=3,
    floor_seconds=0.01,
    idle_seconds=0.5,
    idle_settle=0.1,
    cost_jobs=2,
    waiters=2,
    woken_jobs=3,
    woken_settle=0.2,
)


def test_a_tiny_run_measures_every_figure_and_leaves_out_who_fails(tmp_path: Path) -> None:
    sync = ours("embedded")[0]
    ghost = Contestant("ghost", "", "{bin}/python nowhere.py", "{bin}/python nowhere.py", "embedded")

    found = json.loads(json.dumps(run(TINY, [sync, ghost], Environments(tmp_path))))

    assert list(found["left_out"]) == ["ghost on embedded"]
    assert "nowhere.py" in found["left_out"]["ghost on embedded"]
    (latency,) = found["latency"]
    assert latency["jobs"] == TINY.jobs
    assert 0 < latency["floor_ms"] < latency["p50_ms"] <= latency["p90_ms"] <= latency["max_ms"]
    (turn,) = latency["turns"]  # so that every figure can be recomputed
    assert round(max(turn["starts_ms"]), 3) == latency["max_ms"]
    assert round(latency["p50_ms"] / latency["floor_ms"], 1) == pytest.approx(latency["p50_x_floor"], rel=0.05)
    (cost,) = found["cost"]
    assert cost["sent_a_job"] >= 3  # to create, to claim, to complete
    one_by_one, at_once = found["waiters"]
    assert one_by_one["woken"] >= one_by_one["jobs"] == TINY.woken_jobs
    assert at_once["signs"] >= 1
    assert [row["workers"] for row in found["idle"]] == [1, TINY.waiters]
    text = tables(found)
    assert all(row["name"] in text for row in found["latency"])
    assert "left out: ghost on embedded" in text


def test_a_peer_that_is_not_installed_is_left_out_with_the_reason(tmp_path: Path) -> None:
    chosen, left_out = choose(None, Environments(tmp_path), install=False)
    assert chosen == []
    assert list(left_out) == [peer.name for peer in PEERS]
    assert all("not installed" in why for why in left_out.values())


def test_an_unknown_peer_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no peer is called nobody"):
        choose("nobody", Environments(tmp_path), install=False)


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_every_peer_is_pinned_and_has_its_side(peer: Contestant, tmp_path: Path) -> None:
    assert peer.name.split("-")[0].split()[0] in Environments(tmp_path).versions(peer.env)
    sides = Path(__file__).parents[2] / "benchmarks" / "sides"
    assert (sides / peer.produce.split()[1]).is_file()


@pytest.mark.parametrize("share, value", [(0.5, 5.0), (0.99, 10.0), (0.1, 1.0), (1.0, 10.0)])
def test_a_quantile_is_the_smallest_value_that_covers_its_share(share: float, value: float) -> None:
    assert quantile([float(n) for n in range(1, 11)], share) == value
