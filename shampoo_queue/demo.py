"""Hash the standard library with a fleet of worker processes, kill one, check what came out; also an example to read.

It sees the queue as any outsider does: `hash_file` is what its workers do with a job, `work` is one of them.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from shampoo_queue import Client, Event, Shampoo, ShampooError, ToolError, replay
from shampoo_queue.worker import Fail, Job, Worker

PROJECT, KIND = "demo", "hash"
ENDINGS = ("job.completed", "job.failed")
LEASE_SECONDS = 2
FILES_AT_MOST = 5_000
PATIENCE = 30.0  # seconds without any news after which the demo gives up
TICK = 0.05  # seconds between two looks
BATCH = 100  # jobs created in one go

Facts = dict[str, Any]


worker = Worker()


@worker.handles(KIND, runs_in="thread", lease_seconds=LEASE_SECONDS, concurrency=8)
def hash_file(job: Job) -> str:
    """Do the work of one job: the result_ref is the file's digest."""
    path = job.json()["path"]
    try:
        with open(path, "rb") as file:
            return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
    except OSError as error:
        raise Fail(f"unreadable: {error.strerror}") from None


def work(target: str, profile: str, client_id: str) -> None:
    """Be a worker process until standard input ends, as it also does when the demo dies."""
    threading.Thread(target=_stop_with_input, daemon=True).start()
    with Shampoo.connect(target, profile=profile) as shampoo:
        worker.run(shampoo, client_id)


def _stop_with_input() -> None:
    os.read(sys.stdin.fileno(), 1)
    worker.stop()


def hashed(path: Path) -> tuple[str, str]:
    """Do the work of one job without a queue: give the standing it leads to, and the digest or why there is none."""
    try:
        return "completed", hash_file(Job(payload=json.dumps({"path": str(path)})))
    except Fail as failure:
        return "failed", failure.reason


class Fleet:
    """The worker processes.

    Each has a group of its own, so that Ctrl-C at the terminal reaches only the demo. The session stays the demo's:
    then the kernel hangs up a worker that is frozen when the demo dies, and nothing stays.
    """

    def __init__(self, target: str, profile: str, say: Callable[[str], None]) -> None:
        self._arguments, self._say = ("work", target, profile), say
        self._members: list[tuple[subprocess.Popen[str], threading.Thread]] = []

    def start(self, client_id: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "shampoo_queue.demo", *self._arguments, client_id],
            cwd=Path(__file__).parents[1],  # where the package is, and no file of the user's shadows a module
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            process_group=0,
        )
        relay = threading.Thread(target=self._relay, args=(client_id, process), daemon=True)
        relay.start()
        self._members.append((process, relay))
        return process

    def _relay(self, client_id: str, process: subprocess.Popen[str]) -> None:
        """Pass on what a worker complains of, and say so when it ends badly."""
        assert process.stderr
        with process.stderr:
            for line in process.stderr:
                self._say(f"{client_id}: {line.rstrip()}")
        if process.wait():
            self._say(f"{client_id} ended with status {process.returncode}")

    def lives(self) -> bool:
        return any(process.poll() is None for process, _ in self._members)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process, _relay in self._members:
            assert process.stdin
            process.stdin.close()
        for process, relay in self._members:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
            relay.join(5)


@contextmanager
def frozen(process: subprocess.Popen[str]) -> Iterator[None]:
    """Let a process stand still for a moment."""
    process.send_signal(signal.SIGSTOP)
    with suppress(ChildProcessError):  # it had ended
        os.waitpid(process.pid, os.WUNTRACED)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


class Interrupted(Exception):
    """Ctrl-C or SIGTERM came."""


