"""``shampoo tools``: the catalogue of the tools, printed from the contract's own table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click

from .. import contract
from ..errors import UnknownTool
from . import streams
from .settings import Command, current
from .terminal import fields


@click.command("tools", cls=Command)
@click.argument("tool", required=False)
@click.option("--text", is_flag=True, help="Print it to read, wherever it goes.")
def tools(tool: str | None, text: bool) -> None:
    """Print the catalogue of the tools.

    With --json, and when standard output is no terminal, their facts and JSON Schemas as one document.
    """
    found = contract.TOOLS if tool is None else (_named(tool),)
    if current().json or not (text or streams.is_terminal()):
        described = [_described(one) for one in found]
        streams.document({"tools": described} if tool is None else described[0])
    else:
        streams.text("\n".join(fields(dict(_shown(one))) for one in found))


def _named(name: str) -> contract.Tool:
    if name not in contract.BY_NAME:
        raise UnknownTool(f"there is no tool {contract.safe_name(name)}")
    return contract.BY_NAME[name]


def _described(tool: contract.Tool) -> dict[str, Any]:
    return {
        "name": tool.name,
        "access": tool.access,
        "summary": tool.summary,
        "arguments": contract.argument_schema(tool.name),
        "result": contract.result_schema(tool.name),
        "boundaries": tool.boundaries,
        "lifecycle": tool.lifecycle,
        "refusals": [*contract.COMMON_REFUSALS, *tool.refusals],
        "events": list(tool.events),
        "example": dict(tool.example),
        "example_result": dict(tool.example_result),
    }


def _shown(tool: contract.Tool) -> Iterator[tuple[str, str | list[str]]]:
    yield tool.name, tool.summary
    yield "access", tool.access
    yield "arguments", [_argument(tool, name) for name in (*tool.required, *tool.optional)]
    yield "result", ", ".join(tool.result_keys)
    yield "boundaries", tool.boundaries
    yield "lifecycle", tool.lifecycle
    yield "refusals", ", ".join((*contract.COMMON_REFUSALS, *tool.refusals))
    yield "events", ", ".join(tool.events) or "none"
    yield "example", [json.dumps(tool.example), json.dumps(tool.example_result)]


def _argument(tool: contract.Tool, name: str) -> str:
    facts = (
        "required" if name in tool.required else "optional",
        limits_of(tool, name),
        tool.arguments.model_fields[name].description or "",
    )
    return f"{name}: {'; '.join(filter(None, facts))}"


# What the schemas say of one argument ---------------------------------------------------------------------------


def _schema(tool: contract.Tool, name: str) -> dict[str, Any]:
    """Give an argument's JSON Schema without its leave to be null."""
    schema: dict[str, Any] = contract.argument_schema(tool.name)["properties"][name]
    return next((kind for kind in schema.get("anyOf", ()) if kind.get("type") != "null"), schema)


def is_whole(tool: contract.Tool, name: str) -> bool:
    """Tell whether an argument is a whole number."""
    return bool(_schema(tool, name)["type"] == "integer")


def limits_of(tool: contract.Tool, name: str) -> str:
    """Say in a few words what an argument may be; empty when any text will do."""
    schema, limit = _schema(tool, name), contract.LIMITS.get(name)
    if "enum" in schema:
        return " or ".join(schema["enum"])
    if "minimum" in schema:
        return f"{schema['minimum']} to {schema['maximum']:,}"
    if limit is not None and limit.unit == "UTF-8 bytes":
        return f"at most {limit.value:,} {limit.unit}"
    return f"at most {schema['maxLength']:,} characters" if "maxLength" in schema else ""
