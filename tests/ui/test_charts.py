"""Draw figures, and write them in words."""

from __future__ import annotations

from typing import Any

import pytest

from shampoo_queue.server.ui import charts, words


def minute(**facts: Any) -> dict[str, Any]:
    nothing = {"created": 0.0, "claimed": 0.0, "completed": 0.0, "failed": 0.0, "wait_ms": None, "run_ms": None}
    return {"at": "2026-11-30T18:00:00.000Z", "events": 0, "sampled": 0, **nothing, **facts}


def test_the_tallest_stack_fits_and_stands_on_the_ground() -> None:
    drawn = charts.throughput([minute(completed=3.0, failed=1.0), minute(), minute(created=13.0)])
    (bar,) = drawn.bars
    assert bar.completed_y + bar.completed_height == charts.HEIGHT
    assert bar.failed_y + bar.failed_height == pytest.approx(bar.completed_y, abs=0.11)
    assert drawn.most == 15
    assert drawn.created.count(",") == 3
    assert drawn.totals == {"created": 13.0, "claimed": 0, "completed": 3.0, "failed": 1.0}
    assert drawn.exact


def test_counts_reckoned_from_a_sample_are_marked() -> None:
    assert not charts.throughput([minute(events=10, sampled=5)]).exact


def test_minutes_without_a_length_are_gaps() -> None:
    known = [minute(run_ms=50.0), minute(run_ms=100.0), minute(), minute(run_ms=10.0)]
    drawn = charts.length(known, "run_ms")
    assert [line.count(",") for line in drawn.lines] == [2, 2], "a lone minute is a dash"
    assert (drawn.most_ms, drawn.last_ms) == (100.0, 10.0)
    empty = charts.length([minute()], "run_ms")
    assert (empty.lines, empty.mean_ms, empty.last_ms) == ((), None, None)


def test_nothing_at_all_can_be_drawn() -> None:
    assert charts.throughput([]).bars == ()
    assert charts.length([], "wait_ms").lines == ()
    assert charts.table([]) == []


@pytest.mark.parametrize(
    "value, top", [(0.2, 1), (7, 7), (10, 10), (11, 12), (101, 120), (4_100, 5_000), (90_001, 100_000)]
)
def test_the_top_of_a_scale_reads_well(value: float, top: int) -> None:
    assert charts.length([minute(wait_ms=float(value))], "wait_ms").most_ms == max(1, top)


@pytest.mark.parametrize(
    "seconds, text", [(0, "0 s"), (59.4, "59 s"), (60, "1 min 0 s"), (3_599.6, "1 h 0 min"), (90_000, "1 d 1 h")]
)
def test_lengths_are_written_with_two_units(seconds: float, text: str) -> None:
    assert words.length(seconds) == text


@pytest.mark.parametrize("count, text", [(0, "0 B"), (1_023, "1023 B"), (1_024, "1.0 KiB"), (5 * 2**40, "5.0 TiB")])
def test_sizes_are_written_with_their_unit(count: int, text: str) -> None:
    assert words.size(count) == text


def test_a_text_of_others_is_isolated_cut_and_shows_what_is_hidden_in_it() -> None:
    assert words.said("<b>\u202e\x00\n\t") == '<bdi class="said">&lt;b&gt;‹U+202E›‹U+0000›  </bdi>'
    assert words.said("é" * 9, 4) == '<bdi class="said">éééé…</bdi>'
    assert words.said("", unset="none") == '<span class="nothing">none</span>'
    assert words.block("a\r\nb\u2066<") == "a\nb‹U+2066›&lt;"
