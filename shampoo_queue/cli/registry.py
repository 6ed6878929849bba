"""``shampoo principal``, ``quorum`` and ``task``: the registry that the tools check against."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import click

from ..facade import Registry
from .settings import Group, current
from .terminal import answer


@contextmanager
def _registry() -> Iterator[Registry]:
    with current().open() as queue:
        yield queue.registry


def _list(name: str, entries: list[Any]) -> None:
    answer({name: [asdict(entry) for entry in entries], "count": len(entries)})


# Principals -----------------------------------------------------------------------------------------------------


@click.group(cls=Group)
def principal() -> None:
    """Keep the principals, those who may call the tools.

    A grant is a project's name; '' is untagged work and '*' star scope. Every change holds from the next call on.
    """


def _changed(client_id: str, changed: bool) -> None:
    answer({"client_id": client_id, "changed": changed}, moved=True)


@principal.command("add")
@click.argument("client_id")
@click.option("--conductor", is_flag=True, help="Give it the conductor role.")
@click.option("--grant", "grants", multiple=True, metavar="PROJECT", help="Grant a project; may be repeated.")
def principal_add(client_id: str, conductor: bool, grants: tuple[str, ...]) -> None:
    """Register a principal."""
    with _registry() as registry:
        _changed(client_id, registry.add_principal(client_id, conductor=conductor, grants=grants))


@principal.command("grant")
@click.argument("client_id")
@click.argument("project")
def principal_grant(client_id: str, project: str) -> None:
    """Grant a project."""
    with _registry() as registry:
        _changed(client_id, registry.grant(client_id, project))


@principal.command("revoke")
@click.argument("client_id")
@click.argument("project")
def principal_revoke(client_id: str, project: str) -> None:
    """Take a grant."""
    with _registry() as registry:
        _changed(client_id, registry.revoke(client_id, project))


@principal.command("conductor")
@click.argument("client_id")
@click.argument("role", type=click.Choice(["on", "off"]))
def principal_conductor(client_id: str, role: str) -> None:
    """Give or take the conductor role."""
    with _registry() as registry:
        _changed(client_id, registry.set_conductor(client_id, role == "on"))


@principal.command("disable")
@click.argument("client_id")
def principal_disable(client_id: str) -> None:
    """Refuse every call of a principal from now on."""
    with _registry() as registry:
        _changed(client_id, registry.disable_principal(client_id))


@principal.command("enable")
@click.argument("client_id")
def principal_enable(client_id: str) -> None:
    """Let a disabled principal call again."""
    with _registry() as registry:
        _changed(client_id, registry.enable_principal(client_id))


@principal.command("list")
def principal_list() -> None:
    """List every principal, in the order in which they were added."""
    with _registry() as registry:
        _list("principals", registry.principals())


# Quorums --------------------------------------------------------------------------------------------------------


@click.group(cls=Group)
def quorum() -> None:
    """Keep the quorums, under which lanes are created."""


@quorum.command("open")
@click.argument("project")
@click.option("--participant", "participants", multiple=True, metavar="CLIENT", help="Who takes part; may be repeated.")
def quorum_open(project: str, participants: tuple[str, ...]) -> None:
    """Open a quorum over a PROJECT ('' for untagged work) and print its id."""
    with _registry() as registry:
        quorum_id = registry.open_quorum(project, participants)
        answer({"quorum_id": quorum_id, "project": project, "open": True}, moved=True)


@quorum.command("close")
@click.argument("quorum_id")
def quorum_close(quorum_id: str) -> None:
    """Close a quorum to new lanes."""
    with _registry() as registry:
        answer({"quorum_id": quorum_id, "changed": registry.close_quorum(quorum_id)}, moved=True)


@quorum.command("add")
@click.argument("quorum_id")
@click.argument("client_id")
def quorum_add(quorum_id: str, client_id: str) -> None:
    """Let a principal take part."""
    with _registry() as registry:
        answer({"quorum_id": quorum_id, "changed": registry.add_participant(quorum_id, client_id)}, moved=True)


@quorum.command("remove")
@click.argument("quorum_id")
@click.argument("client_id")
def quorum_remove(quorum_id: str, client_id: str) -> None:
    """Take a principal out."""
    with _registry() as registry:
        answer({"quorum_id": quorum_id, "changed": registry.remove_participant(quorum_id, client_id)}, moved=True)


@quorum.command("list")
def quorum_list() -> None:
    """List every quorum, in the order in which they were opened."""
    with _registry() as registry:
        _list("quorums", registry.quorums())


# Tasks ----------------------------------------------------------------------------------------------------------


@click.group(cls=Group)
def task() -> None:
    """Keep the tasks that lanes may point at."""


@task.command("add")
@click.argument("task_id", required=False)
def task_add(task_id: str | None) -> None:
    """Register a live task and print its id, a new UUID unless TASK_ID is given."""
    with _registry() as registry:
        answer({"task_id": registry.add_task(task_id), "live": True}, moved=True)


@task.command("close")
@click.argument("task_id")
def task_close(task_id: str) -> None:
    """Close a task to new lanes."""
    with _registry() as registry:
        answer({"task_id": task_id, "changed": registry.close_task(task_id)}, moved=True)


@task.command("list")
def task_list() -> None:
    """List every task, in the order in which they were added."""
    with _registry() as registry:
        _list("tasks", registry.tasks())
