"""``shampoo serve`` as a process: where it listens, what it says, and how it ends."""

from __future__ import annotations

import json
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from shampoo_queue.cli.program import run
from shampoo_queue.errors import ConfigurationError
from shampoo_queue.server.serve import Place, bind, url
from tests.queue import Queue
from tests.server.conftest import token
from tests.servers import wait_until

PROGRAM = [sys.executable, "-m", "shampoo_queue.cli"]


ON_EMBEDDED = pytest.mark.parametrize("engine", ["embedded"], indirect=True)


class Running:
    """The program as a process, and what it wrote."""

    def __init__(self, process: subprocess.Popen[bytes], errors: Path) -> None:
        self.process, self._errors = process, errors
        assert process.stdout
        self.said = json.loads(process.stdout.readline() or b"{}")

    @property
    def errors(self) -> str:
        return self._errors.read_text()

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(20)


@contextmanager
def serving(queue: Queue, folder: Path, *options: str) -> Iterator[Running]:
    command = [*PROGRAM, "serve", "--url", queue.engine.url, "--port", "0", "--json", *options]
    log = folder / "errors"
    with log.open("wb") as errors, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors) as process:
        try:
            yield Running(process, log)
        finally:
            process.kill()


Refused = Callable[..., tuple[int, str]]


@pytest.fixture
def refused(capfd: pytest.CaptureFixture[str]) -> Refused:
    """Run the command to its end; give the exit status and what was said."""

    def run_(*options: str) -> tuple[int, str]:
        status = run(["serve", "--url", "redis://127.0.0.1:1", *options])
        out, said = capfd.readouterr()
        assert out == ""
        return status, said

    return run_


@ON_EMBEDDED
def test_it_says_where_it_serves_and_stops_with_nothing_to_report(queue: Queue, tmp_path: Path) -> None:
    boss = token(queue, "boss", conductor=True)
    with serving(queue, tmp_path) as running:
        assert running.said["pid"] == running.process.pid
        headers = {"Authorization": f"Bearer {boss}"}
        reply = httpx2.post(f"{running.said['url']}/v1/tools/job_create", json={"kind": "k"}, headers=headers)
        assert (reply.status_code, reply.json()["state"]) == (200, "queued")
        assert httpx2.get(f"{running.said['url']}/readyz").json()["status"] == "ready"
        for path in ("/tools", "/ui", "/mcp"):
            assert httpx2.get(f"{running.said['url']}{path}").status_code in (200, 303, 405), path
        lost = httpx2.get(f"{running.said['url']}/v1/tools/")
        assert (lost.status_code, lost.json()["error"]["code"]) in ((404, "not_found"), (405, "method_not_allowed"))
        assert running.end() == 0
    assert f"serving {running.said['url']} with " in running.errors
    assert "POST /v1/tools/job_create 200" in running.errors
    assert "Traceback" not in running.errors
    assert boss.split("_")[2] not in running.errors


@ON_EMBEDDED
def test_ctrl_c_stops_it_too(queue: Queue, tmp_path: Path) -> None:
    with serving(queue, tmp_path, "--log-level", "warning") as running:
        assert running.end(signal.SIGINT) == 0
    assert running.errors.count("\n") == 1


@ON_EMBEDDED
def test_a_second_signal_ends_it_at_once(queue: Queue, tmp_path: Path) -> None:
    boss = token(queue, "boss", conductor=True)
    with serving(queue, tmp_path, "--grace", "60") as running:
        port = int(running.said["url"].rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as connection:
            head = f"POST /v1/tools/job_claim HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {boss}\r\n"
            connection.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 9\r\n\r\n".encode())
            wait_until(lambda: httpx2.get(f"{running.said['url']}/livez").status_code == 200, "it is there")
            running.process.send_signal(signal.SIGTERM)
            wait_until(lambda: "stopping: 1 calls" in running.errors, "it drains")
            assert running.end() == 130


def test_it_refuses_to_send_tokens_in_the_clear(refused: Refused) -> None:
    for host in ("0.0.0.0", "::", "192.0.2.1"):
        status, said = refused("--host", host)
        assert status == 2
        assert "refusing to listen beyond this machine without encryption" in said
        assert said.count("\n") == 1


@ON_EMBEDDED
def test_behind_a_proxy_it_listens_everywhere(queue: Queue, tmp_path: Path) -> None:
    with serving(queue, tmp_path, "--host", "0.0.0.0", "--behind-proxy") as running:
        port = running.said["url"].rpartition(":")[2]
        assert httpx2.get(f"http://127.0.0.1:{port}/livez").status_code == 200
        assert running.end() == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--tls-cert", "/nowhere"), "go together"),
        (("--tls-cert", "/nowhere", "--tls-key", "/nowhere"), "No such file"),
        (("--tls-cert", __file__, "--tls-key", __file__), "do not fit together"),
        (("--host", "no.such.host.invalid"), "cannot be found"),
        (("--open-metrics", "--behind-proxy"), "does not go with"),
        (("--jwt-issuer", "https://login.example"), "go together"),
        (("--port", "65536"), "65536"),
        (("--log-level", "loud"), "loud"),
    ],
)
def test_what_cannot_be_right_is_said_in_one_line(refused: Refused, options: tuple[str, ...], said: str) -> None:
    status, error = refused(*options)
    assert status == 2
    assert said in error
    assert "Traceback" not in error


def test_a_port_in_use_is_said(refused: Refused) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        status, said = refused("--port", str(taken.getsockname()[1]))
    assert (status, "Address already in use" in said, said.count("\n")) == (2, True, 1)


def test_a_redis_that_is_away_at_the_start_is_unavailable(refused: Refused) -> None:
    status, said = refused("--port", "0")
    assert (status, said.startswith("unavailable: "), said.count("\n")) == (3, True, 1)


def test_a_missing_extra_is_named(refused: Refused, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)  # as if it were not installed
    status, said = refused("--port", "0")
    assert (status, "pip install 'shampoo_queue[serve]'" in said, said.count("\n")) == (2, True, 1)


@ON_EMBEDDED
def test_with_a_certificate_it_serves_https(queue: Queue, tmp_path: Path) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *names]
    subprocess.run([*make, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
    with serving(queue, tmp_path, "--tls-cert", str(cert), "--tls-key", str(key)) as running:
        assert running.said["url"].startswith("https://127.0.0.1:")
        trusted = ssl.create_default_context(cafile=str(cert))
        assert httpx2.get(f"{running.said['url']}/livez", verify=trusted).json()["status"] == "live"
        assert running.end() == 0


def test_the_url_of_an_ipv6_address_has_brackets() -> None:
    with bind(Place("::1", 0)) as listening:
        assert url(Place("::1", 0), listening) == f"http://[::1]:{listening.getsockname()[1]}"


def test_a_name_of_this_machine_is_no_danger() -> None:
    with bind(Place("localhost", 0)) as listening:
        assert listening.getsockname()[0] == "127.0.0.1"
    with pytest.raises(ConfigurationError, match="refusing"):
        bind(Place("0.0.0.0", 0))
