"""Free text in names: two different names never share a key, and no text reaches a key that is not its own."""

from __future__ import annotations

import itertools
import uuid
from typing import Any

import pytest

from shampoo_queue import Shampoo, ToolError, errors
from tests.library.flavours import THREE, TWO, Flavour
from tests.queue import Clock, Engine, Queue

ODD = (
    *("p1", "p1:x", "p1:", ":p1", "p1%3Ax", "p1%253Ax", "p1%", "%", ":", "::", "a:b:c", "**", "?", "[a]", "a"),
    *("\\", "\\*", "{x}", "}{", "{default}", "..", "../p1", "/", "%s", "P1", "0", "-0", " ", " p1", "p1 "),
    *("é", "e\u0301", "\u00e9:", "队列", "🧴", "nil", "null", "grant:", "000000000001:p1", "\u2028", "\u200b"),
    *("'", '"', "x" * 128),
)


def test_a_project_may_have_any_name_and_each_is_a_project_of_its_own(engine: Engine, flavour: Flavour) -> None:
    """Field report 34: of forty odd projects, each worker sees and claims the jobs of its own and no other."""
    queue = Queue(engine)
    queue.principal("c", *ODD, conductor=True)
    shampoo = flavour.open(queue)
    conductor = shampoo.client("c")
    made = {project: conductor.job_create(kind="k", project=project).job_id for project in ODD}
    for n, project in enumerate(ODD):
        queue.principal(f"w{n}", project)
        worker = shampoo.client(f"w{n}")
        assert worker.job_claim().job_id == made[project]
        assert not worker.job_claim()
    assert queue.problems() == []
    queue.close()


@THREE
def test_a_kind_may_have_any_name_and_each_is_a_kind_of_its_own(queue: Queue, clock: Clock) -> None:
    """Field report 34: a claim for one kind never gets a job of another, however alike the names are."""
    client = queue.principal("c", "p", "p:k", "p%3Ak", conductor=True)
    kinds = [kind[:64] for kind in ODD]
    made = {
        (project, kind): client.job_create(kind=kind, project=project).job_id
        for project, kind in itertools.product(("p", "p:k", "p%3Ak"), kinds)
    }
    for kind in reversed(kinds):
        taken = {client.job_claim(kind=kind).job_id for _ in range(3)}
        assert taken == {job_id for (_, of_kind), job_id in made.items() if of_kind == kind}
        assert not client.job_claim(kind=kind)


@THREE
def test_the_border_between_project_and_kind_cannot_be_moved(queue: Queue, clock: Clock) -> None:
    """Field report 34: `a:b` with kind `c` is not `a` with kind `b:c`."""
    pairs = [("a:b", "c"), ("a", "b:c"), ("a%3Ab", "c"), ("a", "b%3Ac"), ("a:", ":b"), ("a", "::b"), ("a::", "b")]
    client = queue.principal("c", *{project for project, _ in pairs}, conductor=True)
    made = {pair: client.job_create(kind=pair[1], project=pair[0]).job_id for pair in pairs}
    for n, (project, kind) in enumerate(pairs):
        worker = queue.principal(f"w{n}", project)
        assert worker.job_claim(kind=kind).job_id == made[project, kind]
        assert not worker.job_claim(kind=kind)


@THREE
def test_a_principal_may_have_any_name_and_each_is_a_caller_of_its_own(queue: Queue, clock: Clock) -> None:
    """Field report 34: grants, roles, remembered answers and ownership of one name never reach another."""
    names = [name[:128] for name in (*ODD, "*")]
    for n, name in enumerate(names):
        queue.principal(name, f"project {n}", conductor=True)
    assert [principal.client_id for principal in queue.shampoo.registry.principals()] == names
    for n, name in enumerate(names):
        caller = queue.shampoo.client(name)
        (job_id,) = queue.create(caller, project=f"project {n}", request_id="same")
        assert caller.job_claim(request_id="same-claim").job_id == job_id
        with pytest.raises(errors.Denied):
            caller.job_create(kind="k", project=f"project {n + 1}")
    queue.shampoo.registry.disable_principal("p1")
    with pytest.raises(errors.Unauthenticated):
        queue.shampoo.client("p1").job_claim()
    assert not queue.shampoo.client("p1:").job_claim()


@THREE
def test_fields_of_a_lane_may_hold_any_name_and_come_back_as_given(queue: Queue, clock: Clock) -> None:
    """Field report 34: a lane's places and links are kept as they are."""
    client = queue.principal("c", *ODD, conductor=True)
    for name in ODD:
        queue.principal(f"worker of {name}"[:128], name)
        task = queue.shampoo.registry.add_task(name)
        quorum = queue.shampoo.registry.open_quorum(name, [f"worker of {name}"[:128]])
        facts = {"repo": name, "branch": name, "base_ref": name, "worktree": name, "task_id": task}
        lane_id = client.lane_create(quorum_id=quorum, assignee_client_id=f"worker of {name}"[:128], **facts).lane_id
        assert facts.items() <= (queue.shampoo.ops.lane(lane_id) or {}).items()
        (lane,) = client.lane_list(project=name).lanes
        assert (lane.lane_id, lane.project, lane.task_id) == (lane_id, name, name)
        seen = queue.shampoo.client(f"worker of {name}"[:128]).lane_list()
        assert [lane.lane_id for lane in seen.lanes] == [lane_id]


