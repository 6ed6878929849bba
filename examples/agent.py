"""Work as an AI agent does, calling tools by name with plain dicts; and conduct such agents over a lane with a review.

    python -m examples.agent conduct FILE…     # a lane and its jobs; then the verdict and the merge
    python -m examples.agent work              # claim, think, complete; then submit the lane

Both use the queue of SHAMPOO_URL, or else the embedded server in your data folder.
"""

import hashlib
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from shampoo_queue import Client, Shampoo, ShampooError, ToolError

CONDUCTOR, AGENT, PROJECT, KIND = "conductor-1", "worker-1", "examples", "summarise"
# What a call is refused with when the lease ran out meanwhile, or the job was cancelled.
NO_LONGER_OURS = {"lease_expired", "job_not_claimed", "job_already_terminal", "job_not_found"}
PAUSE = 0.2  # seconds between two looks

Lane = dict[str, Any]


def think(document: str) -> str:
    """Summarise a document; empty when there is nothing to say. This is the place of your model."""
    lines = [line.strip("#* ") for line in document.splitlines() if line.strip("#* ")]
    return f"{lines[0][:80]} ({len(document.split())} words)" if lines else ""


# The agent ------------------------------------------------------------------------------------------------------


def work(agent: Client, think: Callable[[str], str] = think) -> int:
    """Take one job after another until no lane waits for this agent; give how many it took."""
    taken = 0
    while True:
        if take_job(agent, think):
            taken += 1
        elif lanes := unmerged(agent):
            submit(agent, lanes)
            time.sleep(PAUSE)
        else:
            return taken


def take_job(agent: Client, think: Callable[[str], str]) -> bool:
    """Claim a job, think, and end it; tell whether there was one."""
    claim = agent.call("job_claim", {"kind": KIND, "lease_seconds": 120})
    if not claim["claimed"]:
        return False
    fence = claim.meta.fence  # with it a call acts for this very claim, and changes nothing once that is over
    try:
        try:
            summary = think(claim["payload"])
        except BaseException:  # Ctrl-C too: who comes next need not wait until the lease lapses
            with suppress(ToolError):
                agent.call("job_release", {"job_id": claim["job_id"]}, fence=fence)
            raise
        ending = {"outcome": "completed", "result_ref": summary} if summary else {"outcome": "failed"}
        agent.call("job_complete", {"job_id": claim["job_id"], **ending}, fence=fence)
    except ToolError as refusal:
        if refusal.code not in NO_LONGER_OURS:
            raise
        print(f"thought too long about job {claim['job_id']}: {refusal.message}", file=sys.stderr)
    return True


def unmerged(agent: Client) -> list[Lane]:
    lanes = agent.call("lane_list", {"project": PROJECT, "limit": 100})["lanes"]
    return [lane for lane in lanes if lane["assignee"] == agent.client_id and not lane["merge_state"]]


def submit(agent: Client, lanes: list[Lane]) -> None:
    """Submit for review the lanes that are done and not submitted yet."""
    for lane in lanes:
        if lane["state"] == "done" and lane["review_state"] == "":
            try:
                agent.call("lane_review", {"lane_id": lane["lane_id"], "decision": "submit"})
            except ToolError as refusal:
                if refusal.code != "review_closed":  # another process of this agent was quicker
                    raise


# The conductor --------------------------------------------------------------------------------------------------


def conduct(shampoo: Shampoo, documents: list[str]) -> bool:
    """Create a lane with a job for each document, judge what the agent submits, and tell whether it is merged."""
    quorum_id = shampoo.registry.open_quorum(PROJECT, [CONDUCTOR, AGENT])
    conductor = shampoo.client(CONDUCTOR)
    lane_id = conductor.call("lane_create", {"quorum_id": quorum_id, "assignee_client_id": AGENT})["lane_id"]
    conductor.call("lane_set_state", {"lane_id": lane_id, "state": "in_progress"})
    jobs = [{"kind": KIND, "lane_id": lane_id, "payload": document} for document in documents]
    created = [conductor.call("job_create", job)["job_id"] for job in jobs]
    print(f"lane {lane_id} has {len(created)} jobs", flush=True)

    ended = [conductor.wait(job_id) for job_id in created]
    conductor.call("lane_set_state", {"lane_id": lane_id, "state": "done"})
    while conductor.call("lane_list", {"quorum_id": quorum_id})["lanes"][0]["review_state"] != "pending":
        time.sleep(PAUSE)

    summaries = [job.result_ref for job in ended]
    good = all(summaries)
    conductor.call("lane_review", {"lane_id": lane_id, "decision": "approve" if good else "request-changes"})
    commit = hashlib.sha256("\n".join(summaries).encode()).hexdigest()
    merge = {"outcome": "merged", "result_commit": commit} if good else {"outcome": "conflicted"}
    conductor.call("lane_merge", {"lane_id": lane_id, **merge})
    print(*summaries, f"the lane is {merge['outcome']}", sep="\n")
    return good


def main(arguments: list[str]) -> int:
    if arguments[:1] not in (["conduct"], ["work"]):
        sys.exit(__doc__)
    role, *paths = arguments
    with Shampoo.connect(os.environ.get("SHAMPOO_URL") or "embedded://") as shampoo:
        if role == "conduct":
            return 0 if conduct(shampoo, [Path(path).read_text("utf-8", errors="replace") for path in paths]) else 1
        print(f"took {work(shampoo.client(AGENT))} jobs")
        return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (ShampooError, OSError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
