"""Count the primes below a number, in processes: the range is cut into jobs, the results are summed up.

    shampoo work examples.count_primes:worker --as worker-1
    python -m examples.count_primes 500000

Both use the queue of SHAMPOO_URL, or else the embedded server in your data folder.
"""

import json
import os
import sys
from math import isqrt

from shampoo_queue import Shampoo, ShampooError, ToolError
from shampoo_queue.worker import Fail, Job, Worker

PIECE = 50_000  # numbers that one job looks at

worker = Worker()


@worker.handles("count-primes", runs_in="process", concurrency=2, lease_seconds=10, time_limit=120, attempts=2)
def count_primes(job: Job) -> str:
    """Count the primes of one piece.

    It computes without a pause, yet keeps its lease: the parent process renews it. After ``time_limit`` seconds the
    parent kills it; the job gets one more attempt and has failed then.
    """
    piece = job.json()
    if not 0 <= piece["first"] <= piece["last"]:
        raise Fail("a piece goes from first to last, both from 0")
    return str(sum(map(is_prime, range(piece["first"], piece["last"] + 1))))


def is_prime(number: int) -> bool:
    return number >= 2 and all(number % divisor for divisor in range(2, isqrt(number) + 1))


def main(arguments: list[str]) -> int:
    """Create the jobs, wait for each, and print the sum."""
    if len(arguments) != 1 or not arguments[0].isdecimal():
        sys.exit(__doc__)
    below = int(arguments[0])
    with Shampoo.connect(os.environ.get("SHAMPOO_URL") or "embedded://") as shampoo:
        conductor = shampoo.client("conductor-1")
        pieces = [{"first": first, "last": min(first + PIECE, below) - 1} for first in range(0, below, PIECE)]
        jobs = [{"kind": "count-primes", "project": "examples", "payload": json.dumps(piece)} for piece in pieces]
        total = 0
        for answer in conductor.create_many(jobs):
            if isinstance(answer, ToolError):
                raise answer
            job = conductor.wait(answer.job_id, timeout=300)
            if job.state == "failed":
                print(f"job {job.job_id} failed: {job.reason}", file=sys.stderr)
                return 1
            total += int(job.result_ref)
    print(f"{total:,} primes below {below:,}, counted in {len(pieces)} jobs")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (ShampooError, TimeoutError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
