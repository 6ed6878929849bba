"""Hold the raw keys of a profile against its history: every key must be what the events tell, and nothing else may be.

`problems` takes a snapshot (every key with its type, content and time to live) and gives sentences; none means
sound. It shares no code with the scripts: it folds the events into the hashes that must stand, checking each event on
the way, and computes every index from the hashes.
"""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from shampoo_queue.contract import EVENT_FACTS, EVENT_FIELDS, LANE_STATES
from shampoo_queue.keys import KEYS, prefix
from shampoo_queue.tokens import SCOPES
from shampoo_queue.tools import immutable

# Key to (type, content, milliseconds to live or -1). Content: dict, list of (member, score) or of (id, fields), text.
Snapshot = dict[str, tuple[str, Any, int]]
Facts = dict[str, str]

FAMILIES = {key.name: key for key in KEYS}
MAX_ATTEMPTS = 5
# What idle callers leave for a while: it expires by itself, as what is remembered of calls does.
WAITING = ("waiting", "waiter", "wake", "watched")
PASSING = ("replay", *WAITING)
LANE_LINKS = ("quorum_id", "assignee", "task_id", "depends_on", "repo", "branch", "base_ref", "worktree")
# What no event tells; a job's and a lane's digest of creation tells the first of each, and indexes tell lease_until.
UNTOLD = {
    "job": {"kind", "lane_id", "result_ref", "lease_until", "due_at"},
    "lane": {*LANE_LINKS, "result_commit"},
    "token": {"scope", "digest", "expires_at"},
}


class Profile:
    """A snapshot sorted into its families."""

    def __init__(self, profile: str, snapshot: Snapshot) -> None:
        self.families: dict[str, dict[str, Any]] = defaultdict(dict)
        self.strangers: list[str] = []
        self.now = time.time() * 1000
        start = prefix(profile)
        for key, (type_, content, ttl) in snapshot.items():
            name, colon, rest = key.removeprefix(start).partition(":")
            if key == f"{start}test-clock":
                self.now = int(content)
                continue
            family = FAMILIES.get(name)
            if not key.startswith(start) or not family or family.type != type_ or bool(colon) != bool(family.parts):
                self.strangers.append(f"{key!r} is a {type_} outside the table of keys")
                continue
            if (ttl >= 0) != (name in PASSING):
                self.strangers.append(f"{key!r} has time to live {ttl}")
            self.families[name][rest] = content

    def __getitem__(self, family: str) -> dict[str, Any]:
        return self.families[family]

    def only(self, family: str, empty: Any) -> Any:
        return self.families[family].get("", empty)


def problems(profile: str, snapshot: Snapshot) -> list[str]:
    """Say everything that is wrong with a profile's keys."""
    found = Profile(profile, snapshot)
    told = Told(found.only("history", []))
    return [
        *found.strangers,
        *told.problems,
        *_counter(found, told),
        *_hashes(found, told),
        *_digests(found, told),
        *_jobs(found),
        *_indexes_above(found),
        *_running(found),
        *_limits(found, told),
        *_other_indexes(found, told),
        *_tokens(found),
        *_replays(found),
        *_idle_callers(found),
    ]


# What the history tells ------------------------------------------------------------------------------------------


