"""Walk breadth-first over the distinct states of two principals and two jobs, and try every move in each of them.

Sequences of moves are told apart only where they lead to different states, so the walk stands for all sequences up
to its depth. The in-memory engine's data are put back as they were before each move.
"""

from __future__ import annotations

import io
import itertools
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from shampoo_queue.engines import _MEMORY
from shampoo_queue.keys import prefix
from tests.model.model import Model
from tests.model.pair import Pair
from tests.queue import Queue

LEASE = 10
KINDS, PROJECTS = "kl", "pq"  # of the first and the second job
FENCES = ("", "right", "stale")
BESIDE = {"delayed": "job_create", "renew": "job_renew", "give back": "job_release"}
DAY = 86_400


@dataclass(frozen=True)
class Move:
    """One move: by a principal, by the operator or by the clock, on the first or second job."""

    who: str
    what: str
    on: int = 0
    to: Any = None
    kind: str | None = None
    fence: str = ""
    outcome: str = ""
    request: str | None = None
    holder: str = "h"


@dataclass
class State:
    """One state, as the server and the model hold it, with the moves that led there."""

    stored: bytes
    model: bytes
    trace: list[str]


class Walk:
    """The walk over jobs, on the in-memory engine, whose data can be put back as they were."""

    def __init__(self, pair: Pair, moves: Callable[[Model], Iterator[Move]]) -> None:
        self.pair, self.tried, self.seen = pair, 0, set[Any]()
        self._moves = moves
        self._start = prefix(pair.queue.profile).encode()
        self._keys: dict[bytes, Any] = _MEMORY[pair.queue.engine.url.removeprefix("memory://")].dbs[0]._dict

    def from_here(self, depth: int) -> None:
        """Try every move in every state that fewer than ``depth`` moves reach."""
        self.seen.add(standing(self.pair.model))
        front = [self._state()]
        for _ in range(depth):
            front = [found for state in front for found in self._expand(state)]

    def _expand(self, state: State) -> Iterator[State]:
        self._restore(state)
        problems = self.pair.queue.problems()
        assert not problems, "\n".join((*state.trace, *problems))
        before = standing(self.pair.model)
        for move in list(self._moves(self.pair.model)):
            self.tried += 1
            make(self.pair, move)
            after = standing(self.pair.model)
            if after == before and move.who != "clock":
                assert self._stored() == state.stored, "\n".join((*self.pair.trace, "but something was written"))
                del self.pair.trace[len(state.trace) :]
                continue
            if after not in self.seen:
                self.seen.add(after)
                yield self._state()
            self._restore(state)

    def _state(self) -> State:
        """Remember everything, with times to live that outlast the walk."""
        for key, item in self._keys.items():
            if item.expireat is not None and key.startswith(self._start):
                item.expireat += DAY
        return State(self._stored(), pickle.dumps(self.pair.model), list(self.pair.trace))

    def _stored(self) -> bytes:
        """Write down the profile's keys, so that equal content gives equal bytes."""
        file = io.BytesIO()
        pickler = pickle.Pickler(file)
        pickler.fast = True
        pickler.dump({key: self._keys[key] for key in sorted(self._keys) if key.startswith(self._start)})
        return file.getvalue()

    def _restore(self, state: State) -> None:
        for key in [key for key in self._keys if key.startswith(self._start)]:
            del self._keys[key]
        self._keys.update(pickle.loads(state.stored))
        self.pair.model = pickle.loads(state.model)
        self.pair.clock.now = self.pair.model.now
        self.pair.trace = list(state.trace)