@contextmanager
def interrupts() -> Iterator[Callable[[], None]]:
    """Note SIGINT and SIGTERM and give a function that raises `Interrupted` after one of them.

    So they act between two steps only. Inside a step they could lose a process that is just being started.
    """
    came: list[int] = []

    def check() -> None:
        if came:
            raise Interrupted

    before = {n: signal.signal(n, lambda number, _: came.append(number)) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield check
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Screen:
    """What the user sees: lines, and how far a step is: as a bar on a terminal, elsewhere as a line every second."""

    def __init__(self) -> None:
        # Whatever FORCE_COLOR says: a file wants neither colours nor a bar.
        self._console = Console(force_terminal=sys.stdout.isatty())
        self._plain = not self._console.is_terminal or self._console.is_dumb_terminal

    def say(self, text: str, style: str | None = None) -> None:
        self._console.out(text, style=style, highlight=False)

    @contextmanager
    def progress(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        """Give a function to call with the count of what is done."""
        columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
        began = spoke = time.monotonic()

        def update(done: int) -> None:
            nonlocal began, spoke
            now = time.monotonic()
            began = began if done else now  # the pace is not that of starting up
            rate = done / max(now - began, 0.001)
            pace = f"{rate:,.0f}/s, {(total - done) / rate:,.0f} s left" if done else "starting"
            bar.update(task, completed=done, description=pace)
            if self._plain and now - spoke >= 1:
                spoke = now
                self.say(f"{what}: {done:,} of {total:,}, {pace}")

        with Progress(*columns, console=self._console, transient=True, disable=self._plain) as bar:
            task = bar.add_task("", total=total)
            yield update


def whole_history(shampoo: Shampoo, after: int | None = None) -> Iterator[Event]:
    """Read every event there is, page by page."""
    while page := shampoo.history(after=after, limit=1_000):
        yield from page
        after = page[-1].id


class Demo:
    """One run over some files, in a profile of its own."""

    def __init__(self, shampoo: Shampoo, fleet: Fleet, screen: Screen, check: Callable[[], None]) -> None:
        self.shampoo, self.fleet, self.say, self.screen, self.check = shampoo, fleet, screen.say, screen, check
        self.jobs: dict[str, Path] = {}
        self.killed: list[Facts] = []  # the jobs that the killed worker held, each with its lease_left
        self.told: dict[str, Facts] = {}  # the standings that the history has told so far
        self.last: int | None = None
        self.ended = 0

    def run(self, files: list[Path], workers: int) -> bool:
        """Do everything, and tell whether all that must hold does."""
        names = [f"worker-{n}" for n in range(1, workers + 1)]
        conductor = self.register(names)
        quorum_id = self.shampoo.registry.open_quorum(PROJECT, ["conductor", *names])
        lane_id = conductor.lane_create(quorum_id=quorum_id, assignee_client_id=names[0]).lane_id
        self.create_jobs(conductor, lane_id, files)
        conductor.lane_set_state(lane_id=lane_id, state="in_progress")
        finished = self.hash_files(names)
        stored, expected = {}, {}
        for job_id, path in self.jobs.items():
            self.check()
            stored[job_id], expected[job_id] = self.shampoo.ops.job(job_id) or {}, hashed(path)
        if finished:
            self.finish_lane(conductor, lane_id, digest_of_digests(self.jobs, stored))
        stored[lane_id] = self.shampoo.ops.lane(lane_id) or {}
        found = verdicts(self.jobs, expected, stored, list(whole_history(self.shampoo)), self.killed)
        for claim, against in found.items():
            more = f" and {len(against) - 1:,} more" if against[1:] else ""
            line = f"FAILED  {claim}: see {against[0]}{more}" if against else f"ok      {claim}"
            self.say(line, "bold red" if against else "green")
        return not any(found.values())

    def register(self, names: list[str]) -> Client:
        self.shampoo.registry.add_principal("conductor", conductor=True, grants=[PROJECT])
        for name in names:
            self.shampoo.registry.add_principal(name, grants=[PROJECT])
        return self.shampoo.client("conductor")

    def create_jobs(self, conductor: Client, lane_id: str, files: list[Path]) -> None:
        began = time.monotonic()
        with self.screen.progress("creating jobs", len(files)) as progress:
            for start in range(0, len(files), BATCH):
                self.check()
                batch = files[start : start + BATCH]
                payloads = [json.dumps({"path": str(path)}) for path in batch]
                made = conductor.create_many({"kind": KIND, "lane_id": lane_id, "payload": text} for text in payloads)
                for path, answer in zip(batch, made, strict=True):
                    if isinstance(answer, ToolError):
                        raise answer
                    self.jobs[answer.job_id] = path
                progress(len(self.jobs))
        self.say(f"created {len(files):,} jobs in lane {lane_id} in {time.monotonic() - began:.1f} s")

    def hash_files(self, names: list[str]) -> bool:
        """Let the last worker begin, kill it while it holds jobs, and let the others do the rest."""
        began = time.monotonic()
        with self.screen.progress("hashing files", len(self.jobs)) as progress:
            self.killed = self.kill_holding(names[-1])
            for name in names[:-1]:
                self.fleet.start(name)
            finished = self.watch(progress)
        self.say(f"{self.ended:,} of {len(self.jobs):,} files are done after {time.monotonic() - began:.1f} s")
        return finished

    def catch_up(self) -> list[Event]:
        """Read what has happened since the last look."""
        fresh = list(whole_history(self.shampoo, self.last))
        replay(fresh, self.told)
        self.last = fresh[-1].id if fresh else self.last
        self.ended += sum(event.event in ENDINGS for event in fresh)
        return fresh

    def kill_holding(self, name: str) -> list[Facts]:
        """Freeze a worker again and again until it stands still with live leases, then kill it."""
        process = self.fleet.start(name)
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until and self.ended < len(self.jobs) and process.poll() is None:
            self.check()
            time.sleep(0.001)
            with frozen(process):
                held = self.held_by(name) if process.poll() is None else []
                if held and min(map(seconds_left, held)) > 1:
                    process.kill()
                    process.wait()
                    held = [job | {"lease_left": seconds_left(job)} for job in held]
                    self.say_killed(f"{name} (process {process.pid})", held)
                    return held
        return []

    def say_killed(self, whom: str, held: list[Facts]) -> None:
        left = min(job["lease_left"] for job in held)
        first = f"job {held[0]['job_id']}: {shown(self.jobs[held[0]['job_id']])}"
        self.say(f"killed {whom} while it held {count(held, 'job')} for {left:.1f} s more, first {first}")

    def held_by(self, name: str) -> list[Facts]:
        """Give the jobs that a frozen worker holds."""
        self.catch_up()
        self.catch_up()  # what the worker had sent by now is done before this second call
        claimed = [job_id for job_id, facts in self.told.items() if facts.get("standing") == "claimed"]
        held = filter(None, map(self.shampoo.ops.job, claimed))
        return [job for job in held if job["standing"] == "claimed" and job["owner"] == name]

    def watch(self, progress: Callable[[int], None]) -> bool:
        """Follow the history until every job has ended; false when that will not happen."""
        news = time.monotonic()
        while self.ended < len(self.jobs):
            self.check()
            for event in self.catch_up():
                news = time.monotonic()
                if event.event == "job.reclaimed":
                    self.say(f"{event.actor} took over job {event.entity_id} from {event.reason}: the lease had lapsed")
            progress(self.ended)
            if not self.fleet.lives() or time.monotonic() - news > PATIENCE:
                self.say("gave up: no worker gets on", "bold red")
                return False
            time.sleep(TICK)
        return True

    def finish_lane(self, conductor: Client, lane_id: str, digest: str) -> None:
        conductor.lane_set_state(lane_id=lane_id, state="done")
        self.shampoo.client("worker-1").lane_review(lane_id=lane_id, decision="submit")
        conductor.lane_review(lane_id=lane_id, decision="approve")
        conductor.lane_merge(lane_id=lane_id, outcome="merged", result_commit=digest)
        self.say(f"the lane is done, submitted by worker-1, approved, and merged as {digest}")


def verdicts(
    jobs: dict[str, Path],
    expected: dict[str, tuple[str, str]],
    stored: dict[str, Facts],
    events: list[Event],
    killed: list[Facts],
) -> dict[str, list[str]]:
    """Give each claim that must hold, with what speaks against it."""
    told = replay(events)
    endings = Counter(event.entity_id for event in events if event.event in ENDINGS)
    takeovers = {(e.entity_id, e.reason): e.actor for e in events if e.event == "job.reclaimed"}
    takers = {job["job_id"]: takeovers.get((job["job_id"], job["owner"])) for job in killed if job["lease_left"] > 0}
    death = f"{killed[0]['owner'] if killed else 'a worker'} died with {count(killed, 'live lease')}"
    left = [job["job_id"] for job in killed if not takers.get(job["job_id"])] if killed else ["the history"]
    wrong = [job for job in jobs if outcome(stored[job]) != expected[job]]
    return {
        f"each of {len(jobs):,} jobs was completed exactly once": [job for job in jobs if endings[job] != 1],
        "the stored digests equal a sequential pass over the files": [shown(jobs[job]) for job in wrong],
        f"replaying {len(events):,} events arrives at every stored standing": [
            name for name in stored | told if not told.get(name, {"": ""}).items() <= stored.get(name, {}).items()
        ],
        f"{death}, and every job it held was taken over by {listed(takers.values())}": left,
        "no worker holds anything": [
            name for name, facts in (*stored.items(), *told.items()) if facts.get("standing") == "claimed"
        ],
    }


def outcome(job: Facts) -> tuple[str, str]:
    """Give what `hashed` gives, of a job as it is stored."""
    return job.get("standing", ""), job.get("result_ref") or job.get("reason", "")


def digest_of_digests(jobs: dict[str, Path], stored: dict[str, Facts]) -> str:
    """Hash the sorted lines of path and digest; a file that could not be read has none."""
    results = {path: str(stored[job_id].get("result_ref")) for job_id, path in jobs.items()}
    lines = sorted(f"{path} {ref[7:]}\n" for path, ref in results.items() if ref.startswith("sha256:"))
    return hashlib.sha256("".join(lines).encode(errors="surrogateescape")).hexdigest()


def seconds_left(job: Facts) -> float:
    """Give what is left of a lease. The server is on this machine, so its clock is ours."""
    return (datetime.fromisoformat(job["lease_until"]) - datetime.now(UTC)).total_seconds()


def count(things: Sized, name: str) -> str:
    return f"{len(things):,} {name}{'s' if len(things) != 1 else ''}"


def listed(names: Iterable[str | None]) -> str:
    """Spell names once each, in order."""
    return ", ".join(sorted({name for name in names if name})) or "nobody"


def shown(path: Path) -> str:
    """Spell a path so that any terminal can print it."""
    return str(path).encode("ascii", "backslashreplace").decode()


def standard_library() -> list[Path]:
    """List the source files of this Python's standard library, in order."""
    found: list[Path] = []
    for folder, inside, names in os.walk(sysconfig.get_path("stdlib")):
        inside[:] = [name for name in inside if name not in ("site-packages", "dist-packages")]
        found += [Path(folder, name) for name in names if name.endswith(".py")]
    return sorted(found)[:FILES_AT_MOST]


def main(folder: Path | None = None, workers: int = 4, files: list[Path] | None = None) -> int:
    """Run the demo and give its exit code: 0 when all that must hold does, 130 when it was interrupted, else 1.

    ``folder`` keeps the queue's data; without one it is temporary. ``files`` replaces the standard library. Call it
    from the main thread, for it takes SIGINT and SIGTERM to itself.
    """
    chosen = standard_library() if files is None else [path.absolute() for path in files]
    if workers < 2 or not chosen:
        print("error: the demo needs a file to hash and two workers, one of them to be killed", file=sys.stderr)
        return 1
    screen = Screen()
    with interrupts() as check:
        try:
            with nullcontext(folder) if folder else tempfile.TemporaryDirectory(prefix="shampoo-demo-") as place:
                holds = _run(Path(place).absolute(), workers, chosen, screen, check)
            check()
        except Interrupted:
            screen.say("interrupted: workers and server are ended")
            return 130
        except (ShampooError, OSError) as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
    return 0 if holds else 1


def _run(folder: Path, workers: int, files: list[Path], screen: Screen, check: Callable[[], None]) -> bool:
    target, profile = f"embedded://{quote(str(folder))}", f"demo-{datetime.now():%Y%m%d-%H%M%S}-{os.getpid()}"
    screen.say(f"{len(files):,} files, {workers} workers, queue {target}, profile {profile}")
    with Shampoo.connect(target, profile=profile) as shampoo, Fleet(target, profile, screen.say) as fleet:
        return Demo(shampoo, fleet, screen, check).run(files, workers)


if __name__ == "__main__":  # python -m shampoo_queue.demo [FOLDER]; what begins with "work" is the demo's own worker
    if sys.argv[1:2] != ["work"]:
        sys.exit(main(Path(sys.argv[1]) if sys.argv[1:] else None))
    try:
        work(*sys.argv[2:])
    except ShampooError as error:
        sys.exit(f"cannot go on: {error}")
