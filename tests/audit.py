"""Hold the raw keys of a profile against each other: every place says the same, and nothing stands outside the table.

`problems` takes a snapshot (every key with its type and content) and gives sentences; none means sound. It shares no
code with the scripts: it computes each index from the hashes, and the hashes' standings from the history.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from shampoo_queue import replay
from shampoo_queue.history import read_event
from shampoo_queue.keys import KEYS, prefix
from shampoo_queue.tools import immutable

Snapshot = dict[str, tuple[str, Any, int]]
"""Key to (type, content, milliseconds to live or -1). Content: dict, list of (member, score), list of (id, fields), text."""

TYPES = {key.name: key.type for key in KEYS}
MAX_ATTEMPTS = 5


class Profile:
    """A snapshot sorted into its families."""

    def __init__(self, profile: str, snapshot: Snapshot) -> None:
        self.families: dict[str, dict[str, Any]] = defaultdict(dict)
        self.strangers: list[str] = []
        start = prefix(profile)
        for key, (type_, content, ttl) in snapshot.items():
            name, _, rest = key.removeprefix(start).partition(":")
            if name == "test-clock":
                continue
            if not key.startswith(start) or TYPES.get(name) != type_:
                self.strangers.append(f"{key!r} is a {type_} outside the table of keys")
            elif (ttl >= 0) != (name == "replay"):
                self.strangers.append(f"{key!r} has time to live {ttl}")
            else:
                self.families[name][rest] = content

    def __getitem__(self, family: str) -> dict[str, Any]:
        return self.families[family]

    def only(self, family: str, empty: Any) -> Any:
        return self.families[family].get("", empty)


def problems(profile: str, snapshot: Snapshot) -> list[str]:
    """Say everything that is wrong with a profile's keys."""
    found = Profile(profile, snapshot)
    return [
        *found.strangers,
        *_jobs(found),
        *_indexes_above(found),
        *_lanes(found),
        *_registry(found),
        *_history(found),
    ]


def entry(seq: str, name: str) -> str:
    return f"{int(seq):012d}:{name}"


def escaped(text: str) -> str:
    return text.replace("%", "%25").replace(":", "%3A")


def _jobs(found: Profile) -> Iterator[str]:
    ready = {(place, member): score for place, zset in found["ready"].items() for member, score in zset}
    spent = dict(found.only("spent", []))
    damaged = dict(found.only("damaged", []))
    for job_id in damaged:
        yield f"job {job_id} was set aside as damaged"
    for job_id, job in found["job"].items():
        standing, attempts = job.get("standing"), int(job.get("attempts", "-1"))
        place = (f"{escaped(job['project'])}:{job['kind']}", entry(job["seq"], job_id))
        in_ready, in_spent = ready.pop(place, None), spent.pop(job_id, None)
        if standing not in ("queued", "claimed", "completed", "failed"):
            yield f"job {job_id} stands as {standing!r}"
        if not 0 <= attempts <= MAX_ATTEMPTS:
            yield f"job {job_id} has {attempts} attempts"
        open_ = standing in ("queued", "claimed")
        if (in_ready is not None) != (open_ and attempts < MAX_ATTEMPTS):
            yield f"job {job_id} ({standing}, attempt {attempts}) stands in ready at {in_ready}"
        if (in_spent is not None) != (open_ and attempts >= MAX_ATTEMPTS):
            yield f"job {job_id} ({standing}, attempt {attempts}) stands in spent at {in_spent}"
        at = in_ready if in_ready is not None else in_spent
        if standing == "claimed":
            if at is not None and str(int(at)) != job.get("lease_until"):
                yield f"job {job_id} is leased until {job.get('lease_until')} but indexed at {at}"
            if not job.get("owner") or not job.get("fence", "").isdigit():
                yield f"job {job_id} is claimed without owner or fence"
        elif job.get("lease_until"):
            yield f"job {job_id} ({standing}) has a lease"
        if standing == "queued" and (job.get("owner") or (at is not None and at > float(job["changed_at"]))):
            yield f"job {job_id} is queued, owned by {job.get('owner')!r}, changed at {job['changed_at']}, indexed at {at}"
    for (place, member), score in ready.items():
        yield f"ready {place} holds {member} at {score}, which no job accounts for"
    for job_id in spent:
        yield f"spent holds {job_id}, which no job accounts for"
    for job_id in found["payload"].keys() - found["job"].keys():
        yield f"payload {job_id} has no job"


def _first(zset: list[tuple[str, float]]) -> tuple[float, str]:
    return min((score, member) for member, score in zset)


def _indexes_above(found: Profile) -> Iterator[str]:
    kinds: dict[str, set[tuple[str, float]]] = defaultdict(set)
    projects_of: dict[str, set[tuple[str, float]]] = defaultdict(set)
    for place, zset in found["ready"].items():
        project, _, kind = place.partition(":")
        project = project.replace("%3A", ":").replace("%25", "%")
        score, member = _first(zset)
        kinds[project].add((member[:13] + kind, score))
        projects_of[kind].add((member[:13] + project, score))
    projects = set()
    for project, heads in kinds.items():
        score, member = _first(list(heads))
        projects.add((member[:13] + project, score))
    for name, wanted, stored in (
        ("kinds", dict(kinds), found["kinds"]),
        ("projects_of", dict(projects_of), found["projects_of"]),
        ("projects", {"": projects} if projects else {}, found["projects"]),
    ):
        actual = {rest: set(zset) for rest, zset in stored.items()}
        if actual != wanted:
            yield f"{name} is {actual}, but ready says {wanted}"


