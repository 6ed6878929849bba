"""The OpenAPI 3.1 document, made from the contract's table: every status of every operation, and how calls follow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .. import __version__, contract
from ..contract import COMMON_REFUSALS, Tool, limit
from ..errors import DOOR_ERRORS, TOOL_ERRORS, Refusal

# What any operation can answer before it begins, and what a call of a tool can besides.
_GUARD = ("bad_request", "denied", "method_not_allowed", "too_large", "unavailable", "internal")
_CALL = ("unauthenticated", "not_found", "unsupported_media_type", "rate_limited")
_EXAMPLE_ID = "7d0e7c0a-5a0e-4b3c-9a53-0d5d3f1f5f0e"
_EXAMPLE_AT = "2026-01-31T12:00:00.000Z"

_MEANING = {
    200: "The tool's result.",
    400: "What was sent is no JSON object, or its headers cannot be read.",
    401: "No live token: missing, malformed, unknown, expired and revoked read alike.",
    403: "The token's scope or the principal's role does not allow it.",
    404: "There is no such entry, or none that the caller may see; or no such route.",
    405: "The route does not take this method.",
    409: "The entry does not stand where this move begins.",
    413: "The body is larger than 8 MiB.",
    415: "The body is not application/json.",
    422: "An argument, or a header that stands beside the arguments, is not acceptable.",
    429: "Too many calls, or a quota is used up.",
    500: "A defect; the id finds it in the server's log.",
    503: "Redis cannot serve now, or the server is going down or overloaded.",
}

_RESPONSE_HEADERS: dict[str, Any] = {
    "Request-Id": {"description": "names this request in the server's log", "schema": {"type": "string"}},
    "Retry-After": {"description": "seconds", "required": True, "schema": {"type": "integer", "minimum": 0}},
    "Allow": {"description": "the methods that the route takes", "required": True, "schema": {"type": "string"}},
    "WWW-Authenticate": {"required": True, "schema": {"type": "string", "pattern": "^Bearer"}},
    "Fence": {
        "description": "a claim's fence: send it along with what you do for this claim",
        "schema": {"type": "integer"},
    },
    "Replayed": {"description": "the first answer of this request id, given again", "schema": {"const": "true"}},
    "Applied": {"description": "how long the claim could wait", "schema": {"type": "string"}},
}


def document(tools: Iterable[Tool]) -> dict[str, Any]:
    """Give the whole document."""
    offered = {tool.name: tool for tool in tools}
    named: dict[str, Any] = {}
    paths = {f"/v1/tools/{tool.name}": {"post": _call(tool, offered)} for tool in offered.values()} | _server()
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "shampoo_queue",
            "version": __version__,
            "description": "A distributed work queue: every tool is one atomic move. Errors are "
            '`{"error":{"code","message"}}`; `code` is for programs.',
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "/"}],
        "security": [{"token": []}],
        "tags": [
            {"name": "tools", "description": "the queue"},
            {"name": "server", "description": "this server"},
        ],
        "paths": _without_definitions(paths, named),
        "components": {
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "a token of `shampoo token issue`; it names its principal and its profile",
                }
            },
            "parameters": _parameters(),
            "headers": _RESPONSE_HEADERS,
            "responses": {f"Status{status}": _refusal(status, kinds) for status, kinds in _ALIKE.items()},
            "schemas": named,
        },
    }


def _without_definitions(part: Any, named: dict[str, Any]) -> Any:
    """Move the definitions that a schema brings along to the document's own, where its references can find them."""
    if isinstance(part, list):
        return [_without_definitions(item, named) for item in part]
    if not isinstance(part, dict):
        return part
    for name, schema in part.get("$defs", {}).items():
        named[name] = _without_definitions(schema, named)
    found = {name: _without_definitions(value, named) for name, value in part.items() if name != "$defs"}
    if str(found.get("$ref", "")).startswith("#/$defs/"):
        found["$ref"] = found["$ref"].replace("#/$defs/", "#/components/schemas/")
    return found


def schemas(tool: Tool) -> tuple[dict[str, Any], dict[str, Any]]:
    """Give the schemas of a tool's arguments and of its result."""
    return contract.argument_schema(tool), contract.result_schema(tool)


# A tool ---------------------------------------------------------------------------------------------------------


