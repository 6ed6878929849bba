"""The arguments of all nine tools: what is the same as absent, what is refused, and where the limits are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from shampoo_queue import contract
from shampoo_queue.contract import BY_NAME, check
from shampoo_queue.errors import InvalidArgument
from tests.contract.cast import MISSING, PROJECT, cast, lane, quorum_with, refused, refused_alike
from tests.queue import Clock, Queue

# What is refused here never reaches an engine, so that one of them stands for all.
on_one_engine = pytest.mark.parametrize("engine", ["memory"], indirect=True)

WIDE = "\U0001f600"  # one character, four bytes
CONTROLS = [*map(chr, range(0x20)), *map(chr, range(0x7F, 0xA0))]


@dataclass(frozen=True)
class Text:
    """How one text argument is bounded: at most so many characters, or so many bytes."""

    characters: int | None = None
    octets: int | None = None
    controls: bool = True
    empty: bool = True
    choices: tuple[str, ...] = ()

    def good(self) -> list[str]:
        if self.choices:
            return list(self.choices)
        found = [" ", "null", "0", "{}", "é", "e\u0301", "\u2028\u00ad\ufeff", WIDE]
        found += ["a\0b", "a\nb", "\x9f"] if self.controls else []
        found += [""] if self.empty else []
        if self.octets:
            return [*found, "x" * self.octets, WIDE * (self.octets // 4)]
        return [*found, WIDE * (self.characters or 20_000)]

    def bad(self) -> list[str]:
        found = ["\ud800", "x\udfff", "\ud83d"]
        found += [] if self.controls else [f"a{control}b" for control in CONTROLS] + ["line\n", "\0"]
        found += [] if self.empty else [""]
        found += ["x" * (self.characters + 1), WIDE * (self.characters + 1)] if self.characters else []
        if self.octets:
            found += ["x" * (self.octets + 1), WIDE * (self.octets // 4) + "x", "é" * (self.octets // 2) + "x"]
        if self.choices:
            found += ["", *(word for choice in self.choices for word in (choice.upper(), choice + " ", choice + "\n"))]
        return found


@dataclass(frozen=True)
class Whole:
    """A whole number."""

    good_: tuple[int, ...]
    bad_: tuple[int, ...] = ()

    def good(self) -> list[int]:
        return list(self.good_)

    def bad(self) -> list[Any]:
        return [*self.bad_, True, False, 5.0, 5.5, float("nan"), float("inf"), "5", "", " 5", b"5", "five"]


ID = Text()
NAME = Text(128, controls=False)
LINK = Text(128, empty=False)
PLACE = Text(512, controls=False)

TABLE: dict[str, dict[str, Text | Whole]] = {
    "job_claim": {
        "kind": Text(64, controls=False, empty=False),
        "lease_seconds": Whole((1, 300, 3600), (0, -1, 3601, 10**30, -(10**30))),
    },
    "job_complete": {"job_id": ID, "outcome": Text(choices=("completed", "failed")), "result_ref": Text(octets=2_048)},
    "job_create": {
        "kind": Text(64, controls=False, empty=False),
        "lane_id": LINK,
        "payload": Text(octets=1_048_576),
        "project": NAME,
    },
    "job_release": {"job_id": ID},
    "lane_create": {
        "quorum_id": ID,
        "assignee_client_id": LINK,
        "base_ref": PLACE,
        "branch": PLACE,
        "depends_on": LINK,
        "repo": PLACE,
        "task_id": LINK,
        "worktree": PLACE,
    },
    "lane_list": {
        "limit": Whole((1, 50, 100, 0, -1, 101, 10**30, -(10**30))),
        "project": Text(controls=False),
        "quorum_id": ID,
        "state": Text(),
    },
    "lane_merge": {"lane_id": ID, "outcome": Text(choices=("merged", "conflicted", "skipped")), "result_commit": NAME},
    "lane_review": {"lane_id": ID, "decision": Text(choices=("submit", "approve", "request-changes"))},
    "lane_set_state": {"lane_id": ID, "state": Text()},
}

REQUIRED: dict[str, dict[str, str]] = {
    "job_claim": {},
    "job_complete": {"job_id": MISSING, "outcome": "failed"},
    "job_create": {"kind": "k"},
    "job_release": {"job_id": MISSING},
    "lane_create": {"quorum_id": MISSING},
    "lane_list": {},
    "lane_merge": {"lane_id": MISSING, "outcome": "skipped"},
    "lane_review": {"lane_id": MISSING, "decision": "submit"},
    "lane_set_state": {"lane_id": MISSING, "state": "open"},
}

EMPTY_IS_ABSENT = {
    "job_complete": {"result_ref"},
    "job_create": {"payload", "project"},
    "lane_create": {"repo", "branch", "base_ref", "worktree"},
    "lane_merge": {"result_commit"},
}

EACH = [(tool, name) for tool, arguments in TABLE.items() for name in arguments]
each_argument = pytest.mark.parametrize(("tool", "name"), EACH, ids=[f"{tool}.{name}" for tool, name in EACH])
each_tool = pytest.mark.parametrize("tool", TABLE)


def complaint(tool: str, arguments: Any) -> str:
    """Give the sentence with which a call's arguments are refused."""
    with pytest.raises(InvalidArgument) as caught:
        check(BY_NAME[tool], arguments)
    assert caught.value.message.startswith("invalid argument: ")
    return caught.value.message


