"""One pump as a process of its own, for the tests that stop processes.

It finds every name at 127.0.0.1. Told where to stop, it stops itself there once, as if from outside: while it looks a
name up, or at the very last moment, when it has connected and would send.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpcore2

from shampoo_queue import Shampoo
from shampoo_queue.pump import Limits, Patience, Pump
from shampoo_queue.pump.network import Address, Connector

LEASE_SECONDS = 1


class Stopping(Connector):
    """Connect to 127.0.0.1, and stop the process on the way."""

    def __init__(self, where: str) -> None:
        super().__init__((ipaddress.ip_network("127.0.0.0/8"),), self._look_up)
        self._where = where

    def _stop(self, where: str) -> None:
        if self._where == where:
            self._where = ""
            print(f"stopping: {where}", flush=True)
            os.kill(os.getpid(), signal.SIGSTOP)

    async def _look_up(self, host: str, port: int) -> list[Address]:
        self._stop("looking up")
        return [ipaddress.ip_address("127.0.0.1")]

    async def connect_tcp(self, *args: Any, **kwargs: Any) -> httpcore2.AsyncNetworkStream:
        stream = await super().connect_tcp(*args, **kwargs)
        self._stop("connected")
        return stream


def main(url: str, profile: str, holder: str, where: str) -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    pump = Pump(
        concurrency=8,
        lease_seconds=LEASE_SECONDS,
        limits=Limits(),
        patience=replace(Patience(), first_pause_seconds=0.1, most_pause_seconds=0.2),
        backoff_seconds=(0.01,),
    )
    pump._connector = Stopping(where)
    with Shampoo.connect(url, profile=profile, operator="operator") as shampoo:
        pump.run(shampoo, "w", holder=holder)


@contextmanager
def process(url: str, profile: str, holder: str, where: str = "") -> Iterator[subprocess.Popen[str]]:
    """Run one; it is killed at the end. Its standard output has its log when it is told where to stop."""
    line = [sys.executable, "-m", "tests.pump.child", url, profile, holder, where]
    folder = Path(__file__).parents[2]
    # A pipe that nobody reads would stop the process, too.
    out = subprocess.PIPE if where else subprocess.DEVNULL
    with subprocess.Popen(line, stdout=out, text=True, cwd=folder) as child:
        try:
            yield child
        finally:
            child.kill()


def wait_for_line(child: subprocess.Popen[str], text: str) -> None:
    """Read what a child says until a line holds this."""
    assert child.stdout is not None
    for line in child.stdout:
        if text in line:
            return
    raise AssertionError(f"the child ended without saying {text!r}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4])
