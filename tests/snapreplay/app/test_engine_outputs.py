"""What a handler sends is the same with the compiled engine, which keeps it in columns, and without it."""

import gc
import math
import signal
import weakref
from asyncio import CancelledError
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from functools import wraps
from itertools import product
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from snapreplay.app.codecs import Codec, i64, json, msgpack, nullable, raw, utf8
from snapreplay.app.out import Out
from snapreplay.app.record import Carried, Output, counted_topics, hashing, packed
from snapreplay.app.topic import InternalTopic, Topic
from snapreplay.errors import RecordError, UsageError
from snapreplay.service.kafka.batching import Batches, TopicShape
from snapreplay.state.gate import Gate
from snapreplay.state.steps import all_of
from tests.support.engines import compiled, needs_engine, pure, with_engine

__all__ = ["with_engine"]
pytestmark = [needs_engine, pytest.mark.usefixtures("with_engine")]


class Row(msgspec.Struct):
    text: str
    rate: float | None = None


class Name(StrEnum):
    ADA = "ada"


REFUSED: dict[object, BaseException] = {
    7: LookupError("seven"),
    5: SystemExit(5),
    b"v": CancelledError(),
    b"": GeneratorExit(),
}


def shout(value):
    """Refuse with errors of other classes, and give no bytes for a text."""
    if type(value) in (int, bytes) and value in REFUSED:
        raise REFUSED[value]
    return bytearray(b"odd") if isinstance(value, str) else repr(value).encode()


@wraps(json().encode)
def sealed(value):
    """Encode what another encoder gives, as a decorator does."""
    return b"SEALED:" + json().encode(value)


TOPICS: list[Any] = [
    Topic("rows", key=utf8, value=json(Row)),
    Topic("any", key=nullable(utf8), value=json()),
    Topic("packed", key=raw, value=msgpack()),
    Topic("numbers", key=i64, value=nullable(i64)),
    Topic("own", key=Codec("own", bytes, shout), value=Codec("own", bytes, shout)),
    Topic("sealed", value=Codec("sealed", bytes, sealed)),
    InternalTopic("app", "within", key=utf8, value=raw),
]
UNKNOWN = Topic("unknown")
CONTEXT = (("traceparent", b"00-1"),)

KEYS = ["ada", "", "ä", "a\0", "\ud800", "k" * 300, Name.ADA, b"ada", b"", 7, None, -1, 1 << 70]
VALUES = [
    *(
        Row("x"),
        Row("null"),
        Row("x", math.nan),
        Row("y" * 70_000),
        {"a": [None]},
        "null",
        math.inf,
        b"v",
        b"",
        5,
        None,
    ),
    *(object(), {1: 2}, [Name.ADA], "\ud800", {"b": 1, "a": {3, 1, 2}}),
]
keys, values = st.sampled_from(KEYS), st.sampled_from(VALUES)
options = st.fixed_dictionaries(
    {},
    optional={
        "partition": st.sampled_from([None, 0, 2, -1, "1"]),
        "timestamp_ms": st.sampled_from([None, -1, 0, 99, -5, True]),
        "headers": st.sampled_from([None, (), [("h", b"x")], [("h", "text")], [("ä", None), *CONTEXT]]),
    },
)
times = st.sampled_from([-1, 0, 7, 1 << 40])
steps = st.one_of(
    st.tuples(st.just("send"), st.sampled_from([*TOPICS, UNKNOWN]), keys, values, options),
    st.tuples(st.just("record"), st.sampled_from([b"ada", "ä".encode(), b"", None]), times),
    st.tuples(st.just("cut"), st.integers(0, 20)),
    st.tuples(st.just("limits"), st.sampled_from([100, 1000, 1 << 20])),
    st.tuples(st.just("carry"), st.integers(0, 20)),
    st.tuples(st.just("hash")),
)
SHAPES = {name: TopicShape(n, 2000, 1 << 20) for n, name in enumerate(["log", *(each.name for each in TOPICS)], 1)}


def done(step, out):
    """Take a step, and return what is seen of it."""
    what, *given_ = step
    if what == "send":
        topic, key, value, more = given_
        try:
            out.send(topic, key=key, value=value, **more)
        except RecordError as error:
            return str(error), error.facts, repr(error.__cause__)
    elif what == "record":
        out.input_key, out.at_ms = given_
    elif what == "cut":
        out.cut((min(given_[0], len(out.staged)), 0))
    elif what == "limits":
        out.learn_limits({"rows": given_[0], "own": given_[0]})
    elif what == "carry":
        out.carry(given_[0], CONTEXT)
    else:
        return list(all_of(out.hashing()).items())  # in this order they are in the increment
    return None


