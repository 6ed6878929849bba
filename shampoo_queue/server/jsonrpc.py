"""Read JSON-RPC messages so that the SDK's own parsers touch nothing that the contract speaks of.

A call's arguments and the three facts beside them are taken out of the message and travel apart, as they were sent: the
SDK would refuse a lone surrogate as no JSON, and the contract refuses it in its own words.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from mcp_types import INVALID_REQUEST, PARSE_ERROR, JSONRPCMessage, JSONRPCNotification, JSONRPCRequest
from mcp_types.jsonrpc import jsonrpc_message_adapter
from pydantic import ValidationError

from ..errors import BadRequest
from .answers import parse

# What travels beside the arguments, and its name in _meta.
BESIDE = {"request_id": "shampoo/request_id", "fence": "shampoo/fence", "holder": "shampoo/holder"}
LONGEST_METHOD = 128


class Malformed(Exception):
    """What came in is no JSON-RPC message; ``code`` is the protocol's, the message echoes nothing."""

    def __init__(self, code: int, message: str) -> None:
        self.code, self.message = code, message
        super().__init__(message)

    def body(self) -> dict[str, Any]:
        """Give the error message; its id is null, as no id could be read."""
        return {"jsonrpc": "2.0", "id": None, "error": {"code": self.code, "message": self.message}}


@dataclass(frozen=True, slots=True)
class Read:
    """One message: what the SDK sees, and for a call what it does not."""

    body: dict[str, Any]
    message: JSONRPCMessage
    arguments: Any
    beside: dict[str, Any]

    @property
    def method(self) -> str:
        return str(self.body.get("method", ""))


def read(raw: bytes) -> Read:
    """Read one message strictly; raise `Malformed`."""
    try:
        found = parse(raw)
    except BadRequest as refusal:
        raise Malformed(PARSE_ERROR, refusal.message) from None
    body, arguments, beside = _taken_apart(found)
    try:
        encode(body)
    except UnicodeEncodeError:
        raise Malformed(INVALID_REQUEST, "a lone surrogate stands outside the arguments") from None
    return Read(body, _typed(body), arguments, beside)


def _typed(body: dict[str, Any]) -> JSONRPCMessage:
    """Give the SDK's own model of a message."""
    try:
        message = jsonrpc_message_adapter.validate_python(body, by_name=False)
    except ValidationError:
        raise Malformed(INVALID_REQUEST, "not one JSON-RPC message") from None
    if not isinstance(message, JSONRPCRequest | JSONRPCNotification):
        return message
    if len(message.method) > LONGEST_METHOD:  # an unknown one is shown to its sender
        raise Malformed(INVALID_REQUEST, f"a method has at most {LONGEST_METHOD} characters")
    # A request whose id is no id would pass for a notification, and never be answered.
    if isinstance(message, JSONRPCNotification) and "id" in body:
        raise Malformed(INVALID_REQUEST, "the id of a request is a string or a whole number")
    return message


def _taken_apart(found: dict[str, Any]) -> tuple[dict[str, Any], Any, dict[str, Any]]:
    """Give what the SDK sees of a message, and of a call its arguments and what stands beside them."""
    params = found.get("params")
    if found.get("method") != "tools/call" or not isinstance(params, dict):
        return found, None, {}
    rest = {name: value for name, value in params.items() if name != "arguments"}
    meta, beside = rest.get("_meta"), {}
    if isinstance(meta, dict):
        beside = {name: meta[key] for name, key in BESIDE.items() if key in meta}
        rest["_meta"] = {key: value for key, value in meta.items() if key not in BESIDE.values()}
    return {**found, "params": rest}, params.get("arguments"), beside


def encode(body: dict[str, Any]) -> bytes:
    """Spell a message for the SDK's parsers."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()


def is_request(message: JSONRPCMessage) -> bool:
    """Tell whether a message is owed an answer."""
    return isinstance(message, JSONRPCRequest)


def is_answer(message: JSONRPCMessage) -> bool:
    """Tell whether a message answers a request."""
    return not isinstance(message, (JSONRPCRequest, JSONRPCNotification))
