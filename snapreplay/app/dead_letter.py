"""The record for `<app_id>-dead-letters` that tells of a record or timer that could not be applied. Pure.

It has the record's key, value and headers, and the reason in headers named `__snapreplay.errors.*`
(Kafka Streams has `__streams.errors.*`, KIP-1034).
"""

from __future__ import annotations

from typing import Any

from snapreplay.app.names import dead_letters_topic
from snapreplay.app.out import headers_upper_bound, size_upper_bound
from snapreplay.app.ranges import anchor_of
from snapreplay.app.record import InputRecord, Output
from snapreplay.app.timer import Timer
from snapreplay.errors import RecordError

PREFIX = "__snapreplay.errors."

_MESSAGE_MAX = 2000  # characters: enough for a person, small against any record limit

Headers = tuple[tuple[str, bytes], ...]


def dead_letter(
    app_id: str, app_version: str, record: InputRecord, error: RecordError, limit_bytes: int
) -> Output:
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


def error_headers(
    app_id: str, app_version: str, record: InputRecord, error: RecordError
) -> Headers:
    """Return headers of UTF-8 text; numbers in decimal."""
    facts = {
        "topic": record.topic,
        "partition": str(record.partition),
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
