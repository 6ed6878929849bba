"""``shampoo serve`` as a process: its address, its end, and every byte that it wrote."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property

from tests.cli.conftest import PROGRAM

SECONDS = 30.0


def environment(**more: str) -> dict[str, str]:
    """The environment of a process, without anything of ours that this one has."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SHAMPOO_")}
    return kept | more


class Serve:
    """One server process. Where it serves is known when it is first asked for; several may start side by side."""

    def __init__(self, target: str, *options: str) -> None:
        self._process = subprocess.Popen(
            [*PROGRAM, "serve", "--json", "--port", "0", "--url", target, *options],
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._said: list[bytes] = []
        self._listening = threading.Thread(target=self._listen)
        self._listening.start()
        self.out = b""

    def _listen(self) -> None:
        assert self._process.stderr
        self._said.extend(self._process.stderr)

    @cached_property
    def url(self) -> str:
        assert self._process.stdout
        self.out = self._process.stdout.readline()
        assert self.out, self.err
        return str(json.loads(self.out)["url"])

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @property
    def err(self) -> str:
        """What it wrote to standard error so far."""
        return b"".join(self._said).decode()

    def kill(self) -> None:
        """End it in the middle of whatever it does."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(SECONDS)

    def stop(self) -> int:
        """Ask it to stop, and give its exit status."""
        self._process.terminate()
        assert self._process.stdout and self._process.stderr
        try:
            status = self._process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise
        finally:
            self.out += self._process.stdout.read()
            self._listening.join(SECONDS)
            self._process.stdout.close()
            self._process.stderr.close()
        return status


@contextmanager
def serve(target: str, *options: str) -> Iterator[Serve]:
    """Serve while the block runs."""
    started = Serve(target, *options)
    try:
        assert started.url
        yield started
    finally:
        started.stop()
