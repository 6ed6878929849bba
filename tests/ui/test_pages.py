"""Look at every page: what it shows, to whom, with which headers, and that nothing of others comes alive on it."""

from __future__ import annotations

import re
import time

import httpx2
import pytest

from tests.conftest import REAL
from tests.queue import Queue
from tests.ui.conftest import People
from tests.ui.scene import Scene
from tests.ui.site import Person, Site, Strict

pytestmark = pytest.mark.parametrize("engine", REAL, indirect=True)

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'"
)
MARKUP = '"><script src="/ui/static/live.js" onerror=alert(1)></script><img src=x onerror="alert(2)"><!--'
BIDI = "\u202eevil\u2066 \u200bnever"


def pages_of(queue: Queue) -> list[str]:
    """Give the address of every page there is something to see on, and those that show nothing."""
    events = queue.shampoo.history(limit=1000)
    jobs = [event["entity_id"] for event in events if event["event"] == "job.created"]
    lanes = [event["entity_id"] for event in events if event["event"] == "lane.created"]
    fixed = ["/ui", "/ui/jobs", "/ui/lanes", "/ui/history", "/ui/principals", "/tools", "/ui/sign-in", "/ui/jobs/x"]
    filtered = [
        "/ui/jobs?standing=failed&kind=embed&cursor=99",
        "/ui/history?event=lane.&actor=a&cursor=9",
        "/tools?q=x",
    ]
    return [*fixed, *filtered, *(f"/ui/jobs/{one}" for one in jobs[-9:]), *(f"/ui/lanes/{one}" for one in lanes)]


def check(answer: httpx2.Response) -> Strict:
    """Check what every page owes."""
    assert answer.headers["content-security-policy"] == CSP
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    strict = Strict(answer.text)
    assert strict.problems == [], f"{answer.url}: {strict.problems}"
    return strict


def test_every_page_of_a_busy_queue_is_sound(queue: Queue, site: Site) -> None:
    person = site.person(Scene(queue).play())
    try:
        for path in pages_of(queue):
            answer = person.get(path)
            assert answer.status_code == (404 if path.endswith("/x") else 200), path
            check(answer)
    finally:
        person.close()


def test_every_page_of_an_empty_queue_is_sound(queue: Queue, people: People) -> None:
    for star in (True, False):
        person = people(f"ada{star}", *(["*"] if star else []), scope="ops:read")
        for path in pages_of(queue):
            check(person.get(path))


def test_nothing_that_others_wrote_comes_alive(queue: Queue, people: People) -> None:
    ada = people("ada", "*", scope="ops:write")
    registry = queue.shampoo.registry
    project, kind = MARKUP[:128], MARKUP[:64]
    boss = queue.principal(MARKUP[:110] + "boss", project, conductor=True, holder=MARKUP[:128])
    registry.add_task(MARKUP)
    lane = boss.lane_create(
        quorum_id=registry.open_quorum(project), repo=MARKUP, branch=BIDI, base_ref=MARKUP, worktree=MARKUP,
        assignee_client_id=boss.client_id, task_id=MARKUP,
    ).lane_id  # fmt: skip
    boss.lane_merge(lane_id=lane, outcome="skipped", result_commit=MARKUP)
    job_ids = [
        boss.job_create(kind=kind, lane_id=lane, payload=MARKUP + BIDI + "\x00\r\n\t<b>").job_id for _ in range(3)
    ]
    boss.fail(boss.job_claim(), reason=MARKUP + BIDI, result_ref=MARKUP + "\n" * 50 + BIDI)
    boss.job_claim()
    registry.issue_token(boss.client_id)
    seen = 0
    for path in ["/ui", "/ui/history", "/ui/principals", f"/ui/lanes/{lane}", "/ui/lanes", "/ui/jobs",
                 *(f"/ui/jobs/{job_id}" for job_id in job_ids)]:  # fmt: skip
        strict = check(ada.get(path))
        assert [given for tag, given in strict.tags if tag == "script"] == [
            {"type": "module", "src": "/ui/static/live.js"}
        ]
        assert not [tag for tag, _ in strict.tags if tag in ("img", "b", "iframe")]
        assert not re.search("[\u202a-\u202e\u2066-\u2069\u200b\x00]", strict.text), "what cannot be seen is named"
        seen += strict.text.count("><script src=")
    assert seen > 20, "the markup is shown as text"
    assert "‹U+202E›evil" in ada.get(f"/ui/jobs/{job_ids[0]}").text


def test_a_long_payload_is_cut_and_its_size_said(queue: Queue, people: People) -> None:
    ada = people("ada", "*", "p")
    boss = queue.principal("boss", "p", conductor=True)
    job_id = boss.job_create(kind="k", project="p", payload="é<" * 349_525).job_id
    text = ada.get(f"/ui/jobs/{job_id}").text
    assert len(text) < 100_000
    assert "1024.0 KiB, the first 16.0 KiB shown" in text
    empty = boss.job_create(kind="k", project="p").job_id
    assert '<p class="nothing">none</p>' in ada.get(f"/ui/jobs/{empty}").text


