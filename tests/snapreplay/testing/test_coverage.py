"""Tests that what did not happen in a `check` is named, and what it says to feed makes it happen."""

import re

import pytest

from snapreplay import App, MapState, Stores, Topic
from snapreplay.testing import ErrorPolicy, record
from snapreplay.testing.checks import CoverageHarness

orders, returns = Topic("orders"), Topic("returns")


class Shop(Stores):
    def __init__(self):
        self.open = MapState(str, int, ttl_ms=5_000)
        self.seen = MapState(str, int, ttl_ms=9_000)
        self.plain = MapState(str, int)


def shop():
    """An order of 0 fails. The timer of an order of 7 fails. A return sets the second timer."""
    app = App("shop", inputs=[orders, returns], state=Shop)

    @app.handler(orders)
    def on_order(record, state, out):
        _ = 1 // record.value
        state.open[record.key] = state.plain[record.key] = record.value
        state.plain.schedule(record.key, record.timestamp_ms + 3_000, timer="remind")

    @app.handler(returns)
    def on_return(record, state, out):
        state.seen[record.key] = 1
        state.seen.schedule(record.key, record.timestamp_ms + 2_000, timer="refund")

    @app.timer("remind")
    def remind(timer, state, out):
        _ = 1 // (state.plain[timer.key] - 7)

    app.timer("refund")(lambda timer, state, out: None)
    app.timer("report", every_ms=8_000)(lambda timer, state, out: None)
    return app


def order(at_ms, value=1):
    return record(orders, key="ada", value=value, timestamp_ms=at_ms)


def back(at_ms):
    return record(returns, key="ada", value=1, timestamp_ms=at_ms)


def left_out(*records, until_ms=None, app=None):
    harness = CoverageHarness(app or shop(), policy=ErrorPolicy.DEAD_LETTER)
    for one in records:
        harness.feed_batch([one])
    if until_ms is not None:
        harness.advance_time(until_ms)
    return list(harness.left_out())


def at(ms):
    return f"add a record with a timestamp ≥ {ms}, or pass until_ms={ms}"


NONE_SET, NONE_STORED = (f"and none is pending; add records that {do}" for do in ("set it", "store one"))


def test_what_did_not_happen_is_named_with_what_to_feed():
    """Handlers, timers, and the expiry of each store."""
    assert left_out(order(100), order(4_000)) == [
        "handler of returns: it never ran; add a record of returns",
        f"timer refund: it never fired, {NONE_SET}",
        f"timer report: it fired only before the first record; {at(8_000)}",
        f"expiry of state.open: no entry expired; {at(9_000)}",
        f"expiry of state.seen: no entry expired, {NONE_STORED}",
    ]
    assert left_out(back(100))[1] == f"timer remind: it never fired, {NONE_SET}"


@pytest.mark.parametrize("by_record", [True, False], ids=["a record", "until_ms"])
def test_what_is_fed_as_the_line_says_is_left_out_no_more(by_record):
    """At the time that it names, and not a millisecond before."""
    given = [order(100), back(500)]
    lines = left_out(*given)
    assert len(lines) == 5
    for line in lines:
        (at_ms,) = {int(each) for each in re.findall(r"(?:≥ |until_ms=)(\d+)", line)}
        for late_ms, stays in ((at_ms - 1, True), (at_ms, False)):
            now = left_out(*given, back(late_ms)) if by_record else left_out(*given, until_ms=late_ms)
            assert any(each.partition(":")[0] == line.partition(":")[0] for each in now) == stays


def test_what_became_a_dead_letter_did_not_run():
    """Neither a handler whose records failed nor a timer that failed."""
    dead = "it gave only dead letters; add records for which it succeeds"
    assert left_out(order(100, 0), order(200, 0))[0] == f"handler of orders: {dead}"
    assert f"timer remind: {dead}" in left_out(order(100, 7), back(3_100))


def test_a_timer_for_a_time_that_has_passed_needs_no_other_time():
    """It fires before the next record, whatever its timestamp."""
    app = App("late", inputs=[orders], state=lambda: MapState(str, int, ttl_ms=5))
    app.handler(orders)(lambda record, state, out: state.schedule(record.key, 10, timer="ring"))
    app.timer("ring")(lambda timer, state, out: None)
    ring, expiry = left_out(order(900), app=app)
    assert ring == f"timer ring: it never fired; {at(900)}"
    assert expiry == f"expiry of state: no entry expired, {NONE_STORED}"
    assert left_out(order(900), until_ms=900, app=app) == [expiry]
