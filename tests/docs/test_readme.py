"""What the README shows is what happens: its program runs, its commands run, its tables are the table's."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from shampoo_queue import Shampoo, generate, scripts

README = generate.ROOT / "README.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README.read_text("utf-8"), re.DOTALL)


def test_the_program_runs_and_runs_again_on_the_same_folder(tmp_path: Path) -> None:
    (program,) = (block for block in blocks("python") if "Shampoo.connect" in block)
    assert len(program.strip().splitlines()) <= 22
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        assert "attempt 1" in done.stdout
        assert done.stdout.splitlines()[-1].split()[1:] == ["job.completed", "worker-1", "completed"]


def test_the_commands_run_as_written(tmp_path: Path) -> None:
    (session,) = (block for block in blocks("sh") if "principal add" in block)
    environment = {**os.environ, "SHAMPOO_URL": f"embedded://{tmp_path}/data", "SHAMPOO_PROFILE": "readme"}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    found = {"ID": "", "N": ""}
    printed = []
    for line in session.splitlines():
        words = [found.get(word, word) for word in shlex.split(line, comments=True)]
        words += ["--meta"] if "job_claim" in words and "call" in words else []
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=30, check=False)
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout)
        if "--meta" in words:
            claim = json.loads(done.stdout)
            found = {"ID": claim["result"]["job_id"], "N": str(claim["meta"]["fence"])}
    assert json.loads(printed[4]) == {"job_id": found["ID"], "state": "completed"}
    assert [name in printed[-1] for name in ("job.created", "job.claimed", "job.completed")] == [True] * 3


def test_the_worker_works(tmp_path: Path) -> None:
    (module,) = (block for block in blocks("python") if "worker = Worker()" in block)
    (tmp_path / "pictures.py").write_text(module, "utf-8")
    with Shampoo.connect(f"embedded://{tmp_path}/data") as shampoo:
        shampoo.registry.add_principal("conductor-1", conductor=True, grants=["shared-ops"])
        shampoo.registry.add_principal("worker-1", grants=["shared-ops"])
        client = shampoo.client("conductor-1")
        jobs = [
            ("resize", '{"width":640}'),
            ("render", "scene"),
            ("resize", '{"width":0}'),
            ("resize", '{"width":10001}'),
        ]
        made = [client.job_create(kind=kind, payload=text, project="shared-ops").job_id for kind, text in jobs]
        line = re.search(r"^shampoo work MODULE:worker --as worker-1", README.read_text("utf-8"), re.MULTILINE)
        assert line
        words = [*shlex.split(line[0].replace("MODULE", "pictures")), "--burst", "--url", shampoo.url]
        words[0] = str(Path(sys.executable).parent / words[0])
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
        assert done.stderr.count("job ended") == 4
        stood = [(job.state, job.result_ref or job.reason) for job in map(client.job, made)]
    assert stood == [
        ("completed", "resized:640"),
        ("completed", "rendered:5"),
        ("failed", "a picture has a width"),
        ("queued", ""),
    ]


@pytest.mark.parametrize("name", generate.TABLES)
def test_a_table_is_the_one_that_would_be_generated(name: str) -> None:
    text = README.read_text("utf-8")
    assert f"<!-- {name}: generated -->\n{generate.TABLES[name]()}\n<!-- {name}: end -->" in text


def test_a_derived_file_that_drifted_is_noticed() -> None:
    text = README.read_text("utf-8")
    assert generate.with_tables(text) == text
    assert generate.with_tables(text.replace("| `job_claim` |", "| `job_grab` |")) == text


def test_the_derived_files_are_what_would_be_written() -> None:
    assert generate.main(["--check"]) == 0


def test_a_stale_file_is_named_and_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "shampoo_queue").mkdir()
    (tmp_path / "README.md").write_text("<!-- limits: generated -->\nstale\n<!-- limits: end -->\n", "utf-8")
    monkeypatch.setattr(generate, "ROOT", tmp_path)
    assert generate.main(["--check"]) == 1
    assert capsys.readouterr().err.count("is out of date: make generate") == 2
    assert generate.main([]) == 0
    assert "class AsyncClient:" in (tmp_path / "shampoo_queue" / "facade.py").read_text("utf-8")
    assert "| a payload | 1,048,576 | UTF-8 bytes |" in (tmp_path / "README.md").read_text("utf-8")
    assert generate.main(["--check"]) == 0


def test_every_composed_script_is_written_for_the_linter(tmp_path: Path) -> None:
    assert generate.main(["--lua", str(tmp_path)]) == 0
    assert sorted(path.stem for path in tmp_path.iterdir()) == scripts.names()
    assert all(path.read_text("utf-8").startswith("--#!lua") for path in tmp_path.iterdir())


def test_the_server_is_asked_as_written(tmp_path: Path) -> None:
    (issuing,) = (block for block in blocks("sh") if "token issue" in block)
    (asking,) = (block for block in blocks("sh") if block.startswith("curl"))
    environment = {**os.environ, "SHAMPOO_URL": f"embedded://{tmp_path}/data"}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    with Shampoo.connect(f"embedded://{tmp_path}/data") as shampoo:
        shampoo.registry.add_principal("conductor-1", conductor=True, grants=["shared-ops"])
        shampoo.registry.add_principal("worker-1", grants=["shared-ops"])
        _, *issues, serve = issuing.splitlines()
        for line in issues:
            subprocess.run(line, shell=True, env=environment, cwd=tmp_path, check=True, timeout=60, capture_output=True)
        words = [*shlex.split(serve.replace("--port 8080", "--port 0")), "--json"]
        with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
            try:
                assert server.stdout
                url = json.loads(server.stdout.readline())["url"]
                answers = [asked(line, url, tmp_path) for line in asking.replace("\\\n", " ").splitlines()]
            finally:
                server.terminate()
            assert server.wait(30) == 0
    created, claimed = answers
    assert created == {"job_id": claimed["job_id"], "state": "queued"}
    assert claimed["claimed"] is True


def asked(line: str, url: str, folder: Path) -> dict[str, Any]:
    """Send what a line of curl would."""
    line = re.sub(r"\$\(cat ([\w.]+)\)", lambda found: (folder / found[1]).read_text().strip(), line)
    words = shlex.split(line)
    headers = dict(words[n + 1].split(": ", 1) for n, word in enumerate(words) if word == "-H")
    address = words[2].replace("http://127.0.0.1:8080", url)
    request = urllib.request.Request(address, words[words.index("-d") + 1].encode(), headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        found: dict[str, Any] = json.loads(answer.read())
        return found