class Told:
    """The hashes that the events lead to; and what is wrong with the events themselves."""

    def __init__(self, entries: list[tuple[str, list[str]]]) -> None:
        self.problems: list[str] = []
        self.entities: dict[str, dict[str, Facts]] = defaultdict(dict)
        self.digests: dict[tuple[str, str], str] = {}
        self.turns: Facts = {}
        self.first: dict[tuple[str, str], str] = {}
        self.numbers: list[int] = []
        for entry_id, fields in entries:
            self._take(entry_id, fields)

    def _take(self, entry_id: str, fields: list[str]) -> None:
        number, _, rest = entry_id.partition("-")
        self.numbers.append(int(number))
        event = dict(zip(fields[::2], fields[1::2], strict=True))
        family, _, what = event.get("event", "").partition(".")
        if tuple(event) != EVENT_FIELDS or rest != "0" or event["event"] not in EVENT_FACTS:
            self.problems.append(f"event {entry_id} is {event}")
            return
        known = self.entities[family]
        entity = known.get(event["entity_id"], {})
        wanted: Facts = getattr(self, f"_{family}")(what, event, entity)
        told = {name: event[name] for name in EVENT_FIELDS[2:] if name not in ("actor", "holder", "at", "request_id")}
        wanted = {**dict.fromkeys(told, ""), **wanted, "prev": entity.get("last_event", "")}
        if told != wanted:
            differing = {name: (told[name], wanted[name]) for name in told if told[name] != wanted[name]}
            self.problems.append(f"event {entry_id} {event['event']} of {event['entity_id']} tells {differing}")
        if not event["actor"] or not event["at"].isdigit():
            self.problems.append(f"event {entry_id} has actor {event['actor']!r} at {event['at']!r}")
        entity["last_event"] = number
        known[event["entity_id"]] = entity
        self.first.setdefault((family, event["entity_id"]), number)
        if event["digest"]:
            self.digests[family, event["entity_id"]] = event["digest"]

    def _job(self, what: str, event: Facts, job: Facts) -> Facts:
        """Change the job as the event says; give the facts that the event must then tell."""
        wanted = {"project": job.get("project", event["project"])}
        if what == "created":
            job |= {"project": event["project"], "standing": "queued", "attempts": "0", "created_at": event["at"]}
            job["changed_at"] = event["at"]
            return wanted | {"to": "queued", "digest": event["digest"]}
        if what == "reclaimed":
            return wanted | {"reason": job.get("owner", "")}
        wanted |= {"from": job.get("standing", ""), "fence": job.get("fence", ""), "reason": event["reason"]}
        standing = {"released": "queued", "requeued": "queued"}.get(what, what)
        if what == "claimed":
            last = job.get("fence", "")
            risen = event["fence"].isdigit() and int(event["fence"]) > (int(last) if last.isdigit() else 0)
            wanted |= {"fence": event["fence"] if risen else "a higher one", "reason": ""}
            job |= {"owner": event["actor"], "holder": event["holder"], "fence": event["fence"]}
            job["attempts"] = str(int(job.get("attempts") or 0) + 1)
            self.turns[event["project"]] = str(self.numbers[-1])
        elif standing == "queued":
            job |= {"owner": "", "holder": "", "reason": ""}
            job["attempts"] = "0" if what == "requeued" else job.get("attempts", "")
        elif what == "failed":
            job["reason"] = event["reason"]
        job |= {"standing": standing, "changed_at": event["at"]}
        return wanted | {"to": standing, "attempts": job.get("attempts", "")}

    def _kind(self, what: str, event: Facts, kind: Facts) -> Facts:
        wanted = {"from": kind.get("limit", ""), "to": event["to"]}
        kind["limit"] = event["to"]
        return wanted

    def _lane(self, what: str, event: Facts, lane: Facts) -> Facts:
        wanted = {"project": lane.get("project", event["project"])}
        lane["changed_at"] = event["at"]
        if what == "created":
            lane |= {"project": event["project"], "state": "open", "created_at": event["at"]}
            return wanted | {"to": "open", "digest": event["digest"]}
        axis = {"reviewed": "review_state", "merged": "merge_state"}.get(what, "state")
        wanted |= {"from": lane.get(axis, ""), "to": event["to"]}
        lane[axis] = event["to"]
        return wanted

    def _principal(self, what: str, event: Facts, principal: Facts) -> Facts:
        if what == "added":
            conductor = "1" if event["to"] == "conductor" else "0"
            principal |= {"standing": "live", "conductor": conductor, "created_at": event["at"]}
            return {"to": "conductor" if conductor == "1" else "live"}
        if what in ("granted", "revoked"):
            principal.pop(f"grant:{event['project']}", "")
            if what == "granted":
                principal[f"grant:{event['project']}"] = "1"
            return {"project": event["project"]}
        axis = "conductor" if what == "conductor_set" else "standing"
        wanted = {"from": principal.get(axis, ""), "to": event["to"]}
        principal[axis] = event["to"]
        return wanted

    def _quorum(self, what: str, event: Facts, quorum: Facts) -> Facts:
        wanted = {"project": quorum.get("project", event["project"])}
        if what == "opened":
            quorum |= {"project": event["project"], "standing": "open", "created_at": event["at"]}
            return wanted | {"to": "open", "digest": immutable(event["entity_id"], event["project"])}
        if what == "closed":
            quorum["standing"] = "closed"
            return wanted | {"from": "open", "to": "closed"}
        quorum.pop(f"participant:{event['reason']}", "")
        if what == "participant_added":
            quorum[f"participant:{event['reason']}"] = "1"
        return wanted | {"reason": event["reason"]}

    def _task(self, what: str, event: Facts, task: Facts) -> Facts:
        if what == "added":
            task |= {"standing": "live", "created_at": event["at"]}
            return {"to": "live"}
        task["standing"] = "closed"
        return {"from": "live", "to": "closed"}

    def _token(self, what: str, event: Facts, token: Facts) -> Facts:
        if what == "issued":
            token |= {"standing": "live", "client_id": event["reason"], "created_at": event["at"]}
            return {"to": "live", "reason": event["reason"]}
        token["standing"] = "revoked" if what == "revoked" else "live"
        return {"from": "live", "to": token["standing"], "reason": token.get("client_id", "")}


