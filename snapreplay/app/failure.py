"""Turns an exception raised while a record was applied into an error that names record, cause and place, and into the
record for `<app_id>-dead-letters` that tells of it. Pure.

A dead letter has the record's key, value and headers, and the reason in headers named `__snapreplay.errors.*`
(Kafka Streams has `__streams.errors.*`, KIP-1034).
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from snapreplay.app.code_version import is_own, place_of
from snapreplay.app.codecs import Codec
from snapreplay.app.foreign import seen_in
from snapreplay.app.names import dead_letters_topic, place_of_input
from snapreplay.app.out import headers_upper_bound, size_upper_bound
from snapreplay.app.ranges import anchor_of
from snapreplay.app.record import InputRecord, Output, id_of
from snapreplay.app.timer import Timer
from snapreplay.app.topic import Topic
from snapreplay.errors import RecordError, RecordId, RegistryUnavailable, SnapreplayError, StopError
from snapreplay.interrupts import of_a_signal
from snapreplay.state.keys import MissingKey
from snapreplay.state.timers import YEAR_MS
from snapreplay.times import FAR_AHEAD_MS, suspected_unit, time_text

PREFIX = "__snapreplay.errors."

_MESSAGE_MAX = 2000  # characters: enough for a person, small against any record limit
_SHOWN_BYTES = 32
_TRACEBACK_LINES = 12


def passes(error: BaseException) -> bool:
    """Say whether an error raised while a record was applied is not the record's fault: a stored value cannot be
    read, a schema cannot be fetched, or the process is to end. Any other error is its fault, also SystemExit,
    CancelledError and MemoryError."""
    return isinstance(error, StopError | RegistryUnavailable) or of_a_signal(error)


def record_error(
    record: InputRecord, topic: Topic[Any, Any], handler: Callable[..., object], error: BaseException
) -> RecordError:
    """Return the error for `record`: that of a codec if key or value cannot be decoded, else the handler's."""
    found = _undecodable(record, topic)
    if found is None:
        record_id = id_of(record)
        found = _located(str(record_id), handler, error)
        found.record_id = found.record_id or record_id
    return found


def timer_error(timer: Timer[Any], handler: Callable[..., object] | None, error: BaseException) -> RecordError:
    """Return the error for a timer; `handler`: None where the app has none for it."""
    found = _located(f"timer {timer.id}", handler, error)
    found.timer_id = found.timer_id or timer.id
    return found


def far_ahead(record: InputRecord, stream_time_ms: int, most_ms: int | None) -> RecordError:
    """Return the error for a record whose timestamp lies too far ahead: one such record would let every timer fire up
    to then, and all later records would come too late. `most_ms`: the bound of its input."""
    at_ms, record_id = record.timestamp, id_of(record)
    ahead_ms = at_ms - max(stream_time_ms, 0)
    by = f"{ahead_ms // YEAR_MS:,} years" if ahead_ms >= FAR_AHEAD_MS else f"{ahead_ms:,} ms"
    bound = "" if most_ms is None else f"; its input has ahead_max_ms={most_ms}"
    since = f"stream time, {time_text(stream_time_ms)}" if stream_time_ms >= 0 else "1970"
    unit = suspected_unit(at_ms)
    seems = f", and looks like {unit}" if unit else f" ({time_text(at_ms)})"
    return RecordError(
        f"{record_id}: the timestamp {at_ms} lies {by} after {since}{seems}{bound}: the state has timers or entries"
        " that expire, and all of that time would pass with this record",
        record_id=record_id,
        hint=""
        if most_ms is None
        else "if such a jump is right, raise ahead_max_ms of the Topic, and `snapreplay retry`",
        exception="TimestampFarAhead",
        timestamp_ms=at_ms,
        stream_time_ms=stream_time_ms,
    )


