"""A batch's changes, cut into records and put together again."""

import os
from zlib import crc32

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from snapreplay.errors import DamagedError
from snapreplay.snapshots.format.changes import EntryTooLarge, check_changes, split_changes
from snapreplay.snapshots.format.envelope import RECORD_BYTES_MAX, encode
from snapreplay.snapshots.format.records import ChangesRecord, ChangesRef
from tests.support.entries import read_entry

CHANGES = st.dictionaries(st.binary(min_size=1, max_size=40), st.none() | st.binary(max_size=300), max_size=60)


def joined(ref, values):
    """All changes in the order to apply them, with their stores."""
    return [
        (store, *item)
        for stores in check_changes(ref, values)
        for store, entries in stores.items()
        for item in entries.items()
    ]


@given(st.dictionaries(st.sampled_from(["a", "default", "s" * 64]), CHANGES), st.integers(600, 5000))
@example({}, 600)
@example({"default": dict.fromkeys((b"%02x" % n for n in range(256)), b"")}, 600)
@example({"a": {os.urandom(8): os.urandom(100) for _ in range(200)}, "b": {b"k": None}}, 2000)
def test_split_changes_are_read_back_in_their_order(changes, record_bytes_max) -> None:
    """With any limit, no record is larger, and together they are the changes in their order. What surrounds an
    entry counts; batch and part stand in every record, for a reader of one alone."""
    values, ref = split_changes(7, changes, record_bytes_max)
    assert all(len(value) <= record_bytes_max for value in values)
    assert (ref.record_count, ref.entry_count) == (len(values), sum(map(len, changes.values())))
    flat = [(store, *item) for store, entries in changes.items() for item in entries.items()]
    assert joined(ref, values) == flat
    records = [read_entry(value) for value in values]
    assert [(each.batch, each.part) for each in records] == [(7, n) for n in range(len(values))]


def test_what_fits_is_one_record() -> None:
    """900,000 bytes before compression are the border, to within the framing."""
    value = os.urandom(8_990)
    entries: dict[bytes, bytes | None] = {b"%04d" % n: value for n in range(99)}
    assert len(split_changes(7, {"default": entries})[0]) == 1
    entries |= {b"%04d" % n: os.urandom(9_000) for n in range(99, 300)}
    values, _ = split_changes(7, {"default": entries})
    assert len(values) == 4
    assert all(800_000 < len(v) <= RECORD_BYTES_MAX for v in values[1:3])


def test_an_entry_that_fits_into_no_record_is_refused_by_name() -> None:
    """Key and size are named; nothing is cut in two."""
    with pytest.raises(EntryTooLarge, match=r"b'big'.*900"):
        split_changes(7, {"default": {b"a": b"1", b"big": bytes(RECORD_BYTES_MAX)}})


@pytest.mark.parametrize("fault", ["missing", "repeated", "exchanged", "altered", "foreign"])
def test_other_records_than_the_increment_speaks_of_are_refused_before_any_is_applied(fault) -> None:
    """Count and checksum are compared at the call, before the first changes are handed out."""
    values, ref = split_changes(7, {"s": {b"%d" % n: os.urandom(400) for n in range(5)}}, 1000)
    other, _ = split_changes(7, {"s": {b"%d" % n: os.urandom(400) for n in range(5)}}, 1000)
    wrong = {
        "missing": values[1:],
        "repeated": [*values, values[-1]],
        "exchanged": [values[1], values[0], *values[2:]],
        "altered": [values[0], values[1][:-1] + b"\x00", *values[2:]],
        "foreign": [other[0], *values[1:]],
    }[fault]
    with pytest.raises(DamagedError):
        check_changes(ref, wrong)


def test_a_record_of_another_kind_or_part_is_refused() -> None:
    """A right checksum over wrong records is of no use."""
    value = encode(ChangesRecord(7, 1, {"default": {}}))
    ref = ChangesRef(1, 1, crc32(value))
    with pytest.raises(DamagedError, match="part 0"):
        list(check_changes(ref, [value]))
