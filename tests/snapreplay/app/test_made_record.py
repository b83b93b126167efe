"""Records made by hand: what the topic's codecs do not encode is named."""

import pytest

from snapreplay import Topic, i64, json, utf8
from snapreplay.app.made_record import UNSET, UNSET_MS, record, record_raw
from snapreplay.errors import UsageError

payments = Topic("payments", key=utf8, value=json(int))


def test_a_record_is_encoded_and_has_no_place_yet():
    """The harness gives partition and offset, and a time if there is none."""
    made = record(payments, key="ada", value=5, headers=[("h", b"1")])
    assert (made.key, made.value, made.headers) == (b"ada", b"5", (("h", b"1"),))
    assert (made.partition, made.offset, made.timestamp) == (UNSET, UNSET, UNSET_MS)
    assert record(payments, timestamp_ms=-1).timestamp == -1  # a record without one
    assert record(payments, timestamp_ms=7).timestamp == 7


@pytest.mark.parametrize(
    ("topic", "given", "said"),
    [
        (payments, {"key": 5}, "payments: key 5 is int, which utf8 does not encode"),
        (Topic("n", key=i64), {"key": "5"}, "n: key '5' is str, which i64 does not encode"),
        (payments, {"key": "k", "value": object()}, "payments: value <object .* json"),
        *((payments, {"timestamp_ms": at}, f"payments: timestamp_ms={at} is not a time") for at in (1.5, -2, 1 << 63)),
    ],
)
def test_a_wrong_type_is_named_with_its_topic(topic, given, said):
    """Key or value, the type, the codec."""
    with pytest.raises(UsageError, match=said):
        record(topic, **given)


def test_raw_bytes_need_not_decode_but_must_be_bytes():
    """What no codec encodes reaches the handler's policy; a text is a mistake of the test."""
    assert record_raw(payments, None, b"\xff").value == b"\xff"
    with pytest.raises(UsageError, match="payments: key 'k' is str, not bytes"):
        record_raw(payments, "k", b"")  # type: ignore[arg-type] # what is shown
