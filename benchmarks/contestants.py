"""Who takes part: how each queue's environment is made, and how its producer and its worker are started."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from shampoo_queue import Shampoo

from .servers import Server

HERE = Path(__file__).parent
SIDES = HERE / "sides"
PROFILE, PROJECT, KIND = "bench", "p", "k"
PRODUCER, WORKER = "producer", "worker"


@dataclass(frozen=True)
class Contestant:
    """One queue in one configuration. ``work`` and ``produce`` are command lines; ``{bin}`` is its environment's."""

    name: str
    env: str  # a file of requirements/; "" is the environment that runs the benchmark
    work: str
    produce: str
    engine: str = "redis"
    note: str = ""

    @property
    def label(self) -> str:
        return f"{self.name} on {self.engine}"

    @property
    def ours(self) -> bool:
        return self.name.startswith("shampoo")


def ours(engine: str) -> list[Contestant]:
    """Give this project's forms on an engine; the worker runtime's when the library has one."""
    forms = {
        "sync": "claim_wait in a process of its own",
        "async": "claim_wait of asyncio in a process of its own",
    }
    if (Path(sys.modules["shampoo_queue"].__path__[0]) / "worker" / "__init__.py").exists():
        forms["worker-async"] = "Worker with an async handler"
        forms["worker-thread"] = "Worker with a handler in a thread"
    return [
        Contestant(
            f"shampoo {form}", "", f"{{bin}}/python ours.py work {form}", "{bin}/python ours.py produce", engine, note
        )
        for form, note in forms.items()
    ]


def _peer(name: str, env: str, work: str, side: str, note: str = "") -> Contestant:
    runs = "node" if side.endswith(".js") else "{bin}/python"
    return Contestant(name, env, work, f"{runs} {side} produce", "redis", note)


BARE = _peer(
    "(bare list)", "", "{bin}/python bare.py work", "bare.py", "LPUSH and BLPOP of redis-py: a mark, not a queue"
)
PEERS = [
    _peer("huey", "huey", "{bin}/huey_consumer with_huey.huey -q -w 2", "with_huey.py", "2 threads"),
    _peer(
        "taskiq",
        "taskiq",
        "{bin}/taskiq worker with_taskiq:broker --workers 1 --log-level WARNING",
        "with_taskiq.py",
        "stream broker",
    ),
    _peer("bullmq-py", "bullmq", "{bin}/python with_bullmq.py work", "with_bullmq.py"),
    _peer("bullmq-node", "node", "node with_bullmq.js work", "with_bullmq.js"),
    _peer(
        "rq",
        "rq",
        "{bin}/rq worker -q -w rq.worker.SimpleWorker -u {url} bench",
        "with_rq.py",
        "SimpleWorker, which does not fork",
    ),
    _peer("dramatiq", "dramatiq", "{bin}/dramatiq with_dramatiq -p 1 -t 8 --skip-logging", "with_dramatiq.py"),
    _peer("arq", "arq", "{bin}/python with_arq.py work 0.5", "with_arq.py", "looks every 0.5 s, as installed"),
    _peer("arq 1 ms", "arq", "{bin}/python with_arq.py work 0.001", "with_arq.py", "looks every millisecond"),
    _peer("saq", "saq", "{bin}/saq with_saq.settings", "with_saq.py"),
]


class Environments:
    """The peers' environments in a folder, each made from its pinned file."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or Path(tempfile.gettempdir(), f"shampoo-bench-{os.getuid()}")

    def ready(self, env: str) -> bool:
        """Tell whether the environment stands and was made from what the file says now."""
        if not env:
            return True
        with suppress(FileNotFoundError):
            return (self.folder / env / "made-from").read_text() == self._pinned(env).read_text()
        return False

    def make(self, env: str) -> None:
        """Install an environment anew; raise RuntimeError with the installer's last words when that fails."""
        target = self.folder / env
        shutil.rmtree(target, ignore_errors=True)
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self.folder.stat().st_uid != os.getuid():
            raise RuntimeError("the folder of the environments belongs to another user")
        pinned = self._pinned(env)
        if env == "node":
            target.mkdir()
            shutil.copy(pinned, target)
            _run("npm", "install", "--no-audit", "--no-fund", "--prefix", str(target))
        else:
            _run(sys.executable, "-m", "venv", str(target))
            _run(str(target / "bin" / "pip"), "install", "-q", "--disable-pip-version-check", "-r", str(pinned))
        (target / "made-from").write_text(pinned.read_text())

    def bin(self, env: str) -> str:
        return str(self.folder / env / "bin" if env else Path(sys.executable).parent)

    def versions(self, env: str) -> dict[str, str]:
        """Give the pinned versions of an environment."""
        if env == "node":
            found: dict[str, str] = json.loads(self._pinned(env).read_text())["dependencies"]
            return found
        lines = self._pinned(env).read_text().split()
        return dict(line.split("==") for line in lines)

    def _pinned(self, env: str) -> Path:
        return HERE / "requirements" / ("node/package.json" if env == "node" else f"{env}.txt")


