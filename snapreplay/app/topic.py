"""A topic as an app declares it: a name, or a pattern of names, and what its keys and values are. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, Literal, TypedDict, TypeVar, Unpack, cast, get_args, overload

from snapreplay.app.codecs import Codec, json, utf8
from snapreplay.app.names import BROADCAST, INTERNAL, OWN_SUFFIXES, SAVEPOINT, internal_topic, is_internal_topic
from snapreplay.errors import UsageError

K = TypeVar("K")
V = TypeVar("V")
PK = TypeVar("PK")  # of a pattern: in `Topic.matching`, K and V are those of `Topic`, which pyright does not know
PV = TypeVar("PV")

TOPIC_NAME_MAX = 249
"""Characters; longer names do not fit into Kafka's file names (org.apache.kafka.common.internals.Topic)."""

LEGAL_NAME = re.compile(r"[A-Za-z0-9._-]+")

Partitioner = Literal["murmur2", "crc32", "fnv1a"]
"""The hash by which the producers of a topic choose the partition of a key: murmur2 is that of Java's clients and of
librdkafka's `murmur2_random`, crc32 is librdkafka's default `consistent_random`, fnv1a is Sarama's."""


class _Options(TypedDict, total=False):
    """The options of `Topic`, for its overloads."""

    partitioner: Partitioner | None
    ahead_max_ms: int | None


class Topic(Generic[K, V]):
    """An input or output topic: its name, and the codecs of its keys and values.

    `Topic("payments")` has text keys and JSON values. `Topic("payments", key=i64, value=json(Payment))` is a
    `Topic[int, Payment]`. Declare a topic once: inputs, outputs, handlers and `out.send` must name the same object.
    """

    __slots__ = ("ahead_max_ms", "key", "name", "partitioner", "value")

    name: str
    ahead_max_ms: int | None
    key: Codec[K]
    value: Codec[V]
    partitioner: Partitioner | None

    @overload
    def __init__(self: Topic[str, Any], name: str, **options: Unpack[_Options]) -> None: ...
    @overload
    def __init__(self: Topic[K, Any], name: str, *, key: Codec[K], **options: Unpack[_Options]) -> None: ...
    @overload
    def __init__(self: Topic[str, V], name: str, *, value: Codec[V], **options: Unpack[_Options]) -> None: ...
    @overload
    def __init__(self, name: str, *, key: Codec[K], value: Codec[V], **options: Unpack[_Options]) -> None: ...
    def __init__(
        self,
        name: str,
        *,
        key: Any = utf8,
        value: Any = None,
        partitioner: Partitioner | None = None,
        ahead_max_ms: int | None = None,
    ) -> None:
        """Declare a topic.

        Args:
            partitioner: of an input: the hash by which its producers choose the partition of a key. The service checks
                a sample of what arrives, and logs an error that names a key in another partition. None: not checked.
            ahead_max_ms: of an input of an app with timers or entries that expire: a record that is further ahead of
                stream time is refused. Give more than the topic is ever quiet. None: ten years.

        Raises:
            UsageError: Kafka would not accept the name, a codec is not one (`json` instead of `json()`), there is no
                such partitioner, or `ahead_max_ms` is not a number of milliseconds.
        """
        check_topic_name(name)
        self.ahead_max_ms = checked_ahead(name, ahead_max_ms)
        self.name = name
        self.partitioner = _checked_partitioner(name, partitioner)
        self.key = _checked_codec(name, "key", key)
        self.value = _checked_codec(name, "value", json() if value is None else value)

    def put_in_front(self, prefix: str) -> None:
        """Change the name; only before anything runs."""
        self.name = prefix + self.name

    @overload
    @staticmethod
    def matching(pattern: str, *, ahead_max_ms: int | None = None) -> TopicPattern[str, Any]: ...
    @overload
    @staticmethod
    def matching(pattern: str, *, key: Codec[PK], ahead_max_ms: int | None = None) -> TopicPattern[PK, Any]: ...
    @overload
    @staticmethod
    def matching(pattern: str, *, value: Codec[PV], ahead_max_ms: int | None = None) -> TopicPattern[str, PV]: ...
    @overload
    @staticmethod
    def matching(
        pattern: str, *, key: Codec[PK], value: Codec[PV], ahead_max_ms: int | None = None
    ) -> TopicPattern[PK, PV]: ...
    @staticmethod
    def matching(
        pattern: str, *, key: Any = utf8, value: Any = None, ahead_max_ms: int | None = None
    ) -> TopicPattern[Any, Any]:
        """Declare all topics whose whole name matches this regular expression, as inputs with one handler. A topic
        that appears later is added while the app runs, and read from its beginning.

        Raises:
            UsageError: it is no regular expression, or a codec is not one.
        """
        return TopicPattern(pattern, key=key, value=value, ahead_max_ms=ahead_max_ms)

    def __repr__(self) -> str:
        return f"Topic({self.name!r}, key={self.key.name}, value={self.value.name})"


