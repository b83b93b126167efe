"""What a handler sends: encoded at once, staged until the batch commits. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from snapreplay.app.codecs import Codec
from snapreplay.app.failure import NEVER_HANDLER_ERRORS
from snapreplay.app.record import Output
from snapreplay.app.topic import Topic
from snapreplay.errors import RecordError

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

PARTITION_MAX, TIMESTAMP_MS_MAX = (1 << 31) - 1, (1 << 63) - 1
"""What a Kafka record can have."""

DEFAULT_LIMIT_BYTES = 1_048_588
"""Kafka's default for max.message.bytes, for topics whose own value is not known."""

_RECORD_OVERHEAD_BYTES = 61 + 21 + 10
"""Batch header, record header, lengths of key and value: what
DefaultRecordBatch.estimateBatchSizeUpperBound adds.
"""

_HEADER_OVERHEAD_BYTES = 10

_SHOWN_BYTES = 40


class Out:
    """What a handler sends to. Its outputs become visible when the batch commits, all or none, in the order sent.

    Attributes:
        staged: outputs so far, in the order sent; for the fold only.
        input_key: key bytes of the record being applied; set by the fold.
    """

    __slots__ = ("_ways", "input_key", "staged")

    def __init__(self, topics: Iterable[Topic[Any, Any]], limits: Mapping[str, int]) -> None:
        """`limits`: topic name → max.message.bytes; `DEFAULT_LIMIT_BYTES` for those not named."""
        self._ways = {
            topic: (topic.key, topic.value, limits.get(topic.name, DEFAULT_LIMIT_BYTES))
            for topic in topics
        }
        self.staged: list[Output] = []
        self.input_key: bytes | None = None

    def send(
        self,
        topic: Topic[K, V],
        *,
        key: K,
        value: V,
        partition: int | None = None,
        headers: Sequence[tuple[str, bytes]] | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        """Encode an output at once, and stage it. Later changes to `value` do not change it.

        Args:
            topic: one of the app's outputs.
            partition: None: that of the state, if the key is null, or if it is the key of the input record or of the
                timer and the topics have equally many partitions; otherwise Kafka's hash of the key decides.
            headers: None: no headers.
            timestamp_ms: milliseconds since the epoch; None: the time of writing.

        Raises:
            RecordError: the topic is not an output of the app, or the record cannot be encoded or is
                larger than the topic accepts.
        """
        way = self._ways.get(topic)
        if way is None:
            raise _undeclared(topic, self._ways)
        key_codec, value_codec, limit_bytes = way
        key_bytes = _encode(topic, "key", key_codec, key)
        value_bytes = _encode(topic, "value", value_codec, value)
        # `size_upper_bound`, spelled out: a call less on the path of every output.
        size_bytes = _RECORD_OVERHEAD_BYTES + len(key_bytes or b"") + len(value_bytes or b"")
        checked: tuple[tuple[str, bytes], ...] = ()
        if headers or partition is not None or timestamp_ms is not None:
            checked = _checked_headers(topic, headers or ())
            _check_number(topic, "partition", partition, PARTITION_MAX)
            _check_number(topic, "timestamp_ms", timestamp_ms, TIMESTAMP_MS_MAX)
            size_bytes += headers_upper_bound(checked)
        if size_bytes > limit_bytes:
            raise _too_large(topic.name, size_bytes, limit_bytes)
        self.staged.append(
            Output(
                topic.name,
                key_bytes,
                value_bytes,
                partition,
                partition is None and key_bytes == self.input_key and key_bytes is not None,
                timestamp_ms,
                checked,
            )
        )


def size_upper_bound(key: bytes | None, value: bytes | None) -> int:
    """Bytes of a batch with this record alone, without headers: what max.message.bytes limits."""
    return _RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"")


def headers_upper_bound(headers: Sequence[tuple[str, bytes]]) -> int:
    return sum(
        _HEADER_OVERHEAD_BYTES + len(name.encode()) + len(data or b"") for name, data in headers
    )


def _encode(topic: Topic[Any, Any], side: str, codec: Codec[T], value: T) -> bytes | None:
    try:
        if value is not None:
            return codec.encode(value)
        if codec.nullable:
            return None
        raise TypeError("None is not a value of this type")
    except NEVER_HANDLER_ERRORS:
        raise
    except Exception as error:  # the codec is the user's and may raise anything
        raise _unencodable(topic, side, codec, value, error) from error


def _checked_headers(
    topic: Topic[Any, Any], headers: Sequence[tuple[str, bytes]]
) -> tuple[tuple[str, bytes], ...]:
    checked = tuple((name, data) for name, data in headers)
    for name, data in checked:
        if type(name) is not str or type(data) is not bytes:
            raise RecordError(
                f"output to {topic.name}: header ({name!r}, {data!r}) is not a (str, bytes) pair",
                topic=topic.name,
            )
    return checked


def _check_number(topic: Topic[Any, Any], name: str, value: int | None, most: int) -> None:
    if value is not None and (type(value) is not int or not 0 <= value <= most):
        raise RecordError(
            f"output to {topic.name}: {name}={value!r} is not an integer from 0 to {most}",
            topic=topic.name,
        )


def _undeclared(topic: Any, known: Mapping[Topic[Any, Any], object]) -> RecordError:
    names = [one.name for one in known]
    given = topic.name if isinstance(topic, Topic) else repr(topic)
    if given in names:
        hint = "another Topic object has this name: declare a topic once and import it"
    else:
        near = difflib.get_close_matches(given, names, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        hint += f"outputs: {', '.join(names) or 'none'}; to add it, use App(outputs=[…])"
    return RecordError(
        f"output to {given}, which is not one of the app's outputs", hint=hint, topic=given
    )


def _unencodable(
    topic: Topic[Any, Any], side: str, codec: Codec[Any], value: object, error: Exception
) -> RecordError:
    shown = repr(value)
    shown = shown if len(shown) <= _SHOWN_BYTES else shown[:_SHOWN_BYTES] + "…"
    hint = f"declare the topic with {side}=nullable({codec.name})" if value is None else ""
    return RecordError(
        f"output to {topic.name}: {side} {shown} cannot be written as {codec.name}: {error}",
        hint=hint,
        topic=topic.name,
    )


def _too_large(topic: str, size_bytes: int, limit_bytes: int) -> RecordError:
    return RecordError(
        f"output to {topic} has {size_bytes:,} bytes, but the topic accepts at most {limit_bytes:,}",
        hint=f"send less, or raise max.message.bytes of {topic} and restart",
        topic=topic,
        size_bytes=size_bytes,
        limit_bytes=limit_bytes,
    )
