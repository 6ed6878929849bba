"""What goes wrong around the program: a wrong URL, a server that is away or unsafe, secrets, defects."""

from __future__ import annotations

import base64
import json
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import quote

import pytest

from shampoo_queue.cli.program import _status
from tests import servers
from tests.cli.conftest import Cli
from tests.servers import Server, free_port

SECRET = "s3cr€t/päss@wörd"
SPELLED = quote(SECRET, safe="")
GIVEN_AWAY = [SECRET, SPELLED, base64.b64encode(SECRET.encode()).decode(), "s3cr", "wörd", SPELLED[-12:]]


@pytest.fixture(scope="module")
def unsafe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that keeps nothing on disk and evicts keys, behind a password."""
    options = ("--requirepass", SECRET, "--maxmemory-policy", "allkeys-lru")
    with Server(servers.valkey(), tmp_path_factory.mktemp("unsafe"), *options) as server:
        yield server


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost",
        "http://localhost",
        "redis://localhost:port",
        "redis://localhost:99999",
        "redis://localhost/0?socket_timeout=soon",
        "redis://localhost/0?nonsense=1",
        "redis+sentinel://localhost",
        "redis+sentinel://localhost/service/x",
        "redis+sentinel://localhost/service?socket_timeout",
        "redis+sentinel://localhost:99999/service",
        "redis+cluster://localhost?socket_timeout=soon",
        "redis+cluster://[::1",
        "redis+cluster://",
    ],
)
def test_a_wrong_url_is_a_wrong_configuration(cli: Cli, url: str) -> None:
    assert cli.run("principal", "list", "--url", url).refusal == "2 configuration"


@pytest.mark.parametrize("profile", ["Ä", "-x", "UP", "", "x" * 65, "\udcff", "a\n"])
def test_a_wrong_profile_is_a_wrong_configuration(cli: Cli, profile: str) -> None:
    assert cli.run("principal", "list", f"--profile={profile}").refusal == "2 configuration"
    assert profile == "" or cli.run("task", "list", env={"SHAMPOO_PROFILE": profile}).refusal == "2 configuration"


def test_a_server_that_is_away_is_unavailable(cli: Cli) -> None:
    for url in (f"redis://127.0.0.1:{free_port()}/0", "unix:///nowhere/redis.sock", "embedded:///dev/null/x"):
        assert cli.run("call", "job_claim", "--as", "w", "--url", url).refusal == "3 unavailable"


def test_a_server_without_memory_is_unavailable(cli: Cli, unsafe: Server) -> None:
    unsafe.call("CONFIG", "SET", "maxmemory", "1", "maxmemory-policy", "noeviction")
    ended = cli.run("task", "add", "u", "--url", unsafe.url)
    unsafe.call("CONFIG", "SET", "maxmemory", "0", "maxmemory-policy", "allkeys-lru")
    assert (ended.status, ended.out) == (3, b"")
    assert ended.err.splitlines()[-1].startswith("unavailable: queue unavailable: it is out of memory")


class Cut:
    """A door to a server that loses the answer to the first script run, and refuses the second as out of memory."""

    def __init__(self, server: Server) -> None:
        self._server, self._runs = server, 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def _accept(self) -> None:
        with suppress(OSError):  # the listener was closed
            while True:
                self._serve(self._listener.accept()[0])

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", self._server.port)) as server:
            while asked := client.recv(1 << 20):
                run = b"EVALSHA" in asked
                self._runs += run
                if run and self._runs > 1:
                    client.sendall(b"-OOM command not allowed\r\n")
                    continue
                server.sendall(asked)
                answered = server.recv(1 << 20)
                if run:
                    return
                client.sendall(answered)

    def close(self) -> None:
        self._listener.close()


def test_a_call_whose_answer_was_lost_can_be_asked_again(cli: Cli, tmp_path: Path) -> None:
    create = ["call", "job_create", "--as", "c", "--kind", "k", "--project", "p"]
    with Server(servers.valkey(), tmp_path) as server, closing(Cut(server)) as cut:
        cli.env["SHAMPOO_URL"] = server.url
        cli.done("principal", "add", "c", "--conductor", "--grant", "p")
        cli.done(*create)  # so that the server knows the script
        lost = cli.run(*create, "--url", f"redis://127.0.0.1:{cut.port}/0")
        assert lost.status == 3
        hint = re.search(r"it may have been carried out: ask again with (--request-id) '(\S+)'\n$", lost.err)
        assert hint, lost.err
        again = cli.run(*create, *hint.groups())
        assert again.err.endswith("replayed: true\n")
        created = json.loads(cli.run("history").out)["events"]
    assert [event["entity_id"] for event in created if event["event"] == "job.created"][1:] == [again.json["job_id"]]


def test_a_folder_that_cannot_hold_a_server_is_told_in_one_line(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "queue"
    (folder / "appendonlydir").mkdir(parents=True)
    (folder / "appendonlydir" / "appendonly.aof.manifest").write_text("nonsense\n")
    folder.chmod(0o700)
    ended = cli.run("task", "list", "--url", f"embedded://{folder}")
    assert ended.refusal == "3 unavailable"
    assert "damaged" in ended.err


def test_what_is_unsafe_about_a_server_is_told_beside_the_answer(cli: Cli, unsafe: Server) -> None:
    ended = cli.run("task", "list", "--url", unsafe.url)
    assert (ended.status, ended.json) == (0, {"tasks": [], "count": 0})
    assert len(ended.err.splitlines()) == 2
    assert all(line.startswith("warning: redis://***@127.0.0.1:") for line in ended.err.splitlines())
    assert not any(secret in ended.err for secret in GIVEN_AWAY)


@pytest.mark.parametrize(
    "url",
    [
        "redis://:{secret}x@{unsafe}/0",
        "redis://user:{secret}@{unsafe}/0",
        "redis://{unsafe}/0?password={secret}x",
        "redis://:{secret}@{away}/0",
        "rediss://{away}/0?ssl_password={secret}",
        "redis+sentinel://:{secret}@{away}/service",
        "redis+sentinel://{away}/service?sentinel_password={secret}",
        "redis+cluster://:{secret}@{away}",
        "redis://:{secret}@{away}/0?socket_timeout=soon",
        "redis+cluster://:{secret}@{away}?socket_timeout=soon",
        "redis://:{secret}@[{away}",
        "redis+cluster://:{secret}@[{away}",
        "redis://user:s3cr/wörd@{away}",
        "redis://user:two wörds s3cr@{away}",
        "http://:{secret}@{away}",
    ],
)
def test_no_secret_of_the_url_is_shown(cli: Cli, unsafe: Server, url: str) -> None:
    url = url.format(secret=SPELLED, unsafe=f"127.0.0.1:{unsafe.port}", away=f"127.0.0.1:{free_port()}")
    for words in (["call", "job_claim", "--as", "w"], ["task", "list"], ["task", "nonsense", url], [url]):
        ended = cli.run(*words, "--url", url)
        shown = ended.err + ended.out.decode()
        assert not any(secret in shown for secret in GIVEN_AWAY), shown
        assert ended.status in (2, 3), shown
        assert "Traceback" not in shown


def test_a_refused_password_is_told_with_the_host(cli: Cli, unsafe: Server) -> None:
    ended = cli.run("task", "list", "--url", f"redis://:wrong@127.0.0.1:{unsafe.port}/0")
    assert ended.refusal == "3 unavailable"
    assert f"127.0.0.1:{unsafe.port}" in ended.err
    assert "password" in ended.err


def test_a_defect_of_the_program_is_one_line_that_tells_the_place_and_no_content(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for error, told in ((KeyError(SECRET), "KeyError"), (OSError(28, "No space", SECRET), r"OSError \(No space\)")):
        with pytest.raises((KeyError, OSError)) as raised:
            raise error
        assert _status(raised.value, []) == 1
        assert re.fullmatch(rf"internal: internal error: {told} at test_failures\.py:\d+\n", capsys.readouterr().err)


def test_a_defect_is_one_line_without_a_traceback(cli: Cli) -> None:
    cli.queue.command("SET", cli.queue.key("principal", "broken"), "no hash")
    ended = cli.run("call", "job_claim", "--as", "broken")
    cli.queue.command("DEL", cli.queue.key("principal", "broken"))
    assert ended.refusal == "1 internal"
    assert re.match(r"internal: internal error: see the log for ([0-9a-f]{12}): internal error \1 in ", ended.err)
    assert re.search(r" in _?[a-z_]+\.lua:\d+: ", ended.err)


def test_a_job_set_aside_is_a_warning_beside_the_answer(cli: Cli) -> None:
    job_id = cli.queue.create(cli.queue.shampoo.client("c"), project="p")[0]
    key = cli.queue.key("job", job_id)
    cli.queue.command("HSET", key, "attempts", "many")
    ended = cli.run("call", "job_claim", "--as", "w")
    cli.queue.command("HSET", key, "attempts", "0")
    cli.done("expire")
    assert (ended.status, ended.json) == (0, {"claimed": False})
    assert re.fullmatch(rf"warning: job {job_id} .*\n", ended.err)
