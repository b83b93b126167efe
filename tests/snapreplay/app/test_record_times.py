"""Timestamps that a producer of Kafka may write: none, of another unit, of years that have not come."""

from contextlib import nullcontext

import pytest

from snapreplay import App, MapState, Topic
from snapreplay.app.batch import Applied, ErrorPolicy, Portion
from snapreplay.app.fold import Fold
from snapreplay.app.ranges import SkippedRange
from snapreplay.app.record import Output, RawRecord, hashing
from snapreplay.errors import RecordError, UsageError
from snapreplay.state.steps import all_of
from snapreplay.testing import Harness, record
from snapreplay.times import is_far_ahead

NOW_MS = 1_790_000_000_000
YEAR_MS = 365 * 86_400_000
bills, reminders = Topic("bills"), Topic("reminders")


def dunning(*, is_timed: bool = True) -> App[MapState[str, int]]:
    """Passes each record on with its time, and asks to be called a minute after it, and each minute from then on: for a
    day, so that a program that lets all years pass fails the test before it fills the memory."""
    app: App[MapState[str, int]] = App("dunning", inputs=[bills], outputs=[reminders], state=lambda: MapState(str, int))

    @app.handler(bills)
    def on_bill(record, state, out):
        state[record.key] = record.timestamp_ms
        out.send(reminders, key=record.key, value=record.timestamp_ms, timestamp_ms=record.timestamp_ms)
        if is_timed:
            state.schedule(record.key, record.timestamp_ms + 60_000, timer="remind")

    if is_timed:

        @app.timer("remind")
        def on_remind(timer, state, out):
            out.send(reminders, key=timer.key, value="reminded")
            if timer.at_ms < NOW_MS + 86_400_000:
                state.schedule(timer.key, timer.at_ms + 60_000, timer="remind")

        @app.timer("hourly", every_ms=3_600_000)
        def hourly(timer, state, out):
            out.send(reminders, key="all", value="hourly")

    return app


def sent(harness):
    return [(each.value, each.timestamp_ms) for each in harness.outputs(reminders) if each.value != "hourly"]


def test_a_record_without_a_timestamp_comes_at_stream_time():
    """It can be passed on and set a timer as the docs show, and does not move stream time."""
    harness = Harness(dunning())
    harness.feed(bills, key="ada", value=1, timestamp_ms=NOW_MS)
    harness.feed(bills, key="bob", value=1, timestamp_ms=-1)
    harness.feed_batch([RawRecord("bills", 0, 2, -5, b"cy", b"1"), record(bills, key="dee", value=1)])
    assert sent(harness) == [(NOW_MS, NOW_MS)] * 3 + [(NOW_MS + 1, NOW_MS + 1)]
    harness.crash()
    harness.feed(bills, key="eve", value=1, timestamp_ms=NOW_MS + 60_000)
    assert [value for value, _ in sent(harness)][4:] == ["reminded"] * 3 + [NOW_MS + 60_000]


@pytest.mark.parametrize(("given_ms", "at_ms"), [(None, NOW_MS), (-1, None), (7, 7)])
@pytest.mark.parametrize("policy", ErrorPolicy)
def test_an_output_has_the_time_of_its_record(given_ms, at_ms, policy):
    """Unless it has one of its own; −1 stands for the time of writing. The fingerprint has what was given, as in the
    logs of earlier builds. Records that fail take their times with them."""
    app: App[MapState[str, int]] = App("times", inputs=[bills], outputs=[reminders], state=lambda: MapState(str, int))

    @app.handler(bills)
    def on_bill(record, state, out):
        out.send(reminders, key=record.key, value=1, timestamp_ms=given_ms)
        if record.value == "bad":
            raise ValueError

    harness = Harness(app, policy=policy)
    records = [record(bills, key="a", value=v, timestamp_ms=NOW_MS - n) for n, v in enumerate(["ok", "bad", "ok"])]
    with nullcontext() if policy is ErrorPolicy.DEAD_LETTER else pytest.raises(RecordError):
        harness.feed_batch(records)
    sent_at = [each.timestamp_ms for each in harness.outputs(reminders)]
    assert sent_at == [at_ms, None if at_ms is None else at_ms - 2 * (at_ms == NOW_MS)][: len(sent_at)]
    assert len(sent_at) == (2 if policy is ErrorPolicy.DEAD_LETTER else 1)
    harness.crash()


