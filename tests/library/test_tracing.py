"""Spans from a client's own, through a door, to the script; none holds a payload or a token."""

from __future__ import annotations

import asyncio

import pytest
from opentelemetry import trace as otel
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from shampoo_queue import trace
from shampoo_queue.errors import JobNotFound
from shampoo_queue.server.desk import Desk
from tests.conftest import REAL
from tests.queue import Queue

pytestmark = pytest.mark.parametrize("engine", REAL, indirect=True)

SECRET = "payload-marker"
PARENT = "0af7651916cd43dd8448eb211c80319c"


def test_a_move_is_a_span_below_the_callers_own(queue: Queue, exporter: InMemorySpanExporter) -> None:
    queue.shampoo.registry.add_principal("c", conductor=True, grants=[""])
    exporter.clear()
    with otel.get_tracer("test").start_as_current_span("mine") as mine:
        queue.shampoo.client("c").job_create(kind="k", payload=SECRET)
        with pytest.raises(JobNotFound):
            queue.shampoo.client("c").job_release(job_id="none")
    created, released, _ = exporter.get_finished_spans()
    assert [created.name, released.name] == ["shampoo.move job_create", "shampoo.move job_release"]
    assert {span.parent and span.parent.span_id for span in (created, released)} == {mine.get_span_context().span_id}
    assert dict(created.attributes or {}) == {"shampoo.profile": queue.profile}
    assert dict(released.attributes or {}) == {"shampoo.profile": queue.profile, "shampoo.code": "job_not_found"}
    assert SECRET not in created.to_json()


def test_a_door_goes_on_with_the_trace_of_the_request(queue: Queue, exporter: InMemorySpanExporter) -> None:
    queue.shampoo.registry.add_principal("c", conductor=True, grants=[""])
    token = queue.shampoo.registry.issue_token("c").token
    exporter.clear()

    async def through_the_door() -> None:
        async with Desk(queue.engine.url) as desk:
            with trace.continued([(b"traceparent", f"00-{PARENT}-b7ad6b7169203331-01".encode())]):
                visitor = await desk.admit(token)
                await visitor.call("job_create", {"kind": "k", "payload": SECRET}, door="http")

    asyncio.run(through_the_door())
    move, call = exporter.get_finished_spans()
    assert (move.name, call.name) == ("shampoo.move job_create", "shampoo.call job_create")
    assert {span.context and f"{span.context.trace_id:032x}" for span in (move, call)} == {PARENT}
    assert move.parent and call.context and move.parent.span_id == call.context.span_id
    assert dict(call.attributes or {})["shampoo.door"] == "http"
    assert not any(secret in span.to_json() for span in (move, call) for secret in (SECRET, token))
