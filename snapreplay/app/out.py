"""The outputs of a handler: encoded at once, staged until the batch commits. Pure."""

from __future__ import annotations

import difflib
import sys
from _thread import get_ident
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import NoneType
from typing import Any, TypeVar, cast

from snapreplay import engine
from snapreplay.app.call import AsyncCall, Calling, NoCalls
from snapreplay.app.codecs import Codec, unchecked, unencoded, utf8
from snapreplay.app.names import alter
from snapreplay.app.record import PIECE_BYTES, Carried, Headers, Output, context_of, hashing, packed
from snapreplay.app.topic import InternalTopic, Topic
from snapreplay.errors import RecordError, RegistryUnavailable, SnapreplayError
from snapreplay.interrupts import of_a_signal
from snapreplay.state.gate import OPEN, Gate, refuse_write
from snapreplay.state.steps import Steps
from snapreplay.times import NO_TIMESTAMP

K = TypeVar("K")
V = TypeVar("V")
Q = TypeVar("Q")

_NO_CALLS = NoCalls()

PARTITION_MAX, TIMESTAMP_MS_MAX = (1 << 31) - 1, (1 << 63) - 1
"""What a Kafka record can have."""

DEFAULT_LIMIT_BYTES = 1_048_588
"""Kafka's default for max.message.bytes, for topics whose own value is not known."""

_RECORD_OVERHEAD_BYTES = 61 + 21 + 10
"""Batch header, record header, lengths of key and value: what
DefaultRecordBatch.estimateBatchSizeUpperBound adds."""

_HEADER_OVERHEAD_BYTES = 10

ROOM_BYTES = 4096
"""What a limit that is raised leaves beside the record: the frame of a batch, and a slightly larger record."""