def plain_moves(model: Model) -> Iterator[Move]:
    """Every move on two jobs, under ids of the library's own."""
    for who, n in itertools.product("ab", range(2)):
        if job_id(model, n) is None:
            yield Move(who, "job_create", n)
    for who in "ab":
        for kind in (None, *KINDS):
            yield Move(who, "job_claim", kind=kind)
        for n, fence in itertools.product(range(2), FENCES):
            yield Move(who, "job_release", n, fence=fence)
            for outcome in ("completed", "failed"):
                yield Move(who, "job_complete", n, fence=fence, outcome=outcome)
    for n in range(min(2, len(model.jobs) + 1)):
        yield Move("operator", "requeue", n)
        yield Move("operator", "cancel", n)
    yield Move("operator", "expire")
    yield from (Move("clock", "advance", to=LEASE // 2), Move("clock", "advance", to=LEASE))
    yield from registry_moves()


def beside_moves(model: Model) -> Iterator[Move]:
    """Moves of the library beside the tools, among those that make, take and free a claim."""
    for n in range(2):
        if job_id(model, n) is None:
            yield from (Move("a", "job_create", n), Move("a", "delayed", n, to=LEASE // 2))
    for who in "ab":
        yield from (Move(who, "job_claim"), Move(who, "job_claim", kind="k"))
    for n in range(2):
        yield from (Move("b", "renew", n, fence=fence) for fence in ("right", "stale"))
        yield from (Move("a", "renew", n, fence="right"), Move("b", "give back", n, fence="right", to=LEASE // 2))
        yield Move("b", "job_complete", n, outcome="failed")
        yield Move("operator", "cancel", n)
    yield from (Move("operator", "limit_kind", to=most) for most in (1, None))
    yield from (Move("operator", "requeue", 0), Move("operator", "expire"))
    yield from (Move("clock", "advance", to=LEASE // 2), Move("clock", "advance", to=LEASE))


def repeated_moves(model: Model) -> Iterator[Move]:
    """Moves under a caller's own request ids, which are repeated and reused, and moves that change what they meet."""
    for who, request in (("a", "r1"), ("b", "r1"), ("b", "r2")):
        yield Move(who, "job_claim", request=request)
        yield Move(who, "job_release", 0, request=request)
    yield Move("a", "job_create", 1, request="r1")
    yield Move("b", "job_claim", request="r1", holder="other")
    yield Move("b", "job_claim", request="r1", kind="k")
    yield Move("b", "job_release", 0, request="r1", fence="right")
    yield Move("b", "job_complete", 0, request="r1", outcome="completed")
    yield Move("b", "job_complete", 0, outcome="failed")
    yield from (Move("clock", "advance", to=LEASE), Move("clock", "advance", to=600 - LEASE))
    yield from registry_moves()


def registry_moves() -> Iterator[Move]:
    for change, fact in (("revoke", "p"), ("grant", "p"), ("set_live", False), ("set_live", True)):
        yield Move("operator", change, to=fact)


def job_id(model: Model, n: int) -> str | None:
    return next((job.job_id for job in model.jobs.values() if job.project == PROJECTS[n]), None)


def make(pair: Pair, move: Move) -> None:
    """Make one move on both sides."""
    if move.who == "clock":
        pair.advance(move.to * 1000)
        return
    if move.what == "expire":
        pair.expire()
        return
    named = job_id(pair.model, move.on) or "nothing"
    if move.what == "limit_kind":
        pair.operator("limit_kind", "k", move.to)
        return
    if move.who == "operator":
        facts = {"requeue": (named,), "cancel": (named, "no longer wanted")}.get(move.what, ("b", move.to))
        pair.operator(move.what, *facts)
        return
    last = pair.model.jobs[named].fence if named in pair.model.jobs else 0
    fence = {"": None, "right": last or 7, "stale": (last or 7) - 1}[move.fence]
    if move.what in BESIDE:
        given: dict[str, Any] = {"job_id": named, "lease_seconds": LEASE, "delay": (move.to or 0) * 1000}
        if move.what == "delayed":
            given |= {"kind": KINDS[move.on], "project": PROJECTS[move.on]}
        pair.library(move.who, BESIDE[move.what], given, fence)
        return
    arguments: dict[str, Any] = {"job_id": named}
    if move.what == "job_create":
        arguments = {"kind": KINDS[move.on], "project": PROJECTS[move.on]}
    elif move.what == "job_claim":
        arguments = {"kind": move.kind, "lease_seconds": LEASE}
    elif move.what == "job_complete":
        arguments["outcome"] = move.outcome
    pair.call(move.who, move.what, arguments, fence=fence, request_id=move.request, holder=move.holder)


def standing(model: Model) -> Any:
    """All that can matter for what comes next, without ids and instants: these states behave alike for ever."""
    jobs = {PROJECTS.index(job.project): job for job in model.jobs.values()}
    open_jobs = [n for n, job in jobs.items() if not job.is_terminal()]
    return (
        tuple(sorted((n, job.standing, job.owner, job.attempts, bool(job.fence)) for n, job in jobs.items())),
        tuple(max(0, job.stands_at() - model.now) for n, job in sorted(jobs.items()) if n in open_jobs),
        tuple(sorted(open_jobs, key=lambda n: jobs[n].stands_at())),  # jobs of one instant stay in their order
        tuple(sorted(model.served, key=model.served.__getitem__)),
        tuple((name, p.live, tuple(sorted(p.grants))) for name, p in model.principals.items()),
        tuple(sorted(remembered(model), key=repr)),
        tuple(model.limits.items()),
        tuple(n for n, job in sorted(jobs.items()) if job.due_at),
    )


def remembered(model: Model) -> Iterator[Any]:
    """What is remembered under request ids, without job ids and fences."""
    for key, (until, (holder, tool, fence, facts), (result, won, _)) in model.memory.items():
        if until > model.now:
            job = model.jobs[result["job_id"]]
            of_call = (holder, tool, fence and fence == job.fence, facts.get("kind"), PROJECTS.index(job.project))
            yield key, until - model.now, of_call, won == job.fence


def two_principals(queue: Queue) -> Pair:
    pair = Pair(queue)
    pair.operator("add_principal", "a", True, tuple(PROJECTS))
    pair.operator("add_principal", "b", False, tuple(PROJECTS))
    return pair


def one_job(pair: Pair) -> Pair:
    """Create the first job."""
    make(pair, Move("a", "job_create", 0))
    return pair


def nearly_exhausted(pair: Pair) -> Pair:
    """Create both jobs and spend four attempts of each."""
    for n, kind in enumerate(KINDS):
        make(pair, Move("a", "job_create", n))
        for _ in range(4):
            make(pair, Move("b", "job_claim", kind=kind))
            make(pair, Move("b", "job_release", n))
    return pair
