"""The queue in plain Python, written from the contract: what each call must answer, or the code that refuses it.

`Model` is told what a real queue was told, with the ids that the queue chose; ``now`` is the server's clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.model.arguments import given
from tests.model.jobs import Jobs
from tests.model.registry import Given, Refused, require

Answer = tuple[Given, int | None, bool]
"""The result object, a claim's fence, whether it is a replay."""

WINDOW = 600_000


class Model(Jobs):
    """The nine tools, with what a call may carry beside its arguments, and the operators' moves."""

    def __init__(self, now: int) -> None:
        super().__init__(now)
        self.memory: dict[tuple[str, str], tuple[int, Any, Answer]] = {}

    def call(
        self,
        who: str,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        request_id: str | None = None,
        fence: int | None = None,
        holder: str = "h",
        new_id: str = "",
    ) -> Answer:
        """Give the answer, or raise `Refused`. ``new_id`` is the id that the queue gave to what it created."""
        facts = given(tool, arguments)
        if facts is None:
            raise Refused("invalid_argument")
        require(who in self.principals and self.principals[who].live, "unauthenticated")
        self.who, self.me, self.fence, self.new_id = who, self.principals[who], fence, new_id
        self.beside = {"holder": holder} | ({"request_id": request_id} if request_id else {})
        call = (holder, tool, fence, {"lease_seconds": 300, **facts} if tool == "job_claim" else facts)
        until, remembered, first = self.memory.get((who, request_id or ""), (0, None, None))
        if first and tool != "lane_list" and self.now < until:
            require(call == remembered, "request_id_reused")
            return self._again(first)
        result = getattr(self, tool)(facts)
        won = self.jobs[result["job_id"]].fence if result.get("claimed") else None
        answer = (result, won, "idempotent" in result)
        if request_id and tool not in ("lane_list", "job_complete") and result != {"claimed": False}:
            self.memory[who, request_id] = (self.now + WINDOW, call, answer)
        return answer

    def library(self, who: str, move: str, facts: Given, *, fence: int | None = None, new_id: str = "") -> Given:
        """Give the answer to a move of the library beside the tools, or raise `Refused`."""
        require(who in self.principals and self.principals[who].live, "unauthenticated")
        self.who, self.me, self.fence, self.new_id = who, self.principals[who], fence, new_id
        self.beside = {"holder": "h"}
        answer: Given = getattr(self, move)(facts)
        return answer

    def _again(self, first: Answer) -> Answer:
        result, fence, _ = first
        if "claimed" in result:
            job = self.jobs[result["job_id"]]
            current = job.standing == "claimed" and self.now < job.lease_until and job.fence == fence
            if not (current and self.me.covers(job.project)):
                return {"claimed": False}, None, True
        return result, fence, True
