"""The registry around the nine tools: principals, quorums and tasks, each change one event and in force at once."""

from __future__ import annotations

from typing import Any

import pytest

from shampoo_queue import Principal, Quorum, Task, scripts
from shampoo_queue.contract import limit
from shampoo_queue.tools import immutable
from tests.contract.cast import MISSING, PROJECT, lane, last_event, odd_ids, quorum_with, raw, refused
from tests.queue import Clock, Queue

NOW = "2027-01-15T08:00:00.000Z"
WIDE = "\U0001f600"


def changed_nothing(queue: Queue, call: Any, *args: Any, **kwargs: Any) -> None:
    """Hold that a change which changes nothing says so, and is no event."""
    before = raw(queue)
    assert call(*args, **kwargs) is False
    assert raw(queue) == before


def test_principals_are_listed_in_the_order_in_which_they_were_added(queue: Queue, clock: Clock) -> None:
    registry = queue.shampoo.registry
    assert registry.add_principal("z", conductor=True, grants=["b", "", "*", "a"]) is True
    clock.advance(1)
    assert registry.add_principal("a") is True
    registry.disable_principal("a")
    assert registry.principals() == [
        Principal("z", live=True, conductor=True, grants=("", "*", "a", "b"), created_at=NOW),
        Principal("a", live=False, conductor=False, grants=(), created_at="2027-01-15T08:00:01.000Z"),
    ]


def test_adding_a_principal_again_changes_nothing_or_is_refused(queue: Queue) -> None:
    registry = queue.shampoo.registry
    registry.add_principal("w", conductor=True, grants=["a", "b"])
    changed_nothing(queue, registry.add_principal, "w", conductor=True, grants=["b", "a", "a"])
    for conductor, grants in (
        (False, ["a", "b"]),
        (True, ["a"]),
        (True, []),
        (True, ["a", "c"]),
        (True, ["a", "b", "c"]),
    ):
        refused(queue, "principal_exists", registry.add_principal, "w", conductor=conductor, grants=grants)


def test_a_disabled_principal_is_not_added_again(queue: Queue) -> None:
    registry = queue.shampoo.registry
    registry.add_principal("w", grants=["a"])
    registry.disable_principal("w")
    refused(queue, "principal_exists", registry.add_principal, "w", grants=["a"])


BY_HAND = ("operator", "host/1", "~abcdefghijkl.0.1", "abcdefghijkl.0", "0123456789abcdef01234567", "")
QUORUM = "11111111-2222-4333-8444-555555555555"
# Each move of the registry as a script is told it, and the one that takes it back.
MOVES: list[tuple[tuple[str, ...], tuple[str, ...] | None]] = [
    (("principal_add", "new", "1", "a", "b"), ("principal_set_conductor", "new", "0")),
    (("principal_grant", "w", "b"), ("principal_revoke", "w", "b")),
    (("principal_revoke", "w", "a"), ("principal_grant", "w", "a")),
    (("principal_set_conductor", "w", "1"), ("principal_set_conductor", "w", "0")),
    (("principal_set_standing", "w", "disabled"), ("principal_set_standing", "w", "live")),
    (("quorum_open", QUORUM, PROJECT, immutable(QUORUM, PROJECT), "w"), ("quorum_close", QUORUM)),
    (("quorum_add_participant", "Q", "w"), ("quorum_remove_participant", "Q", "w")),
    (("quorum_remove_participant", "Q", "v"), ("quorum_add_participant", "Q", "v")),
    (("quorum_close", "Q"), None),
    (("task_add", "new"), ("task_close", "new")),
    (("task_close", "t"), None),
]


def test_every_move_of_the_registry_is_repeated_here() -> None:
    families = ("principal_", "quorum_", "task_")
    assert {move[0] for move, _ in MOVES} == {name for name in scripts.names() if name.startswith(families)}