def seen(outputs):
    return [(type(each), msgspec.to_builtins(each), getattr(each, "carried", ())) for each in outputs]


def batched(outputs, start, stop):
    batches = Batches(SHAPES, 0)
    batches.add_outputs(outputs[start:stop], "log", 1)
    return {target: [bytes(each.built(1, 2, 3)) for each in run] for target, run in batches.runs.items()}


@pytest.mark.parametrize("topic", [*TOPICS, UNKNOWN], ids=lambda each: each.name)
def test_the_engine_encodes_what_python_encodes(topic):
    """Every key with every value, of records with each of these keys: the same outputs, and the same errors."""
    with pure():
        by_python = Out(TOPICS, {})
    by_engine = Out(TOPICS, {})
    for input_key, key, value in product([b"ada", "ä".encode(), b"", None], KEYS, VALUES):
        for out in (by_python, by_engine):
            out.input_key = input_key
        step: tuple[Any, ...] = "send", topic, key, value, {}
        assert done(step, by_engine) == done(step, by_python), (key, value)
    assert seen(by_engine.staged) == seen(by_python.staged)
    assert done(("hash",), by_engine) == done(("hash",), by_python)


IN_NO_ORDER: list[Any] = [
    ("send", TOPICS[2], b"ada", 5, {}),
    ("send", TOPICS[1], "ada", 5, {"partition": 1}),
    ("send", TOPICS[0], "ada", 5, {}),
]


@example(IN_NO_ORDER, 0, 0)
@example([("record", b"ada", 0), ("send", TOPICS[4], "ada", 9, {})], 0, 1)
@given(st.lists(steps, max_size=40), st.integers(0, 30), st.integers(0, 30))
def test_the_engine_stages_what_python_stages(taken, start, stop):
    """After every step: the same outputs, errors, hashes and counts; at the end the same times and the same batches."""
    with pure():
        by_python = Out(TOPICS, {})
    by_engine = Out(TOPICS, {})
    assert not isinstance(by_engine.staged, list)
    for step in [*taken, ("hash",)]:
        assert done(step, by_engine) == done(step, by_python)
        assert seen(by_engine.staged) == seen(by_python.staged)
        assert len(by_engine.staged) == len(by_python.staged)
        counts = [list(counted_topics(each.staged).items()) for each in (by_engine, by_python)]
        assert counts[0] == counts[1]  # in this order they are in the increment
    with pure():
        expected = by_python.take()
    found = by_engine.take()
    assert found == expected
    assert seen(found) == seen(expected)
    assert seen(found[start:stop]) == seen(expected[start:stop])
    assert not by_engine.staged
    for out in (by_engine, by_python):  # the time and the key stay
        done(("send", TOPICS[6], "ada", b"next", {}), out)
    assert seen(by_engine.take()) == seen(by_python.take())
    if all(each.timestamp_ms is not None and (each.partition or 0) < 2 for each in expected):
        with pure():
            batches = batched(expected, start, stop)
        assert batched(found, start, stop) == batches


CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {}),
    ((), {"key": "a", "value": b""}),
    ((TOPICS[6],), {"key": "a"}),
    ((TOPICS[6],), {"value": b""}),
    ((TOPICS[6], "a"), {"value": b""}),
    ((TOPICS[6], "a", b""), {}),
    ((TOPICS[6],), {"key": "a", "value": b"", "topic": TOPICS[6]}),
    ((TOPICS[6],), {"key": "a", "value": b"", "time": 3}),
    ((), {"topic": TOPICS[6], "key": "a", "value": b""}),
    ((TOPICS[6],), {"key": "a", "value": b"", "headers": []}),
    ((TOPICS[6],), {"key": "a", "value": b"", "partition": None, "headers": None, "timestamp_ms": None}),
]


@pytest.mark.parametrize(("args", "named"), CALLS)
def test_a_wrong_call_is_refused_as_by_python(args, named):
    """By a text that names `Out.send`, for which there is a hint."""
    with pure():
        outs = [Out(TOPICS, {})]
    outs.append(Out(TOPICS, {}))
    shown = []
    for out in outs:
        try:
            out.send(*args, **named)
        except TypeError as error:
            shown.append(str(error))
        else:
            shown.append(seen(out.staged))
    assert shown[1] == shown[0]


def test_an_output_sent_by_the_method_of_the_class_is_kept():
    """`Out.send(out, …)` is Python's way, also to an `Out` of the engine."""
    with pure():
        outs = [Out(TOPICS, {})]
    outs.append(Out(TOPICS, {}))
    for out in outs:
        out.send(TOPICS[6], key="a", value=b"")
        Out.send(out, TOPICS[6], key="b", value=b"")
        out.send(TOPICS[6], key="c", value=b"", headers=[("h", b"x")])
    hashes = [all_of(out.hashing()) for out in outs]
    taken = [seen(out.take()) for out in outs]
    assert (len(taken[1]), taken[1], hashes[1]) == (3, taken[0], hashes[0])


