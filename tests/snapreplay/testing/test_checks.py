"""`check` lets good apps pass and names the first record of bad ones."""

import re
import time

import pytest

from snapreplay import testing
from snapreplay.app.app import App
from snapreplay.app.made_record import record
from snapreplay.app.topic import Topic
from snapreplay.errors import RecordError, UsageError
from snapreplay.state.map import MapState
from snapreplay.testing import Diverged, ErrorPolicy, check
from snapreplay.testing.checks import CRASH_SEEDS, Course, _in_child
from tests.support import bad_apps

RECORDS = [record(bad_apps.words, key=key, value=number) for number, key in enumerate("abcabdacbdabc")]


def test_a_good_app_passes_every_run():
    """All runs took place, those in other processes and the time after the records included."""
    report = check(bad_apps.seeded, RECORDS, until_ms=60_000)
    assert report.record_count == len(RECORDS)
    assert report.left_out == ()
    assert len(report.runs) == 2 + 2 + len(CRASH_SEEDS) + 2


@pytest.mark.parametrize(
    ("app", "first", "how"),
    [
        (bad_apps.clock, "words-0-3", "second run the app has another state"),
        (bad_apps.dice, "words-0-3", "second run the app sends other outputs"),
        (bad_apps.hashed, "words-0-3", "PYTHONHASHSEED"),
        (bad_apps.set_order, "words-0-3", "PYTHONHASHSEED"),
        (bad_apps.counter, "words-0-3", "second run the app sends other outputs"),
        (bad_apps.captured, "words-0-1", "another state than batches of one"),
        (bad_apps.shared, "words-0-9", "between two timers the app has another state"),
        (bad_apps.reply, "words-0-0", "second run the app sends other outputs"),
    ],
    ids=lambda value: value.app_id if isinstance(value, App) else "",
)
def test_bad_apps_are_found_and_the_record_is_named(app, first, how):
    """Clock, random numbers, hash(), set order, module variables, captured objects, also of a timer, reused outputs."""
    with pytest.raises(Diverged, match=f"{re.escape(first)}: .*{how}"):
        check(app, RECORDS)


def test_memory_that_a_snapshot_lacks_is_found():
    """Only a crash behind a snapshot shows it."""
    with pytest.raises(Diverged, match="replay of words-0-5 sends other outputs"):
        check(bad_apps.begun, RECORDS)


def sometimes_failing(policy_records):
    topic, out_topic = Topic("in"), Topic("out")
    app = App("some", inputs=[topic], outputs=[out_topic], state=lambda: MapState(str, int, default=int))

    @app.handler(topic)
    def on_record(record, state, out):
        state[record.key] += 1
        out.send(out_topic, key=record.key, value=state[record.key])
        if record.value % 3 == 0:
            raise ValueError(record.value)

    return app, [record(topic, key=f"k{n % 4}", value=n) for n in range(policy_records)]


def test_dead_letters_are_part_of_the_comparison():
    """With dead_letter, records may fail, the same ones in every run; an app without a name says so."""
    app, records = sometimes_failing(30)
    report = check(app, records, policy=ErrorPolicy.DEAD_LETTER)
    assert "not importable" in report.left_out[0]
    with pytest.raises(RecordError, match="in-0-0"):
        check(app, records)


def test_the_other_process_has_the_hash_seed_it_is_given():
    """Another seed is another trace of an app that depends on it."""
    traces = [
        _in_child(f"{bad_apps.__name__}:set_order", Course(RECORDS, ErrorPolicy.FAIL), seed) for seed in ("1", "2")
    ]
    assert traces[0] != traces[1]


def test_no_records_are_no_check():
    """A check of nothing would pass for ever. One record, made as the hint says, is enough."""
    with pytest.raises(UsageError, match="needs at least one record") as refused:
        check(bad_apps.seeded, [])
    call = refused.value.hint.split("`")[1].replace("…", "{!r}").format("a", 1)
    one = eval(call, {"testing": testing, "topic": bad_apps.words})  # noqa: S307 - our own hint
    assert check(bad_apps.seeded, [one]).record_count == 1


HELD: list[object] = []


def nothing(*arguments):
    pass


def holds(record, state, out):
    """Keeps an object outside the state; the records of a batch share it. Harmless until a timer sends it."""
    if record.offset == 0:
        HELD.clear()
    HELD.append(state[record.key])


def sends_what_was_held(timer, state, out):
    out.send(RANG, key=timer.key, value=len({id(each) for each in HELD}))


def looks_at_the_clock(timer, state, out):
    state[timer.key]["n"] = time.perf_counter_ns()


def sets_itself(timer, state, out):
    out.send(RANG, key=timer.key, value=timer.at_ms)
    state.schedule(timer.key, timer.at_ms, timer="ring")


IN, RANG = Topic("in"), Topic("rang")
SPREAD = [record(IN, key=f"k{n % 5}", timestamp_ms=1_000 + n) for n in range(20)]


def ringing(ring, handler=nothing):
    """An app that sets a timer 10 s after each record. Of SPREAD, the first is due 11,015 ms after the epoch."""
    app = App("ringing", inputs=[IN], outputs=[RANG], state=lambda: MapState(str, dict, default=lambda: {"n": 0}))

    @app.handler(IN)
    def on_record(record, state, out):
        handler(record, state, out)
        state.schedule(record.key, record.timestamp_ms + 10_000, timer="ring")

    app.timer("ring")(ring)
    return app


@pytest.mark.parametrize(
    ("app", "how"),
    [
        (ringing(looks_at_the_clock), "in a second run the app has another state"),
        (ringing(sends_what_was_held, holds), "after batches of 7 the app sends other outputs"),
        (ringing(bad_apps.keeps_the_object_of_another), "between two timers the app has another state"),
    ],
    ids=["clock", "batches", "timers"],
)
def test_a_wrong_timer_that_no_record_makes_due_is_found_if_time_passes(app, how):
    """In every kind of run. Without `until_ms` it is named as left out."""
    assert check(app, SPREAD).left_out[0] == (
        "timer ring: it never fired; add a record with a later timestamp, or pass until_ms="
    )
    with pytest.raises(Diverged, match=f"until_ms=11019: .*{how}"):
        check(app, SPREAD, until_ms=11_019)


def test_a_timer_that_sets_itself_again_ends_with_the_time():
    """So the check ends, too."""
    report = check(ringing(sets_itself), SPREAD, until_ms=11_100)
    assert report.record_count == len(SPREAD)
    assert len(report.left_out) == 1
