"""``shampoo mcp``: serve the tools to one agent over standard input and output."""

from __future__ import annotations

import asyncio
import os
from importlib.util import find_spec

import click

from ..errors import ConfigurationError
from . import streams
from .settings import DEFAULT_PROFILE, Anywhere, Command, current

EXTRA = ("mcp", "starlette", "prometheus_client")


@click.command(
    cls=Command,
    params=[
        Anywhere("--as", "caller", metavar="CLIENT", help="The principal who calls, with direct access to Redis."),
        Anywhere("--holder", metavar="NAME", help="Which process calls; SHAMPOO_HOLDER, else HOST/PID."),
    ],
)
@click.option("--remote", metavar="URL", help="Call a remote shampoo serve; no Redis is needed here.")
@click.option("--allow-http", is_flag=True, help="Let --remote send the token unencrypted to another machine.")
@click.option("--with-extensions", is_flag=True, help="Offer job_renew, job_get and the other extension tools too.")
def mcp(remote: str | None, allow_http: bool, with_extensions: bool) -> None:
    """Serve the tools to one agent, as an MCP server on standard input and output.

    The agent calls as the principal of the token in SHAMPOO_TOKEN, which also names the profile. Without a token, --as
    or SHAMPOO_CLIENT names the principal: whoever can reach Redis is trusted. With --remote everything goes to a
    shampoo serve elsewhere, which wants a token.

    Ends when the agent closes its end, with 0; SIGINT and SIGTERM end it at once, with 130 and 143.
    """
    settings = current()
    # Taken out of the environment, so that no child inherits it.
    token = os.environ.pop("SHAMPOO_TOKEN", "").strip() or None
    caller, holder = settings.wanted("caller"), settings.wanted("holder")
    if token is not None and settings.caller is not None:
        raise ConfigurationError("SHAMPOO_TOKEN is set and names the principal: leave out --as")
    if remote is not None and token is None:
        raise ConfigurationError("--remote wants a token in SHAMPOO_TOKEN")
    if remote is not None and with_extensions:
        raise ConfigurationError("what is offered with --remote is up to the remote server")
    if token is None and caller is None:
        raise click.UsageError("Set SHAMPOO_TOKEN, or name a principal with --as.", click.get_current_context())
    if not all(find_spec(name) for name in EXTRA):
        raise ConfigurationError("the MCP server needs more packages: pip install 'shampoo_queue[mcp]'")
    if streams.is_terminal():
        streams.note("waiting for an MCP client on standard input; an agent's program starts this command by itself")
    from ..client import DEFAULT_URL
    from ..server import stdio

    if remote is not None and token is not None:
        asyncio.run(stdio.over_http(remote, token, allow_http=allow_http, holder=holder))
    else:
        url, profile = settings.wanted("url"), settings.wanted("profile")
        serving = stdio.over_redis(
            DEFAULT_URL if url is None else url,
            token=token,
            client_id=caller or "",
            profile=DEFAULT_PROFILE if profile is None else profile,
            extensions=with_extensions,
            holder=holder,
        )
        asyncio.run(serving)
