"""``shampoo kind``: how many jobs of a kind may run at a time."""

from __future__ import annotations

import click

from .settings import Group, current, whole
from .terminal import answer


@click.group(cls=Group)
def kind() -> None:
    """Limit how many jobs of a kind run at a time, over the whole profile."""


@kind.command("limit")
@click.argument("kind_name", metavar="KIND")
@click.argument("most")
def kind_limit(kind_name: str, most: str) -> None:
    """Let at most MOST jobs of KIND run at a time; what runs already goes on."""
    with current().open() as queue:
        changed = queue.ops.limit_kind(kind_name, whole(most))  # type: ignore[arg-type]  # refused there
        answer({"kind": kind_name, "limit": whole(most), "changed": changed}, moved=True)


@kind.command("unlimit")
@click.argument("kind_name", metavar="KIND")
def kind_unlimit(kind_name: str) -> None:
    """Lift the limit of KIND."""
    with current().open() as queue:
        answer({"kind": kind_name, "changed": queue.ops.limit_kind(kind_name, None)}, moved=True)


@kind.command("list")
def kind_list() -> None:
    """List the kinds that have a limit."""
    with current().open() as queue:
        limits = [{"kind": name, "limit": most} for name, most in queue.ops.kind_limits().items()]
        answer({"kinds": limits, "count": len(limits)})