def _counter(found: Profile, told: Told) -> Iterator[str]:
    stored = found.only("profile", {})
    wanted = {"seq": str(len(told.numbers))} if told.numbers else {}
    if stored != wanted or told.numbers != list(range(1, len(told.numbers) + 1)):
        yield f"the profile's counter is {stored}, and the history holds events {told.numbers[:3]}…{told.numbers[-3:]}"


def _hashes(found: Profile, told: Told) -> Iterator[str]:
    for family in ("job", "kind", "lane", "principal", "quorum", "task", "token"):
        for name in found[family].keys() | told.entities[family].keys():
            stored = {field: value for field, value in found[family].get(name, {}).items() if value}
            wanted = {field: value for field, value in told.entities[family].get(name, {}).items() if value}
            if family in ("job", "lane"):
                wanted["seq"] = told.first.get((family, name), "")
            for field in UNTOLD.get(family, ()):
                stored.pop(field, None)
            if stored != wanted:
                differing = {
                    f: (stored.get(f), wanted.get(f)) for f in stored | wanted if stored.get(f) != wanted.get(f)
                }
                yield f"{family} {name} differs from its history in {differing}"


def _digests(found: Profile, told: Told) -> Iterator[str]:
    for job_id, job in found["job"].items():
        facts = (job_id, job.get("kind", ""), job.get("lane_id", ""), found["payload"].get(job_id, ""))
        if told.digests.get(("job", job_id)) != immutable(*facts):
            yield f"job {job_id} (kind, lane_id, payload) differs from the digest of its creation"
    for lane_id, lane in found["lane"].items():
        if told.digests.get(("lane", lane_id)) != immutable(lane_id, *(lane.get(name, "") for name in LANE_LINKS)):
            yield f"lane {lane_id} (its links) differs from the digest of its creation"
    for job_id in found["payload"].keys() - found["job"].keys():
        yield f"payload {job_id} has no job"


# What the indexes must be ----------------------------------------------------------------------------------------


def entry(seq: str, name: str) -> str:
    return f"{int(seq):012d}:{name}"


def escaped(text: str) -> str:
    return text.replace("%", "%25").replace(":", "%3A")


