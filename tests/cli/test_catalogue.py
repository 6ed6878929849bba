"""``shampoo tools``: the catalogue says of every tool what the contract's table says."""

from __future__ import annotations

import pytest

from shampoo_queue import contract
from tests.cli.conftest import Cli

TOOLS = [pytest.param(tool, id=tool.name) for tool in contract.TOOLS]


@pytest.mark.parametrize("tool", TOOLS)
def test_the_catalogue_tells_everything_of_a_tool(cli: Cli, tool: contract.Tool) -> None:
    ended = cli.run("tools", "--text", tool.name)
    shown = " ".join(ended.out.decode().split())
    assert (ended.status, ended.err) == (0, "")
    for told in (tool.name, tool.access, tool.summary, tool.boundaries, tool.lifecycle, *tool.refusals, *tool.events):
        assert told in shown
    for name in tool.required:
        assert f"{name}: required" in shown
    for name in tool.optional:
        assert f"{name}: optional" in shown
    for name in tool.result_keys:
        assert name in shown


def test_the_catalogue_tells_the_limits(cli: Cli) -> None:
    shown = " ".join(cli.run("tools", "--text").out.decode().split())
    for told in (
        "kind: required; at most 64 characters",
        "payload: optional; at most 1,048,576 UTF-8 bytes",
        "result_ref: optional; at most 2,048 UTF-8 bytes",
        "lease_seconds: optional; 1 to 3,600",
        "outcome: required; completed or failed",
        "decision: required; submit or approve or request-changes",
        "repo: optional; at most 512 characters",
        "limit: optional; page size, clamped to 1..100",
    ):
        assert told in shown


def test_the_whole_catalogue_is_its_parts_in_the_contracts_order(cli: Cli) -> None:
    parts = [cli.run("tools", "--text", tool.name).out for tool in contract.TOOLS]
    assert cli.run("tools", "--text").out == b"\n".join(parts)


def test_the_catalogue_in_json_has_the_schemas(cli: Cli) -> None:
    found = cli.done("tools", "--json")["tools"]
    assert [tool["name"] for tool in found] == [tool.name for tool in contract.TOOLS]
    for tool in found:
        assert tool["arguments"] == contract.argument_schema(tool["name"])
        assert tool["result"] == contract.result_schema(tool["name"])
        assert cli.done("--json", "tools", tool["name"]) == cli.done("tools", tool["name"]) == tool
