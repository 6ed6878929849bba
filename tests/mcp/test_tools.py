"""The tools for agents: listed, called, refused, repeated, by every way and in both eras of the protocol."""

from __future__ import annotations

import asyncio
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
from mcp.shared.exceptions import MCPError

from shampoo_queue import contract
from shampoo_queue.contract import TOOLS
from tests.mcp.serving import EMBEDDED, REAL, WAYS, Agents, agents, run
from tests.queue import Queue

NINE = [tool.name for tool in TOOLS]
READING = {"lane_list"}
ENDING = {"job_complete", "lane_merge", "lane_set_state"}


def cast_of(queue: Queue) -> None:
    queue.principal("boss", "", "shared-ops", "*", conductor=True)
    queue.principal("worker-1", "", "shared-ops")


@EMBEDDED
def test_the_list_is_the_nine_in_a_fixed_order_with_strict_schemas_and_all_hints(way: Agents) -> None:
    way.queue.principal("anybody")

    async def story() -> None:
        async with way.agent("anybody") as agent:
            tools = (await agent.client.list_tools()).tools
        assert [tool.name for tool in tools] == NINE
        for tool in tools:
            known = contract.BY_NAME[tool.name]
            assert tool.input_schema == contract.argument_schema(known)
            assert tool.output_schema == contract.result_schema(known)
            assert tool.input_schema["type"] == "object"
            assert (tool.output_schema or {})["type"] == "object"
            assert tool.input_schema["additionalProperties"] is False
            assert "default" not in str(tool.input_schema)
            for schema in (tool.input_schema, tool.output_schema or {}):
                jsonschema.Draft202012Validator.check_schema(schema)
            hints = tool.annotations
            assert hints is not None
            assert hints.read_only_hint == (tool.name in READING)
            assert hints.destructive_hint == (tool.name in ENDING)
            assert hints.idempotent_hint == (tool.name in {"job_complete", *READING})
            assert hints.open_world_hint is False
            for said in (known.summary, known.boundaries, known.lifecycle, *known.refusals):
                assert said in (tool.description or "")

    run(story)


@REAL
def test_the_examples_of_the_nine_answer_as_the_catalogue_says(way: Agents) -> None:
    cast_of(way.queue)
    quorum = way.queue.shampoo.registry.open_quorum("shared-ops")

    async def story() -> None:
        async with way.agent("boss") as boss:

            async def example(name: str, **instead: Any) -> Any:
                tool = contract.BY_NAME[name]
                answered = await boss.call(name, **{**tool.example, **instead})
                jsonschema.validate(answered.body, contract.result_schema(tool))
                assert set(answered.body) == set(tool.example_result)
                return answered.body

            job = await example("job_create")
            claim = await example("job_claim")
            assert claim["job_id"] == job["job_id"]
            assert claim["payload"] == '{"uri":"example"}'
            await example("job_release", job_id=job["job_id"])
            await example("job_claim")
            assert (await example("job_complete", job_id=job["job_id"]))["state"] == "completed"
            lane = (await example("lane_create", quorum_id=quorum))["lane_id"]
            assert (await example("lane_list", quorum_id=quorum))["lanes"][0]["lane_id"] == lane
            await example("lane_set_state", lane_id=lane)
            await boss.call("lane_set_state", lane_id=lane, state="done")
            await boss.call("lane_review", lane_id=lane, decision="submit")
            await example("lane_review", lane_id=lane)
            await example("lane_merge", lane_id=lane)

    run(story)


@EMBEDDED
def test_payloads_come_back_byte_for_byte(way: Agents) -> None:
    payloads = [
        "null",
        '{"a":1}',
        "[1,2]",
        "true",
        "\x00\x01\x7f\n\r\t",
        "😀 שלום \u2028",
        " padded ",
        "\\ud800",
        "é" * 10,
    ]
    payloads.append("\x00" * contract.limit("payload"))
    way.queue.principal("boss", "", conductor=True)

    async def story() -> None:
        async with way.agent("boss") as boss:
            for payload in payloads:
                await boss.call("job_create", kind="k", payload=payload)
                claim = await boss.call("job_claim", kind="k")
                assert claim.body["payload"] == payload
                await boss.call("job_complete", job_id=claim.body["job_id"], outcome="completed")
            nothing = await boss.call("job_claim")
            assert nothing.body == {"claimed": False}
            jsonschema.validate(nothing.body, contract.result_schema("job_claim"))

    run(story)


