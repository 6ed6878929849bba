"""Go through lists that are longer than a page, to their ends and by filters."""

from __future__ import annotations

import re
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.conftest import REAL
from tests.queue import Queue
from tests.ui.conftest import People
from tests.ui.site import Strict
from tests.ui.test_pages import check

pytestmark = pytest.mark.parametrize("engine", REAL, indirect=True)


def test_jobs_are_filtered_and_paged(queue: Queue, people: People) -> None:
    ada = people("ada", "*", "p", "")
    boss = queue.principal("boss", "p", "", conductor=True)
    wanted = set(queue.create(boss, 120, kind="a&b=c", project="p"))
    queue.create(boss, 5, kind="other", project="p")
    queue.create(boss, 5, kind="a&b=c")
    found: list[str] = []
    path: str | None = "/ui/jobs?kind=a%26b%3Dc&project=p&standing=queued"
    pages = 0
    while path:
        text = ada.get(path).text
        found += re.findall(r'<a class="mono nowrap" href="/ui/jobs/([0-9a-f-]{36})"', text)
        older = re.search(r'rel="next" href="([^"]+)"', text)
        path, pages = older and older[1].replace("&amp;", "&"), pages + 1
        assert path is None or parse_qs(urlsplit(path).query)["kind"] == ["a&b=c"]
    assert (sorted(found), pages) == (sorted(wanted), 3)
    untagged = ada.get("/ui/jobs?untagged=1").text
    assert len(re.findall(r'<a class="mono nowrap" href="/ui/jobs/', untagged)) == 5


@pytest.mark.parametrize("query", ["standing=x", "cursor=x", "kind=" + "k" * 200])
def test_a_filter_of_a_wrong_form_is_said(people: People, query: str) -> None:
    answer = people("ada", "*").get(f"/ui/jobs?{query}")
    assert answer.status_code == 422
    assert "invalid argument" in check(answer).text


def test_a_rare_job_is_found_by_going_on(queue: Queue, people: People, monkeypatch: pytest.MonkeyPatch) -> None:
    ada, boss = people("ada", "p"), queue.principal("boss", "p", conductor=True)
    (rare,) = queue.create(boss, 1, kind="rare", project="p")
    queue.create(boss, 1_100, kind="other", project="p")
    monkeypatch.setattr("shampoo_queue.sight._PAGE_SECONDS", 0.0)
    path, pages = "/ui/jobs?kind=rare", 0
    while rare not in (text := ada.get(path).text):
        said = Strict(text).text
        assert "looked through" in said and "No job" not in said
        older = re.search(r'rel="next" href="([^"]+)"', text)
        assert older, "an empty page that is not the last leads on"
        path, pages = older[1].replace("&amp;", "&"), pages + 1
    assert pages > 0


def test_a_lane_shows_its_jobs_whatever_else_happened(queue: Queue, people: People) -> None:
    ada, boss = people("ada", "p"), queue.principal("boss", "p", conductor=True)
    lane = boss.lane_create(quorum_id=queue.shampoo.registry.open_quorum("p")).lane_id
    job_id = boss.job_create(kind="k", lane_id=lane).job_id
    queue.create(boss, 1_100, kind="other", project="p")
    assert job_id in ada.get(f"/ui/lanes/{lane}").text
    assert job_id in ada.get(f"/ui/jobs?lane={lane}").text


def test_the_board_says_what_it_leaves_out_and_is_filtered(queue: Queue, people: People) -> None:
    ada, boss = people("ada", "*", "p"), queue.principal("boss", "p", conductor=True)
    registry = queue.shampoo.registry
    crowded, calm = registry.open_quorum("p"), registry.open_quorum("p")
    alone = boss.lane_create(quorum_id=calm).lane_id
    for _ in range(100):
        boss.lane_create(quorum_id=crowded)
    text = ada.get("/ui/lanes").text
    assert "The newest 100 are shown" in text
    assert alone not in text
    assert alone in ada.get(f"/ui/lanes?quorum_id={calm}").text
    one = ada.get("/ui/lanes?state=done").text
    assert 'id="in-done"' in one and 'id="in-open"' not in one
    assert ada.get("/ui/lanes?state=x").status_code == 200
    found, path = set[str](), "/ui/history?event=lane.created"
    while path:
        text = ada.get(path).text
        found |= set(re.findall(r'href="/ui/lanes/([0-9a-f-]{36})"', text))
        older = re.search(r'rel="next" href="([^"]+)"', text)
        path = older[1].replace("&amp;", "&") if older else ""
    assert alone in found and len(found) == 101


def test_a_long_history_is_read_to_its_end(queue: Queue, people: People) -> None:
    ada = people("ada", "p")
    boss, worker = queue.principal("boss", "p", conductor=True), queue.principal("worker", "p")
    job_id = boss.job_create(kind="k", project="p").job_id
    for _ in range(11):
        for _ in range(5):
            worker.release(worker.job_claim())
        queue.shampoo.ops.requeue(job_id)
    path, seen, pages, mark = f"/ui/jobs/{job_id}", 0, 0, 'class="event-name"'
    while path:
        text = ada.get(path).text
        live = path.partition("#")[0] + ("&" if "?" in path else "?") + "part=live"
        assert text.count(mark) == ada.get(live).text.count(mark), "it stays at its part while it stays fresh"
        seen, pages = seen + text.count(mark), pages + 1
        older = re.search(r'rel="next" href="([^"]+)"', text)
        path = older[1].replace("&amp;", "&") if older else ""
    assert (seen, pages) == (len(queue.shampoo.history(job_id, limit=1_000)), 2)


def test_principals_and_tokens_are_paged(queue: Queue, people: People) -> None:
    ada = people("ada", "*")
    registry = queue.shampoo.registry
    for n in range(101):
        registry.add_principal(f"worker-{n}")
        registry.issue_token(f"worker-{n}")
    text = ada.get("/ui/principals").text
    more = [one.replace("&amp;", "&") for one in re.findall(r'rel="next" href="([^"]+)"', text)]
    assert len(more) == 2, "principals and tokens are paged each"
    for path in more:
        answer = ada.get(path)
        check(answer)
        text += answer.text
    for principal in registry.principals():
        assert f'<bdi class="said">{principal.client_id}</bdi>' in text
    for token in registry.tokens():
        assert token.token_id in text
    assert ada.get("/ui/principals?tokens=x").status_code == 422
