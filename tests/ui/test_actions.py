"""Make moves from the pages: who may, in whose name, and what the page says then."""

from __future__ import annotations

import re
import time
from itertools import pairwise

import pytest

from shampoo_queue.errors import REFUSALS
from tests.conftest import REAL
from tests.queue import Queue
from tests.ui.conftest import People
from tests.ui.site import Person, Strict

pytestmark = pytest.mark.parametrize("engine", REAL, indirect=True)


@pytest.fixture
def ada(people: People) -> Person:
    """A conductor of project p with a token that may write."""
    return people("ada", "*", "p")


def claimed(queue: Queue) -> str:
    """Give a job that somebody else holds."""
    worker = queue.principal("worker", "p")
    queue.create(queue.principal("boss", "p", conductor=True), project="p")
    return worker.job_claim().job_id


def lane(queue: Queue) -> str:
    boss = queue.principal("boss", "p", conductor=True)
    return boss.lane_create(quorum_id=queue.shampoo.registry.open_quorum("p"), assignee_client_id="boss").lane_id


def fence_on(person: Person, job_id: str) -> str:
    return person.get(f"/ui/jobs/{job_id}").text.partition('name="fence" value="')[2].partition('"')[0]


def last(queue: Queue, entity_id: str) -> tuple[str, str]:
    event = queue.shampoo.history(entity_id)[-1]
    return event["event"], event["actor"]


def test_a_job_is_released_in_the_persons_name(queue: Queue, ada: Person) -> None:
    job_id = claimed(queue)
    said = ada.move(f"/ui/jobs/{job_id}/release", fence=fence_on(ada, job_id))
    assert said == "Released: the job is queued again."
    assert last(queue, job_id) == ("job.released", "ada")


def test_a_job_is_completed_as_failed_and_requeued(queue: Queue, ada: Person) -> None:
    job_id = claimed(queue)
    said = ada.move(f"/ui/jobs/{job_id}/fail", fence=fence_on(ada, job_id), result_ref="seen by hand")
    assert said == "Completed as failed."
    assert last(queue, job_id) == ("job.failed", "ada")
    assert "seen by hand" in ada.get(f"/ui/jobs/{job_id}").text
    assert ada.move(f"/ui/jobs/{job_id}/requeue") == "Requeued: the job is queued with no attempt spent."
    assert last(queue, job_id) == ("job.requeued", "ada")


def test_an_exhausted_job_is_requeued(queue: Queue, ada: Person) -> None:
    worker = queue.principal("worker", "p")
    job_id = queue.create(queue.principal("boss", "p", conductor=True), project="p")[0]
    for _ in range(5):
        worker.release(worker.job_claim())
    assert "exhausted" in ada.get(f"/ui/jobs/{job_id}").text
    ada.move(f"/ui/jobs/{job_id}/requeue")
    assert worker.job_claim().attempts == 1


def test_a_late_click_never_touches_a_later_claim(queue: Queue, ada: Person) -> None:
    job_id = claimed(queue)
    seen = fence_on(ada, job_id)
    worker = queue.shampoo.client("worker")
    worker.job_release(job_id=job_id)
    again = worker.job_claim()
    for move in ("release", "fail"):
        assert ada.move(f"/ui/jobs/{job_id}/{move}", fence=seen) == "Refused: lease expired."
    assert worker.complete(again).state == "completed"


def test_a_late_requeue_never_touches_a_later_failure(queue: Queue, ada: Person) -> None:
    job_id = claimed(queue)
    worker = queue.shampoo.client("worker")
    worker.job_complete(job_id=job_id, outcome="failed")
    seen = fence_on(ada, job_id)
    assert ada.move(f"/ui/jobs/{job_id}/requeue", fence=seen).startswith("Requeued")
    worker.fail(worker.job_claim(), reason="again")
    assert ada.move(f"/ui/jobs/{job_id}/requeue", fence=seen) == "Refused: lease expired."
    assert last(queue, job_id) == ("job.failed", "worker")
    assert ada.move(f"/ui/jobs/{job_id}/requeue", fence=fence_on(ada, job_id)).startswith("Requeued")


def forms_on(person: Person, path: str) -> set[str]:
    """Give what a page offers: the ends of its forms' addresses, or the buttons' values where it has several."""
    found = Strict(person.get(path).text).tags
    ends = {given["action"].rpartition("/")[2] for tag, given in found if tag == "form"} - {"sign-out"}
    return ends | {given["value"] for tag, given in found if tag == "button" and "value" in given}


