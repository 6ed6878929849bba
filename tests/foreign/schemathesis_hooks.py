"""What schemathesis must know of this API beyond its schema; it loads this file into its own environment."""

# mypy: ignore-errors
from __future__ import annotations

import os
from typing import Any

import schemathesis


@schemathesis.hook
def map_body(context: Any, body: Any) -> Any:
    """Write whole numbers whole, and name a quorum that exists.

    JSON Schema calls 300.0 an integer; the contract, which every door obeys, does not. Quorums are opened by operators
    and not by a tool, so no link leads to one.
    """
    found = _whole(body)
    creates_lane = context.operation.path.endswith("/lane_create")
    if creates_lane and isinstance(found, dict) and isinstance(found.get("quorum_id"), str):
        found["quorum_id"] = os.environ["QUORUM_ID"]
    return found


def _whole(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: _whole(part) for name, part in value.items()}
    return [_whole(part) for part in value] if isinstance(value, list) else value
