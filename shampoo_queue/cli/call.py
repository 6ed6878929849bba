"""``shampoo call TOOL``: a command for each tool of the contract, its options made from the tool's arguments."""

from __future__ import annotations

import json
import socket
from typing import Any

import click

from .. import contract
from ..errors import InvalidArgument, Unavailable, UnknownTool
from . import streams
from .catalogue import is_whole, limits_of
from .settings import Anywhere, Command, Group, Settings, current, whole
from .terminal import answer

# The arguments that may be large; as an option's value, "-" reads them from standard input.
FROM_INPUT = tuple(name for name, limit in contract.LIMITS.items() if limit.unit == "UTF-8 bytes")

# JSON may spend six bytes on one of the payload's.
_LONGEST_ARGUMENTS = 8 * contract.limit("payload")


class Tools(Group):
    """The tools of the contract."""

    def list_commands(self, _context: click.Context) -> list[str]:
        return [tool.name for tool in contract.TOOLS]

    def get_command(self, _context: click.Context, cmd_name: str) -> click.Command | None:
        tool = contract.BY_NAME.get(cmd_name)
        return None if tool is None else command_of(tool)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in contract.BY_NAME and not ctx.resilient_parsing:
            raise UnknownTool(f"there is no tool {contract.safe_name(args[0])}")
        return super().resolve_command(ctx, args)


def _beside(hidden: bool) -> list[click.Parameter]:
    """Make the options for what travels beside the arguments."""
    return [
        Anywhere("--as", "caller", metavar="CLIENT", hidden=hidden, help="The principal who calls; SHAMPOO_CLIENT."),
        Anywhere(
            "--args",
            "arguments",
            metavar="JSON",
            hidden=hidden,
            help="All arguments as one JSON object; - reads it from standard input.",
        ),
        Anywhere("--request-id", metavar="ID", hidden=hidden, help="Names this call, so that it may be repeated."),
        Anywhere("--fence", metavar="NUMBER", hidden=hidden, help="Act for this acquisition only."),
        Anywhere(
            "--holder",
            metavar="NAME",
            hidden=hidden,
            help="Which process of the principal calls; SHAMPOO_HOLDER, else HOST/cli. A repeat needs the same one.",
        ),
        Anywhere("--meta", is_flag=True, hidden=hidden, help="Answer {result, meta}, with the fence in meta."),
    ]


call = Tools(
    "call",
    params=_beside(hidden=True),
    help="Call a tool in the name of a principal.\n\nThe result is one JSON document on standard output; a claim's "
    "fence and the mark of a replay go to standard error.",
)


def command_of(tool: contract.Tool) -> click.Command:
    """Make a tool's command. Nothing is required or checked here: what is wrong, the contract itself refuses."""
    options: list[click.Parameter] = [_option(tool, name) for name in tool.arguments.model_fields]
    return Command(
        tool.name,
        callback=lambda **given: _call(tool, given),
        params=options + _beside(hidden=False),
        help=f"{tool.summary}\n\n{tool.boundaries}\n\n{tool.lifecycle}",
        short_help=tool.summary,
    )


def _option(tool: contract.Tool, name: str) -> click.Option:
    number = is_whole(tool, name)
    shown = [limits_of(tool, name), "required" if name in tool.required else ""]
    text = tool.arguments.model_fields[name].description or ""
    if name in FROM_INPUT:
        shown.append("- reads standard input")
    return click.Option(
        [f"--{name.replace('_', '-')}", name],
        metavar="NUMBER" if number else "TEXT",
        callback=(lambda _context, _option, value: None if value is None else whole(value)) if number else None,
        help="; ".join(filter(None, [text, *shown])),
    )


def _call(tool: contract.Tool, options: dict[str, Any]) -> None:
    settings = current()
    given = _arguments(settings, {name: value for name, value in options.items() if value is not None})
    caller = settings.wanted("caller")
    if caller is None:
        raise click.UsageError("Missing option '--as' (or set SHAMPOO_CLIENT).", click.get_current_context())
    with settings.open() as queue:
        client = queue.client(caller)
        try:
            result = client.call(
                tool.name,
                given,
                request_id=settings.request_id,
                fence=None if settings.fence is None else whole(settings.fence),  # type: ignore[arg-type]
                holder=settings.wanted("holder") or f"{socket.gethostname()[:100]}/cli",
            )
        except Unavailable as error:
            if error.outcome_unknown and tool.writes:
                error.message += f"; it may have been carried out: ask again with --request-id '{error.request_id}'"
            raise
        _show(result, result.meta, settings, tool.writes)


def _show(result: dict[str, Any], meta: contract.Meta, settings: Settings, moved: bool) -> None:
    if settings.meta:
        beside = {"request_id": meta.request_id, "fence": meta.fence, "replayed": meta.replayed}
        answer({"result": result, "meta": beside}, moved=moved)
        return
    if meta.fence is not None:
        streams.note(f"fence: {meta.fence}")
    if meta.replayed:
        streams.note("replayed: true")
    answer(result, moved=moved)


# Arguments ------------------------------------------------------------------------------------------------------


def _arguments(settings: Settings, given: dict[str, Any]) -> dict[str, Any]:
    """Give the arguments from ``--args`` or from the options, never from both."""
    if settings.arguments is not None:
        if given:
            names = ", ".join(f"--{name.replace('_', '-')}" for name in given)
            raise click.UsageError(f"--args holds all arguments; leave out {names}.", click.get_current_context())
        return _object(settings.arguments)
    return {
        name: streams.read_input(name, contract.limit(name)) if value == "-" and name in FROM_INPUT else value
        for name, value in given.items()
    }


def _object(text: str) -> dict[str, Any]:
    """Read one JSON object, as strictly as JSON is written down."""
    if text == "-":
        text = streams.read_input("--args", _LONGEST_ARGUMENTS, "utf-8-sig")
    try:
        found = json.loads(text, object_pairs_hook=_distinct, parse_constant=_no_number, parse_int=whole)
    except json.JSONDecodeError as error:
        raise InvalidArgument(f"--args is no JSON: {error}") from None
    except RecursionError:
        raise InvalidArgument("--args is nested too deeply") from None
    if not isinstance(found, dict):
        raise InvalidArgument("--args must be a JSON object")
    return found


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise InvalidArgument(f"--args names {contract.safe_name(name)} twice")
        found[name] = value
    return found


def _no_number(word: str) -> Any:
    raise InvalidArgument(f"--args holds {word}, which is no JSON")
