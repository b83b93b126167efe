"""The border between a partition's state and the engine."""

import msgspec

from snapreplay.state.contract import ShardSlice


def test_a_slice_is_a_short_array_on_the_wire() -> None:
    """Index, two sums, entries: what docs/FORMAT.md says of a chunk."""
    part = ShardSlice(7, 1, 2**64 - 1, {b"k": b"v"})
    encoded = msgspec.msgpack.encode(part)
    assert encoded == b"\x94\x07\x01\xcf" + b"\xff" * 8 + b"\x81\xc4\x01k\xc4\x01v"
    assert msgspec.msgpack.decode(encoded, type=ShardSlice) == part