def test_a_hidden_entry_reads_as_a_missing_one(queue: Queue, people: People) -> None:
    boss = queue.principal("boss", "secret", conductor=True)
    job_id = boss.job_create(kind="hush", project="secret", payload="psst").job_id
    lane_id = boss.lane_create(quorum_id=queue.shampoo.registry.open_quorum("secret")).lane_id
    bob = people("bob", "p", conductor=False)
    for family, hidden in (("jobs", job_id), ("lanes", lane_id)):
        missing = hidden[:-4] + ("0000" if hidden[-4:] != "0000" else "1111")
        seen = [bob.get(f"/ui/{family}/{one}") for one in (hidden, missing, "x", "%00", "%3Cb%3E")]
        assert {answer.status_code for answer in seen} == {404}
        assert len({answer.content for answer in seen}) == 1
        headers = [{**answer.headers, "date": "", "x-request-id": ""} for answer in seen]
        assert all(one == headers[0] for one in headers)
        moves = [bob.post(f"/ui/{family}/{one}/release").content for one in (hidden, missing)]
        assert moves[0] == moves[1]
    for path in ("/ui", "/ui/jobs", "/ui/lanes", "/ui/history", "/ui/principals"):
        text = bob.get(path).text
        assert "secret" not in text
        assert "hush" not in text
        assert "boss" not in text
    assert "hush" in people("eve", "secret").get("/ui/jobs").text


def test_a_revoked_grant_hides_from_the_next_click(queue: Queue, people: People) -> None:
    bob = people("bob", "p")
    job_id = queue.principal("boss", "p", conductor=True).job_create(kind="k", project="p").job_id
    assert bob.get(f"/ui/jobs/{job_id}").status_code == 200
    queue.shampoo.registry.revoke("bob", "p")
    assert bob.get(f"/ui/jobs/{job_id}").status_code == 404


def test_the_overview_counts_what_there_is(queue: Queue, people: People) -> None:
    ada = people("ada", "*", "p")
    boss, worker = queue.principal("boss", "p", conductor=True), queue.principal("worker", "p", holder="h/7")
    queue.create(boss, 7, project="p")
    worker.release(worker.job_claim(), delay_seconds=600)
    worker.job_claim()
    worker.complete(worker.job_claim())
    text = Strict(ada.get("/ui").text).text
    words = re.sub(r"\s+", " ", text)
    for wanted in ("Queued 4", "Claimed 1", "Delayed 1", "Exhausted 0", "Lapsed 0", "created 7", "completed 1"):
        assert wanted in words
    assert "worker h/7" in words
    assert "7 jobs were created, 1 completed, 0 failed" in words, "the chart says it in words"


def test_lanes_are_named_by_what_they_are_for(queue: Queue, people: People) -> None:
    ada, boss = people("ada", "p"), queue.principal("boss", "p", conductor=True)
    registry = queue.shampoo.registry
    quorum = registry.open_quorum("p")
    registry.add_task("task-7")
    branch = boss.lane_create(quorum_id=quorum, repo="mind-maps", branch="feat-x").lane_id
    task, bare = (boss.lane_create(quorum_id=quorum, **one).lane_id for one in ({"task_id": "task-7"}, {}))
    for _ in range(2):
        board = re.sub(r"\s+", " ", Strict(ada.get("/ui/lanes").text).text)
        for name, lane in (("mind-maps / feat-x", branch), ("task-7", task), ("p", bare)):
            assert f" {name} {lane[:8]}" in board
            heading = ada.get(f"/ui/lanes/{lane}").text.partition("<h1>")[2].partition("</h1>")[0]
            assert f"{name} {lane[:8]}" in Strict(heading).text


def test_the_servers_health_is_for_star_principals(people: People) -> None:
    assert "Round trip" in people("ada", "*").get("/ui").text
    text = people("bob", "p").get("/ui").text
    for hidden in ("Round trip", "Memory", "Clients", "Commands", "Valkey", "Redis"):
        assert hidden not in text


def test_an_hour_without_jobs_is_said(people: People) -> None:
    text = Strict(people("ada", "*").get("/ui").text).text
    for wanted in (
        "No jobs in the last hour.",
        "No job was claimed in the last hour.",
        "No job ended in the last hour.",
    ):
        assert wanted in text
    assert "0 to 1" not in text


def test_short_addresses_lead_to_the_pages(people: People, stranger: Person) -> None:
    for person in (people("ada", "*"), stranger):
        for path, page in (("/", "/ui"), ("/ui/", "/ui"), ("/ui/jobs/", "/ui/jobs"), ("/ui//", "/ui")):
            answer = person.get(path)
            assert (answer.status_code, answer.headers["location"]) == (303, page)


@pytest.mark.parametrize(
    "path", ["/ui/xyz", "/ui/jobs/a/b/c", "/ui/static/nothing.css", "/ui/jobs/x/explode", "/ui/%00"]
)
def test_an_unknown_address_has_a_page_of_its_own(people: People, stranger: Person, path: str) -> None:
    for person in (people("ada", "*"), stranger):
        answer = person.get(path)
        assert answer.status_code == 404
        assert "there is no such page" in check(answer).text
        assert ("Sign out" in answer.text) == (person is not stranger)


