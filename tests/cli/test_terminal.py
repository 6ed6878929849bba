"""What a person sees: the program on a pseudo-terminal of any width, with text that tries to command it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios

import pytest

from shampoo_queue import contract
from shampoo_queue.cli.terminal import render
from tests.cli.conftest import PROGRAM, Cli

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
NASTY = "\x1b]0;owned\x07\x1b[2J\x9b31m\r\n\u202eevil"
STORED = {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}


def on_terminal(
    cli: Cli, *arguments: str, columns: int = 100, env: dict[str, str] | None = None, status: int = 0
) -> str:
    """Run the program on a terminal, with standard error apart, and give what the terminal was sent."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {**STORED, "COLUMNS": "", **(env or {})}
    with subprocess.Popen(
        [*PROGRAM, *arguments], stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, env=cli.environment(environment)
    ) as process:
        os.close(theirs)
        sent = b""
        while chunk := _read(ours):
            sent += chunk
        os.close(ours)
        assert process.stderr
        err = process.stderr.read().decode()
        assert "Traceback" not in err
        assert process.wait(10) == status, err
    return sent.decode(errors="replace").replace("\r\n", "\n")


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # Linux says so when the other side is closed
        return b""


def plain(shown: str) -> str:
    return COLOUR.sub("", shown)


def test_a_result_is_shown_as_fields_in_colour(cli: Cli) -> None:
    cli.queue.create(cli.queue.shampoo.client("c"), project="p", payload="pay")
    shown = on_terminal(cli, "call", "job_claim", "--as", "w")
    assert COLOUR.search(shown)
    assert re.search(r"^claimed +true$", plain(shown), re.MULTILINE)
    assert re.search(r"^payload +pay$", plain(shown), re.MULTILINE)


def test_json_is_shown_when_asked_for(cli: Cli) -> None:
    assert on_terminal(cli, "call", "job_claim", "--as", "w", "--json") == '{"claimed": false}\n'


def test_meta_is_shown_below_the_result(cli: Cli) -> None:
    shown = plain(on_terminal(cli, "call", "job_claim", "--as", "w", "--meta", "--request-id", "r1"))
    assert [line.split() for line in shown.splitlines()] == [
        ["claimed", "false"],
        ["request_id", "r1"],
        ["fence", "null"],
        ["replayed", "false"],
    ]


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}, {"TERM": ""}], ids=str)
def test_colour_is_left_out_where_it_is_not_wanted(cli: Cli, env: dict[str, str]) -> None:
    assert "\x1b" not in on_terminal(cli, "principal", "list", env=env)


def test_a_list_is_a_table_where_it_fits_and_blocks_where_it_does_not(cli: Cli) -> None:
    wide = plain(on_terminal(cli, "principal", "list", columns=200)).splitlines()
    assert wide[0].split() == ["client_id", "live", "conductor", "grants", "created_at"]
    assert wide[1].split()[:4] == ["c", "true", "true", "p"]
    assert wide[-1] == "2 principals"
    narrow = plain(on_terminal(cli, "principal", "list", columns=40)).splitlines()
    assert ["client_id", "w"] in [line.split() for line in narrow]
    assert narrow[-1] == "2 principals"


def test_an_empty_list_says_so(cli: Cli) -> None:
    assert on_terminal(cli, "call", "lane_list", "--as", "w") == "0 lanes\n"


@pytest.mark.parametrize("columns, line", [(0, "principal list"), (10, "tools job_claim"), (10, "history")])
def test_any_width_of_the_terminal_will_do(cli: Cli, columns: int, line: str) -> None:
    shown = plain(on_terminal(cli, *line.split(), columns=columns))
    assert shown.strip()
    assert columns == 0 or max(map(len, shown.splitlines())) <= columns


@pytest.mark.parametrize("columns", ["-5", "0", "x", "1", "9", "10", "11", "40", "65535"])
def test_any_width_in_the_environment_will_do(monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    lane = dict.fromkeys(contract.LaneEntry.model_fields, "value " * 9)
    shown = render({"lanes": [lane, lane], "count": 2})
    assert shown.count("value") == 18 * len(lane) or int(columns) < 16
    assert shown.endswith("2 lanes\n")


def test_stored_text_cannot_command_the_terminal(cli: Cli) -> None:
    conductor = cli.queue.shampoo.client("c", holder=NASTY)
    job_id = conductor.job_create(kind="k", project="p", payload=NASTY).job_id
    cli.queue.shampoo.ops.cancel(job_id, NASTY)
    for line in (["job", "show", job_id, "--payload"], ["history", job_id], ["history", "--json"]):
        shown = plain(on_terminal(cli, *line))
        assert "owned" in shown
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", shown)


def test_a_refusal_cannot_command_the_terminal(cli: Cli) -> None:
    ended = cli.process("call", "job_claim", "--as", "w", "--args", '{"\\u001b[2J\\u009b": 1}')
    assert ended.refusal == "1 invalid_argument"
    assert ended.err.isprintable() or ended.err[:-1].isprintable()
    usage = cli.process("call", "job_claim", "--\x1b[2J")
    assert (usage.status, "\x1b" in usage.err) == (2, False)


@pytest.mark.parametrize(
    "env", [{"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, {"PYTHONIOENCODING": "cp1252"}]
)
def test_a_terminal_that_lacks_characters_shows_a_mark_in_their_place(cli: Cli, env: dict[str, str]) -> None:
    job_id = cli.queue.create(cli.queue.shampoo.client("c"), project="p", payload="a😀z")[0]
    shown = plain(on_terminal(cli, "job", "show", job_id, "--payload", env=env))
    assert re.search(r"^payload +a\?z$", shown, re.MULTILINE)
    assert '"a\\ud83d\\ude00z"' in on_terminal(cli, "job", "show", job_id, "--payload", "--json", env=env)


def test_a_huge_payload_is_cut_and_says_so(cli: Cli) -> None:
    cli.queue.create(cli.queue.shampoo.client("c"), project="p", payload="x" * 1_048_576)
    shown = on_terminal(cli, "call", "job_claim", "--as", "w")
    assert len(shown) < 4_000
    assert "(1,048,576 characters; --json shows all)" in " ".join(plain(shown).split())


def test_an_event_is_one_line(cli: Cli) -> None:
    cli.queue.create(cli.queue.shampoo.client("c", holder="h"), project="p")
    cli.done("call", "job_claim", "--as", "w", "--holder", "h 2")
    told = plain(on_terminal(cli, "history", columns=250)).splitlines()
    assert re.fullmatch(r"5 \S+Z job\.created \S+ -> queued by c \(h\) project p", told[4])
    assert re.fullmatch(
        r"6 \S+Z job\.claimed \S+ queued -> claimed by w \(h 2\) project p attempts 1 fence \d+", told[5]
    )
