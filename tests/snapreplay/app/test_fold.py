"""The fold, case by case; test_fold_batches.py holds its one law."""

import asyncio
import itertools
import signal

import pytest

from snapreplay.app.app import App
from snapreplay.app.batch import ErrorPolicy, Portion
from snapreplay.app.codecs import Codec
from snapreplay.app.codecs import raw as raw_codec
from snapreplay.app.fold import Fold
from snapreplay.app.harness import Harness
from snapreplay.app.made_record import record_raw
from snapreplay.app.ranges import InputRange, OutOfOrder, SkippedRange, anchor_of
from snapreplay.app.topic import Topic
from snapreplay.errors import RecordError
from snapreplay.state.map import MapState
from snapreplay.state.steps import all_of
from snapreplay.state.stores import store_of
from tests.support.fold_bench import START, Bench, doing, payments, raw


def test_applied_describes_the_batch():
    """Ranges in the order applied, positions, anchors, outputs and stream time of a batch of two inputs."""
    records = [raw("payments", 3, {}, at=50), raw("rates", 1, 7, at=40), raw("payments", 6, {}, at=30)]
    applied = Bench().batch(records)
    assert applied.ranges == [
        InputRange("payments", 0, 4, 1),
        InputRange("rates", 0, 2, 1),
        InputRange("payments", 4, 7, 1),
    ]
    assert applied.positions == {"payments": 7, "rates": 2}
    assert applied.anchors == {"payments": anchor_of(records[2]), "rates": anchor_of(records[1])}
    assert [one.value for one in applied.outputs] == [b"1", b"[7,2]", b"2"]
    assert (applied.record_count, applied.stream_time_ms, applied.failure) == (3, 50, None)
    assert len(applied.sealed.changes["default"]) == 2


def test_skipped_record_leaves_nothing_and_becomes_a_dead_letter():
    """Half of a record's effects never stay: no change, no output. It was read: it is the anchor, and moves time."""
    good, bad = raw("payments", 0, {}, at=10), doing(1, "raise", key=b"bob", at=99)
    bench = Bench()
    applied = bench.batch([good, bad])
    only_good = Bench()
    only_good.batch([good])
    assert bench.store.digest == only_good.store.digest
    assert applied.stream_time_ms == bench.store.stream_time_ms == 99
    assert applied.anchors == {"payments": anchor_of(bad)}
    assert applied.skipped == [SkippedRange("payments", 1, 2)]
    assert (applied.record_count, applied.ranges) == (1, [InputRange("payments", 0, 2, 2)])
    assert len(applied.outputs) == 1
    [letter], [error] = applied.dead_letters, applied.errors
    assert (letter.topic, letter.key, letter.value) == ("ledger-dead-letters", b"bob", bad.value)
    assert dict(letter.headers)["__snapreplay.errors.offset"] == b"1"
    assert dict(letter.headers)["__snapreplay.errors.exception"] == b"ValueError"
    assert str(error.record_id) == "payments-0-1"


def test_a_skipped_record_moves_stream_time_in_a_replay_too():
    """The handlers behind it see the same time as the first time."""
    records = [doing(0, "raise", at=99), raw("payments", 1, {}, at=5)]
    first, again = Bench(), Bench()
    applied = first.batch(records)
    portion = Portion(records, applied.stream_time_ms, skipped=applied.skipped)
    replayed = all_of(again.fold.replaying(START, portion))
    assert applied.skipped
    assert (replayed.sealed, replayed.positions) == (applied.sealed, applied.positions)


def test_errors_of_the_state_are_found_when_staged_and_named_when_isolated():
    """`finish` does not know the record of a value that cannot be written; `isolating` does."""
    records = [raw("payments", 0, {}), doing(1, "unwritable"), raw("payments", 2, {})]
    bench = Bench()
    bench.fold.begin(START)
    bench.fold.feed(records)
    with pytest.raises(RecordError):
        bench.fold.finish()
    bench.fold.abandon()
    applied = all_of(bench.fold.isolating(START, Portion(records)))
    assert [str(one.record_id) for one in applied.errors] == ["payments-0-1"]


def test_handler_sees_the_record_and_stream_time_before_it_is_called():
    """Stream time is the highest timestamp so far, this record's included; key and value are decoded."""
    seen = []
    watching = App("watch", inputs=[payments], state=lambda: MapState(str, int))

    @watching.handler(payments)
    def on_record(record, state, out):
        seen.append((record.id, record.key, record.value, record.timestamp_ms, state.stream_time_ms))

    fold = Fold(watching, store_of(watching.state()), 5)
    fold.begin({"payments": 0})
    fold.feed([raw("payments", 0, {"a": 1}, at=7), raw("payments", 1, None, at=3)])
    fold.feed([raw("payments", 2, {}, at=9)])
    assert seen == [
        ("payments-5-0", "ada", {"a": 1}, 7, 7),
        ("payments-5-1", "ada", None, 3, 7),
        ("payments-5-2", "ada", {}, 9, 9),
    ]