def test_a_subclass_is_made_by_its_own_methods():
    class Mine(Out):
        def __init__(self, prefix):
            super().__init__(TOPICS, {})
            self.prefix = prefix

        def send(self, topic, *, key, **options):
            super().send(topic, key=self.prefix + key, **options)

    out: Any = Mine("my ")
    out.send(TOPICS[6], key="a", value=b"")
    assert [each.key for each in out.take()] == [b"my a"]


def test_only_the_thread_whose_handler_runs_may_send():
    """While the gate is open, that is."""
    gate = Gate()
    out = Out(TOPICS, {}, gate)

    def refused():
        with pytest.raises(UsageError) as raised:
            out.send(TOPICS[6], key="a", value=b"")
        return str(raised.value)

    with ThreadPoolExecutor(1) as other:
        gate.close()
        assert "after its handler had ended" in refused()
        gate.open()
        assert "in another thread" in other.submit(refused).result()
        out.send(TOPICS[6], key="a", value=b"")
        other.submit(gate.open).result()
        assert "in another thread" in refused()
        other.submit(out.send, TOPICS[6], key="b", value=b"").result()
    assert [each.key for each in out.staged] == [b"a", b"b"]


def test_an_out_that_is_not_used_any_more_is_freed():
    """It and what the engine keeps refer to each other."""

    class Holder:
        def encode(self, _):
            return b""

    holder = Holder()
    topic = Topic("t", key=utf8, value=Codec("held", bytes, holder.encode))
    out = Out([topic], {})
    out.send(topic, key="a", value=1)
    is_there = weakref.ref(holder)
    del holder, topic, out
    gc.collect()
    assert is_there() is None


def test_a_value_that_sends_while_it_is_encoded():
    """The engine holds nothing while it encodes: the inner output comes first, as in Python."""
    plain = Topic("plain", key=utf8, value=raw)

    def encode(_):
        out.send(plain, key="inner", value=b"")
        return b"outer"

    nested = Topic("nested", key=utf8, value=Codec("nested", bytes, encode))
    out = Out([plain, nested], {})
    out.send(nested, key="outer", value=1)
    assert [each.key for each in out.staged] == [b"inner", b"outer"]


def test_a_signal_is_not_swallowed(monkeypatch):
    """It comes once: an output that the engine gives back to Python would run on without it."""
    monkeypatch.setattr(signal, "getsignal", lambda _: signal.default_int_handler)  # Spark sets its own
    asked = []

    def encode(_):
        asked.append(1)
        if len(asked) == 1:
            raise KeyboardInterrupt
        return b""

    topic = Topic("t", key=utf8, value=Codec("interrupted", bytes, encode))
    out = Out([topic], {})
    with pytest.raises(KeyboardInterrupt):
        out.send(topic, key="a", value=1)
    assert not out.staged


@pytest.mark.parametrize("headers", [None, [("h", b"x")]], ids=["plain", "made"])
def test_a_step_hashes_no_more_outputs_than_the_loop_has_time_for(headers):
    """However small they are: 4,000 take a few tenths of a millisecond."""
    out = Out(TOPICS, {})
    for _ in range(20_000):
        out.send(TOPICS[2], key=b"", value=1, headers=headers)
    assert len(list(out.hashing())) >= 20_000 // 4_000


def test_after_an_error_all_is_hashed_again():
    """Half of it would be a wrong fingerprint, without a word."""
    assert compiled is not None
    asked = []

    def encode(made):
        asked.append(made)
        if len(asked) == 2:
            raise MemoryError
        return packed(made)

    staged = compiled.Out(Output, encode, None, None, 0)
    outputs = [Output("t", b"k", b"%d" % each, None, False, None) for each in range(3)]
    for each in outputs:
        staged.append(each, -1)
    assert not staged.hash(1)
    with pytest.raises(MemoryError):
        staged.hash(1)
    while not staged.hash(1):
        pass
    assert staged.hashes() == all_of(hashing(outputs))


def test_an_index_behind_the_end():
    out = Out(TOPICS, {})
    out.send(TOPICS[0], key="a", value=Row("x"))
    staged: Any = out.staged
    assert staged[-1] == staged[0]
    for place in (1, -2, 1 << 70):
        with pytest.raises((IndexError, OverflowError)):
            staged[place]
    with pytest.raises(IndexError):
        staged[1] = Carried.of(staged[0], CONTEXT)
    assert staged != []
    assert staged != 7
