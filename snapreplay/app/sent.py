"""The outputs of an app to a topic, decoded. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, TypeVar

import msgspec

from snapreplay.app.app import App
from snapreplay.app.codecs import Codec
from snapreplay.app.made_record import check_topic
from snapreplay.app.record import Headers, Output
from snapreplay.app.topic import Topic
from snapreplay.errors import UsageError

K = TypeVar("K")
V = TypeVar("V")


class Sent(msgspec.Struct, Generic[K, V], frozen=True):
    """A decoded output; `partition` and `timestamp_ms` are those given to `out.send`."""

    key: K
    value: V
    headers: Headers
    partition: int | None
    timestamp_ms: int | None


def sent_to(topic: Topic[K, V], app: App[Any], outputs: Iterable[Output]) -> list[Sent[K, V]]:
    """Return the outputs to this topic, in order.

    Raises:
        UsageError: the topic is not an output of the app. With an empty list, a test of the wrong topic could pass.
    """
    check_topic(topic)
    if topic.name not in {each.name for each in app.outputs}:
        raise UsageError(f"{app.app_id}: {topic.name} is not an output")
    return [
        Sent(
            _decoded(topic.key, output.key),
            _decoded(topic.value, output.value),
            output.headers,
            output.partition,
            output.timestamp_ms,
        )
        for output in outputs
        if output.topic == topic.name
    ]


def _decoded(codec: Codec[V], data: bytes | None) -> Any:
    return None if data is None else codec.decode(data)
