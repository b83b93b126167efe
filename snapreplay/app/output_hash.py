"""Hashes what the handlers sent in a batch, per output topic: a replay must send the same. Pure.

The definition is in docs/FORMAT.md, "Outputs".
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from xxhash import xxh64

from snapreplay.app.record import Output
from snapreplay.state.steps import Steps

PIECE_OUTPUTS = 256
"""Outputs hashed in one step at most: 0.09 µs each with values of 80 bytes."""
PIECE_BYTES = 1 << 20
"""A larger piece makes the next ones smaller: a MiB takes about 0.2 ms. The first piece is a single output."""

_SHORT_ARRAY = 15  # msgpack: the header of an array has one byte up to so many elements, else three

_encoder = msgspec.msgpack.Encoder()


def hashing(outputs: Sequence[Output]) -> Steps[dict[str, int]]:
    """Hash what was sent to each output topic, in order; topics without outputs are left out."""
    topics = [output.topic for output in outputs]
    if not topics or topics.count(topics[0]) == len(topics):  # nearly always: no copy
        one = yield from _hashing(outputs)
        return {topics[0]: one} if topics else {}
    by_topic: dict[str, list[Output]] = {topic: [] for topic in topics}
    for output in outputs:
        by_topic[output.topic].append(output)
    found = {}
    for topic, sent in by_topic.items():
        found[topic] = yield from _hashing(sent)
    return found


def _hashing(outputs: Sequence[Output]) -> Steps[int]:
    """Hash the joined msgpack of the outputs. The headers of the pieces do not count, so the cut does not matter."""
    total, start, size = xxh64(), 0, 1
    while start < len(outputs):
        piece = outputs[start : start + size]
        packed = _encoder.encode(piece)
        total.update(memoryview(packed)[1 if len(piece) <= _SHORT_ARRAY else 3 :])
        start += len(piece)
        size = max(1, min(PIECE_OUTPUTS, 2 * size, len(piece) * PIECE_BYTES // len(packed)))
        yield
    return total.intdigest()
