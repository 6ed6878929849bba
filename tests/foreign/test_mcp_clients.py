"""MCP clients that others made, against the door: each works a job, or checks what it was made to check."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.foreign import clients
from tests.mcp.serving import EMBEDDED, PROGRAM, Serving
from tests.queue import Queue

pytestmark = EMBEDDED

HERE = Path(__file__).parent
BASELINE = HERE / "expected-failures.yml"
SCENARIOS = [
    ("server-initialize", "2025-11-25", 2),
    ("ping", "2025-11-25", 2),
    ("tools-list", "2025-11-25", 3),
    ("dns-rebinding-protection", "2025-11-25", 2),
    ("tools-list", "2026-07-28", 4),
    ("dns-rebinding-protection", "2026-07-28", 2),
    ("http-header-validation", "2026-07-28", 14),
    ("input-required-result-unsupported-methods", "2026-07-28", 2),
    ("server-stateless", "2026-07-28", 21),
]


@pytest.fixture
def token(queue: Queue) -> str:
    queue.principal("boss", "", conductor=True)
    return queue.shampoo.registry.issue_token("boss").token


@pytest.fixture
def serving(queue: Queue, token: str) -> Iterator[Serving]:
    """The doors over HTTP, open for clients that can send no header."""
    with Serving(queue.engine.url, unlocked=token) as started:
        yield started


@pytest.mark.parametrize("scenario, version, checks", SCENARIOS)
def test_the_conformance_suite_passes_with_the_four_named_baselines(
    serving: Serving, tmp_path: Path, scenario: str, version: str, checks: int
) -> None:
    clients.wanted("node")
    suite = clients.package("@modelcontextprotocol/conformance") / "dist/index.js"
    line = ["server", "--url", f"{serving.url}/mcp", "--scenario", scenario, "--spec-version", version]
    # A baselined check that passes fails the run, so only the scenario that has them gets the list.
    expected = ["--expected-failures", str(BASELINE)] if scenario == "server-stateless" else []
    ended = clients.run(clients.node(), suite, *line, *expected, home=tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    failures = len(expected) and 4
    assert f"Passed: {checks}/{checks + failures}, {failures} failed, 0 warnings" in ended.stdout


# Inspector ------------------------------------------------------------------------------------------------------


def inspector(*line: str, home: Path) -> subprocess.CompletedProcess[str]:
    """Run the Inspector on its command line."""
    program = clients.package("@modelcontextprotocol/inspector") / "clients/launcher/build/index.js"
    path = f"{clients.node().parent}:{os.environ['PATH']}"
    fixed = ("--stored-auth-only", "--format", "json", "-q")
    return clients.run(clients.node(), program, "--cli", *line, *fixed, home=home, PATH=path)


@pytest.mark.parametrize("era", ["modern", "legacy"])
@pytest.mark.parametrize("road", ["http", "stdio"])
def test_the_inspector_finds_nothing_odd_in_the_schemas_and_calls(
    queue: Queue, serving: Serving, token: str, tmp_path: Path, road: str, era: str
) -> None:
    clients.wanted("node")
    where = {
        "http": [f"{serving.url}/mcp", "--transport", "http", "--header", f"Authorization: Bearer {token}"],
        "stdio": [*PROGRAM, "mcp", "--url", queue.engine.url, "--transport", "stdio", "-e", f"SHAMPOO_TOKEN={token}"],
    }[road]

    def ask(*line: str) -> tuple[int, Any]:
        ended = inspector(*where, "--protocol-era", era, *line, home=tmp_path)
        return ended.returncode, json.loads(ended.stdout)["result"]

    status, listed = ask("--method", "tools/list", "--strict")
    assert status == 0
    assert len(listed["tools"]) == 9
    queue.shampoo.client("boss").job_create(kind="k", payload="null")
    claim = ["--method", "tools/call", "--tool-name", "job_claim", "--tool-args-json"]
    status, claimed = ask(*claim, '{"kind":"k"}')
    assert status == 0
    assert claimed["structuredContent"]["payload"] == "null"
    status, refused = ask(*claim, '{"lease_seconds":0}')
    assert status == 5
    assert json.loads(refused["content"][0]["text"])["error"]["code"] == "invalid_argument"


def test_the_inspector_is_told_that_a_token_is_wanted(queue: Queue, tmp_path: Path) -> None:
    clients.wanted("node")
    with Serving(queue.engine.url) as serving:
        ended = inspector(f"{serving.url}/mcp", "--transport", "http", "--method", "tools/list", home=tmp_path)
    assert ended.returncode == 3


def test_the_inspector_puts_a_load_on_it(serving: Serving, token: str, tmp_path: Path) -> None:
    clients.wanted("node")
    where = [f"{serving.url}/mcp", "--transport", "http", "--header", f"Authorization: Bearer {token}"]
    call = ["--method", "tools/call", "--tool-name", "lane_list", "--tool-args-json", "{}"]
    load = ["--load", "--load-concurrency", "4", "--load-requests", "100"]
    ended = inspector(*where, *call, *load, home=tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert '"failed":0' in ended.stdout.replace(" ", "") or '"errors":0' in ended.stdout.replace(" ", ""), ended.stdout


# SDKs and agents ------------------------------------------------------------------------------------------------


def last_line(ended: subprocess.CompletedProcess[str]) -> str:
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout.strip().splitlines()[-1]


def test_the_typescript_sdk_v1_works_a_job(serving: Serving, token: str, tmp_path: Path) -> None:
    clients.wanted("node")
    ended = clients.run(clients.node(), HERE / "sdk_v1.cjs", f"{serving.url}/mcp", token, home=tmp_path)
    assert last_line(ended) == "worked a job"


@pytest.mark.parametrize("options", [[], ["remote"]], ids=["redis", "bridge"])
def test_the_typescript_sdk_v1_works_a_job_over_standard_input(
    queue: Queue, serving: Serving, token: str, tmp_path: Path, options: list[str]
) -> None:
    clients.wanted("node")
    where = ["--remote", serving.url] if options else ["--url", queue.engine.url]
    line = ["-", *PROGRAM, "mcp", *where]
    ended = clients.run(clients.node(), HERE / "sdk_v1.cjs", *line, home=tmp_path, SHAMPOO_TOKEN=token)
    assert last_line(ended) == "worked a job"


@pytest.mark.parametrize("mode, version", [("auto", "2026-07-28"), ("legacy", "2025-11-25")])
def test_the_typescript_sdk_v2_works_a_job(
    serving: Serving, token: str, tmp_path: Path, mode: str, version: str
) -> None:
    clients.wanted("node")
    ended = clients.run(clients.node(), HERE / "sdk_v2.cjs", f"{serving.url}/mcp", token, mode, home=tmp_path)
    assert last_line(ended) == f"worked a job at {version}"


def test_the_python_sdk_1_works_a_job(serving: Serving, token: str, tmp_path: Path) -> None:
    clients.wanted("python-sdk")
    python = clients.program("python-sdk", "python")
    ended = clients.run(python, HERE / "python_sdk.py", f"{serving.url}/mcp", token, home=tmp_path)
    assert last_line(ended) == "worked a job at 2025-11-25"


def test_an_agent_works_a_job(queue: Queue, serving: Serving, token: str, tmp_path: Path) -> None:
    clients.wanted("pydantic-ai")
    job_id = queue.shampoo.client("boss").job_create(kind="agent", payload="hello").job_id
    python = clients.program("pydantic-ai", "python")
    ended = clients.run(python, HERE / "agent.py", f"{serving.url}/mcp", token, home=tmp_path)
    assert last_line(ended) == "called job_claim, job_create, lane_list; hello completed"
    assert queue.events(job_id) == ["job.created", "job.claimed", "job.completed"]


def test_mcp_remote_carries_a_client_without_http_to_the_door(serving: Serving, token: str, tmp_path: Path) -> None:
    clients.wanted("node")
    bridge = clients.package("mcp-remote") / "dist/proxy.js"
    where = [
        f"{serving.url}/mcp",
        "--allow-http",
        "--header",
        f"Authorization:Bearer {token}",
        "--transport",
        "http-only",
    ]
    line = ["-", str(clients.node()), str(bridge), *where]
    ended = clients.run(clients.node(), HERE / "sdk_v1.cjs", *line, home=tmp_path)
    assert last_line(ended) == "worked a job"