def _call(tool: Tool, offered: Mapping[str, Tool]) -> dict[str, Any]:
    beside = ["RequestId", "Holder", *(["IdempotencyKey", "Fence"] if tool.writes else [])]
    if tool.name == "job_claim":
        beside.append("Wait")
    return {
        "operationId": tool.name,
        "tags": ["tools"],
        "summary": tool.summary,
        "description": f"{tool.access}.\n\n{tool.boundaries}\n\n{tool.lifecycle}",
        "parameters": [{"$ref": f"#/components/parameters/{name}"} for name in beside],
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": schemas(tool)[0], "example": _example(dict(tool.example))}},
        },
        "responses": {"200": _result(tool, offered), **_refusals(_codes(tool))},
    }


def _codes(tool: Tool) -> list[str]:
    """Give every code that a call can answer, whichever way it is refused."""
    return list(dict.fromkeys((*_GUARD, *_CALL, *COMMON_REFUSALS, *tool.refusals, "unknown_tool")))


def _result(tool: Tool, offered: Mapping[str, Tool]) -> dict[str, Any]:
    headers = {"X-Request-Id": _header("Request-Id")}
    if tool.writes:
        headers["Idempotency-Replayed"] = _header("Replayed")
    if tool.name == "job_claim":
        headers |= {"Shampoo-Fence": _header("Fence"), "Preference-Applied": _header("Applied")}
    example = _example(dict(tool.example_result))
    content = {"application/json": {"schema": schemas(tool)[1], "example": example}}
    found: dict[str, Any] = {"description": _MEANING[200], "headers": headers, "content": content}
    if links := {name: link for name, link in _links(tool.name).items() if link["operationId"] in offered}:
        found["links"] = links
    return found


def _links(name: str) -> dict[str, Any]:
    """Say which calls can follow, and what they take from this one."""
    if name in ("job_create", "job_claim"):
        job = {"job_id": "$response.body#/job_id"}
        fence = {"parameters": {"Shampoo-Fence": "$response.header.Shampoo-Fence"}} if name == "job_claim" else {}
        return {
            "complete": {"operationId": "job_complete", "requestBody": job | {"outcome": "completed"}} | fence,
            "fail": {"operationId": "job_complete", "requestBody": job | {"outcome": "failed"}} | fence,
            "release": {"operationId": "job_release", "requestBody": job} | fence,
        }
    if name == "lane_create":
        lane = {"lane_id": "$response.body#/lane_id"}
        return {
            "begin": {"operationId": "lane_set_state", "requestBody": lane | {"state": "in_progress"}},
            "submit": {"operationId": "lane_review", "requestBody": lane | {"decision": "submit"}},
            "skip": {"operationId": "lane_merge", "requestBody": lane | {"outcome": "skipped"}},
        }
    return {}


def _refusals(codes: Iterable[str]) -> dict[str, Any]:
    """Document the refusals by status."""
    by_status = _by_status(codes)
    return {
        str(status): {"$ref": f"#/components/responses/Status{status}"}
        if by_status[status] == _ALIKE.get(status)
        else _refusal(status, by_status[status])
        for status in sorted(by_status)
    }


def _by_status(codes: Iterable[str]) -> dict[int, list[type[Refusal]]]:
    kinds: dict[str, type[Refusal]] = {**TOOL_ERRORS, **DOOR_ERRORS}
    found: dict[int, list[type[Refusal]]] = {}
    for code in dict.fromkeys(codes):
        found.setdefault(kinds[code].http_status, []).append(kinds[code])
    return found


# The refusals that are the same wherever they occur.
_ALIKE = _by_status((*_GUARD, *_CALL, *COMMON_REFUSALS, "unknown_tool"))


def _refusal(status: int, kinds: list[type[Refusal]]) -> dict[str, Any]:
    headers = {"X-Request-Id": _header("Request-Id")}
    if status == 401:
        headers["WWW-Authenticate"] = _header("WWW-Authenticate")
    elif status == 405:
        headers["Allow"] = _header("Allow")
    elif status in (429, 503):
        headers["Retry-After"] = _header("Retry-After")
    error = {
        "type": "object",
        "required": ["code", "message"],
        "properties": {"code": {"enum": [kind.code for kind in kinds]}, "message": {"type": "string"}},
        "additionalProperties": False,
    }
    schema = {"type": "object", "required": ["error"], "properties": {"error": error}, "additionalProperties": False}
    examples = {kind.code: {"value": {"error": {"code": kind.code, "message": kind.words}}} for kind in kinds}
    content = {"application/json": {"schema": schema, "examples": examples}}
    return {"description": _MEANING[status], "headers": headers, "content": content}