@EMBEDDED
def test_what_travels_beside_the_arguments_comes_in_and_goes_out(way: Agents) -> None:
    cast_of(way.queue)

    async def story() -> None:
        async with way.agent("boss") as boss:
            first = await boss.call("job_create", {"request_id": "once", "holder": "desk 4"}, kind="k")
            again = await boss.call("job_create", {"request_id": "once", "holder": "desk 4"}, kind="k")
            assert again.body == first.body
            assert (first.beside("replayed"), again.beside("replayed")) == (None, True)
            assert again.beside("request_id") == "once"
            other = await boss.call("job_create", {"request_id": "once", "holder": "desk 4"}, kind="other")
            assert other.refusal == "request_id_reused"
            assert other.beside("request_id") == "once"

            claim = await boss.call("job_claim", {"request_id": "c", "holder": "desk 4"})
            job_id, fence = claim.body["job_id"], claim.beside("fence")
            assert isinstance(fence, int)
            repeat = await boss.call("job_claim", {"request_id": "c", "holder": "desk 4"})
            assert (repeat.body, repeat.beside("fence"), repeat.beside("replayed")) == (claim.body, fence, True)
            late = await boss.call("job_complete", {"fence": fence - 1}, job_id=job_id, outcome="completed")
            assert late.refusal == "lease_expired"
            done = await boss.call("job_complete", {"fence": fence}, job_id=job_id, outcome="completed")
            assert done.body == {"job_id": job_id, "state": "completed"}
            repeat = await boss.call("job_complete", {"fence": fence}, job_id=job_id, outcome="completed")
            assert repeat.body == {"job_id": job_id, "state": "completed", "idempotent": True}

            for name, value in {"request_id": 7, "fence": "7", "holder": 7, "request_id ": None}.items():
                answered = await boss.call("job_claim", {name: value})
                assert answered.body == {"claimed": False} if value is None else answered.refusal == "invalid_argument"
            assert (await boss.call("job_claim", {"fence": True})).refusal == "invalid_argument"
            assert (await boss.call("job_claim", {"fence": 1.5})).refusal == "invalid_argument"
            assert (await boss.call("job_claim", {"request_id": "two words"})).refusal == "invalid_argument"

    run(story)
    assert {
        event.get("holder") for event in way.queue.shampoo.history(limit=100) if event["event"] == "job.created"
    } == {"desk 4"}


@EMBEDDED
def test_refusals_are_results_and_say_what_the_contract_says(way: Agents) -> None:
    cast_of(way.queue)

    async def story() -> None:
        async with way.agent("worker-1") as worker:
            before = way.queue.facts()
            cases: list[tuple[str, dict[str, Any], str, str]] = [
                ("job_create", {"kind": "k"}, "denied", "outside client scope"),
                ("job_complete", {"job_id": "x", "outcome": "completed"}, "job_not_found", "job not found"),
                ("job_complete", {"job_id": "x", "outcome": "done"}, "invalid_argument", "invalid argument: outcome"),
                ("job_claim", {"lease_seconds": True}, "invalid_argument", "invalid argument: lease_seconds"),
                ("job_claim", {"lease_seconds": "60"}, "invalid_argument", "invalid argument: lease_seconds"),
                ("job_claim", {"kind": ""}, "invalid_argument", "invalid argument: kind"),
                ("job_claim", {"kind": {"a": 1}}, "invalid_argument", "invalid argument: kind"),
                ("job_claim", {"sort": "k"}, "invalid_argument", "invalid argument: job_claim takes no argument"),
                ("job_release", {"job_id": None}, "invalid_argument", "invalid argument: job_id is required"),
                ("lane_list", {"limit": 1.5}, "invalid_argument", "invalid argument: limit"),
                ("lane_review", {"lane_id": "x", "decision": "submit"}, "unknown_lane", "unknown_lane"),
            ]
            for tool, arguments, code, message in cases:
                answered = await worker.call(tool, **arguments)
                assert (answered.refusal, answered.message[: len(message)]) == (code, message)
            assert (await worker.call("job_claim", kind=None, lease_seconds=None)).body == {"claimed": False}
            assert way.queue.facts() == before

    run(story)


