"""The border between a partition's state and the engine."""

import msgspec
import pytest

from snapreplay.state.contract import ShardSlice, largest_entry_bytes


def test_a_slice_is_a_short_array_on_the_wire() -> None:
    """Index, two sums, entries: what docs/FORMAT.md says of a chunk."""
    part = ShardSlice(7, 1, 2**64 - 1, {b"k": b"v"})
    encoded = msgspec.msgpack.encode(part)
    assert encoded == b"\x94\x07\x01\xcf" + b"\xff" * 8 + b"\x81\xc4\x01k\xc4\x01v"
    assert msgspec.msgpack.decode(encoded, type=ShardSlice) == part


@pytest.mark.parametrize(
    ("entries", "largest"), [({}, 0), ({b"ab": b"cde", b"f": b"g"}, 5), ({b"abc": None, b"d": b"e"}, 3)]
)
def test_the_largest_entry_is_key_and_value(entries, largest):
    """A tombstone has only its key."""
    assert largest_entry_bytes(entries) == largest
