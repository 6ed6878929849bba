"""Every write once: how to prepare it, to make it, what it answers, what it records, and what may follow it.

``later`` makes calls after which the same request, if it came once more and were obeyed, would change something.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shampoo_queue import scripts
from shampoo_queue.contract import JobClaimResult
from shampoo_queue.moves import Move
from tests.faults.flavours import Flavour
from tests.queue import Queue

COMMIT = "c0ffee"


class Stage:
    """A profile with a conductor ``c``, workers ``w`` and ``w2``, and what a case has put there."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.conductor = queue.principal("c", "p", conductor=True)
        self.worker = queue.principal("w", "p")
        queue.principal("w2", "p")
        self.quorum = queue.shampoo.registry.open_quorum("p", ["w"])
        self.task = queue.shampoo.registry.add_task("t")
        self.job = self.other = self.lane = ""
        self.fence: int | None = None
        self.claim = JobClaimResult(claimed=False)

    def queued(self) -> None:
        self.job, self.other = self.queue.create(self.conductor, 2, project="p")

    def claimed(self) -> None:
        self.queued()
        self.claim = self.worker.job_claim(lease_seconds=60)
        self.fence = self.claim.fence

    def failed(self) -> None:
        self.claimed()
        self.worker.job_complete(job_id=self.job, outcome="failed")

    def opened(self) -> None:
        self.lane = self.conductor.lane_create(quorum_id=self.quorum, assignee_client_id="w").lane_id

    def in_progress(self) -> None:
        self.opened()
        self.conductor.lane_set_state(lane_id=self.lane, state="in_progress")

    def pending(self) -> None:
        self.in_progress()
        self.worker.lane_review(lane_id=self.lane, decision="submit")

    def approved(self) -> None:
        self.pending()
        self.conductor.lane_review(lane_id=self.lane, decision="approve")
        self.conductor.lane_set_state(lane_id=self.lane, state="done")

    def newest_event(self) -> int:
        """The number of the newest event, to tell later ones by."""
        return int(self.queue.command("HGET", self.queue.key("profile"), "seq"))

    def events_after(self, number: int) -> list[str]:
        return [event["event"] for event in self.queue.shampoo.history(after=number, limit=1000)]

    def load_scripts(self) -> None:
        """Let the server know every script, so that no call meets NOSCRIPT."""
        for name in scripts.names():
            script = self.queue.shampoo._wire._script(Move(name, ()))
            self.queue.command("SCRIPT", "LOAD", script.text)


def nothing(*_: Any) -> None:
    """Prepare nothing, or let nothing follow."""


@dataclass(frozen=True)
class Case:
    """One write."""

    name: str
    prepare: Callable[[Stage], None]
    act: Callable[[Flavour, Stage], Any]
    answer: Callable[[Stage], Any]
    events: tuple[str, ...]
    later: Callable[[Flavour, Stage], Any] = nothing

    @property
    def tool(self) -> str:
        """The tool's name; of a registry's or operator's move the method's."""
        return self.name.partition(" ")[0]


ID = "<an id>"
"""Stands in an expected answer for an id that the call makes."""


def shown(answer: Any, expected: Any) -> Any:
    """Give the answer with what the call made itself struck out where the expected one says so."""
    if isinstance(expected, dict):
        return {name: expected[name] if expected.get(name) == ID else value for name, value in answer.items()}
    return ID if expected == ID and isinstance(answer, str) and answer else answer


def _claim(client_id: str = "w") -> Callable[[Flavour, Stage], Any]:
    return lambda flavour, stage: flavour.tool(client_id, "job_claim", lease_seconds=60)


def _claimed(stage: Stage) -> dict[str, Any]:
    return {"claimed": True, "job_id": stage.job, "kind": "k", "payload": "", "lease_until": ID, "attempts": 1}


def _claim_and_release(flavour: Flavour, stage: Stage) -> None:
    flavour.tool("w", "job_claim")
    flavour.tool("w", "job_release", job_id=stage.other)


def _complete(outcome: str, fenced: bool = False) -> Callable[[Flavour, Stage], Any]:
    def act(flavour: Flavour, stage: Stage) -> Any:
        fence = stage.fence if fenced else None
        return flavour.tool("w", "job_complete", job_id=stage.job, outcome=outcome, result_ref="r", fence=fence)

    return act


def _requeue_and_claim(flavour: Flavour, stage: Stage) -> None:
    flavour.ops("cancel", stage.other, "out of the way")
    flavour.ops("requeue", stage.job)
    assert flavour.tool("w", "job_claim")["job_id"] == stage.job


def _claim_the_released(flavour: Flavour, stage: Stage) -> None:
    flavour.ops("cancel", stage.other, "out of the way")
    assert flavour.tool("w", "job_claim")["job_id"] == stage.job


def _claim_and_fail(flavour: Flavour, stage: Stage) -> None:
    _claim_the_released(flavour, stage)
    flavour.tool("w", "job_complete", job_id=stage.job, outcome="failed")


