"""Windows and sessions of an app, against models that search everything."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from snapreplay import App, Closed, MapState, Out, Record, RecordError, Stores, Topic, UsageError, json
from snapreplay.app.batch import ErrorPolicy
from snapreplay.testing import Harness, check, record
from tests.support import windows_by_hand

clicks, counted, late_clicks = Topic("clicks", value=json(int)), Topic("counted"), Topic("late", value=json(int))

Events = list[tuple[str, int]]
events = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 60)), max_size=30)
WindowState = MapState[tuple[str, int], list[int]]


def make() -> App[WindowState]:
    return App(
        "windowed",
        inputs=[clicks],
        outputs=[counted, late_clicks],
        state=lambda: MapState(tuple[str, int], list[int], default=list, ordered=True),
    )


def collects(app: App[WindowState], windows: Any) -> None:
    """Let each window hold the numbers of its records."""

    @app.handler(clicks)
    def on_click(record: Record[str, int], state: WindowState, out: Out) -> None:
        for window in windows.of(record, state, out):
            state[window].append(record.value)


def send(closed: Closed[str, list[int]], state: WindowState, out: Out) -> None:
    out.send(counted, key=closed.key, value=[closed.start_ms, closed.end_ms, sorted(closed.value)])


def windowed(size_ms: int, every_ms: int, grace_ms: int) -> App[WindowState]:
    app = make()
    collects(app, app.window("w", size_ms=size_ms, every_ms=every_ms, grace_ms=grace_ms, late=late_clicks)(send))
    return app


def sessioned(gap_ms: int, grace_ms: int) -> App[WindowState]:
    app = make()
    made = app.session("w", gap_ms=gap_ms, grace_ms=grace_ms, merge=lambda one, other: one + other, late=late_clicks)
    collects(app, made(send))
    return app


def fed(app: App[Any], given: Events, batches: int = 1) -> Harness[Any]:
    """Feed the events, crash, and close every window."""
    harness = Harness(app)
    records = [record(clicks, key=key, value=n, timestamp_ms=at) for n, (key, at) in enumerate(given)]
    for start in range(0, len(records), batches):
        harness.feed_batch(records[start : start + batches])
    harness.crash()
    harness.advance_time(10_000)
    harness.crash()
    assert dict(harness.state) == {}
    return harness


def sent(harness: Harness[Any]) -> list[tuple[str, int, int, tuple[int, ...]]]:
    return sorted((each.key, *each.value[:2], tuple(each.value[2])) for each in harness.outputs(counted))


def lates(harness: Harness[Any]) -> list[int]:
    assert harness.late.total() == len(harness.outputs(late_clicks))
    return [each.value for each in harness.outputs(late_clicks)]


@settings(max_examples=50)
@given(events, st.integers(1, 20), st.integers(1, 20), st.integers(0, 20), st.integers(1, 9))
def test_every_record_counts_in_each_window_that_is_open(given, one, other, grace_ms, batches):
    """A window is open until the records have come to its end plus the grace."""
    size_ms, every_ms = max(one, other), min(one, other)
    expected, late = windows_by_hand.windows(given, size_ms, every_ms, grace_ms)
    harness = fed(windowed(size_ms, every_ms, grace_ms), given, batches)
    assert (sent(harness), lates(harness)) == (expected, late)


@settings(max_examples=50)
@given(events, st.integers(1, 20), st.integers(1, 9))
@example([("a", 0), ("a", 20), ("a", 10)], 15, 1)
def test_sessions_are_what_lies_within_the_gap_in_any_order(given, gap_ms, batches):
    """With a grace for which nothing is late: the sorted times, cut where nothing came for the gap."""
    expected = []
    for key in "ab":
        times = sorted((at_ms, number) for number, (other, at_ms) in enumerate(given) if other == key)
        starts = [n for n, (at_ms, _) in enumerate(times) if n == 0 or at_ms - times[n - 1][0] >= gap_ms]
        for start, end in zip(starts, [*starts, len(times)][1:], strict=True):
            part = times[start:end]
            expected.append((key, part[0][0], part[-1][0] + gap_ms, tuple(sorted(n for _, n in part))))
    harness = fed(sessioned(gap_ms, 100), given, batches)
    assert (sent(harness), lates(harness)) == (sorted(expected), [])


@settings(max_examples=50)
@given(events, st.integers(1, 20), st.integers(0, 20), st.integers(1, 9))
def test_a_late_record_still_joins_a_session_that_is_open(given, gap_ms, grace_ms, batches):
    """And makes none of its own: that would have closed."""
    expected, late = windows_by_hand.sessions(given, gap_ms, grace_ms)
    harness = fed(sessioned(gap_ms, grace_ms), given, batches)
    assert (sent(harness), lates(harness)) == (expected, late)


def test_a_record_that_failed_is_not_counted_as_late():
    """It is a dead letter, and nothing else."""
    app = make()

    @app.window("w", size_ms=10, grace_ms=0, late=late_clicks)
    def close(closed: Closed[str, list[int]], state: WindowState, out: Out) -> None:
        pass

    @app.handler(clicks)
    def on_click(record: Record[str, int], state: WindowState, out: Out) -> None:
        close.of(record, state, out)
        if record.value == 7:
            raise ValueError

    harness = Harness(app, policy=ErrorPolicy.DEAD_LETTER)
    harness.feed_batch([record(clicks, key="a", value=n, timestamp_ms=at) for n, at in ((1, 50), (7, 3), (2, 4))])
    assert (harness.late, lates(harness), len(harness.dead_letters)) == (Counter(w=1), [2], 1)


def failing(closed: Closed[str, list[int]], state: WindowState, out: Out) -> None:
    if 7 in closed.value:
        raise ValueError
    send(closed, state, out)


def failing_windows() -> App[WindowState]:
    app = make()
    collects(app, app.window("w", size_ms=10, grace_ms=0)(failing))
    return app


def failing_sessions() -> App[WindowState]:
    app = make()
    collects(app, app.session("w", gap_ms=10, grace_ms=0, merge=lambda one, other: one + other)(failing))
    return app


@pytest.mark.parametrize("make_app", [failing_windows, failing_sessions])
@pytest.mark.parametrize("batches", [1, 9])
def test_what_could_not_be_closed_is_left_in_no_store(make_app, batches):
    """Its timer is a dead letter, and no other one would close it; live as well as in recovery."""
    app = make_app()
    given = [record(clicks, key="a", value=n, timestamp_ms=at) for n, at in ((1, 0), (7, 30), (3, 60), (4, 90))]
    harness = Harness(app, policy=ErrorPolicy.DEAD_LETTER)
    for start in range(0, len(given), batches):
        harness.feed_batch(given[start : start + batches])
    harness.crash()
    harness.advance_time(200)
    harness.crash()
    assert (dict(harness.state), len(harness.dead_letters)) == ({}, 1)
    assert [each[-1] for each in sent(harness)] == [(1,), (3,), (4,)]
    check(app, given, policy=ErrorPolicy.DEAD_LETTER, until_ms=200)


def test_a_record_without_a_time_lies_in_no_window():
    """Until one before it has one: then it lies where stream time is."""
    harness = Harness(windowed(10, 10, 0))
    with pytest.raises(RecordError, match="no timestamp, nor has one before it: it belongs to no window"):
        harness.feed(clicks, key="a", value=1, timestamp_ms=-1)
    harness.feed(clicks, key="a", value=1, timestamp_ms=12)
    harness.feed(clicks, key="a", value=2, timestamp_ms=-1)
    assert dict(harness.state) == {("a", 10): [1, 2]}


def opened(**options: Any) -> App[Any]:
    return App("refused", inputs=[clicks], outputs=[counted], state=lambda: Stores(**options))


@pytest.mark.parametrize(
    ("declare", "why"),
    [
        (lambda app: app.window("w", size_ms=0, grace_ms=0), "size_ms=0 is not a number"),
        (lambda app: app.window("w", size_ms=5, every_ms=6, grace_ms=0), "every_ms=6 is more than size_ms=5"),
        (lambda app: app.window("w", size_ms=5, grace_ms=-1), "grace_ms=-1 is not a number"),
        (lambda app: app.session("w", gap_ms=5, grace_ms=1.5, merge=max), "grace_ms=1.5 is not a number"),
        (lambda app: app.session("w", gap_ms=True, grace_ms=0, merge=max), "gap_ms=True is not a number"),
        (lambda app: app.window("w", size_ms=5, grace_ms=0, late=late_clicks), "is not one of the app's outputs"),
        (lambda app: app.window("a b", size_ms=5, grace_ms=0), "'a b' cannot be the name of a timer"),
        (lambda app: app.window("w", size_ms=5, grace_ms=0, store="no"), "window w: the state has no store 'no'"),
        (lambda app: app.window("w", size_ms=5, grace_ms=0, store="names"), "keys of store 'names' must be tuple"),
        (lambda app: app.window("w", size_ms=5, grace_ms=0, store="three"), "keys of store 'three' must be tuple"),
        (lambda app: app.session("w", gap_ms=5, grace_ms=0, merge=max, store="w"), "store 'w' must be ordered"),
    ],
)
def test_what_cannot_work_is_refused_before_the_first_record(declare, why):
    app = opened(w=MapState(tuple[str, int], int), names=MapState(str, int), three=MapState(tuple[str, int, int], int))
    app.handler(clicks)(lambda record, state, out: None)

    def declared() -> None:
        declare(app)(lambda closed, state, out: None)
        app.validate()

    with pytest.raises(UsageError, match=why):
        declared()


def test_two_may_not_share_a_store():
    """The entry of a key and a time would be that of both: the first that closes deletes it."""

    def state() -> Stores:
        return Stores(w=MapState(tuple[str, int], int, ordered=True), x=MapState(tuple[str, int], int))

    app = App("sharing", inputs=[clicks], state=state)
    app.handler(clicks)(lambda record, state, out: None)
    app.window("minutes", size_ms=60, grace_ms=0, store="w")(lambda closed, state, out: None)
    app.window("other", size_ms=60, grace_ms=0, store="x")(lambda closed, state, out: None)
    app.validate()
    app.session("visits", gap_ms=5, grace_ms=0, merge=max, store="w")(lambda closed, state, out: None)
    with pytest.raises(UsageError, match="window minutes and session visits share the store 'w'"):
        app.validate()
