"""``shampoo pump`` as people run it."""

from __future__ import annotations

import base64
import json
import signal
import subprocess
import sys
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
        (["--secrets", "TWICE"], "configuration: the secrets file is wrong: a name is given twice in one object"),
        (["--lease", "0"], "Usage: "),
        (["--concurrency", "0"], "Usage: "),
        (["--kind", ""], "configuration: handler of ''"),
    ],
)
def test_what_is_wrong_is_said_in_one_line_at_the_start(
    queue: Queue, tmp_path: Path, arguments: list[str], said: str
) -> None:
    contents = {"FILE": f'{{"p": "{KEY.decode()}"}}', "TWICE": f'{{"p": "{SECRET}", "p": "{SECRET}"}}'}
    line = [secrets_file(tmp_path, contents[one]) if one in contents else one for one in arguments]
    ended = Cli(queue).run("pump", "--as", "w", *line)
    assert ended.status == 2
    assert ended.err.startswith(said)
    assert not [text for text in SHOWN if text in ended.err]


@pytest.mark.parametrize("path", ["/nowhere", __file__])
def test_certificates_that_cannot_be_read_are_said_with_their_variable(queue: Queue, path: str) -> None:
    ended = Cli(queue).process("pump", "--as", "w", "--burst", env={"SSL_CERT_FILE": path})
    assert ended.refusal == "2 configuration"
    assert "from SSL_CERT_FILE" in ended.err


def test_a_file_without_a_secret_for_a_project_sends_none_of_its_jobs(queue: Queue, tmp_path: Path) -> None:
    with Sink() as sink:
        sender = Sender(queue)
        job_id = sender.create(sink.uri())
        arguments = ["pump", "--as", "w", "--allow-network", "127.0.0.0/8", "--burst", "--secrets"]
        ended = Cli(queue).process(*arguments, secrets_file(tmp_path, "{}"))
        assert ended.status == 0
        assert "carry no signature" not in ended.err
        assert sender.client.job(job_id).reason == "signing: no secret is configured for the project of this job"
        assert not sink.connections


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
