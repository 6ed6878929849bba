"""Hold a value against the JSON Schemas that the contract publishes: the keywords that they use, and no others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "null": type(None),
}
KNOWN = {
    "$defs",
    "$ref",
    "additionalProperties",
    "anyOf",
    "const",
    "description",
    "enum",
    "items",
    "maxLength",
    "maximum",
    "minLength",
    "minimum",
    "oneOf",
    "pattern",
    "properties",
    "required",
    "type",
}


def faults(schema: dict[str, Any], value: Any, root: dict[str, Any] | None = None, at: str = "$") -> list[str]:
    """Say where a value is not what a schema asks for."""
    return list(_faults(schema, value, root or schema, at))


def _faults(schema: dict[str, Any], value: Any, root: dict[str, Any], at: str) -> Iterator[str]:
    assert schema.keys() <= KNOWN, f"this reader does not know {schema.keys() - KNOWN}"
    if "$ref" in schema:
        yield from _faults(root["$defs"][schema["$ref"].removeprefix("#/$defs/")], value, root, at)
    for keyword, fewest in (("anyOf", 1), ("oneOf", 1)):
        if keyword in schema:
            fitting = sum(not faults(part, value, root) for part in schema[keyword])
            if fitting < fewest or (keyword == "oneOf" and fitting > 1):
                yield f"{at} fits {fitting} of {keyword}"
    if "const" in schema and (value != schema["const"] or type(value) is not type(schema["const"])):
        yield f"{at} is not {schema['const']!r}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{at} is none of {schema['enum']}"
    if "type" in schema and not _is(schema["type"], value):
        yield f"{at} is no {schema['type']}"
    elif isinstance(value, dict):
        yield from _object(schema, value, root, at)
    elif isinstance(value, list):
        for n, item in enumerate(value):
            yield from _faults(schema.get("items", {}), item, root, f"{at}[{n}]")
    else:
        yield from _bounds(schema, value, at)


def _is(name: str, value: Any) -> bool:
    return isinstance(value, TYPES[name]) and (name == "boolean" or not isinstance(value, bool))


def _object(schema: dict[str, Any], value: dict[str, Any], root: dict[str, Any], at: str) -> Iterator[str]:
    properties = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{at} has no {name}"
    for name, part in value.items():
        if name in properties:
            yield from _faults(properties[name], part, root, f"{at}.{name}")
        elif schema.get("additionalProperties") is False:
            yield f"{at} has the unknown {name}"


def _bounds(schema: dict[str, Any], value: Any, at: str) -> Iterator[str]:
    if isinstance(value, str):
        if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
            yield f"{at} is {len(value)} characters long"
        # Python's $ would also stand before a last line break.
        if "pattern" in schema and not re.search(schema["pattern"].replace("$", r"\Z"), value):
            yield f"{at} does not match {schema['pattern']}"
    elif isinstance(value, int) and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        yield f"{at} is {value}"
