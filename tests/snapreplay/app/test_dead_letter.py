"""A dead letter says everything about the record, and always fits."""

import pytest

from snapreplay.app.dead_letter import PREFIX, dead_letter
from snapreplay.app.out import DEFAULT_LIMIT_BYTES, headers_upper_bound, size_upper_bound
from snapreplay.app.record import RawRecord
from snapreplay.errors import RecordError, RecordId

ERROR = RecordError("payments-3-7: no", record_id=RecordId("payments", 3, 7), exception="KeyError")


def letter(record, limit_bytes=DEFAULT_LIMIT_BYTES, error=ERROR):
    return dead_letter("ledger", "v1", record, error, limit_bytes)


def reasons(output):
    return {
        name.removeprefix(PREFIX): data.decode()
        for name, data in output.headers
        if name.startswith(PREFIX)
    }


def test_the_record_comes_as_it_was_with_the_reasons():
    """Raw bytes and the record's own headers first, then ours."""
    output = letter(RawRecord("payments", 3, 7, 1234, b"\xff", b"\x00", (("h", b"x"),)))
    assert (output.topic, output.key, output.value) == ("ledger-dead-letters", b"\xff", b"\x00")
    assert output.headers[0] == ("h", b"x")
    assert output.same_key
    assert output.timestamp_ms is None
    assert reasons(output) == {
        "topic": "payments",
        "partition": "3",
        "offset": "7",
        "timestamp_ms": "1234",
        "xxh64": "903ecbd49116dcff",
        "exception": "KeyError",
        "message": "payments-3-7: no",
        "app_id": "ledger",
        "app_version": "v1",
    }


def test_nulls_stay_nulls():
    """A tombstone is no empty value; without a key there is none to be the same."""
    output = letter(RawRecord("payments", 3, 7, 0, None, None))
    assert (output.key, output.value, output.same_key) == (None, None, False)


@pytest.mark.parametrize(
    ("key_bytes", "value_bytes", "header_bytes", "dropped"),
    [
        (3, 3, 3, None),
        (3, 9000, 3, "value"),
        (9000, 3, 3, "key,value,headers"),
        (3, 3, 9000, "key,value,headers"),
    ],
)
def test_too_large_letters_say_what_was_dropped(key_bytes, value_bytes, header_bytes, dropped):
    """The reasons always arrive, also those that UTF-8 cannot hold: what is too large goes, and a header names it."""
    record = RawRecord(
        "payments", 3, 7, 0, b"k" * key_bytes, b"v" * value_bytes, (("h", b"x" * header_bytes),)
    )
    error = RecordError("\udc80" + "m" * 100_000, record_id=RecordId("payments", 3, 7))
    output = letter(record, 5000, error)
    size = size_upper_bound(output.key, output.value) + headers_upper_bound(output.headers)
    assert size <= 5000
    assert reasons(output).get("dropped") == dropped
    assert reasons(output)["offset"] == "7"
    assert (output.value is None) is (dropped is not None)


def test_the_limit_is_exact():
    """A letter of just the limit keeps its value, one byte less and it goes."""
    record = RawRecord("payments", 3, 7, 0, b"k", b"v" * 5000)
    whole = letter(record)
    size = size_upper_bound(whole.key, whole.value) + headers_upper_bound(whole.headers)
    assert letter(record, size) == whole
    assert reasons(letter(record, size - 1))["dropped"] == "value"
