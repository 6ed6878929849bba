"""Show answers to people: fields and tables on a terminal, JSON documents everywhere else."""

from __future__ import annotations

import io
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from . import streams
from .settings import current

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

LEAST_WIDTH = 10
LONGEST_VALUE = 2_000

_COLOURS = {
    "green": ("completed", "done", "approved", "merged", "live"),
    "yellow": ("claimed", "in_progress", "pending"),
    "red": ("failed", "cancelled", "conflicted", "changes_requested", "disabled"),
    "cyan": ("queued", "open"),
}
_COLOUR_OF = {word: colour for colour, words in _COLOURS.items() for word in words}


def answer(value: Mapping[str, Any], *, moved: bool = False) -> None:
    """Write a command's answer. ``moved`` says that it answers a move, which stands whoever can read the answer."""
    if current().json or not streams.is_terminal():
        streams.document(value, moved=moved)
    else:
        streams.text(render(value), moved=moved)


def render(value: Mapping[str, Any]) -> str:
    """Lay out an answer: a list as a table, or as blocks where the table is too wide; everything else as fields."""
    if set(value) == {"result", "meta"}:
        return render(value["result"]) + fields(value["meta"])
    if "count" not in value:
        return fields(value)
    name, entries = next((name, part) for name, part in value.items() if isinstance(part, list))
    counted = name.removesuffix("s") if len(entries) == 1 else name
    return (_entries(entries) if entries else "") + f"{len(entries)} {counted}\n"


def fields(value: Mapping[str, Any]) -> str:
    """Lay out names and values in two columns."""
    from rich.table import Table

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="bold", overflow="fold")
    table.add_column(overflow="fold")
    for name, part in value.items():
        table.add_row(name, cell(part))
    return printed(table)


def _entries(entries: Sequence[Mapping[str, Any]]) -> str:
    table, width = _table(entries)
    if width <= _width():
        return printed(table)
    return "\n".join(fields({name: part for name, part in entry.items() if part != ""}) for entry in entries) + "\n"


def _table(entries: Sequence[Mapping[str, Any]]) -> tuple[Table, int]:
    """Make a table of entries with the same names; give it with the width that it wants."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for name in entries[0]:
        table.add_column(name, overflow="fold")
    for entry in entries:
        table.add_row(*map(cell, entry.values()))
    wanted = _console().measure(table, options=_console().options.update_width(10_000)).maximum
    return table, wanted


def cell(value: Any) -> Text:
    """Show one value; a list takes a line for each of its parts, and nothing in it can command the terminal."""
    from rich.text import Text

    if isinstance(value, list | tuple):
        return Text("\n".join(streams.visible(part) or '""' for part in map(str, value)))
    shown = streams.visible(value if isinstance(value, str) else json.dumps(value))
    if len(shown) > LONGEST_VALUE:
        shown = f"{shown[:LONGEST_VALUE]}... ({len(value):,} characters; --json shows all)"
    return Text(shown, style=_COLOUR_OF.get(shown, ""))


def printed(content: RenderableType) -> str:
    """Render for the terminal of the moment."""
    console = _console()
    console.print(content)
    shown = console.file
    assert isinstance(shown, io.StringIO)
    return "\n".join(line.rstrip() for line in shown.getvalue().split("\n"))


def _console() -> Console:
    from rich.console import Console

    colour = streams.is_terminal() and not os.environ.get("NO_COLOR") and os.environ.get("TERM", "") not in ("", "dumb")
    return Console(
        file=io.StringIO(),
        width=_width(),
        height=25,
        force_terminal=colour,
        color_system="standard" if colour else None,
        legacy_windows=False,
        highlight=False,
        markup=False,
        emoji=False,
    )


def _width() -> int:
    return max(LEAST_WIDTH, shutil.get_terminal_size((100, 25)).columns)
