"""Every page and every action in a real browser: Chromium, driven by playwright-core, judged by axe.

``SHAMPOO_SCREENSHOTS=docs/images`` puts the pictures into the docs.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import IN_CI
from tests.foreign import clients
from tests.queue import Queue
from tests.ui.conftest import People
from tests.ui.scene import Scene
from tests.ui.site import Person, Site
from tests.ui.test_pages import BIDI, MARKUP

pytestmark = [
    pytest.mark.parametrize("engine", ["redis7"], indirect=True),
    pytest.mark.timeout(300),
    pytest.mark.slow,
]

DRIVE = Path(__file__).with_name("drive.cjs")
SECONDS = 240
MOST_BYTES = 150_000
PICTURE = {"width": 1200, "height": 720}

Drive = Callable[..., Any]


def chromium() -> str:
    program = shutil.which("chromium")
    if program is None:
        assert not IN_CI, "chromium is always there in CI"
        pytest.skip("there is no chromium on PATH: apt-get install chromium")
    return program


@contextmanager
def driving(site: Site, home: Path, command: str, **orders: Any) -> Iterator[subprocess.Popen[str]]:
    """Start the driver and give it its orders; it has a home of its own."""
    clients.wanted("node")
    given = {"command": command, "chromium": chromium(), "base": site.address, **orders}
    surroundings = {"PATH": os.environ["PATH"], "HOME": str(home), "NODE_PATH": str(clients.package("."))}
    line = [str(clients.node()), str(DRIVE)]
    pipe = subprocess.PIPE
    with subprocess.Popen(line, env=surroundings, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as driver:
        assert driver.stdin
        try:
            driver.stdin.write(json.dumps(given))
            driver.stdin.close()
            driver.stdin = None
            yield driver
        finally:
            driver.kill()


@pytest.fixture
def drive(site: Site, tmp_path: Path) -> Drive:
    """Drive a browser to the end, and give what it saw; it complained of nothing."""

    def run(command: str, **orders: Any) -> Any:
        with driving(site, tmp_path, command, **orders) as driver:
            out, err = driver.communicate(timeout=SECONDS)
        assert driver.returncode == 0, err
        answer = json.loads(out.splitlines()[-1])
        assert answer["complaints"] == [], answer["seen"]
        return answer["seen"]

    return run


def of_kind(queue: Queue, event: str) -> list[str]:
    return [one["entity_id"] for one in queue.shampoo.history(limit=1000) if one["event"] == event]


def test_every_page_is_accessible_and_fits_in_both_colours_and_widths(queue: Queue, drive: Drive) -> None:
    token = Scene(queue).play()
    job, failed = of_kind(queue, "job.claimed")[-1], of_kind(queue, "job.failed")[-1]
    lanes = of_kind(queue, "lane.created")
    paths = [
        "/ui",
        "/ui/jobs",
        "/ui/lanes",
        "/ui/history",
        "/ui/principals",
        "/tools",
        "/ui/jobs/missing",
        "/ui/xyz",
        "/ui/sign-in",
    ]
    paths += [f"/ui/jobs/{job}", f"/ui/jobs/{failed}", f"/ui/lanes/{lanes[7]}", f"/ui/lanes/{lanes[4]}"]
    assert drive("look", token=token, paths=paths) == []


@pytest.mark.parametrize("script", [True, False], ids=["with a script", "without"])
def test_every_action_works(queue: Queue, people: People, drive: Drive, script: bool) -> None:
    registry = queue.shampoo.registry
    boss, worker = queue.principal("boss", "p", conductor=True), queue.principal("worker", "p")
    queue.principal("ada", "*", "p", conductor=True)
    queue.create(boss, 2, project="p")
    released, failed = (f"/ui/jobs/{worker.job_claim().job_id}" for _ in range(2))
    lane = f"/ui/lanes/{boss.lane_create(quorum_id=registry.open_quorum('p')).lane_id}"
    registry.issue_token("worker")
    moves: list[dict[str, Any]] = [
        {"path": released, "click": "Release"},
        {"path": failed, "open": "Complete as failed", "fill": {"#result_ref": MARKUP}, "click": "Complete as failed"},
        {"path": failed, "click": "Requeue"},
        {"path": lane, "click": "in progress"},
        {"path": lane, "click": "Submit"},
        {"path": lane, "click": "Request changes"},
        {"path": lane, "click": "Submit"},
        {"path": lane, "click": "Approve"},
        {"path": lane, "click": "done"},
        {"path": lane, "open": "Record a merge", "fill": {"#outcome": "merged"}, "click": "Record"},
        {"path": lane, "open": "Record a merge", "fill": {"#result_commit": "abc123"}, "click": "Record"},
        {"path": "/ui/principals", "open": "Revoke", "click": "Revoke"},
    ]
    said = drive("act", token=registry.issue_token("ada", scope="ops:write").token, script=script, moves=moves)
    assert said == [
        "Released: the job is queued again.",
        "Completed as failed.",
        "Requeued: the job is queued with no attempt spent.",
        "The lane's execution standing was moved.",
        *["The lane's review standing was moved."] * 4,
        "The lane's execution standing was moved.",
        "Refused: lane not mergeable.",
        "The merge outcome was recorded.",
        "Revoked: the token is refused from the next call on.",
        "/ui/sign-in",
    ]


def test_what_others_wrote_stays_inert(queue: Queue, drive: Drive) -> None:
    attack = "<img src=/x onerror=pwned=1><script>pwned=1</script>"
    registry = queue.shampoo.registry
    name, project = attack + BIDI + "me", attack + "\u202ep" * 20
    boss = queue.principal(name, project, attack, conductor=True, holder=attack + "x" * 70)
    queue.principal("ada", "*", conductor=True)
    registry.add_task(attack)
    quorum = registry.open_quorum(project)
    lane = boss.lane_create(
        quorum_id=quorum, repo=MARKUP, branch="b" * 512, base_ref=BIDI, worktree=attack, task_id=attack,
        assignee_client_id=name,
    ).lane_id  # fmt: skip
    boss.lane_merge(lane_id=lane, outcome="skipped", result_commit="c" * 128)
    big, jobs = "</pre>" + attack + "x" * 1_000_000, []
    for kind, payload in ((attack[:64], attack + BIDI), ("k" * 64, big), ("k", "\n" * 900)):
        jobs.append(boss.job_create(kind=kind, lane_id=lane, payload=payload).job_id)
    boss.fail(boss.job_claim(), reason="r" * 512, result_ref=attack + "\n" * 100 + "y" * 1_000)
    boss.job_claim()
    registry.issue_token(name)
    live = ["/ui", "/ui/jobs", "/ui/lanes", "/ui/history", f"/ui/lanes/{lane}", *(f"/ui/jobs/{one}" for one in jobs)]
    token = registry.issue_token("ada", scope="ops:write").token
    assert drive("inert", token=token, paths=[*live, "/ui/principals"], live=live) == []


def test_a_page_stays_fresh_and_says_when_it_is_not(queue: Queue, site: Site, tmp_path: Path) -> None:
    boss, worker = queue.principal("boss", "p", conductor=True), queue.principal("worker", "p")
    queue.principal("ada", "*", "p", conductor=True)
    queue.create(boss, project="p")
    claim = worker.job_claim()
    token = queue.shampoo.registry.issue_token("ada", scope="ops:write").token
    orders = {"summary": "Complete as failed", "field": "#result_ref", "appears": "text=attempt 2"}
    with driving(site, tmp_path, "live", token=token, path=f"/ui/jobs/{claim.job_id}", **orders) as driver:
        assert driver.stdout and driver.stderr
        ready = driver.stdout.readline()
        assert ready == '"ready"\n', driver.stderr.read()
        worker.release(claim)
        worker.job_claim()
        out, err = driver.communicate(timeout=SECONDS)
    assert driver.returncode == 0, err
    steps = ["fresh without a reload", "stale", "fresh again", "half a word", "signed out"]
    assert json.loads(out)["seen"] == steps


def test_the_catalogue_is_searched_with_and_without_a_script(stranger: Person, drive: Drive) -> None:
    assert drive("search") == [[2, "2 tools"]] * 2


def test_pictures_for_the_docs(queue: Queue, drive: Drive, tmp_path: Path) -> None:
    folder = Path(os.environ.get("SHAMPOO_SCREENSHOTS") or tmp_path / "images").resolve()
    folder.mkdir(parents=True, exist_ok=True)
    queue.profile = "saphira"
    queue.shampoo.close()
    queue.shampoo = queue.connect()
    token = Scene(queue).play()
    job, lane = of_kind(queue, "job.failed")[-1], of_kind(queue, "lane.merged")[0]
    pages = {name: f"/ui/{name}" for name in ("jobs", "lanes", "history", "principals")}
    pages |= {
        "overview": "/ui",
        "catalogue": "/tools?q=lease_seconds",
        "job": f"/ui/jobs/{job}",
        "lane": f"/ui/lanes/{lane}",
    }
    pictures = {str(folder / f"{name}.png"): path for name, path in pages.items()}
    drive("shots", token=token, colorScheme="light", viewport=PICTURE, pictures=pictures)
    drive(
        "shots", token=token, colorScheme="dark", viewport=PICTURE, pictures={str(folder / "overview-dark.png"): "/ui"}
    )
    small = {"width": 390, "height": 844}
    drive(
        "shots", token=token, colorScheme="light", viewport=small, pictures={str(folder / "overview-small.png"): "/ui"}
    )
    taken = sorted(folder.glob("*.png"))
    assert len(taken) >= len(pages) + 2
    for picture in taken:
        assert picture.stat().st_size < MOST_BYTES, picture.name