def _set_state(state: str) -> Callable[[Flavour, Stage], Any]:
    return lambda flavour, stage: flavour.tool("c", "lane_set_state", lane_id=stage.lane, state=state)


def _review(client_id: str, decision: str) -> Callable[[Flavour, Stage], Any]:
    return lambda flavour, stage: flavour.tool(client_id, "lane_review", lane_id=stage.lane, decision=decision)


def _merge(outcome: str, commit: str | None = None) -> Callable[[Flavour, Stage], Any]:
    return lambda flavour, stage: flavour.tool(
        "c", "lane_merge", lane_id=stage.lane, outcome=outcome, result_commit=commit
    )


TOOLS = [
    Case(
        "job_create",
        nothing,
        lambda flavour, stage: flavour.tool("c", "job_create", kind="k", project="p", payload="x"),
        lambda stage: {"job_id": ID, "state": "queued"},
        ("job.created",),
        _claim(),
    ),
    Case(
        "job_claim",
        Stage.queued,
        _claim(),
        _claimed,
        ("job.claimed",),
        lambda flavour, stage: flavour.tool("w", "job_complete", job_id=stage.job, outcome="completed"),
    ),
    Case("job_claim before another", Stage.queued, _claim(), _claimed, ("job.claimed",), _claim_and_release),
    Case(
        "job_complete with a fence",
        Stage.claimed,
        _complete("failed", fenced=True),
        lambda stage: {"job_id": stage.job, "state": "failed"},
        ("job.failed",),
        _requeue_and_claim,
    ),
    Case(
        "job_complete without a fence",
        Stage.claimed,
        _complete("failed"),
        lambda stage: {"job_id": stage.job, "state": "failed"},
        ("job.failed",),
        _requeue_and_claim,
    ),
    Case(
        "job_release",
        Stage.claimed,
        lambda flavour, stage: flavour.tool("w", "job_release", job_id=stage.job),
        lambda stage: {"job_id": stage.job, "state": "queued"},
        ("job.released",),
        _claim_the_released,
    ),
    Case(
        "lane_create",
        nothing,
        lambda flavour, stage: flavour.tool("c", "lane_create", quorum_id=stage.quorum, task_id=stage.task),
        lambda stage: {"lane_id": ID, "project": "p", "state": "open"},
        ("lane.created",),
    ),
    Case(
        "lane_set_state",
        Stage.opened,
        _set_state("in_progress"),
        lambda stage: {"lane_id": stage.lane, "state": "in_progress"},
        ("lane.state_changed",),
        _set_state("done"),
    ),
    Case(
        "lane_review submit",
        Stage.in_progress,
        _review("w", "submit"),
        lambda stage: {"lane_id": stage.lane, "review_state": "pending"},
        ("lane.reviewed",),
        _review("c", "request-changes"),
    ),
    Case(
        "lane_review request-changes",
        Stage.pending,
        _review("c", "request-changes"),
        lambda stage: {"lane_id": stage.lane, "review_state": "changes_requested"},
        ("lane.reviewed",),
        _review("w", "submit"),
    ),
    Case(
        "lane_merge merged",
        Stage.approved,
        _merge("merged", COMMIT),
        lambda stage: {"lane_id": stage.lane, "merge_state": "merged"},
        ("lane.merged",),
    ),
    Case(
        "lane_merge conflicted",
        Stage.in_progress,
        _merge("conflicted"),
        lambda stage: {"lane_id": stage.lane, "merge_state": "conflicted"},
        ("lane.merged",),
        _merge("skipped"),
    ),
]


def _registered(
    name: str, given: Callable[[Stage], tuple[Any, ...]], *events: str, undo: str = "", before: str = "", **named: Any
) -> Case:
    """A move of the registry that changes something; ``undo`` takes it back, ``before`` makes it possible."""
    return Case(
        name,
        (lambda stage: getattr(stage.queue.shampoo.registry, before)(*given(stage))) if before else nothing,
        lambda flavour, stage: flavour.registry(name, *given(stage), **named),
        lambda stage: ID if name == "open_quorum" else "t2" if name == "add_task" else True,
        events,
        (lambda flavour, stage: flavour.registry(undo, *given(stage))) if undo else nothing,
    )


