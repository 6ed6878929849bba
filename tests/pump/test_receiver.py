"""The receiver of the examples: with a pump, against forged and broken requests, and as its README says."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from standardwebhooks import Webhook

from shampoo_queue import Shampoo
from tests.cli.conftest import Cli
from tests.conftest import REAL
from tests.pump.queue import Sender
from tests.queue import Queue

ROOT = Path(__file__).parents[2]
SECRET = "whsec_" + base64.b64encode(b"a secret, a secret, a secret").decode()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def reached(port: int, program: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    """Wait until a program listens."""
    until = time.monotonic() + 10
    while time.monotonic() < until and program.poll() is None:
        try:
            return socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.02)
    raise AssertionError("nothing listens")


@contextmanager
def receiver() -> Iterator[int]:
    """Run the example, and give its port."""
    port = free_port()
    line = [sys.executable, "-m", "examples.receiver", str(port)]
    with subprocess.Popen(
        line, cwd=ROOT, env=os.environ | {"SECRET": SECRET}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as program:
        try:
            reached(port, program)
            yield port
        finally:
            program.kill()


def answer(port: int, fence: str, body: bytes = b"old", secret: str = SECRET, job_id: str = "an-id") -> int:
    """Send by hand what a pump would send, and give the status."""
    now = datetime.now(UTC)
    headers = {
        "Webhook-Id": job_id,
        "Webhook-Timestamp": str(int(now.timestamp())),
        "Webhook-Signature": Webhook(secret).sign(job_id, now, body.decode()),
        "Shampoo-Fence": fence,
    }
    request = urllib.request.Request(f"http://127.0.0.1:{port}/", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as got:
            return int(got.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


@pytest.mark.parametrize("engine", REAL, indirect=True)
def test_the_receiver_of_the_examples_takes_deliveries_and_refuses_forged_and_old_ones(
    queue: Queue, tmp_path: Path
) -> None:
    with receiver() as port:
        sender = Sender(queue)
        job_id = sender.create(f"http://127.0.0.1:{port}/", body="hello")
        arguments = ["pump", "--as", "w", "--allow-network", "127.0.0.0/8", "--burst", "--secrets"]
        secrets = tmp_path / "secrets.json"
        secrets.touch(0o600)
        secrets.write_text(json.dumps({"*": SECRET}))
        assert Cli(queue).process(*arguments, str(secrets)).status == 0
        assert sender.client.job(job_id).result_ref == "http:204"
        (fence,) = sender.claims(job_id)
        assert answer(port, str(fence + 1), job_id=job_id) == 204
        assert answer(port, str(fence), job_id=job_id) == 409
        assert answer(port, str(fence)) == 204
        assert answer(port, "none") == 401
        assert answer(port, "9", secret="whsec_" + base64.b64encode(b"x" * 24).decode()) == 401


@pytest.mark.parametrize(
    "lines, status",
    [
        ([], 411),
        (["Content-Length: many"], 411),
        (["Content-Length: -1"], 411),
        (["Transfer-Encoding: chunked"], 411),
        (["Content-Length: 99999999999"], 413),
        (["Content-Length: 0"], 401),
    ],
)
def test_a_request_whose_length_is_not_told_is_refused_at_once(lines: list[str], status: int) -> None:
    with receiver() as port, socket.create_connection(("127.0.0.1", port), 5) as caller:
        caller.sendall("\r\n".join(["POST / HTTP/1.1", "Host: x", *lines, "", ""]).encode())
        assert caller.recv(100).split()[1] == str(status).encode()


def test_silent_clients_hold_up_nobody() -> None:
    with receiver() as port, ExitStack() as silent:
        for begun in (b"", b"POST / HTTP/1.1\r\n", b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nab"):
            caller = silent.enter_context(socket.create_connection(("127.0.0.1", port), 5))
            caller.sendall(begun)
        assert answer(port, "1") == 204


@pytest.mark.slow
def test_a_silent_client_is_hung_up_on() -> None:
    with receiver() as port, socket.create_connection(("127.0.0.1", port), 20) as caller:
        caller.sendall(b"POST / HTTP/1.1\r\n")
        assert caller.recv(1) == b""


def test_without_a_port_and_a_secret_the_receiver_says_how_it_is_used() -> None:
    line = [sys.executable, "-m", "examples.receiver"]
    ran = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=20)
    assert ran.returncode == 1
    assert "    SECRET=whsec_… python -m examples.receiver 8080\n" in ran.stderr
    assert "Traceback" not in ran.stderr


@contextmanager
def terminal(script: str, folder: Path, url: str) -> Iterator[subprocess.Popen[str]]:
    """Run commands as a shell does; the last one gets the signals. Kill it when the test leaves it running."""
    *before, last = script.strip().splitlines()
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with subprocess.Popen(
        ["bash", "-ec", "\n".join([*before, f"exec env {last}"])],
        cwd=folder,
        env=os.environ | {"SHAMPOO_URL": url, "PATH": path, "PYTHONUNBUFFERED": "1"},
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as program:
        try:
            yield program
        finally:
            program.kill()


def test_the_commands_of_the_readme_deliver_one_job(tmp_path: Path) -> None:
    section = (ROOT / "examples" / "README.md").read_text("utf-8").split("## [receiver.py]", 1)[1].split("\n## ", 1)[0]
    (block,) = re.findall(r"```sh\n(.*?)```", section, re.DOTALL)
    port = free_port()
    receive, deliver, create = re.split("^# .*\n", block.replace("8080", str(port)), flags=re.MULTILINE)[1:]
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    with Shampoo.connect(f"embedded://{tmp_path}/data") as shampoo, ExitStack() as open_terminals:
        for line in ("add conductor-1 --conductor --grant examples",):
            with terminal(f"shampoo principal {line}", tmp_path, shampoo.url) as program:
                assert program.wait(20) == 0
        receiving = open_terminals.enter_context(terminal(receive, tmp_path, shampoo.url))
        reached(port, receiving)
        pumping = open_terminals.enter_context(terminal(deliver, tmp_path, shampoo.url))
        with terminal(create, tmp_path, shampoo.url) as program:
            assert program.wait(20) == 0
        assert receiving.stdout
        job_id, body = receiving.stdout.readline().split(maxsplit=1)
        assert body == "hello\n"
        pumping.send_signal(signal.SIGINT)
        output, _ = pumping.communicate(timeout=20)
        assert pumping.returncode == 0, output
        assert shampoo.client("conductor-1").job(job_id).result_ref == "http:204"
        receiving.send_signal(signal.SIGINT)
        output, _ = receiving.communicate(timeout=20)
        assert "Traceback" not in output
        assert (tmp_path / "secrets.json").stat().st_mode & 0o077 == 0