class TopicPattern(Topic[K, V]):
    """The topics whose names match a regular expression; made by `Topic.matching`. `name` is the expression."""

    __slots__ = ("_matches", "_prefix")

    def __init__(self, pattern: str, *, key: Codec[K], value: Any, ahead_max_ms: int | None = None) -> None:
        self.ahead_max_ms = checked_ahead(pattern, ahead_max_ms)
        self._prefix = ""
        self.partitioner = None
        self._compile(pattern)
        self.key = _checked_codec(pattern, "key", key)
        self.value = _checked_codec(pattern, "value", json() if value is None else value)

    def _compile(self, pattern: str) -> None:
        try:
            self._matches = re.compile(pattern).fullmatch
        except (TypeError, re.error) as error:
            raise UsageError(
                f"{pattern!r} is not a regular expression: {error}",
                hint='use the syntax of the module re: `Topic.matching("orders-.*")`',
            ) from error
        self.name = pattern

    def put_in_front(self, prefix: str) -> None:
        self._prefix, self.name = prefix, prefix + self.name

    def matches(self, name: str) -> bool:
        """Say whether the whole name matches. Kafka's own topics, whose names begin with two underscores, never do."""
        is_legal = not name.startswith("__") and LEGAL_NAME.fullmatch(name) and name.startswith(self._prefix)
        return bool(is_legal and self._matches(name.removeprefix(self._prefix)))

    def named(self, name: str) -> Topic[K, V]:
        """Return the topic of this name, as a producer or a test needs it. Raises UsageError: it does not match."""
        if not self.matches(name):
            raise UsageError(f"topic name {name!r} does not match {self.name!r}")
        return Topic(name, key=self.key, value=self.value, ahead_max_ms=self.ahead_max_ms)

    def __repr__(self) -> str:
        return f"Topic.matching({self.name!r}, key={self.key.name}, value={self.value.name})"


class BroadcastTopic(TopicPattern[K, V]):
    """The topic of a broadcast table; made by `App.table`. It matches the inputs that its partitions are, "rates/0",
    "rates/1" and so on, but not its own name."""

    __slots__ = ("topic",)

    topic: Topic[K, V]

    def __init__(self, topic: Topic[K, V]) -> None:
        self.topic, self.name, self.ahead_max_ms = topic, topic.name, topic.ahead_max_ms
        self.key, self.value, self.partitioner = topic.key, topic.value, None

    def put_in_front(self, prefix: str) -> None:
        self.topic.put_in_front(prefix)
        self.name = self.topic.name

    def matches(self, name: str) -> bool:
        topic, _, number = name.partition(BROADCAST)
        return topic == self.name and number.isdecimal()

    def named(self, name: str) -> Topic[K, V]:  # noqa: ARG002 - all partitions are of one topic
        return self.topic

    def __repr__(self) -> str:
        return repr(self.topic)


class InternalTopic(Topic[K, V]):
    """A topic that is output and input of one app; made by `App.topic`."""

    __slots__ = ()

    def __init__(self, app_id: str, name: str, *, key: Any, value: Any) -> None:
        check_topic_name(name)
        whole = internal_topic(app_id, name)
        if not is_internal_topic(app_id, whole):
            raise UsageError(
                f"{app_id}: topic name {name!r} may be confused with an own topic of another app",
                hint=f"choose a name without {INTERNAL.strip('-')!r} that does not end in -{', -'.join(OWN_SUFFIXES)}",
            )
        super().__init__(whole, key=key, value=value)


def checked_ahead(name: str, ahead_max_ms: object) -> int | None:
    if ahead_max_ms is None or (type(ahead_max_ms) is int and ahead_max_ms > 0):
        return ahead_max_ms
    raise UsageError(
        f"topic {name}: ahead_max_ms={ahead_max_ms!r} is not a number of milliseconds from 1 on",
        hint="a day is ahead_max_ms=86_400_000",
    )


def check_topic_name(name: object) -> None:
    """Raise UsageError for a name against Kafka's rules: 1 to 249 of letters, digits, ".", "_", "-"; not "." or
    ".."."""
    problem = None
    if not isinstance(name, str):
        problem = f"is a {type(name).__name__}, not a str"
    elif not LEGAL_NAME.fullmatch(name):
        problem = "is empty" if not name else "has characters that Kafka does not allow"
    elif name in {".", ".."}:
        problem = "is reserved"
    elif len(name) > TOPIC_NAME_MAX:
        problem = f"has {len(name)} characters"
    if problem:
        raise UsageError(
            f"topic name {name!r} {problem}",
            hint=f'use 1 to {TOPIC_NAME_MAX} letters, digits, ".", "_" or "-", but not "." or ".." alone',
        )


