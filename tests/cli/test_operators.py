"""The operators' commands: the registry, one job, the sweep and the history."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from tests.cli.conftest import Cli

NOWHERE = str(uuid.UUID(int=0))


def only(answer: dict[str, Any], name: str) -> Any:
    assert answer["count"] == len(answer[name]) == 1
    return answer[name][0]


# Registry -------------------------------------------------------------------------------------------------------


def test_principals_are_kept(cli: Cli) -> None:
    def found() -> dict[str, Any]:
        return {p["client_id"]: p for p in cli.done("principal", "list")["principals"]}

    assert cli.done("principal", "add", "x", "--conductor", "--grant", "b", "--grant", "") == {
        "client_id": "x",
        "changed": True,
    }
    assert cli.done("principal", "grant", "x", "*")["changed"]
    assert not cli.done("principal", "grant", "x", "*")["changed"]
    assert cli.done("principal", "revoke", "x", "b")["changed"]
    assert {**found()["x"], "created_at": ""} == {
        "client_id": "x",
        "live": True,
        "conductor": True,
        "grants": ["", "*"],
        "created_at": "",
    }
    assert cli.done("principal", "conductor", "x", "off")["changed"]
    assert not found()["x"]["conductor"]
    assert cli.done("principal", "conductor", "x", "on")["changed"]
    assert cli.done("principal", "disable", "x")["changed"]
    assert cli.run("call", "job_claim", "--as", "x").refusal == "1 unauthenticated"
    assert cli.done("principal", "enable", "x")["changed"]
    assert cli.done("call", "job_claim", "--as", "x") == {"claimed": False}
    assert list(found()) == ["c", "w", "x"]


def test_quorums_are_kept(cli: Cli) -> None:
    opened = cli.done("quorum", "open", "p", "--participant", "w", "--participant", "c")
    quorum_id = opened["quorum_id"]
    assert opened == {"quorum_id": quorum_id, "project": "p", "open": True}
    assert cli.done("quorum", "remove", quorum_id, "c") == {"quorum_id": quorum_id, "changed": True}
    assert not cli.done("quorum", "add", quorum_id, "w")["changed"]
    found = only(cli.done("quorum", "list"), "quorums")
    assert (found["participants"], found["open"]) == (["w"], True)
    assert cli.done("quorum", "close", quorum_id)["changed"]
    assert cli.run("call", "lane_create", "--as", "c", "--quorum-id", quorum_id).refusal == "1 quorum_not_open"


def test_a_quorum_over_untagged_work_has_the_empty_project(cli: Cli) -> None:
    cli.done("quorum", "open", "")
    assert only(cli.done("quorum", "list"), "quorums")["project"] == ""


def test_tasks_are_kept(cli: Cli) -> None:
    assert cli.done("task", "add", "t1") == {"task_id": "t1", "live": True}
    assert uuid.UUID(cli.done("task", "add")["task_id"])
    assert cli.done("task", "close", "t1") == {"task_id": "t1", "changed": True}
    assert [task["live"] for task in cli.done("task", "list")["tasks"]] == [False, True]


@pytest.mark.parametrize(
    "line, refusal",
    [
        ("principal add c", "principal_exists"),
        ("principal grant nobody p", "unknown_principal"),
        ("principal disable nobody", "unknown_principal"),
        ("principal add \x07", "invalid_argument"),
        ("principal add \udcff", "invalid_argument"),
        ("principal grant w " + "x" * 129, "invalid_argument"),
        ("quorum open *", "invalid_argument"),
        ("quorum open p --participant nobody", "unknown_principal"),
        ("quorum close some-id", "unknown_quorum"),
        (f"quorum add {NOWHERE} w", "unknown_quorum"),
        ("task close t", "unknown_task"),
        (f"job requeue {NOWHERE}", "job_not_found"),
        (f"job cancel {NOWHERE} --reason x", "job_not_found"),
        (f"job show {NOWHERE}", "job_not_found"),
        ("job show \udcff", "job_not_found"),
        ("history --limit x", "invalid_argument"),
        ("history --limit 1.5", "invalid_argument"),
        ("history --after x", "invalid_argument"),
        ("history --after -1", "invalid_argument"),
        ("history \udcff", "invalid_argument"),
        ("principal list --operator \udcff", "invalid_argument"),
    ],
)
def test_a_refusal_is_one_line_and_writes_nothing(cli: Cli, line: str, refusal: str) -> None:
    before = cli.queue.facts()
    assert cli.run(*line.split(" ")).refusal == f"1 {refusal}"
    assert cli.queue.facts() == before


@pytest.mark.parametrize("place", [0, 1, 3])
def test_the_history_names_the_operator(cli: Cli, place: int) -> None:
    line = ["task", "add", "t"]
    line[place:place] = ["--operator", "ops@night"]
    cli.done(*line)
    assert [event.actor for event in cli.queue.shampoo.history("t")] == ["ops@night"]


def test_without_a_name_the_operator_is_the_systems_user(cli: Cli) -> None:
    cli.done("task", "add", "t", env={"SHAMPOO_OPERATOR": "", "LOGNAME": "somebody"})
    assert [event.actor for event in cli.queue.shampoo.history("t")] == ["somebody"]


# Jobs -----------------------------------------------------------------------------------------------------------


def test_a_job_is_shown_as_it_is_stored(cli: Cli) -> None:
    job_id = cli.queue.create(cli.queue.shampoo.client("c"), project="p", payload="päy\nload")[0]
    cli.queue.shampoo.client("w").job_claim()
    shown = cli.done("job", "show", job_id)
    expected = {"job_id": job_id, "kind": "k", "project": "p", "standing": "claimed", "owner": "w", "attempts": 1}
    assert shown.items() >= expected.items()
    assert "payload" not in shown
    assert cli.done("job", "show", job_id, "--payload") == {**shown, "payload": "päy\nload"}


def test_a_job_is_cancelled_and_requeued(cli: Cli) -> None:
    job_id = cli.queue.create(cli.queue.shampoo.client("c"), project="p")[0]
    assert cli.run("job", "requeue", job_id).refusal == "1 job_not_requeueable"
    assert cli.done("job", "cancel", job_id, "--reason", "no\nlonger") == {"job_id": job_id, "state": "failed"}
    assert cli.done("job", "show", job_id)["reason"] == "no\nlonger"
    assert cli.run("job", "cancel", job_id, "--reason", "again").refusal == "1 job_already_terminal"
    assert cli.done("job", "requeue", job_id) == {"job_id": job_id, "state": "queued"}
    assert cli.queue.events(job_id) == ["job.created", "job.failed", "job.requeued"]


@pytest.mark.parametrize("reason", ["", "x" * 513, "\udcff"])
def test_a_reason_is_text_of_bounded_length(cli: Cli, reason: str) -> None:
    job_id = cli.queue.create(cli.queue.shampoo.client("c"), project="p")[0]
    assert cli.run("job", "cancel", job_id, "--reason", reason).refusal == "1 invalid_argument"


def test_the_sweep_puts_back_what_the_indexes_miss(cli: Cli) -> None:
    job_id = cli.queue.create(cli.queue.shampoo.client("c"), project="p")[0]
    for index in ("ready", "kinds", "projects", "projects_of"):
        parts = {"ready": ("p", "k"), "kinds": ("p",), "projects": (), "projects_of": ("k",)}[index]
        cli.queue.command("DEL", cli.queue.key(index, *parts))
    assert cli.done("expire") == {"lapsed": 0, "exhausted": 0, "put_back": 1, "damaged": []}
    assert cli.done("call", "job_claim", "--as", "w")["job_id"] == job_id


@pytest.mark.parametrize(
    "field, value",
    [
        ("attempts", b"many"),
        ("seq", b"x"),
        ("standing", b"lost"),
        ("lease_until", b"9" * 30),
        ("created_at", "²".encode()),
        ("kind", b"\xff"),
    ],
)
def test_a_job_edited_by_hand_can_still_be_shown(cli: Cli, field: str, value: bytes) -> None:
    job_id = cli.queue.create(cli.queue.shampoo.client("c"), project="p")[0]
    key = cli.queue.key("job", job_id)
    cli.queue.command("COPY", key, cli.queue.key("test-clock"))  # a key that the audit leaves alone
    cli.queue.command("HSET", key, field, value)  # type: ignore[arg-type]
    ended = cli.run("job", "show", job_id)
    cli.queue.command("RENAME", cli.queue.key("test-clock"), key)
    assert ended.status == 0, ended.err
    assert field == "seq" or ended.json[field] == value.decode(errors="replace")


# History --------------------------------------------------------------------------------------------------------


def events(out: bytes) -> list[Any]:
    """Read what the program printed: one document, or with --follow one a line."""
    lines = [json.loads(line) for line in out.decode().splitlines()]
    if len(lines) == 1 and "events" in lines[0]:
        assert lines[0]["count"] == len(lines[0]["events"])
        return list(lines[0]["events"])
    return lines


def test_history_is_one_document_and_one_object_a_line_when_followed(cli: Cli) -> None:
    expected = [dict(event) for event in cli.queue.shampoo.history()]
    ended = cli.run("history")
    assert (ended.status, ended.err) == (0, "")
    assert events(ended.out) == expected
    assert events(cli.run("history", "--json").out) == expected
    assert len(ended.out.splitlines()) == 1
    followed = cli.run("history", "--follow", "--limit", str(len(expected)))
    assert [json.loads(line) for line in followed.out.splitlines()] == expected


def test_history_of_one_entity_after_an_event(cli: Cli) -> None:
    conductor = cli.queue.shampoo.client("c")
    job_id, _ = cli.queue.create(conductor, 2, project="p")
    created = events(cli.run("history", job_id).out)
    assert [event["event"] for event in created] == ["job.created"]
    cli.done("call", "job_claim", "--as", "w")
    later = events(cli.run("history", job_id, "--after", str(created[0]["id"])).out)
    assert [event["event"] for event in later] == ["job.claimed"]
    assert events(cli.run("history", NOWHERE).out) == []


def test_history_ends_where_it_is_told(cli: Cli) -> None:
    total = len(cli.queue.shampoo.history())
    assert len(events(cli.run("history", "--limit", "2").out)) == 2
    assert len(events(cli.run("history", "--limit", "0").out)) == 1
    assert len(events(cli.run("history", "--limit", "100000").out)) == total
    assert len(events(cli.run("history", "--limit", "2", "--follow").out)) == 2


def test_history_reads_on_beyond_one_page(cli: Cli) -> None:
    cli.queue.shampoo.registry.add_principal("many", grants=[str(n) for n in range(998)])
    cli.queue.shampoo.registry.add_principal("more", grants=[str(n) for n in range(20)])
    ids = [event["id"] for event in events(cli.run("history", "--limit", "1015").out)]
    assert ids == list(range(1, 1016))
