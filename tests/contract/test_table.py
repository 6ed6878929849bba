"""The contract table against the catalogue of the tools, word for word where that speaks, and through all layers."""

from __future__ import annotations

import hashlib
import inspect
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from shampoo_queue import AsyncClient, Client, contract, scripts
from shampoo_queue.contract import BY_NAME, TOOLS, argument_schema, check, result_schema
from tests.contract.cast import MISSING, PROJECT, quorum_with, refused
from tests.contract.schema import faults
from tests.contract.test_arguments import REQUIRED, TABLE
from tests.queue import Clock, Queue

HERE = Path(__file__).parent
CATALOGUE = (HERE / "tool-catalogue.txt").read_text("utf-8")
ASPECTS = ("Arguments", "Result", "Boundaries", "Lifecycle", "Errors", "Example")

# Moves of the library in a principal's name: no tools, and never listed among them.
BESIDE_THE_TOOLS = {"job_get", "job_renew", "job_wait"}

each_tool = pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)


@dataclass(frozen=True)
class Page:
    """One tool as the catalogue documents it."""

    name: str
    access: str
    aspects: dict[str, str]

    def arguments(self, mark: str) -> set[str]:
        """Give the arguments that are named after `Required:` or `Optional:`."""
        found = re.search(rf"{mark}: ((?:`\w+`(?:, )?)+)\.", self.aspects["Arguments"])
        return set(re.findall(r"`(\w+)`", found[1])) if found else set()

    @property
    def noted(self) -> list[str]:
        return re.findall(r"- `(\w+)`\.", self.aspects["Arguments"])

    @property
    def examples(self) -> list[dict[str, Any]]:
        """Give the example call, and the shape of its result."""
        return [json.loads(text) for text in re.findall(r"```json (.*?) ```", self.aspects["Example"])]


def pages() -> dict[str, Page]:
    """Take the catalogue apart."""
    found = {}
    for section in re.split(r"\n(?=\w+\n\n(?:Write|Read) · )", CATALOGUE)[1:]:
        name, access = section.split("\n")[0], section.split("\n")[2]
        aspects = dict(re.findall(rf"^({'|'.join(ASPECTS)})\n(.+)$", section, re.MULTILINE))
        found[name] = Page(name, access, aspects)
    return found


PAGES = pages()


def test_the_catalogue_is_kept_word_for_word() -> None:
    assert hashlib.sha256(CATALOGUE.encode()).hexdigest() == (
        "ffec01090e5dfc61a8f3cc4ec9980d74c435c548c8f7a2ec67587b7f53bf1bf1"
    )


def test_the_catalogue_is_read_to_its_end() -> None:
    count = re.search(r"^(\d+) tools$", CATALOGUE, re.MULTILINE)
    assert count
    assert len(PAGES) == int(count[1]) == 9
    assert all(set(page.aspects) == set(ASPECTS) and len(page.examples) == 2 for page in PAGES.values())


def test_the_table_has_the_tools_of_the_catalogue_in_its_order() -> None:
    assert [(tool.name, tool.access) for tool in TOOLS] == [(page.name, page.access) for page in PAGES.values()]
    assert list(BY_NAME) == list(PAGES)
    conductors = {tool.name for tool in TOOLS if tool.conductor_only}
    assert conductors == {"job_create", "lane_create", "lane_merge", "lane_set_state"}
    assert {tool.name for tool in TOOLS if not tool.writes} == {"lane_list"}


@each_tool
def test_a_tool_takes_the_arguments_of_the_catalogue(tool: contract.Tool) -> None:
    page = PAGES[tool.name]
    assert set(tool.required) == page.arguments("Required")
    assert set(tool.optional) == page.arguments("Optional")
    assert sorted(page.noted) == sorted((*tool.required, *tool.optional))


@each_tool
def test_a_tool_answers_the_keys_of_the_catalogue(tool: contract.Tool) -> None:
    prose = PAGES[tool.name].aspects["Result"].replace("created and changed stamps", "created_at changed_at")
    entry = contract.LaneEntry.model_fields if tool.name == "lane_list" else {}
    keys = {*tool.result_keys, *entry}
    words = set(re.findall(r"\w+", prose))
    assert keys <= words
    states = {"changes_requested"}
    assert {word for word in words - states if "_" in word} <= keys
    assert {name for name, _ in re.findall(r"(\w+) \((bool|new UUID|always|completed|pending|the )", prose)} <= keys
    assert set(re.findall(r"(\w+):true", prose)) == keys & {"idempotent"}


