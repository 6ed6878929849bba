"""``shampoo call``: what reaches the tool, what comes back, and what is refused before anything is written."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest

from shampoo_queue import contract
from tests.cli.conftest import Cli

MIB = contract.limit("payload")


def payload_of(cli: Cli, job_id: str) -> str:
    return cli.queue.shampoo.ops.payload(job_id)


def create(cli: Cli, *arguments: str, **options: Any) -> str:
    job_id: str = cli.done("call", "job_create", "--as", "c", "--kind", "k", "--project", "p", *arguments, **options)[
        "job_id"
    ]
    return job_id


def test_a_job_goes_through_its_life(cli: Cli) -> None:
    job_id = create(cli, "--payload", '{"n": 1}')
    ended = cli.run("call", "job_claim", "--as", "w", "--lease-seconds", "60")
    claim = ended.json
    fence = ended.err.removeprefix("fence: ").strip()
    assert ended.err == f"fence: {fence}\n"
    assert {**claim, "lease_until": ""} == {
        "claimed": True,
        "job_id": job_id,
        "kind": "k",
        "payload": '{"n": 1}',
        "lease_until": "",
        "attempts": 1,
    }
    done = ["call", "job_complete", "--as", "w", "--job-id", job_id, "--outcome", "completed", "--fence", fence]
    assert cli.done(*done) == {"job_id": job_id, "state": "completed"}
    again = cli.run(*done)
    assert again.json == {"job_id": job_id, "state": "completed", "idempotent": True}
    assert again.err == "replayed: true\n"


def test_a_lane_goes_through_its_life(cli: Cli) -> None:
    quorum_id = cli.queue.shampoo.registry.open_quorum("p", ["w"])
    call = ["call", "--as", "c"]
    lane = cli.done(*call, "lane_create", "--quorum-id", quorum_id, "--assignee-client-id", "w", "--branch", "b")
    of = ["--lane-id", lane["lane_id"]]
    assert lane == {"lane_id": lane["lane_id"], "project": "p", "state": "open"}
    cli.done(*call, "lane_set_state", *of, "--state", "in_progress")
    cli.done(*call, "lane_set_state", *of, "--state", "done")
    cli.done("call", "lane_review", "--as", "w", *of, "--decision", "submit")
    cli.done(*call, "lane_review", *of, "--decision", "approve")
    cli.done(*call, "lane_merge", *of, "--outcome", "merged", "--result-commit", "abc")
    listed = cli.done("call", "lane_list", "--as", "w", "--limit", "1", "--quorum-id", quorum_id)
    assert listed["count"] == 1
    assert {name: listed["lanes"][0][name] for name in ("review_state", "merge_state", "result_commit")} == {
        "review_state": "approved",
        "merge_state": "merged",
        "result_commit": "abc",
    }
    assert cli.run(*call, "lane_set_state", *of, "--state", "open").refusal == "1 illegal_lane_transition"


def test_the_answer_is_the_contracts_object_and_nothing_else(cli: Cli) -> None:
    ended = cli.run("call", "job_claim", "--as", "w")
    assert (ended.status, ended.out, ended.err) == (0, b'{"claimed": false}\n', "")


# Numbers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["1", "3600", "0300", "00000000000000000001"])
def test_decimal_digits_are_a_number(cli: Cli, text: str) -> None:
    assert cli.done("call", "job_claim", "--as", "w", "--lease-seconds", text) == {"claimed": False}


@pytest.mark.parametrize(
    "text",
    [
        *("0", "3601", "-1", "-0", "1" + "0" * 20, "9" * 5000, "true", "", " 300 ", "300.0", "300.5", "1e2", "1_0"),
        *("NaN", "Infinity", "３００", "+5", "0x10", "--5", "300\n", "\udcff"),
    ],
)
def test_any_other_lease_is_refused_and_claims_nothing(cli: Cli, text: str) -> None:
    job_id = create(cli)
    ended = cli.run("call", "job_claim", "--as", "w", f"--lease-seconds={text}")
    assert ended.refusal == "1 invalid_argument"
    assert cli.done("job", "show", job_id)["attempts"] == 0


@pytest.mark.parametrize("text", ["-5", "0", "101", "9" * 5000, "-" + "9" * 5000])
def test_any_whole_number_is_a_limit(cli: Cli, text: str) -> None:
    assert cli.done("call", "lane_list", "--as", "w", "--limit", text) == {"lanes": [], "count": 0}


@pytest.mark.parametrize("fence", ["x", "", "1.0", "9" * 19, "9" * 5000])
def test_a_fence_that_is_no_number_is_refused(cli: Cli, fence: str) -> None:
    ended = cli.run("call", "job_release", "--as", "w", "--job-id", "x", "--fence", fence)
    assert ended.err == "invalid_argument: invalid argument: fence must be a whole number\n"


def test_a_stale_fence_is_refused(cli: Cli) -> None:
    job_id = create(cli)
    cli.done("call", "job_claim", "--as", "w")
    assert cli.run("call", "job_release", "--as", "w", "--job-id", job_id, "--fence", "7").refusal == "1 lease_expired"


# Text -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("payload", ["-x", "--kind", "@file", "@-", "--", "-- -", "a\nb", '"', "ä€😀\x00", "{}", " "])
def test_a_payload_is_literal_text(cli: Cli, payload: str) -> None:
    assert payload_of(cli, create(cli, f"--payload={payload}")) == payload
    assert payload_of(cli, create(cli, "--payload", payload)) == payload


def test_a_number_as_text_stays_text(cli: Cli) -> None:
    assert payload_of(cli, create(cli, "--payload", "0300")) == "0300"


def test_an_empty_kind_is_refused_rather_than_left_out(cli: Cli) -> None:
    create(cli)
    ended = cli.run("call", "job_claim", "--as", "w", "--kind", "")
    assert ended.err == "invalid_argument: invalid argument: kind must not be empty; omit it instead\n"


@pytest.mark.parametrize("name", ["kind", "payload", "project", "lane-id"])
def test_text_that_is_not_unicode_is_refused_before_any_write(cli: Cli, name: str) -> None:
    before = cli.queue.facts()
    ended = cli.run("call", "job_create", "--as", "c", "--kind", "k", f"--{name}", "caf\udce9")
    assert ended.refusal == "1 invalid_argument"
    assert cli.queue.facts() == before


# Standard input -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [b"", b"x", b"a\r\nb\r\n", b"\xef\xbb\xbfx", b"no newline", b"\n", "ä€😀".encode(), b"\x00\x1a\x04", b"-", b"@x"],
)
def test_a_payload_from_standard_input_is_kept_byte_for_byte(cli: Cli, content: bytes) -> None:
    assert payload_of(cli, create(cli, "--payload", "-", input=content)).encode() == content


def test_a_result_ref_from_standard_input_is_kept_byte_for_byte(cli: Cli) -> None:
    job_id = create(cli)
    cli.done("call", "job_claim", "--as", "w")
    content = "zeile\r\n€\n".encode()
    done = ["call", "job_complete", "--as", "w", "--job-id", job_id, "--outcome", "failed", "--result-ref", "-"]
    cli.done(*done, input=content)
    assert cli.done("job", "show", job_id)["result_ref"].encode() == content


def test_the_largest_payload_passes_and_one_byte_more_is_refused(cli: Cli) -> None:
    largest = ("€" * (MIB // 3) + "x").encode()
    assert len(largest) == MIB
    assert payload_of(cli, create(cli, "--payload", "-", input=largest)).encode() == largest
    before = cli.queue.facts()
    ended = cli.run("call", "job_create", "--as", "c", "--kind", "k", "--payload", "-", input=largest + b"x")
    assert ended.err == "invalid_argument: invalid argument: payload is larger than 1,048,576 UTF-8 bytes\n"
    assert (ended.status, cli.queue.facts()) == (1, before)


@pytest.mark.parametrize("content", [b"\xff", b"ok \xe9", b"\xed\xa0\x80", b"\xc3", b"\xff\xfe{\x00"])
def test_standard_input_that_is_not_utf8_is_refused_before_any_call(cli: Cli, content: bytes) -> None:
    before = cli.queue.facts()
    ended = cli.run("call", "job_create", "--as", "c", "--kind", "k", "--payload", "-", input=content)
    assert ended.refusal == "1 invalid_argument"
    assert "payload is no UTF-8 text: byte" in ended.err
    assert cli.queue.facts() == before


def test_only_the_two_large_arguments_read_standard_input(cli: Cli) -> None:
    job = cli.done("call", "job_create", "--as", "c", "--kind", "-", "--project", "p", input=b"unread")
    assert cli.done("job", "show", job["job_id"])["kind"] == "-"


# --args ---------------------------------------------------------------------------------------------------------


def test_args_takes_all_arguments_as_one_object(cli: Cli) -> None:
    given = {"kind": "k", "project": "p", "payload": "-", "lane_id": None}
    job = cli.done("call", "job_create", "--as", "c", "--args", json.dumps(given), input=b"unread")
    assert payload_of(cli, job["job_id"]) == "-"


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_args_reads_standard_input(cli: Cli, mark: bytes) -> None:
    given = json.dumps({"kind": "k", "project": "p", "payload": "€" * 1000}).encode()
    job = cli.done("call", "job_create", "--as", "c", "--args", "-", input=mark + given + b"\n")
    assert payload_of(cli, job["job_id"]) == "€" * 1000


def test_args_may_escape_every_byte_of_the_largest_payload(cli: Cli) -> None:
    given = json.dumps({"kind": "k", "project": "p", "payload": "\x01" * MIB}).encode()
    job = cli.done("call", "job_create", "--as", "c", "--args", "-", input=given)
    assert payload_of(cli, job["job_id"]) == "\x01" * MIB


@pytest.mark.parametrize("option", ["--kind=k", "--payload=-", "--lane_id="])
def test_args_beside_an_option_is_wrong_usage(cli: Cli, option: str) -> None:
    before = cli.queue.facts()
    ended = cli.run("call", "job_create", "--as", "c", "--args", '{"kind":"k"}', option)
    assert (ended.status, ended.out) == (2, b"")
    assert f"leave out {option.partition('=')[0].replace('_', '-')}." in ended.err
    assert cli.queue.facts() == before


@pytest.mark.parametrize(
    "text, says",
    [
        ("", "--args is no JSON"),
        ("kind=k", "--args is no JSON"),
        ('{"kind":"k"} {}', "--args is no JSON"),
        ("[]", "--args must be a JSON object"),
        ("null", "--args must be a JSON object"),
        ('"kind"', "--args must be a JSON object"),
        ('{"kind":"k","kind":"k"}', "--args names 'kind' twice"),
        ('{"kind":"k","payload":{"a":1,"a":2}}', "--args names 'a' twice"),
        ('{"kind":NaN}', "--args holds NaN"),
        ('{"kind":"k","payload":-Infinity}', "--args holds -Infinity"),
        ('{"kind":"k","payload":"\\ud800"}', "payload must be valid Unicode text"),
        ('{"kind":"k","\\ud800":"x"}', "job_create takes no argument '?'"),
        ('{"kind":"k","payload":"\udce9"}', "payload must be valid Unicode text"),
        ('{"kind":"k","payload":{}}', "payload must be a string"),
        ('{"kind":7}', "kind must be a string"),
        ('{"kind":null}', "kind is required"),
        ('{"kind":"k","lease_seconds":1}', "job_create takes no argument 'lease_seconds'"),
        ("[" * 100_000, "--args is nested too deeply"),
        ('{"kind":' + "9" * 5_000 + "}", "kind must be a string"),
    ],
    ids=range(19),
)
def test_args_that_are_no_good_object_are_refused_and_write_nothing(cli: Cli, text: str, says: str) -> None:
    before = cli.queue.facts()
    ended = cli.run("call", "job_create", "--as", "c", "--args", text)
    assert ended.refusal == "1 invalid_argument"
    assert ended.err.startswith(f"invalid_argument: invalid argument: {says}")
    assert cli.queue.facts() == before


@pytest.mark.parametrize("lease", ["true", '"300"', "300.0", "1e2", "1e999"])
def test_args_keeps_the_types_of_json(cli: Cli, lease: str) -> None:
    ended = cli.run("call", "job_claim", "--as", "w", "--args", f'{{"lease_seconds":{lease}}}')
    assert ended.err == "invalid_argument: invalid argument: lease_seconds must be a whole number\n"


def test_args_from_standard_input_has_an_end(cli: Cli) -> None:
    ended = cli.run("call", "job_claim", "--as", "w", "--args", "-", input=b" " * (8 * MIB + 1))
    assert ended.err == "invalid_argument: invalid argument: --args is larger than 8,388,608 UTF-8 bytes\n"


# Beside the arguments -------------------------------------------------------------------------------------------


def test_a_call_repeated_under_its_request_id_gives_the_first_answer(cli: Cli) -> None:
    first = create(cli, "--request-id", "r1")
    line = ["call", "job_create", "--as", "c", "--project", "p", "--request-id", "r1", "--kind"]
    again = cli.run(*line, "k")
    assert (again.json["job_id"], again.err) == (first, "replayed: true\n")
    assert cli.run(*line, "other").refusal == "1 request_id_reused"


def test_a_claim_repeated_under_its_request_id_tells_its_fence_again(cli: Cli) -> None:
    create(cli)
    first = cli.run("call", "job_claim", "--as", "w", "--request-id", "r")
    again = cli.run("call", "job_claim", "--as", "w", "--request-id", "r")
    assert again.out == first.out
    assert again.err == first.err + "replayed: true\n"


@pytest.mark.parametrize("request_id", ["", "two words", "ä", "x" * 129])
def test_a_request_id_is_visible_ascii(cli: Cli, request_id: str) -> None:
    ended = cli.run("call", "job_claim", "--as", "w", "--request-id", request_id)
    assert ended.refusal == "1 invalid_argument"
    assert "request_id must be 1 to 128 visible ASCII characters" in ended.err


def test_history_names_the_holder(cli: Cli) -> None:
    create(cli)
    create(cli, "--holder", "shell 7")
    create(cli, env={"SHAMPOO_HOLDER": "from the environment"})
    holders = [event.holder for event in cli.queue.shampoo.history() if event.event == "job.created"]
    assert holders == [f"{socket.gethostname()[:100]}/cli", "shell 7", "from the environment"]


def test_meta_wraps_the_result(cli: Cli) -> None:
    assert cli.done("call", "job_claim", "--as", "w", "--meta", "--request-id", "r1") == {
        "result": {"claimed": False},
        "meta": {"request_id": "r1", "fence": None, "replayed": False},
    }
    job_id = create(cli)
    ended = cli.run("call", "--meta", "job_claim", "--as", "w", "--request-id", "r2")
    assert ended.err == ""
    assert ended.json["result"]["job_id"] == job_id
    assert ended.json["meta"] == {"request_id": "r2", "fence": ended.json["meta"]["fence"], "replayed": False}
    assert ended.json["meta"]["fence"] > 1_700_000_000_000


# Refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line, refusal",
    [
        ("job_create --as w --kind k --project p", "denied"),
        ("job_create --as c --kind k", "denied"),
        ("job_create --as nobody --kind k", "unauthenticated"),
        ("job_create --as c --kind k --project *", "invalid_argument"),
        ("job_create --as c --kind k --project p --lane-id x", "lane_not_found"),
        ("job_complete --as w --job-id x --outcome completed", "job_not_found"),
        ("job_complete --as w --job-id x --outcome finished", "invalid_argument"),
        ("job_release --as w --job-id {}", "job_not_found"),
        ("lane_create --as c --quorum-id x", "unknown_lane"),
        ("lane_create --as w --quorum-id x", "denied"),
        ("lane_review --as c --lane-id x --decision approve", "unknown_lane"),
        ("lane_merge --as w --lane-id x --outcome skipped", "denied"),
        ("lane_set_state --as c --lane-id x --state open", "unknown_lane"),
    ],
)
def test_a_refusal_is_one_line_and_writes_nothing(cli: Cli, line: str, refusal: str) -> None:
    before = cli.queue.facts()
    assert cli.run("call", *line.split()).refusal == f"1 {refusal}"
    assert cli.queue.facts() == before


@pytest.mark.parametrize("caller", ["", "\udcff", "x" * 129, "ä", "w "])
def test_a_caller_who_is_nobody_is_unauthenticated(cli: Cli, caller: str) -> None:
    assert cli.run("call", "job_claim", f"--as={caller}").refusal == "1 unauthenticated"


def test_a_lapsed_lease_is_refused_and_the_job_taken_over(cli: Cli) -> None:
    cli.queue.stop_clock(1_600_000_000_000)  # a lease of that year has lapsed by the server's own clock
    job_id = cli.queue.create(cli.queue.shampoo.client("c"), project="p")[0]
    assert cli.queue.shampoo.client("w").job_claim().job_id == job_id
    complete = ["call", "job_complete", "--job-id", job_id, "--outcome", "completed", "--as"]
    assert cli.run(*complete, "w").refusal == "1 lease_expired"
    cli.queue.principal("w2", "p")
    assert cli.done("call", "job_claim", "--as", "w2")["attempts"] == 2
    assert cli.run(*complete, "w").refusal == "1 job_not_claimed"
    assert cli.done(*complete, "w2")["state"] == "completed"
    assert cli.run(*complete, "w").refusal == "1 job_already_terminal"
