"""Stored values as JSON, however deep they are nested."""

import json as stdlib_json
from typing import Any

import msgspec
import pytest

from snapreplay import App, MapState, Topic, json, msgpack
from snapreplay.api.cli.json_records import Shower, records_of
from snapreplay.api.json_values import LEVELS_MAX, TOO_DEEP, builtins_of, shown_value
from snapreplay.app.record import RawRecord
from snapreplay.errors import RecordError, UsageError
from snapreplay.snapshots.format.envelope import encode
from snapreplay.snapshots.format.records import ChangesRecord
from snapreplay.testing import Harness

DEPTHS = [1, LEVELS_MAX, LEVELS_MAX + 1, 400, 700, 900, 5000]
lists = Topic("lists")


def nested(depth):
    """Lists in each other, as MessagePack has them."""
    return b"\x91" * (depth - 1) + b"\x90"


def depth_of(value):
    depth, is_cut = 0, False
    while isinstance(value, list) and not is_cut:
        depth, value = depth + 1, value[0] if value else None
        is_cut = value == TOO_DEEP
    return depth, is_cut or value == TOO_DEEP


@pytest.mark.parametrize("depth", DEPTHS)
def test_a_nested_value_is_shown_down_to_a_level(depth):
    """What is deeper is said to be there. Never an error, and JSON that any reader takes."""
    shown = shown_value(nested(depth))
    assert depth_of(stdlib_json.loads(stdlib_json.dumps(shown))) == (
        (depth, False) if depth <= LEVELS_MAX else (LEVELS_MAX, True) if depth < 1000 else (0, True)
    )
    assert msgspec.json.decode(msgspec.json.encode(shown)) == shown


def test_dicts_and_objects_are_cut_as_well():
    value: object = 1
    for _ in range(200):
        value = {"in": value}
    shown = builtins_of(value)
    for _ in range(LEVELS_MAX):
        shown = shown["in"]
    assert shown == TOO_DEEP


@pytest.mark.parametrize("depth", DEPTHS)
def test_tail_shows_every_topic(depth):
    """A record of an input, and the changes that it made, in a line and as a document."""
    app = App("deep", inputs=[lists], state=lambda: MapState(str, list))
    shower, text = Shower(app), b"[" * depth + b"]" * depth
    record = RawRecord("lists", 0, 0, 1, b"k", text)
    changes = ChangesRecord(1, 0, {"default": {msgspec.msgpack.encode("k"): nested(depth)}})
    own = RawRecord("deep-increments", 0, 0, 1, None, encode(changes))
    for each in (record, own):
        stdlib_json.dumps(shower.document(each))
        assert shower.line(each)


def test_a_line_that_is_nested_too_deep_is_not_fed():
    with pytest.raises(UsageError, match="line 1: "):
        records_of([b'{"value": ' + b"[" * 100_000], lists, 1, 1_000_000)


@pytest.mark.parametrize("value", [json(), msgpack(), json(list), msgpack(list)], ids=lambda each: each.name)
def test_whether_a_value_is_too_deep_depends_on_the_value_alone(value):
    """Not on how many calls are under way: what was read and stored once is read and stored by every replay, and read
    after every restart."""
    deep = Topic("lists", value=value)
    app: App[MapState[str, list[Any]]] = App("deep", inputs=[deep], state=lambda: MapState(str, list))
    app.handler(deep)(lambda record, state, out: state.__setitem__(record.key, record.value))
    harness = Harness(app)
    is_json = value.name.startswith("json")
    encoded = {n: b"[" * n + b"]" * n if is_json else nested(n) for n in (799, 800, 801, 802)}
    for depth in (799, 800):
        harness.feed_raw(deep, b"%d" % depth, encoded[depth])
    for depth in (801, 802):
        with pytest.raises(RecordError, match="nested deeper than 800 levels"):
            harness.feed_raw(deep, b"%d" % depth, encoded[depth])

    def read_deeper(frames):
        return harness.crash() if frames == 0 else read_deeper(frames - 1)

    read_deeper(60)
    assert set(harness.state) == {"799", "800"}


def test_a_wide_value_is_not_a_deep_one():
    rows = [[n, {"n": n}] for n in range(2000)]
    for codec in (json(), msgpack()):
        assert codec.decode(codec.encode(rows)) == rows