def _located(subject: str, handler: Callable[..., object] | None, error: BaseException) -> RecordError:
    """Say at which record or timer: `out.send` and the state, which raise a RecordError, do not know it."""
    if isinstance(error, RecordError):
        if error.record_id is None and error.timer_id is None:
            error.message = f"{subject}: {error.message}{_line_of(error, handler)}"
            error.args = (error.message,)
        return error
    place = "" if handler is None else f" {place_of(handler)}"
    message, hint = _message_of(error)
    kind = type(error).__name__
    found = RecordError(
        f"{subject}: handler{place} raised {kind}{f': {message}' if message else ''}{_line_of(error, handler)}",
        hint=hint,
        exception=kind,
        traceback="".join(traceback.format_exception(error)[-_TRACEBACK_LINES:]),
    )
    found.__cause__ = error
    return found


def returned_value(answer: object) -> TypeError:
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
            if passes(cause):
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
    hint, seems = "", ""
    if data is None:
        hint = f"declare {side}=nullable({codec.name}) in its Topic"
    elif (seen := seen_in(side, codec.name, data)) is not None:
        hint, seems = seen.hint, f", and looks like {seen.what}"
    why = str(cause) or type(cause).__name__
    return RecordError(
        f"{record_id}: {side} cannot be read as {codec.name}: {why}; it {size}{cut}{seems}",
        record_id=record_id,
        hint=hint,
        exception=type(cause).__name__,
    )


def _message_of(error: BaseException) -> tuple[str, str]:
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


# -------------------------------------------------------------------- dead letters


Headers = tuple[tuple[str, bytes | None], ...]


def dead_letter(app_id: str, app_version: str, record: InputRecord, error: RecordError, limit_bytes: int) -> Output:
    """Return the dead letter, at most `limit_bytes` large if that is some kilobytes.

    To fit, it drops the value first, then key and headers, and names what it dropped in the header
    `__snapreplay.errors.dropped`.
    """
    why = error_headers(app_id, app_version, record, error)
    whole: Headers = (*record.headers, *why)
    without_value: Headers = (*whole, (f"{PREFIX}dropped", b"value"))
    candidates: tuple[tuple[bytes | None, bytes | None, Headers], ...] = (
        (record.key, record.value, whole),
        (record.key, None, without_value),
        (None, None, (*why, (f"{PREFIX}dropped", b"key,value,headers"))),
    )
    for key, value, headers in candidates:
        if size_upper_bound(key, value) + headers_upper_bound(headers) <= limit_bytes:
            break
    topic = dead_letters_topic(app_id)
    return Output(topic, key, value, None, key is not None, None, headers)


def timer_dead_letter(app_version: str, timer: Timer[Any], error: RecordError) -> Output:
    """Return the dead letter of a timer that could not be handled. It has no value. Its key is that of the timer,
    of a tuple the first part, or the name of a periodic one; it goes to the partition of the state."""
    is_periodic = timer.key is None
    facts = {
        "timer": timer.name,
        "store": timer.store,
        "key": "" if is_periodic else repr(timer.key)[:_MESSAGE_MAX],
        "partition": str(timer.partition),
        "at_ms": str(timer.at_ms),
        **_reason(timer.app_id, app_version, error),
    }
    topic = dead_letters_topic(timer.app_id)
    key = timer.name.encode() if is_periodic else timer.output_key
    return Output(topic, key, None, None, key is not None, None, _headers(facts))


def error_headers(app_id: str, app_version: str, record: InputRecord, error: RecordError) -> Headers:
    """Return headers of UTF-8 text; numbers in decimal."""
    topic, partition = place_of_input(record.topic, record.partition)
    facts = {
        "topic": topic,
        "partition": str(partition),
        "offset": str(record.offset),
        "timestamp_ms": str(record.timestamp),
        "xxh64": f"{anchor_of(record).xxh64:016x}",
        **_reason(app_id, app_version, error),
    }
    return _headers(facts)


def _reason(app_id: str, app_version: str, error: RecordError) -> dict[str, str]:
    return {
        "exception": str(error.facts.get("exception", type(error).__name__)),
        "message": error.message[:_MESSAGE_MAX],
        "app_id": app_id,
        "app_version": app_version,
    }


def _headers(facts: dict[str, str]) -> Headers:
    return tuple((PREFIX + name, text.encode(errors="replace")) for name, text in facts.items())
