"""``shampoo token``: what is printed where, lengths of time, and what becomes of a token that nobody could read."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from shampoo_queue import Client, tokens
from shampoo_queue.errors import Unauthenticated
from tests.cli.conftest import Cli
from tests.cli.test_terminal import on_terminal, plain

TOKEN = r"shp_[0-9A-Za-z]{12}_[0-9A-Za-z]{46}"


def presenting(cli: Cli, token: str) -> Client:
    presented = tokens.read(token)
    assert presented
    return cli.queue.shampoo.client(presented)  # type: ignore[arg-type]


def is_good(cli: Cli, token: str) -> bool:
    try:
        presenting(cli, token).lane_list()
    except Unauthenticated:
        return False
    return True


def listed(cli: Cli) -> dict[str, dict[str, Any]]:
    answer = cli.done("token", "list")
    assert answer["count"] == len(answer["tokens"])
    return {entry["token_id"]: entry for entry in answer["tokens"]}


def test_issue_prints_the_token_and_nothing_else_on_standard_output(cli: Cli) -> None:
    ended = cli.run("token", "issue", "w")
    token = ended.out.decode()
    assert re.fullmatch(TOKEN + "\n", token)
    assert is_good(cli, token.strip())
    assert ended.err == f"token_id: {token[4:16]}\nclient_id: w\nscope: tools\nexpires_at: never\n"


def test_issue_gives_one_document_when_json_is_asked_for(cli: Cli) -> None:
    ended = cli.run("token", "issue", "w", "--json", "--scope", "ops:read", "--expires", "90d")
    assert ended.err == ""
    facts = ended.json
    assert list(facts) == ["token", "token_id", "client_id", "scope", "expires_at"]
    assert (facts["token_id"], facts["client_id"], facts["scope"]) == (facts["token"][4:16], "w", "ops:read")
    assert listed(cli)[facts["token_id"]]["expires_at"] == facts["expires_at"] != ""


def test_a_terminal_shows_the_token_on_a_line_of_its_own(cli: Cli) -> None:
    shown = plain(on_terminal(cli, "token", "issue", "w"))
    assert re.fullmatch(TOKEN + "\n", shown)
    assert set(json.loads(on_terminal(cli, "token", "issue", "w", "--json", columns=20))) >= {"token", "token_id"}


def test_the_list_shows_every_token_by_its_id_and_no_secret(cli: Cli) -> None:
    issued = [cli.done("token", "issue", who, "--json") for who in ("w", "c")]
    cli.done("token", "revoke", issued[0]["token_id"])
    found = listed(cli)
    assert [(entry["client_id"], entry["live"]) for entry in found.values()] == [("w", False), ("c", True)]
    assert list(found) == [facts["token_id"] for facts in issued]
    text = json.dumps(found) + plain(on_terminal(cli, "token", "list", columns=200))
    for facts in issued:
        assert facts["token"][17:] not in text
        assert tokens.read(facts["token"]).digest not in text  # type: ignore[union-attr]


def test_revoke_holds_from_the_next_call(cli: Cli) -> None:
    facts = cli.done("token", "issue", "w", "--json")
    assert is_good(cli, facts["token"])
    assert cli.done("token", "revoke", facts["token_id"]) == {"token_id": facts["token_id"], "changed": True}
    assert not is_good(cli, facts["token"])
    assert not cli.done("token", "revoke", facts["token_id"])["changed"]


def test_rotate_gives_a_new_token_beside_the_old_one(cli: Cli) -> None:
    old = cli.done("token", "issue", "w", "--json", "--scope", "tools:read")
    new = cli.done("token", "rotate", old["token_id"], "--json", "--expires", "45s")
    assert (new["client_id"], new["scope"]) == ("w", "tools:read")
    assert is_good(cli, old["token"])
    assert is_good(cli, new["token"])
    found = listed(cli)
    assert found[new["token_id"]]["expires_at"] < found[old["token_id"]]["expires_at"]  # 45 seconds before 24 hours
    at_once = cli.run("token", "rotate", new["token_id"], "--overlap", "0")
    assert re.fullmatch(TOKEN + "\n", at_once.out.decode())
    assert not is_good(cli, new["token"])


@pytest.mark.parametrize(
    "given, seconds", [("90d", 7_776_000), ("12h", 43_200), ("30m", 1_800), ("45s", 45), ("7", 7), ("1d", 86_400)]
)
def test_a_length_of_time_has_a_unit_or_is_in_seconds(cli: Cli, given: str, seconds: int) -> None:
    facts = cli.done("token", "issue", "w", "--json", "--expires", given)
    stored = {k: int(cli.queue.command("HGET", cli.queue.key("token", facts["token_id"]), k)) for k in _TIMES}
    assert stored["expires_at"] - stored["created_at"] == seconds * 1000


_TIMES = ("created_at", "expires_at")


@pytest.mark.parametrize("given", ["", "d", "1w", "1.5h", "-1", "1 d", "１d", "1dd", "1h30m", "forever", "\udcff"])
def test_any_other_length_is_refused_and_nothing_is_issued(cli: Cli, given: str) -> None:
    before = cli.queue.facts()
    ended = cli.run("token", "issue", "w", "--expires", given)
    assert ended.refusal == "1 invalid_argument"
    assert "such as 90d, 12h, 30m or 45s" in ended.err
    assert cli.queue.facts() == before


@pytest.mark.parametrize(
    "line, refusal",
    [
        ("issue nobody", "unknown_principal"),
        ("issue w --expires 0", "invalid_argument"),
        ("issue w --expires 3651d", "invalid_argument"),
        ("issue w --expires 999999999999d", "invalid_argument"),
        ("revoke 000000000000", "unknown_token"),
        ("revoke x", "unknown_token"),
        ("revoke \udcff", "unknown_token"),
        ("rotate 000000000000", "unknown_token"),
        ("rotate x --overlap 1x", "invalid_argument"),
    ],
)
def test_a_refusal_is_one_line_and_writes_nothing(cli: Cli, line: str, refusal: str) -> None:
    before = cli.queue.facts()
    assert cli.run("token", *line.split(" ")).refusal == f"1 {refusal}"
    assert cli.queue.facts() == before


def test_a_token_that_is_not_live_cannot_be_rotated(cli: Cli) -> None:
    facts = cli.done("token", "issue", "w", "--json")
    cli.done("token", "revoke", facts["token_id"])
    assert cli.run("token", "rotate", facts["token_id"]).refusal == "1 token_not_live"


def test_a_scope_of_no_meaning_is_wrong_usage(cli: Cli) -> None:
    ended = cli.run("token", "issue", "w", "--scope", "everything")
    assert (ended.status, ended.out) == (2, b"")
    assert "tools:read" in ended.err


FULL = pytest.param(">/dev/full", marks=pytest.mark.skipif(not Path("/dev/full").exists(), reason="on Linux alone"))


@pytest.mark.parametrize("options", ["", " --json"])
@pytest.mark.parametrize("lost", [FULL, ">&-", "| true"])
def test_a_token_that_nobody_could_read_is_revoked_and_named_by_its_id_alone(cli: Cli, lost: str, options: str) -> None:
    ended = cli.shell(f"(shampoo token issue w{options}; echo $? >&2) {lost}")
    (token_id,) = listed(cli)
    assert not listed(cli)[token_id]["live"]
    said, status = ended.err.splitlines()
    assert said.endswith(f": token {token_id} could not be shown and is revoked")
    assert status == "1"
    assert not re.search(TOKEN, ended.err)


def test_a_rotated_token_that_nobody_could_read_leaves_the_old_one_its_overlap(cli: Cli) -> None:
    old = cli.done("token", "issue", "w", "--json")
    ended = cli.shell(f"shampoo token rotate {old['token_id']} >&-")
    assert f"is revoked; {old['token_id']} still ends with the overlap" in ended.err
    assert is_good(cli, old["token"])
    assert [entry["live"] for entry in listed(cli).values()] == [True, False]