@each_tool
def test_the_examples_are_those_of_the_catalogue(tool: contract.Tool) -> None:
    call, result = PAGES[tool.name].examples
    assert tool.example == call
    if tool.name == "lane_list":
        assert tool.example_result["count"] == result["count"]
        assert tool.example_result["lanes"][0].items() >= result["lanes"][0].items()
    else:
        assert tool.example_result == result


@each_tool
def test_the_examples_hold_against_the_schemas_and_the_check(tool: contract.Tool) -> None:
    assert check(tool, tool.example).given() == tool.example
    assert faults(argument_schema(tool.name), dict(tool.example)) == []
    assert faults(result_schema(tool.name), dict(tool.example_result)) == []
    assert tool.result.model_validate(tool.example_result).model_dump().items() >= tool.example_result.items()


@each_tool
def test_the_argument_schema_refuses_nothing_that_the_tool_takes(tool: contract.Tool) -> None:
    schema = argument_schema(tool.name)
    for name, text in TABLE[tool.name].items():
        for value in (*text.good(), *([] if name in REQUIRED[tool.name] else [None])):
            assert faults(schema, REQUIRED[tool.name] | {name: value}) == []


@each_tool
def test_the_schemas_say_what_is_required_and_close_the_set(tool: contract.Tool) -> None:
    schema = argument_schema(tool.name)
    assert set(schema.get("required", ())) == set(tool.required)
    assert list(schema["properties"]) == list(tool.arguments.model_fields)
    assert faults(schema, {**REQUIRED[tool.name], "more": 1}) == ["$ has the unknown more"]
    for name in tool.required:
        assert f"$ has no {name}" in faults(schema, {})
        assert faults(schema, REQUIRED[tool.name] | {name: None}) != []
    wrong: list[Any] = [[], {}, 1.5, True]
    for name in (*tool.required, *tool.optional):
        for value in wrong:
            assert faults(schema, REQUIRED[tool.name] | {name: value}) != []


@each_tool
def test_the_result_schema_takes_no_other_answer(tool: contract.Tool) -> None:
    schema, answer = result_schema(tool.name), dict(tool.example_result)
    assert faults(schema, answer | {"more": 1}) != []
    for key, value in answer.items():
        assert faults(schema, {name: other for name, other in answer.items() if name != key}) != []
        assert faults(schema, answer | {key: None}) != []
        assert faults(schema, answer | {key: [value]}) != []
    assert faults(schema, {}) != []


def test_an_empty_claim_and_an_idempotent_completion_have_exactly_one_shape() -> None:
    claim, completion = result_schema("job_claim"), result_schema("job_complete")
    assert faults(claim, {"claimed": False}) == []
    assert faults(claim, {"claimed": True}) != []
    assert faults(claim, {"claimed": False, "job_id": ""}) != []
    assert faults(completion, {"job_id": "", "state": "failed", "idempotent": True}) == []
    assert faults(completion, {"job_id": "", "state": "failed", "idempotent": False}) != []


