"""Records in another format than declared: the error names what it looks like, and what to declare."""

import struct

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapreplay import App, MapState, Topic, i32, i64, json, msgpack, raw, utf8
from snapreplay.app.foreign import seen_in
from snapreplay.errors import RecordError
from snapreplay.testing import ErrorPolicy, Harness


class Pay(msgspec.Struct):
    amount: int


def harness_of(key=utf8, value=None, policy=ErrorPolicy.FAIL):
    """An app that passes every record on as it is."""
    value = json() if value is None else value
    read, sent = Topic("in", key=key, value=value), Topic("out", key=key, value=value)
    app = App("foreign", inputs=[read], outputs=[sent], state=lambda: MapState(str, int))
    app.handler(read)(lambda record, state, out: out.send(sent, key=record.key, value=record.value))
    return read, sent, Harness(app, policy=policy)


PREFIX = b"\0\0\0\0\x07"
LONG, INT = struct.Struct(">q").pack, struct.Struct(">i").pack
REGISTRY = "the prefix of a schema registry (id 7)"
BAD_VALUES = [
    (json(), PREFIX + b'{"amount":5}', f"{REGISTRY} before JSON", "value=registry.json(…)"),
    (json(Pay), PREFIX + b'{"amount":5}', f"{REGISTRY} before JSON", "value=registry.json(…)"),
    (json(), PREFIX + b"\x02\x0aada\x00", f"{REGISTRY} before Avro", "value=registry.avro(…)"),
    (msgpack(), PREFIX + b"\x81\xa6amount\x05", REGISTRY, "registry.avro(…)"),
    (utf8, PREFIX + b"ada", f"{REGISTRY} before 'ada', or the number 123823201", "value=i64"),
    (utf8, PREFIX + b"ada lovelace", f"{REGISTRY} before 'ada lovelace'", "docs/records"),
    (json(), b'\xef\xbb\xbf{"amount":5}', "text with a byte order mark", "UTF-8 without it"),
    (json(), b'{"amount": NaN}', "JSON with NaN", "allow_nan=False"),
    (json(), b"NaN", "JSON with NaN", "allow_nan=False"),
    (json(), b"[1,-Infinity]", "JSON with -Infinity", "allow_nan=False"),
    (json(), b"null", "the JSON null, which is not a null", "no value"),
    (json(), b"", "an empty text, which is not a null", "null for a deletion"),
    (json(), b"\x02\x0aada\xfe\x00", "binary data, such as Avro", "value=raw"),
    (json(), b"\x81\xa6amount\x05", "binary data, such as Avro, Protobuf or MessagePack", "msgpack()"),
    (json(), b"no json", "text, 'no json'", "value=utf8"),
    (json(), LONG(300), "the number 300 as LongSerializer", "value=i64"),
    (json(), INT(300), "the number 300 as IntegerSerializer", "value=i32"),
    (msgpack(), b'{"amount":5}', "JSON", "value=json()"),
    (i64, b"12", "text, '12'", "value=utf8"),
    (i64, INT(5), "the number 5 as IntegerSerializer", "value=i32"),
    (i32, LONG(5), "the number 5 as LongSerializer", "value=i64"),
    (i64, b'{"amount":5}', "JSON", "value=json()"),
]


@pytest.mark.parametrize(("codec", "data", "what", "declare"), BAD_VALUES)
def test_a_value_of_another_format_is_named(codec, data, what, declare):
    read, _, harness = harness_of(value=codec)
    with pytest.raises(RecordError) as caught:
        harness.feed_raw(read, b"k", data)
    assert f"looks like {what}" in caught.value.message
    assert declare in caught.value.hint


@pytest.mark.parametrize(
    ("data", "what", "declare"),
    [
        *((LONG(number), f"the number {number} as LongSerializer", "key=i64") for number in (1, 65, 128, 300, -1)),
        *((INT(number), f"the number {number} as IntegerSerializer", "key=i32") for number in (1, 65, 128, 300, -1)),
        (PREFIX + b"order-17", f"{REGISTRY} before 'order-17'", "docs/records.md"),
    ],
)
def test_a_key_of_another_format_is_no_text(data, what, declare):
    """It was taken for text with NULs, and what was declared as the hint says is read."""
    read, sent, harness = harness_of(value=raw)
    with pytest.raises(RecordError) as caught:
        harness.feed_raw(read, data, b"1")
    assert f"looks like {what}" in caught.value.message
    assert declare in caught.value.hint
    if declare != "docs/records.md":
        read, sent, harness = harness_of(key={"key=i64": i64, "key=i32": i32}[declare], value=raw)
        harness.feed_raw(read, data, b"1")
        assert what.startswith(f"the number {harness.outputs(sent)[0].key} ")


@given(st.binary(max_size=40), st.sampled_from(["json(Any)", "nullable(utf8)", "msgpack(Any)", "i64", "i32", "mine"]))
def test_for_any_bytes_the_answer_is_a_sentence_or_none(data, codec):
    found = seen_in("value", codec, data)
    assert found is None or (found.what and found.hint)
    assert codec != "mine" or found is None


def test_null_and_bytes_that_hold_a_null_are_told_apart():
    """A tombstone is passed on as one; the JSON null, which was passed on as a tombstone, is the record's error."""
    read, sent, harness = harness_of(policy=ErrorPolicy.DEAD_LETTER)
    harness.feed_raw(read, b"tombstone", None)
    harness.feed_raw(read, b"null", b"null")
    harness.feed_raw(read, b"inside", b'{"a":null}')
    assert [(each.key, each.value) for each in harness.outputs(sent)] == [("tombstone", None), ("inside", {"a": None})]
    assert [(each.key, each.value) for each in harness.dead_letters] == [(b"null", b"null")]
    assert "forwarding None deletes the key" in harness.errors[0].message


def test_what_is_deep_is_judged_without_a_crash():
    read, _, harness = harness_of()
    with pytest.raises(RecordError, match="cannot be read as json"):
        harness.feed_raw(read, b"k", b"[" * 100_000 + b"]" * 100_000)
