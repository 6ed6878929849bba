"""OpenTelemetry spans around calls and moves, in a program that records spans; else nothing, at the cost of a look-up.

No span carries an argument, a payload or a token.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from .clock import now

_NOTHING = nullcontext()
_found: Any = None
_look_again_at = 0.0
_CARRIERS = (b"traceparent", b"tracestate")


def span(name: str, **facts: str) -> AbstractContextManager[Any]:
    """Give a span to work in, below the current one; its facts are attributes ``shampoo.…``."""
    trace = _recording()
    return _NOTHING if trace is None else _span(trace, name, facts)


def continued(headers: Iterable[tuple[bytes, bytes]]) -> AbstractContextManager[Any]:
    """Go on with the trace that a request's headers name, in ASGI's form."""
    return _NOTHING if _recording() is None else _attached(headers)


def _recording() -> Any:
    """Give the API when this program has imported it and set a provider up; importing it is left to the program.

    Looks once a second until it is so, since asking for the provider takes longer than a call should wait for it.
    """
    global _found, _look_again_at
    if _found is None and (moment := now()) >= _look_again_at:
        _look_again_at = moment + 1.0
        trace = sys.modules.get("opentelemetry.trace")
        if trace is not None and not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
            _found = trace
    return _found


@contextmanager
def _span(trace: Any, name: str, facts: Mapping[str, str]) -> Iterator[Any]:
    attributes = {f"shampoo.{fact}": value for fact, value in facts.items()}
    tracer = trace.get_tracer("shampoo_queue")
    # What an exception says may hold what a caller sent, so only its code is recorded.
    with tracer.start_as_current_span(
        name, attributes=attributes, record_exception=False, set_status_on_exception=False
    ) as current:
        try:
            yield current
        except Exception as error:
            current.set_attribute("shampoo.code", getattr(error, "code", "internal"))
            raise


@contextmanager
def _attached(headers: Iterable[tuple[bytes, bytes]]) -> Iterator[None]:
    from opentelemetry import context
    from opentelemetry.propagate import extract

    named = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers if name in _CARRIERS}
    mark = context.attach(extract(named))
    try:
        yield
    finally:
        context.detach(mark)
