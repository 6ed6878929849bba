"""``shampoo pump``: deliver jobs over HTTP until told to stop."""

from __future__ import annotations

import os
from contextlib import nullcontext
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from .. import contract
from ..errors import ConfigurationError
from . import streams
from .settings import Anywhere, Command, as_utf8, current
from .work import _logged, _status

if TYPE_CHECKING:
    from ..pump import Pump

EXTRA = ("anyio", "httpcore2", "standardwebhooks")


@click.command(
    cls=Command,
    params=[
        Anywhere("--as", "caller", metavar="CLIENT", help="The principal who delivers; SHAMPOO_CLIENT."),
        Anywhere(
            "--holder", metavar="NAME", help="Which process of the principal delivers; SHAMPOO_HOLDER, else HOST/PID."
        ),
    ],
)
@click.option("--kind", default="delivery", show_default=True, help="The kind of the jobs to deliver.")
@click.option(
    "--allow-network",
    "networks",
    metavar="CIDR",
    multiple=True,
    help="Deliver into this network too, may be repeated; SHAMPOO_PUMP_ALLOW_NETWORKS, separated by commas.",
)
@click.option(
    "--secrets",
    metavar="FILE",
    help="Sign with the secrets in this JSON file, project to secret; SHAMPOO_PUMP_SECRETS.",
)
@click.option(
    "--concurrency", type=click.IntRange(1, 5000), default=64, show_default=True, help="How many deliveries at once."
)
@click.option(
    "--lease",
    type=click.IntRange(contract.limit("lease_min"), contract.limit("lease_max")),
    metavar="SECONDS",
    default=60,
    show_default=True,
    help="The lease of a job; it bounds a delivery, too.",
)
@click.option("--burst", is_flag=True, help="End when no claimable work is left.")
@click.option("--grace", type=click.FloatRange(min=0), metavar="SECONDS", help="What running deliveries get at a stop.")
def pump(
    kind: str,
    networks: tuple[str, ...],
    secrets: str | None,
    concurrency: int,
    lease: int,
    burst: bool,
    grace: float | None,
) -> int:
    """Deliver jobs over HTTP.

    A job's payload is a JSON object with "uri" and, if wanted, "method", "headers" and "body"; without a body the
    payload itself is sent. Only public addresses are reached unless a network is allowed, and no redirect is followed.
    2xx completes a job; 408, 425, 429, 5xx and network errors are tried again, at most five times; all else fails it.

    The secrets file maps each project to a secret (base64, with or without whsec_), to a list of two while one
    replaces the other, or to null for no signature; "*" stands for every other project.

    \b
    Exit status:
      0    stopped, or done with --burst
      1    a delivery did not end and was left behind; or the queue refused the principal
      2    wrong usage or configuration
      3    the queue is unavailable at the start
      130  ended at once by a second Ctrl-C
    """
    from .view import live

    caller = current().wanted("caller")
    if caller is None:
        raise click.UsageError("Missing option '--as' (or set SHAMPOO_CLIENT).", click.get_current_context())
    made = _pump(kind, networks, secrets or _variable("SHAMPOO_PUMP_SECRETS"), concurrency, lease)
    watched = streams.is_terminal() and not current().json
    view = live(made.worker.stats, "pump") if watched else nullcontext(streams.notes)
    with current().open() as queue, view as show, _logged(show, watched):
        ended = made.run(queue, caller, holder=current().wanted("holder"), burst=burst, grace_seconds=grace)
    return _status(ended)


def _pump(kind: str, networks: tuple[str, ...], secrets: str, concurrency: int, lease: int) -> Pump:
    """Set the pump up; raise `ConfigurationError`."""
    if not all(find_spec(name) for name in EXTRA):
        raise ConfigurationError("the pump needs more packages: pip install 'shampoo_queue[pump]'")
    from ..pump import Pump, Signer, parse_networks

    said = networks or [text for text in _variable("SHAMPOO_PUMP_ALLOW_NETWORKS").split(",") if text.strip()]
    return Pump(
        Signer.read(secrets) if secrets else None,
        kind=kind,
        allowed=parse_networks(said),
        concurrency=concurrency,
        lease_seconds=lease,
    )


def _variable(name: str) -> str:
    return as_utf8(os.environ.get(name, ""))
