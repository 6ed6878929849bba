"""Two servers side by side, one of them killed in the middle of the work: what clients repeat happens once."""

from __future__ import annotations

import itertools
import json
import socket
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPConnection, HTTPException
from typing import Any

import pytest

from tests.contract.cast import PROJECT
from tests.parity.serving import Serve
from tests.queue import Engine, Queue
from tests.servers import wait_until

pytestmark = pytest.mark.parametrize(
    "engine", ["embedded", pytest.param("redis7", marks=pytest.mark.slow)], indirect=True
)


@pytest.fixture
def replicas(engine: Engine) -> Iterator[list[Serve]]:
    started = [Serve(engine.url, "--log-level", "warning") for _ in range(2)]
    try:
        assert all(server.url for server in started)
        yield started
    finally:
        for server in started:
            server.stop()
            assert "Traceback" not in server.err


class RoundRobin:
    """A client of all servers in turn, which repeats a call under its id until somebody answers."""

    def __init__(self, servers: list[Serve], token: str) -> None:
        self._turns = itertools.cycle([server.port for server in servers])
        self._links: dict[int, HTTPConnection] = {}
        self._token = token
        self.repeated = self.replayed = 0

    def call(
        self, tool: str, fence: int | None = None, _key: str | None = None, **arguments: Any
    ) -> tuple[dict[str, Any], int | None]:
        """Give the result, and the fence that came beside it."""
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        headers |= {"Idempotency-Key": _key or str(uuid.uuid4())} | (
            {} if fence is None else {"Shampoo-Fence": str(fence)}
        )
        until = time.monotonic() + 30
        while time.monotonic() < until:
            port = next(self._turns)
            with suppress(OSError, HTTPException):
                link = self._links.setdefault(port, HTTPConnection("127.0.0.1", port, timeout=20))
                link.request("POST", f"/v1/tools/{tool}", json.dumps(arguments), headers)
                answer = link.getresponse()
                body = json.loads(answer.read())
                if answer.status == 200:
                    self.replayed += answer.headers.get("Idempotency-Replayed") == "true"
                    fenced = answer.headers.get("Shampoo-Fence")
                    return body, None if fenced is None else int(fenced)
                assert body["error"]["code"] == "unavailable", body
            self.repeated += 1
            self._links.pop(port).close()
        raise AssertionError("nobody answers")

    def close(self) -> None:
        for link in self._links.values():
            link.close()


def work(client: RoundRobin, quorum_id: str, rounds: int, done: threading.Semaphore) -> list[str]:
    """Create, claim and complete jobs, and move lanes; give the ids of what was created."""
    made = []
    for _ in range(rounds):
        made.append(client.call("job_create", kind="k", project=PROJECT)[0]["job_id"])
        lane_id = client.call("lane_create", quorum_id=quorum_id)[0]["lane_id"]
        made.append(lane_id)
        claim, fence = client.call("job_claim", kind="k")
        if claim["claimed"]:
            client.call("job_complete", fence, job_id=claim["job_id"], outcome="completed")
        for state in ("in_progress", "done"):
            client.call("lane_set_state", lane_id=lane_id, state=state)
        done.release()
    return made


def test_nothing_happens_twice_when_a_server_is_killed(queue: Queue, replicas: list[Serve]) -> None:
    hands, rounds = 8, 12
    queue.principal("c", PROJECT, conductor=True)
    quorum_id = queue.shampoo.registry.open_quorum(PROJECT, ["c"])
    clients = [RoundRobin(replicas, queue.shampoo.registry.issue_token("c").token) for _ in range(hands)]
    done = threading.Semaphore(0)
    with ThreadPoolExecutor(hands) as threads:
        working = [threads.submit(work, client, quorum_id, rounds, done) for client in clients]
        for _ in range(hands * rounds // 3):
            done.acquire(timeout=30)
        replicas[0].kill()
        made = [name for hand in working for name in hand.result(90)]
    leave(queue, clients[0])
    assert sum(client.repeated for client in clients) >= 1
    assert len(set(made)) == 2 * hands * rounds
    events = queue.shampoo.history(limit=1000)
    while len(page := queue.shampoo.history(after=events[-1].id, limit=1000)):
        events += page
    moves = Counter(
        (event.event, event.entity_id, event.to) for event in events if event.event.startswith(("job", "lane"))
    )
    assert set(moves.values()) == {1}
    assert {event.entity_id for event in events if event.event in ("job.created", "lane.created")} == set(made)
    told = Counter(event.event for event in events)
    assert told["job.claimed"] == told["job.completed"] == told["lane.created"] == hands * rounds
    assert told["lane.state_changed"] == 2 * hands * rounds
    for client in clients:
        client.close()


def test_a_call_whose_answer_was_lost_is_answered_by_the_other_server(queue: Queue, replicas: list[Serve]) -> None:
    queue.principal("c", PROJECT, conductor=True)
    quorum_id = queue.shampoo.registry.open_quorum(PROJECT, ["c"])
    token = queue.shampoo.registry.issue_token("c").token
    known = RoundRobin([replicas[1]], token)
    lane_id = known.call("lane_create", quorum_id=quorum_id)[0]["lane_id"]
    calls: list[tuple[str, dict[str, Any]]] = [
        ("job_create", {"kind": "k", "project": PROJECT}),
        ("job_claim", {"kind": "k"}),
        ("lane_set_state", {"lane_id": lane_id, "state": "in_progress"}),
        ("lane_review", {"lane_id": lane_id, "decision": "submit"}),
        ("lane_create", {"quorum_id": quorum_id}),
    ]
    for tool, arguments in calls:
        before, body = len(queue.events()), json.dumps(arguments).encode()
        head = f"POST /v1/tools/{tool} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {token}\r\n"
        head += f"Idempotency-Key: {tool}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", replicas[0].port), 20) as connection:
            connection.sendall(head.encode() + body)
            wait_until(lambda: len(queue.events()) > before, f"{tool} is carried out")  # noqa: B023
        facts = queue.facts()
        answer, fence = known.call(tool, None, _key=tool, **arguments)
        assert known.replayed
        assert queue.facts() == facts
        assert (fence is not None) == (tool == "job_claim")
        assert set(answer.values()) & {entity.entity_id for entity in queue.shampoo.history()}
        known.replayed = 0
    known.close()


def leave(queue: Queue, client: RoundRobin) -> None:
    """Finish what the hands left over: somebody else's job may have been the one that was claimed."""
    while (claim := client.call("job_claim"))[0]["claimed"]:
        client.call("job_complete", claim[1], job_id=claim[0]["job_id"], outcome="completed")