def _jobs(found: Profile) -> Iterator[str]:
    """Every open job stands in exactly one place, from the instant it is, or will be, claimable."""
    ready: dict[str, set[tuple[str, float]]] = defaultdict(set)
    spent: set[tuple[str, float]] = set()
    for job_id in dict(found.only("damaged", [])):
        yield f"damaged: job {job_id} was set aside"
    for job_id, job in found["job"].items():
        standing = job.get("standing")
        if standing != "claimed" and job.get("lease_until"):
            yield f"job {job_id} ({standing}) has a lease until {job['lease_until']}"
        if standing != "queued" and job.get("due_at"):
            yield f"job {job_id} ({standing}) is due at {job['due_at']}"
        if standing not in ("queued", "claimed"):
            continue
        at = job.get("lease_until") if standing == "claimed" else job.get("due_at") or job.get("changed_at")
        if not at or not at.isdigit() or not job.get("seq", "").isdigit() or not job.get("attempts", "").isdigit():
            yield f"job {job_id} cannot be placed: {job}"
        elif int(job["attempts"]) >= MAX_ATTEMPTS:
            spent.add((job_id, float(at)))
        else:
            place = f"{escaped(job.get('project', ''))}:{job.get('kind', '')}"
            ready[place].add((entry(job["seq"], job_id), float(at)))
    yield from _compared("ready", {rest: set(zset) for rest, zset in found["ready"].items()}, ready)
    yield from _compared("spent", {"": set(found.only("spent", []))}, {"": spent})


def _compared(name: str, stored: dict[str, Any], wanted: dict[str, Any]) -> Iterator[str]:
    for rest in stored.keys() | wanted.keys():
        has, should = stored.get(rest, set()), wanted.get(rest, set())
        if has != should:
            yield f"{name} {rest} holds {has - should} and lacks {should - has}"


def _first(zset: list[tuple[str, float]]) -> tuple[float, str]:
    return min((score, member) for member, score in zset)


def _indexes_above(found: Profile) -> Iterator[str]:
    """The indexes above `ready` show its earliest entries."""
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
    for name, wanted in (("kinds", dict(kinds)), ("projects_of", dict(projects_of)), ("projects", {"": projects})):
        yield from _compared(name, {rest: set(zset) for rest, zset in found[name].items()}, wanted)


def _running(found: Profile) -> Iterator[str]:
    """Every claimed job counts as running, by the end of its lease."""
    running: dict[str, set[tuple[str, float]]] = defaultdict(set)
    for job_id, job in found["job"].items():
        if job.get("standing") == "claimed" and job.get("lease_until", "").isdigit():
            running[job.get("kind", "")].add((job_id, float(job["lease_until"])))
    yield from _compared("running", {rest: set(zset) for rest, zset in found["running"].items()}, running)


def _limits(found: Profile, told: Told) -> Iterator[str]:
    wanted = {(kind, facts["limit"]) for kind, facts in told.entities["kind"].items() if facts["limit"]}
    yield from _compared("limits", {"": set(found.only("limits", {}).items())}, {"": wanted})