@TWO
def test_a_control_character_is_refused_in_every_name(queue: Queue, clock: Clock) -> None:
    """Field report 34: names are one printable line; a newline at the end is not forgiven either."""
    client = queue.principal("c", "p", conductor=True)
    registry: Any = queue.shampoo.registry
    quorum = registry.open_quorum("p")
    before = queue.facts()
    letters = ("\n", "\r", "\t", "\x00", "\x1b", "\x7f", "\x85", "\x9f")
    for name in (form.format(letter) for letter in letters for form in ("a{}b", "p{}", "{}")):
        for tool, arguments in (
            ("job_create", {"kind": name, "project": "p"}),
            ("job_create", {"kind": "k", "project": name}),
            ("job_claim", {"kind": name}),
            ("lane_list", {"project": name}),
            ("lane_create", {"quorum_id": quorum, "branch": name}),
            ("lane_merge", {"lane_id": "x", "outcome": "merged", "result_commit": name}),
        ):
            with pytest.raises(errors.InvalidArgument):
                client.call(tool, arguments)
        for change, given in (
            (registry.add_principal, (name,)),
            (registry.grant, ("c", name)),
            (registry.open_quorum, (name,)),
            (registry.add_task, (name,)),
        ):
            with pytest.raises(errors.InvalidArgument):
                change(*given)
    assert queue.facts() == before


@THREE
def test_star_is_no_project(queue: Queue, clock: Clock, flavour: Flavour) -> None:
    """Field report 34: `*` originates nothing, as a project or as the project of a quorum; `**` is just a name."""
    queue.principal("c", "*", "**", conductor=True)
    shampoo = flavour.open(queue)
    before = queue.facts()
    with pytest.raises(errors.InvalidArgument, match="must not be"):
        shampoo.client("c").job_create(kind="k", project="*")
    with pytest.raises(errors.InvalidArgument, match="must not be"):
        shampoo.registry.open_quorum("*")
    assert queue.facts() == before
    assert shampoo.client("c").job_create(kind="k", project="**").state == "queued"


@THREE
def test_an_id_of_any_other_form_names_nothing(queue: Queue, clock: Clock, flavour: Flavour) -> None:
    """Field report 34: braces, `urn:uuid:`, capitals, missing hyphens, a newline or a glob reach no entry at all."""
    conductor = queue.principal("c", "p", conductor=True)
    quorum = queue.shampoo.registry.open_quorum("p")
    lane_id = conductor.lane_create(quorum_id=quorum).lane_id
    (job_id,) = queue.create(conductor, project="p")
    client = flavour.open(queue).client("c")
    client.job_claim(lease_seconds=3600)
    before = queue.facts()
    for odd in odd_forms(job_id):
        for tool in ("job_complete", "job_release"):
            assert code(client, tool, job_id=odd, outcome="completed") == "job_not_found", (tool, odd)
    for odd in odd_forms(lane_id):
        assert code(client, "lane_set_state", lane_id=odd, state="in_progress") == "unknown_lane"
        assert code(client, "lane_review", lane_id=odd, decision="submit") == "unknown_lane"
        assert code(client, "lane_merge", lane_id=odd, outcome="skipped") == "unknown_lane"
        if odd and len(odd) <= 128:
            assert code(client, "job_create", kind="k", lane_id=odd, project="p") == "lane_not_found"
            assert code(client, "lane_create", quorum_id=quorum, depends_on=odd) == "dependency_not_in_quorum"
    for odd in odd_forms(quorum):
        assert code(client, "lane_create", quorum_id=odd) == "unknown_lane"
        assert client.lane_list(quorum_id=odd).count == 0
    assert queue.facts() == before


def odd_forms(entry_id: str) -> list[str]:
    return [
        *(f"{{{entry_id}}}", f"urn:uuid:{entry_id}", entry_id.upper(), entry_id.replace("-", ""), entry_id + "\n"),
        *(f" {entry_id}", f"{entry_id} ", entry_id + "\x00", f"x:{entry_id}", entry_id[:-1], entry_id + "0"),
        *(entry_id[:-1] + "*", entry_id[:-1] + "?", "*", "?", "[0-9a-f]*", "", "-", "..", "x" * 10_240, "é"),
        *("\uff10" + entry_id[1:], str(uuid.UUID(int=0)), "%", ":"),
    ]


def code(client: object, tool: str, **arguments: str) -> str:
    if tool == "job_release":
        arguments.pop("outcome")
    with pytest.raises(ToolError) as refused:
        client.call(tool, arguments)  # type: ignore[attr-defined]
    return refused.value.code


@THREE
def test_neighbouring_profiles_share_nothing(queue: Queue, clock: Clock) -> None:
    """Field report 34: profiles whose names begin alike, or hold glob letters of a kind, stay apart."""
    names = [f"{queue.profile}{tail}" for tail in ("", "-", ".", "_", "0", "-x", ".x")]
    others = [Shampoo.connect(queue.engine.url, profile=name) for name in names[1:]]
    client = queue.principal("c", "p", conductor=True)
    (mine,) = queue.create(client, project="p")
    for other in others:
        with pytest.raises(errors.Unauthenticated):
            other.client("c").job_claim()
        other.registry.add_principal("c", conductor=True, grants=["p"])
        with pytest.raises(errors.JobNotFound):
            other.client("c").job_release(job_id=mine)
        assert not other.client("c").job_claim()
        assert other.ops.expire().put_back == 0
        assert [event.event for event in other.history()] == ["principal.added", "principal.granted"]
    assert client.job_claim().job_id == mine
    for name, other in zip(names[1:], others, strict=True):
        queue.command("DEL", *(f"shampoo:{{{name}}}:{key}" for key in ("profile", "history", "principals")))
        queue.command("DEL", f"shampoo:{{{name}}}:principal:c", *_replays(queue, name))
        other.close()


def _replays(queue: Queue, profile: str) -> list[str]:
    found = queue.command("SCAN", "0", "MATCH", f"shampoo:{{{profile}}}:replay:*", "COUNT", "100000")[1]
    return [key.decode() for key in found] or ["none"]
