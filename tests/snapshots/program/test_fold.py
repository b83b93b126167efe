"""The fold: a batch's effect is that of its records as batches of one."""

import asyncio
from dataclasses import replace
from functools import partial

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from snapreplay.snapshots.errors import RecordError, UsageError
from snapreplay.snapshots.program.anchor import anchor_of
from snapreplay.snapshots.program.app import App
from snapreplay.snapshots.program.codecs import json, nullable, utf8
from snapreplay.snapshots.program.coverage import OutOfOrder
from snapreplay.snapshots.program.fold import ErrorPolicy, Fold
from snapreplay.snapshots.program.ranges import InputRange, SkippedRange
from snapreplay.snapshots.program.record import RawRecord
from snapreplay.snapshots.program.topic import Topic
from snapreplay.snapshots.state.map import MapState
from snapreplay.snapshots.state.store import store_of

payments = Topic("payments", value=nullable(json(dict)))
rates = Topic("rates", value=json(int))
balances = Topic("balances")
LIMITS = {"balances": 500}

app = App(
    "ledger",
    inputs=[payments, rates],
    outputs=[balances],
    state=lambda: MapState(str, dict, default=lambda: {"n": 0, "log": []}),
    version="v1",
)


@app.handler(payments)
def on_payment(record, state, out):
    """Every way to fail there is, each after half of the record's effects."""
    account = state[record.key]
    account["n"] += 1
    account["seen"] = state.stream_time_ms
    out.send(balances, key=record.key, value=account["n"])
    match (record.value or {}).get("do"):
        case "raise":
            raise ValueError("no")
        case "undeclared":
            out.send(Topic("nowhere"), key="a", value=1)
        case "oversize":
            out.send(balances, key="a", value="x" * 1000)
        case "unwritable":
            account["log"].append({1, 2})
        case "wide":
            account["n"] = 2**70
        case "alias":
            state["alias/a"] = state["alias/b"] = account
        case "delete":
            state.pop("rate", None)
        case "answer":
            return 5
        case _:
            pass
    return None


@app.handler(rates)
def on_rate(record, state, out):
    state["rate"] = {"n": record.value, "log": []}
    out.send(balances, key=record.key, value=[record.value, len(state)])


def raw(topic, offset, value=None, *, key=b"ada", at=0):
    data = value if value is None or isinstance(value, bytes) else msgspec.json.encode(value)
    return RawRecord(topic, 0, offset, at, key, data)


def doing(offset, what, key=b"ada", at=0):
    return raw("payments", offset, {"do": what}, key=key, at=at)


START = {"payments": 0, "rates": 0}


class Bench:
    """A partition, driven as the service drives it."""

    def __init__(self, policy=ErrorPolicy.DEAD_LETTER):
        self.store = store_of(app.state())
        self.fold = Fold(app, self.store, 0, output_limits=LIMITS, policy=policy)
        self.positions = START
        self.applied = []

    def batch(self, records, *, merge=True, slice_size=3):
        self.fold.begin(self.positions)
        try:
            for start in range(0, len(records), slice_size):
                self.fold.feed(records[start : start + slice_size])
            applied = self.fold.finish()
        except RecordError:
            self.fold.abandon()
            applied = self.fold.isolate(self.positions, records)
        if merge:
            self.store.merge()
        self.positions = applied.positions
        self.applied.append(applied)
        return applied

    def effect(self):
        """What must not depend on batch boundaries."""
        return {
            "digest": self.store.digest,
            "stream_time": self.store.stream_time_ms,
            "outputs": [one for a in self.applied for one in a.outputs],
            "dead": [one for a in self.applied for one in a.dead_letters],
            "errors": [str(one) for a in self.applied for one in a.errors],
            "skipped": offsets(s for a in self.applied for s in a.skipped),
            "count": sum(a.record_count for a in self.applied),
            "positions": self.positions,
        }


