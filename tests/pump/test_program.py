"""``shampoo pump`` as people run it, and the receiver of the examples."""

from __future__ import annotations

import base64
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from standardwebhooks import Webhook

from tests.cli.conftest import PROGRAM, Cli
from tests.conftest import REAL
from tests.pump.queue import Sender
from tests.pump.sink import Sink, silence
from tests.queue import Queue

pytestmark = pytest.mark.parametrize("engine", REAL, indirect=True)

KEY = b"MARKER-SECRET-MARKER-SECRET!"
SECRET = "whsec_" + base64.b64encode(KEY).decode()
SHOWN = (KEY.decode(), SECRET, SECRET.removeprefix("whsec_"), KEY.hex(), "MARKER-PAYLOAD")
RECEIVER = Path(__file__).parents[2] / "examples" / "receiver.py"


def secrets_file(folder: Path, content: str | None = None) -> str:
    path = folder / "secrets.json"
    path.write_text(json.dumps({"*": SECRET}) if content is None else content)
    path.chmod(0o600)
    return str(path)


def test_a_burst_delivers_what_is_there_signed_and_says_no_secret(queue: Queue, tmp_path: Path) -> None:
    with Sink() as sink:
        sender = Sender(queue)
        done = sender.create(sink.uri(), body="MARKER-PAYLOAD")
        failed = sender.create(sink.on("/no", 400), body="MARKER-PAYLOAD")
        refused = sender.create("http://10.0.0.1/MARKER-PAYLOAD")
        arguments = ["pump", "--as", "w", "--allow-network", "127.0.0.0/8", "--burst", "--secrets"]
        ended = Cli(queue).process(*arguments, secrets_file(tmp_path))
        assert (ended.status, ended.out) == (0, b"")
        for job_id, outcome in ((done, "completed"), (failed, "failed"), (refused, "failed")):
            assert sum(f"id={job_id}" in line and f"outcome={outcome}" in line for line in ended.err.splitlines()) == 1
            assert sender.client.job(job_id).state == outcome
        for request in sink.requests:
            Webhook(SECRET).verify(request.body, request.headers, json_parse=False)
        told = ended.err + repr(queue.shampoo.history(limit=1000)) + repr([one.raw_headers for one in sink.requests])
        assert not [text for text in SHOWN if text in told]


def test_the_environment_says_what_the_line_does_not(queue: Queue, tmp_path: Path) -> None:
    with Sink() as sink:
        sender = Sender(queue)
        job_id = sender.create(sink.uri())
        ended = Cli(queue).process(
            "pump",
            "--burst",
            env={
                "SHAMPOO_CLIENT": "w",
                "SHAMPOO_PUMP_ALLOW_NETWORKS": "10.0.0.0/8, 127.0.0.0/8,",
                "SHAMPOO_PUMP_SECRETS": secrets_file(tmp_path),
            },
        )
        assert ended.status == 0
        assert sender.client.job(job_id).state == "completed"
        assert "webhook-signature" in sink.requests[0].headers


def test_without_leave_this_machine_is_not_reached_and_without_secrets_that_is_said(queue: Queue) -> None:
    with Sink() as sink:
        sender = Sender(queue)
        job_id = sender.create(sink.uri())
        ended = Cli(queue).process("pump", "--as", "w", "--burst")
        assert ended.status == 0
        assert ended.err.count("deliveries carry no signature") == 1
        assert sender.client.job(job_id).reason == "refused: the address is not public (loopback)"
        assert not sink.connections


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--allow-network", "10.0.0.1/8"], "configuration: not a network in CIDR form: 10.0.0.1/8 has host bits set"),
        (["--secrets", "/nowhere"], "configuration: the secrets file cannot be read: No such file or directory"),
        (["--secrets", "FILE"], "configuration: a secret of project 'p' is not base64, with or without whsec_ before"),
        (["--lease", "0"], "Usage: "),
        (["--concurrency", "0"], "Usage: "),
        (["--kind", ""], "configuration: handler of ''"),
    ],
)
def test_what_is_wrong_is_said_in_one_line_at_the_start(
    queue: Queue, tmp_path: Path, arguments: list[str], said: str
) -> None:
    path = secrets_file(tmp_path, '{"p": "MARKER-SECRET-MARKER-SECRET!"}')
    ended = Cli(queue).run("pump", "--as", "w", *[path if one == "FILE" else one for one in arguments])
    assert ended.status == 2
    assert ended.err.startswith(said)
    assert "MARKER" not in ended.err


