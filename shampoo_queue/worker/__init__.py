"""Run functions as the executors of a queue's jobs: leases are kept, outcomes sent, losses noticed in time.

    worker = Worker()

    @worker.handles("thumbnail", lease_seconds=60)
    async def thumbnail(job: Job) -> str | None:
        ...

``shampoo work MODULE:worker --as CLIENT`` runs it, or ``worker.run(shampoo, client_id)``. The log's name is
``shampoo_queue.worker``. A worker sees the queue through the facade, like any other program.
"""

from .job import Fail, Job, Lost, Release
from .observe import Ended, Running, Stats
from .worker import Worker

__all__ = ["Ended", "Fail", "Job", "Lost", "Release", "Running", "Stats", "Worker"]