def offsets(ranges):
    return {
        (one.topic, offset) for one in ranges for offset in range(one.start_offset, one.end_offset)
    }


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["payments", "payments", "rates"]),
        st.sampled_from([b"ada", b"bob", b"cyd", b"\xff", None]),
        st.sampled_from(
            [
                "ok",
                "ok",
                "ok",
                "null",
                "bad",
                "raise",
                "undeclared",
                "oversize",
                "unwritable",
                "wide",
                "alias",
                "delete",
                "answer",
            ]
        ),
        st.integers(0, 50),
    ),
    max_size=25,
)


def built(steps):
    offset, records = {"payments": 0, "rates": 0}, []
    for topic, key, what, at in steps:
        value = {"null": None, "bad": b"{"}.get(what, {"do": what} if topic == "payments" else at)
        records.append(raw(topic, offset[topic], value, key=key, at=at))
        offset[topic] += 1
    return records


@given(STEPS, st.lists(st.integers(1, 9), max_size=12))
@settings(max_examples=300, deadline=None)
def test_effect_does_not_depend_on_batches(steps, sizes):
    """Any failing records, any cut into batches: state, outputs, dead letters, skips and positions
    agree.
    """
    records = built(steps)
    single, batched = Bench(), Bench()
    for record in records:
        single.batch([record])
    start = 0
    for size in [*sizes, len(records)]:
        batched.batch(records[start : start + size])
        start += size
    assert batched.effect() == single.effect()
    applied = offsets(r for a in batched.applied for r in a.ranges) - batched.effect()["skipped"]
    assert len(applied) == batched.effect()["count"]


@given(STEPS)
@settings(max_examples=100, deadline=None)
def test_policy_fail_applies_exactly_the_good_prefix(steps):
    """The first failing record and those behind it leave nothing, and are not covered."""
    records = built(steps)
    reference, bench = Bench(ErrorPolicy.FAIL), Bench(ErrorPolicy.FAIL)
    good = 0
    for record in records:
        if reference.batch([record]).failure:
            break
        good += 1
    applied = bench.batch(records)
    assert bench.effect() == {**reference.effect(), "positions": applied.positions}
    assert (applied.failure is None) == (good == len(records))
    assert sum(one.record_count for one in applied.ranges) == good
    if applied.failure is not None:
        failing = records[good]
        assert applied.failure.record_id == f"{failing.topic}-0-{failing.offset}"
        assert applied.positions[failing.topic] == failing.offset


def test_applied_describes_the_batch():
    """Ranges in the order applied, positions, anchors, outputs and stream time of a batch of two
    inputs.
    """
    records = [
        raw("payments", 3, {}, at=50),
        raw("rates", 1, 7, at=40),
        raw("payments", 6, {}, at=30),
    ]
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
    assert len(applied.sealed.changes) == 2


def test_skipped_record_leaves_nothing_and_becomes_a_dead_letter():
    """Half of a record's effects never stay (review A6): no change, no output, no stream time, no
    anchor.
    """
    good, bad = raw("payments", 0, {}, at=10), doing(1, "raise", key=b"bob", at=99)
    bench = Bench()
    applied = bench.batch([good, bad])
    only_good = Bench()
    only_good.batch([good])
    assert bench.store.digest == only_good.store.digest
    assert applied.stream_time_ms == bench.store.stream_time_ms == 10
    assert applied.anchors == {"payments": anchor_of(good)}
    assert applied.skipped == [SkippedRange("payments", 1, 2)]
    assert (applied.record_count, applied.ranges) == (1, [InputRange("payments", 0, 2, 2)])
    assert len(applied.outputs) == 1
    [letter], [error] = applied.dead_letters, applied.errors
    assert (letter.topic, letter.key, letter.value) == ("ledger-dead-letters", b"bob", bad.value)
    assert dict(letter.headers)["__snapreplay.errors.offset"] == b"1"
    assert dict(letter.headers)["__snapreplay.errors.exception"] == b"ValueError"
    assert error.record_id == "payments-0-1"


