"""What callers send for an optional argument, or in place of a number, is judged by one rule."""

from __future__ import annotations

import decimal
from typing import Any

import pytest

from shampoo_queue import contract, errors
from shampoo_queue.contract import Tool
from tests.library.flavours import MEMORY, TWO, Flavour
from tests.queue import Clock, Queue

OPTIONAL = [(tool.name, name) for tool in contract.TOOLS for name in tool.optional]
REQUIRED = [(tool.name, name) for tool in contract.TOOLS for name in tool.required]


class Scene:
    """A profile in which each tool can be called with its required arguments alone."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.client = queue.principal("c", "p", "", conductor=True)
        self.quorum = queue.shampoo.registry.open_quorum("p")

    def arguments(self, tool: Tool) -> dict[str, Any]:
        """The required arguments of one call that will succeed."""
        if tool.name in ("job_complete", "job_release", "job_claim"):
            (job_id,) = self.queue.create(self.client, project="p")
            if tool.name == "job_claim":
                return {}
            assert self.client.job_claim().job_id == job_id
            return {"job_id": job_id, "outcome": "completed"} if tool.name == "job_complete" else {"job_id": job_id}
        if tool.name == "job_create":
            return {"kind": "k"}
        if tool.name in ("lane_create", "lane_list"):
            return {"quorum_id": self.quorum} if tool.name == "lane_create" else {}
        lane_id = self.client.lane_create(quorum_id=self.quorum).lane_id
        if tool.name == "lane_merge":
            return {"lane_id": lane_id, "outcome": "skipped"}
        if tool.name == "lane_review":
            return {"lane_id": lane_id, "decision": "submit"}
        return {"lane_id": lane_id, "state": "in_progress"}


@TWO
@pytest.mark.parametrize(("tool", "name"), OPTIONAL)
def test_null_for_an_optional_argument_is_the_same_as_leaving_it_out(
    queue: Queue, clock: Clock, tool: str, name: str
) -> None:
    """Field report 40: one optional argument at a time."""
    same_call(Scene(queue), contract.BY_NAME[tool], {name: None})


@TWO
@pytest.mark.parametrize("tool", contract.TOOLS, ids=lambda tool: tool.name)
def test_null_for_every_optional_argument_at_once_is_a_call_with_none(queue: Queue, clock: Clock, tool: Tool) -> None:
    """Field report 40: clients that fill every unset optional with null are served like those that do not."""
    same_call(Scene(queue), tool, dict.fromkeys(tool.optional))


def same_call(scene: Scene, tool: Tool, more: dict[str, None]) -> None:
    """Make a call, then make it with these nulls under the same request id: the queue must take it for a repeat."""
    required = scene.arguments(tool)
    first = scene.client.call(tool.name, required, request_id="r-1")
    again = scene.client.call(tool.name, {**more, **required}, request_id="r-1")
    assert again.meta.replayed == tool.writes
    assert {**again, "idempotent": True} == {**first, "idempotent": True}


@TWO
@pytest.mark.parametrize(("tool", "name"), REQUIRED)
def test_null_or_nothing_for_a_required_argument_is_refused(queue: Queue, clock: Clock, tool: str, name: str) -> None:
    """Field report 40: a required argument that is null is missing, and the sentence says so."""
    scene = Scene(queue)
    given = scene.arguments(contract.BY_NAME[tool])
    before = queue.facts()
    sentences = set()
    for arguments in ({**given, name: None}, {key: value for key, value in given.items() if key != name}):
        with pytest.raises(errors.InvalidArgument) as refused:
            scene.client.call(tool, arguments)
        sentences.add(refused.value.message)
    assert sentences == {f"invalid argument: {name} is required"}
    assert queue.facts() == before


@TWO
def test_a_null_project_is_untagged_and_needs_the_empty_grant(queue: Queue, clock: Clock, flavour: Flavour) -> None:
    """Field report 40: null never slips past the grant that untagged work needs."""
    queue.principal("c", "p", "*", conductor=True)
    client = flavour.open(queue).client("c")
    before = queue.facts()
    for arguments in ({"kind": "k"}, {"kind": "k", "project": None}, {"kind": "k", "project": ""}):
        with pytest.raises(errors.Denied):
            client.call("job_create", arguments)
    assert queue.facts() == before
    queue.shampoo.registry.grant("c", "")
    for arguments in ({"kind": "k"}, {"kind": "k", "project": None}, {"kind": "k", "project": ""}):
        job_id = client.call("job_create", arguments)["job_id"]
        assert (queue.shampoo.ops.job(job_id) or {})["project"] == ""


@TWO
def test_a_null_and_an_empty_payload_read_back_as_an_empty_text(queue: Queue, clock: Clock, flavour: Flavour) -> None:
    """Field report 40: absent, null and empty are one payload."""
    queue.principal("c", "p", conductor=True)
    client = flavour.open(queue).client("c")
    for payload in ({}, {"payload": None}, {"payload": ""}):
        client.call("job_create", {"kind": "k", "project": "p", **payload})
        assert client.call("job_claim")["payload"] == ""


@MEMORY
@pytest.mark.parametrize(
    ("tool", "name"),
    [("job_claim", "kind"), ("job_create", "kind"), ("job_create", "lane_id")]
    + [("lane_create", name) for name in ("depends_on", "task_id", "assignee_client_id")],
)
def test_an_empty_text_never_stands_for_a_name_that_was_meant(queue: Queue, tool: str, name: str) -> None:
    """Field report 40: an unset variable that became an empty text does not widen a claim or drop a link."""
    scene = Scene(queue)
    given = scene.arguments(contract.BY_NAME[tool])
    before = queue.facts()
    with pytest.raises(errors.InvalidArgument, match=f"{name} must not be empty"):
        scene.client.call(tool, {**given, name: ""})
    assert queue.facts() == before


@MEMORY
@pytest.mark.parametrize("tool", contract.TOOLS, ids=lambda tool: tool.name)
def test_a_client_that_fills_in_the_schemas_defaults_is_served(queue: Queue, tool: Tool) -> None:
    """Field report 40: no schema offers a default that its own type forbids; filling them in changes nothing."""
    scene = Scene(queue)
    schema = contract.argument_schema(tool.name)
    filled = {name: part["default"] for name, part in schema["properties"].items() if "default" in part}
    assert scene.client.call(tool.name, {**filled, **scene.arguments(tool)})
    for name in tool.optional:
        types = {part.get("type") for part in schema["properties"][name].get("anyOf", [])}
        assert "null" in types, name


BAD_NUMBERS = [
    *(True, False, "300", "0300", " 300 ", "３００", "1_0", 300.0, 300.5, 1e2, float("nan"), float("inf"), -0.0),
    *(decimal.Decimal(300), b"300", [300], {"value": 300}, "", "x", complex(300)),
]


@TWO
def test_only_a_whole_number_is_a_number(queue: Queue, clock: Clock, flavour: Flavour) -> None:
    """Field report 41: booleans, fractions and texts are refused, and a refused claim spends no attempt."""
    client = queue.principal("c", "p", conductor=True)
    (job_id,) = queue.create(client, project="p")
    caller = flavour.open(queue).client("c")
    before = queue.facts()
    for bad in BAD_NUMBERS:
        for tool, name in (("job_claim", "lease_seconds"), ("lane_list", "limit")):
            with pytest.raises(errors.InvalidArgument, match=f"{name} must be a whole number"):
                caller.call(tool, {name: bad})
    assert queue.facts() == before
    assert caller.job_claim(lease_seconds=3600).attempts == 1
    assert queue.events(job_id) == ["job.created", "job.claimed"]


@TWO
@pytest.mark.parametrize("seconds", [0, -0, -1, 3601, 10**20, -(10**20), 2**63, 2**64])
def test_a_lease_outside_its_range_is_refused_with_no_claim_made(queue: Queue, clock: Clock, seconds: int) -> None:
    """Field report 41: 0, 3601 and whatever lies beyond leave the job as it was."""
    client = queue.principal("c", "p", conductor=True)
    queue.create(client, project="p")
    before = queue.facts()
    with pytest.raises(errors.InvalidArgument, match="lease_seconds must be from 1 to 3600"):
        client.job_claim(lease_seconds=seconds)
    assert queue.facts() == before


@TWO
@pytest.mark.parametrize("seconds", [1, 2, 300, 3599, 3600])
def test_a_lease_within_its_range_lasts_exactly_so_long(queue: Queue, clock: Clock, seconds: int) -> None:
    """Field report 41: both ends of the range are allowed."""
    client = queue.principal("c", "p", conductor=True)
    (job_id,) = queue.create(client, project="p")
    client.job_claim(lease_seconds=seconds)
    stored = queue.snapshot()[queue.key("job", job_id)][1]
    assert int(stored["lease_until"]) - clock.now == seconds * 1000


@MEMORY
@pytest.mark.parametrize("arguments", [[], "kind", 7, True, [("kind", "k")]])
def test_arguments_are_an_object(queue: Queue, arguments: Any) -> None:
    """Field report 41: nothing else is taken for one, not even an empty list."""
    client = queue.principal("c", "p", conductor=True)
    with pytest.raises(errors.InvalidArgument, match="arguments must be an object"):
        client.call("job_claim", arguments)


@MEMORY
@pytest.mark.parametrize("name", ["job_claim ", "JOB_CLAIM", "", "job_claim\n", "call", "_run", "job_expire", None, 7])
def test_only_the_nine_names_are_tools(queue: Queue, name: Any) -> None:
    """Field report 41: neither another spelling nor a name of something else here is a tool."""
    client = queue.principal("c", "p", conductor=True)
    with pytest.raises(errors.UnknownTool):
        client.call(name, {})