def _other_indexes(found: Profile, told: Told) -> Iterator[str]:
    lanes: dict[str, set[tuple[str, float]]] = defaultdict(set)
    for lane_id, lane in found["lane"].items():
        if lane.get("state") not in LANE_STATES or not lane.get("seq", "").isdigit():
            yield f"lane {lane_id} cannot be placed: {lane}"
            continue
        for scope, name in (("all", ""), ("project", lane.get("project", "")), ("quorum", lane.get("quorum_id", ""))):
            lanes[f"{lane['state']}:{scope}:{name}"].add((lane_id, float(lane["seq"])))
    yield from _compared("lanes", {rest: set(zset) for rest, zset in found["lanes"].items()}, lanes)
    for index, family in (
        ("principals", "principal"),
        ("quorums", "quorum"),
        ("tasks", "task"),
        ("tokens", "token"),
    ):
        wanted = {(name, float(told.first.get((family, name), 0))) for name in told.entities[family]}
        yield from _compared(index, {"": set(found.only(index, []))}, {"": wanted})
    jobs_of: dict[str, set[tuple[str, float]]] = defaultdict(set)
    for job_id, job in found["job"].items():
        if job.get("lane_id"):
            jobs_of[job["lane_id"]].add((job_id, float(told.first.get(("job", job_id), 0))))
    yield from _compared("jobs_of", {rest: set(zset) for rest, zset in found["jobs_of"].items()}, jobs_of)
    joined: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for quorum_id, quorum in told.entities["quorum"].items():
        for field in quorum:
            if field.startswith("participant:"):
                joined[field.removeprefix("participant:")].add((quorum_id, quorum.get("project", "")))
    yield from _compared("joined", {rest: set(facts.items()) for rest, facts in found["joined"].items()}, joined)
    yield from _compared("turns", {"": set(found.only("turns", {}).items())}, {"": set(told.turns.items())})


def _tokens(found: Profile) -> Iterator[str]:
    """What no event tells of a token at least reads as what it is, and the token is somebody's."""
    for token_id, token in found["token"].items():
        ends_at, created_at = token.get("expires_at", ""), token.get("created_at", "")
        if token.get("scope") not in SCOPES or not re.fullmatch("[0-9a-f]{64}", token.get("digest", "")):
            yield f"token {token_id} has the scope {token.get('scope')!r} and the digest {token.get('digest')!r}"
        if ends_at and not (ends_at.isdigit() and created_at.isdigit() and int(ends_at) >= int(created_at)):
            yield f"token {token_id} ends at {ends_at!r}, issued at {created_at!r}"
        if token.get("client_id") not in found["principal"]:
            yield f"token {token_id} is {token.get('client_id')!r}'s, who is no principal"


def _replays(found: Profile) -> Iterator[str]:
    for key, lines in found["replay"].items():
        if not re.fullmatch(r"([\x21-\x7e]+ \d+ \S+ \S*\n)+", lines):
            yield f"replay {key} holds {lines!r}"


def _idle_callers(found: Profile) -> Iterator[str]:
    """Whoever waits is a principal and stands in the index of each kind it asks for; no one else stands there."""
    waiting = {rest: dict(zset) for rest, zset in found["waiting"].items()}
    seqs = {f"{int(job['seq']):012d}" for job in found["job"].values() if job.get("seq", "").isdigit()}
    for waiter, facts in found["waiter"].items():
        kinds = {field.removeprefix("kind:") for field in facts if field.startswith("kind:")}
        marks = {value for field, value in facts.items() if field.startswith("kind:")}
        if facts.get("client_id") not in found["principal"] or "holder" not in facts:
            yield f"waiter {waiter} is {facts.get('client_id')!r}, who is no principal"
        more = facts.keys() - {"client_id", "holder", "watches"} - {f"kind:{kind}" for kind in kinds}
        watches = facts.get("watches", "").removesuffix(" second")
        if not kinds or marks != {"1"} or more or watches not in {*seqs, ""}:
            yield f"waiter {waiter} is {facts}"
        for kind in kinds:
            if waiter not in waiting.get(kind, {}):
                yield f"waiter {waiter} does not stand in waiting {kind!r}"
    for kind, members in waiting.items():
        for waiter, lapses_at in members.items():
            if lapses_at > found.now and f"kind:{kind}" not in found["waiter"].get(waiter, {}):
                yield f"waiting {kind!r} holds {waiter}, who does not wait for it"
    for waiter, signs in found["wake"].items():
        if set(signs) != {"1"}:
            yield f"wake {waiter} holds {signs}"
    for number, _ in found.only("watched", []):
        if number.removesuffix(" second") not in seqs:
            yield f"watched holds {number}, which is the number of no job"