def test_a_time_that_was_not_given_is_no_part_of_the_fingerprint():
    app = dunning(is_timed=False)
    app.handlers[bills] = lambda record, state, out: out.send(reminders, key="a", value=1)
    fold = Fold(app, app.new_store(), 0)
    fold.begin({"bills": 0})
    fold.feed([RawRecord("bills", 0, 0, NOW_MS, b"a", b"1")])
    applied = fold.finish()
    plain = Output("reminders", b"a", b"1", None, True, None)
    assert applied.outputs_xxh64 == all_of(hashing([plain]))
    assert [each.timestamp_ms for each in applied.outputs] == [NOW_MS]


FAR = {
    "microseconds": NOW_MS * 1000,
    "nanoseconds": NOW_MS * 1_000_000,
    "year 9999": 253_402_300_799_000,
    "32 bits of seconds": 2_147_483_647_000,
    "the largest": (1 << 63) - 1,
}


@pytest.mark.parametrize("at_ms", FAR.values(), ids=FAR)
@pytest.mark.parametrize("together", [True, False])
def test_a_record_of_years_that_have_not_come_is_put_aside(at_ms, together):
    """By the policy: it is named, no timer fires for it, and the records behind it do not wait. A replay and the
    recorded changes lead to the same."""
    harness = Harness(dunning(), policy=ErrorPolicy.DEAD_LETTER)
    records = [
        record(bills, key="ada", value=1, timestamp_ms=NOW_MS),
        record(bills, key="far", value=1, timestamp_ms=at_ms),
        record(bills, key="bob", value=1, timestamp_ms=NOW_MS + 60_000),
    ]
    for some in [records] if together else [[each] for each in records]:
        harness.feed_batch(some)
    assert [value for value, _ in sent(harness)] == [NOW_MS, "reminded", NOW_MS + 60_000]
    (error,) = harness.errors
    assert f"bills-0-1: the timestamp {at_ms} lies " in error.message
    assert (error.facts["timestamp_ms"], error.facts["stream_time_ms"]) == (at_ms, NOW_MS)
    (letter,) = harness.dead_letters
    assert dict(letter.headers)["__snapreplay.errors.timestamp_ms"] == b"%d" % at_ms
    harness.crash()
    harness.feed(bills, key="cy", value=1, timestamp_ms=NOW_MS + 120_000)
    assert len(sent(harness)) == 6


def bounded(**bounds: int) -> App[MapState[str, int]]:
    """Two inputs, each with its own bound, and a timer."""
    inputs = [Topic("a", ahead_max_ms=bounds.get("a")), Topic("b", ahead_max_ms=bounds.get("b"))]
    app: App[MapState[str, int]] = App("bounded", inputs=inputs, state=lambda: MapState(str, int, ttl_ms=1_000))
    for topic in inputs:
        app.handler(topic)(lambda record, state, out: state.update({record.key: record.value}))
    return app


@pytest.mark.parametrize("together", [True, False])
def test_an_input_may_have_a_bound_of_its_own(together):
    """The first record may have any time. A record too far ahead is put aside, by name, and moves nothing. The
    other input may go further."""
    app = bounded(a=5_000)
    first, second = app.inputs
    harness = Harness(app, policy=ErrorPolicy.DEAD_LETTER)
    steps = [(first, 0), (first, 5_000), (first, 10_001), (first, 9_000), (second, 100_000), (first, 105_000)]
    records = [record(topic, key="k", value=n, timestamp_ms=NOW_MS + at) for n, (topic, at) in enumerate(steps)]
    for some in [records] if together else [[each] for each in records]:
        harness.feed_batch(some)
    (error,) = harness.errors
    assert str(error.record_id) == "a-0-2"
    assert "lies 5,001 ms after stream time" in error.message
    assert "its input has ahead_max_ms=5000" in error.message
    assert (dict(harness.state), harness.stream_time_ms) == ({"k": 5}, NOW_MS + 105_000)
    harness.crash()


