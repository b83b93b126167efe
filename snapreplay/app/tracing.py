"""Carries the W3C trace context of an input record to the outputs of its handler. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from snapreplay.app.record import Headers

NAMES = ("traceparent", "tracestate")


def context_of(headers: Headers) -> Headers:
    """Return the headers that are the trace context; none without a `traceparent`."""
    found = tuple(each for each in headers if each[0] in NAMES and each[1])
    return found if any(name == NAMES[0] for name, _ in found) else ()


def carrying(handler: Callable[..., Any], contexts: list[Headers]) -> Callable[..., Any]:
    """Return a handler whose outputs carry the context of their record. Each context is added to `contexts`."""

    def carried(record: Any, state: Any, out: Any) -> Any:
        context = context_of(record.headers)
        sent_before = len(out.staged)
        answer = handler(record, state, out)
        if context:
            contexts.append(context)
            out.carry(sent_before, context)
        return answer

    return carried
