"""Run the demo for real: to its end, into a planted fault, and into Ctrl-C."""

from __future__ import annotations

import hashlib
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from shampoo_queue import Event, Shampoo, demo
from shampoo_queue.embedded import EmbeddedServer
from tests.queue import Clock, Queue

DRIVER = """
import sys
from pathlib import Path
from shampoo_queue.demo import main
folder, listing = sys.argv[1], Path(sys.argv[2]).read_text().splitlines()
sys.exit(main(Path(folder) if folder else None, 3, [Path(line) for line in listing]))
"""
CLAIMS = (
    "each of 60 jobs was completed exactly once",
    "the stored digests equal a sequential pass over the files",
    r"replaying \d+ events arrives at every stored standing",
    r"worker-3 died with \d live leases?, and every job it held was taken over by worker-[12](, worker-2)?",
    "no worker holds anything",
)


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Sixty files, the last of which is not there."""
    found = [tmp_path / f"file {n:02}.py" for n in range(60)]
    for n, path in enumerate(found[:-1]):
        path.write_bytes(b"\x00\r\n%d" % n * n)
    return found


@contextmanager
def running(folder: Path | None, files: list[Path], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Start the demo; kill it when the test leaves it running."""
    listing = files[0].with_name("listing")
    listing.write_text("\n".join(map(str, files)))
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, **options}
    arguments = [sys.executable, "-c", DRIVER, str(folder or ""), str(listing)]
    with subprocess.Popen(arguments, **streams) as process:
        try:
            yield process
        finally:
            process.kill()


def outcome(folder: Path | None, files: list[Path], **options: Any) -> tuple[int, str]:
    """Run the demo to its end: exit code and output."""
    with running(folder, files, **options) as process:
        output, _ = process.communicate(timeout=60)
        return process.returncode, output


def verdicts_in(output: str) -> list[tuple[str, str]]:
    return re.findall(r"^(ok|FAILED)\s+(.*)$", output, re.MULTILINE)


def processes() -> dict[int, int]:
    """The parent of every process that is not merely waiting to be reaped."""
    if sys.platform == "linux":
        table = []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
                table.append((folder.name, parent, state))
    else:
        listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid=,stat="], capture_output=True, text=True, check=True)
        table = [tuple(line.split()[:3]) for line in listed.stdout.splitlines()]  # type: ignore[misc]
    return {int(pid): int(parent) for pid, parent, state in table if not state.startswith("Z")}


def server_of(folder: Path) -> int:
    with Redis(unix_socket_path=EmbeddedServer(folder).socket_path) as connection:
        return int(connection.info("server")["process_id"])


def eventually(condition: Callable[[], bool], within: float = 20.0) -> None:
    deadline = time.monotonic() + within
    while not condition():
        assert time.monotonic() < deadline, "did not come true in time"
        time.sleep(0.02)


def test_a_run_does_the_work_survives_a_killed_worker_and_says_so_in_plain_lines(
    tmp_path: Path, files: list[Path]
) -> None:
    code, output = outcome(tmp_path / "queue", files, env={**os.environ, "FORCE_COLOR": "1"})
    assert code == 0, output
    found = verdicts_in(output)
    assert len(found) == len(CLAIMS)
    for (verdict, claim), expected in zip(found, CLAIMS, strict=True):
        assert verdict == "ok"
        assert re.fullmatch(expected, claim)
    held = re.search(
        r"killed worker-3 \(process \d+\) while it held (\d) jobs? for [12]\.\d s more, first job (\S+): .*file", output
    )
    assert held, output
    taken = re.findall(r"worker-[12] took over job (\S+) from worker-3: the lease had lapsed", output)
    assert len(taken) == len(set(taken)) == int(held[1]) > 0
    assert held[2] in taken
    assert f"worker-3 died with {held[1]} live lease" in output
    assert re.search(r"^hashing files: \d+ of 60, ", output, re.MULTILINE)
    lines = [f"{path} {hashlib.sha256(path.read_bytes()).hexdigest()}\n" for path in files[:-1]]
    assert f"merged as {hashlib.sha256(''.join(sorted(lines)).encode()).hexdigest()}\n" in output
    assert "\x1b" not in output
    assert "\r" not in output


