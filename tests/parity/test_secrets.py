"""Field report 50: passwords and tokens, planted wherever one can be, and looked for in everything that is written."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.cli.conftest import PROGRAM
from tests.conftest import IN_CI
from tests.contract.cast import PROJECT
from tests.parity.doors import HANDSHAKE, NOTHING, Agent, Http, message
from tests.parity.serving import Serve, environment, serve
from tests.queue import Engine, Queue
from tests.servers import Server, free_port, redis

MARKER = "s3cr/t:p@ss+w0rd"


def disguises(secret: str) -> list[str]:
    """Give the forms in which a secret may leak."""
    return [secret, quote(secret, safe=""), quote(secret), base64.b64encode(secret.encode()).decode()[:-4]]


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[Server]:
    """A server that wants a password."""
    program = redis()
    if program is None:
        assert not IN_CI, "redis-server is always there in CI"
        pytest.skip("there is no redis-server on PATH: apt-get install redis-server")
    with Server(program, tmp_path) as started:
        started.call("CONFIG", "SET", "requirepass", MARKER)
        yield started


def test_no_password_and_no_token_is_ever_shown(locked: Server, tmp_path: Path) -> None:
    """Planted as Redis' password and as tokens; then everything that was written anywhere is searched for them."""
    host = locked.url.partition("://")[2]
    url = f"redis://:{quote(MARKER, safe='')}@{host}"
    queue = Queue(Engine("locked", url, lambda: None))
    queue.principal("c", "", PROJECT, conductor=True)
    issued = [queue.shampoo.registry.issue_token("c", scope=scope) for scope in ("tools", "ops:write", "metrics")]
    said: list[str] = []
    with serve(url, "--log-level", "debug", "--with-extensions") as serving:
        said += over_http(queue, serving, [token.token for token in issued])
        agent = Agent(url, issued[0].token, HANDSHAKE)
        with agent.running():
            said.append(repr(agent.ask("job_create", '{"kind":""}', NOTHING)))
            said.append(repr(agent.ask("job_claim", "{}", NOTHING)))
        said.append(agent.err.decode())
    said += [serving.out.decode(), serving.err]
    said += failing(url, host, issued[0].token)
    said += [repr(queue.shampoo.history(limit=1000)), repr(queue.shampoo), repr(queue.snapshot())]
    everything = "\n".join(said)
    assert f"token={issued[0].token_id}" in serving.err  # the access log names who came, by the id
    secrets = [MARKER, *(token.token[17:] for token in issued)]
    leaked = [form for secret in secrets for form in disguises(secret) if form in everything]
    assert not leaked
    queue.close()


def over_http(queue: Queue, serving: Serve, credentials: list[str]) -> list[str]:
    """Ask for everything with every credential, also in places where none belongs, and give all that came back."""
    said = []
    door = Http(queue, serving)
    for token in credentials:
        sent = [(f"/v1/tools/{tool}", body) for tool in ("job_claim", "nope", token) for body in (b"{}", b"{", b"[]")]
        sent += [("/v1/tools/job_create", json.dumps({"kind": token, token: 1}).encode()), (f"/{token}?t={token}", b"")]
        sent += [("/mcp", b"{"), ("/mcp", message(1, HANDSHAKE, "nope", "{}", NOTHING))]
        for path, body in sent:
            for presented in (token, token[:-1] + "!", None):
                reply = door.post(path, body, presented, {"X-Request-Id": token, "Idempotency-Key": token})
                said.append(f"{dict(reply.headers)} {reply.text}")
        for path in ("/metrics", "/readyz", "/livez", "/", "/v1/tools", "/v1/openapi.json"):
            reply = door.http.get(f"{serving.url}{path}", headers={"Authorization": f"Bearer {token}"})
            said.append(f"{dict(reply.headers)} {reply.text}")
    door.close()
    # What a caller itself sends as an argument comes back to nobody but in the job's kind; that is its own affair.
    assert len(said) > 60
    return said


def failing(url: str, host: str, token: str) -> list[str]:
    """Run what cannot work: a wrong password, nobody at the address, an address that is none."""
    wrong = url.replace("@", quote("@" + MARKER, safe="") + "@")
    nobody = url.replace(host, f"127.0.0.1:{free_port()}")
    commands = (["serve", "--port", "0", "--log-level", "debug"], ["mcp"], ["token", "list"], ["token", "issue", "c"])
    targets = (wrong, nobody, url.replace("redis://", "http://"))
    lines = [[*command, "--url", target] for target in targets for command in commands]
    with ThreadPoolExecutor(4) as threads:
        said = list(threads.map(lambda line: failed(line, token), lines))
    assert any(host.partition(":")[0] in one for one in said)
    return said


def failed(line: list[str], token: str) -> str:
    """Run a line that must fail, and give all that it wrote."""
    ran = subprocess.run(
        [*PROGRAM, *line],
        env=environment(SHAMPOO_TOKEN=token),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
    )
    assert ran.returncode in (1, 2, 3)
    assert b"Traceback" not in ran.stderr
    return (ran.stderr + ran.stdout).decode()


@pytest.mark.parametrize("engine", ["embedded"], indirect=True)
def test_a_process_title_shows_no_token(engine: Engine, queue: Queue) -> None:
    queue.principal("c", conductor=True)
    token = queue.shampoo.registry.issue_token("c").token
    agent = Agent(engine.url, token, HANDSHAKE)
    with agent.running():
        for number in os.listdir("/proc"):
            with contextlib.suppress(OSError):
                assert token not in Path("/proc", number, "cmdline").read_text(errors="replace")
