"""Ranges travel in increments as arrays."""

import msgspec

from snapreplay.app.ranges import Anchor, InputRange, SkippedRange


def test_field_order_is_the_wire_order():
    """Fields are written by position: reordering them would break every log there is."""
    encode = msgspec.msgpack.encode
    assert encode(InputRange("a", 1, 5, 3)) == encode(["a", 1, 5, 3])
    assert encode(SkippedRange("a", 1, 2)) == encode(["a", 1, 2])
    assert encode(Anchor(7, 1000, 42)) == encode([7, 1000, 42])
