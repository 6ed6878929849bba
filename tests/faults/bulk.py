"""Run thousands of moves, and read thousands of keys, in a few round trips."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from redis import Redis

from shampoo_queue.keys import prefix
from shampoo_queue.moves import Move
from shampoo_queue.tools import immutable
from tests import audit
from tests.faults.proxy import Address
from tests.queue import Queue

_BATCH = 1_000


class Bulk:
    """A pipeline of our own scripts on one profile."""

    def __init__(self, queue: Queue, where: Address) -> None:
        self._queue = queue
        options: dict[str, Any] = {"unix_socket_path": where} if isinstance(where, str) else {}
        if not isinstance(where, str):
            options = {"host": where[0], "port": where[1]}
        self.redis = Redis(**options, decode_responses=True, protocol=2)

    def close(self) -> None:
        self.redis.close()

    def run(self, script: str, caller: str, calls: Iterable[Sequence[str]]) -> list[Any]:
        """Run one script for each list of arguments and give the replies in order."""
        text = self._queue.shampoo._wire._script(Move(script, ())).text
        sha = self.redis.script_load(text)
        key, head = self._queue.key("profile"), (caller, "h", "", "", "", "")
        return list(self._piped(("EVALSHA", sha, 1, key, *head, *arguments) for arguments in calls))

    def create(self, count: int, kind: str, project: str, first: int = 0) -> list[str]:
        """Create jobs as a conductor ``c`` and give their ids, which name the place of each in the whole."""
        ids = [f"{project.encode().hex()[:8]:0>8}-0000-4000-8000-{n:012x}" for n in range(first, first + count)]
        replies = self.run(
            "job_create", "c", ((job_id, kind, "", project, "", immutable(job_id, kind, "", "")) for job_id in ids)
        )
        assert [reply[0] for reply in replies] == ids
        return ids

    def claim(self, count: int, caller: str, kind: str = "", lease: int = 300_000) -> list[str]:
        """Claim as many jobs and give their ids."""
        won = [reply[0] for reply in self.run("job_claim", caller, [(kind, str(lease))] * count)]
        assert all(won)
        return won

    def snapshot(self) -> audit.Snapshot:
        """Read every key of the profile, as `Queue.snapshot` does."""
        keys = list(self.redis.scan_iter(match=f"{prefix(self._queue.profile)}*", count=_BATCH))
        types = list(self._piped(("TYPE", key) for key in keys))
        lives = self._piped(("PTTL", key) for key in keys)
        contents = self._piped(_reading(type_, key) for key, type_ in zip(keys, types, strict=True))
        return {
            key: (type_, _content(type_, reply), int(life))
            for key, type_, reply, life in zip(keys, types, contents, lives, strict=True)
        }

    def problems(self) -> list[str]:
        """What the audit says of the raw keys."""
        return audit.problems(self._queue.profile, self.snapshot())

    def _piped(self, commands: Iterable[Sequence[Any]]) -> Iterator[Any]:
        """Send commands in batches and give their replies one by one, raising the first error."""
        waiting = iter(commands)
        while True:
            with self.redis.pipeline(transaction=False) as pipeline:
                for command in (command for _, command in zip(range(_BATCH), waiting, strict=False)):
                    pipeline.execute_command(*command)  # type: ignore[no-untyped-call]
                if not len(pipeline):
                    return
                yield from pipeline.execute()


def _reading(type_: str, key: str) -> tuple[Any, ...]:
    return {
        "hash": ("HGETALL", key),
        "zset": ("ZRANGE", key, 0, -1, "WITHSCORES"),
        "stream": ("XRANGE", key, "-", "+"),
        "string": ("GET", key),
    }[type_]


def _content(type_: str, reply: Any) -> Any:
    """Shape what redis-py gives as the audit reads it."""
    if type_ == "zset":
        return [(member, float(score)) for member, score in zip(reply[::2], reply[1::2], strict=True)]
    if type_ == "stream":
        return [(number, [part for pair in fields.items() for part in pair]) for number, fields in reply]
    return reply
