"""What the tools check against: principals with their grants, quorums with their participants, tasks.

They belong to other parts of SHAMPOO; here operators keep a small registry of them. Every change is one move and
one event, and holds from the very next call. A change that changes nothing is no event and no error.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from . import keys, tokens
from .contract import limit
from .errors import Denied, InvalidArgument, Refusal, UnknownToken
from .moves import Command, Move, Operation
from .tokens import Presented
from .tools import (
    _UUID,
    NOTHING,
    RequestIds,
    check_fence,
    digest_of,
    immutable,
    is_unicode,
    own_holder,
    slot_of,
    stamp,
    text,
)


@dataclass(frozen=True, slots=True)
class Principal:
    """A registered caller. ``""`` among the grants is untagged work, ``"*"`` star scope."""

    client_id: str
    live: bool
    conductor: bool
    grants: tuple[str, ...]
    created_at: str


@dataclass(frozen=True, slots=True)
class Quorum:
    """A quorum over one project."""

    quorum_id: str
    project: str
    open: bool
    participants: tuple[str, ...]
    created_at: str


@dataclass(frozen=True, slots=True)
class Task:
    """A task that lanes may point at while it is live."""

    task_id: str
    live: bool
    created_at: str


@dataclass(frozen=True, slots=True)
class Token:
    """What the queue keeps of an access token: never the token. An empty ``expires_at`` is never."""

    token_id: str
    client_id: str
    scope: str
    live: bool
    created_at: str
    expires_at: str


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """A token just issued. Its text is nowhere else, and not in this object's ``repr``."""

    token: str = field(repr=False)
    token_id: str
    client_id: str
    scope: str
    expires_at: str


# A name, and the fields of its hash.
Entry = tuple[str, dict[str, str]]
_PAGE = 100

# The operators' moves that hold a presented token against what is stored; the others would take it for a name.
PRESENTABLE = ("job_requeue", "token_revoke")


class Operator:
    """Who makes operators' moves, and how such a move is spelled: as a tool's, with the operator as its caller.

    An operator behind a door is a token that somebody presents; its principal's grants bind it then.
    """

    def __init__(self, operator: str | Presented) -> None:
        self.operator = str(operator) if isinstance(operator, Presented) else _name("operator", operator)
        self._presented = isinstance(operator, Presented)
        self._ids = RequestIds()

    def move(self, script: str, *arguments: str, fence: int | None = None) -> Operation[Any]:
        """Run one operator's move under a request id of its own."""
        if self._presented and script not in PRESENTABLE:
            raise Denied("this move asks for access to Redis, not for a token")
        taken = self._ids.take()
        known_as = taken.request_id
        # Behind a door no process is the holder, as any of a service may carry the call.
        holder, seen = "" if self._presented else own_holder(), check_fence(fence)
        beside = (self.operator, holder, known_as, slot_of(known_as), digest_of(script, arguments, seen), seen)
        try:
            reply = yield Move(script, (*beside, *arguments), known_as)
        except Refusal as refusal:
            if not refusal.outcome_unknown:
                taken.give_back()
            raise
        taken.give_back()
        return reply


def _name(what: str, value: Any, empty: bool = False) -> str:
    """Check a name that an operator gives: text of at most 128 characters without control characters."""
    if not isinstance(value, str) or not is_unicode(value):
        raise InvalidArgument(f"{what} must be text")
    if not value and not empty:
        raise InvalidArgument(f"{what} must not be empty")
    if len(value) > limit("project"):
        raise InvalidArgument(f"{what} is longer than {limit('project')} characters")
    if any(c < " " or "\x7f" <= c <= "\x9f" for c in value):
        raise InvalidArgument(f"{what} must not hold control characters")
    return value


def _names(what: str, values: Iterable[str], most: int, empty: bool = False) -> list[str]:
    if isinstance(values, str):
        raise InvalidArgument(f"{what}s must be a list, not one text")
    checked = sorted({_name(what, value, empty) for value in values})
    if len(checked) > most:
        raise InvalidArgument(f"at most {most:,} {what}s")
    return checked


def _token_id(token_id: Any) -> str:
    return token_id if isinstance(token_id, str) and tokens.TOKEN_ID.fullmatch(token_id) else NOTHING


def _stay(seconds: Any) -> str:
    """Spell how long a token lives, in milliseconds; empty for ever."""
    if seconds is None:
        return ""
    most = limit("token_stay")
    if isinstance(seconds, bool) or not isinstance(seconds, int) or not 1 <= seconds <= most:
        raise InvalidArgument(f"expires_seconds must be a whole number from 1 to {most:,}")
    return str(seconds * 1000)


def _quorum_id(quorum_id: Any) -> str:
    return quorum_id if isinstance(quorum_id, str) and _UUID.fullmatch(quorum_id) else NOTHING


