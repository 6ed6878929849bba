"""The registry around the queue in plain Python: what the model's tools check against, and the events of all moves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

Given = dict[str, Any]


class Refused(Exception):
    """A refusal; its text is the code."""


def require(fact: object, code: str) -> None:
    """Refuse with the code unless the fact holds."""
    if not fact:
        raise Refused(code)


def iso(ms: int) -> str:
    """Write an instant as the doors do."""
    instant = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
    return instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass
class Principal:
    grants: set[str]
    conductor: bool
    live: bool = True

    def covers(self, project: str) -> bool:
        return "*" in self.grants or project in self.grants


@dataclass
class Quorum:
    project: str
    participants: set[str]
    open: bool = True


class Registry:
    """Principals, quorums and tasks; every move says whether it changed anything, and a change is one event."""

    def __init__(self, now: int) -> None:
        self.now = now
        self.principals: dict[str, Principal] = {}
        self.quorums: dict[str, Quorum] = {}
        self.tasks: dict[str, bool] = {}
        self.events: list[dict[str, Any]] = []
        # The caller of the moment, and what its call carries.
        self.who, self.me, self.new_id = "", Principal(set(), False), ""
        self.fence: int | None = None
        self.beside: dict[str, Any] = {}

    def happened(self, event: str, entity_id: str, project: str = "", actor: str = "operator", **facts: Any) -> bool:
        common = {"event": event, "entity_id": entity_id, "project": project, "actor": actor, "at": self.now}
        self.events.append(common | facts | ({} if actor == "operator" else self.beside))
        return True

    def add_principal(self, name: str, conductor: bool, grants: Iterable[str]) -> bool:
        known, given = self.principals.get(name), set(grants)
        if known:
            require((known.grants, known.conductor, known.live) == (given, conductor, True), "principal_exists")
            return False
        self.principals[name] = Principal(given, conductor)
        self.happened("principal.added", name)
        return all(self.happened("principal.granted", name, project) for project in sorted(given))

    def grant(self, name: str, project: str) -> bool:
        grants = self._principal(name).grants
        new = project not in grants
        grants.add(project)
        return new and self.happened("principal.granted", name, project)

    def revoke(self, name: str, project: str) -> bool:
        grants = self._principal(name).grants
        held = project in grants
        grants.discard(project)
        return held and self.happened("principal.revoked", name, project)

    def set_conductor(self, name: str, conductor: bool) -> bool:
        principal = self._principal(name)
        changed = principal.conductor != conductor
        principal.conductor = conductor
        return changed and self.happened("principal.conductor_set", name)

    def set_live(self, name: str, live: bool) -> bool:
        principal = self._principal(name)
        changed = principal.live != live
        principal.live = live
        return changed and self.happened("principal.enabled" if live else "principal.disabled", name)

    def open_quorum(self, quorum_id: str, project: str, participants: Iterable[str]) -> None:
        given = set(participants)
        require(given <= self.principals.keys(), "unknown_principal")
        self.quorums[quorum_id] = Quorum(project, given)
        self.happened("quorum.opened", quorum_id, project)
        for name in sorted(given):
            self.happened("quorum.participant_added", quorum_id, project, reason=name)

    def close_quorum(self, quorum_id: str) -> bool:
        quorum = self._quorum(quorum_id)
        was_open, quorum.open = quorum.open, False
        return was_open and self.happened("quorum.closed", quorum_id, quorum.project)

    def add_participant(self, quorum_id: str, name: str) -> bool:
        quorum = self._quorum(quorum_id)
        self._principal(name)
        new = name not in quorum.participants
        quorum.participants.add(name)
        return new and self.happened("quorum.participant_added", quorum_id, quorum.project, reason=name)

    def remove_participant(self, quorum_id: str, name: str) -> bool:
        quorum = self._quorum(quorum_id)
        took_part = name in quorum.participants
        quorum.participants.discard(name)
        return took_part and self.happened("quorum.participant_removed", quorum_id, quorum.project, reason=name)

    def add_task(self, task_id: str) -> None:
        require(self.tasks.get(task_id, True), "unknown_task")
        if task_id not in self.tasks:
            self.happened("task.added", task_id)
        self.tasks[task_id] = True

    def close_task(self, task_id: str) -> bool:
        require(task_id in self.tasks, "unknown_task")
        was_live, self.tasks[task_id] = self.tasks[task_id], False
        return was_live and self.happened("task.closed", task_id)

    def _principal(self, name: str) -> Principal:
        require(name in self.principals, "unknown_principal")
        return self.principals[name]

    def _quorum(self, quorum_id: str) -> Quorum:
        require(quorum_id in self.quorums, "unknown_quorum")
        return self.quorums[quorum_id]