@EMBEDDED
def test_an_unknown_tool_is_a_protocol_error(way: Agents) -> None:
    way.queue.principal("anybody")

    async def story() -> None:
        async with way.agent("anybody") as agent:
            for name in ("job_steal", "job_get", "JOB_CLAIM", "", "x" * 500):
                with pytest.raises(MCPError) as error:
                    await agent.client.call_tool(name, {})
                assert error.value.error.code == -32602
                assert error.value.error.message.startswith("unknown tool")
                assert len(error.value.error.message) < 120

    run(story)


@EMBEDDED
def test_many_calls_at_once_share_one_connection(way: Agents) -> None:
    way.queue.principal("boss", "", conductor=True)

    async def story() -> None:
        async with way.agent("boss") as boss:
            made = await asyncio.gather(*(boss.call("job_create", kind="k", payload=str(n)) for n in range(30)))
            taken = await asyncio.gather(*(boss.call("job_claim") for _ in range(40)))
        won = [claim.body for claim in taken if claim.body["claimed"]]
        assert {claim["job_id"] for claim in won} == {job.body["job_id"] for job in made}
        assert sorted(int(claim["payload"]) for claim in won) == list(range(30))

    run(story)


@EMBEDDED
def test_a_revoked_token_is_refused_from_the_next_call_of_an_open_connection(way: Agents) -> None:
    way.queue.principal("worker-1", "")
    issued = way.queue.shampoo.registry.issue_token("worker-1")

    async def story() -> None:
        async with way.agent("worker-1", issued.token) as agent:
            assert (await agent.call("job_claim")).body == {"claimed": False}
            way.queue.shampoo.registry.revoke_token(issued.token_id)
            calls: list[tuple[str, dict[str, Any]]] = [("job_claim", {}), ("job_claim", {"kind": 7}), ("job_steal", {})]
            for tool, arguments in calls:
                if way.road == "http":
                    with pytest.raises(MCPError):
                        await agent.call(tool, **arguments)
                else:
                    refused = await agent.call(tool, **arguments)
                    assert (refused.refusal, refused.message) == ("unauthenticated", "unauthenticated")

    run(story)


@EMBEDDED
def test_a_token_for_reading_reads_and_moves_nothing(way: Agents) -> None:
    way.queue.principal("worker-1", "")
    token = way.token("worker-1", "tools:read")

    async def story() -> None:
        async with way.agent("worker-1", token) as agent:
            assert (await agent.call("lane_list")).body == {"lanes": [], "count": 0}
            assert (await agent.call("job_claim")).refusal == "denied"
            assert (await agent.call("job_claim", kind=7)).refusal == "denied"

    run(story)


@EMBEDDED
@pytest.mark.parametrize("road", ["inside", "http", "bridge"])
def test_extension_tools_are_offered_only_where_they_are_asked_for(queue: Queue, road: str) -> None:
    queue.principal("boss", "", conductor=True)

    async def story() -> None:
        with agents(queue, road, "auto", extensions=True) as way:
            async with way.agent("boss") as boss:
                tools = {tool.name: tool for tool in (await boss.client.list_tools()).tools}
                assert list(tools)[:9] == NINE
                assert {"job_renew", "job_get"} < set(tools)
                for name, tool in tools.items():
                    hints = tool.annotations
                    assert hints is not None
                    assert hints.read_only_hint == (name in READING or name not in {*NINE, "job_renew"})
                job_id = (await boss.call("job_create", kind="k")).body["job_id"]
                fence = (await boss.call("job_claim")).beside("fence")
                renewed = await boss.call("job_renew", {"fence": fence}, job_id=job_id, lease_seconds=60)
                jsonschema.validate(renewed.body, tools["job_renew"].output_schema or {})
                standing = await boss.call("job_get", job_id=job_id)
                jsonschema.validate(standing.body, tools["job_get"].output_schema or {})

    run(story)


def test_every_way_is_tried_in_both_eras() -> None:
    assert len(WAYS) == 8
