"""What a refused or failed call raises: one class a code, fit to travel, with nothing in it that was confided."""

from __future__ import annotations

import copy
import logging
import pickle

import pytest

from shampoo_queue import ToolError, errors
from tests.library.flavours import MEMORY, TWO, Flavour
from tests.queue import Clock, Queue

MARK = "confided-9f3b"


def test_there_is_one_class_a_code_and_every_tool_error_has_one() -> None:
    kinds = ToolError.__subclasses__()
    assert len({kind.code for kind in kinds}) == len(kinds)
    assert {kind.code for kind in kinds} == {
        *("unauthenticated", "denied", "unknown_tool", "invalid_argument", "job_not_found", "job_not_claimed"),
        *("lease_expired", "job_already_terminal", "lane_not_found", "project_mismatch", "unknown_lane"),
        *("quorum_not_open", "unknown_client", "task_not_found", "dependency_not_in_quorum"),
        *("illegal_lane_transition", "review_closed", "nothing_under_review", "lane_not_mergeable"),
        *("request_id_reused", "quota_exceeded", "unavailable", "internal"),
    }
    assert [kind.code for kind in kinds if kind().retryable] == ["unavailable"]


@pytest.mark.parametrize("kind", errors.REFUSALS.values(), ids=errors.REFUSALS)
def test_a_refusal_travels_between_processes_whole(kind: type[errors.Refusal]) -> None:
    sent = kind("a detail", request_id="r-1", outcome_unknown=True)
    sent.retryable = not sent.retryable
    for got in (pickle.loads(pickle.dumps(sent)), copy.deepcopy(sent)):
        assert type(got) is kind
        assert (got.code, got.message, str(got)) == (sent.code, f"{kind.words}: a detail", f"{kind.words}: a detail")
        assert (got.request_id, got.outcome_unknown, got.retryable) == ("r-1", True, sent.retryable)


@TWO
def test_a_refusal_tells_code_words_and_request_id(queue: Queue, clock: Clock, flavour: Flavour) -> None:
    queue.principal("w", "p")
    worker = flavour.open(queue).client("w")
    with pytest.raises(errors.JobNotFound) as refused:
        worker.job_release(job_id="x", request_id="r-1")
    error = refused.value
    assert (error.code, error.message, str(error)) == ("job_not_found", "job not found", "job not found")
    assert (error.request_id, error.retryable, error.outcome_unknown) == ("r-1", False, False)
    with pytest.raises(errors.Denied) as denied:
        worker.job_create(kind="k", project="p")
    assert (denied.value.message, (denied.value.request_id or "")[:1]) == ("outside client scope", "~")


@MEMORY
@pytest.mark.parametrize(
    ("tool", "arguments", "code"),
    [
        ("job_claim", {"lease_seconds": 0}, "invalid_argument"),
        ("job_create", {"kind": "k", "other": 1}, "invalid_argument"),
        ("job_purge", {}, "unknown_tool"),
    ],
)
def test_a_request_id_that_was_given_comes_back_with_every_refusal(
    queue: Queue, tool: str, arguments: dict[str, object], code: str
) -> None:
    client = queue.principal("c", "p", conductor=True)
    with pytest.raises(ToolError) as refused:
        client.call(tool, arguments, request_id="r-7")
    assert (refused.value.code, refused.value.request_id) == (code, "r-7")


