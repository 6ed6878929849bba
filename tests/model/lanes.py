"""The five tools on lanes, in plain Python, step by step as the contract lists them."""

from __future__ import annotations

from tests.model.registry import Given, Registry, iso, require

MOVES = {"open": ("in_progress", "cancelled"), "in_progress": ("done", "failed", "cancelled")}
STATES = ("open", "in_progress", "done", "failed", "cancelled")
REVIEWS = {"submit": "pending", "approve": "approved", "request-changes": "changes_requested"}


class Lanes(Registry):
    """Lanes, in the order of their creation; each is kept as `lane_list` shows it, its instants apart."""

    def __init__(self, now: int) -> None:
        super().__init__(now)
        self.lanes: dict[str, Given] = {}

    def lane_create(self, facts: Given) -> Given:
        require(self.me.conductor, "denied")
        quorum = self.quorums.get(facts["quorum_id"])
        require(quorum and self.me.covers(quorum.project), "unknown_lane")
        assert quorum
        require(quorum.project in self.me.grants, "denied")
        require(quorum.open, "quorum_not_open")
        assignee, task_id = facts.get("assignee_client_id", ""), facts.get("task_id", "")
        require(not assignee or (assignee in self.principals and self.principals[assignee].live), "unknown_client")
        require(not task_id or self.tasks.get(task_id), "task_not_found")
        if "depends_on" in facts:
            same_quorum = self.lanes.get(facts["depends_on"], {}).get("quorum_id") == facts["quorum_id"]
            require(same_quorum, "dependency_not_in_quorum")
        assert self.new_id not in self.lanes
        lane = {"lane_id": self.new_id, "quorum_id": facts["quorum_id"], "project": quorum.project, "state": "open"}
        lane |= {"review_state": "", "merge_state": "", "assignee": assignee, "task_id": task_id, "result_commit": ""}
        self.lanes[self.new_id] = lane | {"created_at": self.now, "changed_at": self.now}
        self.happened("lane.created", self.new_id, quorum.project, self.who, to="open")
        return {name: lane[name] for name in ("lane_id", "project", "state")}

    def lane_list(self, facts: Given) -> Given:
        most = max(1, min(facts.get("limit", 50), 100))
        filters = {name: facts[name] for name in ("project", "quorum_id", "state") if name in facts}
        seen = [lane for lane in reversed(self.lanes.values()) if self._sees(lane) and filters.items() <= lane.items()]
        stamps = ("created_at", "changed_at")
        lanes = [lane | {name: iso(lane[name]) for name in stamps} for lane in seen[:most]]
        return {"lanes": lanes, "count": len(lanes)}

    def _sees(self, lane: Given) -> bool:
        if self.me.conductor or "*" in self.me.grants:
            return True
        return self.me.covers(lane["project"]) and self.who in self.quorums[lane["quorum_id"]].participants

    def lane_set_state(self, facts: Given) -> Given:
        require(self.me.conductor, "denied")
        require(facts["lane_id"] in self.lanes and facts["state"] in STATES, "unknown_lane")
        lane = self.lanes[facts["lane_id"]]
        require(facts["state"] in MOVES.get(lane["state"], ()), "illegal_lane_transition")
        return self._moved(lane, "lane.state_changed", "state", facts["state"])

    def lane_review(self, facts: Given) -> Given:
        submits = facts["decision"] == "submit"
        require(submits or self.me.conductor, "denied")
        lane = self.lanes.get(facts["lane_id"])
        require(lane and self._sees(lane), "unknown_lane")
        assert lane
        if submits:
            require(self.me.conductor or lane["assignee"] == self.who, "denied")
            require(lane["review_state"] in ("", "changes_requested"), "review_closed")
        else:
            require(lane["review_state"] == "pending", "nothing_under_review")
        return self._moved(lane, "lane.reviewed", "review_state", REVIEWS[facts["decision"]])

    def lane_merge(self, facts: Given) -> Given:
        outcome, commit = facts["outcome"], facts.get("result_commit", "")
        require(self.me.conductor, "denied")
        require(facts["lane_id"] in self.lanes, "unknown_lane")
        lane = self.lanes[facts["lane_id"]]
        gate = {
            "merged": lane["state"] == "done" and lane["review_state"] == "approved" and commit,
            "conflicted": lane["state"] in ("in_progress", "done"),
            "skipped": lane["state"] != "done",
        }
        require(gate[outcome] and lane["merge_state"] != "merged", "lane_not_mergeable")
        lane["result_commit"] = commit or lane["result_commit"]
        return self._moved(lane, "lane.merged", "merge_state", outcome)

    def _moved(self, lane: Given, event: str, axis: str, to: str) -> Given:
        was, lane[axis], lane["changed_at"] = lane[axis], to, self.now
        self.happened(event, lane["lane_id"], lane["project"], self.who, **{"from": was, "to": to})
        return {"lane_id": lane["lane_id"], axis: to}