@pytest.mark.parametrize("role, sees", [("owner", "own"), ("executor", "nothing"), ("conductor", "all")])
def test_a_job_offers_only_moves_that_can_succeed(queue: Queue, people: People, role: str, sees: str) -> None:
    boss, other = queue.principal("boss", "p", conductor=True), queue.principal("other", "p")
    person = people(role, "p", conductor=role == "conductor")
    own = queue.shampoo.client(role)
    worker = own if role == "owner" else other

    def offered(job_id: str) -> set[str]:
        found, before = forms_on(person, f"/ui/jobs/{job_id}"), queue.shampoo.history(job_id)
        for move in {"release", "fail", "requeue"} - found:
            person.move(f"/ui/jobs/{job_id}/{move}")
        assert queue.shampoo.history(job_id) == before, "what is not offered would change nothing"
        return found

    clock = queue.stop_clock(round(time.time() * 1_000) - 10_000_000)
    lapsed, live = (boss.job_create(kind=kind, project="p").job_id for kind in ("lapsed", "live"))
    worker.job_claim(kind="lapsed")
    clock.advance(10_000)
    assert offered(live) == set()
    worker.job_claim(kind="live")
    assert offered(live) == ({"release", "fail"} if sees != "nothing" else set())
    assert offered(lapsed) == {"own": {"release"}, "all": {"release", "fail"}, "nothing": set()}[sees]
    boss.job_complete(job_id=live, outcome="failed")
    assert offered(live) == ({"requeue"} if sees == "all" else set())
    if sees == "all":
        assert person.move(f"/ui/jobs/{live}/requeue").startswith("Requeued")


def test_a_lane_offers_only_moves_that_can_succeed(queue: Queue, people: People) -> None:
    boss = queue.principal("boss", "p", conductor=True)
    conductor = people("conductor", "p")
    assignee, other = people("assignee", "p", conductor=False), people("other", "p", conductor=False)
    quorum = queue.shampoo.registry.open_quorum("p", ["assignee", "other"])
    lane_id = boss.lane_create(quorum_id=quorum, assignee_client_id="assignee").lane_id
    path = f"/ui/lanes/{lane_id}"

    def outcomes() -> list[str]:
        return re.findall(r"<option>(\w+)</option>", conductor.get(path).text)

    assert forms_on(conductor, path) == {"state", "in_progress", "cancelled", "review", "submit", "merge"}
    assert forms_on(assignee, path) == {"review", "submit"}
    assert forms_on(other, path) == set()
    assert outcomes() == ["skipped"]
    assert assignee.move(f"{path}/review", decision="submit") == "The lane's review standing was moved."
    assert forms_on(assignee, path) == set()
    assert forms_on(conductor, path) >= {"approve", "request-changes"}
    boss.lane_set_state(lane_id=lane_id, state="in_progress")
    assert outcomes() == ["conflicted", "skipped"]
    boss.lane_review(lane_id=lane_id, decision="approve")
    boss.lane_set_state(lane_id=lane_id, state="done")
    assert outcomes() == ["merged", "conflicted"]
    boss.lane_merge(lane_id=lane_id, outcome="merged", result_commit="abc")
    assert forms_on(conductor, path) == set()


@pytest.mark.parametrize("conductor", [True, False])
def test_tokens_offer_only_what_can_be_revoked(queue: Queue, people: People, conductor: bool) -> None:
    person = people("ada", "*", conductor=conductor)
    queue.principal("worker")
    registry = queue.shampoo.registry
    others, own = registry.issue_token("worker").token_id, registry.issue_token("ada").token_id
    text = person.get("/ui/principals").text
    assert f"/ui/tokens/{own}/revoke" in text
    assert (f"/ui/tokens/{others}/revoke" in text) == conductor
    assert person.move(f"/ui/tokens/{own}/revoke").startswith("Revoked")
    if not conductor:
        assert person.post(f"/ui/tokens/{others}/revoke").status_code == 404


def test_an_executor_requeues_nothing(queue: Queue, people: People) -> None:
    job_id = claimed(queue)
    queue.shampoo.client("worker").job_complete(job_id=job_id, outcome="failed")
    bob = people("bob", "p", conductor=False)
    assert bob.move(f"/ui/jobs/{job_id}/requeue") == f"Refused: {REFUSALS['denied'].words}."
    assert last(queue, job_id) == ("job.failed", "worker")


