"""The four tools and the operators' moves on jobs, in plain Python, step by step as the contract lists them."""

from __future__ import annotations

from dataclasses import dataclass

from tests.model.lanes import Lanes
from tests.model.registry import Given, Refused, iso, require


@dataclass
class Job:
    job_id: str
    kind: str
    payload: str
    project: str
    since: int
    standing: str = "queued"
    owner: str = ""
    holder: str = ""
    attempts: int = 0
    fence: int = 0
    lease_until: int = 0
    result_ref: str = ""
    reason: str = ""
    due_at: int = 0

    def stands_at(self) -> int:
        return self.lease_until if self.standing == "claimed" else self.since

    def is_terminal(self) -> bool:
        return self.standing in ("completed", "failed")

    def is_exhausted(self, now: int) -> bool:
        return self.attempts == 5 and not self.runs(now) and not self.is_terminal()

    def runs(self, now: int) -> bool:
        return self.standing == "claimed" and now < self.lease_until

    def end(self, standing: str, reason: str = "") -> None:
        self.standing, self.lease_until, self.due_at, self.reason = standing, 0, 0, reason

    def back_to_queue(self, now: int, delay: int = 0) -> None:
        self.standing, self.lease_until, self.owner, self.holder, self.reason = "queued", 0, "", "", ""
        self.stand(now, delay)

    def stand(self, now: int, delay: int) -> None:
        """Let the queued job be claimable when the delay is over."""
        self.since, self.due_at = now + delay, now + delay if delay else 0


