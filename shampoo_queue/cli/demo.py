"""``shampoo demo``: the queue at work on this machine, with nothing to set up."""

from __future__ import annotations

from pathlib import Path

import click

from .settings import Command


@click.command(cls=Command)
@click.option(
    "--folder", type=click.Path(file_okay=False, path_type=Path), help="Keep the embedded server's data here."
)
@click.option("--workers", type=click.IntRange(min=2), default=4, show_default=True, help="How many workers.")
def demo(folder: Path | None, workers: int) -> int:
    """Show the queue at work.

    A fleet of workers hashes the standard library on an embedded server; one is killed; the outcome is checked.
    """
    from ..demo import main

    return main(folder, workers)
