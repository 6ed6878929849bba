"""``shampoo pump``: deliver jobs over HTTP until told to stop."""

from __future__ import annotations

import os
import ssl
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from .. import contract
from ..errors import ConfigurationError
from . import runs
from .settings import Command, as_utf8, current

if TYPE_CHECKING:
    from ..pump import Pump

EXTRA = ("anyio", "httpcore2", "standardwebhooks")


@click.command(cls=Command, params=runs.who_works(), epilog=runs.STATUSES)
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
    replaces the other, or to null for no signature; "*" stands for every other project. It is read again when it
    changes.
    """
    client_id = runs.caller()
    made = _pump(kind, networks, secrets or _variable("SHAMPOO_PUMP_SECRETS"), concurrency, lease)
    with runs.shown(made.worker.stats, "pump") as queue:
        ended = made.run(queue, client_id, holder=current().wanted("holder"), burst=burst, grace_seconds=grace)
    return runs.leave(ended)


def _pump(kind: str, networks: tuple[str, ...], secrets: str, concurrency: int, lease: int) -> Pump:
    """Set the pump up; raise `ConfigurationError`."""
    if not all(find_spec(name) for name in EXTRA):
        raise ConfigurationError("the pump needs more packages: pip install 'shampoo_queue[pump]'")
    from ..pump import Pump, Signer, parse_networks

    said = networks or [text for text in _variable("SHAMPOO_PUMP_ALLOW_NETWORKS").split(",") if text.strip()]
    signer = Signer.read(secrets) if secrets else Signer.none()
    allowed = parse_networks(said)
    try:
        return Pump(signer, kind=kind, allowed=allowed, concurrency=concurrency, lease_seconds=lease)
    except OSError as error:
        # Only the certificates are read here: from where the environment says, or else from the system.
        named = next((name for name in ("SSL_CERT_FILE", "SSL_CERT_DIR") if os.environ.get(name)), "the system")
        reason = "there are none" if isinstance(error, ssl.SSLError) else error.strerror
        raise ConfigurationError(f"no trusted certificates can be read from {named}: {reason}") from None


def _variable(name: str) -> str:
    return as_utf8(os.environ.get(name, ""))