class RegistryOperations:
    """Keep principals and their tokens, quorums and tasks.

    Every method raises `OperatorError`, `InvalidArgument` or `Unavailable`.
    """

    def __init__(self, operator: Operator, profile: str) -> None:
        self._operator = operator
        self._profile = profile

    def add_principal(self, client_id: str, *, conductor: bool = False, grants: Iterable[str] = ()) -> Operation[bool]:
        """Register a principal; give whether it is new.

        Adding one again with the very same facts changes nothing; with others it raises `PrincipalExists`.
        """
        if not isinstance(conductor, bool):
            raise InvalidArgument("conductor must be true or false")
        given = _names("grant", grants, limit("grants"), empty=True)
        reply = yield from self._operator.move(
            "principal_add", _name("client_id", client_id), "1" if conductor else "0", *given
        )
        return bool(reply)

    def grant(self, client_id: str, project: str) -> Operation[bool]:
        """Grant a project, ``""`` for untagged work, ``"*"`` for star scope; give whether it is new."""
        name = _name("project", project, empty=True)
        return bool((yield from self._operator.move("principal_grant", _name("client_id", client_id), name)))

    def revoke(self, client_id: str, project: str) -> Operation[bool]:
        """Take a grant; give whether it was held."""
        name = _name("project", project, empty=True)
        return bool((yield from self._operator.move("principal_revoke", _name("client_id", client_id), name)))

    def set_conductor(self, client_id: str, conductor: bool = True) -> Operation[bool]:
        """Give or take the conductor role; give whether that changed anything."""
        if not isinstance(conductor, bool):
            raise InvalidArgument("conductor must be true or false")
        flag = "1" if conductor else "0"
        return bool((yield from self._operator.move("principal_set_conductor", _name("client_id", client_id), flag)))

    def disable_principal(self, client_id: str) -> Operation[bool]:
        """Let every call of a principal be refused as unauthenticated; give whether it was live."""
        return bool((yield from self._standing(client_id, "disabled")))

    def enable_principal(self, client_id: str) -> Operation[bool]:
        """Let a disabled principal call again; give whether it was disabled."""
        return bool((yield from self._standing(client_id, "live")))

    def _standing(self, client_id: str, standing: str) -> Operation[Any]:
        return self._operator.move("principal_set_standing", _name("client_id", client_id), standing)

    def principals(self) -> Operation[list[Principal]]:
        """List every principal, in the order in which they were added."""
        return [_principal(*entry) for entry in (yield from self._listed("principals"))]

    def principals_page(self, after: str | None = None) -> Operation[tuple[list[Principal], str]]:
        """List at most 100 principals, from a cursor on; give the cursor of the next page too, empty at the end."""
        found, cursor = yield from self._page("principals", _cursor(after))
        return [_principal(*entry) for entry in found], cursor

    def open_quorum(self, project: str, participants: Iterable[str] = ()) -> Operation[str]:
        """Open a quorum over a project (``""`` untagged, never ``"*"``) and give its id.

        Every participant must be a principal, else `UnknownPrincipal`.
        """
        if _name("project", project, empty=True) == "*":
            raise InvalidArgument("project must not be '*'")
        quorum_id = str(uuid.uuid4())
        given = _names("participant", participants, limit("participants"))
        yield from self._operator.move("quorum_open", quorum_id, project, immutable(quorum_id, project), *given)
        return quorum_id

    def close_quorum(self, quorum_id: str) -> Operation[bool]:
        """Close a quorum to new lanes; give whether it was open."""
        return bool((yield from self._operator.move("quorum_close", _quorum_id(quorum_id))))

    def add_participant(self, quorum_id: str, client_id: str) -> Operation[bool]:
        """Let a principal take part in a quorum; give whether that is new."""
        name = _name("client_id", client_id)
        return bool((yield from self._operator.move("quorum_add_participant", _quorum_id(quorum_id), name)))

    def remove_participant(self, quorum_id: str, client_id: str) -> Operation[bool]:
        """Take a principal out of a quorum; give whether it took part."""
        name = _name("client_id", client_id)
        return bool((yield from self._operator.move("quorum_remove_participant", _quorum_id(quorum_id), name)))

    def quorums(self) -> Operation[list[Quorum]]:
        """List every quorum, in the order in which they were opened."""
        found = yield from self._listed("quorums")
        return [
            Quorum(
                name,
                facts.get("project", ""),
                facts.get("standing") == "open",
                tuple(
                    sorted(field.removeprefix("participant:") for field in facts if field.startswith("participant:"))
                ),
                stamp(facts.get("created_at", "")),
            )
            for name, facts in found
        ]

    def add_task(self, task_id: str | None = None) -> Operation[str]:
        """Register a live task and give its id, a new UUID when none is given; a closed one raises `UnknownTask`."""
        name = str(uuid.uuid4()) if task_id is None else _name("task_id", task_id)
        yield from self._operator.move("task_add", name)
        return name

    def close_task(self, task_id: str) -> Operation[bool]:
        """Close a task to new lanes; give whether it was live."""
        return bool((yield from self._operator.move("task_close", _name("task_id", task_id))))

    def tasks(self) -> Operation[list[Task]]:
        """List every task, in the order in which they were added."""
        found = yield from self._listed("tasks")
        return [
            Task(name, facts.get("standing") == "live", stamp(facts.get("created_at", ""))) for name, facts in found
        ]

    def issue_token(
        self, client_id: str, *, scope: str = "tools", expires_seconds: int | None = None
    ) -> Operation[IssuedToken]:
        """Issue an access token to a principal; its text is given here and kept nowhere.

        ``scope`` is what it is good for: ``tools``, ``tools:read``, ``ops:read``, ``ops:write`` or ``metrics``. Roles
        and grants stay the principal's. It expires after ``expires_seconds``, at most ten years; never when None.
        Raises `UnknownPrincipal`.
        """
        if scope not in tokens.SCOPES:
            raise InvalidArgument(f"scope must be one of {', '.join(tokens.SCOPES)}")
        return (yield from self._issue(_name("client_id", client_id), scope, _stay(expires_seconds), "", 0))

    def rotate_token(
        self, token_id: str, *, overlap_seconds: int = 86_400, expires_seconds: int | None = None
    ) -> Operation[IssuedToken]:
        """Issue a token in place of a live one, which is good for ``overlap_seconds`` more, or less if it ends sooner.

        Principal and scope are those of the old one. Raises `UnknownToken` or `TokenNotLive`.
        """
        if isinstance(overlap_seconds, bool) or not isinstance(overlap_seconds, int) or overlap_seconds < 0:
            raise InvalidArgument("overlap_seconds must be a whole number, 0 or more")
        overlap, stay = min(overlap_seconds, limit("token_stay")), _stay(expires_seconds)
        facts = yield Command(("HMGET", keys.spell(self._profile, "token", _token_id(token_id)), "client_id", "scope"))
        if facts[0] is None or facts[1] is None:
            raise UnknownToken
        return (yield from self._issue(text(facts[0]), text(facts[1]), stay, token_id, overlap))

    def revoke_token(self, token_id: str) -> Operation[bool]:
        """Revoke a token from the very next call on; give whether it was not revoked before. Raises `UnknownToken`."""
        return bool((yield from self._operator.move("token_revoke", _token_id(token_id))))

    def tokens(self) -> Operation[list[Token]]:
        """List every token that was issued, in that order, by its id. A token that expired is listed as live."""
        return [_token(*entry) for entry in (yield from self._listed("tokens"))]

    def tokens_page(self, after: str | None = None) -> Operation[tuple[list[Token], str]]:
        """List at most 100 tokens, from a cursor on; give the cursor of the next page too, empty at the end."""
        found, cursor = yield from self._page("tokens", _cursor(after))
        return [_token(*entry) for entry in found], cursor

    def _issue(self, client_id: str, scope: str, stay: str, replaces: str, overlap: int) -> Operation[IssuedToken]:
        token = tokens.mint()
        presented = tokens.read(token)
        assert presented is not None
        token_id = presented.token_id
        # The way from the id to the profile comes first: without its record in the profile it leads nowhere.
        way = keys.spell(keys.OUTSIDE, "token", token_id)
        yield Command(("SET", way, f"{scope} {self._profile} {client_id}"), outside=True)
        yield Command(("SADD", keys.spell(keys.OUTSIDE, "profiles"), self._profile), outside=True)
        facts = (token_id, client_id, scope, presented.digest, stay, replaces, str(overlap * 1000))
        try:
            reply = yield from self._operator.move("token_issue", *facts)
        except Refusal as refusal:
            if not refusal.outcome_unknown:
                yield Command(("DEL", way), outside=True)
            raise
        return IssuedToken(token, token_id, client_id, scope, stamp(text(reply[0])))

    def _listed(self, which: str) -> Operation[list[Entry]]:
        """Read every page of one family."""
        found, cursor = yield from self._page(which, "0")
        while cursor:
            more, cursor = yield from self._page(which, cursor)
            found += more
        return found

    def _page(self, which: str, after: str) -> Operation[tuple[list[Entry], str]]:
        page = yield Move("registry_list", (self._operator.operator, "", "", "", "", "", which, after, str(_PAGE)))
        found = []
        for _, name, fields in page:
            flat = [text(field) for field in fields]
            found.append((text(name), dict(zip(flat[::2], flat[1::2], strict=True))))
        return found, text(page[-1][0]) if len(page) == _PAGE else ""


def _cursor(after: str | None) -> str:
    if after is None:
        return "0"
    if isinstance(after, str) and re.fullmatch("[0-9]{1,18}", after):
        return after
    raise InvalidArgument("after must be the cursor of a page")


def _principal(name: str, facts: dict[str, str]) -> Principal:
    return Principal(
        name,
        facts.get("standing") == "live",
        facts.get("conductor") == "1",
        tuple(sorted(field.removeprefix("grant:") for field in facts if field.startswith("grant:"))),
        stamp(facts.get("created_at", "")),
    )


def _token(name: str, facts: dict[str, str]) -> Token:
    return Token(
        name,
        facts.get("client_id", ""),
        facts.get("scope", ""),
        facts.get("standing") == "live",
        stamp(facts.get("created_at", "")),
        stamp(facts.get("expires_at", "")),
    )
