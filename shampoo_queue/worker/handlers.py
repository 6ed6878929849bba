"""Hold what a worker was told about one kind of job, checked where it was said."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import uniform
from typing import Any, Literal

from .. import contract
from ..errors import ConfigurationError, InvalidArgument

RunsIn = Literal["async", "thread", "process"]
Function = Callable[..., Any]

CONCURRENCY = 8
BACKOFF_SECONDS = (1.0, 2.0, 4.0, 8.0)
JITTER = 0.2
_MOST_SECONDS = round(contract.limit("delay") / (1 + JITTER))


@dataclass(frozen=True, slots=True, eq=False)
class Handler:
    """A function for one kind of job, and how to run it. Lengths are in seconds."""

    kind: str
    function: Function
    runs_in: RunsIn
    concurrency: int
    lease_seconds: int
    time_limit: float | None
    attempts: int
    backoff: tuple[float, ...]

    def backoff_after(self, attempt: int) -> float:
        """Give the seconds to wait after the failure of this attempt, with jitter; the last step repeats."""
        if not self.backoff:
            return 0.0
        return self.backoff[min(attempt, len(self.backoff)) - 1] * uniform(1 - JITTER, 1 + JITTER)


def handler_of(
    function: Function,
    kind: str,
    runs_in: RunsIn | None,
    concurrency: int,
    lease_seconds: int,
    time_limit: float | None,
    attempts: int,
    backoff: Sequence[float],
) -> Handler:
    """Check everything that can be wrong with a handler now, or raise `ConfigurationError`."""
    name = f"handler of {contract.safe_name(kind)}"
    if not (isinstance(kind, str) and kind):
        raise ConfigurationError(f"{name}: a handler is for one kind")
    try:
        contract.check(contract.BY_NAME["job_claim"], {"kind": kind, "lease_seconds": lease_seconds})
    except InvalidArgument as error:
        raise ConfigurationError(f"{name}: {error.message}") from None
    if not callable(function):
        raise ConfigurationError(f"{name}: a handler is a function")
    is_async = inspect.iscoroutinefunction(function)
    if runs_in is None:
        runs_in = "async" if is_async else "thread"
    if not isinstance(runs_in, str) or runs_in not in ("async", "thread", "process"):
        raise ConfigurationError(f"{name}: runs_in must be async, thread or process")
    if is_async != (runs_in == "async"):
        raise ConfigurationError(f"{name}: runs_in={runs_in!r} needs {'async def' if runs_in == 'async' else 'def'}")
    if runs_in == "process" and not _importable(function):
        raise ConfigurationError(f"{name}: runs_in='process' needs a function at the top level of a module")
    _number(name, "concurrency", concurrency, 1, 10_000)
    _number(name, "attempts", attempts, 1, contract.limit("attempts"))
    if time_limit is not None and not (_is_seconds(time_limit) and time_limit > 0):
        raise ConfigurationError(f"{name}: time_limit must be more than 0 seconds")
    if isinstance(backoff, str) or not isinstance(backoff, Sequence) or not all(map(_is_seconds, backoff)):
        raise ConfigurationError(f"{name}: backoff must be seconds from 0 to {_MOST_SECONDS:,}, in a list")
    return Handler(kind, function, runs_in, concurrency, lease_seconds, time_limit, attempts, tuple(backoff))


def _number(name: str, what: str, number: Any, least: int, most: int) -> None:
    if not isinstance(number, int) or isinstance(number, bool) or not least <= number <= most:
        raise ConfigurationError(f"{name}: {what} must be a whole number from {least} to {most}")


def _is_seconds(length: Any) -> bool:
    """Whether a value is a length of time that a job can be delayed."""
    return isinstance(length, int | float) and not isinstance(length, bool) and 0 <= length <= _MOST_SECONDS


def _importable(function: Function) -> bool:
    qualified = getattr(function, "__qualname__", "<")
    return "<" not in qualified and bool(getattr(function, "__module__", None))