class Out:
    """The object with which handlers send outputs. They become visible when the batch commits: all or none, in the
    order sent.

    Attributes:
        input_key: key bytes of the record being applied; set by the fold.
        calls: of the partition; set by the fold.
        at_ms: time of the record or timer being applied, which its outputs get; -1: it has none. Set by the fold.
    """

    __slots__ = (
        *("_gate", "_late", "_limits", "_made", "_times_ms", "_topics", "_ways"),
        *("at_ms", "calls", "input_key"),
    )

    def __new__(cls, *_args: object, **_kwargs: object) -> Out:
        """Make one. With the engine it has a class of its own, for which Python's need not pay."""
        return super().__new__(_EngineOut if cls is Out and engine.compiled is not None else cls)

    def __init__(self, topics: Iterable[Topic[Any, Any]], limits: Mapping[str, int], gate: Gate = OPEN) -> None:
        """Begin with nothing staged; `limits`: topic name → max.message.bytes; `DEFAULT_LIMIT_BYTES` for those not
        named. `gate`: who may send."""
        self._gate = gate
        self._topics = tuple(topics)
        self.learn_limits(limits)
        self._made: list[Output] = []
        self._times_ms: list[int] = []  # of each of these, unless it has a time of its own
        self._late: list[str] = []  # for each late record the name of its window or join
        self.input_key: bytes | None = None
        self.at_ms = NO_TIMESTAMP
        self.calls: Calling = _NO_CALLS

    def learn_limits(self, limits: Mapping[str, int]) -> None:
        """Use these limits for what is sent from now on."""
        self._limits = limits
        self._ways = {
            topic: (
                # As in `fold.py`: a call written in C, and the look for NUL below, take less time than `utf8.encode`.
                cast("Callable[[Any], bytes]", str.encode if topic.key is utf8 else topic.key.encode),
                topic.key is utf8,
                topic.value,
                limits.get(topic.name, DEFAULT_LIMIT_BYTES),
                # A key may be that of its record by chance, and the record's producer may hash differently.
                not isinstance(topic, InternalTopic),
            )
            for topic in self._topics
        }

    @property
    def staged(self) -> Sequence[Output]:
        """Outputs so far, in the order sent."""
        return self._made

    def send(
        self,
        topic: Topic[K, V],
        *,
        key: K,
        value: V,
        partition: int | None = None,
        headers: Sequence[tuple[str, bytes | None]] | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        """Encode an output at once, to be sent with the batch. Later changes to `value` have no effect.

        Args:
            topic: one of the app's outputs.
            partition: by default the partition of the state, for a null key and for the key of the input record or
                timer. For other keys, in internal topics, and if the topics have different numbers of partitions,
                Kafka's hash of the key decides.
            headers: (name, bytes or None) pairs; None: no headers.
            timestamp_ms: milliseconds since the epoch; None: that of the input record, or `Timer.at_ms`; -1: the time
                of writing.

        Raises:
            UsageError: no handler runs, or another thread's.
            RecordError: the topic is not an output of the app, or the record cannot be encoded or is
                larger than the topic accepts.
        """
        if self._gate.owner != get_ident():
            refuse_write(self._gate, f"an output to {topic.name} was sent")
        is_plain = not headers and partition is None and timestamp_ms is None
        way = self._ways.get(topic)
        if way is None:
            raise _undeclared(topic, self._ways)
        encode_key, is_text_key, value_codec, limit_bytes, may_stay = way
        side, given, codec = "key", cast("Any", key), topic.key
        try:
            key_bytes = _null(codec) if key is None else encode_key(key)
            if is_text_key and key_bytes is not None and 0 in key_bytes:
                codec.encode(key)  # it refuses NUL
            if type(key_bytes) is not bytes and key_bytes is not None:
                key_bytes = _copied(key_bytes)
            side, given, codec = "value", value, value_codec
            value_bytes = _null(value_codec) if value is None else value_codec.encode(value)
            if type(value_bytes) is not bytes and value_bytes is not None:
                value_bytes = _copied(value_bytes)
        except BaseException as error:
            if of_a_signal(error) or isinstance(error, RegistryUnavailable):
                raise
            raise _not_encoded(topic, side, codec, given, error) from error
        # `size_upper_bound`, spelled out: a call less on the path of every output.
        size_bytes = _RECORD_OVERHEAD_BYTES + len(key_bytes or b"") + len(value_bytes or b"")
        checked: tuple[tuple[str, bytes | None], ...] = ()
        at_ms = self.at_ms
        if not is_plain:
            checked = checked_headers(f"output to {topic.name}", headers or (), RecordError)
            if type(timestamp_ms) is int and timestamp_ms == NO_TIMESTAMP:
                timestamp_ms, at_ms = None, NO_TIMESTAMP
            _check_number(topic, "partition", partition, PARTITION_MAX)
            _check_number(topic, "timestamp_ms", timestamp_ms, TIMESTAMP_MS_MAX)
            size_bytes += headers_upper_bound(checked)
        if size_bytes > limit_bytes:
            raise _too_large(topic.name, size_bytes, limit_bytes)
        output = Output(
            topic.name,
            key_bytes,
            value_bytes,
            partition,
            may_stay and partition is None and key_bytes == self.input_key and key_bytes is not None,
            timestamp_ms,
            checked,
        )
        self._add(output, at_ms)

    def _add(self, output: Output, at_ms: int) -> None:
        self._made.append(output)
        self._times_ms.append(at_ms)

    def call(self, call: AsyncCall[K, Q, Any], key: K, request: Q) -> str:
        """Request a call, see `App.call`. Returns its id.

        Raises:
            UsageError: no handler runs, or another thread's.
            RecordError: the app does not declare the call, or key or request cannot be encoded.
        """
        if self._gate.owner != get_ident():
            refuse_write(self._gate, "a call was requested")
        return self.calls.request(call, key, request, self.at_ms)

    def cancel(self, call_id: str) -> bool:
        """Cancel the call with this id: its answer is not handled. It may have been made already. Returns whether it
        was pending.

        Raises:
            UsageError: no handler runs, or another thread's.
        """
        if self._gate.owner != get_ident():
            refuse_write(self._gate, "a call was cancelled")
        return self.calls.cancel(call_id)

    def note_late(self, name: str) -> None:
        """Count a record that came too late for this window or join."""
        self._late.append(name)

    def mark(self) -> tuple[int, int]:
        """Return how much is staged, for `cut`."""
        return len(self.staged), len(self._late)

    def cut(self, mark: tuple[int, int] = (0, 0)) -> None:
        """Drop what was staged after this mark."""
        count, late_count = mark
        del self._late[late_count:]
        del self._made[count:], self._times_ms[count:]

    def hashing(self) -> Steps[dict[str, int]]:
        """Hash what is staged, as `record.hashing`."""
        return (yield from hashing(self._made))

    def take_late(self) -> dict[str, int]:
        """Return how many records came too late, by window or join, and begin again with none."""
        late, self._late = self._late, []
        return dict(Counter(late))

    def take(self) -> Sequence[Output]:
        """Return what was staged, each output with its time, and begin again with nothing.

        The time of the record is no part of the fingerprint, which has what the handler gave.
        """
        made, times_ms = self._made, self._times_ms
        self._made, self._times_ms = [], []
        for output, at_ms in zip(made, times_ms, strict=True):
            if output.timestamp_ms is None and at_ms >= 0:
                output.timestamp_ms = at_ms
        return made

    def carry(self, since: int, context: Headers) -> None:
        """Let what was staged from `since` on carry this trace context, unless it has one of its own, or no room."""
        staged: Any = self.staged
        for place in range(since, len(staged)):
            output = staged[place]
            size_bytes = size_upper_bound(output.key, output.value) + headers_upper_bound((*output.headers, *context))
            has_room = size_bytes <= self._limits.get(output.topic, DEFAULT_LIMIT_BYTES)
            if has_room and not context_of(output.headers):
                staged[place] = Carried.of(output, context)


class _EngineOut(Out):
    """Lets the engine send what has a topic, a key and a value and nothing else, and hold all that is staged.

    Attributes:
        columns: what is staged; they also know time and key of the record.
        send: as `Out.send`, without a call of Python.
    """

    __slots__ = ("columns", "send")

    def __init__(self, topics: Iterable[Topic[Any, Any]], limits: Mapping[str, int], gate: Gate = OPEN) -> None:
        """Begin as `Out`."""
        if engine.compiled is None:
            raise AssertionError("there is no engine")
        self.columns: engine.Outputs = engine.compiled.Out(
            Output, packed, gate, self._send_by_python, _RECORD_OVERHEAD_BYTES
        )
        self.send = self.columns.send  # type: ignore[method-assign]  # it calls that one for anything unusual
        super().__init__(topics, limits, gate)

    @property
    def at_ms(self) -> int:
        return self.columns.at_ms

    @at_ms.setter
    def at_ms(self, at_ms: int) -> None:
        self.columns.at_ms = at_ms

    @property
    def input_key(self) -> bytes | None:
        return self.columns.input_key

    @input_key.setter
    def input_key(self, key: bytes | None) -> None:
        self.columns.input_key = key

    @property
    def staged(self) -> Sequence[Output]:
        return cast("Sequence[Output]", self.columns)

    def learn_limits(self, limits: Mapping[str, int]) -> None:
        super().learn_limits(limits)
        self.columns.learn(
            [
                (
                    *(topic, topic.name, None if is_text else encode_key),
                    *((plain, True) if (plain := unchecked(value.encode)) is not None else (value.encode, False)),
                    *(limit_bytes, may_stay),
                )
                for topic, (encode_key, is_text, value, limit_bytes, may_stay) in self._ways.items()
                # Codecs of a registry stay in Python, because they may ask it.
                if topic.key.schemas is None and value.schemas is None
            ]
        )

    def _send_by_python(self, error: BaseException | None, /, *args: Any, **given: Any) -> None:
        """Send what the engine does not. `error`: what it met."""
        if error is not None and of_a_signal(error):
            raise error  # it comes once; anything else is met again, and named
        Out.send(self, *args, **given)

    def _add(self, output: Output, at_ms: int) -> None:
        self.columns.append(output, at_ms)

    def cut(self, mark: tuple[int, int] = (0, 0)) -> None:
        super().cut(mark)
        self.columns.cut(mark[0])

    def hashing(self) -> Steps[dict[str, int]]:
        while not self.columns.hash(PIECE_BYTES):
            yield
        return self.columns.hashes()

    def take(self) -> Sequence[Output]:
        return self.columns.take()


def limits_of_a_replay(topics: Iterable[Topic[Any, Any]]) -> dict[str, int]:
    """Return limits without a limit: what was committed was accepted, whatever the topics take today."""
    return {topic.name: sys.maxsize for topic in topics}


def size_upper_bound(key: bytes | None, value: bytes | None) -> int:
    """Return the bytes of a batch with this record alone, without headers: what max.message.bytes limits."""
    return _RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"")


