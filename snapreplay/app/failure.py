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
from snapreplay.errors import RecordError, RecordId

NEVER_HANDLER_ERRORS = (MemoryError, ImportError)
"""They concern the process, not the record: another process may apply it, so it must not be skipped.

CancelledError, KeyboardInterrupt and SystemExit are not `Exception`s and pass anyway.
"""

_SHOWN_BYTES = 32
_TRACEBACK_LINES = 12


def record_error(
    record: InputRecord,
    topic: Topic[Any, Any],
    handler: Callable[..., object],
    error: Exception,
) -> RecordError:
    """Returns the error for `record`: that of a codec if key or value cannot be decoded, else the handler's."""
    undecodable = _undecodable(record, topic)
    if undecodable is not None:
        return undecodable
    if isinstance(error, RecordError):
        return _located(record, handler, error)
    return _raised(record, handler, error)


def timer_error(
    timer: Timer[Any], handler: Callable[..., object] | None, error: Exception
) -> RecordError:
    """Returns the error for a timer; `handler`: None where the app has none for it."""
    if isinstance(error, RecordError):
        if error.timer_id is None:
            error.timer_id = timer.id
            error.message = f"timer {timer.id}: {error.message}{_line_of(error, handler)}"
            error.args = (error.message,)
        return error
    place = "" if handler is None else f" {place_of(handler)}"
    raised = f"raised {type(error).__name__}: {error}{_line_of(error, handler)}"
    found = RecordError(
        f"timer {timer.id}: handler{place} {raised}",
        exception=type(error).__name__,
        traceback="".join(traceback.format_exception(error)[-_TRACEBACK_LINES:]),
    )
    found.timer_id = timer.id
    found.__cause__ = error
    return found


def answered(answer: object) -> TypeError:
    """Returns the error for a handler that returned something: a wrapped `async def` that never ran, or a mistake."""
    if inspect.iscoroutine(answer):
        answer.close()
    return TypeError(f"it returned a {type(answer).__name__}, but a handler must return nothing")


def _undecodable(record: InputRecord, topic: Topic[Any, Any]) -> RecordError | None:
    """Decodes again, so that the hot loop need not record which step it is at."""
    for side, codec, data in (("key", topic.key, record.key), ("value", topic.value, record.value)):
        try:
            _decode(codec, data)
        except NEVER_HANDLER_ERRORS:
            raise
        except Exception as cause:  # noqa: BLE001 - a codec may raise anything
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
    record_id: RecordId, side: str, codec: Codec[Any], data: bytes | None, cause: Exception
) -> RecordError:
    size = "is null" if data is None else f"has {len(data)} bytes, {data[:_SHOWN_BYTES]!r}"
    cut = "…" if data is not None and len(data) > _SHOWN_BYTES else ""
    hint = f"declare {side}=nullable({codec.name}) in its Topic" if data is None else ""
    return RecordError(
        f"{record_id}: {side} cannot be read as {codec.name}: {cause}; it {size}{cut}",
        record_id=record_id,
        hint=hint,
        exception=type(cause).__name__,
    )


def _located(
    record: InputRecord, handler: Callable[..., object], error: RecordError
) -> RecordError:
    """Adds the record to an error of `out.send` or of the state, which do not know it."""
    if error.record_id is None:
        error.record_id = id_of(record)
        error.message = f"{error.record_id}: {error.message}{_line_of(error, handler)}"
        error.args = (error.message,)
    return error


def _raised(record: InputRecord, handler: Callable[..., object], error: Exception) -> RecordError:
    record_id = id_of(record)
    lines = traceback.format_exception(error)
    raised = f"raised {type(error).__name__}: {error}{_line_of(error, handler)}"
    found = RecordError(
        f"{record_id}: handler {place_of(handler)} {raised}",
        record_id=record_id,
        exception=type(error).__name__,
        traceback="".join(lines[-_TRACEBACK_LINES:]),
    )
    found.__cause__ = error
    return found


def _line_of(error: Exception, handler: Callable[..., object] | None) -> str:
    """The innermost line of the author's own code, " at rules.py:3"; empty if the error comes from none."""
    tops = {str(getattr(handler, "__module__", "")).partition(".")[0]}
    for frame, line in reversed(list(traceback.walk_tb(error.__traceback__))):
        if is_own(str(frame.f_globals.get("__name__", "")), tops):
            return f" at {Path(frame.f_code.co_filename).name}:{line}"
    return ""
