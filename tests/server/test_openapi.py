"""The OpenAPI document against the contract's table, with and without the extension tools."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from shampoo_queue import contract
from shampoo_queue.errors import DOOR_ERRORS, TOOL_ERRORS
from shampoo_queue.extensions import EXTENSIONS
from shampoo_queue.server import openapi
from tests.queue import Queue
from tests.server.door import Door

ALL = (*contract.TOOLS, *EXTENSIONS)
STATUSES = {"200", "400", "401", "403", "404", "405", "409", "413", "415", "422", "429", "500", "503"}


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return openapi.document(ALL)


def found(document: dict[str, Any], reference: str) -> Any:
    for part in reference.removeprefix("#/").split("/"):
        document = document[part]
    return document


def everything(part: Any) -> Iterator[dict[str, Any]]:
    if isinstance(part, dict):
        yield part
    for inner in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        yield from everything(inner)


def test_every_tool_is_an_operation_of_its_name(document: dict[str, Any]) -> None:
    named = {path: item["post"]["operationId"] for path, item in document["paths"].items() if "post" in item}
    assert named == {f"/v1/tools/{tool.name}": tool.name for tool in ALL}


def test_without_extensions_there_are_nine() -> None:
    assert sum("post" in item for item in openapi.document(contract.TOOLS)["paths"].values()) == 9


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    references = [part["$ref"] for part in everything(document) if isinstance(part.get("$ref"), str)]
    assert references
    assert all(found(document, reference) for reference in references)


@pytest.mark.parametrize("tool", ALL, ids=lambda tool: tool.name)
def test_every_status_and_every_code_of_a_tool_is_documented(document: dict[str, Any], tool: contract.Tool) -> None:
    responses = document["paths"][f"/v1/tools/{tool.name}"]["post"]["responses"]
    assert set(responses) >= STATUSES - {"409"}
    kinds = {**TOOL_ERRORS, **DOOR_ERRORS}
    for code in (*contract.COMMON_REFUSALS, *tool.refusals, *DOOR_ERRORS):
        response = responses[str(kinds[code].http_status)]
        response = found(document, response["$ref"]) if "$ref" in response else response
        error = response["content"]["application/json"]["schema"]["properties"]["error"]
        assert code in error["properties"]["code"]["enum"]


@pytest.mark.parametrize("tool", ALL, ids=lambda tool: tool.name)
def test_every_example_fits_its_schema(document: dict[str, Any], tool: contract.Tool) -> None:
    operation = document["paths"][f"/v1/tools/{tool.name}"]["post"]
    for content in (operation["requestBody"]["content"], operation["responses"]["200"]["content"]):
        schema = {**content["application/json"]["schema"], "components": document["components"]}
        Draft202012Validator(schema).validate(content["application/json"]["example"])


def test_links_lead_from_create_and_claim_to_the_end(document: dict[str, Any]) -> None:
    for name in ("job_create", "job_claim"):
        links = document["paths"][f"/v1/tools/{name}"]["post"]["responses"]["200"]["links"]
        assert {link["operationId"] for link in links.values()} == {"job_complete", "job_release"}


@pytest.mark.parametrize("engine", ["embedded"], indirect=True)
def test_extensions_are_served_only_where_an_operator_says_so(queue: Queue, conductor: str) -> None:
    for extensions, status in ((True, 200), (False, 404)):
        with Door(queue.engine.url, extensions=extensions) as door:
            job_id = door.call("job_create", {"kind": "k"}, conductor).json["job_id"]
            assert door.call("job_get", {"job_id": job_id}, conductor).status == status
            listed = [tool["name"] for tool in door.ask("GET", "/v1/tools").json["tools"]]
            assert len(listed) == (len(ALL) if extensions else 9)
            assert len(door.ask("GET", "/v1/openapi.json").json["paths"]) == len(listed) + 5