def test_a_repeated_run_in_the_same_folder_succeeds_and_a_terminal_shows_a_bar(
    tmp_path: Path, files: list[Path]
) -> None:
    with running(tmp_path / "queue", files) as first:
        assert first.stdout
        assert any("killed worker-3" in line for line in first.stdout)
        first.send_signal(signal.SIGINT)
        assert first.wait(20) == 130
    ours, theirs = pty.openpty()
    with running(tmp_path / "queue", files, stdout=theirs, env={**os.environ, "TERM": "xterm-256color"}) as process:
        os.close(theirs)
        output = b""
        with suppress(OSError):  # Linux ends a terminal that nobody else holds with EIO
            while some := os.read(ours, 65536):
                output += some
        os.close(ours)
        assert process.wait(20) == 0, output
    assert b"hashing files \x1b[" in output
    assert b"60/60" in output
    assert output.count(b"ok      ") == len(CLAIMS)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a file that reads differently each time")
def test_a_file_that_changes_after_its_job_fails_the_run_and_the_temporary_folder_is_removed(
    tmp_path: Path, files: list[Path]
) -> None:
    files[7].unlink()
    files[7].symlink_to("/proc/self/stat")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    code, output = outcome(None, files, env={**os.environ, "TMPDIR": str(temporary)})
    assert code == 1, output
    failed = [claim for verdict, claim in verdicts_in(output) if verdict == "FAILED"]
    assert failed == [f"{CLAIMS[1]}: see {files[7]}"]
    assert len(verdicts_in(output)) == len(CLAIMS)
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize(
    ("moment", "number"),
    [("created 60 jobs", signal.SIGTERM), ("killed worker-3", signal.SIGINT), ("hashing files:", signal.SIGTERM)],
)
def test_an_interrupted_run_leaves_no_process(
    moment: str, number: signal.Signals, tmp_path: Path, files: list[Path]
) -> None:
    with running(tmp_path / "queue", files) as process:
        assert process.stdout
        assert any(moment in line for line in process.stdout)
        server = server_of(tmp_path / "queue")
        started = {pid for pid, parent in processes().items() if parent == process.pid}
        assert len(started) >= 1  # the keeper of the server, if no worker yet
        process.send_signal(number)
        output, _ = process.communicate(timeout=20)
        assert process.returncode == 130, output
        assert output.splitlines()[-1] == "interrupted: workers and server are ended"
        assert not {server, *started} & processes().keys()


def test_nothing_outlives_a_killed_demo(tmp_path: Path, files: list[Path]) -> None:
    with running(tmp_path / "queue", files) as process:
        assert process.stdout
        assert any("killed worker-3" in line for line in process.stdout)
        eventually(lambda: list(processes().values()).count(process.pid) == 3)  # a keeper and two workers
        started = {pid for pid, parent in processes().items() if parent == process.pid}
        started.add(server_of(tmp_path / "queue"))
        process.kill()
        process.wait()
    eventually(lambda: not started & processes().keys())
    eventually(lambda: not (tmp_path / "queue" / "valkey.sock").exists())


