"""Field report 56 and its kin, against the program as a process: pipes, encodings, closed streams, interrupts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from shampoo_queue import contract
from tests.cli.conftest import PROGRAM, Cli, Ended

MIB = contract.limit("payload")
CREATE = ["call", "job_create", "--as", "c", "--kind", "k", "--project", "p"]
CREATE_LINE = "shampoo call job_create --as c --kind k --project p"
ENCODINGS = [
    {"LC_ALL": "C"},
    {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    {"PYTHONIOENCODING": "ascii:strict"},
    {"PYTHONIOENCODING": "cp1252"},
]


def jobs(cli: Cli) -> list[str]:
    return [event.entity_id for event in cli.queue.shampoo.history(limit=1000) if event.event == "job.created"]


def payload(cli: Cli) -> str:
    """The payload of the one job there is."""
    (job_id,) = jobs(cli)
    return cli.queue.shampoo.ops.payload(job_id)


# Standard output ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("env", ENCODINGS, ids=" ".join)
def test_any_encoding_of_the_surroundings_takes_and_gives_utf8(cli: Cli, env: dict[str, str]) -> None:
    text = "ä€😀\x9b31m\u202e"
    assert cli.process(*CREATE, "--payload", text.encode(), env=env).status == 0
    assert payload(cli) == text
    ended = cli.process("call", "job_claim", "--as", "w", env=env)
    assert (ended.status, ended.json["payload"]) == (0, text)
    assert "ä€😀".encode() in ended.out
    assert ended.out.count(b"\n") == 1
    assert "\x9b" not in ended.out.decode()
    assert ended.err.startswith("fence: ")


def test_argument_bytes_that_are_not_utf8_are_refused_before_any_write(cli: Cli) -> None:
    before = cli.queue.facts()
    ended = cli.process(*CREATE, "--payload", b"caf\xe9")
    assert ended.refusal == "1 invalid_argument"
    assert cli.queue.facts() == before


def test_a_reader_who_takes_one_line_and_leaves_ends_the_program_quietly(cli: Cli) -> None:
    for _ in range(4):
        cli.queue.shampoo.registry.add_principal(f"many{_}", grants=[str(n) * 20 for n in range(999)])
    ended = cli.shell('shampoo history --follow --limit 4000 | head -1; echo "${PIPESTATUS[0]}"')
    first, status = ended.out.decode().splitlines()
    assert (json.loads(first)["id"], status, ended.err) == (1, "0", "")


def test_a_reader_who_left_before_the_answer_ends_the_program_quietly(cli: Cli) -> None:
    ended = cli.shell(
        f'{CREATE_LINE} | true; echo "${{PIPESTATUS[0]}}"; shampoo --help | true; echo "${{PIPESTATUS[0]}}"'
    )
    assert (ended.out, ended.err) == (b"0\n0\n", "")
    assert len(jobs(cli)) == 1


def test_a_refusal_keeps_its_status_when_nobody_reads(cli: Cli) -> None:
    ended = cli.shell('shampoo call job_release --as w --job-id x >&-; echo "$?"')
    assert (ended.out, ended.err) == (b"1\n", "job_not_found: job not found\n")


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", "<&- >&- 2>&-"])
def test_closed_streams_change_nothing_of_the_work(cli: Cli, closed: str) -> None:
    ended = cli.shell(f'{CREATE_LINE} {closed}; echo "$?"')
    assert ended.out.decode().splitlines()[-1] == "0"
    assert ended.err == ""
    assert len(jobs(cli)) == 1
    if ">&-" not in closed.replace("2>&-", ""):
        assert json.loads(ended.out.splitlines()[0]) == {"job_id": jobs(cli)[0], "state": "queued"}


def test_closed_streams_do_not_confuse_an_embedded_server_that_must_be_started(cli: Cli, tmp_path: Path) -> None:
    env = {"SHAMPOO_URL": f"embedded://{tmp_path}"}
    ended = cli.shell('shampoo task add t <&- >&- 2>&-; echo "$?"; shampoo task list', env)
    status, listed = ended.out.decode().splitlines()
    assert (status, ended.err) == ("0", "")
    assert [task["task_id"] for task in json.loads(listed)["tasks"]] == ["t"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is there on Linux alone")
def test_a_created_job_is_named_even_when_the_disk_is_full(cli: Cli) -> None:
    ended = cli.shell(f"{CREATE_LINE} >/dev/full")
    assert ended.status == 0
    assert ended.err.startswith("warning: standard output cannot be written: No space left on device; the answer was {")
    assert jobs(cli)[0] in ended.err
    assert ended.err.count("\n") == 1
    read = cli.shell("shampoo history >/dev/full")
    assert (read.status, read.err) == (1, "output_failed: standard output cannot be written: No space left on device\n")


@pytest.mark.parametrize("line", ["tools", "principal list", "--help"])
def test_no_colour_codes_reach_a_pipe(cli: Cli, line: str) -> None:
    ended = cli.process(*line.split(), env={"FORCE_COLOR": "1", "CLICOLOR_FORCE": "1", "TERM": "xterm-256color"})
    assert (ended.status, ended.err) == (0, "")
    assert b"\x1b" not in ended.out


# Standard input -------------------------------------------------------------------------------------------------


def test_the_largest_payload_comes_through_a_pipe_and_goes_out_again(cli: Cli) -> None:
    content = ("ä€\r\n" * (MIB // 7)).encode()
    assert cli.process(*CREATE, "--payload", "-", input=content).status == 0
    ended = cli.process("call", "job_claim", "--as", "w")
    assert ended.json["payload"].encode() == content


def test_ten_megabytes_are_refused_before_they_are_read(cli: Cli) -> None:
    with subprocess.Popen(["cat", "/dev/zero"], stdout=subprocess.PIPE) as endless:
        ended = cli.process(*CREATE, "--payload", "-", input=None, stdin=endless.stdout)
        endless.kill()
    assert ended.err == "invalid_argument: invalid argument: payload is larger than 1,048,576 UTF-8 bytes\n"
    assert jobs(cli) == []


def test_a_payload_from_a_closed_standard_input_is_refused(cli: Cli) -> None:
    ended = cli.shell(f"{CREATE_LINE} --payload - <&-")
    assert ended.refusal == "1 invalid_argument"
    assert jobs(cli) == []


def test_a_payload_that_cannot_be_read_is_refused(cli: Cli) -> None:
    ended = cli.shell(f"{CREATE_LINE} --payload - 0>/dev/null")
    assert ended.refusal == "1 invalid_argument"
    assert "payload cannot be read from standard input: " in ended.err
    assert jobs(cli) == []


# Interrupts -----------------------------------------------------------------------------------------------------


def start(cli: Cli, *arguments: str, env: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*PROGRAM, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=cli.environment(env),
    )


def interrupted(process: subprocess.Popen[bytes]) -> Ended:
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=10)
    return Ended(process.returncode, out, err.decode())


def test_an_interrupt_while_following_ends_quietly(cli: Cli) -> None:
    with start(cli, "history", "--follow") as process:
        assert process.stdout
        told = [json.loads(process.stdout.readline())["id"] for _ in range(4)]
        cli.queue.shampoo.registry.add_task("t")
        told.append(json.loads(process.stdout.readline())["id"])
        assert interrupted(process) == Ended(130, b"", "")
    assert told == [1, 2, 3, 4, 5]


def test_following_ends_when_its_reader_leaves(cli: Cli) -> None:
    with start(cli, "history", "--follow") as process:
        assert process.stdout
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(10) == 0
        assert process.stderr
        assert process.stderr.read() == b""


def test_an_interrupt_while_standard_input_is_read_creates_nothing(cli: Cli) -> None:
    with start(cli, *CREATE, "--payload", "-") as process:
        assert process.stdin
        process.stdin.write(b"half")
        process.stdin.flush()
        _until_it_sleeps(process)
        assert interrupted(process) == Ended(130, b"", "")
    assert jobs(cli) == []


def _until_it_sleeps(process: subprocess.Popen[bytes]) -> None:
    """Wait until the program has loaded and waits for its input."""
    loaded = time.monotonic() + 10
    while time.monotonic() < loaded:
        if os.path.exists(f"/proc/{process.pid}/syscall"):
            words = Path(f"/proc/{process.pid}/syscall").read_text().split()
            if words[:2] == ["0", "0x0"]:  # read(0, …
                return
        time.sleep(0.02)
    raise AssertionError("the program never came to read its input")


def test_an_interrupt_of_the_demo_ends_it_quietly(cli: Cli, tmp_path: Path) -> None:
    with start(cli, "demo", "--folder", str(tmp_path), "--workers", "2") as process:
        assert process.stdout
        assert b"2 workers" in process.stdout.readline()
        ended = interrupted(process)
    assert ended.status == 130
    assert "Traceback" not in ended.err


def test_the_module_and_the_installed_program_are_the_same(cli: Cli) -> None:
    installed = Path(sys.executable).with_name("shampoo")
    ran = subprocess.run([installed, "--version"], capture_output=True, check=True, timeout=30)
    assert ran.stdout == cli.process("--version").out
