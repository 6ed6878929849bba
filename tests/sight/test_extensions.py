"""The extension tools: schemas, answers, refusals, and the nine beside them."""

from __future__ import annotations

import typing
import uuid
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from shampoo_queue import contract, extensions
from shampoo_queue.contract import argument_schema, result_schema
from shampoo_queue.errors import (
    InvalidArgument,
    JobAlreadyTerminal,
    JobNotClaimed,
    JobNotFound,
    LeaseExpired,
    ToolError,
    Unauthenticated,
    UnknownTool,
)
from shampoo_queue.extensions import EXTENSIONS, operation
from shampoo_queue.sight import REASONS, STANDINGS
from shampoo_queue.tools import Caller, iso
from tests.conftest import REAL
from tests.queue import Clock, Queue
from tests.sight.looks import people, something_of_everything

real = pytest.mark.parametrize("engine", REAL, indirect=True)


def call(queue: Queue, who: str, tool: str, arguments: Any = None, **beside: Any) -> Any:
    given = {} if arguments is None else arguments
    return queue.shampoo._wire.run(operation(Caller(who), tool, given, **beside))


def test_the_extensions_are_six_and_none_of_the_nine() -> None:
    names = [tool.name for tool in EXTENSIONS]
    assert names == ["job_renew", "job_get", "job_list", "job_history", "queue_status", "job_explain"]
    assert not set(names) & set(contract.BY_NAME) and len(contract.TOOLS) == 9
    assert [tool.name for tool in EXTENSIONS if tool.writes] == ["job_renew"]
    for tool in EXTENSIONS:
        assert tool.access in ("Read · Basic", "Write · Advanced") and not tool.events


def test_what_a_look_can_answer_is_what_the_schema_allows() -> None:
    assert typing.get_args(extensions.Standing) == STANDINGS
    assert set(typing.get_args(extensions.Reason)) == set(REASONS)


@pytest.mark.parametrize("tool", EXTENSIONS, ids=lambda tool: tool.name)
def test_an_example_fits_its_schemas(tool: contract.Tool) -> None:
    for schema, example in (
        (argument_schema(tool), tool.example),
        (result_schema(tool), tool.example_result),
    ):
        jsonschema.Draft202012Validator.check_schema(schema)
        assert schema["type"] == "object" and schema["additionalProperties"] is False
        jsonschema.validate(dict(example), schema)
    assert "title" not in str(argument_schema(tool)) and "default" not in argument_schema(tool)
    contract.check(tool, tool.example)
    tool.result.model_validate(tool.example_result)


def test_every_answer_fits_its_schema(queue: Queue, clock: Clock) -> None:
    something_of_everything(queue, clock)
    jobs = call(queue, "star", "job_list", {"limit": 100})["jobs"]
    assert {job["standing"] for job in jobs} == set(STANDINGS) - {"damaged"}
    claimed = next(job for job in jobs if job["standing"] == "claimed")
    answers = [("job_list", {"limit": 3}), ("job_list", {"standing": "lapsed", "project": ""}), ("queue_status", {})]
    answers += [(tool, {"job_id": job["job_id"]}) for job in jobs for tool in ("job_get", "job_history", "job_explain")]
    renewed = call(
        queue, claimed["owner"], "job_renew", {"job_id": claimed["job_id"], "lease_seconds": 60}, fence=claimed["fence"]
    )
    found = [(tool, call(queue, "star", tool, arguments)) for tool, arguments in answers] + [("job_renew", renewed)]
    schemas = {tool.name: result_schema(tool) for tool in EXTENSIONS}
    for name, answer in found:
        jsonschema.Draft202012Validator(schemas[name]).validate(dict(answer))
        extensions.BY_NAME[name].result.model_validate(answer)
    assert renewed == {"job_id": claimed["job_id"], "lease_until": iso(clock.now + 60_000)}


@real
def test_renewing_needs_the_fence_of_a_live_lease(queue: Queue, clock: Clock) -> None:
    called = people(queue)
    queue.create(called["boss"], project="a")
    claim = called["a"].job_claim(lease_seconds=10)
    asked = {"job_id": claim.job_id}
    with pytest.raises(InvalidArgument, match="fence"):
        call(queue, "a", "job_renew", asked)
    for wrong in (True, "7", 10**18):
        with pytest.raises(InvalidArgument):
            call(queue, "a", "job_renew", asked, fence=wrong)
    answer = call(queue, "a", "job_renew", asked, fence=claim.fence, request_id="r")
    assert answer["lease_until"] == iso(clock.now + 300_000) and answer.meta.request_id == "r"
    refusals: list[tuple[str, dict[str, Any], int | None, type[ToolError]]] = [
        ("a", asked, 1, LeaseExpired),
        ("all", asked, claim.fence, JobNotClaimed),
        ("stranger", asked, claim.fence, Unauthenticated),
        ("a", {"job_id": str(uuid.uuid4())}, claim.fence, JobNotFound),
        ("one-b", asked, claim.fence, JobNotFound),
    ]
    queue.principal("one-b", "b")
    for who, arguments, fence, refusal in refusals:
        with pytest.raises(refusal):
            call(queue, who, "job_renew", arguments, fence=fence)
    called["a"].complete(claim)
    with pytest.raises(JobAlreadyTerminal):
        call(queue, "a", "job_renew", asked, fence=claim.fence)


@real
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("job_get", {}),
        ("job_get", {"job_id": 3}),
        ("job_get", {"job_id": None}),
        ("job_get", {"job_id": "x", "more": 1}),
        ("job_get", []),
        ("job_list", {"limit": True}),
        ("job_list", {"limit": "3"}),
        ("job_list", {"standing": "open"}),
        ("job_list", {"kind": ""}),
        ("job_list", {"cursor": "x"}),
        ("job_list", {"owner": "\ud800"}),
        ("job_list", {"project": "x" * 200}),
        ("job_history", {"job_id": "x", "cursor": 3}),
        ("queue_status", {"kind": "k"}),
        ("job_explain", {"job_id": "\ud800"}),
        ("job_renew", {"job_id": "x", "lease_seconds": 0}),
        ("job_renew", {"job_id": "x", "lease_seconds": 3_601}),
    ],
    ids=str,
)
def test_wrong_arguments_are_refused_in_a_sentence_without_them(queue: Queue, tool: str, arguments: Any) -> None:
    queue.principal("a", "a")
    with pytest.raises(InvalidArgument) as refused:
        call(queue, "a", tool, arguments, fence=1)
    assert "xxx" not in refused.value.message


@real
def test_null_and_absent_are_the_same_where_a_thing_is_optional(queue: Queue) -> None:
    queue.create(people(queue)["boss"], 2, project="a")
    nothing = dict.fromkeys(argument_schema(extensions.BY_NAME["job_list"])["properties"])
    assert call(queue, "a", "job_list", nothing)["jobs"] == call(queue, "a", "job_list")["jobs"] != []


@real
def test_a_tool_that_is_not_there_is_unknown(queue: Queue) -> None:
    for name in ("job_claim", "job_look", "", None, 3):
        with pytest.raises(UnknownTool):
            call(queue, "a", name, {})  # type: ignore[arg-type]
