"""Ask the Redis behind the profile how it is."""

from __future__ import annotations

from typing import Any

from ...clock import now
from ...moves import Command, Operation
from ...tools import text


def redis_health() -> Operation[dict[str, Any]]:
    """Tell a few facts of the server: who it is, how long up, memory, clients, commands a second, how long it took."""
    began = now()
    yield Command(("PING",))
    took = now() - began
    reply = yield Command(("INFO",))
    # A connection that was given may have parsed the answer already.
    found = reply.items() if isinstance(reply, dict) else _lines(text(reply))
    facts = {text(name): text(value) for name, value in found}
    used, most = _whole(facts, "used_memory"), _whole(facts, "maxmemory")
    return {
        "name": "Valkey" if "valkey_version" in facts else "Redis",
        "version": facts.get("valkey_version") or facts.get("redis_version", ""),
        "role": facts.get("role", ""),
        "up_seconds": _whole(facts, "uptime_in_seconds"),
        "round_trip_ms": took * 1_000,
        "memory": used,
        "memory_most": most,
        "memory_share": used / most if most else None,
        "policy": facts.get("maxmemory_policy", ""),
        "clients": _whole(facts, "connected_clients"),
        "replicas": _whole(facts, "connected_slaves"),
        "commands_a_second": _whole(facts, "instantaneous_ops_per_sec"),
        "appends": facts.get("aof_enabled") == "1",
        "evicted": _whole(facts, "evicted_keys"),
    }


def _lines(info: str) -> list[tuple[str, str]]:
    pairs = (line.partition(":") for line in info.splitlines() if ":" in line and not line.startswith("#"))
    return [(name, value) for name, _, value in pairs]


def _whole(facts: dict[str, str], name: str) -> int:
    value = facts.get(name, "")
    return int(value) if value.isascii() and value.isdigit() else 0
