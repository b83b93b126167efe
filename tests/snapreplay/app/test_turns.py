"""Tests of what stream time does: against the same by hand, in every cut into batches, and in every recovery."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from snapreplay.app.app import App
from snapreplay.app.batch import ErrorPolicy
from snapreplay.app.codecs import json
from snapreplay.app.fold import Fold
from snapreplay.app.record import RawRecord
from snapreplay.app.topic import Topic
from snapreplay.errors import RecordError
from snapreplay.state.map import MapState
from snapreplay.state.steps import all_of
from snapreplay.state.stores import Stores
from tests.support.timed_bench import TTL, ByHand, TimedBench, step

DOES = ["put", "touch", "get", "keep", "delete", "set", "set", "other", "cancel", "fail"]
STEPS = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from(DOES), st.integers(0, 30), st.integers(-3, 25)), max_size=25
)


def built(drawn):
    at, records = 1, []
    for offset, (key, do, number, later) in enumerate(drawn):
        at = max(0, at + later)
        records.append((offset, key, do, number, at))
    return records


@given(STEPS, st.lists(st.integers(1, 6), max_size=12), st.integers(1, 6), st.integers(0, 60))
@example([("a", "set", 20, -1), ("a", "get", 0, 25)], [2], 6, 0)  # a timer that sets its own past
@settings(max_examples=60, deadline=None)
def test_every_cut_and_every_recovery_is_the_same_by_hand(drawn, sizes, events_max, idle_ms):
    """Outputs, dead letters, entries, timers and stream time: one by one, in batches of any size with room for any
    number of events, replayed and by changes up to any batch."""
    plan, hand, bench = built(drawn), ByHand(), TimedBench()
    for one in plan:
        hand.record(*one)
    records, start = [step(*one) for one in plan], 0
    for size in [*sizes, len(records)]:
        bench.feed(records[start : start + size], events_max)
        start += size
    last_ms = hand.now + idle_ms
    hand.turn(last_ms)
    hand.now = last_ms
    bench.batch([], events_max, last_ms)
    while bench.done[-1][2].is_full:
        bench.batch([], events_max, last_ms)
    state = bench.store.view
    assert bench.told() == hand.told
    assert bench.letters() == hand.letters
    assert dict(state.items.items()) == {key: value for key, (value, _) in hand.items.items()}
    assert dict(state.kept.items()) == {key: value for key, (value, _) in hand.kept.items()}
    assert bench.store.stream_time_ms == hand.now
    assert bench.store.timetable.pending_timers == len(hand.timers)
    bench.store.rollback()
    assert len(bench.store.timetable.timers.agenda) == len(hand.timers)
    for count in {len(bench.done), len(bench.done) // 2}:
        digest = bench.done[count - 1][2].sealed.digest if count else None
        for store in (bench.replayed(count), bench.changed(count)):
            assert digest is None or store.digest == digest


def test_a_timer_comes_before_an_entry_that_expires_in_the_same_millisecond():
    """It still sees the entry, in the store whose name comes first, too."""
    bench = TimedBench()
    bench.feed([step(0, "a", "keep", 1, 1), step(1, "a", "other", TTL, 1)], 9)
    bench.feed([step(2, "b", "get", 0, 1 + TTL)], 9)
    assert ["bell", 1 + TTL, ["a"]] in bench.told()


def test_a_timer_is_due_at_its_time_after_a_snapshot():
    """Timers are entries, and so are the times of periodic ones: loading them puts them on the agenda."""
    bench = TimedBench()
    bench.feed([step(0, "a", "other", 8, 1), step(1, "b", "keep", 2, 1)], 9)
    again = bench.app.new_store()
    cursor = bench.store.mark()
    while slices := all_of(cursor.slicing(1 << 20)):
        again.load(slices, cursor.store)
    assert again.timetable.next_due_ms == bench.store.timetable.next_due_ms
    assert again.timetable.next_due_ms.keys() == {"_timers", "_periods", "kept"}


def test_a_failing_timer_leaves_stream_time_as_it_was():
    """It did not fire. What was sent before it in its batch is sent; so it is for a dead letter."""
    for policy, at_ms in ((ErrorPolicy.FAIL, 3), (ErrorPolicy.DEAD_LETTER, 9)):
        bench = TimedBench(policy)
        plan = [("a", "set", 5 + 6, 1), ("b", "put", 1, 3), ("c", "put", 1, 9)]
        bench.batch([step(n, *one) for n, one in enumerate(plan)], 9)
        ((_, _, applied),) = bench.done
        assert bench.store.stream_time_ms == applied.stream_time_ms == at_ms
        assert [one[:2] for one in bench.told() if one[0] == "record"][:2] == [["record", 0], ["record", 1]]
        assert (applied.failure is None) is (policy is ErrorPolicy.DEAD_LETTER)


def test_a_batch_without_room_takes_no_record():
    """What was due filled it: so a batch of one thing is a record or a timer, and a refused one has a name."""
    bench = TimedBench()
    bench.feed([step(0, "a", "put", 1, 1)], 9)
    left = bench.batch([step(1, "a", "put", 1, 16)], 1)
    applied = bench.done[-1][2]
    assert (len(left), applied.record_count, applied.timers_count) == (1, 0, 1)


ORDERS, SEEN, AT_MS = Topic("orders"), Topic("seen", value=json()), 1_700_000_000_000


def seeing():
    """A fold of an app that sends what happens, and with each record what it sees. A value is what to do: (set, ms),
    (keep, 0) or (cancel, 0)."""
    app = App(
        "seeing",
        inputs=[ORDERS],
        outputs=[SEEN],
        state=lambda: Stores(kept=MapState(str, int, ttl_ms=5_000), plain=MapState(str, int)),
        version="1",
    )

    @app.handler(ORDERS)
    def on_order(record, state, out):
        out.send(SEEN, key=record.key, value=["order", record.timestamp_ms - AT_MS, list(state.kept)])
        match record.value:
            case ["set", later_ms]:
                state.plain.schedule(record.key, record.timestamp_ms + later_ms, timer="ring")
            case ["cancel", _]:
                state.plain.cancel(record.key, timer="ring")
            case ["keep", _]:
                state.kept[record.key] = 1
            case _:
                pass

    @app.timer("ring")
    def on_ring(timer, state, out):
        out.send(SEEN, key=timer.key, value=["ring", timer.at_ms - AT_MS, list(state.kept)])

    return Fold(app, app.new_store(), 0)


def orders(first, *steps):
    """Records of the key "a": (milliseconds after AT_MS, what to do)."""
    return [
        RawRecord("orders", 0, first + n, AT_MS + at_ms, b"a", json().encode(do)) for n, (at_ms, do) in enumerate(steps)
    ]


@pytest.mark.parametrize(
    ("do", "second"),
    [
        (["set", 2_000], ["ring", 2_000, []]),
        (["set", -2_000], ["ring", -2_000, []]),
        (["set", 20_000], ["order", 10_000, []]),
        (["keep", 0], ["order", 10_000, []]),
    ],
    ids=["timer", "timer of the past", "later timer", "expiry"],
)
def test_what_a_record_sets_is_due_before_the_next_one_of_its_batch(do, second):
    """Nothing was due within hours when the batch began."""
    fold = seeing()
    fold.begin({"orders": 0})
    fold.feed(orders(0, (0, ["set", 9_000_000]), (1, do), (10_000, ["get", 0]), (10_000, ["get", 0])))
    told = [json().decode(each.value) for each in fold.finish().outputs]
    if second[0] == "ring":
        second[1] += 1
    assert told[:2] == [["order", 0, []], ["order", 1, []]]
    assert told[2] == second


def test_what_a_dropped_batch_has_cancelled_is_due():
    fold, offsets = seeing(), {"orders": 0}
    fold.begin(offsets)
    fold.feed(orders(0, (0, ["set", 5_000])))
    offsets = fold.finish().positions
    fold._store.merge()
    fold.begin(offsets)
    fold.feed(orders(1, (1, ["cancel", 0]), (6_000, ["get", 0])))
    fold.abandon()
    fold.begin(offsets)
    fold.feed(orders(1, (6_000, ["get", 0])))
    assert [json().decode(each.value)[0] for each in fold.finish().outputs] == ["ring", "order"]


def test_a_timestamp_far_ahead_is_refused_where_nothing_is_pending():
    """Also behind others of its batch."""
    fold = seeing()
    fold.begin({"orders": 0})
    with pytest.raises(RecordError, match="orders-0-2: the timestamp"):
        fold.feed(orders(0, (0, ["get", 0]), (1, ["get", 0]), (AT_MS * 1000, ["get", 0])))
