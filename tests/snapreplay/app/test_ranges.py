"""Ranges travel in increments as arrays."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh64_intdigest

from snapreplay.app.ranges import Anchor, InputRange, InputRanges, SkippedRange, anchor_of
from snapreplay.app.record import RawRecord


def test_field_order_is_the_wire_order():
    """Fields are written by position: reordering them would break every log there is."""
    encode = msgspec.msgpack.encode
    assert encode(InputRange("a", 1, 5, 3)) == encode(["a", 1, 5, 3])
    assert encode(SkippedRange("a", 1, 2)) == encode(["a", 1, 2])
    assert encode(Anchor(7, 1000, 42)) == encode([7, 1000, 42])


def at(topic, offset):
    return RawRecord(topic, 0, offset, offset * 10, b"k", b"v%d" % offset)


def test_neighbouring_runs_of_one_input_are_one_range():
    """How a batch was cut into calls is not visible; a change of input is."""
    coverage = InputRanges({"a": 0, "b": 5})
    for topic, offset, count in [("a", 1, 2), ("a", 2, 1), ("b", 7, 1), ("a", 4, 2)]:
        coverage.applied(at(topic, offset), count)
    assert coverage.ranges == [InputRange("a", 0, 3, 3), InputRange("b", 5, 8, 1), InputRange("a", 3, 5, 2)]


def test_skipped_neighbours_are_one_range_also_over_gaps():
    """A flood of dead letters does not make the increment grow; what was applied ends a range."""
    coverage = InputRanges({"a": 0, "b": 0})
    coverage.skip(at("a", 0))
    coverage.skip(at("b", 0))
    coverage.skip(at("a", 3))
    coverage.applied(at("a", 4), 1)
    coverage.skip(at("a", 5))
    assert sorted((s.topic, s.start_offset, s.end_offset) for s in coverage.skipped) == [
        ("a", 0, 4),
        ("a", 5, 6),
        ("b", 0, 1),
    ]


def test_a_skipped_record_is_an_anchor():
    """It was read from this input: another record in its place is noticed."""
    coverage = InputRanges({"a": 0, "b": 0})
    coverage.applied(at("a", 4), 1)
    coverage.skip(at("a", 5))
    coverage.skip(at("b", 0))
    assert coverage.anchors == {"a": anchor_of(at("a", 5)), "b": anchor_of(at("b", 0))}


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 3), st.booleans()), max_size=30))
def test_ranges_are_adjacent_and_skips_are_exact(steps):
    """For any sequence: ranges of an input join end to start, and exactly the skipped records lie
    in skips."""
    coverage = InputRanges({"a": 100, "b": 200})
    offset, applied, skipped = {"a": 99, "b": 199}, set(), set()
    for topic, gap, is_skipped in steps:
        offset[topic] += gap
        if is_skipped:
            coverage.skip(at(topic, offset[topic]))
            skipped.add((topic, offset[topic]))
        else:
            coverage.applied(at(topic, offset[topic]), 1)
            applied.add((topic, offset[topic]))
    position = {"a": 100, "b": 200}
    for one in coverage.ranges:
        assert one.start_offset == position[one.topic] < one.end_offset
        position[one.topic] = one.end_offset
    assert position == coverage.positions
    assert sum(one.record_count for one in coverage.ranges) == len(steps)
    assert coverage.record_count == len(applied)
    inside = {(s.topic, o) for s in coverage.skipped for o in range(s.start_offset, s.end_offset)}
    assert skipped <= inside
    assert not applied & inside


def raw(key, value, offset=5, timestamp=1000):
    return RawRecord("payments", 0, offset, timestamp, key, value)


def test_hash_covers_the_framed_bytes():
    """The bytes hashed are those that ranges.Anchor documents."""
    anchor = anchor_of(raw(b"k", None))
    assert anchor.xxh64 == xxh64_intdigest(b"\x00\x00\x00\x01k" + b"\xff\xff\xff\xff")
    assert (anchor.offset, anchor.timestamp_ms) == (5, 1000)
