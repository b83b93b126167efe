"""Errors of our records name topic, partition and offset."""

import pytest

from snapreplay.errors import DamagedError, UnknownFormatError
from snapreplay.service.ports import TopicPartition
from snapreplay.snapshots.format.envelope import encode, headers_of
from snapreplay.snapshots.format.records import Increment, Manifest
from snapreplay.snapshots.log.reading import decode_as, is_ours
from tests.support.entries import increment
from tests.support.tampering import flip, of_version

LOG = TopicPartition("ledger-increments", 3)
WHERE = "ledger-increments-3 offset 77"
VALUE = encode(increment(5))


def test_an_intact_record_is_decoded():
    """As what was asked for, or as anything."""
    assert decode_as(Increment, VALUE, LOG, 77) == increment(5)
    assert decode_as(object, VALUE, LOG, 77) == increment(5)


@pytest.mark.parametrize(
    ("value", "kind", "error"),
    [
        (flip(VALUE), Increment, DamagedError),
        (b"", Increment, DamagedError),
        (VALUE, Manifest, DamagedError),
        (of_version(2)(VALUE), Increment, UnknownFormatError),
    ],
)
def test_the_place_is_in_message_and_facts(value, kind, error):
    """Damaged, empty, of another kind, of a newer version."""
    with pytest.raises(error) as raised:
        decode_as(kind, value, LOG, 77)
    assert WHERE in raised.value.message
    assert raised.value.facts == {"topic": "ledger-increments", "partition": 3, "offset": 77}


def test_a_damaged_record_is_not_a_foreign_one():
    """The header still says what it was when its first bytes are lost."""
    lost = b"\0\0" + VALUE[2:]
    assert is_ours(VALUE, ())
    assert is_ours(lost, headers_of(increment(5)))
    assert not is_ours(lost, ())
    assert not is_ours(b"hello", (("traceparent", b"x"),))