@pytest.mark.parametrize(("move", "undo"), MOVES, ids=lambda move: move[0] if move else "")
def test_a_repeated_change_is_made_once(
    queue: Queue, clock: Clock, move: tuple[str, ...], undo: tuple[str, ...] | None
) -> None:
    registry = queue.shampoo.registry
    registry.add_principal("w", grants=["a"])
    registry.add_principal("v")
    registry.add_task("t")
    names = {"Q": registry.open_quorum(PROJECT, ["v"])}

    def made(step: tuple[str, ...], *beside: str) -> Any:
        return queue.move(step[0], *beside, *(names.get(argument, argument) for argument in step[1:]))

    assert made(move, *BY_HAND) == 1
    if undo:
        assert made(undo, *BY_HAND[:2], "~abcdefghijkl.1.2", "abcdefghijkl.1", "f" * 24, "") == 1
    before = raw(queue)
    assert made(move, *BY_HAND) == 1
    assert raw(queue) == before
    refused(queue, "request_id_reused", made, move, *BY_HAND[:4], "f" * 24, "")


def test_a_quorum_is_opened_once_under_one_id(queue: Queue, clock: Clock) -> None:
    opening = (QUORUM, PROJECT, immutable(QUORUM, PROJECT))
    assert queue.move("quorum_open", *BY_HAND, *opening) == 1
    before = raw(queue)
    assert queue.move("quorum_open", *BY_HAND[:2], "~abcdefghijkl.1.2", "abcdefghijkl.1", "f" * 24, "", *opening) == 0
    assert raw(queue) == before


def test_a_change_to_a_principal_is_told_in_its_history(queue: Queue) -> None:
    registry = queue.shampoo.registry
    registry.add_principal("w", grants=["a"])
    assert queue.events("w") == ["principal.added", "principal.granted"]
    steps: list[tuple[Any, tuple[Any, ...], dict[str, str]]] = [
        (registry.grant, ("w", "b"), {"event": "principal.granted", "project": "b"}),
        (registry.grant, ("w", ""), {"event": "principal.granted", "project": ""}),
        (registry.revoke, ("w", "b"), {"event": "principal.revoked", "project": "b"}),
        (registry.revoke, ("w", ""), {"event": "principal.revoked", "project": ""}),
        (registry.set_conductor, ("w",), {"event": "principal.conductor_set", "from": "0", "to": "1"}),
        (registry.set_conductor, ("w", False), {"event": "principal.conductor_set", "from": "1", "to": "0"}),
        (registry.disable_principal, ("w",), {"event": "principal.disabled", "from": "live", "to": "disabled"}),
        (registry.enable_principal, ("w",), {"event": "principal.enabled", "from": "disabled", "to": "live"}),
    ]
    for change, arguments, facts in steps:
        assert change(*arguments) is True
        event = last_event(queue, "w")
        assert event.pop("holder")
        assert event == {"entity_id": "w", "actor": "operator", **facts}
        changed_nothing(queue, change, *arguments)


def test_an_unknown_principal_is_refused(queue: Queue) -> None:
    registry = queue.shampoo.registry
    registry.add_principal("w")
    for name in ("nobody", "W", "w ", "*", "w:x"):
        refused(queue, "unknown_principal", registry.grant, name, "a")
        refused(queue, "unknown_principal", registry.revoke, name, "a")
        refused(queue, "unknown_principal", registry.set_conductor, name)
        refused(queue, "unknown_principal", registry.disable_principal, name)
        refused(queue, "unknown_principal", registry.enable_principal, name)


def test_a_name_is_taken_to_the_letter(queue: Queue) -> None:
    names = ["w", "W", " w", "w:", "w%3A", "{w}", "*", "a" * 128, WIDE * 128, "é", "e\u0301", "-", "__proto__"]
    for name in names:
        queue.principal(name, name, name.upper())
    assert [principal.client_id for principal in queue.shampoo.registry.principals()] == names
    assert [set(p.grants) for p in queue.shampoo.registry.principals()] == [{n, n.upper()} for n in names]


def test_a_principal_holds_at_most_a_thousand_grants(queue: Queue) -> None:
    registry, most = queue.shampoo.registry, limit("grants")
    grants = [f"g{n}" for n in range(most)]
    refused(queue, "invalid_argument", registry.add_principal, "w", grants=[*grants, "more"])
    assert registry.add_principal("w", grants=grants)
    refused(queue, "limit_reached", registry.grant, "w", "more")
    changed_nothing(queue, registry.grant, "w", "g7")
    registry.revoke("w", "g7")
    assert registry.grant("w", "more") is True
    assert len(registry.principals()[0].grants) == most == 1_000