class Jobs(Lanes):
    """Jobs, in the order of their creation, beside the lanes they may belong to."""

    def __init__(self, now: int) -> None:
        super().__init__(now)
        self.jobs: dict[str, Job] = {}
        self.served: dict[str, int] = {}  # project to the number of the claim that last served it
        self.turn = 0
        self.limits: dict[str, int] = {}

    def job_create(self, facts: Given) -> Given:
        project = facts.get("project", "")
        require(self.me.conductor, "denied")
        if "lane_id" in facts:
            require(facts["lane_id"] in self.lanes, "lane_not_found")
            of_lane = self.lanes[facts["lane_id"]]["project"]
            require(project in ("", of_lane), "project_mismatch")
            project = of_lane
        require(project in self.me.grants, "denied")
        job = Job(self.new_id, facts["kind"], facts.get("payload", ""), project, self.now)
        job.stand(self.now, facts.get("delay", 0))
        assert self.new_id not in self.jobs
        self.jobs[self.new_id] = job
        self._did(job, "job.created", None)
        return {"job_id": job.job_id, "state": "queued"}

    def job_claim(self, facts: Given) -> Given:
        kind = facts.get("kind")
        matching = [job for job in self.jobs.values() if kind in (None, job.kind) and self.me.covers(job.project)]
        matching = [job for job in matching if not self._is_held(job.kind)]
        earliest: dict[str, Job] = {}
        for job in sorted((job for job in matching if self._is_claimable(job)), key=Job.stands_at):
            earliest.setdefault(job.project, job)
        if not earliest:
            return {"claimed": False}
        considered = list(earliest)[:64] if "*" in self.me.grants else list(earliest)
        job = earliest[min(considered, key=lambda project: (self.served.get(project, 0), project.encode()))]
        if job.standing == "claimed":
            self.happened("job.reclaimed", job.job_id, job.project, self.who, reason=job.owner)
        was = job.standing
        job.standing, job.owner, job.holder, job.due_at = "claimed", self.who, self.beside["holder"], 0
        job.attempts += 1
        job.fence, job.lease_until = max(job.fence + 1, self.now), self.now + facts.get("lease_seconds", 300) * 1000
        self._did(job, "job.claimed", was)
        self.turn += 1
        self.served[job.project] = self.turn
        shown = {"job_id": job.job_id, "kind": job.kind, "payload": job.payload, "attempts": job.attempts}
        return {"claimed": True, **shown, "lease_until": iso(job.lease_until)}

    def _is_claimable(self, job: Job) -> bool:
        return not job.is_terminal() and job.attempts < 5 and job.stands_at() <= self.now

    def _is_held(self, kind: str) -> bool:
        running = sum(job.kind == kind and job.runs(self.now) for job in self.jobs.values())
        return running >= self.limits.get(kind, len(self.jobs) + 1)

    def job_renew(self, facts: Given) -> Given:
        job = self._job(facts)
        require(not job.is_terminal(), "job_already_terminal")
        require(job.standing == "claimed", "job_not_claimed")
        require(self.fence == job.fence, "lease_expired")
        require(job.owner == self.who, "job_not_claimed")
        require(job.runs(self.now), "lease_expired")
        job.lease_until = self.now + facts["lease_seconds"] * 1000
        return {"job_id": job.job_id, "lease_until": iso(job.lease_until)}

    def job_complete(self, facts: Given) -> Given:
        job, outcome = self._job(facts), facts["outcome"]
        mine, boss, same_fence = job.owner == self.who, self.me.conductor, self.fence in (None, job.fence)
        answer = {"job_id": job.job_id, "state": outcome}
        if job.is_terminal():
            require(job.standing == outcome and (mine or boss) and same_fence, "job_already_terminal")
            return answer | {"idempotent": True}
        require(job.standing == "claimed", "job_not_claimed")
        require(same_fence, "lease_expired")
        require(boss or mine, "job_not_claimed")
        require(boss or self.now < job.lease_until, "lease_expired")
        job.end(outcome, facts.get("reason", ""))
        job.result_ref = facts.get("result_ref", "")
        self._did(job, f"job.{outcome}", "claimed", reason=job.reason)
        return answer

    def job_release(self, facts: Given) -> Given:
        job = self._job(facts)
        require(job.standing == "claimed", "job_not_claimed")
        require(self.fence in (None, job.fence), "lease_expired")
        require(job.owner == self.who or self.me.conductor, "job_not_claimed")
        job.back_to_queue(self.now, facts.get("delay", 0))
        self._did(job, "job.released", "claimed", reason=facts.get("reason", ""))
        return {"job_id": job.job_id, "state": "queued"}

    def _job(self, facts: Given) -> Job:
        job = self.jobs.get(facts["job_id"])
        if job is None or not self.me.covers(job.project):
            raise Refused("job_not_found")
        return job

    def _did(self, job: Job, event: str, was: str | None, actor: str = "", reason: str = "") -> None:
        facts = {"from": was, "attempts": job.attempts, "fence": job.fence} if was else {}
        self.happened(event, job.job_id, job.project, actor or self.who, to=job.standing, reason=reason, **facts)

    def requeue(self, job_id: str) -> None:
        job = self._any_job(job_id)
        require(job.standing == "failed" or job.is_exhausted(self.now), "job_not_requeueable")
        was, job.attempts, job.result_ref = job.standing, 0, ""
        job.back_to_queue(self.now)
        self._did(job, "job.requeued", was, "operator")

    def cancel(self, job_id: str, reason: str) -> None:
        job = self._any_job(job_id)
        require(not job.is_terminal(), "job_already_terminal")
        was = job.standing
        job.end("failed", reason)
        self._did(job, "job.failed", was, "operator", reason)

    def limit_kind(self, kind: str, most: int | None) -> bool:
        was, to = self.limits.get(kind), most
        if to is None:
            self.limits.pop(kind, None)
        else:
            self.limits[kind] = to
        return was != to and self.happened("kind.limited", kind, **{"from": str(was or ""), "to": str(to or "")})

    def expire(self) -> tuple[int, int]:
        jobs = self.jobs.values()
        lapsed = sum(job.standing == "claimed" and self._is_claimable(job) for job in jobs)
        return lapsed, sum(job.is_exhausted(self.now) for job in jobs)

    def _any_job(self, job_id: str) -> Job:
        require(job_id in self.jobs, "job_not_found")
        return self.jobs[job_id]