def headers_upper_bound(headers: Sequence[tuple[str, bytes | None]]) -> int:
    return sum(_HEADER_OVERHEAD_BYTES + len(name.encode()) + len(data or b"") for name, data in headers)


def _null(codec: Codec[Any]) -> bytes | None:
    """Return a null, or raise TypeError: the codec has none."""
    if not codec.nullable:
        raise TypeError
    return None


def _copied(given: Any) -> bytes:
    """Return the bytes of a bytearray, as a user's codec may give one and change it later, or raise TypeError."""
    return bytes(memoryview(given))


def _not_encoded(
    topic: Topic[Any, Any], side: str, codec: Codec[Any], given: object, error: BaseException
) -> RecordError:
    why, hint = unencoded(side, codec, given, error)
    return RecordError(f"output to {topic.name}: {why}", hint=hint, topic=topic.name, exception=type(error).__name__)


def _check_number(topic: Topic[Any, Any], name: str, value: int | None, most: int) -> None:
    if value is not None and (type(value) is not int or not 0 <= value <= most):
        raise RecordError(
            f"output to {topic.name}: {name}={value!r} is not an integer from 0 to {most}", topic=topic.name
        )


def _undeclared(topic: Any, known: Mapping[Topic[Any, Any], object]) -> RecordError:
    names = [one.name for one in known]
    given = topic.name if isinstance(topic, Topic) else repr(topic)
    if topic in names:
        hint = f"{given} is a name: pass the Topic object that the app was declared with"
    elif given in names:
        hint = "another Topic object has this name: declare a topic once and import it"
    else:
        near = difflib.get_close_matches(given, names, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        hint += f"outputs: {', '.join(names) or 'none'}; to add it, use App(outputs=[…])"
    return RecordError(f"output to {given}, which is not one of the app's outputs", hint=hint, topic=given)


def _too_large(topic: str, size_bytes: int, limit_bytes: int) -> RecordError:
    raised = f"max.message.bytes={size_bytes + ROOM_BYTES}"
    return RecordError(
        f"output to {topic} has {size_bytes:,} bytes, but the topic accepts at most {limit_bytes:,}",
        hint=f"send less, or raise max.message.bytes of {topic}: `{alter(topic, raised)}`; then `snapreplay retry`",
        topic=topic,
        size_bytes=size_bytes,
        limit_bytes=limit_bytes,
    )


_PAIRS = 'pass a list of pairs of a text and bytes: `headers=[("trace", b"7")]`; of a dict, `list(headers.items())`'


def checked_headers(where: str, given: object, refusal: type[SnapreplayError]) -> tuple[tuple[str, bytes | None], ...]:
    """Return them as a tuple of pairs. `where`: what a message begins with.

    Raises:
        `refusal`: they are no pairs of str and bytes; None for the bytes is a null value.
    """
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise refusal(f"{where}: headers={given!r} is not a list of pairs", hint=_PAIRS)
    pairs = tuple(given)
    for each in pairs:
        is_pair = isinstance(each, tuple | list) and len(each) == 2
        name, data = each if is_pair else (None, None)
        if type(name) is not str or type(data) not in (bytes, NoneType):
            raise refusal(f"{where}: header {each!r} is not a (str, bytes) pair", hint=_PAIRS)
        try:
            name.encode()
        except UnicodeEncodeError:
            raise refusal(
                f"{where}: the name of header {each!r} is not text: UTF-8 cannot hold it",
                hint="pass a name without lone surrogates",
            ) from None
    return tuple((name, data) for name, data in pairs)
