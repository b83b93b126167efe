"""JSON lines for `feed` and from `tail`: what cannot be fed is named by its line, and nothing is fed then."""

import json as stdlib_json
from typing import Any

import msgspec
import pytest

from snapreplay import App, MapState, Topic, i64, json, msgpack, nullable, raw
from snapreplay.api.cli.json_records import Shower, document_of, headers_of, records_of
from snapreplay.app.record import RawRecord
from snapreplay.errors import UsageError


class Payment(msgspec.Struct):
    amount: int


payments = Topic("payments", value=json(Payment))
LIMIT = 1000


def fed(*lines: str | bytes, topic=payments):
    given = [line.encode() if isinstance(line, str) else line for line in lines]
    return records_of(given, topic, 4, LIMIT)


def test_a_line_has_all_that_a_record_has():
    """Key, value, time, headers and partition; empty lines are passed over."""
    (record,) = fed(
        "\n", '{"key": "ada", "value": {"amount": 5}, "timestamp_ms": 7, "headers": {"h": "1"}, "partition": 3}\n'
    )
    assert (record.key, record.value) == (b"ada", b'{"amount":5}')
    assert (record.timestamp_ms, record.partition, record.headers) == (7, 3, (("h", b"1"),))


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("nonsense", "JSON is malformed"),
        (b"\xff\n", "malformed"),
        ('{"key": "a"}', "missing required field `value`"),
        ('{"key": "a", "value": {"amount": 1}, "vlue": 1}', "unknown field `vlue`"),
        ('{"value": {"amount": 1}}', "key is null or missing, but utf8 takes no null"),
        ('{"key": 5, "value": {"amount": 1}}', "key 5 is int, which utf8 does not encode"),
        ('{"key": "a", "value": {"amount": "x"}}', r"cannot be read as json\(Payment\).*amount"),
        ('{"key": "a", "value": {"amount": 1}, "partition": 4}', "partition 4 does not exist.*0 to 3"),
        ('{"key": "a", "value": {"amount": 1}, "timestamp_ms": -2}', "before 1970"),
        ('{"key": "a", "value": {"amount": 1}, "timestamp_ms": 9223372036854775808}', "64 bits"),
        ('{"key": "a", "value": {"amount": 1}, "headers": {"h": 5}}', "header 'h' 5 is neither"),
        (stdlib_json.dumps({"key": "x" * LIMIT, "value": {"amount": 1}}), "max.message.bytes=1000"),
    ],
)
def test_a_bad_line_is_named_by_its_number(line, why):
    """With the reason; the good line before it is not returned, either. A line as the hint shows it is taken."""
    with pytest.raises(UsageError, match=rf"(?s)1 line cannot be fed to payments.*line 2: .*{why}") as refused:
        fed('{"key": "a", "value": {"amount": 1}}', line)
    example = refused.value.hint.removeprefix("each line is a JSON object such as ")
    assert len(fed(example)) == 1


def test_only_the_first_bad_lines_are_listed():
    """A wrong file has as many as it has lines."""
    with pytest.raises(UsageError, match=r"(?s)25 lines cannot be fed.*line 10: .*and 15 more") as refused:
        fed(*["x"] * 25)
    assert "line 11" not in refused.value.message


@pytest.mark.parametrize(
    ("codec", "data", "document"),
    [
        (raw, b"text", "text"),
        (raw, b"\xff\x00", {"base64": "/wA="}),
        (nullable(raw), None, None),
        (i64, b"\x00" * 7 + b"\x05", 5),
        (json(Payment), b'{"amount":5}', {"amount": 5}),
        (msgpack(Payment), msgspec.msgpack.encode(Payment(5)), {"amount": 5}),
        (msgpack(), msgspec.msgpack.encode({1: b"\xff"}), {"1": {"base64": "/w=="}}),
    ],
)
def test_what_tail_prints_feed_takes(codec, data, document):
    """And it is the same bytes again, except for keys of dicts that are no text."""
    assert document_of(codec, data) == document
    if document != {"1": {"base64": "/w=="}}:
        topic = Topic("t", value=codec)
        (record,) = fed(stdlib_json.dumps({"key": "k", "value": document}), topic=topic)
        assert record.value == data


def test_headers_that_occur_twice_are_pairs():
    """An object would lose one of them."""
    assert headers_of([("a", b"1"), ("b", b"2")]) == {"a": "1", "b": "2"}
    pairs = headers_of([("a", b"1"), ("a", b"2")])
    assert pairs == [("a", "1"), ("a", "2")]
    line = stdlib_json.dumps({"key": "k", "value": {"amount": 1}, "headers": pairs})
    assert fed(line)[0].headers == (("a", b"1"), ("a", b"2"))


def test_a_line_for_people_is_one_line_and_changes_no_terminal():
    """Anything in a key or a value."""
    record = RawRecord(payments.name, 0, 7, 1, b"\x1b[2Jada", b"a\nb\x07\xc2\x9b")
    app: App[Any] = App("a", inputs=[Topic("payments")], state=lambda: MapState(str, int))
    line = Shower(app).line(record)
    assert r"\x1b[2Jada" in line
    assert line.isprintable()