def test_every_real_answer_holds_against_its_schema(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    answered = set()

    def call(tool: str, **arguments: Any) -> dict[str, Any]:
        answer = conductor.call(tool, arguments)
        assert faults(result_schema(tool), dict(answer)) == []
        assert json.loads(json.dumps(answer)) == answer
        answered.add(tool)
        return answer

    call("job_claim")
    call("lane_list")
    lane_id = call("lane_create", quorum_id=quorum_with(queue))["lane_id"]
    job_id = call("job_create", kind="k", lane_id=lane_id)["job_id"]
    call("job_claim")
    call("job_release", job_id=job_id)
    call("job_claim", lease_seconds=1)
    for _ in range(2):
        call("job_complete", job_id=job_id, outcome="completed")
    call("lane_set_state", lane_id=lane_id, state="in_progress")
    call("lane_set_state", lane_id=lane_id, state="done")
    for decision in ("submit", "request-changes", "submit", "approve"):
        call("lane_review", lane_id=lane_id, decision=decision)
    call("lane_merge", lane_id=lane_id, outcome="merged", result_commit="abc")
    assert call("lane_list")["lanes"][0]["review_state"] == "approved"
    assert answered == set(BY_NAME)


@each_tool
def test_one_name_runs_through_all_layers(tool: contract.Tool) -> None:
    assert (scripts.folder() / f"{tool.name}.lua").is_file()
    assert (HERE / f"test_{tool.name}.py").is_file()
    for client in (Client, AsyncClient):
        signature = inspect.signature(getattr(client, tool.name))
        beside = {"self", *({"request_id"} if tool.writes else ())}
        beside |= {"fence"} if tool.name in ("job_complete", "job_release") else set()
        beside |= {"delay_seconds"} if tool.name == "job_create" else set()
        named = [parameter for parameter in signature.parameters.values() if parameter.name not in beside]
        assert beside <= signature.parameters.keys()
        assert {parameter.name for parameter in named} == set(tool.arguments.model_fields)
        assert all(parameter.kind is parameter.KEYWORD_ONLY for parameter in named)
        assert {parameter.name for parameter in named if parameter.default is parameter.empty} == set(tool.required)
        assert inspect.iscoroutinefunction(getattr(client, tool.name)) == (client is AsyncClient)


def test_no_layer_has_a_tool_of_its_own() -> None:
    prefixes = ("job_", "lane_")
    for client in (Client, AsyncClient):
        assert {name for name in vars(client) if name.startswith(prefixes)} == set(BY_NAME)
    tested = {path.stem[5:] for path in HERE.glob("test_*.py") if path.stem[5:].startswith(prefixes)}
    assert tested == {*BY_NAME, *BESIDE_THE_TOOLS}
    assert not BESIDE_THE_TOOLS & BY_NAME.keys()


def test_what_the_library_has_beside_the_tools_goes_through_no_door_of_theirs(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    for move in (*sorted(BESIDE_THE_TOOLS), "job_expire", "kind_limit", "claim_many", "job_renewal"):
        refused(queue, "unknown_tool", conductor.call, move, {})
    for tool, more in (
        ("job_create", {"kind": "k", "project": PROJECT, "delay_seconds": 1}),
        ("job_release", {"job_id": MISSING, "delay_seconds": 1}),
        ("job_release", {"job_id": MISSING, "reason": "why"}),
        ("job_complete", {"job_id": MISSING, "outcome": "failed", "reason": "why"}),
    ):
        refused(queue, "invalid_argument", conductor.call, tool, more)


def test_the_limits_are_those_of_the_contract() -> None:
    assert {name: limit.value for name, limit in contract.LIMITS.items()}.items() >= {
        "kind": 64,
        "project": 128,
        "link": 128,
        "place": 512,
        "request_id": 128,
        "result_ref": 2_048,
        "payload": 1_048_576,
        "lease_min": 1,
        "lease_default": 300,
        "lease_max": 3_600,
        "list_default": 50,
        "list_max": 100,
        "attempts": 5,
        "grants": 1_000,
        "participants": 1_000,
        "star_projects": 64,
        "history_page": 1_000,
        "replay_library": 60_000,
        "replay_caller": 600_000,
        "reason": 512,
        "delay": 31_536_000,
        "limited_kinds": 50,
        "waiter_kinds": 16,
        "wait_look": 8_000,
        "wait_stay": 60_000,
    }.items()


@pytest.mark.parametrize(
    ("schema", "value", "fault"),
    [
        ({"type": "integer"}, True, "$ is no integer"),
        ({"type": "integer"}, "5", "$ is no integer"),
        ({"type": "integer", "minimum": 1}, 0, "$ is 0"),
        ({"type": "string"}, 5, "$ is no string"),
        ({"type": "string", "maxLength": 2}, "abc", "$ is 3 characters long"),
        ({"type": "string", "minLength": 1}, "", "$ is 0 characters long"),
        ({"type": "string", "pattern": "^[^\\x00-\\x1f]*$"}, "a\n", "$ does not match ^[^\\x00-\\x1f]*$"),
        ({"const": True}, 1, "$ is not True"),
        ({"enum": ["a"]}, "b", "$ is none of ['a']"),
        ({"oneOf": [{"type": "string"}, {"const": "a"}]}, "a", "$ fits 2 of oneOf"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, 5, "$ fits 0 of anyOf"),
        (
            {"type": "array", "items": {"$ref": "#/$defs/T"}, "$defs": {"T": {"type": "string"}}},
            ["", 5],
            "$[1] is no string",
        ),
        ({"type": "object", "required": ["a"]}, {}, "$ has no a"),
        ({"properties": {"a": {"type": "null"}}}, {"a": ""}, "$.a is no null"),
    ],
    ids=str,
)
def test_the_reader_of_schemas_finds_a_fault(schema: dict[str, Any], value: Any, fault: str) -> None:
    assert faults(schema, value) == [fault]


def test_the_reader_of_schemas_passes_over_no_keyword() -> None:
    with pytest.raises(AssertionError):
        faults({"format": "uuid"}, MISSING)
