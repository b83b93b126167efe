"""Input records made by hand, for tests and for lines that a person feeds; outputs, decoded for tests. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, TypeVar

import msgspec

from snapreplay.app.app import App
from snapreplay.app.codecs import Codec, unencoded
from snapreplay.app.out import TIMESTAMP_MS_MAX, checked_headers
from snapreplay.app.record import Headers, Output, RawRecord
from snapreplay.app.topic import Topic
from snapreplay.errors import UsageError
from snapreplay.times import NO_TIMESTAMP

K = TypeVar("K")
V = TypeVar("V")

UNSET = -1
"""Partition or offset of a record that has none yet."""
UNSET_MS = -(1 << 63)
"""Timestamp of a record that is to get one; -1 stands for a record without a timestamp."""


def rehearse(topics: Iterable[Topic[Any, Any]]) -> None:
    """Let tests of these topics need no schema registry: what they write names schemas of this process."""
    for topic in topics:
        for codec in (topic.key, topic.value):
            if codec.schemas is not None:
                codec.schemas.rehearse()


def prepared(topic: Topic[K, V]) -> Topic[K, V]:
    """Return the topic, ready to write what every process can read, also after a `rehearse`."""
    check_topic(topic)
    for codec in (topic.key, topic.value):
        if codec.schemas is not None:
            codec.schemas.prepare()
    return topic


def record(
    topic: Topic[K, V],
    *,
    key: K | None = None,
    value: V | None = None,
    timestamp_ms: int | None = None,
    headers: Iterable[tuple[str, bytes | None]] = (),
) -> RawRecord:
    """Return an input record. The harness sets partition and offset, and a timestamp if none is given: 1 ms after the
    record before it. `timestamp_ms=-1` makes a record without one. Raises UsageError if it cannot be a record of this
    topic.
    """
    check_topic(topic)
    rehearse([topic])
    return record_raw(topic, *encoded(topic, key, value), timestamp_ms=timestamp_ms, headers=headers)


def record_raw(
    topic: Topic[Any, Any],
    key: bytes | None,
    value: bytes | None,
    *,
    timestamp_ms: int | None = None,
    headers: Iterable[tuple[str, bytes | None]] = (),
) -> RawRecord:
    """Return an input record as `record` does, with key and value as bytes, which need not decode."""
    check_topic(topic)
    if timestamp_ms is not None and not is_timestamp(timestamp_ms):
        raise UsageError(
            f"{topic.name}: timestamp_ms={timestamp_ms!r} is not a time in milliseconds since the epoch",
            hint="use an int from 0 on, such as `int(time.time() * 1000)`; -1 stands for a record without a timestamp",
        )
    for side, given in (("key", key), ("value", value)):
        if given is not None and type(given) is not bytes:
            raise UsageError(f"{topic.name}: {side} {given!r} is {type(given).__name__}, not bytes or None")
    at_ms = UNSET_MS if timestamp_ms is None else timestamp_ms
    checked = checked_headers(topic.name, headers, UsageError)
    return RawRecord(topic.name, UNSET, UNSET, at_ms, key, value, checked)


def checked_records(given: Iterable[RawRecord]) -> list[RawRecord]:
    """Return the records, or raise UsageError: it is not a list of records."""
    hint = "make each record with `testing.record(topic, key=…, value=…)`, and pass a list of them"
    if isinstance(given, RawRecord) or not isinstance(given, Iterable):
        raise UsageError(f"{given!r} is not a list of records", hint=hint)
    records = list(given)
    for each in records:
        if not isinstance(each, RawRecord):
            raise UsageError(f"{each!r} is of type {type(each).__name__}, not a record", hint=hint)
    return records


def check_topic(topic: object) -> None:
    """Raise UsageError if it is not a Topic, but probably the name of one."""
    if not isinstance(topic, Topic):
        raise UsageError(f"{topic!r} is not a Topic", hint="pass the Topic object that the app was declared with")


def encoded(topic: Topic[K, V], key: K | None, value: V | None) -> tuple[bytes | None, bytes | None]:
    """Encode both; None is null. Raises UsageError: the codec does not encode it."""
    check_topic(topic)
    return _encoded(topic.name, "key", topic.key, key), _encoded(topic.name, "value", topic.value, value)


def _encoded(topic: str, side: str, codec: Codec[Any], given: object) -> bytes | None:
    if given is None:
        return None
    try:
        return codec.encode(given)
    except Exception as error:  # a codec may raise anything
        why, hint = unencoded(side, codec, given, error)
        raise UsageError(f"{topic}: {why}", hint=hint, topic=topic) from error


def is_timestamp(value: object) -> bool:
    """Say whether a record can have this time: milliseconds since the epoch, in 64 bits; -1: none."""
    return type(value) is int and NO_TIMESTAMP <= value <= TIMESTAMP_MS_MAX


class Sent(msgspec.Struct, Generic[K, V], frozen=True):
    """A decoded output. `partition`: as given to `out.send`; `timestamp_ms`: None for the time of writing."""

    key: K
    value: V
    headers: Headers
    partition: int | None
    timestamp_ms: int | None


def check_output(topic: Topic[Any, Any], app: App[Any]) -> None:
    """Raise UsageError: the topic is not an output of the app. With an empty list, a test of the wrong topic could
    pass."""
    check_topic(topic)
    if topic.name not in {each.name for each in app.outputs}:
        raise UsageError(f"{app.app_id}: {topic.name} is not an output")


def sent_to(topic: Topic[K, V], outputs: Iterable[Output]) -> list[Sent[K, V]]:
    """Return those of the outputs that were sent to this topic, decoded."""
    return [
        Sent(*decoded(topic, each.key, each.value), each.headers, each.partition, each.timestamp_ms)
        for each in outputs
        if each.topic == topic.name
    ]


def decoded(topic: Topic[K, V], key: bytes | None, value: bytes | None) -> tuple[Any, Any]:
    return (None if key is None else topic.key.decode(key), None if value is None else topic.value.decode(value))