def _header(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/headers/{name}"}


def _parameters() -> dict[str, Any]:
    longest = limit("request_id")
    spelled: dict[str, tuple[str, str, dict[str, Any]]] = {
        "RequestId": ("X-Request-Id", "names this request in the server's log", {"type": "string"}),
        "IdempotencyKey": (
            "Idempotency-Key",
            "this very call may be repeated: the first answer comes again and nothing is done twice",
            {"type": "string", "pattern": f"^[!-~]{{1,{longest}}}$"},
        ),
        "Fence": (
            "Shampoo-Fence",
            "act for this acquisition only: the fence that a claim answered",
            {"type": "string", "pattern": "^-?[0-9]{1,18}$"},
        ),
        "Holder": (
            "Shampoo-Holder",
            "which process of the principal calls, for people to read in history",
            {"type": "string", "maxLength": limit("project")},
        ),
        "Wait": (
            "Prefer",
            "`wait=SECONDS`, at most 30: hold the answer until something can be claimed",
            {"type": "string", "examples": ["wait=1"]},
        ),
    }
    return {
        key: {"name": name, "in": "header", "required": False, "description": text, "schema": schema}
        for key, (name, text, schema) in spelled.items()
    }


def _example(value: Any) -> Any:
    """Put an id and an instant where the contract's examples leave a place for one."""
    if isinstance(value, str):
        return value.replace("<uuid>", _EXAMPLE_ID).replace("<iso-8601>", _EXAMPLE_AT)
    if isinstance(value, list):
        return [_example(item) for item in value]
    return {name: _example(part) for name, part in value.items()} if isinstance(value, dict) else value


# The server -----------------------------------------------------------------------------------------------------


def _server() -> dict[str, Any]:
    everybody: dict[str, Any] = {"security": []}
    checks = {
        "type": "object",
        "required": ["status", "version", "checks"],
        "properties": {
            "status": {"enum": ["ready", "not ready"]},
            "version": {"type": "string"},
            "checks": {"type": "object", "additionalProperties": {"type": "string"}},
        },
        "additionalProperties": False,
    }
    live = {"type": "object", "required": ["status"], "properties": {"status": {"const": "live"}}}
    tools = {"type": "object", "required": ["tools"], "properties": {"tools": {"type": "array"}}}
    ready = _get("readyz", "Tell whether this server can serve calls now.", checks, ("bad_request",)) | everybody
    not_ready = _document("It cannot; the failed checks say why.", checks)
    ready["responses"]["503"] = not_ready | {"headers": not_ready["headers"] | {"Retry-After": _header("Retry-After")}}
    scraped = ("unauthenticated", "rate_limited", *_GUARD)
    metrics = _get("metrics", "Give the metrics, to a token of scope metrics.", {"type": "string"}, scraped)
    text = metrics["responses"]["200"]["content"].pop("application/json")
    metrics["responses"]["200"]["content"]["text/plain"] = text
    probe = ("bad_request", "method_not_allowed")
    return {
        "/v1/tools": {"get": _get("list_tools", "List the tools with their schemas.", tools, _GUARD) | everybody},
        "/v1/openapi.json": {"get": _get("openapi", "Give this document.", {"type": "object"}, _GUARD) | everybody},
        "/livez": {"get": _get("livez", "Tell that this process runs.", live, probe) | everybody},
        "/readyz": {"get": ready},
        "/metrics": {"get": metrics},
    }


def _get(name: str, summary: str, schema: dict[str, Any], codes: Iterable[str]) -> dict[str, Any]:
    responses = {"200": _document(summary, schema), **_refusals((*codes, "method_not_allowed"))}
    return {"operationId": name, "tags": ["server"], "summary": summary, "responses": responses}


def _document(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    headers = {"X-Request-Id": _header("Request-Id")}
    return {"description": description, "headers": headers, "content": {"application/json": {"schema": schema}}}