def test_quorums_are_listed_in_the_order_in_which_they_were_opened(queue: Queue, clock: Clock) -> None:
    registry = queue.shampoo.registry
    for name in ("w", "v"):
        registry.add_principal(name)
    first = registry.open_quorum(PROJECT, ["w", "v", "w"])
    second = registry.open_quorum("")
    registry.close_quorum(first)
    assert registry.quorums() == [
        Quorum(first, PROJECT, open=False, participants=("v", "w"), created_at=NOW),
        Quorum(second, "", open=True, participants=(), created_at=NOW),
    ]


def test_a_change_to_a_quorum_is_told_in_its_history(queue: Queue) -> None:
    registry = queue.shampoo.registry
    registry.add_principal("w")
    quorum_id = registry.open_quorum(PROJECT, ["w"])
    assert queue.events(quorum_id) == ["quorum.opened", "quorum.participant_added"]
    closed = {"from": "open", "to": "closed"}
    steps: list[tuple[Any, tuple[str, ...], dict[str, str]]] = [
        (registry.remove_participant, (quorum_id, "w"), {"event": "quorum.participant_removed", "reason": "w"}),
        (registry.add_participant, (quorum_id, "w"), {"event": "quorum.participant_added", "reason": "w"}),
        (registry.close_quorum, (quorum_id,), {"event": "quorum.closed", **closed}),
    ]
    for change, arguments, facts in steps:
        assert change(*arguments) is True
        event = last_event(queue, quorum_id)
        assert event.pop("holder")
        assert event == {"entity_id": quorum_id, "actor": "operator", "project": PROJECT, **facts}
        changed_nothing(queue, change, *arguments)


def test_a_closed_quorum_still_takes_and_loses_participants(queue: Queue) -> None:
    registry = queue.shampoo.registry
    registry.add_principal("w")
    quorum_id = registry.open_quorum(PROJECT)
    registry.close_quorum(quorum_id)
    assert registry.add_participant(quorum_id, "w") is True
    assert registry.remove_participant(quorum_id, "w") is True


def test_an_unknown_quorum_is_refused(queue: Queue) -> None:
    registry = queue.shampoo.registry
    registry.add_principal("w")
    for quorum_id in (*odd_ids(registry.open_quorum(PROJECT)), 7, None):
        name: Any = quorum_id
        refused(queue, "unknown_quorum", registry.close_quorum, name)
        refused(queue, "unknown_quorum", registry.add_participant, name, "nobody")
        refused(queue, "unknown_quorum", registry.remove_participant, name, "nobody")


def test_a_participant_must_be_a_principal(queue: Queue) -> None:
    registry = queue.shampoo.registry
    registry.add_principal("w")
    registry.add_principal("d")
    registry.disable_principal("d")
    refused(queue, "unknown_principal", registry.open_quorum, PROJECT, ["w", "nobody"])
    quorum_id = registry.open_quorum(PROJECT, ["w"])
    refused(queue, "unknown_principal", registry.add_participant, quorum_id, "nobody")
    assert registry.add_participant(quorum_id, "d") is True
    changed_nothing(queue, registry.remove_participant, quorum_id, "nobody")


@pytest.mark.parametrize("engine", ["embedded"], indirect=True)
def test_a_quorum_has_at_most_a_thousand_participants(queue: Queue) -> None:
    registry, most = queue.shampoo.registry, limit("participants")
    names = [f"w{n}" for n in range(most + 1)]
    for name in names:
        registry.add_principal(name)
    refused(queue, "invalid_argument", registry.open_quorum, PROJECT, names)
    quorum_id = registry.open_quorum(PROJECT, names[1:])
    refused(queue, "limit_reached", registry.add_participant, quorum_id, names[0])
    assert registry.add_participant(quorum_id, names[1]) is False
    registry.remove_participant(quorum_id, names[1])
    assert registry.add_participant(quorum_id, names[0]) is True
    assert len(registry.quorums()[0].participants) == most == 1_000