REGISTRY = [
    _registered("add_principal", lambda _: ("new",), "principal.added", "principal.granted", grants=["p"]),
    _registered("grant", lambda _: ("w", "p2"), "principal.granted", undo="revoke"),
    _registered("revoke", lambda _: ("w", "p"), "principal.revoked", undo="grant"),
    Case(
        "set_conductor",
        nothing,
        lambda flavour, stage: flavour.registry("set_conductor", "w", True),
        lambda stage: True,
        ("principal.conductor_set",),
        lambda flavour, stage: flavour.registry("set_conductor", "w", False),
    ),
    _registered("disable_principal", lambda _: ("w",), "principal.disabled", undo="enable_principal"),
    _registered(
        "enable_principal",
        lambda _: ("w",),
        "principal.enabled",
        undo="disable_principal",
        before="disable_principal",
    ),
    _registered("open_quorum", lambda _: ("p",), "quorum.opened", "quorum.participant_added", participants=["w"]),
    _registered("close_quorum", lambda stage: (stage.quorum,), "quorum.closed"),
    _registered(
        "add_participant",
        lambda stage: (stage.quorum, "w2"),
        "quorum.participant_added",
        undo="remove_participant",
    ),
    _registered(
        "remove_participant",
        lambda stage: (stage.quorum, "w"),
        "quorum.participant_removed",
        undo="add_participant",
    ),
    _registered("add_task", lambda _: ("t2",), "task.added", undo="close_task"),
    _registered("close_task", lambda stage: (stage.task,), "task.closed"),
]

OPERATORS = [
    Case(
        "requeue",
        Stage.failed,
        lambda flavour, stage: flavour.ops("requeue", stage.job),
        lambda stage: None,
        ("job.requeued",),
        _claim_and_fail,
    ),
    Case(
        "cancel",
        Stage.queued,
        lambda flavour, stage: flavour.ops("cancel", stage.job, "not needed"),
        lambda stage: None,
        ("job.failed",),
        lambda flavour, stage: flavour.ops("requeue", stage.job),
    ),
]


def _beside(
    name: str, *events: str, state: str = "queued", later: Callable[[Flavour, Stage], Any] = nothing, **named: Any
) -> Case:
    """A move of the library with the claim in hand, beside the tools."""

    def act(flavour: Flavour, stage: Stage) -> Any:
        found = flavour.library("w", name.partition(" ")[0], stage.claim, **named)
        return {field: getattr(found, field) for field in answer(stage)}

    def answer(stage: Stage) -> Any:
        return {"job_id": stage.job} | ({"state": state} if events else {"lease_until": ID})

    return Case(name, Stage.claimed, act, answer, events, later)


def _release_and_claim(flavour: Flavour, stage: Stage) -> None:
    flavour.tool("w", "job_release", job_id=stage.job)
    _claim_the_released(flavour, stage)


def _create_delayed(flavour: Flavour, stage: Stage) -> Any:
    found = flavour.library("c", "job_create", kind="k", project="p", payload="x", delay_seconds=5)
    return {"job_id": found.job_id, "state": found.state}


LIBRARY = [
    Case("job_create with a delay", nothing, _create_delayed, lambda stage: {"job_id": ID, "state": "queued"},
         ("job.created",)),
    _beside("renew", later=_release_and_claim, lease_seconds=90),
    _beside("renew after its end", later=lambda flavour, stage: flavour.tool("w", "job_complete", job_id=stage.job,
                                                                            outcome="completed")),
    _beside("release with a delay", "job.released", delay_seconds=5, reason="no disk",
            later=lambda flavour, stage: flavour.ops("cancel", stage.job, "enough")),
    _beside("release with a reason", "job.released", reason="no disk", later=_claim_the_released),
    _beside("fail with a reason", "job.failed", state="failed", reason="no disk", later=_requeue_and_claim),
    _beside("complete", "job.completed", state="completed", result_ref="r"),
]  # fmt: skip

OPERATORS += [
    Case(
        "limit_kind",
        nothing,
        lambda flavour, stage: flavour.ops("limit_kind", "k", 4),
        lambda stage: True,
        ("kind.limited",),
        lambda flavour, stage: flavour.ops("limit_kind", "k", 9),
    ),
]

WRITES = [*TOOLS, *LIBRARY, *REGISTRY, *OPERATORS]


def clear(stage: Stage) -> None:
    """Cancel whatever waits, so that the next case meets its own jobs."""
    ops = stage.queue.shampoo.ops
    for job_id in {stage.job, stage.other} - {""}:
        if (ops.job(job_id) or {})["standing"] in ("queued", "claimed"):
            ops.cancel(job_id, "done with")
    while claim := stage.worker.job_claim():
        ops.cancel(claim.job_id, "done with")
    stage.job = stage.other = ""


def call_every_tool(flavour: Flavour, stage: Stage, hurt: Callable[[], Any] = nothing) -> None:
    """Call each of the nine tools, ``hurt`` right before each, and hold it to the right answer and one effect."""
    for case in TOOLS:
        case.prepare(stage)
        before = stage.newest_event()
        hurt()
        answer, wanted = case.act(flavour, stage), case.answer(stage)
        assert shown(answer, wanted) == wanted, case.name
        assert stage.events_after(before) == list(case.events), case.name
        clear(stage)
    lanes = stage.conductor.lane_list(limit=100).count
    hurt()
    assert flavour.tool("c", "lane_list", limit=100)["count"] == lanes