@pytest.mark.parametrize(("before", "now", "recorded_at"), [(5_000, 50_000, 0), (None, 5_000, 10_000)])
@pytest.mark.parametrize("is_stopped", [False, True], ids=["as a whole", "one by one"])
def test_a_replay_asks_the_log_whether_a_dead_letter_moved_stream_time(before, now, recorded_at, is_stopped):
    """The bound may be another one than when the record was processed."""
    records = [RawRecord("a", 0, 0, NOW_MS, b"k", b"1"), RawRecord("a", 0, 1, NOW_MS + 10_000, b"k", b"{")]
    if is_stopped:
        records.insert(1, RawRecord("b", 0, 0, NOW_MS, b"k", b"{"))
    positions = {"a": 0, "b": 0}
    found: list[Applied] = []
    for app, is_replay in ((bounded(a=before), False), (bounded(a=now), True)):
        fold = Fold(app, app.new_store(), 0, policy=ErrorPolicy.DEAD_LETTER)
        portion = Portion(records)
        if is_replay:
            portion = Portion(records, found[0].stream_time_ms, 0, skipped=found[0].skipped, is_recorded=True)
        found.append(all_of(fold.isolating(positions, portion)))
    assert [each.stream_time_ms for each in found] == [NOW_MS + recorded_at] * 2
    assert [each.expired_count for each in found] == [1 if recorded_at else 0] * 2


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True])
def test_a_bound_that_cannot_be_is_refused(wrong):
    with pytest.raises(UsageError, match=r"topic a: ahead_max_ms=.* is not a number of milliseconds"):
        Topic("a", ahead_max_ms=wrong)


def test_an_app_without_timers_takes_any_timestamp():
    """Nothing would fire."""
    harness = Harness(dunning(is_timed=False))
    harness.feed(bills, key="far", value=1, timestamp_ms=NOW_MS * 1000)
    harness.feed(bills, key="ada", value=1, timestamp_ms=NOW_MS)
    assert dict(harness.state) == {"far": NOW_MS * 1000, "ada": NOW_MS}
    harness.crash()


def test_a_replay_does_what_the_log_says():
    """An earlier version has processed such a record: its replay does, too."""
    app = dunning()
    store = app.new_store()
    fold = Fold(app, store, 0)
    records = [RawRecord("bills", 0, 0, NOW_MS, b"ada", b"1"), RawRecord("bills", 0, 1, NOW_MS * 1000, b"far", b"1")]
    portion = Portion(records[1:], NOW_MS * 1000, 0, is_recorded=True)
    applied = all_of(fold.replaying({"bills": 1}, portion))
    assert (applied.record_count, applied.stream_time_ms) == (1, NOW_MS * 1000)
    live = Fold(app, app.new_store(), 0)
    live.begin({"bills": 0})
    with pytest.raises(RecordError, match="bills-0-1: the timestamp"):
        live.feed(records)