def test_the_address_of_a_form_leads_to_the_page_that_has_it(queue: Queue, ada: Person, stranger: Person) -> None:
    for path in every_move(queue):
        page = "/ui/principals" if "tokens" in path else path.rpartition("/")[0]
        for person in (ada, stranger):
            answer = person.get(path)
            assert (answer.status_code, answer.headers["location"]) == (303, page)
    assert ada.get("/ui/sign-out").headers["location"] == "/ui"
    assert ada.get("/ui").status_code == 200, "looking at it did nothing"


def test_a_long_result_is_bounded_in_bytes(queue: Queue, ada: Person) -> None:
    job_id = claimed(queue)
    assert 'maxlength="' not in ada.get(f"/ui/jobs/{job_id}").text
    fence = fence_on(ada, job_id)
    assert ada.post(f"/ui/jobs/{job_id}/fail", fence=fence, result_ref="é" * 1_025).status_code == 422
    assert ada.move(f"/ui/jobs/{job_id}/fail", fence=fence, result_ref="é" * 1_024) == "Completed as failed."


def test_refusals_are_said_in_the_contracts_words(queue: Queue, ada: Person, people: People) -> None:
    job_id = queue.create(queue.principal("boss", "p", conductor=True), project="p")[0]
    assert ada.move(f"/ui/jobs/{job_id}/release") == f"Refused: {REFUSALS['job_not_claimed'].words}."
    assert ada.move(f"/ui/jobs/{job_id}/requeue") == f"Refused: {REFUSALS['job_not_requeueable'].words}."
    held = queue.principal("worker", "p").job_claim().job_id
    bob = people("bob", "p", conductor=False)
    assert bob.move(f"/ui/jobs/{held}/release", fence=fence_on(bob, held)) == "Refused: job is not claimed."


def test_a_lane_goes_its_whole_way(queue: Queue, ada: Person) -> None:
    lane_id = lane(queue)
    path = f"/ui/lanes/{lane_id}"
    assert ada.move(f"{path}/merge", outcome="merged", result_commit="abc") == "Refused: lane not mergeable."
    assert ada.move(f"{path}/review", decision="approve") == "Refused: nothing under review."
    assert ada.move(f"{path}/state", state="done") == "Refused: illegal lane transition."
    assert ada.move(f"{path}/state", state="in_progress") == "The lane's execution standing was moved."
    for decision in ("submit", "request-changes", "submit", "approve"):
        assert ada.move(f"{path}/review", decision=decision) == "The lane's review standing was moved."
    assert ada.move(f"{path}/review", decision="submit") == "Refused: review closed."
    ada.move(f"{path}/state", state="done")
    assert ada.move(f"{path}/merge", outcome="merged", result_commit="abc123") == "The merge outcome was recorded."
    assert "abc123" in ada.get(path).text
    actors = {event["actor"] for event in queue.shampoo.history(lane_id)[1:]}
    assert actors == {"ada"}


def test_a_token_is_revoked_by_its_id(queue: Queue, ada: Person) -> None:
    token_id = queue.shampoo.registry.issue_token("ada").token_id
    path = f"/ui/tokens/{token_id}/revoke"
    assert ada.move(path).startswith("Revoked")
    assert last(queue, token_id) == ("token.revoked", "ada")
    assert ada.move(path) == "The token was revoked before."
    assert ada.post("/ui/tokens/AAAAAAAAAAAA/revoke").status_code == 404


def test_who_lacks_star_scope_revokes_only_tokens_of_its_own(queue: Queue, ada: Person, people: People) -> None:
    bob = people("bob", "p")
    registry = queue.shampoo.registry
    others, own = registry.issue_token("ada").token_id, registry.issue_token("bob").token_id
    missing = bob.post("/ui/tokens/AAAAAAAAAAAA/revoke")
    foreign = bob.post(f"/ui/tokens/{others}/revoke")
    assert (foreign.status_code, foreign.text) == (missing.status_code, missing.text) == (404, missing.text)
    assert bob.move(f"/ui/tokens/{own}/revoke").startswith("Revoked")