def test_first_record_failing_gives_an_empty_batch_with_the_failure():
    """Nothing is covered, nothing changed, and the failure says why."""
    bench = Bench(ErrorPolicy.FAIL)
    applied = bench.batch([doing(0, "raise", at=5), raw("payments", 1, {})])
    assert (applied.ranges, applied.positions, applied.record_count) == ([], START, 0)
    assert (applied.outputs, applied.sealed.changes, applied.stream_time_ms) == ([], {}, -1)
    assert applied.failure is not None
    assert isinstance(applied.failure.__cause__, ValueError)


def test_errors_of_the_state_are_found_when_staged_and_named_by_isolate():
    """`finish` does not know the record of a value that cannot be written; `isolate` does."""
    records = [raw("payments", 0, {}), doing(1, "unwritable"), raw("payments", 2, {})]
    bench = Bench()
    bench.fold.begin(START)
    bench.fold.feed(records)
    with pytest.raises(RecordError):
        bench.fold.finish()
    bench.fold.abandon()
    applied = bench.fold.isolate(START, records)
    assert [one.record_id for one in applied.errors] == ["payments-0-1"]


def test_handler_sees_the_record_and_stream_time_before_it_is_called():
    """Stream time is the highest timestamp so far, this record's included; key and value are
    decoded.
    """
    seen = []
    watching = App("watch", inputs=[payments], state=lambda: MapState(str, int))

    @watching.handler(payments)
    def on_record(record, state, out):
        seen.append(
            (record.id, record.key, record.value, record.timestamp_ms, state.stream_time_ms)
        )

    fold = Fold(watching, store_of(watching.state()), 5)
    fold.begin({"payments": 0})
    fold.feed([raw("payments", 0, {"a": 1}, at=7), raw("payments", 1, None, at=3)])
    fold.feed([raw("payments", 2, {}, at=9)])
    assert seen == [
        ("payments-5-0", "ada", {"a": 1}, 7, 7),
        ("payments-5-1", "ada", None, 3, 7),
        ("payments-5-2", "ada", {}, 9, 9),
    ]


@pytest.mark.parametrize(
    "error", [MemoryError, ImportError, asyncio.CancelledError, KeyboardInterrupt, SystemExit]
)
@pytest.mark.parametrize("isolated", [False, True])
def test_errors_of_the_process_are_no_handler_errors(error, isolated):
    """They pass: the record is not dead-lettered for them."""
    breaking = App("breaking", inputs=[payments], state=lambda: MapState(str, int))

    @breaking.handler(payments)
    def on_record(record, state, out):
        raise error

    fold = Fold(breaking, store_of(breaking.state()), 0, policy=ErrorPolicy.DEAD_LETTER)
    fold.begin({"payments": 0})
    run = partial(fold.isolate, {"payments": 0}) if isolated else fold.feed
    with pytest.raises(error):
        run([raw("payments", 0, {})])


def test_pipelined_batches_build_on_the_sealed_one():
    """The next batch is applied, and may fail and be isolated, while the last one still commits."""
    piped, plain = Bench(), Bench()
    first, second = (
        [raw("payments", 0, {}, at=1)],
        [doing(1, "raise"), raw("payments", 2, {}, at=2)],
    )
    piped.batch(first, merge=False)
    piped.fold.begin(piped.positions)
    with pytest.raises(RecordError):
        piped.fold.feed(second)
    piped.fold.abandon()
    piped.store.merge()
    piped.applied.append(piped.fold.isolate(piped.positions, second))
    piped.store.merge()
    piped.positions = piped.applied[-1].positions
    for records in (first, second):
        plain.batch(records)
    assert piped.effect() == plain.effect()


def test_abandon_puts_everything_back():
    """State, outputs and stream time are those of the last batch."""
    bench = Bench()
    bench.batch([raw("payments", 0, {}, at=5)])
    before = bench.effect()
    bench.fold.begin(bench.positions)
    bench.fold.feed([raw("payments", 1, {}, at=9)])
    bench.fold.abandon()
    assert bench.effect() == before
    applied = bench.batch([])
    assert (applied.outputs, applied.sealed.changes) == ([], {})