@pytest.mark.parametrize("is_stopped", [False, True], ids=["as a whole", "one by one"])
def test_a_replay_moves_stream_time_as_far_as_the_log_says(is_stopped):
    """An earlier version let the timestamp of a dead letter count, however far ahead: what was due fired before it."""
    app: App[MapState[str, int]] = App("once", inputs=[bills], outputs=[reminders], state=lambda: MapState(str, int))

    @app.handler(bills)
    def on_bill(record, state, out):
        state.schedule(record.key, record.timestamp_ms + 60_000, timer="remind")

    @app.timer("remind")
    def on_remind(timer, state, out):
        out.send(reminders, key=timer.key, value="reminded")

    later_ms = NOW_MS + 11 * YEAR_MS
    records = [RawRecord("bills", 0, 0, NOW_MS, b"ada", b"1"), RawRecord("bills", 0, 2, later_ms, b"far", b"{")]
    if is_stopped:
        records.insert(1, RawRecord("bills", 0, 1, NOW_MS, b"bob", b"{"))
    for recorded_ms, count in ((later_ms, 1), (NOW_MS, 0)):
        fold = Fold(app, app.new_store(), 0, policy=ErrorPolicy.DEAD_LETTER)
        portion = Portion(records, recorded_ms, 0, skipped=(SkippedRange("bills", 2, 3),), is_recorded=True)
        applied = all_of(fold.replaying({"bills": 0}, portion))
        assert (applied.stream_time_ms, len(applied.outputs)) == (recorded_ms, count)


@pytest.mark.parametrize(
    ("stream_time_ms", "at_ms", "is_far"),
    [
        (-1, NOW_MS, False),
        (-1, 2_524_608_000_000, False),
        (-1, 2_524_608_000_001, True),
        (1_790_000_000, NOW_MS, False),  # the record before had seconds
        (0, NOW_MS, False),
        (NOW_MS, NOW_MS + 9 * YEAR_MS, False),
        (NOW_MS, NOW_MS + 11 * YEAR_MS, True),
        (NOW_MS, -1, False),
        (NOW_MS * 1000, NOW_MS * 1000 + 1, False),
        (NOW_MS * 1000, NOW_MS, False),
    ],
)
def test_what_is_far_ahead(stream_time_ms, at_ms, is_far):
    assert is_far_ahead(at_ms, stream_time_ms) is is_far


def test_a_replay_skips_a_far_record_although_others_reach_its_time():
    """Each of them lies within ten years of the one before: the skipped one did not move stream time, the timer that is
    due before it fires later, and sees what the records between have done."""
    app: App[MapState[str, int]] = App("steps", inputs=[bills], outputs=[reminders], state=lambda: MapState(str, int))

    @app.handler(bills)
    def on_bill(record, state, out):
        state[record.key] = state.get(record.key, 0) + 1
        state.schedule(record.key, record.timestamp_ms + YEAR_MS, timer="remind")

    @app.timer("remind")
    def on_remind(timer, state, out):
        out.send(reminders, key=timer.key, value=state[timer.key])

    harness = Harness(app, policy=ErrorPolicy.DEAD_LETTER)
    years = (0, 0.5, 11, 0.75, 10, 12)
    harness.feed_batch([record(bills, key="ada", value=1, timestamp_ms=NOW_MS + int(n * YEAR_MS)) for n in years])
    assert [error.facts["timestamp_ms"] for error in harness.errors] == [NOW_MS + 11 * YEAR_MS]
    assert [each.value for each in harness.outputs(reminders)] == [3, 4]
    harness.crash()


def test_a_record_that_was_skipped_above_the_recorded_time_has_not_moved_it():
    """Without timers a far timestamp counts, but not that of a dead letter: the record behind them comes at the same
    time in a replay."""
    app: App[MapState[str, int]] = App("stamps", inputs=[bills], state=lambda: MapState(str, int))

    @app.handler(bills)
    def on_bill(record, state, out):
        if record.key == "poison":
            raise ValueError(record.key)
        state[record.key] = record.timestamp_ms

    harness = Harness(app, policy=ErrorPolicy.DEAD_LETTER)
    times = {"ada": NOW_MS, "poison": NOW_MS * 1000 + 5, "micro": NOW_MS * 1000, "none": -1}
    harness.feed_batch([record(bills, key=key, value=1, timestamp_ms=at_ms) for key, at_ms in times.items()])
    assert dict(harness.state) == {"ada": NOW_MS, "micro": NOW_MS * 1000, "none": NOW_MS * 1000}
    harness.crash()
