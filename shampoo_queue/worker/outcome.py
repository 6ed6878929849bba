"""Turn what a handler came to into the ending of its job."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from ..claims import Ending
from ..contract import JobClaimResult, limit
from .handlers import Handler
from .job import Fail, Job, Release

DRAINED = "drained"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a handler came to, before attempts and backoff are counted.

    For the log alone: ``error`` in this process, its ``trace`` as text from another.
    """

    way: Literal["returned", "raised", "fail", "release"]
    result_ref: str | None = None
    reason: str = ""
    delay_seconds: float = 0.0
    error: BaseException | None = field(default=None, compare=False)
    trace: str = ""


def of_call(function: Callable[[Job], Any], job: Job) -> Verdict:
    """Call a handler and tell what it came to; nothing that it raises gets past, SystemExit neither."""
    try:
        return returned(function(job))
    except BaseException as error:
        return raised(error)


def returned(value: Any) -> Verdict:
    """Take a handler's return value, the result_ref; one that cannot be stored fails the job and says why."""
    if value is None:
        return Verdict("returned")
    if not isinstance(value, str):
        if inspect.iscoroutine(value):
            value.close()
        return Verdict("fail", reason=f"the handler returned {type(value).__name__}; a result_ref is text or None")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        return Verdict("fail", reason="the handler returned a result_ref with a lone surrogate, which is no text")
    if size > limit("result_ref"):
        most = f"{limit('result_ref'):,}"
        return Verdict("fail", reason=f"the handler returned a result_ref of {size:,} UTF-8 bytes; at most {most}")
    return Verdict("returned", result_ref=value)


def raised(error: BaseException) -> Verdict:
    """Take what a handler raised."""
    match error:
        case Fail():
            return Verdict("fail", reason=_text(error.reason))
        case Release():
            return Verdict("release", reason=_text(error.reason), delay_seconds=error.delay)
    text = _text(error)
    name = _name(error)
    return Verdict("raised", reason=_cut(f"{name}: {text}" if text else name), error=error)


def portable(verdict: Verdict) -> Verdict:
    """Make a verdict fit to travel to another process."""
    return replace(verdict, error=None, trace=trace_of(verdict.error))


def timed_out(seconds: float) -> Verdict:
    """Say that the handler's time limit is over."""
    return Verdict("raised", reason=f"time limit of {seconds:g} s passed")


def ending(claim: JobClaimResult, handler: Handler, verdict: Verdict) -> Ending:
    """Decide how the job ends: attempts are counted here, and nowhere else."""
    reason = verdict.reason
    match verdict.way:
        case "returned":
            return Ending(claim, "completed", result_ref=verdict.result_ref)
        case "fail":
            return Ending(claim, "failed", reason=reason)
        case "release" if claim.attempts < limit("attempts"):
            return Ending(claim, "released", reason=reason, delay_seconds=verdict.delay_seconds)
        case "raised" if claim.attempts < handler.attempts:
            return Ending(claim, "released", reason=reason, delay_seconds=handler.backoff_after(claim.attempts))
    if verdict.way == "release":
        reason = f"no attempt left: {reason}" if reason else "no attempt left"
    return Ending(claim, "failed", reason=reason)


def drained(claim: JobClaimResult) -> Ending:
    """Give a job back because its worker stops."""
    return Ending(claim, "released", reason=DRAINED)


def _text(value: Any) -> str:
    """Read the text of an error, whose own spelling may fail in any way; a megabyte of it does not travel."""
    try:
        return _cut(str(value))
    except BaseException as error:
        return f"(its text cannot be read: {type(error).__name__})"


def _name(error: BaseException) -> str:
    try:
        return str(type(error).__name__)
    except BaseException:  # a class may have a class of its own
        return "an exception"


def _cut(text: str) -> str:
    return text[: limit("reason")]


def trace_of(error: BaseException | None) -> str:
    """Write a traceback down, if it can be."""
    try:
        return "" if error is None else "".join(traceback.format_exception(error)).rstrip()
    except BaseException:  # it calls the error's own methods
        return ""
