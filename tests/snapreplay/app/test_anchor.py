"""An anchor tells records apart, null from empty and key from value."""

from itertools import combinations

from xxhash import xxh64_intdigest

from snapreplay.app.ranges import anchor_of
from snapreplay.app.record import RawRecord


def raw(key, value, offset=5, timestamp=1000):
    return RawRecord("payments", 0, offset, timestamp, key, value)


def test_hash_covers_the_framed_bytes():
    """The bytes hashed are those that ranges.Anchor documents."""
    anchor = anchor_of(raw(b"k", None))
    assert anchor.xxh64 == xxh64_intdigest(b"\x00\x00\x00\x01k" + b"\xff\xff\xff\xff")
    assert (anchor.offset, anchor.timestamp_ms) == (5, 1000)


def test_null_empty_and_moved_bytes_differ():
    """Records that differ in key or value have different anchors."""
    pairs = [(None, None), (b"", None), (None, b""), (b"", b""), (b"a", b"bc"), (b"ab", b"c")]
    anchors = [anchor_of(raw(key, value)) for key, value in pairs]
    assert all(one != other for one, other in combinations(anchors, 2))
