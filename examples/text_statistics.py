"""Count what is in text files, in threads; the sums are the jobs' results.

    shampoo work examples.text_statistics:worker --as worker-1
    python -m examples.text_statistics FILE…

Both use the queue of SHAMPOO_URL, or else the embedded server in your data folder.
"""

import json
import os
import sys
from pathlib import Path

from shampoo_queue import Shampoo, ShampooError, ToolError
from shampoo_queue.worker import Fail, Job, Worker

worker = Worker()


@worker.handles("text-statistics", lease_seconds=30, concurrency=4)
def statistics(job: Job) -> str:
    """Count the lines, words and characters of one file. What is returned becomes the job's result_ref."""
    path = Path(job.json()["path"])
    try:
        text = path.read_text("utf-8", errors="replace")
    except OSError as error:
        raise Fail(f"cannot read {path.name}: {error.strerror}") from None  # another attempt would not help
    counts = {"lines": len(text.splitlines()), "words": len(text.split()), "characters": len(text)}
    return json.dumps(counts)


def main(paths: list[str]) -> int:
    """Create one job for each file, wait for them all, and print what came of each."""
    if not paths:
        sys.exit(__doc__)
    with Shampoo.connect(os.environ.get("SHAMPOO_URL") or "embedded://") as shampoo:
        conductor = shampoo.client("conductor-1")
        payloads = [json.dumps({"path": os.path.abspath(path)}) for path in paths]
        jobs = [{"kind": "text-statistics", "project": "examples", "payload": payload} for payload in payloads]
        failed = 0
        for path, created in zip(paths, conductor.create_many(jobs), strict=True):
            if isinstance(created, ToolError):
                raise created
            job = conductor.wait(created.job_id, timeout=60)
            print(f"{path}: {job.result_ref if job.state == 'completed' else job.reason}")
            failed += job.state == "failed"
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (ShampooError, TimeoutError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
