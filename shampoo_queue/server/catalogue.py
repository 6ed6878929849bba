"""Show the tool catalogue as a page, ``GET /tools``: generated from the contract's own table, so it cannot drift."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Route

from .. import contract
from ..contract import Tool, limit
from ..errors import REFUSALS
from .ui.door import HEADERS, environment

if TYPE_CHECKING:
    from .desk import Desk

_SEARCH_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument as the page shows it."""

    name: str
    required: bool
    type: str
    limits: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Error:
    """One refusal as the page shows it."""

    code: str
    http_status: int
    message: str
    meaning: str


@dataclass(frozen=True, slots=True)
class Example:
    """The example call at one door, and what comes back there."""

    door: str
    call: str
    answer: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One tool as the page shows it; ``words`` is all of its text, to search in."""

    tool: Tool
    arguments: tuple[Argument, ...]
    results: tuple[Argument, ...]
    own_errors: tuple[Error, ...]
    examples: tuple[Example, ...]
    words: str


def routes(_desk: Desk | None = None) -> list[BaseRoute]:
    """Give the route of the catalogue; it needs no token and no desk, for it tells nothing of what a queue holds."""
    template = environment().get_template("catalogue.html")
    common = tuple(map(_error, contract.COMMON_REFUSALS))

    async def catalogue(request: Request) -> Response:
        asked = request.query_params.get("q", "")[:_SEARCH_CHARACTERS]
        found = search(asked)
        html = template.render(
            visitor=None, flash=None, path="/tools", now="", q=asked, entries=entries(), found=found, common=common
        )
        return HTMLResponse(html, headers=HEADERS)

    return [Route("/tools", catalogue)]


def search(asked: str) -> frozenset[str]:
    """Give the names of the tools in whose text every word is found; of all tools when nothing is asked."""
    words = asked.lower().split()
    return frozenset(entry.tool.name for entry in entries() if all(word in entry.words for word in words))


@cache
def entries() -> tuple[Entry, ...]:
    """Describe the nine tools."""
    return tuple(map(_entry, contract.TOOLS))


def _entry(tool: Tool) -> Entry:
    arguments = tuple(_argument(tool, name) for name in (*tool.required, *tool.optional))
    results = tuple(_results(tool))
    errors = tuple(map(_error, tool.refusals))
    shown = [
        *(tool.name, tool.access, tool.summary, tool.boundaries, tool.lifecycle, *tool.events),
        *(f"{one.name} {one.limits} {one.meaning}" for one in (*arguments, *results)),
        *(f"{one.code} {one.message} {one.meaning}" for one in errors),
    ]
    words = " ".join(shown).lower().replace("``", "")
    return Entry(tool, arguments, results, errors, tuple(_examples(tool)), words)


def _argument(tool: Tool, name: str) -> Argument:
    schema = _without_null(contract.argument_schema(tool.name)["properties"][name])
    meaning = tool.arguments.model_fields[name].description or ""
    return Argument(name, name in tool.required, schema["type"], _limits(name, schema), meaning)


def _results(tool: Tool) -> list[Argument]:
    """Describe the keys of an answer; a claim's are those of its larger shape."""
    schema = contract.result_schema(tool.name)
    largest = schema["oneOf"][0] if "oneOf" in schema else schema
    found = []
    for name, facts in largest["properties"].items():
        kind = facts.get("type") or type(facts.get("const", "")).__name__.replace("bool", "boolean")
        meaning = "replays only" if "const" in facts and name not in largest["required"] else ""
        if kind == "array":
            meaning = "of " + ", ".join(contract.LaneEntry.model_fields)
        found.append(Argument(name, name in largest["required"], kind, _limits("", facts), meaning))
    return found


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    return next((kind for kind in schema.get("anyOf", ()) if kind.get("type") != "null"), schema)


def _limits(name: str, schema: dict[str, Any]) -> str:
    """Say in a few words what a value may be."""
    bound = contract.LIMITS.get(name)
    if "enum" in schema:
        return " · ".join(schema["enum"])
    if "minimum" in schema:
        return f"{schema['minimum']:,} to {schema['maximum']:,}"
    if bound is not None and bound.unit == "UTF-8 bytes":
        return f"at most {bound.value:,} {bound.unit}"
    if name == "limit":
        return f"any, clamped to 1..{limit('list_max')}"
    least = "1 to" if schema.get("minLength") else "at most"
    return f"{least} {schema['maxLength']:,} characters" if "maxLength" in schema else ""


def _error(code: str) -> Error:
    kind = REFUSALS[code]
    return Error(code, kind.http_status, kind.words, (kind.__doc__ or "").split("\n\n")[0])


# Examples at every door -------------------------------------------------------------------------------------------


def _examples(tool: Tool) -> list[Example]:
    """Spell the table's example as each door takes it, and its answer as each door gives it."""
    arguments, answer = dict(tool.example), dict(tool.example_result)
    document = json.dumps(answer, indent=2)
    given = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    options = " ".join(f"--{name.replace('_', '-')} {shlex.quote(str(value))}" for name, value in arguments.items())
    caller = "conductor-1" if tool.conductor_only else "worker-1"
    called = {"method": "tools/call", "params": {"name": tool.name, "arguments": arguments}}
    told = {"content": [{"type": "text", "text": json.dumps(answer)}], "structuredContent": answer}
    curl = (
        f"curl http://127.0.0.1:8080/v1/tools/{tool.name} \\",
        '  -H "Authorization: Bearer $SHAMPOO_TOKEN" \\',
        "  -H 'Content-Type: application/json' \\",
        f"  -d {shlex.quote(json.dumps(arguments))}",
    )
    return [
        Example("HTTP", "\n".join(curl), document),
        Example("Python", f"client.{tool.name}({given})", repr(tool.result.model_validate(answer))),
        Example("Command line", f"shampoo call {tool.name} --as {caller} {options}", document),
        Example("MCP", json.dumps(called, indent=2), json.dumps(told, indent=2)),
    ]
