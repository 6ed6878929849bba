"""The command line against a fresh profile: in this process for breadth, as a process for what only that shows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from shampoo_queue import Shampoo
from shampoo_queue.cli.program import shampoo
from tests.queue import Engine, Queue

PROGRAM = [sys.executable, "-m", "shampoo_queue.cli"]
UNSET = dict.fromkeys(f"SHAMPOO_{name}" for name in ("URL", "PROFILE", "OPERATOR", "CLIENT", "HOLDER"))


@dataclass
class Ended:
    """How one run of the program ended."""

    status: int
    out: bytes
    err: str

    @property
    def json(self) -> Any:
        """The one JSON document on standard output."""
        return json.loads(self.out)

    @property
    def refusal(self) -> str:
        """The code of the refusal, which is the one line on standard error; standard output must be empty."""
        assert self.out == b""
        assert self.err.count("\n") == 1, self.err
        code, colon, message = self.err.partition(": ")
        assert colon
        assert message.strip()
        return f"{self.status} {code}"


class Cli:
    """The program, with the profile under test in its environment."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.env = {"SHAMPOO_URL": queue.engine.url, "SHAMPOO_PROFILE": queue.profile, "SHAMPOO_OPERATOR": "operator"}

    def run(self, *arguments: str, input: bytes = b"", env: Mapping[str, str | None] | None = None) -> Ended:
        """Run inside this process, with pipes for streams."""
        environment = UNSET | self.env | dict(env or {})
        result = CliRunner().invoke(shampoo, list(arguments), input=input, env=environment)
        return Ended(result.exit_code, result.stdout_bytes, result.stderr_bytes.decode())

    def done(self, *arguments: str, input: bytes = b"", env: Mapping[str, str | None] | None = None) -> Any:
        """Run a line that must succeed, and give its answer."""
        ended = self.run(*arguments, input=input, env=env)
        assert ended.status == 0, ended.err
        return ended.json

    def environment(self, env: Mapping[str, str] | None = None) -> dict[str, str]:
        """The environment of a process of its own."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("SHAMPOO_")}
        return kept | self.env | dict(env or {})

    def process(
        self, *arguments: str | bytes, input: bytes | None = b"", env: Mapping[str, str] | None = None, **options: Any
    ) -> Ended:
        """Run as a process of its own."""
        options.setdefault("stdout", subprocess.PIPE)
        options.setdefault("stderr", subprocess.PIPE)
        ran = subprocess.run([*PROGRAM, *arguments], input=input, env=self.environment(env), timeout=30, **options)
        return Ended(ran.returncode, ran.stdout or b"", (ran.stderr or b"").decode(errors="surrogateescape"))

    def shell(self, line: str, env: Mapping[str, str] | None = None) -> Ended:
        """Run a line of the shell in which ``$SHAMPOO`` is the program."""
        ran = subprocess.run(
            ["bash", "-c", f'shampoo() {{ "{sys.executable}" -m shampoo_queue.cli "$@"; }}; {line}'],
            env=self.environment(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=30,
        )
        return Ended(ran.returncode, ran.stdout, ran.stderr.decode())


@pytest.fixture(scope="session")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """One embedded server that stays up for all tests of the command line."""
    folder: Path = tmp_path_factory.mktemp("cli")
    url = f"embedded://{folder}"
    with Shampoo.connect(url):
        yield Engine("embedded", url, lambda: None)


@pytest.fixture
def engine(embedded: Engine) -> Engine:
    return embedded


@pytest.fixture
def cli(queue: Queue) -> Cli:
    """The program, on a profile with conductor ``c`` and worker ``w`` who hold ``p``."""
    queue.principal("c", "p", conductor=True)
    queue.principal("w", "p")
    return Cli(queue)
