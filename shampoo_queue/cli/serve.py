"""``shampoo serve``: open the doors for everyone else until told to stop."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from ..errors import ConfigurationError
from . import streams
from .runs import INTERRUPTED, _Lines
from .settings import Command, current

if TYPE_CHECKING:
    from ..server.jwt import Verifier

EXTRA = ("jinja2", "prometheus_client", "starlette", "uvicorn")
LEVELS = ("debug", "info", "warning", "error")

_STATUSES = """\b
Exit status:
  0    stopped
  2    wrong usage or configuration
  3    the queue is unavailable at the start
  130  ended at once by a second signal

The options of 'shampoo --help' may stand here too; of which profile a call is, its token says."""


@click.command(cls=Command, epilog=_STATUSES)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="The port; 0 takes a free one."
)
@click.option("--tls-cert", metavar="FILE", help="Serve HTTPS with this certificate chain (PEM).")
@click.option("--tls-key", metavar="FILE", help="The certificate's key (PEM).")
@click.option(
    "--behind-proxy",
    is_flag=True,
    help="A proxy of ours stands in front, does TLS, and adds the caller's address to X-Forwarded-For.",
)
@click.option("--allow-host", "hosts", metavar="NAME", multiple=True, help="Answer to this Host too; may be repeated.")
@click.option(
    "--allow-origin", "origins", metavar="ORIGIN", multiple=True, help="Let pages of this origin call; may be repeated."
)
@click.option("--with-extensions", is_flag=True, help="Offer job_renew, job_get and the other extension tools too.")
@click.option("--open-metrics", is_flag=True, help="Give /metrics to programs on this machine without a token.")
@click.option("--jwt-issuer", metavar="URL", help="Let in JSON Web Tokens of this issuer too.")
@click.option("--jwt-audience", metavar="URL", help="What they must be meant for: best the URL of this server.")
@click.option("--jwt-keys", metavar="FILE|URL", help="The issuer's key set.")
@click.option("--jwt-profile", metavar="NAME", default="default", show_default=True, help="The profile that they name.")
@click.option(
    "--jwt-client-claim", metavar="NAME", default="sub", show_default=True, help="Which claim holds the principal."
)
@click.option(
    "--calls-per-second", type=click.FloatRange(min=0, min_open=True), help="The most of one principal; no bound."
)
@click.option(
    "--failed-logins-per-minute",
    type=click.IntRange(min=1),
    default=60,
    show_default=True,
    help="The most failed attempts of one address, or of one token from there.",
)
@click.option(
    "--limit-concurrency",
    type=click.IntRange(min=1),
    default=1000,
    show_default=True,
    help="The most calls at once, and the most claims that wait for work.",
)
@click.option(
    "--grace",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    default=20,
    show_default=True,
    help="What running calls get at a stop.",
)
@click.option(
    "--log-level",
    type=click.Choice(LEVELS),
    default="info",
    show_default=True,
    help="How much goes to standard error; info is one line a call.",
)
def serve(
    host: str,
    port: int,
    tls_cert: str | None,
    tls_key: str | None,
    behind_proxy: bool,
    hosts: tuple[str, ...],
    origins: tuple[str, ...],
    with_extensions: bool,
    open_metrics: bool,
    calls_per_second: float | None,
    failed_logins_per_minute: int,
    limit_concurrency: int,
    grace: float,
    log_level: str,
    **jwt: str | None,
) -> None:
    """Serve the tools to everyone else: HTTP, MCP, metrics and pages.

    Every caller brings a token of 'shampoo token issue', which names its principal and its profile. Many such servers
    may stand side by side on one Redis.

    The URL that is served goes to standard error, and with --json to standard output as well. SIGTERM or Ctrl-C asks
    to stop: no new calls, and the grace time for those that run; a second one ends at once.
    """
    if not all(find_spec(name) for name in EXTRA):
        raise ConfigurationError("the server needs more packages: pip install 'shampoo_queue[serve]'")
    if open_metrics and behind_proxy:
        raise ConfigurationError("--open-metrics does not go with --behind-proxy: every call would come from here")
    from ..client import DEFAULT_URL
    from ..server import serve

    place = serve.Place(host, port, tls_cert, tls_key, behind_proxy, grace)
    target = current().wanted("url")
    with closing(serve.bind(place)) as listening, _logged(log_level):
        from ..server import app
        from ..server.desk import Desk
        from ..server.guard import Rules

        desk = Desk(
            DEFAULT_URL if target is None else target,
            extensions=with_extensions,
            waits=limit_concurrency,
            verifiers=_verifiers(jwt),
            failed_per_minute=failed_logins_per_minute,
            calls_per_second=calls_per_second,
        )
        bound = f"[{host}]" if ":" in host else host
        rules = Rules((bound, *hosts), origins, behind_proxy, limit_concurrency, open_metrics)
        url = serve.url(place, listening)
        serve.serve(desk, app.build(desk, rules), place, listening, started=lambda: _announce(url), at_once=_end)


def _verifiers(given: Mapping[str, str | None]) -> list[Verifier]:
    """Give who checks JSON Web Tokens, when that is asked for."""
    issuer, audience, keys = (given[f"jwt_{name}"] for name in ("issuer", "audience", "keys"))
    if not (issuer or audience or keys):
        return []
    if not (issuer and audience and keys):
        raise ConfigurationError("--jwt-issuer, --jwt-audience and --jwt-keys go together")
    if not (find_spec("jwt") and find_spec("cryptography")):
        raise ConfigurationError("JSON Web Tokens need more packages: pip install 'shampoo_queue[jwt]'")
    from ..server.jwt import JwtVerifier

    profile, claim = given["jwt_profile"] or "", given["jwt_client_claim"] or ""
    return [JwtVerifier(issuer, audience, keys, profile=profile, client_claim=claim)]


def _announce(url: str) -> None:
    from ..server.serve import speed

    streams.note(f"serving {url} with {speed()}")
    if current().json:
        streams.document({"url": url, "pid": os.getpid()})


def _end() -> None:
    streams.finish()
    os._exit(INTERRUPTED)


@contextmanager
def _logged(level: str) -> Iterator[None]:
    """Send the server's log to standard error, line by line, in the place of what other commands show there."""
    from ..server.answers import hidden

    handler = _Lines(lambda lines: streams.notes(map(hidden, lines)))
    logs = [(logging.getLogger("shampoo_queue"), level), (logging.getLogger("uvicorn.error"), "warning")]
    before = [(log, log.handlers, log.level, log.propagate) for log, _ in logs]
    for log, least in logs:
        log.handlers, log.propagate = [handler], False
        log.setLevel(max(LEVELS.index(least), LEVELS.index(level)) * 10 + 10)
    try:
        yield
    finally:
        for log, handlers, former, propagate in before:
            log.handlers, log.propagate = handlers, propagate
            log.setLevel(former)
