"""Run the examples as their README says, and hold their results against a direct computation."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from examples import agent, count_primes, text_statistics
from shampoo_queue import Shampoo
from shampoo_queue.contract import JobStanding
from shampoo_queue.worker import Fail, Job
from tests.queue import Clock, Queue

ROOT = Path(__file__).parents[2]
README = ROOT / "examples" / "README.md"
DOCUMENTS = [ROOT / "README.md", ROOT / "DECISIONS.md"]
SETUP = """. .venv/bin/activate
shampoo principal add conductor-1 --conductor --grant examples
shampoo principal add worker-1 --grant examples
"""


class Terminals:
    """Terminals in a checkout, with the virtual environment active and a queue of the test's own."""

    def __init__(self, url: str) -> None:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self._environment = {**os.environ, "SHAMPOO_URL": url, "PATH": path, "PYTHONUNBUFFERED": "1"}

    @contextmanager
    def open(self, line: str) -> Iterator[subprocess.Popen[str]]:
        """Run one command in the background; kill it when the test leaves it running."""
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        with subprocess.Popen(shlex.split(line), cwd=ROOT, env=self._environment, text=True, **streams) as process:  # type: ignore[call-overload]
            try:
                yield process
            finally:
                process.kill()

    def run(self, line: str) -> tuple[int, list[str]]:
        """Run one command to its end: exit code and lines."""
        with self.open(line) as process:
            output, _ = process.communicate(timeout=60)
            return process.returncode, output.splitlines()


@pytest.fixture
def shampoo(tmp_path: Path) -> Iterator[Shampoo]:
    with Shampoo.connect(f"embedded://{tmp_path}/data") as opened:
        yield opened


@pytest.fixture
def terminals(shampoo: Shampoo) -> Terminals:
    """Terminals in which what comes first in the README has been done."""
    blocks = re.findall(r"```sh\n(.*?)```", README.read_text("utf-8"), re.DOTALL)
    assert blocks[0] == SETUP
    opened = Terminals(shampoo.url)
    for line in SETUP.splitlines()[1:]:
        assert opened.run(line)[0] == 0
    return opened


def commands(example: str) -> tuple[str, str]:
    """The command of each terminal under an example's heading."""
    section = README.read_text("utf-8").split(f"## [{example}]", 1)[1].split("\n## ", 1)[0]
    (found,) = re.findall(r"```sh\n# one terminal\n(.*)\n# the other\n(.*)\n```", section)
    first, second = found
    return first, second


def worked(terminals: Terminals, worker: str, producer: str) -> tuple[int, list[str]]:
    """Run a worker's command until the producer's is over, then press Ctrl-C: the producer's exit code and lines."""
    with terminals.open(worker) as process:
        ended = terminals.run(producer)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=20)
        assert process.returncode == 0, output
    return ended


def stored(shampoo: Shampoo) -> list[JobStanding]:
    """Every job of the profile, oldest first."""
    conductor = shampoo.client("conductor-1")
    created = [event.entity_id for event in shampoo.history(limit=1000) if event.event == "job.created"]
    return [conductor.job(job_id) for job_id in created]


def counts(path: Path) -> str:
    text = path.read_bytes().decode()
    return json.dumps({"lines": text.count("\n"), "words": len(re.findall(r"\S+", text)), "characters": len(text)})


def primes(below: int) -> list[int]:
    """A sieve, which the example has not."""
    sieve = bytearray([0, 0]) + bytearray([1]) * (below - 2)
    for number in range(2, int(below**0.5) + 1):
        if sieve[number]:
            sieve[number * number :: number] = bytes(len(range(number * number, below, number)))
    return [number for number in range(below) if sieve[number]]


# The commands as written ----------------------------------------------------------------------------------------


def test_text_statistics_counts_real_files(shampoo: Shampoo, terminals: Terminals) -> None:
    code, lines = worked(terminals, *commands("text_statistics.py"))
    assert (code, lines) == (0, [f"{path.name}: {counts(path)}" for path in DOCUMENTS])
    jobs = stored(shampoo)
    assert [(job.state, job.attempts, job.result_ref) for job in jobs] == [
        ("completed", 1, counts(p)) for p in DOCUMENTS
    ]


def test_a_burst_ends_by_itself_and_a_missing_file_fails_its_job_at_once(
    shampoo: Shampoo, terminals: Terminals
) -> None:
    conductor = shampoo.client("conductor-1")
    for path in ("/nowhere/at all.txt", str(ROOT / "LICENSE")):
        payload = json.dumps({"path": path})
        conductor.job_create(kind="text-statistics", project="examples", payload=payload)
    code, lines = terminals.run(f"{commands('text_statistics.py')[0]} --burst")
    assert code == 0, lines
    missing, there = stored(shampoo)
    assert (missing.state, missing.attempts) == ("failed", 1)
    assert missing.reason == "cannot read at all.txt: No such file or directory"
    assert (there.state, there.result_ref) == ("completed", counts(ROOT / "LICENSE"))


