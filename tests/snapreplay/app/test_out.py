"""Outputs are encoded by value, at once, and refused where Kafka would refuse them."""

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest

from snapreplay import engine
from snapreplay.app.codecs import Codec, i64, json, nullable, raw
from snapreplay.app.out import Out
from snapreplay.app.record import Output
from snapreplay.app.topic import Topic
from snapreplay.errors import RecordError

balances = Topic("balances")
blobs = Topic("blobs", key=nullable(raw), value=raw)
totals = Topic("totals", key=i64, value=json(int))


def make(**limits):
    return Out([balances, blobs, totals], limits)


def refused(out, *args, **given):
    before = list(out.staged)
    with pytest.raises(RecordError) as caught:
        out.send(*args, **given)
    assert out.staged == before, "a refused output is staged"
    return str(caught.value)


def test_value_is_encoded_when_sent():
    """What the handler does to the object afterwards does not reach the output (review A5)."""
    out, account = make(), {"balance": 1}
    out.send(balances, key="ada", value=account)
    account["balance"] = 2
    out.send(balances, key="ada", value=account)
    assert [msgspec.json.decode(one.value) for one in out.staged] == [{"balance": 1}, {"balance": 2}]


def test_what_a_codec_gives_is_bytes_from_then_on():
    """A codec may use its buffer again, and the hash of a key that chooses a partition takes no bytearray."""
    buffer = bytearray(b"1")
    own = Codec[Any]("own", bytes, lambda value: buffer if value else "text")  # type: ignore[arg-type, return-value]
    topic = Topic("own", key=own, value=own)
    out = Out([topic], {})
    out.send(topic, key=1, value=1)
    buffer[:] = b"2"
    assert out.staged == [Output("own", b"1", b"1", None, False, None)]
    assert type(out.staged[0].key) is type(out.staged[0].value) is bytes
    assert "key 0" in refused(out, topic, key=0, value=1)
    assert "value 0" in refused(out, topic, key=1, value=0)


def test_everything_given_is_staged():
    """Nothing is added, nothing lost."""
    out = make()
    out.send(totals, key=5, value=7, partition=3, headers=[("h", b"x")], timestamp_ms=99)
    assert out.staged == [Output("totals", (5).to_bytes(8, "big"), b"7", 3, False, 99, (("h", b"x"),))]


def test_the_engine_encodes_for_no_registry(monkeypatch):
    """What cannot be encoded is encoded a second time in Python: a registry would be asked twice."""
    fake = Mock()
    monkeypatch.setattr(engine, "compiled", fake)
    schemas: Any = SimpleNamespace(of_topic=lambda codec, *_: codec)
    asking = replace(json(), schemas=schemas)
    Out([balances, Topic("keys", key=asking, value=raw), Topic("values", value=nullable(asking)), blobs], {})
    (ways,) = fake.Out.return_value.learn.call_args.args
    assert [topic for topic, *_ in ways] == [balances, blobs]


@pytest.mark.parametrize(
    ("input_key", "key", "partition", "same"),
    [
        (b"ada", b"ada", None, True),
        (b"ada", b"bob", None, False),
        (b"ada", b"ada", 2, False),
        (None, None, None, False),
    ],
)
def test_same_key_says_that_the_inputs_partition_may_be_kept(input_key, key, partition, same):
    """Only for equal key bytes, never for null keys, never against an explicit partition."""
    out = make()
    out.input_key = input_key
    out.send(blobs, key=key, value=b"", partition=partition)
    assert out.staged[0].same_key is same


def test_null_goes_where_the_topic_takes_it():
    """json() takes null (a tombstone); raw does not, and says how it would."""
    out = make()
    out.send(balances, key="ada", value=None)
    assert out.staged[0].value is None
    assert "nullable(raw)" in refused(out, blobs, key=None, value=None)
    assert "key None" in refused(out, totals, key=None, value=1)


@pytest.mark.parametrize("value", [object(), {1: 2}, [object(), "x" * 100_000]])
def test_unencodable_values_are_named(value):
    """Topic and codec, and so much of the value that a megabyte of it does not become a megabyte of log."""
    text = refused(make(), balances, key="a", value=value)
    assert "balances" in text
    assert "json(Any)" in text
    assert len(text) < 500


@pytest.mark.parametrize(("key", "why"), [("a\0b", "NUL"), ("\ud800", "surrogate"), (7, "str")])
def test_a_key_that_is_no_text_is_refused(key, why):
    """Out encodes text itself, and says what the codec says."""
    assert why in refused(make(), balances, key=key, value=1)


def test_size_limit_is_that_of_the_topic():
    """Counted with overhead and headers; the message holds both numbers; the last fitting byte fits."""
    out = make(blobs=1000)
    overhead = 61 + 21 + 10
    out.send(blobs, key=b"k" * 8, value=b"v" * (1000 - overhead - 8))
    text = refused(out, blobs, key=b"k" * 8, value=b"v" * (1000 - overhead - 7))
    assert "1,001 bytes" in text
    assert "at most 1,000" in text
    assert "1,0" in refused(out, blobs, key=None, value=b"v" * 800, headers=[("h", b"x" * 200)])


@pytest.mark.parametrize(
    "given",
    [
        {"partition": -1},
        {"partition": True},
        {"partition": "1"},
        {"timestamp_ms": -5},
        {"timestamp_ms": 1.5},
        {"timestamp_ms": 1 << 63},
        {"partition": 1 << 31},
        {"headers": [("h", "text")]},
        {"headers": [(b"h", b"x")]},
    ],
)
def test_bad_partitions_times_and_headers_are_refused(given):
    """Found here, by record, and not by the producer, by batch."""
    assert "output to balances" in refused(make(), balances, key="a", value=1, **given)


class Row(msgspec.Struct):
    rate: float | None
    name: str = ""


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    ("made", "place"),
    [
        (lambda bad: bad, "value"),
        (lambda bad: {"a": [1, bad]}, "value['a'][1]"),
        (lambda bad: [None, Row(bad)], "value[1].rate"),
    ],
)
def test_a_number_that_json_does_not_have_is_refused(bad, made, place):
    """By its place: written as null, it would break the next reader. None is null, and a text may say so."""
    assert f"JSON cannot hold {bad} at {place}" in refused(make(), balances, key="a", value=made(bad))
    out = make()
    values = [None, {"a": None}, "null", [Row(None, "null")], 1e300, [msgspec.Raw(b"null")]]
    for value in values:
        out.send(balances, key="a", value=value)
    assert len(out.staged) == len(values)


def test_a_null_header_value_is_sent_and_a_name_that_is_no_text_is_not():
    out = make()
    headers = [("trace", None), ("id", b"7")]
    out.send(totals, key=5, value=7, headers=headers)
    assert out.staged[0].headers == (("trace", None), ("id", b"7"))
    assert "is not text" in refused(out, totals, key=5, value=7, headers=[("\udcff", b"x")])