def every_move(queue: Queue) -> dict[str, dict[str, str]]:
    job_id, token_id = claimed(queue), queue.shampoo.registry.issue_token("boss").token_id
    boss = queue.shampoo.client("boss")
    lane_id = boss.lane_create(quorum_id=queue.shampoo.registry.open_quorum("p")).lane_id
    return {
        f"/ui/jobs/{job_id}/release": {},
        f"/ui/jobs/{job_id}/fail": {},
        f"/ui/jobs/{job_id}/requeue": {},
        f"/ui/lanes/{lane_id}/state": {"state": "in_progress"},
        f"/ui/lanes/{lane_id}/review": {"decision": "submit"},
        f"/ui/lanes/{lane_id}/merge": {"outcome": "skipped"},
        f"/ui/tokens/{token_id}/revoke": {},
    }


def test_no_move_without_the_scope_to_write(queue: Queue, people: People) -> None:
    moves = every_move(queue)
    bob = people("bob", "*", "p", scope="ops:read")
    before = queue.facts()
    for path, form in moves.items():
        answer = bob.post(path, **form)
        assert answer.status_code == 403
        assert "ops:write" in answer.text
        assert f'action="{path}"' not in bob.get(path.rpartition("/")[0].replace("/tokens", "/principals")).text
    assert queue.facts() == before


@pytest.mark.parametrize("csrf", ["", "x", "é", "a" * 32, None])
def test_no_move_without_the_word_of_the_session(queue: Queue, ada: Person, csrf: str | None) -> None:
    moves = every_move(queue)
    before = queue.facts()
    ada.get("/ui")
    right = ada.csrf
    for path, form in moves.items():
        wrong = right[:-1] + "!" if csrf is None else csrf
        assert ada.post(path, **form | {"csrf": wrong}).status_code == 403
        assert ada.post(path, {"Sec-Fetch-Site": "cross-site"}, **form).status_code == 403
    assert ada.client.post("/ui/sign-out", data={"csrf": "x"}).status_code == 403
    assert queue.facts() == before


def test_no_move_of_a_stranger_or_of_another_session(
    queue: Queue, ada: Person, people: People, stranger: Person
) -> None:
    moves = every_move(queue)
    eve = people("eve", "*", "p")
    ada.get("/ui")
    before = queue.facts()
    for path, form in moves.items():
        assert eve.post(path, **form | {"csrf": ada.csrf}).status_code == 403
        assert stranger.client.post(path, data=form).headers["location"] == "/ui/sign-in"
    assert queue.facts() == before


def test_a_move_that_does_not_exist_is_not_found(queue: Queue, ada: Person) -> None:
    job_id = claimed(queue)
    for path in (f"/ui/jobs/{job_id}/explode", "/ui/lanes/x/explode", "/ui/lanes/x/state", "/ui/jobs/x/release"):
        assert ada.post(path).status_code == 404
    assert ada.post(f"/ui/jobs/{job_id}/release", fence="1e3").status_code == 422
    assert ada.post(f"/ui/jobs/{job_id}/fail", result_ref="x" * 3_000).status_code == 422


def test_a_flash_line_is_only_what_an_action_of_this_session_said(queue: Queue, ada: Person, people: People) -> None:
    job_id = claimed(queue)
    answer = ada.post(f"/ui/jobs/{job_id}/release", fence=fence_on(ada, job_id))
    genuine = answer.headers["location"]
    path, _, code = genuine.partition("?flash=")
    eve = people("eve", "*", "p")
    forged = [f"{path}?flash={one}" for one in ("released", "released.x", "<b>.x", code[:-1], f"{code}é", code.upper())]
    elsewhere = f"/ui/jobs?flash={code}"
    words = "the job is queued again"
    assert words in ada.get(genuine).text
    assert all(words not in ada.get(one).text for one in [*forged, elsewhere])
    assert words not in eve.get(genuine).text


def test_attempts_are_shown_as_they_are_spent(queue: Queue, ada: Person) -> None:
    worker = queue.principal("worker", "p")
    job_id = queue.create(queue.principal("boss", "p", conductor=True), project="p")[0]
    shown = []
    for _ in range(5):
        shown.append(ada.get(f"/ui/jobs/{job_id}").text.partition(" of 5<")[0][-1])
        worker.release(worker.job_claim())
    assert all(int(later) == int(earlier) + 1 for earlier, later in pairwise(shown))