def declaration(inputs: Iterable[Topic[Any, Any]], name: str) -> Topic[Any, Any] | None:
    """Return the input of this name, or the first pattern that it matches; None: it is no input."""
    for topic in inputs:
        if topic.matches(name) if isinstance(topic, TopicPattern) else topic.name == name:
            return topic
    return None


def all_of(app_id: str, side: str, topics: Sequence[Topic[Any, Any]]) -> tuple[Topic[Any, Any], ...]:
    """Return what was given as the inputs or outputs of an app, or raise UsageError: it is one topic."""
    if isinstance(topics, (Topic, str)):
        raise UsageError(f"{app_id}: {side}={topics!r} is not a list of topics", hint=f"use {side}=[Topic(…)]")
    return tuple(topics)


def check_topics(app_id: str, inputs: Sequence[Topic[Any, Any]], outputs: Sequence[Topic[Any, Any]]) -> None:
    """Raise UsageError: the app has no input, a topic twice, one of its own topics, or a pattern that matches too
    much."""
    for topic in (*inputs, *outputs):
        if not isinstance(topic, Topic):
            raise UsageError(f"{app_id}: {topic!r} is not a Topic", hint=f"use Topic({topic!r})")
    if not inputs:
        raise UsageError(f"{app_id}: the app has no inputs", hint='name at least one: `inputs=[Topic("…")]`')
    for name, what in _refused(app_id, inputs, outputs):
        raise UsageError(f"{app_id}: topic {name} is {what}")


def _refused(
    app_id: str, inputs: Sequence[Topic[Any, Any]], outputs: Sequence[Topic[Any, Any]]
) -> Iterator[tuple[str, str]]:
    own = [
        f"{app_id}-{suffix}" for suffix in (*OWN_SUFFIXES, *(f"{SAVEPOINT[1:]}x-{each}" for each in OWN_SUFFIXES[:2]))
    ]
    patterns = [topic for topic in inputs if isinstance(topic, TopicPattern)]
    for side, topics in (("inputs", inputs), ("outputs", outputs)):
        counts = Counter(topic.name for topic in topics)
        yield from ((name, f"named twice in {side}") for name, count in counts.items() if count > 1)
    for topic in (*inputs, *outputs):
        is_internal = is_internal_topic(app_id, topic.name) and not isinstance(topic, InternalTopic)
        if topic.name in own or is_internal or topic.name.startswith(f"{app_id}{SAVEPOINT}"):
            yield topic.name, "one of the app's own topics, which only the service writes"
    for topic in outputs:
        if not isinstance(topic, InternalTopic) and declaration(inputs, topic.name):
            yield topic.name, "both input and output. To send records to the app itself, use `app.topic(…)`"
        if isinstance(topic, TopicPattern):
            yield topic.name, "a pattern, but an output has one name"
        if topic.partitioner not in (None, "murmur2") and topic not in inputs:
            yield topic.name, f"an output, and outputs are partitioned by murmur2, not {topic.partitioner}"
    for pattern in patterns:
        yield from (
            (name, f"one of the app's own topics, and {pattern.name!r} matches it")
            for name in own
            if pattern.matches(name)
        )
        yield from (
            (each.name, f"an input, and {pattern.name!r} matches it")
            for each in inputs
            if each is not pattern and pattern.matches(each.name)
        )


def _checked_partitioner(topic: str, given: object) -> Partitioner | None:
    if given is None or given in get_args(Partitioner):
        return cast("Partitioner | None", given)
    raise UsageError(
        f"topic {topic}: partitioner={given!r} is not one",
        hint="use murmur2 (Java's clients; librdkafka's murmur2 and murmur2_random), crc32 (librdkafka's default"
        " consistent_random, and consistent), or fnv1a (Sarama; librdkafka's fnv1a and fnv1a_random)",
    )


def _checked_codec(topic: str, side: str, codec: object) -> Codec[Any]:
    if isinstance(codec, Codec):
        return codec if codec.schemas is None else codec.schemas.of_topic(codec, topic, side)
    given = getattr(codec, "__name__", repr(codec))
    hint = "use raw, utf8, i64, i32, json(type), msgpack(type), one of them in nullable(…), or one of a SchemaRegistry"
    if callable(codec) and given in {"json", "msgpack"}:
        hint = f"use {side}={given}() or {side}={given}(SomeType)"
    raise UsageError(f"topic {topic}: {side}={given} is not a codec", hint=hint)