@TWO
def test_no_refusal_repeats_what_it_was_given(queue: Queue, flavour: Flavour, caplog: pytest.LogCaptureFixture) -> None:
    queue.principal("c", "p", conductor=True)
    client = flavour.open(queue).client("c")
    calls = [
        ("job_create", {"kind": "k", "payload": MARK * 100_000, "project": "p"}),
        ("job_create", {"kind": MARK * 10, "project": "p"}),
        ("job_create", {"kind": "k", "payload": MARK + "\ud800", "project": "p"}),
        ("job_create", {"kind": "k", "payload": MARK, "project": "other"}),
        ("job_create", {"kind": f"{MARK}\n", "payload": MARK}),
        ("job_complete", {"job_id": MARK, "outcome": "completed", "result_ref": MARK}),
        ("job_complete", {"job_id": "x", "outcome": MARK}),
        ("job_release", {"job_id": [MARK]}),
        ("lane_review", {"lane_id": "x", "decision": MARK}),
        ("lane_set_state", {"lane_id": MARK, "state": MARK}),
    ]
    caplog.set_level(logging.DEBUG)
    for tool, arguments in calls:
        with pytest.raises(ToolError) as refused:
            client.call(tool, arguments)
        assert MARK not in repr(refused.value) + str(refused.value.__cause__), (tool, refused.value)
    assert MARK not in caplog.text


@MEMORY
def test_an_unknown_argument_is_named_safely(queue: Queue) -> None:
    client = queue.principal("c", "p", conductor=True)
    with pytest.raises(errors.InvalidArgument) as refused:
        client.call("job_claim", {"\x1b[31mkind\n'" + "x" * 100: 1})
    assert refused.value.message.isprintable()
    assert len(refused.value.message) < 120
    with pytest.raises(errors.InvalidArgument):
        client.call("job_claim", {"kind\ud800": 1})


@TWO
def test_a_defect_gives_a_fixed_sentence_and_an_id_and_the_log_the_rest(
    queue: Queue, flavour: Flavour, caplog: pytest.LogCaptureFixture
) -> None:
    queue.principal("c", "p", conductor=True)
    client = flavour.open(queue, retry_seconds=0).client("c")
    key = queue.key("kinds", "p")
    queue.command("SET", key, "of another type")
    with pytest.raises(errors.Internal) as failed:
        client.job_create(kind="k", payload=MARK, project="p", request_id="r-1")
    stored = queue.snapshot()
    queue.command("DEL", *stored)
    error = failed.value
    number = error.message.rpartition(" ")[2]
    assert error.message == f"internal error: see the log for {number}"
    assert (error.request_id, error.retryable, error.outcome_unknown) == ("r-1", False, True)
    assert len(number) == 12
    record = next(record for record in caplog.records if number in record.getMessage())
    assert "WRONGTYPE" in record.getMessage()
    assert ".lua" in record.getMessage()
    assert MARK not in caplog.text
    assert key not in repr(error)


@MEMORY
@pytest.mark.parametrize("request_id", ["", "a b", "é", "x" * 129, "tab\t", 7, True, b"x"])
def test_a_request_id_is_1_to_128_visible_ascii_characters(queue: Queue, request_id: object) -> None:
    client = queue.principal("c", "p", conductor=True)
    with pytest.raises(errors.InvalidArgument, match="request_id"):
        client.call("job_create", {"kind": "k", "project": "p"}, request_id=request_id)  # type: ignore[arg-type]
    assert queue.events() == ["principal.added", "principal.granted"]
    assert client.call("job_create", {"kind": "k", "project": "p"}, request_id="~" * 128)["state"] == "queued"


@MEMORY
@pytest.mark.parametrize("fence", ["3", 3.0, True, 10**18, [3]])
def test_a_fence_is_a_whole_number(queue: Queue, fence: object) -> None:
    client = queue.principal("c", "p", conductor=True)
    (job_id,) = queue.create(client, project="p")
    client.job_claim()
    with pytest.raises(errors.InvalidArgument, match="fence"):
        client.call("job_release", {"job_id": job_id}, fence=fence)  # type: ignore[arg-type]
    assert queue.events(job_id) == ["job.created", "job.claimed"]


@MEMORY
@pytest.mark.parametrize("client_id", ["w" * 129, "\ud800", "", 7, None])
def test_a_caller_of_any_form_who_is_no_principal_is_unauthenticated(queue: Queue, client_id: object) -> None:
    with pytest.raises(errors.Unauthenticated):
        queue.shampoo.client(client_id).job_claim()  # type: ignore[arg-type]
