"""Every refusal that a script can return, made once on a real server, which counts it by itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shampoo_queue import scripts
from shampoo_queue.errors import REFUSALS
from tests.contract.cast import MISSING, PROJECT, lane, quorum_with
from tests.contract.test_scripts import move
from tests.queue import Clock, Queue

on_real_servers = pytest.mark.parametrize("engine", ["embedded", "redis7"], indirect=True)

Provoked = dict[str, Callable[[], object]]


def provocations(queue: Queue, clock: Clock) -> Provoked:
    """Set the stage, and give for each code a call that is refused with it."""
    registry, ops = queue.shampoo.registry, queue.shampoo.ops
    c, w = queue.principal("c", PROJECT, "q", conductor=True), queue.principal("w", PROJECT)
    registry.add_principal("full", grants=[f"g{n}" for n in range(1_000)])
    registry.add_task("ended")
    registry.close_task("ended")
    quorum, closed = quorum_with(queue), quorum_with(queue)
    registry.close_quorum(closed)
    stream = lane(queue, c, quorum_id=quorum)
    in_review = lane(queue, c, quorum_id=quorum, review="pending")
    lapsed, ended, waiting = (queue.create(c, kind=kind, project=PROJECT)[0] for kind in ("l", "e", "w"))
    w.job_claim(kind="l", lease_seconds=1)
    w.job_claim(kind="e")
    w.job_complete(job_id=ended, outcome="completed")
    w.job_claim(kind="none", request_id="free")
    c.job_create(kind="none", project="q", request_id="taken")
    revoked = registry.issue_token("w").token_id
    registry.revoke_token(revoked)
    clock.advance(1)
    return {
        "unauthenticated": lambda: queue.shampoo.client("nobody").job_claim(),
        "denied": lambda: w.job_create(kind="k", project=PROJECT),
        "request_id_reused": lambda: c.job_claim(request_id="taken"),
        "job_not_found": lambda: w.job_release(job_id=MISSING),
        "job_not_claimed": lambda: w.job_complete(job_id=waiting, outcome="failed"),
        "lease_expired": lambda: w.job_complete(job_id=lapsed, outcome="failed"),
        "job_already_terminal": lambda: w.job_complete(job_id=ended, outcome="failed"),
        "lane_not_found": lambda: c.job_create(kind="k", lane_id=MISSING),
        "project_mismatch": lambda: c.job_create(kind="k", lane_id=stream, project="q"),
        "unknown_lane": lambda: c.lane_set_state(lane_id=MISSING, state="done"),
        "quorum_not_open": lambda: c.lane_create(quorum_id=closed),
        "unknown_client": lambda: c.lane_create(quorum_id=quorum, assignee_client_id="nobody"),
        "task_not_found": lambda: c.lane_create(quorum_id=quorum, task_id="ended"),
        "dependency_not_in_quorum": lambda: c.lane_create(quorum_id=quorum, depends_on=MISSING),
        "illegal_lane_transition": lambda: c.lane_set_state(lane_id=stream, state="done"),
        "review_closed": lambda: c.lane_review(lane_id=in_review, decision="submit"),
        "nothing_under_review": lambda: c.lane_review(lane_id=stream, decision="approve"),
        "lane_not_mergeable": lambda: c.lane_merge(lane_id=stream, outcome="merged"),
        "unknown_principal": lambda: registry.grant("nobody", PROJECT),
        "principal_exists": lambda: registry.add_principal("w", conductor=True),
        "unknown_quorum": lambda: registry.close_quorum(MISSING),
        "unknown_task": lambda: registry.add_task("ended"),
        "unknown_token": lambda: registry.revoke_token("0" * 12),
        "token_not_live": lambda: registry.rotate_token(revoked),
        "job_not_requeueable": lambda: ops.requeue(waiting),
        "limit_reached": lambda: registry.grant("full", "one more"),
    }


def counted(queue: Queue) -> dict[str, int]:
    """Read how often the server has refused with each code so far."""
    lines: str = queue.command("INFO", "errorstats").decode()
    found = (line.removeprefix("errorstat_").split(":count=") for line in lines.split() if "errorstat_" in line)
    return {code: int(count) for code, count in found if code.lower() in REFUSALS}


@on_real_servers
def test_every_refusal_is_counted_by_the_server_under_its_code(queue: Queue, clock: Clock) -> None:
    calls = provocations(queue, clock)
    assert set(calls) == {code.lower() for name in scripts.names() for code in move(name).listed("Refuses")}
    for code, call in calls.items():
        before = counted(queue)
        with pytest.raises(REFUSALS[code]):
            call()
        after = counted(queue)
        assert after == before | {code.upper(): before.get(code.upper(), 0) + 1}


def test_a_refusal_reads_alike_on_every_engine(queue: Queue, clock: Clock) -> None:
    for code, call in provocations(queue, clock).items():
        with pytest.raises(REFUSALS[code]) as caught:
            call()
        assert (caught.value.code, caught.value.message) == (code, REFUSALS[code].words)