def test_why_a_job_is_not_claimable_is_said(queue: Queue, people: People) -> None:
    ada = people("ada", "*", "p")
    boss, worker = queue.principal("boss", "p", conductor=True), queue.principal("worker", "p")
    job_id = boss.job_create(kind="k", project="p").job_id
    assert "it is the next of its project and kind" in ada.get(f"/ui/jobs/{job_id}").text
    claim = worker.job_claim()
    text = ada.get(f"/ui/jobs/{job_id}").text
    assert "Not claimable" in text
    assert 'data-counts="down"' in text
    worker.release(claim, delay_seconds=600)
    assert "It is not due yet." in ada.get(f"/ui/jobs/{job_id}").text


def test_live_panels_come_alone_and_only_when_they_changed(queue: Queue, people: People) -> None:
    ada = people("ada", "*", "p")
    boss = queue.principal("boss", "p", conductor=True)
    job_id = boss.job_create(kind="k", project="p").job_id
    for path in ("/ui/jobs", f"/ui/jobs/{job_id}", "/ui/history", "/ui/lanes"):
        first = ada.get(f"{path}?part=live")
        assert first.status_code == 200
        assert "<html" not in first.text
        assert first.headers["cache-control"] == "no-store"
        panels = set(re.findall(r'data-live="(\w+)"', ada.get(path).text))
        assert panels == set(re.findall(r'data-part="(\w+)"', first.text)) != set()
        again = ada.get(f"{path}?part=live", If_None_Match=first.headers["etag"])
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == first.headers["etag"]
    before = ada.get("/ui/jobs?part=live").headers["etag"]
    boss.job_create(kind="new", project="p")
    changed = ada.get("/ui/jobs?part=live", If_None_Match=before)
    assert changed.status_code == 200
    assert "new" in changed.text


def test_a_clock_that_counts_is_no_change(queue: Queue, people: People) -> None:
    ada = people("ada", "*", "p")
    boss, worker = queue.principal("boss", "p", conductor=True), queue.principal("worker", "p")
    queue.create(boss, project="p")
    path = f"/ui/jobs/{worker.job_claim().job_id}?part=live"
    first = ada.get(path)
    until = time.monotonic() + 5
    while (later := ada.get(path)).text == first.text:
        assert time.monotonic() < until, "the lease does not count down"
    assert later.headers["etag"] == first.headers["etag"]
    assert ada.get(path, If_None_Match=first.headers["etag"]).status_code == 304


def test_who_may_only_look_sees_no_forms(queue: Queue, people: People) -> None:
    bob = people("bob", "*", "p", scope="ops:read")
    boss, worker = queue.principal("boss", "p", conductor=True), queue.principal("worker", "p")
    boss.job_create(kind="k", project="p")
    lane_id = boss.lane_create(quorum_id=queue.shampoo.registry.open_quorum("p")).lane_id
    for path in (f"/ui/jobs/{worker.job_claim().job_id}", f"/ui/lanes/{lane_id}", "/ui/principals"):
        forms = [given["action"] for tag, given in check(bob.get(path)).tags if tag == "form"]
        assert forms == ["/ui/sign-out"]


def test_principals_and_tokens_are_all_for_star_scope_and_else_ones_own(queue: Queue, people: People) -> None:
    ada, bob = people("ada", "*", *(f"project-{n:03}" for n in range(40))), people("bob", "p")
    seen = Strict(ada.get("/ui/principals").text).text
    assert "bob" in seen
    assert "every project" in seen
    assert "and 17 more" in seen
    for token in queue.shampoo.registry.tokens():
        assert token.token_id in seen
    own = Strict(bob.get("/ui/principals").text).text
    assert "ada" not in own
    assert "bob" in own


def test_static_files_are_asked_again_only_for_changes(stranger: Person) -> None:
    for name, kind in (("style.css", "text/css"), ("live.js", "text/javascript"), ("icon.svg", "image/svg+xml")):
        first = stranger.get(f"/ui/static/{name}")
        assert first.headers["content-type"].startswith(kind)
        assert first.headers["x-content-type-options"] == "nosniff"
        assert stranger.get(f"/ui/static/{name}", If_None_Match=first.headers["etag"]).status_code == 304
    assert stranger.get("/ui/static/../door.py").status_code == 404
    assert stranger.get("/ui/static/%2e%2e/door.py").status_code == 404


def test_a_defect_is_said_on_a_page_without_its_text(queue: Queue, people: People) -> None:
    ada = people("ada", "*")
    history, aside = queue.key("history"), queue.key("profile") + "-aside"
    queue.command("RENAME", history, aside)
    queue.command("SET", history, "no stream")
    answer = ada.get("/ui/history")
    queue.command("RENAME", aside, history)
    assert answer.status_code == 500
    assert "internal error" in answer.text
    assert "WRONGTYPE" not in answer.text
    check(answer)