def test_count_primes_sums_up_what_its_processes_found(shampoo: Shampoo, terminals: Terminals) -> None:
    code, lines = worked(terminals, *commands("count_primes.py"))
    expected = primes(500_000)
    assert (code, lines) == (0, [f"{len(expected):,} primes below 500,000, counted in 10 jobs"])
    found = [int(job.result_ref) for job in stored(shampoo)]
    assert found == [sum(n // count_primes.PIECE == piece for n in expected) for piece in range(10)]


def test_an_agent_and_its_conductor_bring_a_lane_to_its_merge(shampoo: Shampoo, terminals: Terminals) -> None:
    conduct, work = commands("agent.py")
    with terminals.open(conduct) as conductor:
        assert conductor.stdout
        first = conductor.stdout.readline()
        assert re.fullmatch(r"lane \S+ has 2 jobs\n", first), first
        assert terminals.run(work) == (0, ["took 2 jobs"])
        output, _ = conductor.communicate(timeout=20)
        assert conductor.returncode == 0, output
    summaries = [
        f"{path.read_text('utf-8').splitlines()[0].lstrip('# ')} ({len(path.read_text('utf-8').split())} words)"
        for path in DOCUMENTS
    ]
    assert output.splitlines() == [*summaries, "the lane is merged"]
    assert [(job.state, job.result_ref) for job in stored(shampoo)] == [("completed", text) for text in summaries]
    lane = shampoo.ops.lane(first.split()[1])
    assert lane
    assert (lane["state"], lane["review_state"], lane["merge_state"]) == ("done", "approved", "merged")
    assert lane["result_commit"] == hashlib.sha256("\n".join(summaries).encode()).hexdigest()
    submitted = [e.actor for e in shampoo.history(lane["lane_id"]) if e.event == "lane.reviewed"]
    assert submitted == ["worker-1", "conductor-1"]


@pytest.mark.parametrize("name", ["text_statistics", "count_primes", "agent"])
def test_without_arguments_an_example_says_how_it_is_used(name: str) -> None:
    code, lines = Terminals("redis://127.0.0.1:1").run(f"python -m examples.{name}")
    assert code == 1
    assert f"    python -m examples.{name} " in "\n".join(lines)
    assert not any("Traceback" in line for line in lines)


# What they do when things go wrong ------------------------------------------------------------------------------


def test_handlers_can_be_tried_without_a_queue(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"one two\nthree\n")
    counted = text_statistics.statistics(Job(payload=json.dumps({"path": str(tmp_path / "a")})))
    assert json.loads(counted) == {"lines": 2, "words": 3, "characters": 14}
    assert count_primes.count_primes(Job(payload='{"first": 0, "last": 30}')) == "10"
    with pytest.raises(Fail):
        count_primes.count_primes(Job(payload='{"first": 3, "last": 2}'))


@pytest.fixture
def conductor_and_agent(queue: Queue) -> tuple[list[str], Queue]:
    conductor = queue.principal("conductor-1", "examples", conductor=True)
    queue.principal("worker-1", "examples")
    return queue.create(conductor, 2, kind="summarise", project="examples", payload="# A\n\nb c"), queue


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
def test_an_agent_that_is_interrupted_while_it_thinks_gives_the_job_back(
    conductor_and_agent: tuple[list[str], Queue],
) -> None:
    (first, second), queue = conductor_and_agent

    def interrupted(document: str) -> str:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        agent.work(queue.shampoo.client("worker-1"), interrupted)
    assert queue.events(first) == ["job.created", "job.claimed", "job.released"]
    assert agent.work(queue.shampoo.client("worker-1")) == 2
    standings = [queue.shampoo.client("worker-1").job(job_id) for job_id in (first, second)]
    assert [(job.state, job.attempts, job.result_ref) for job in standings] == [
        ("completed", 2, "A (4 words)"),
        ("completed", 1, "A (4 words)"),
    ]


@pytest.mark.parametrize("engine", ["memory"], indirect=True)
def test_an_agent_that_thinks_longer_than_its_lease_takes_the_refusal_and_goes_on(
    conductor_and_agent: tuple[list[str], Queue], clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    (first, second), queue = conductor_and_agent
    delays = iter([121, 0, 0])

    def slow(document: str) -> str:
        clock.advance(next(delays))
        return "done"

    assert agent.work(queue.shampoo.client("worker-1"), slow) == 3
    assert capsys.readouterr().err == f"thought too long about job {first}: lease expired\n"
    standings = [queue.shampoo.client("worker-1").job(job_id) for job_id in (first, second)]
    assert [(job.state, job.attempts) for job in standings] == [("completed", 2), ("completed", 1)]


def test_a_document_without_words_fails_its_job_and_the_lane_is_not_merged(
    shampoo: Shampoo, terminals: Terminals, tmp_path: Path
) -> None:
    (tmp_path / "empty").write_text("\n")
    with terminals.open(f"python -m examples.agent conduct LICENSE {tmp_path}/empty") as conductor:
        assert conductor.stdout
        lane_id = conductor.stdout.readline().split()[1]
        assert terminals.run("python -m examples.agent work") == (0, ["took 2 jobs"])
        output, _ = conductor.communicate(timeout=20)
        assert conductor.returncode == 1, output
    assert output.splitlines()[-1] == "the lane is conflicted"
    lane = shampoo.ops.lane(lane_id)
    assert lane
    assert (lane["review_state"], lane["merge_state"]) == ("changes_requested", "conflicted")
    assert [job.state for job in stored(shampoo)] == ["completed", "failed"]