def test_the_table_here_names_every_argument() -> None:
    assert {tool: set(arguments) for tool, arguments in TABLE.items()} == {
        tool.name: set(tool.arguments.model_fields) for tool in contract.TOOLS
    }
    assert {tool: set(arguments) for tool, arguments in REQUIRED.items()} == {
        tool.name: set(tool.required) for tool in contract.TOOLS
    }


@each_argument
def test_what_is_within_the_limits_is_accepted(tool: str, name: str) -> None:
    for value in TABLE[tool][name].good():
        given = check(BY_NAME[tool], REQUIRED[tool] | {name: value}).given()
        if value == "" and name in EMPTY_IS_ABSENT.get(tool, ()):
            assert name not in given
        elif (tool, name) == ("lane_list", "limit"):
            assert given[name] == max(1, min(int(value), 100))
        else:
            assert (type(given[name]), given[name]) == (type(value), value)


@each_argument
def test_what_is_beyond_the_limits_is_refused_by_name(tool: str, name: str) -> None:
    for value in TABLE[tool][name].bad():
        message = complaint(tool, REQUIRED[tool] | {name: value})
        assert name in message
        assert len(message) < 120
        assert message.isprintable()


@each_argument
def test_a_value_of_another_type_is_refused(tool: str, name: str) -> None:
    others: list[Any] = [[], ["k"], {}, {"a": 1}, b"k", object(), 5.5, True]
    others += [5, 0] if isinstance(TABLE[tool][name], Text) else ["5", '"5"']
    for value in others:
        assert name in complaint(tool, REQUIRED[tool] | {name: value})


@each_argument
def test_null_is_the_same_as_absent(tool: str, name: str) -> None:
    call: dict[str, Any] = dict(REQUIRED[tool])
    call.pop(name, None)
    if name in REQUIRED[tool]:
        assert complaint(tool, call) == complaint(tool, call | {name: None}) == f"invalid argument: {name} is required"
    else:
        assert check(BY_NAME[tool], call | {name: None}).given() == check(BY_NAME[tool], call).given()


@each_tool
def test_an_unknown_argument_is_named_safely(tool: str) -> None:
    names = [
        "Kind",
        "profile",
        "client_id",
        "request_id",
        "fence",
        "holder",
        "model_config",
        "given",
        "__class__",
        "",
        " ",
    ]
    for name in names:
        for value in (None, "x"):
            message = complaint(tool, REQUIRED[tool] | {name: value})
            assert message == f"invalid argument: {tool} takes no argument '{name}'"
    odd: list[Any] = [
        "\x1b[31m",
        "\ud800",
        "a\nb",
        "'; drop",
        "`",
        '"',
        "\\",
        WIDE,
        "x" * 10_240,
        "\0",
        7,
        None,
        (1,),
        b"k",
    ]
    for name in odd:
        message = complaint(tool, REQUIRED[tool] | {name: "x"})
        assert len(message) < 120
        assert message.replace("…", "").isascii()
        assert message.isprintable()
        assert message.count("'") == 2


@each_tool
def test_an_argument_of_another_tool_is_unknown(tool: str) -> None:
    everything = {name for arguments in TABLE.values() for name in arguments}
    for name in sorted(everything - TABLE[tool].keys()):
        assert f"'{name}'" in complaint(tool, REQUIRED[tool] | {name: None})


@on_one_engine
@each_tool
def test_arguments_come_before_the_caller_and_the_role(queue: Queue, tool: str) -> None:
    callers = cast(queue) | {"nonsense": queue.shampoo.client("\ud800"), "long": queue.shampoo.client("x" * 129)}
    some = next(iter(TABLE[tool]))
    calls: list[dict[str, Any]] = [{"no_such": 1}, {some: ["x"]}, *([{}] if REQUIRED[tool] else [])]
    for arguments in calls:
        for caller in callers.values():
            refused(queue, "invalid_argument", caller.call, tool, arguments)


