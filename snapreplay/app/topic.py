"""A topic as an app declares it: a name, and what its keys and values are. Pure."""

from __future__ import annotations

import re
from typing import Any, Generic, TypeVar, overload

from snapreplay.app.codecs import Codec, json, utf8
from snapreplay.errors import UsageError

K = TypeVar("K")
V = TypeVar("V")

TOPIC_NAME_MAX = 249
"""Characters; longer names do not fit into Kafka's file names (org.apache.kafka.common.internals.Topic)."""

_LEGAL_NAME = re.compile(r"[A-Za-z0-9._-]+")


class Topic(Generic[K, V]):
    """An input or output topic: its name, and a codec each for its keys and its values.

    `Topic("payments")` has text keys and JSON values. `Topic("payments", key=i64, value=json(Payment))` is a
    `Topic[int, Payment]`. Declare a topic once: inputs, outputs, handlers and `out.send` must name the same object.
    """

    __slots__ = ("key", "name", "value")

    name: str
    key: Codec[K]
    value: Codec[V]

    @overload
    def __init__(self: Topic[str, Any], name: str) -> None: ...
    @overload
    def __init__(self: Topic[K, Any], name: str, *, key: Codec[K]) -> None: ...
    @overload
    def __init__(self: Topic[str, V], name: str, *, value: Codec[V]) -> None: ...
    @overload
    def __init__(self, name: str, *, key: Codec[K], value: Codec[V]) -> None: ...
    def __init__(self, name: str, *, key: Any = utf8, value: Any = None) -> None:
        """Declare a topic, or raise UsageError: Kafka would not accept the name, or a codec is not one (`json`
        instead of `json()`)."""
        check_topic_name(name)
        self.name = name
        self.key = _checked_codec(name, "key", key)
        self.value = _checked_codec(name, "value", json() if value is None else value)

    def __repr__(self) -> str:
        return f"Topic({self.name!r}, key={self.key.name}, value={self.value.name})"


def check_topic_name(name: object) -> None:
    """Raise UsageError for a name against Kafka's rules: 1 to 249 of letters, digits, ".", "_", "-"; not "." or
    ".."."""
    problem = None
    if not isinstance(name, str):
        problem = f"is a {type(name).__name__}, not a str"
    elif not _LEGAL_NAME.fullmatch(name):
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


def _checked_codec(topic: str, side: str, codec: object) -> Codec[Any]:
    if isinstance(codec, Codec):
        return codec
    given = getattr(codec, "__name__", repr(codec))
    hint = "use raw, utf8, i64, json(type), msgpack(type), or one of them in nullable(…)"
    if callable(codec) and given in {"json", "msgpack"}:
        hint = f"use {side}={given}() or {side}={given}(SomeType)"
    raise UsageError(f"topic {topic}: {side}={given} is not a codec", hint=hint)
