"""``shampoo job`` and ``expire``: the operators' look at one job, and their moves on jobs."""

from __future__ import annotations

from dataclasses import asdict

import click

from ..errors import JobNotFound
from .settings import Command, Group, current
from .terminal import answer


@click.group(cls=Group)
def job() -> None:
    """Look at one job, or move it as an operator."""


@job.command("show")
@click.argument("job_id")
@click.option("--payload", is_flag=True, help="Show the payload too.")
def job_show(job_id: str, payload: bool) -> None:
    """Print a job as it is stored."""
    with current().open() as queue:
        stored = queue.ops.job(job_id)
        if stored is None:
            raise JobNotFound
        if payload:
            stored["payload"] = queue.ops.payload(job_id)
        answer(stored)


@job.command("requeue")
@click.argument("job_id")
def job_requeue(job_id: str) -> None:
    """Queue an exhausted or failed job again, with no attempt spent."""
    with current().open() as queue:
        queue.ops.requeue(job_id)
        answer({"job_id": job_id, "state": "queued"}, moved=True)


@job.command("cancel")
@click.argument("job_id")
@click.option("--reason", required=True, help="Why, in 1 to 512 characters.")
def job_cancel(job_id: str, reason: str) -> None:
    """End a job that has no outcome yet as failed."""
    with current().open() as queue:
        queue.ops.cancel(job_id, reason)
        answer({"job_id": job_id, "state": "failed"}, moved=True)


@click.command(cls=Command)
def expire() -> None:
    """Put back what the indexes miss.

    Every job is held against them; no standing and no owner changes. A claim finds lapsed work without this.
    """
    with current().open() as queue:
        answer(asdict(queue.ops.expire()), moved=True)