@on_one_engine
@each_tool
def test_the_caller_comes_before_the_role_and_the_entry(queue: Queue, tool: str) -> None:
    callers = cast(queue)
    strangers: list[Any] = [
        "unknown",
        "disabled",
        "",
        "WORKER",
        "worker ",
        "worker\n",
        "\ud800",
        "x" * 129,
        7,
        None,
        b"worker",
    ]
    for name in strangers:
        caller = queue.shampoo.client(name)
        refused(queue, "unauthenticated", caller.call, tool, REQUIRED[tool])
    del callers


@on_one_engine
def test_whether_an_entry_exists_never_matters_to_its_arguments(queue: Queue) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    (job_id,) = queue.create(conductor, project=PROJECT)
    lane_id, quorum_id = lane(queue, conductor), quorum_with(queue)
    for tool, name, real in (
        ("job_complete", "job_id", job_id),
        ("lane_merge", "lane_id", lane_id),
        ("lane_review", "lane_id", lane_id),
    ):
        many = [
            REQUIRED[tool] | {name: known, "decision" if tool == "lane_review" else "outcome": "?"}
            for known in (real, MISSING, "")
        ]
        refused_alike(queue, "invalid_argument", conductor, tool, many)
    many = [{"quorum_id": known, "repo": "\n"} for known in (quorum_id, MISSING, "")]
    refused_alike(queue, "invalid_argument", conductor, "lane_create", many)


@on_one_engine
def test_an_unknown_tool_comes_before_everything(queue: Queue) -> None:
    callers = cast(queue)
    names: list[Any] = [
        "",
        "job_Claim",
        "job_claim ",
        "job-claim",
        "job.claim",
        "\0",
        "\ud800",
        "__init__",
        "x" * 10_240,
        7,
        None,
    ]
    for name in names:
        for role in ("unknown", "disabled", "worker", "conductor"):
            refusal = refused(queue, "unknown_tool", callers[role].call, name, {"no_such": ["x"]})
            assert refusal.message.replace("…", "").isascii()
            assert len(refusal.message) < 100


@on_one_engine
@pytest.mark.parametrize("arguments", [[], ["k"], "", "kind", 0, 7, False, True, (), b"", {1}], ids=repr)
def test_arguments_are_an_object_or_absent(queue: Queue, arguments: Any) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    assert conductor.call("job_claim") == conductor.call("job_claim", {}) == conductor.call("job_claim", None)
    refused(queue, "invalid_argument", conductor.call, "job_claim", arguments)


def test_names_at_their_limits_go_in_and_come_back(queue: Queue, clock: Clock) -> None:
    kind, project, place = WIDE * 64, WIDE * 128, WIDE * 512
    conductor = queue.principal(WIDE * 128, project, conductor=True)
    quorum_id = quorum_with(queue, project=project)
    call = dict.fromkeys(("repo", "branch", "base_ref", "worktree"), place)
    lane_id = conductor.call("lane_create", call | {"quorum_id": quorum_id, "assignee_client_id": WIDE * 128})[
        "lane_id"
    ]
    conductor.lane_merge(lane_id=lane_id, outcome="skipped", result_commit=project)
    stored = queue.shampoo.ops.lane(lane_id) or {}
    assert stored.items() >= (call | {"assignee": WIDE * 128, "result_commit": project, "project": project}).items()
    job_id = conductor.job_create(kind=kind, project=project, lane_id=lane_id).job_id
    assert conductor.job_claim(kind=kind).model_dump()["job_id"] == job_id
    assert conductor.lane_list(project=project).count == 1


def test_a_payload_of_one_mebibyte_goes_in_and_comes_back(queue: Queue, clock: Clock) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    payload = "\0\r\n" + WIDE * ((1_048_576 - 4) // 4) + "x"
    assert len(payload.encode()) == 1_048_576
    conductor.job_create(kind="k", project=PROJECT, payload=payload)
    assert conductor.job_claim().payload == payload
    refused(queue, "invalid_argument", conductor.job_create, kind="k", project=PROJECT, payload=payload + "x")


@on_one_engine
def test_text_that_is_no_text_is_refused_before_any_write(queue: Queue) -> None:
    conductor = queue.principal("c", PROJECT, conductor=True)
    call = {"kind": "k", "project": PROJECT}
    for more in ({"payload": "\ud800"}, {"payload": "x" * 300_000 + "\udc00"}, {"\ud800": "x"}, {"kind": "\udfff"}):
        refused(queue, "invalid_argument", conductor.call, "job_create", call | more)
