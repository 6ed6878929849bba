"""What the line accepts: every tool's options are the contract's arguments, and usage is refused as usage."""

from __future__ import annotations

import click
import pytest

from shampoo_queue import contract
from shampoo_queue.cli.call import FROM_INPUT, _beside, command_of
from shampoo_queue.cli.catalogue import is_whole
from shampoo_queue.cli.program import COMMANDS, shampoo
from shampoo_queue.cli.settings import everywhere
from tests.cli.conftest import Cli

TOOLS = [pytest.param(tool, id=tool.name) for tool in contract.TOOLS]
REQUIRED = [(tool, name) for tool in contract.TOOLS for name in tool.required]


@pytest.mark.parametrize("tool", TOOLS)
def test_a_tools_options_are_its_arguments_and_what_travels_beside_them(tool: contract.Tool) -> None:
    always = {option.name for option in (*_beside(hidden=True), *everywhere(hidden=True))}
    found = {param.name for param in command_of(tool).params}
    assert found - always == set(tool.arguments.model_fields)
    assert always < found
    assert not always & set(tool.arguments.model_fields)


@pytest.mark.parametrize("tool", TOOLS)
def test_a_tools_options_are_spelled_with_hyphens_and_never_required(tool: contract.Tool) -> None:
    for param in command_of(tool).params:
        if param.name in tool.arguments.model_fields:
            assert param.opts == [f"--{param.name.replace('_', '-')}"]
            assert not param.required


@pytest.mark.parametrize("tool", TOOLS)
def test_a_tools_numbers_are_the_schemas_integers(tool: contract.Tool) -> None:
    numbers = {name for name in tool.arguments.model_fields if is_whole(tool, name)}
    assert numbers == {"job_claim": {"lease_seconds"}, "lane_list": {"limit"}}.get(tool.name, set())


def test_the_arguments_that_standard_input_may_hold_are_the_two_counted_in_bytes() -> None:
    assert set(FROM_INPUT) == {"payload", "result_ref"}


def test_call_offers_the_contracts_tools_in_its_order() -> None:
    context = click.Context(shampoo)
    call = shampoo.get_command(context, "call")
    assert isinstance(call, click.Group)
    assert call.list_commands(context) == [tool.name for tool in contract.TOOLS]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(cli: Cli, name: str) -> None:
    ended = cli.run(name, "--help")
    assert ended.status == 0
    assert ended.out.startswith(f"Usage: shampoo {name} ".encode())
    assert ended.err == ""


@pytest.mark.parametrize("tool", TOOLS)
def test_the_help_of_a_tool_names_every_argument(cli: Cli, tool: contract.Tool) -> None:
    shown = cli.run("call", tool.name, "--help").out.decode()
    assert all(f"--{name.replace('_', '-')} " in shown for name in tool.arguments.model_fields)
    assert tool.summary.split()[0] in shown


def test_options_with_underscores_are_the_same_options(cli: Cli) -> None:
    cli.queue.create(cli.queue.shampoo.client("c"), project="p")
    claim = cli.done("call", "job_claim", "--as", "w", "--lease_seconds", "60", "--request_id=r1")
    released = cli.done("call", "job_release", "--as", "w", "--job_id", claim["job_id"])
    assert released == {"job_id": claim["job_id"], "state": "queued"}


@pytest.mark.parametrize("place", range(4))
def test_the_options_of_the_line_stand_anywhere(cli: Cli, place: int) -> None:
    words = ["call", "job_claim", "--kind=k"]
    words[place:place] = ["--url", cli.env["SHAMPOO_URL"], "--profile", cli.env["SHAMPOO_PROFILE"], "--json"]
    nowhere = {"SHAMPOO_URL": "redis://127.0.0.1:1/0", "SHAMPOO_PROFILE": "elsewhere", "SHAMPOO_CLIENT": "w"}
    assert cli.done(*words, env=nowhere) == {"claimed": False}


