"""A state machine tells every engine and the model the same moves, and holds each answer against the model's."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from shampoo_queue.contract import TOOLS
from tests.model.machine import Machine
from tests.model.pair import Pair
from tests.queue import Engine, Queue

ENGINES = ("memory", "embedded", "redis7")


def run(engine: Engine, number: int, examples: int, steps: int) -> set[tuple[str, str]]:
    """Run the machine; give which tools were answered, or refused, in which way."""
    print(f"seed {number}: SHAMPOO_SEED={number} repeats these histories")
    met: set[tuple[str, str]] = set()
    machine: Any = partial(Machine, engine, met)
    run_state_machine_as_test(
        seed(number)(machine),
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        ),
    )
    print(f"{len(met)} kinds of answers: {sorted(met)}")
    return met


@pytest.mark.timeout(600)  # a failure is made smaller before it is shown
@pytest.mark.parametrize("engine", ENGINES, indirect=True)
def test_every_answer_is_the_models(queue: Queue) -> None:
    met = run(queue.engine, int(os.environ.get("SHAMPOO_SEED", "1")), examples=60, steps=45)
    assert len(met) >= 40, "the machine has lost its variety"


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("engine", ENGINES, indirect=True)
def test_every_answer_is_the_models_in_long_histories(queue: Queue) -> None:
    met = run(queue.engine, int(os.environ.get("SHAMPOO_SEED", "5")), examples=1500, steps=120)
    asked = {(tool.name, code) for tool in TOOLS for code in tool.refusals if code != "quota_exceeded"}
    assert asked <= met, sorted(asked - met)


@pytest.mark.parametrize("engine", ENGINES, indirect=True)
def test_a_spent_job_given_back_counts_as_exhausted_also_when_the_clock_steps_back(queue: Queue) -> None:
    pair = Pair(queue)
    pair.operator("add_principal", "ann", True, ("p",))
    job_id = pair.call("ann", "job_create", {"kind": "k", "project": "p"})["job_id"]
    for _ in range(5):
        pair.call("ann", "job_claim", {})
        pair.call("ann", "job_release", {"job_id": job_id})
    pair.expire()
    pair.advance(-1)
    pair.expire()