@pytest.mark.parametrize("offset", [0, 1])
def test_records_below_the_position_are_refused(offset):
    """A record fed twice would be counted twice: the caller's bug, no handler error."""
    bench = Bench()
    bench.batch([raw("payments", 0, {}), raw("payments", 1, {})])
    bench.fold.begin(bench.positions)
    with pytest.raises(OutOfOrder):
        bench.fold.feed([raw("payments", offset, {})])


class Sum:
    """State that is no map and cannot undo."""

    def __init__(self):
        self.total = 0

    def snapshot(self):
        yield b"total", self.total.to_bytes(8, "big")

    def restore(self, entries):
        self.total = int.from_bytes(dict(entries)[b"total"], "big")


class UndoableSum(Sum):
    def begin(self):
        self.before = self.total

    def rollback(self):
        self.total = self.before


def summing(factory):
    summing_app = App("sum", inputs=[rates], state=factory)

    @summing_app.handler(rates)
    def on_rate(record, state, out):
        state.total += record.value
        if record.value < 0:
            raise ValueError(record.value)

    return summing_app


def test_state_that_cannot_undo_refuses_dead_letters_and_isolation():
    """Half a record would stay: refused by name, before any record."""
    summing_app = summing(Sum)
    with pytest.raises(UsageError, match="dead_letter"):
        Fold(summing_app, store_of(Sum()), 0, policy=ErrorPolicy.DEAD_LETTER)
    fold = Fold(summing_app, store_of(Sum()), 0)
    with pytest.raises(UsageError, match="undo"):
        fold.isolate({"rates": 0}, [raw("rates", 0, 1)])


def test_abandoning_a_state_that_cannot_undo_makes_it_unusable():
    """It holds half a batch: nothing may be sealed or written from it before it is restored."""
    store = store_of(Sum())
    fold = Fold(summing(Sum), store, 0)
    fold.begin({"rates": 0})
    with pytest.raises(RecordError):
        fold.feed([raw("rates", 0, 5), raw("rates", 1, -1)])
    fold.abandon()
    with pytest.raises(RuntimeError):
        fold.begin({"rates": 0})
    store.clear()
    fold.begin({"rates": 0})
    fold.feed([raw("rates", 0, 5)])
    assert store.view.total == 5


def test_state_that_can_undo_is_isolated_like_a_map():
    """begin and rollback are called per record: the failing one leaves nothing."""
    store = store_of(UndoableSum())
    fold = Fold(summing(UndoableSum), store, 0, policy=ErrorPolicy.DEAD_LETTER)
    records = [raw("rates", offset, value) for offset, value in enumerate([5, -3, 7])]
    fold.begin({"rates": 0})
    with pytest.raises(RecordError):
        fold.feed(records)
    fold.abandon()
    applied = fold.isolate({"rates": 0}, records)
    assert store.view.total == 12
    assert applied.skipped == [SkippedRange("rates", 1, 2)]


def test_applied_is_not_changed_by_the_next_batch():
    """The transaction of a batch is under way while the next one is applied."""
    bench = Bench()
    first = bench.batch([raw("payments", 0, {})])
    kept = replace(first, outputs=list(first.outputs), positions=dict(first.positions))
    bench.batch([raw("payments", 1, {}), doing(2, "raise")])
    assert first == kept


def test_codecs_decode_each_record_with_its_own_topic():
    """Inputs of different types alternate within one call."""
    applied = Bench().batch(
        [raw("rates", 0, 3), raw("payments", 0, None), raw("rates", 1, 4)], slice_size=9
    )
    assert [one.value for one in applied.outputs] == [b"[3,1]", b"1", b"[4,2]"]
    assert utf8.decode(applied.outputs[0].key or b"") == "ada"