def test_the_caller_may_be_named_before_the_tool(cli: Cli) -> None:
    assert cli.done("call", "--as", "w", "job_claim") == {"claimed": False}


def test_of_an_option_given_twice_the_last_counts(cli: Cli) -> None:
    assert cli.run("--profile", "elsewhere", "call", "--as", "w", "job_claim").refusal == "1 unauthenticated"
    profile = cli.env["SHAMPOO_PROFILE"]
    assert cli.done("--profile", "elsewhere", "call", "--as", "w", "job_claim", "--profile", profile)


def test_the_caller_comes_from_the_environment_unless_the_line_names_one(cli: Cli) -> None:
    env = {"SHAMPOO_CLIENT": "w"}
    assert cli.done("call", "job_claim", env=env) == {"claimed": False}
    assert cli.run("call", "job_claim", "--as", "nobody", env=env).refusal == "1 unauthenticated"


@pytest.mark.parametrize("env", [{}, {"SHAMPOO_CLIENT": ""}])
def test_a_call_without_a_caller_is_wrong_usage(cli: Cli, env: dict[str, str]) -> None:
    ended = cli.run("call", "job_claim", env=env)
    assert (ended.status, ended.out) == (2, b"")
    assert "Missing option '--as' (or set SHAMPOO_CLIENT)" in ended.err


@pytest.mark.parametrize(
    "line",
    [
        "",
        "call",
        "nonsense",
        "--nonsense",
        "call job_claim --nonsense 1",
        "call job_claim surplus --as w",
        "call job_create --as",
        "principal conductor w perhaps",
        "principal grant w",
        "job cancel some-id",
        "demo --workers 1",
        "history --after",
    ],
)
def test_wrong_usage_ends_with_status_2_and_nothing_on_standard_output(cli: Cli, line: str) -> None:
    ended = cli.run(*line.split())
    assert (ended.status, ended.out) == (2, b"")
    assert ended.err.startswith(("Usage: shampoo", "Error: "))
    assert "Traceback" not in ended.err


@pytest.mark.parametrize("name", ["nope", "job-claim", "JOB_CLAIM", "job_claim ", "", "\udcff", "ä" * 100])
def test_an_unknown_tool_is_refused_in_the_contracts_words(cli: Cli, name: str) -> None:
    for words in (["call", name], ["call", name, "--as", "w", "--kind", "k"], ["tools", name]):
        ended = cli.run(*words)
        assert ended.refusal == "1 unknown_tool"
        assert ended.err.startswith("unknown_tool: unknown tool: ")
        assert ended.err.isascii() or "…" in ended.err


@pytest.mark.parametrize("tool, name", REQUIRED, ids=lambda value: getattr(value, "name", value))
def test_a_missing_argument_is_refused_by_the_contract(cli: Cli, tool: contract.Tool, name: str) -> None:
    given = [word for other in tool.required if other != name for word in (f"--{other.replace('_', '-')}", "x")]
    ended = cli.run("call", tool.name, "--as", "w", *given)
    assert ended.refusal == "1 invalid_argument"
    assert ended.err == f"invalid_argument: invalid argument: {name} is required\n"


def test_the_version_is_one_line(cli: Cli) -> None:
    ended = cli.run("--version")
    assert ended.out.startswith(b"shampoo ")
    assert ended.out.count(b"\n") == 1


def test_no_command_takes_an_option_of_the_line_for_its_own() -> None:
    context = click.Context(shampoo)
    for name in COMMANDS:
        command = shampoo.get_command(context, name)
        assert command is not None
        names = [param.name for param in command.params]
        assert len(names) == len(set(names))


def test_completion_offers_the_tools(cli: Cli) -> None:
    env = {"_SHAMPOO_COMPLETE": "bash_complete", "COMP_WORDS": "shampoo call job_c", "COMP_CWORD": "2"}
    offered = cli.run(env=env).out.decode().split()
    assert offered == ["plain,job_claim", "plain,job_complete", "plain,job_create"]
