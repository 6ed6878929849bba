"""``shampoo work`` as people start it: exit statuses, lines, and the live view on a terminal."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from shampoo_queue.cli.view import View
from shampoo_queue.worker import Running, Stats
from tests.worker.bench import ROOT, Bench, Program, wait_for


def test_a_burst_does_what_there_is_and_says_one_line_a_job(bench: Bench) -> None:
    jobs = [bench.create("return", "r", kind=kind) for kind in ("thread", "async", "process")]
    with Program(bench.queue, "--burst") as program:
        assert program.end() == 0
        assert program.process.stdout and program.process.stdout.read() == b""
    assert {bench.job(job_id).state for job_id in jobs} == {"completed"}
    assert len(program.lines) == 3
    for job_id in jobs:
        assert (
            sum(f"INFO job ended id={job_id} " in line and "outcome=completed" in line for line in program.lines) == 1
        )


def test_a_handlers_error_is_told_with_its_traceback(bench: Bench) -> None:
    bench.create("raise", "ansi", kind="thread")
    with Program(bench.queue, "--burst") as program:
        assert program.end() == 0
    shown = "\n".join(program.lines)
    assert "WARNING job" in shown and "  Traceback" in shown and "handlers.py" in shown
    assert "\x1b" not in shown


@pytest.mark.parametrize(
    "worker, words",
    [
        ("tests.worker.no_such_module:worker", "no_such_module"),
        ("tests.worker.handlers:no_such_worker", "there is no Worker 'no_such_worker'"),
        ("tests.worker.handlers:act", "there is no Worker 'act'"),
        ("tests.worker.handlers:nothing", "no handlers"),
        ("", "cannot be imported"),
    ],
)
def test_a_worker_that_is_not_there_is_wrong_usage(bench: Bench, worker: str, words: str) -> None:
    with Program(bench.queue, worker=worker) as program:
        assert program.end() == 2
    assert len(program.lines) == 1
    assert program.lines[0].startswith("configuration: ") and words in program.lines[0]


def test_a_module_that_fails_is_told_with_its_place(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("\nraise SystemExit('no')\n")
    with Program(bench.queue, worker="broken", PYTHONPATH=str(tmp_path)) as program:
        assert program.end() == 2
    assert program.lines == ["configuration: module 'broken' cannot be imported: SystemExit: no (broken.py:2)"]


def test_the_current_folder_is_searched(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "here.py").write_text(
        "from shampoo_queue.worker import Worker\nworker = Worker()\n@worker.handles('k')\ndef k(job): return 'here'\n"
    )
    job_id = bench.create()
    url, profile = bench.queue.engine.url, bench.queue.profile
    line = ["-m", "shampoo_queue.cli", "work", "here", "--as", "w", "--burst", "--url", url, "--profile", profile]
    ran = subprocess.run([sys.executable, *line], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, timeout=30)
    assert ran.returncode == 0
    assert bench.job(job_id).result_ref == "here"


def test_an_unreachable_queue_and_an_unknown_principal_have_their_own_status(bench: Bench) -> None:
    with Program(bench.queue, SHAMPOO_URL="redis://127.0.0.1:1") as program:
        assert program.end() == 3
    with Program(bench.queue, "--as", "nobody") as program:
        assert program.end() == 1
    assert program.lines == ["unauthenticated: unauthenticated"]


def test_concurrency_bounds_all_kinds_together(bench: Bench) -> None:
    for kind in ("thread", "thread", "async"):
        bench.create("sleep", 0.3, kind=kind)
    with Program(bench.queue, "--burst", "--concurrency", "1") as program:
        began = time.monotonic()
        assert program.end() == 0
        assert time.monotonic() - began > 0.9


def test_a_terminal_gets_the_live_view_and_a_clean_end(bench: Bench) -> None:
    bench.create("return", None, kind="thread")
    job_id = bench.create("sleep", 1.5, kind="thread")
    main, side = pty.openpty()
    env = os.environ | {"TERM": "xterm", "COLUMNS": "100", "LINES": "30"}
    env |= {"SHAMPOO_URL": bench.queue.engine.url, "SHAMPOO_PROFILE": bench.queue.profile}
    line = [sys.executable, "-m", "shampoo_queue.cli", "work", "tests.worker.handlers:worker", "--as", "w"]
    process = subprocess.Popen(line, cwd=ROOT, env=env, stdin=side, stdout=side, stderr=side, start_new_session=True)
    os.close(side)
    seen = b""

    def read() -> str:
        nonlocal seen
        while select.select([main], [], [], 0)[0]:
            try:
                seen += os.read(main, 65536)
            except OSError:
                break
        return seen.decode(errors="replace")

    try:
        wait_for(lambda: job_id[:13] in read(), "the running job in the view")
        wait_for(lambda: "2 completed" in read(), "the count of what is done")
        process.send_signal(signal.SIGINT)
        assert wait_for(lambda: read() is not None and process.poll() is not None, "its end")
        assert process.returncode == 0
        shown = read()
        assert "thread" in shown and "0/4" in shown and "1/4" in shown and "jobs/s" in shown
        assert "Traceback" not in shown
        assert shown.rstrip().endswith("\x1b[?25h")  # the cursor is shown again
    finally:
        process.kill()
        process.wait()
        os.close(main)


def test_the_view_draws_any_state() -> None:
    from rich.console import Console

    now = [0.0]
    busy = tuple(Running(f"job-{n:012}", "k\x1b[31m", 1, float(n), 60, 50.0) for n in range(20))
    stats = [Stats(), Stats("working", {"k\x1b[31m": 20}, busy, completed=100, lost=1)]
    view = View(lambda: stats[0], "module:worker", lambda: now[0])
    for width in (10, 40, 100):
        console = Console(width=width, record=True, file=open(os.devnull, "w"), force_terminal=True)  # noqa: SIM115
        with console.file:
            console.print(view.render())
            now[0] += 1.0
            stats.reverse()
            console.print(view.render())
            stats.reverse()
        text = console.export_text()
    assert "and 8 more" in text and "20/20" in text and "10 of 60 s" in text
    assert "\x1b[31m" not in text
