"""Draw figures, and write them in words."""

from __future__ import annotations

import unicodedata
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


def test_figures_are_exact_or_said_to_be_about_right() -> None:
    exact, sampled = minute(completed=1_234.0, events=9, sampled=9), minute(completed=1_000.0, events=9, sampled=3)
    drawn = charts.throughput([exact, sampled])
    assert words.count(drawn.totals["completed"], drawn.exact) == "about 2,200"
    assert [row["completed"] for row in charts.table([exact, sampled], 1)] == ["1,234", "about 1,000"]
    assert [row["completed"] for row in charts.table([exact, sampled], 2)] == ["about 2,200"]
    assert charts.table([minute(events=2_000, sampled=1_000, run_ms=1_234.0)])[0]["run_ms"] == "about 1.2 s"
    assert words.short(None, False) == "–"


def test_an_hour_without_jobs_is_empty() -> None:
    assert charts.throughput([minute(), minute(events=3, sampled=3)]).empty
    assert not charts.throughput([minute(failed=1.0)]).empty
    assert charts.length([minute()], "run_ms").empty


def test_a_mean_over_minutes_weighs_each_by_its_moves() -> None:
    busy, idle = minute(wait_ms=10.0, claimed=99.0), minute(wait_ms=1_010.0, claimed=1.0)
    assert charts.length([busy, idle], "wait_ms").mean_ms == pytest.approx(20.0)


# Every character that is not drawn, or drawn like another: controls, formats, fillers, blanks, selectors, tags, others'
# spaces, and what no font has.
UNSEEN = [
    *(c for c in map(chr, range(0x110000)) if unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp") and c not in "\t\n"),
    *"\u00a0\u2003\u3000\u3164\u115f\u1160\uffa0\u2800\u034f\u17b4\u180b\ufe00\ufe0f\U000e0100\U000e01ef\U000e0041",
    *"\U000e0000\ufdd0\uffff\ue000\U000f0000",
]  # fmt: skip


def test_what_is_not_seen_is_named() -> None:
    for c in UNSEEN:
        for shown in (words.said(f"a{c}b"), words.block(f"a{c}b")):
            assert f"a‹U+{ord(c):04X}›b" in shown


@pytest.mark.parametrize("plain", ["naïve", "Zoë 🦊 日本語 한국어", "हिन्दी", "e\u0301\u0302\u0303", "ไม่มี", "a  b"])
def test_what_is_seen_is_shown(plain: str) -> None:
    assert words.said(plain) == f'<bdi class="said">{plain}</bdi>'


def test_marks_do_not_pile_up_or_lean_on_what_is_before() -> None:
    assert words.block("e" + "\u0301" * 5 + "f\u0301") == "e" + "\u0301" * 3 + "‹U+0301›" * 2 + "f\u0301"
    assert words.block("日" + "\u0301" * 4) == "日" + "\u0301" * 3 + "‹U+0301›"
    assert words.said("\u0301x") == '<bdi class="said">‹U+0301›x</bdi>'


def test_blanks_at_an_end_are_named() -> None:
    assert words.said(" ") == '<bdi class="said">‹U+0020›</bdi>'
    assert words.said(" a ") == '<bdi class="said">‹U+0020›a‹U+0020›</bdi>'
    assert words.said("a b c", 2) == '<bdi class="said">a …</bdi>'


def test_texts_of_ours_show_names_as_code() -> None:
    assert words.coded("``a`` and ``<b>``") == "<code>a</code> and <code>&lt;b&gt;</code>"


def test_a_text_of_others_is_isolated_cut_and_shows_what_is_hidden_in_it() -> None:
    assert words.said("<b>\u202e\x00\n\t") == '<bdi class="said">&lt;b&gt;‹U+202E›‹U+0000›  </bdi>'
    assert words.said("é" * 9, 4) == '<bdi class="said">éééé…</bdi>'
    assert words.said("", unset="none") == '<span class="nothing">none</span>'
    assert words.block("a\r\nb\u2066<") == "a\nb‹U+2066›&lt;"
