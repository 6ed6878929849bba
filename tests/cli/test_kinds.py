"""``shampoo kind``: how many jobs of a kind may run at a time."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Cli


def test_a_limit_is_set_listed_and_lifted(cli: Cli) -> None:
    assert cli.done("kind", "limit", "render", "2") == {"kind": "render", "limit": 2, "changed": True}
    assert not cli.done("kind", "limit", "render", "2")["changed"]
    assert cli.done("kind", "limit", "a b:%", "1")["changed"]
    assert cli.done("kind", "list") == {
        "kinds": [{"kind": "a b:%", "limit": 1}, {"kind": "render", "limit": 2}],
        "count": 2,
    }
    assert cli.done("kind", "unlimit", "render") == {"kind": "render", "changed": True}
    assert not cli.done("kind", "unlimit", "render")["changed"]
    assert [kind["kind"] for kind in cli.done("kind", "list")["kinds"]] == ["a b:%"]


def test_a_limit_holds_for_the_next_claim(cli: Cli) -> None:
    cli.queue.create(cli.queue.shampoo.client("c"), 3, kind="render", project="p")
    cli.done("kind", "limit", "render", "1")
    assert cli.done("call", "job_claim", "--as", "w")["claimed"]
    assert cli.done("call", "job_claim", "--as", "w") == {"claimed": False}
    cli.done("kind", "limit", "render", "2")
    assert cli.done("call", "job_claim", "--as", "w")["claimed"]
    assert cli.done("call", "job_claim", "--as", "w") == {"claimed": False}
    cli.done("kind", "unlimit", "render")
    assert cli.done("call", "job_claim", "--as", "w")["claimed"]


def test_a_change_is_in_the_history_of_the_kind(cli: Cli) -> None:
    cli.done("kind", "limit", "render", "2", "--operator", "ada")
    cli.done("kind", "unlimit", "render")
    events = cli.done("history", "render")["events"]
    assert [(event["event"], event["from"], event["to"]) for event in events] == [
        ("kind.limited", "", "2"),
        ("kind.limited", "2", ""),
    ]
    assert events[0]["actor"] == "ada"


@pytest.mark.parametrize(
    ("line", "refusal"),
    [
        ("kind limit render 0", "1 invalid_argument"),
        ("kind limit render -- -1", "1 invalid_argument"),
        ("kind limit render many", "1 invalid_argument"),
        ("kind limit render 1.5", "1 invalid_argument"),
        ("kind limit render 1000001", "1 invalid_argument"),
        ("kind limit \x07 1", "1 invalid_argument"),
        ("kind limit " + "x" * 65 + " 1", "1 invalid_argument"),
        ("kind unlimit " + "x" * 65, "1 invalid_argument"),
    ],
)
def test_a_limit_that_cannot_be_is_refused_in_one_line(cli: Cli, line: str, refusal: str) -> None:
    ended = cli.run(*line.split(" "))
    assert ended.refusal == refusal
    assert not cli.queue.events("render")


def test_a_fifty_first_limit_is_refused(cli: Cli) -> None:
    for n in range(50):
        cli.queue.shampoo.ops.limit_kind(f"k{n}", 1)
    assert cli.run("kind", "limit", "one more", "1").refusal == "1 limit_reached"
    assert cli.done("kind", "list")["count"] == 50
