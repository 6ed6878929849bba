"""``shampoo history``: every accepted move, a page of them or as it happens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from .. import contract
from ..errors import InvalidArgument
from . import streams
from .settings import Command, current, whole
from .terminal import cell, printed

if TYPE_CHECKING:
    from ..client import Shampoo
    from ..history import Event

PAGE = contract.limit("history_page")
USUAL = 100
POLL_SECONDS = 1.0


@click.command(cls=Command)
@click.argument("entity_id", metavar="[ID]", required=False)
@click.option("--after", metavar="NUMBER", help="Begin after the event of this id.")
@click.option("--limit", metavar="NUMBER", help=f"How many events; {USUAL} unless given, no end with --follow.")
@click.option("--follow", is_flag=True, help="Go on with new events until interrupted.")
def history(entity_id: str | None, after: str | None, limit: str | None, follow: bool) -> None:
    """Print what happened, oldest first.

    Every event of the profile, or of the job, lane, principal, quorum or task ID. When standard output is no
    terminal, one JSON document of the events; with --follow one JSON object a line.
    """
    most = None if limit is None and follow else whole(str(USUAL) if limit is None else limit)
    if isinstance(most, str):
        raise InvalidArgument("limit must be a whole number")
    as_json = current().json or not streams.is_terminal()
    with current().open() as queue:
        events = _events(queue, entity_id, after, None if most is None else max(1, most), follow)
        if as_json and not follow:
            found = list(events)
            streams.document({"events": found, "count": len(found)})
            return
        for event in events:
            streams.document(event) if as_json else _show(event)


def _events(
    queue: Shampoo, entity_id: str | None, after: str | None, most: int | None, follow: bool
) -> Iterator[Event]:
    """Give events, page by page, until there are no more, or as many as asked for."""
    while most is None or most > 0:
        size = PAGE if most is None else min(most, PAGE)
        page = queue.history(entity_id, after, size)
        yield from page
        after = str(page[-1]["id"]) if page else after
        most = None if most is None else most - len(page)
        if len(page) < size and (not follow or streams.reader_gone(POLL_SECONDS)):
            return


def _show(event: Event) -> None:
    streams.text(printed(cell(line(event))))


def line(event: Event) -> str:
    """Tell one event in one line."""
    moved = f"{event.from_ or ''} -> {event.to}".lstrip() if event.to else ""
    by = f"by {event.actor} ({event.holder})" if event.holder else f"by {event.actor}"
    facts = [f"{name} {event[name]}" for name in ("project", "attempts", "fence", "reason") if event.get(name)]
    return " ".join(filter(None, [f"{event.id} {event.at} {event.event} {event.entity_id}", moved, by, *facts]))