def _run(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        raise RuntimeError(f"{command[0]} is not on PATH") from None
    if done.returncode:
        raise RuntimeError((done.stderr or done.stdout).strip()[-300:])


class Entry:
    """One contestant's processes on a server, started and ended; ``stamps`` are the delays of its jobs' starts."""

    def __init__(self, contestant: Contestant, server: Server, environments: Environments, folder: Path) -> None:
        self.contestant, self.server = contestant, server
        self._bin = environments.bin(contestant.env)
        self._path = folder / "stamps"
        self._log = folder / "log"
        self._environ = {
            **os.environ,
            "PATH": f"{self._bin}{os.pathsep}{os.environ.get('PATH', '')}",
            "PYTHONPATH": os.pathsep.join([str(SIDES), *([] if contestant.env else [str(HERE.parent)])]),
            "PYTHONWARNINGS": "ignore",
            "BENCH_URL": server.url,
            "BENCH_STAMPS": str(self._path),
            "BENCH_NODE": str(environments.folder / "node"),
        }

    def clear(self) -> None:
        """Begin with an empty server; ours gets its principals."""
        self.server.flush()
        self._path.unlink(missing_ok=True)
        if self.contestant.ours:
            with Shampoo.connect(self.server.url, profile=PROFILE, operator="bench") as shampoo:
                shampoo.registry.add_principal(PRODUCER, conductor=True, grants=[PROJECT])
                shampoo.registry.add_principal(WORKER, grants=[PROJECT])

    def stamps(self) -> list[float]:
        """Give the milliseconds from the call that created each job to its start."""
        return [int(line) / 1e6 for line in self._path.read_text().split()]

    def why(self) -> str:
        """Give the last words of the processes, for when one has failed."""
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1][:200] if lines else "it says nothing"

    @contextmanager
    def working(self) -> Iterator[subprocess.Popen[str]]:
        """Run the worker until the end of the block; raise RuntimeError when it has ended by itself before."""
        with self.running(self.contestant.work, talks=False) as process:
            yield process
            if process.poll() is not None:
                raise RuntimeError(f"its worker has ended: {self.why()}")

    @contextmanager
    def producing(self) -> Iterator[Callable[[int, float, float], None]]:
        """Give a function that creates so many jobs, each so many seconds after the start of the one before."""
        with self.running(self.contestant.produce) as process:
            answered(process, self)

            def order(count: int, least: float, most: float) -> None:
                ask(process, f"{count} {least} {most}")
                answered(process, self)

            yield order

    @contextmanager
    def running(self, command: str, talks: bool = True) -> Iterator[subprocess.Popen[str]]:
        """Run a process of the contestant until the end of the block; one that talks is listened to."""
        words = command.format(bin=self._bin, url=self.server.url).split()
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                words,
                cwd=SIDES,
                env=self._environ,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE if talks else log,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            for pipe in filter(None, (process.stdin, process.stdout)):
                with suppress(BrokenPipeError):
                    pipe.close()
            process.wait()


def ask(process: subprocess.Popen[str], line: str) -> None:
    pipe: IO[str] | None = process.stdin
    assert pipe
    with suppress(BrokenPipeError):  # the missing answer tells
        pipe.write(f"{line}\n")
        pipe.flush()


def answered(process: subprocess.Popen[str], entry: Entry) -> str:
    """Read one line of a process; raise RuntimeError with its last words when it has ended."""
    assert process.stdout
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(entry.why())
    return line
