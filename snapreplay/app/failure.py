"""Turns an exception raised while a record was applied into an error that names record, cause and place. Pure."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from snapreplay.app.code_version import place_of
from snapreplay.app.codecs import Codec
from snapreplay.app.record import InputRecord, id_of
from snapreplay.app.timer import Timer
from snapreplay.app.topic import Topic
from snapreplay.app.user_modules import is_own
from snapreplay.errors import RecordError, RecordId, SnapreplayError, StopError
from snapreplay.interrupts import of_a_signal
from snapreplay.state.keys import MissingKey

_SHOWN_BYTES = 32
_TRACEBACK_LINES = 12


def passes(error: BaseException) -> bool:
    """Say whether something raised while a record was applied is no answer to it: a stored value cannot be read, or
    the process is to end. Everything else is, whatever its class: SystemExit, CancelledError and MemoryError, too."""
    return isinstance(error, StopError) or of_a_signal(error)


def record_error(
    record: InputRecord,
    topic: Topic[Any, Any],
    handler: Callable[..., object],
    error: BaseException,
) -> RecordError:
    """Return the error for `record`: that of a codec if key or value cannot be decoded, else the handler's."""
    undecodable = _undecodable(record, topic)
    if undecodable is not None:
        return undecodable
    if isinstance(error, RecordError):
        return _located(record, handler, error)
    return _raised(record, handler, error)


def timer_error(
    timer: Timer[Any], handler: Callable[..., object] | None, error: BaseException
) -> RecordError:
    """Return the error for a timer; `handler`: None where the app has none for it."""
    if isinstance(error, RecordError):
        if error.timer_id is None:
            error.timer_id = timer.id
            error.message = f"timer {timer.id}: {error.message}{_line_of(error, handler)}"
            error.args = (error.message,)
        return error
    place = "" if handler is None else f" {place_of(handler)}"
    said, hint = _said(error)
    raised = f"raised {type(error).__name__}: {said}{_line_of(error, handler)}"
    found = RecordError(
        f"timer {timer.id}: handler{place} {raised}",
        hint=hint,
        exception=type(error).__name__,
        traceback="".join(traceback.format_exception(error)[-_TRACEBACK_LINES:]),
    )
    found.timer_id = timer.id
    found.__cause__ = error
    return found


def answered(answer: object) -> TypeError:
    """Return the error for a handler that returned something: a wrapped `async def` that never ran, or a mistake."""
    if inspect.iscoroutine(answer):
        answer.close()
    return TypeError(f"it returned a {type(answer).__name__}, but a handler must return nothing")


def _undecodable(record: InputRecord, topic: Topic[Any, Any]) -> RecordError | None:
    """Decode again, so that the hot loop need not record which step it is at."""
    for side, codec, data in (("key", topic.key, record.key), ("value", topic.value, record.value)):
        try:
            _decode(codec, data)
        except BaseException as cause:
            if of_a_signal(cause):
                raise
            error = _bad_bytes(id_of(record), side, codec, data, cause)
            error.__cause__ = cause
            return error
    return None


def _decode(codec: Codec[Any], data: bytes | None) -> None:
    if data is None:
        if not codec.nullable:
            raise ValueError("null is not a value of this type")
    else:
        codec.decode(data)


def _bad_bytes(
    record_id: RecordId, side: str, codec: Codec[Any], data: bytes | None, cause: BaseException
) -> RecordError:
    size = "is null" if data is None else f"has {len(data)} bytes, {data[:_SHOWN_BYTES]!r}"
    cut = "…" if data is not None and len(data) > _SHOWN_BYTES else ""
    hint = f"declare {side}=nullable({codec.name}) in its Topic" if data is None else ""
    return RecordError(
        f"{record_id}: {side} cannot be read as {codec.name}: {str(cause) or type(cause).__name__};"
        f" it {size}{cut}",
        record_id=record_id,
        hint=hint,
        exception=type(cause).__name__,
    )


def _located(
    record: InputRecord, handler: Callable[..., object], error: RecordError
) -> RecordError:
    """Add the record to an error of `out.send` or of the state, which do not know it."""
    if error.record_id is None:
        error.record_id = id_of(record)
        error.message = f"{error.record_id}: {error.message}{_line_of(error, handler)}"
        error.args = (error.message,)
    return error


def _raised(
    record: InputRecord, handler: Callable[..., object], error: BaseException
) -> RecordError:
    record_id = id_of(record)
    lines = traceback.format_exception(error)
    said, hint = _said(error)
    raised = f"raised {type(error).__name__}: {said}{_line_of(error, handler)}"
    found = RecordError(
        f"{record_id}: handler {place_of(handler)} {raised}",
        hint=hint,
        record_id=record_id,
        exception=type(error).__name__,
        traceback="".join(lines[-_TRACEBACK_LINES:]),
    )
    found.__cause__ = error
    return found


def _said(error: BaseException) -> tuple[str, str]:
    """Return what the exception says, and what to do about it."""
    if isinstance(error, SnapreplayError | MissingKey):
        return error.message, error.hint
    text = str(error)
    if isinstance(error, TypeError) and text.startswith("Out.send()"):
        return text, "call it as `out.send(topic, key=…, value=…)`"
    return text, ""


def _line_of(error: BaseException, handler: Callable[..., object] | None) -> str:
    """Return the innermost line of the author's own code, " at rules.py:3"; empty if the error comes from none."""
    tops = {str(getattr(handler, "__module__", "")).partition(".")[0]}
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        if is_own(str(frame.f_globals.get("__name__", "")), tops):
            return f" at {Path(frame.f_code.co_filename).name}:{line}"
    return ""