def _lanes(found: Profile) -> Iterator[str]:
    wanted: dict[str, set[tuple[str, float]]] = defaultdict(set)
    for lane_id, lane in found["lane"].items():
        if lane.get("state") not in ("open", "in_progress", "done", "failed", "cancelled"):
            yield f"lane {lane_id} stands as {lane.get('state')!r}"
        if lane.get("review_state") not in ("", "pending", "approved", "changes_requested"):
            yield f"lane {lane_id} has review {lane.get('review_state')!r}"
        if lane.get("merge_state") not in ("", "merged", "conflicted", "skipped"):
            yield f"lane {lane_id} has merge {lane.get('merge_state')!r}"
        for scope, name in (("all", ""), ("project", lane["project"]), ("quorum", lane["quorum_id"])):
            wanted[f"{lane.get('state')}:{scope}:{name}"].add((lane_id, float(lane["seq"])))
        if lane["quorum_id"] not in found["quorum"]:
            yield f"lane {lane_id} has no quorum"
    stored = {rest: set(zset) for rest, zset in found["lanes"].items()}
    if stored != dict(wanted):
        yield f"lanes is {stored}, but the lanes say {dict(wanted)}"


def _registry(found: Profile) -> Iterator[str]:
    joined: dict[str, dict[str, str]] = defaultdict(dict)
    for quorum_id, quorum in found["quorum"].items():
        if quorum.get("standing") not in ("open", "closed"):
            yield f"quorum {quorum_id} stands as {quorum.get('standing')!r}"
        for field in quorum:
            if field.startswith("participant:"):
                joined[field.removeprefix("participant:")][quorum_id] = quorum["project"]
    if found["joined"] != dict(joined):
        yield f"joined is {found['joined']}, but the quorums say {dict(joined)}"
    for name, principal in found["principal"].items():
        if principal.get("standing") not in ("live", "disabled") or principal.get("conductor") not in ("0", "1"):
            yield f"principal {name} is {principal}"
    for name, task in found["task"].items():
        if task.get("standing") not in ("live", "closed"):
            yield f"task {name} is {task}"
    for index, family in (("principals", "principal"), ("quorums", "quorum"), ("tasks", "task")):
        listed = {member for member, _ in found.only(index, [])}
        if listed != set(found[family]):
            yield f"{index} lists {sorted(listed)}, but there are {sorted(found[family])}"
    for key, lines in found["replay"].items():
        for line in lines.splitlines():
            if len(line.split(" ")) != 4:
                yield f"replay {key} holds {line!r}"


def _history(found: Profile) -> Iterator[str]:
    entries = found.only("history", [])
    numbers = [int(number.partition("-")[0]) for number, _ in entries]
    seq = int(found.only("profile", {}).get("seq", "0"))
    if numbers != list(range(1, seq + 1)):
        yield f"history holds events {numbers[:5]}…{numbers[-5:]}, but the counter says {seq}"
    last: dict[tuple[str, str], str] = {}
    turns: dict[str, str] = {}
    for number, fields in entries:
        facts = dict(zip(fields[::2], fields[1::2], strict=True))
        who = (facts["event"].partition(".")[0], facts["entity_id"])
        if facts["prev"] != last.get(who, ""):
            yield f"event {number} of {who} names {facts['prev']!r} as the one before, not {last.get(who, '')!r}"
        last[who] = number.partition("-")[0]
        if facts["event"] == "job.claimed":
            turns[facts["project"]] = last[who]
    for family in ("job", "lane", "principal", "quorum", "task"):
        for name, stored in found[family].items():
            if stored.get("last_event") != last.pop((family, name), None):
                yield f"{family} {name} names {stored.get('last_event')} as its last event"
    for family, name in last:
        yield f"there are events of {family} {name}, but no such {family}"
    if found.only("turns", {}) != turns:
        yield f"turns is {found.only('turns', {})}, but the history says {turns}"
    yield from _replayed(found, entries)


def _replayed(found: Profile, entries: list[Any]) -> Iterator[str]:
    events = [read_event(entry_) for entry_ in entries]
    standings = replay(event for event in events if event["event"].startswith(("job.", "lane.")))
    for job_id, job in found["job"].items():
        stored = {
            "standing": job["standing"],
            "owner": job.get("owner", ""),
            "attempts": int(job["attempts"]),
            "fence": int(job.get("fence", "0") or 0),
        }
        if standings.get(job_id) != stored:
            yield f"job {job_id} is {stored}, but its history says {standings.get(job_id)}"
    for lane_id, lane in found["lane"].items():
        stored = {axis: lane[axis] for axis in ("state", "review_state", "merge_state")}
        if standings.get(lane_id) != stored:
            yield f"lane {lane_id} is {stored}, but its history says {standings.get(lane_id)}"
    digests = {event["entity_id"]: event["digest"] for event in events if event.digest}
    for job_id, job in found["job"].items():
        facts = (job_id, job["kind"], job.get("lane_id", ""), found["payload"].get(job_id, ""))
        if digests.get(job_id) != immutable(*facts):
            yield f"job {job_id} differs from the digest of its creation"
    for lane_id, lane in found["lane"].items():
        names = ("quorum_id", "assignee", "task_id", "depends_on", "repo", "branch", "base_ref", "worktree")
        if digests.get(lane_id) != immutable(lane_id, *(lane.get(name, "") for name in names)):
            yield f"lane {lane_id} differs from the digest of its creation"
    grants: dict[str, set[str]] = defaultdict(set)
    for event in events:
        if event["event"] == "principal.granted":
            grants[event["entity_id"]].add(event["project"])
        if event["event"] == "principal.revoked":
            grants[event["entity_id"]].discard(event["project"])
    for name, principal in found["principal"].items():
        held = {field.removeprefix("grant:") for field in principal if field.startswith("grant:")}
        if held != grants[name]:
            yield f"principal {name} holds {sorted(held)}, but its history says {sorted(grants[name])}"