def test_tasks_are_added_closed_and_listed_in_order(queue: Queue, clock: Clock) -> None:
    registry = queue.shampoo.registry
    assert registry.add_task("t") == "t"
    made = registry.add_task()
    assert len(made) == 36
    before = raw(queue)
    assert registry.add_task("t") == "t"
    assert raw(queue) == before
    assert registry.close_task("t") is True
    changed_nothing(queue, registry.close_task, "t")
    refused(queue, "unknown_task", registry.add_task, "t")
    refused(queue, "unknown_task", registry.close_task, "none")
    assert registry.tasks() == [Task("t", live=False, created_at=NOW), Task(made, live=True, created_at=NOW)]
    event = last_event(queue, "t")
    assert event.pop("holder")
    assert event == {"event": "task.closed", "entity_id": "t", "actor": "operator", "from": "live", "to": "closed"}


@pytest.mark.parametrize("engine", ["memory", "embedded"], indirect=True)
def test_a_long_list_is_read_page_by_page(queue: Queue) -> None:
    names = [f"t{n * 7919 % 1_000}" for n in range(205)]
    for name in names:
        queue.shampoo.registry.add_task(name)
    assert [task.task_id for task in queue.shampoo.registry.tasks()] == names


def test_nothing_is_listed_where_nothing_was_added(queue: Queue) -> None:
    registry = queue.shampoo.registry
    assert (registry.principals(), registry.quorums(), registry.tasks()) == ([], [], [])


def test_a_name_that_is_none_is_refused(queue: Queue) -> None:
    registry = queue.shampoo.registry
    registry.add_principal("w")
    quorum_id = registry.open_quorum(PROJECT)
    bad: list[Any] = ["a\n", "\0", "\x7f", "\x85", "x" * 129, WIDE * 129, "\ud800", 7, None, b"w", ["w"]]
    for name in ("", *bad):
        refused(queue, "invalid_argument", registry.add_principal, name)
        refused(queue, "invalid_argument", registry.disable_principal, name)
        refused(queue, "invalid_argument", registry.grant, name, "a")
        refused(queue, "invalid_argument", registry.add_participant, quorum_id, name)
        refused(queue, "invalid_argument", registry.open_quorum, PROJECT, [name])
        refused(queue, "invalid_argument", registry.close_task, name)
        if name is not None:
            refused(queue, "invalid_argument", registry.add_task, name)
    for project in bad:
        refused(queue, "invalid_argument", registry.grant, "w", project)
        refused(queue, "invalid_argument", registry.revoke, "w", project)
        refused(queue, "invalid_argument", registry.add_principal, "v", grants=[project])
        refused(queue, "invalid_argument", registry.open_quorum, project)


def test_a_star_is_no_project_of_a_quorum(queue: Queue) -> None:
    refused(queue, "invalid_argument", queue.shampoo.registry.open_quorum, "*")


def test_a_text_is_no_list_of_names(queue: Queue) -> None:
    registry = queue.shampoo.registry
    refused(queue, "invalid_argument", registry.add_principal, "w", grants="shared-ops")
    refused(queue, "invalid_argument", registry.open_quorum, PROJECT, "w")


def test_every_change_holds_on_a_connection_that_was_open_before(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    quorum_id = quorum_with(queue)
    with queue.connect() as other:
        old = other.client("c", holder="old")
        lane_id = old.lane_create(quorum_id=quorum_id).lane_id
        queue.shampoo.registry.close_quorum(quorum_id)
        refused(queue, "quorum_not_open", old.lane_create, quorum_id=quorum_id)
        queue.shampoo.registry.revoke("c", PROJECT)
        refused(queue, "denied", old.job_create, kind="k", project=PROJECT)
        queue.shampoo.registry.set_conductor("c", False)
        refused(queue, "denied", old.lane_set_state, lane_id=lane_id, state="in_progress")
        queue.shampoo.registry.disable_principal("c")
        refused(queue, "unauthenticated", old.lane_list)
        queue.shampoo.registry.enable_principal("c")
        assert old.lane_list().count == conductor.lane_list().count == 0


def test_a_task_closed_later_leaves_its_lanes_alone(queue: Queue) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    lane_id = lane(queue, conductor, task_id=queue.shampoo.registry.add_task("t"))
    before = queue.shampoo.ops.lane(lane_id)
    queue.shampoo.registry.close_task("t")
    assert queue.shampoo.ops.lane(lane_id) == before
    assert queue.shampoo.ops.lane(MISSING) is None