@pytest.mark.parametrize("is_timed", [False, True])
def test_the_time_in_handlers_is_counted_by_input(is_timed):
    """With timers a run ends where one may be due."""
    seconds = itertools.count()
    watching = App("watch", inputs=[payments, other := Topic("other")], state=lambda: MapState(str, int))

    taken = []

    def takes_a_second(record, state, out):
        taken.append(next(seconds))

    for topic in (payments, other):
        watching.handler(topic)(takes_a_second)
    if is_timed:
        watching.timer("tick", every_ms=2)(lambda timer, state, out: None)
    store = store_of(watching.state())
    fold = Fold(watching, store, 0, clock=lambda: float(next(seconds)))
    for batch in range(2):  # each has its own
        records = [raw("payments", batch * 3 + n, {}, at=batch * 9 + n) for n in range(3)]
        fold.begin({"payments": batch * 3, "other": batch})
        fold.feed([*records, raw("other", batch, {}, at=batch * 9 + 3)])
        handled = fold.finish().handled
        store.merge()
        assert {topic: count for topic, (count, _) in handled.items()} == {"payments": 3, "other": 1}
        assert len(taken) == 4 * (batch + 1)
        assert handled["other"][1] == 2.0
        assert handled["payments"][1] >= 4.0


ESCAPING = [
    asyncio.CancelledError,
    SystemExit,
    MemoryError,
    ImportError,
    GeneratorExit,
    KeyboardInterrupt,
    type("Odd", (BaseException,), {}),
]


@pytest.fixture
def handled_interrupts():
    """Handle interrupts as a service does: Ctrl-C raises nothing."""
    former = signal.signal(signal.SIGINT, lambda *_: None)
    yield
    signal.signal(signal.SIGINT, former)


def escaping(error, where):
    def raising(*_):
        raise error

    decodes, encodes = (raising if where == side else bytes for side in ("decode", "encode"))
    given = Topic("payments", key=Codec("odd", decodes, bytes), value=raw_codec)
    sent = Topic("sent", value=Codec("odd", bytes, encodes))
    breaking = App("odd", inputs=[given], outputs=[sent], state=lambda: MapState(str, int))

    @breaking.handler(given)
    def on_record(record, state, out):
        state["a"] = 1
        out.send(sent, key="a", value=b"")
        if where == "handler":
            raise error

    @breaking.timer("tick", every_ms=1)
    def tick(timer, state, out):
        if where == "timer":
            raise error

    return breaking


@pytest.mark.parametrize("where", ["handler", "decode", "encode", "timer"])
@pytest.mark.parametrize("error", ESCAPING)
def test_any_error_is_the_answer_to_a_record(error, where, handled_interrupts):
    """Also what is no `Exception`: it names the record or the timer, and the policy decides."""
    record = record_raw(Topic("payments"), b"", b"", timestamp_ms=1)
    failing, lenient = (Harness(escaping(error, where), policy=policy) for policy in ErrorPolicy)
    if where == "timer":
        for harness in (failing, lenient):
            harness.advance_time(0)
    with pytest.raises(RecordError) as caught:
        failing.feed_batch([record])
    assert caught.value.facts["exception"] == error.__name__
    name = "timer tick at 1" if where == "timer" else "payments-0-0"
    assert str(caught.value).startswith(name)
    lenient.feed_batch([record])
    assert len(lenient.dead_letters) == 1


def test_a_handler_that_returns_something_is_refused():
    """It may be a wrapped coroutine whose body never ran: its record is not passed over in silence."""
    applied = Bench().batch([doing(0, "answer"), doing(1, "ok")])
    assert [str(one.record_id) for one in applied.errors] == ["payments-0-0"]
    assert "returned a int" in applied.errors[0].message


@pytest.mark.parametrize("offsets", [(0,), (1,), (2, 2)])
def test_records_below_the_position_are_refused(offsets):
    """A record fed twice, in two batches or in one, would be counted twice: the caller's bug, no handler error."""
    bench = Bench()
    bench.batch([raw("payments", 0, {}), raw("payments", 1, {})])
    bench.fold.begin(bench.positions)
    with pytest.raises(OutOfOrder):
        bench.fold.feed([raw("payments", offset, {}) for offset in offsets])


@pytest.mark.parametrize("what", ["raise", "unwritable"])
@pytest.mark.parametrize("bad", [{0}, {511}, {777}, {1022, 1023}, {1, 300, 301, 302, 900}])
def test_a_failing_record_costs_about_its_batch(monkeypatch, what, bad):
    """Not one staging per record: a value that all of them touch would be encoded and compared each time."""
    records = [doing(offset, what) if offset in bad else raw("payments", offset, {}) for offset in range(1024)]
    bench, calls, stagings = Bench(), 0, 0
    apply_run, staging = Fold._apply_run, type(bench.store).staging

    def counting_calls(fold, run):
        nonlocal calls
        calls += len(run)
        return apply_run(fold, run)

    def counting_stagings(store):
        nonlocal stagings
        stagings += 1
        return staging(store)

    monkeypatch.setattr(Fold, "_apply_run", counting_calls)
    monkeypatch.setattr(type(bench.store), "staging", counting_stagings)
    applied = all_of(bench.fold.isolating(START, Portion(records)))
    assert {int(str(one.record_id).split("-")[-1]) for one in applied.errors} == bad
    assert applied.record_count == 1024 - len(bad)
    assert calls < 3 * 1024
    assert stagings < 20 * (1 + len(bad))


def test_an_isolated_batch_is_refused_if_its_records_are_out_of_order():
    """Also behind a record that fails, where `feed` did not come to."""
    records = [doing(0, "raise"), *(raw("payments", offset, {}) for offset in (1, 2, 3, 4, 6, 5))]
    with pytest.raises(OutOfOrder):
        all_of(Bench().fold.isolating(START, Portion(records)))