def test_a_worker_that_is_frozen_when_the_demo_dies_does_not_stay(tmp_path: Path) -> None:
    driver = """
import os, signal, sys, time
from shampoo_queue.demo import Fleet, frozen
process = Fleet("embedded://" + sys.argv[1], "demo", print).start("worker-1")
with frozen(process):
    print(process.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    arguments = [sys.executable, "-c", driver, str(tmp_path)]
    killed = subprocess.run(arguments, stdout=subprocess.PIPE, timeout=20, check=False)
    assert killed.returncode == -signal.SIGKILL
    worker = int(killed.stdout)
    try:
        eventually(lambda: worker not in processes())
    finally:
        with suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)


@pytest.mark.parametrize("seconds", [0.0, 1.0])
def test_a_worker_ends_with_its_standard_input_whenever_that_is(seconds: float, tmp_path: Path) -> None:
    said: list[str] = []
    with Shampoo.connect(f"embedded://{tmp_path}", profile="demo") as shampoo:
        shampoo.registry.add_principal("worker-1", grants=[demo.PROJECT])
        with demo.Fleet(f"embedded://{tmp_path}", "demo", said.append) as fleet:
            process = fleet.start("worker-1")
            with suppress(subprocess.TimeoutExpired):  # from before its worker runs to when it waits for work
                process.wait(seconds)
            began = time.monotonic()
        assert process.returncode == 0
    assert time.monotonic() - began < 4.5  # not because the fleet lost its patience
    assert said == []


def test_a_workers_error_reaches_the_user_as_a_line() -> None:
    said: list[str] = []
    with demo.Fleet("redis://127.0.0.1:1", "demo", said.append) as fleet:
        fleet.start("worker-1").wait(20)
    assert len(said) == 2
    assert said[0].startswith("worker-1: cannot go on: cannot reach redis://127.0.0.1:1")
    assert said[1] == "worker-1 ended with status 1"


def test_a_folder_that_cannot_be_one_and_a_lone_worker_are_errors_in_one_line(
    tmp_path: Path, files: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert demo.main(files[0], files=files) == 1
    assert capsys.readouterr().err == f"error: {files[0]} is a file: embedded:// needs a folder.\n"
    assert demo.main(tmp_path / "queue", workers=1, files=files) == 1
    assert "two workers" in capsys.readouterr().err
    assert not (tmp_path / "queue").exists()


def test_the_standard_library_is_listed_in_order_and_without_site_packages() -> None:
    found = demo.standard_library()
    assert Path(os.__file__) in found
    assert found == sorted(found)
    assert 500 < len(found) <= demo.FILES_AT_MOST
    assert not [path for path in found if "site-packages" in path.parts]


# The verdicts, each with a fault planted in what they judge ---------------------------------------------------------


class Evidence:
    """What a small run leaves: three jobs, the first two of them taken over, and a lane."""

    def __init__(self, queue: Queue, clock: Clock, tmp_path: Path) -> None:
        conductor = queue.principal("conductor", "demo", conductor=True)
        dying, living = queue.principal("worker-2", "demo"), queue.principal("worker-1", "demo")
        quorum_id = queue.shampoo.registry.open_quorum("demo")
        lane_id = conductor.lane_create(quorum_id=quorum_id).lane_id
        (tmp_path / "there").write_bytes(b"x")
        (tmp_path / "there too").write_bytes(b"y")
        ids = self.first, self.second, self.third = queue.create(conductor, 3, kind="hash", lane_id=lane_id)
        names = ("there", "missing", "there too")
        self.jobs = {job_id: tmp_path / name for job_id, name in zip(ids, names, strict=True)}
        held = [claim.job_id for claim in dying.claim_many(2, lease_seconds=2)]
        assert held == [self.first, self.second]
        self.killed = [{"job_id": job_id, "owner": "worker-2", "lease_left": 1.5} for job_id in held]
        clock.advance(2)
        self.expected = {job_id: demo.hashed(path) for job_id, path in self.jobs.items()}
        while claim := living.job_claim():
            standing, what = self.expected[claim.job_id]
            if standing == "completed":
                living.complete(claim, result_ref=what)
            else:
                living.fail(claim, reason=what)
        conductor.lane_set_state(lane_id=lane_id, state="in_progress")
        ops = queue.shampoo.ops
        self.stored = {job_id: ops.job(job_id) or {} for job_id in self.jobs} | {lane_id: ops.lane(lane_id) or {}}
        self.events = queue.shampoo.history(limit=1000)
        self.lane_id = lane_id

    def judged(self) -> list[list[str]]:
        return list(demo.verdicts(self.jobs, self.expected, self.stored, self.events, self.killed).values())

    def event(self, name: str) -> Event:
        return next(event for event in self.events if event.event == name and event.entity_id in self.jobs)


@pytest.fixture
def evidence(queue: Queue, clock: Clock, tmp_path: Path) -> Evidence:
    return Evidence(queue, clock, tmp_path)


def _completed_twice(evidence: Evidence) -> list[list[str]]:
    evidence.events.append(evidence.event("job.completed"))
    return [[evidence.event("job.completed").entity_id], [], [], [], []]


def _another_digest(evidence: Evidence) -> list[list[str]]:
    evidence.expected[evidence.first] = ("completed", "sha256:00")
    return [[], [str(evidence.jobs[evidence.first])], [], [], []]


def _another_reason(evidence: Evidence) -> list[list[str]]:
    assert evidence.expected[evidence.second] == ("failed", "unreadable: No such file or directory")
    evidence.expected[evidence.second] = ("failed", "unreadable: something else")
    return [[], [str(evidence.jobs[evidence.second])], [], [], []]


def _another_owner(evidence: Evidence) -> list[list[str]]:
    evidence.stored[evidence.second]["owner"] = "somebody"
    return [[], [], [evidence.second], [], []]


def _another_lane(evidence: Evidence) -> list[list[str]]:
    evidence.stored[evidence.lane_id]["state"] = "done"
    return [[], [], [evidence.lane_id], [], []]


def _a_job_out_of_nowhere(evidence: Evidence) -> list[list[str]]:
    evidence.stored["other"] = {"standing": "queued"}
    return [[], [], ["other"], [], []]


def _no_takeover(evidence: Evidence) -> list[list[str]]:
    for _ in range(2):
        evidence.events.remove(evidence.event("job.reclaimed"))
    return [[], [], [], [evidence.first, evidence.second], []]


def _one_takeover_of_two(evidence: Evidence) -> list[list[str]]:
    evidence.events.remove(evidence.event("job.reclaimed"))
    return [[], [], [], [evidence.first], []]


def _another_former_owner(evidence: Evidence) -> list[list[str]]:
    evidence.killed[1]["owner"] = "worker-1"
    return [[], [], [], [evidence.second], []]


def _a_lapsed_lease(evidence: Evidence) -> list[list[str]]:
    evidence.killed[1]["lease_left"] = -0.1
    return [[], [], [], [evidence.second], []]


def _nobody_killed(evidence: Evidence) -> list[list[str]]:
    evidence.killed.clear()
    return [[], [], [], ["the history"], []]


def _still_held(evidence: Evidence) -> list[list[str]]:
    created, claimed = (Event(evidence.event(name), entity_id="other") for name in ("job.created", "job.claimed"))
    evidence.events += [created, claimed]
    facts = {"standing": "claimed", "owner": claimed.actor, "attempts": claimed.attempts, "fence": claimed.fence}
    evidence.stored["other"] = facts
    return [[], [], [], [], ["other", "other"]]


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
@pytest.mark.parametrize(
    "plant",
    [
        _completed_twice,
        _another_digest,
        _another_reason,
        _another_owner,
        _another_lane,
        _a_job_out_of_nowhere,
        _no_takeover,
        _one_takeover_of_two,
        _another_former_owner,
        _a_lapsed_lease,
        _nobody_killed,
        _still_held,
    ],
)
def test_each_verdict_sees_its_own_fault(evidence: Evidence, plant: Callable[[Evidence], list[list[str]]]) -> None:
    assert evidence.judged() == [[], [], [], [], []]
    assert plant(evidence) == evidence.judged()
