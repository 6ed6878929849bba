"""``shampoo token``: issue, list, rotate and revoke the access tokens with which principals come to the doors."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import asdict

import click

from ..errors import InvalidArgument, Refusal
from ..facade import Registry
from ..registry import IssuedToken
from ..tokens import SCOPES
from . import streams
from .settings import Group, current
from .terminal import answer

_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3_600, "d": 86_400}


def _length(_context: click.Context, option: click.Parameter, given: str | None) -> int | None:
    """Read a length of time in seconds."""
    if given is None:
        return None
    found = re.fullmatch("([0-9]{1,12})([smhd]?)", given)
    if found is None:
        raise InvalidArgument(f"{option.name} must be a length of time such as 90d, 12h, 30m or 45s")
    return int(found[1]) * _SECONDS[found[2]]


_expires = click.option(
    "--expires", metavar="LENGTH", callback=_length, help="How long the token lives, for instance 90d; else for ever."
)


@click.group(cls=Group)
def token() -> None:
    """Keep the access tokens with which principals call over HTTP and MCP.

    The queue keeps only a digest: a token's text is shown once, when it is issued. What its principal may do, roles
    and grants, stays the principal's.
    """


@token.command("issue")
@click.argument("client_id", metavar="CLIENT")
@click.option("--scope", type=click.Choice(list(SCOPES)), default="tools", show_default=True, help="What it is for.")
@_expires
def token_issue(client_id: str, scope: str, expires: int | None) -> None:
    """Issue a token to a principal and print it: the token alone on standard output, its facts beside it."""
    with current().open() as queue:
        _show(queue.registry.issue_token(client_id, scope=scope, expires_seconds=expires), queue.registry)


@token.command("rotate")
@click.argument("token_id")
@click.option(
    "--overlap", metavar="LENGTH", default="24h", show_default=True, callback=_length, help="How long both are good."
)
@_expires
def token_rotate(token_id: str, overlap: int, expires: int | None) -> None:
    """Issue a token in place of a live one, which stays good for the overlap, and print it."""
    with current().open() as queue:
        issued = queue.registry.rotate_token(token_id, overlap_seconds=overlap, expires_seconds=expires)
        _show(issued, queue.registry, f"; {token_id} still ends with the overlap")


@token.command("revoke")
@click.argument("token_id")
def token_revoke(token_id: str) -> None:
    """Refuse a token from now on."""
    with current().open() as queue:
        answer({"token_id": token_id, "changed": queue.registry.revoke_token(token_id)}, moved=True)


@token.command("list")
def token_list() -> None:
    """List every token that was issued, by its id."""
    with current().open() as queue:
        entries = [asdict(entry) for entry in queue.registry.tokens()]
        answer({"tokens": entries, "count": len(entries)})


def _show(issued: IssuedToken, registry: Registry, also: str = "") -> None:
    """Print a token. One that nobody could read is revoked: its text is nowhere else, least of all in a warning."""
    facts = asdict(issued)
    try:
        if current().json:
            streams.document(facts)
            return
        streams.text(facts.pop("token") + "\n")
    except (streams.ReaderGone, streams.AnswerLost):
        ended = "must be revoked"
        with suppress(Refusal):
            registry.revoke_token(issued.token_id)
            ended = "is revoked"
        said = f"token {issued.token_id} could not be shown and {ended}{also}"
        raise streams.AnswerLost(said, "", moved=False) from None
    streams.notes(f"{name}: {value or 'never'}" for name, value in facts.items())
