"""A run of records has the same effect with the compiled engine, which loops over them, and without it."""

import sys
import traceback

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from snapreplay.app.app import App
from snapreplay.app.batch import ErrorPolicy, Portion
from snapreplay.app.codecs import Codec, i64, nullable, raw, utf8
from snapreplay.app.fold import Fold
from snapreplay.app.record import RawRecord
from snapreplay.app.topic import Topic
from snapreplay.errors import RecordError, SnapreplayError
from snapreplay.state.map import MapState
from snapreplay.state.steps import all_of
from tests.support.engines import compiled, needs_engine, own_records, pure, with_engine
from tests.support.foreign_records import HEAD_BYTES, Foreign, batch

__all__ = ["with_engine"]
pytestmark = [needs_engine, pytest.mark.usefixtures("with_engine")]


class Ended(BaseException):
    """An error that is no `Exception`."""


def decoded(data):
    if data == b"end":
        raise Ended
    return data


OWN = Codec[bytes]("own", bytes, decoded)
texts, null_texts = Topic("texts", key=utf8, value=nullable(OWN)), Topic("null-texts", key=nullable(utf8), value=OWN)
numbers, plain = Topic("numbers", key=i64, value=nullable(raw)), Topic("plain", key=nullable(raw), value=raw)
sent = Topic("sent", key=nullable(raw), value=raw)


def app_of(topic, *, timed):
    """An app whose handler keeps everything that it sees of a record, and fails by its value."""
    app = App("seer", inputs=[topic], outputs=[sent], state=lambda: MapState(str, list, default=list), version="v1")

    @app.handler(topic)
    def see(record, state, out):
        value = record.value
        seen = [*record.id.split("-"), record.app_id, record.timestamp_ms, state.stream_time_ms, record.key, value]
        state["seen"].append([*seen, list(map(list, record.headers))])
        out.send(sent, key=out.input_key, value=repr(seen).encode())
        if value == b"raise":
            raise KeyError(value)
        if value == b"exit":
            raise Ended
        if value == b"timer" and timed:
            state.schedule("timer", record.timestamp_ms + 10, timer="due")
        return 7 if value == b"answer" else None

    if timed:

        @app.timer("due")
        def due(timer, state, out):
            state["seen"].append(["timer", timer.at_ms, state.stream_time_ms])

    return app


KEYS = [b"ada", "ä".encode(), b"a\0", b"\xff", b"", None, b"12345678"]
VALUES = [b"v", b"", None, b"raise", b"exit", b"end", b"answer", b"timer"]
RECORDS = st.lists(
    st.tuples(
        st.integers(-1, 2),
        st.sampled_from([-1, 0, 5, 9, 10, 11, 40]),
        st.sampled_from([*KEYS, *10 * [b"ada"]]),  # a failing record hides what the others do
        st.sampled_from([*VALUES, *10 * [b"v", b"timer"]]),
        st.sampled_from([(), (), (("h", None), ("ä", b"x")), (("traceparent", b"t"), ("tracestate", b"s"))]),
    ),
    max_size=12,
)


def records_of(topic, given_):
    offset, found = 0, []
    for step, *rest in given_:
        offset += 1 + step
        at_ms, key, value, headers = rest
        found.append(RawRecord(topic.name, 3, offset, at_ms, key, value, headers))
    return found


def effect(app, records, carries):
    """Apply them as a batch, and those of a batch that failed again in parts; return all that is seen of it."""
    store = app.new_store()
    fold = Fold(app, store, 3, policy=ErrorPolicy.DEAD_LETTER, carries=carries)
    positions, errors = {records[0].topic: 0} if records else {}, []

    def noted(error):
        facts = {**getattr(error, "facts", {}), "traceback": ""}  # it has lines of the fold
        return type(error), str(error), facts, repr(error.__cause__)

    try:
        try:
            fold.begin(positions)
            fold.feed(records)
            applied = fold.finish()
        except RecordError as error:
            errors.append(noted(error))
            fold.abandon()
            applied = all_of(fold.isolating(positions, Portion(records)))
    except (SnapreplayError, ValueError) as error:
        return errors, noted(error), store.stream_time_ms
    errors += map(noted, applied.errors)
    handled = {name: count for name, (count, _) in applied.handled.items()}
    seen = applied.outputs, applied.contexts, applied.dead_letters, (fold._out.input_key, fold._out.at_ms)
    return errors, *map(list, seen), applied.sealed, applied.ranges, applied.skipped, handled, store.stream_time_ms


@pytest.mark.parametrize("carries", [False, True], ids=["", "carries"])
@pytest.mark.parametrize("timed", [False, True], ids=["untimed", "timed"])
@pytest.mark.parametrize("topic", [texts, null_texts, numbers, plain], ids=lambda each: each.name)
@example([(0, 0, b"ada", b"timer", ()), (0, 40, b"ada", b"v", ()), (0, 41, b"ada", b"v", ())])
@example([(0, 1, b"ada", b"v", ()), (-1, 1, b"ada", b"v", ())])
@given(RECORDS)
@settings(max_examples=80)
def test_the_engine_applies_what_python_applies(topic, timed, carries, given_):
    """Odd keys and values, failing handlers and codecs, offsets that do not rise, timers that become due. The records
    are Python's, and the engine's own."""
    app = app_of(topic, timed=timed)
    records = records_of(topic, given_)
    with pure():
        expected = effect(app, records, carries)
    assert effect(app, records, carries) == expected
    assert effect(app, own_records(records), carries) == expected


def test_an_error_keeps_its_traceback():
    """The place in the handler where it was raised is in the message, and a signal is found by its frames."""
    records = records_of(texts, [(0, 1, b"ada", b"v", ()), (0, 1, b"ada", b"raise", ())])
    app = app_of(texts, timed=False)
    fold = Fold(app, app.new_store(), 3)
    fold.begin({"texts": 0})
    with pytest.raises(RecordError) as raised:
        fold.feed(records)
    assert raised.value.__cause__ is not None
    frames = traceback.walk_tb(raised.value.__cause__.__traceback__)
    assert [frame.f_code.co_name for frame, _ in frames] == ["_apply_run", "see"]


@pytest.mark.parametrize("end", [Fold.finish, Fold.abandon])
def test_an_applied_record_does_not_keep_its_fetch(end):
    """A quiet partition would hold a megabyte."""
    assert compiled is not None
    data = batch([Foreign(1, b"ada", b"v", [])])
    place = (HEAD_BYTES, len(data), 1, 0, 1, None, texts.name, 3, 0)
    app = app_of(texts, timed=False)
    fold = Fold(app, app.new_store(), 3)
    fold.begin({"texts": 0})
    before = sys.getrefcount(data)
    fold.feed(compiled.records(data, *place)[0])  # type: ignore[index]  # None: Python must read it
    assert sys.getrefcount(data) > before
    assert len(fold._out.staged) == 1
    end(fold)
    assert sys.getrefcount(data) == before