def test_a_missing_extra_is_said_with_the_way_to_mend_it(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "httpcore2", None)
    ended = Cli(queue).run("pump", "--as", "w")
    assert ended.refusal == "2 configuration"
    assert "pip install 'shampoo_queue[pump]'" in ended.err


def test_a_principal_that_is_none_is_refused(queue: Queue) -> None:
    ended = Cli(queue).process("pump", "--as", "nobody", "--burst")
    assert ended.status == 1
    assert "unauthenticated" in ended.err


def test_sigterm_ends_a_waiting_pump_at_once(queue: Queue) -> None:
    with Sink() as sink:
        sender = Sender(queue)
        cli = Cli(queue)
        line = [*PROGRAM, "pump", "--as", "w", "--allow-network", "127.0.0.1/32"]
        with subprocess.Popen(line, env=cli.environment(), stderr=subprocess.PIPE) as program:
            try:
                assert sender.ended(sender.create(sink.uri())).state == "completed"
                program.send_signal(signal.SIGTERM)
                assert program.wait(10) == 0
            finally:
                program.kill()


def test_a_second_interrupt_ends_a_delivery_that_hangs_and_gives_its_job_back(queue: Queue) -> None:
    with Sink() as sink:
        sender = Sender(queue)
        job_id = sender.create(sink.on("/", silence))
        line = [*PROGRAM, "pump", "--as", "w", "--allow-network", "127.0.0.1/32"]
        with subprocess.Popen(line, env=Cli(queue).environment(), stderr=subprocess.DEVNULL) as program:
            try:
                sink.wait_for(1)
                program.send_signal(signal.SIGINT)
                with pytest.raises(subprocess.TimeoutExpired):
                    program.wait(0.5)  # the delivery has its grace
                program.send_signal(signal.SIGINT)
                assert program.wait(10) == 130
            finally:
                program.kill()
        assert sender.client.job(job_id).state == "queued"
        assert sender.reasons(job_id) == ["drained"]


@contextmanager
def receiver() -> Iterator[int]:
    """Run the example, and give its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    line = [sys.executable, str(RECEIVER), str(port)]
    with subprocess.Popen(
        line, env=os.environ | {"SECRET": SECRET}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as program:
        try:
            until = time.monotonic() + 10
            while time.monotonic() < until and program.poll() is None:
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    time.sleep(0.02)
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


def test_the_receiver_of_the_examples_takes_deliveries_and_refuses_forged_and_old_ones(
    queue: Queue, tmp_path: Path
) -> None:
    with receiver() as port:
        sender = Sender(queue)
        job_id = sender.create(f"http://127.0.0.1:{port}/", body="hello")
        arguments = ["pump", "--as", "w", "--allow-network", "127.0.0.0/8", "--burst", "--secrets"]
        assert Cli(queue).process(*arguments, secrets_file(tmp_path)).status == 0
        assert sender.client.job(job_id).result_ref == "http:204"
        (fence,) = sender.claims(job_id)
        assert answer(port, str(fence + 1), job_id=job_id) == 204
        assert answer(port, str(fence), job_id=job_id) == 409
        assert answer(port, str(fence)) == 204
        assert answer(port, "none") == 401
        assert answer(port, "9", secret="whsec_" + base64.b64encode(b"x" * 24).decode()) == 401
