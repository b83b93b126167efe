"""Tests of the trace context on its way from a record to what its handler sends."""

from snapreplay.app.app import App
from snapreplay.app.batch import ErrorPolicy, Portion
from snapreplay.app.fold import Fold
from snapreplay.app.record import RawRecord
from snapreplay.app.topic import Topic
from snapreplay.state.map import MapState
from snapreplay.state.steps import all_of

ONE, TWO = ("traceparent", b"00-" + b"a" * 32 + b"-" + b"1" * 16 + b"-01"), ("tracestate", b"vendor=1")
OWN = ("traceparent", b"00-" + b"b" * 32 + b"-" + b"2" * 16 + b"-01")
numbers, doubled = Topic("numbers"), Topic("doubled")


def fold(carries=True, policy=ErrorPolicy.FAIL, limits=None):
    """A fold of an app that sends twice per record, and once by a timer."""
    app = App("a", inputs=[numbers], outputs=[doubled], state=lambda: MapState(str, int))

    @app.handler(numbers)
    def on_number(record, state, out):
        out.send(doubled, key=record.key, value=record.value)
        state[record.key] = record.value
        state.schedule(record.key, 1000, timer="tick")
        if record.value == 666:
            raise ValueError
        out.send(doubled, key=record.key, value=2 * record.value, headers=[OWN] if record.value == 7 else [("h", b"1")])

    @app.timer("tick")
    def on_tick(timer, state, out):
        out.send(doubled, key="tick", value=0)

    return Fold(app, app.new_store(), 0, carries=carries, policy=policy, output_limits=limits)


def record(offset, value, *headers, at=0):
    return RawRecord("numbers", 0, offset, at, b"k", b"%d" % value, headers)


def batch(made, *records):
    """Apply as the service does: as a whole, or in parts if that fails."""
    portion = Portion(records)
    applied = all_of(made.replaying({"numbers": 0}, portion))
    assert applied.failure is None
    return applied


def carried(applied):
    return [getattr(one, "carried", ()) for one in applied.outputs]


def test_an_output_carries_the_context_of_its_record():
    """Both headers, and no other one; the outputs of a record without a context carry none."""
    applied = batch(fold(), record(0, 1, ("x", b"y"), ONE, TWO), record(1, 2), record(2, 3, ("x", b"y")))
    assert carried(applied) == [(ONE, TWO)] * 2 + [()] * 4
    assert [one.headers for one in applied.outputs][:2] == [(), (("h", b"1"),)]
    assert applied.contexts == [(ONE, TWO)]


def test_a_handler_may_send_a_context_of_its_own():
    """It stays the only one of that output."""
    assert carried(batch(fold(), record(0, 7, ONE))) == [(ONE,), ()]


def test_a_timer_and_what_comes_after_it_carry_nothing_of_an_earlier_record():
    """A timer has no record."""
    applied = batch(fold(), record(0, 1, ONE, at=10), record(1, 2, at=5000))
    assert any(one.value == b"0" for one in applied.outputs)
    assert [bool(each) for each in carried(applied)] == [True, True] + [False] * (len(applied.outputs) - 2)


def test_a_context_that_has_no_room_is_left_out():
    """The record without it is as large as its topic takes."""
    applied = batch(fold(limits={"doubled": 150}), record(0, 1, ONE), record(1, 1, ("traceparent", b"0" * 10)))
    assert [bool(each) for each in carried(applied)] == [False, False, True, True]


def test_a_failing_record_takes_its_context_along():
    """In a batch that runs again in parts, each output carries that of its own record."""
    applied = batch(fold(policy=ErrorPolicy.DEAD_LETTER), record(0, 1, ONE), record(1, 666, OWN), record(2, 2, ONE))
    assert carried(applied) == [(ONE,)] * 4


def test_the_fingerprint_of_the_outputs_is_the_same_with_and_without_it():
    """So a replay, an audit and an earlier build agree, with any setting."""
    on, off = (batch(fold(carries), record(0, 1, ONE), record(1, 2)) for carries in (True, False))
    assert on.outputs_xxh64 == off.outputs_xxh64
    assert carried(off) == [()] * 4
    assert carried(on) != carried(off)
