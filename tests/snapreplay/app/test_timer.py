"""Tests of how an app declares timers, and what their handlers get."""

from datetime import timedelta

import pytest

from snapreplay.app.app import App
from snapreplay.app.batch import ErrorPolicy, Portion
from snapreplay.app.fold import Fold
from snapreplay.app.harness import Harness
from snapreplay.app.record import RawRecord
from snapreplay.app.timer import Timer
from snapreplay.app.topic import Topic
from snapreplay.errors import RecordError, UsageError
from snapreplay.state.map import MapState
from snapreplay.state.steps import all_of
from snapreplay.state.stores import Stores

steps, told = Topic("steps"), Topic("told")


def make(state=lambda: MapState(str, int), handler=None):
    app = App("timed", inputs=[steps], outputs=[told], state=state)
    app.handler(steps)(handler or (lambda record, state, out: None))
    return app


def nothing(timer, state, out):
    pass


@pytest.mark.parametrize(
    ("arguments", "options", "why"),
    [
        ((None,), {}, "None cannot be the name of a timer"),
        (("a b",), {}, "'a b' cannot be the name"),
        (("",), {}, "'' cannot be the name"),
        ((nothing,), {}, r"@app\.timer without a name registers nothing"),
        (("a",), {"every_ms": 0}, "every_ms=0 is not a number of milliseconds"),
        (("a",), {"every_ms": 1.5}, "every_ms=1.5 is not"),
        (("a",), {"every_ms": True}, "every_ms=True is not"),
        (("a",), {"every_ms": timedelta(minutes=1)}, "is not a number of milliseconds"),
    ],
)
def test_a_timer_that_cannot_be_is_refused(arguments, options, why):
    """When it is declared."""
    with pytest.raises(UsageError, match=why):
        make().timer(*arguments, **options)(nothing)


def test_handlers_of_timers_are_checked_as_those_of_records():
    """One for each name, callable with three arguments, and nothing async."""
    app = make()
    app.timer("a")(nothing)
    with pytest.raises(UsageError, match="timer a has two handlers"):
        app.timer("a")(nothing)

    async def later(timer, state, out):
        pass

    with pytest.raises(UsageError, match="is async"):
        app.timer("b")(later)
    with pytest.raises(UsageError, match=r"cannot be called with \(timer, state, out\)"):
        app.timer("c")(lambda timer: None)


@pytest.mark.parametrize(
    ("key", "data"),
    [
        ("ada", b"ada"),
        (b"\x00", b"\x00"),
        (-1, b"\xff" * 8),
        (5, b"\0" * 7 + b"\x05"),
        (("ada", 1), b"ada"),
        ((5, "ada"), b"\0" * 7 + b"\x05"),
    ],
)
def test_an_output_with_the_key_of_the_timer_stays_in_its_partition(key, data):
    """The bytes are those that `utf8`, `raw` and `i64` write; of a key of parts those of the first."""
    timer = Timer("app", 3, "ring", "default", key, 7)
    assert timer.output_key == data
    assert timer.id == f"ring of default[{key!r}] at 7"
    again = Timer("app", 3, "ring", "default", key, 7)
    assert timer.random.random() == again.random.random() != Timer("app", 3, "ring", "default", key, 8).random.random()


def test_an_output_of_the_first_part_of_a_tuple_stays():
    """As that of a record does, for any key of the record that brings the time. Another key, and any key of a
    periodic timer, is partitioned by its hash: it may be sent to be counted elsewhere."""
    app = App("parts", inputs=[steps], outputs=[told], state=lambda: MapState(tuple[str, int], int))

    @app.handler(steps)
    def on_step(record, state, out):
        state.schedule((record.key, 1), 5, timer="ring")

    @app.timer("ring")
    def on_ring(timer, state, out):
        for key in (timer.key[0], "all"):
            out.send(told, key=key, value=1)

    app.timer("tick", every_ms=5)(lambda timer, state, out: out.send(told, key="x", value=1))
    harness = Harness(app)
    harness.feed(steps, key="ada", value=1, timestamp_ms=1)
    harness.feed(steps, key="bob", value=1, timestamp_ms=5)
    sent = [(one.key, one.same_key) for one in harness.all_outputs]
    assert sent == [(b"ada", True), (b"all", False), (b"x", False)]


@pytest.mark.parametrize(
    ("use", "why"),
    [
        (lambda state: state.schedule("a", -1, timer="ring"), "at_ms=-1 is not a time"),
        (lambda state: state.schedule("a", 1.0, timer="ring"), r"at_ms=1\.0 is not a time"),
        (lambda state: state.schedule("a", True, timer="ring"), "at_ms=True is not a time"),
        (lambda state: state.schedule("a", 1 << 63, timer="ring"), "is not a time"),
        (lambda state: state.schedule("a", 1, timer="other"), "has no timer 'other'"),
        (lambda state: state.cancel("a", timer="tick"), "has no timer 'tick'"),
        (lambda state: state.schedule(5, 1, timer="ring"), "the keys of this map are str"),
    ],
)
def test_what_cannot_be_set_is_an_error_of_the_record(use, why):
    """Named, at once."""
    app = make(handler=lambda record, state, out: use(state))
    app.timer("ring")(nothing)
    app.timer("tick", every_ms=1_000)(nothing)
    with pytest.raises(RecordError, match=f"steps-0-0: .*{why}"):
        Harness(app).feed(steps, key="a", value=1)


def scheduling(record, state, out):
    state.schedule(record.key, record.value, timer="ring")


def test_a_dead_lettered_timer_has_fired():
    """It leaves nothing but the letter, with its name, store, key and time."""

    def failing(timer, state, out):
        state[timer.key] = 1
        out.send(told, key=timer.key, value=1)
        raise ValueError("no")

    app = make(handler=scheduling)
    app.timer("ring")(failing)
    harness = Harness(app, policy=ErrorPolicy.DEAD_LETTER)
    harness.feed(steps, key="ada", value=50, timestamp_ms=1)
    harness.advance_time(60)
    harness.crash()
    assert (dict(harness.state), harness.all_outputs) == ({}, [])
    (letter,) = harness.dead_letters
    facts = {name.rpartition(".")[2]: (value or b"").decode() for name, value in letter.headers}
    assert (letter.key, letter.value) == (b"ada", None)
    assert (facts["timer"], facts["store"], facts["key"]) == ("ring", "default", "'ada'")
    assert (facts["at_ms"], facts["exception"]) == ("50", "ValueError")
    assert (harness.errors[0].timer_id, harness.errors[0].record_id) == ("ring of default['ada'] at 50", None)


class Records(list[RawRecord]):
    """A list that can be watched."""


def each_minute(policy=ErrorPolicy.FAIL):
    """Make an app where something is due before each of the records."""
    app = make()
    app.timer("nothing", every_ms=60_000)(nothing)
    records = (RawRecord("steps", 0, n, 60_000 * n, b"a", b"1") for n in range(3))
    return Fold(app, app.new_store(), 0, policy=policy), Records(records)


def test_a_periodic_timer_that_the_broker_refused_is_left_out_once():
    """It is named without its time; in the same batch the next one is another timer."""
    fold, records = each_minute(ErrorPolicy.DEAD_LETTER)
    refused = RecordError("too large")
    refused.timer_id = "nothing at 59"
    applied = all_of(fold.isolating({"steps": 0}, Portion(records, refused=refused)))
    assert (applied.timers_count, applied.skipped_timers, applied.errors) == (3, (1,), [refused])


@pytest.mark.parametrize("key", ["ada", 7, b"k", ("ada", 7)])
@pytest.mark.parametrize(("name", "other_type"), [("new", str), ("old", tuple[int, int])])
def test_the_timer_of_a_store_that_is_gone_or_changed_has_its_key(key, name, other_type):
    """Without entries nothing says that the store was renamed, or that its keys were: only the timer fires."""
    key_type = tuple[str, int] if isinstance(key, tuple) else type(key)
    before = make(lambda: Stores(old=MapState(key_type, int)))
    before.handlers[steps] = lambda record, state, out: state.old.schedule(key, 5, timer="ring")
    before.timer("ring")(nothing)

    def renamed():
        state = Stores()
        setattr(state, name, MapState(other_type, int))
        return state

    after, seen = make(renamed), []
    after.timer("ring")(lambda timer, state, out: seen.append((timer.store, timer.key)))
    harness = Harness(before)
    harness.feed(steps, key="a", value=1, timestamp_ms=1)
    taken = harness.handed_over(after)
    taken.feed(steps, key="a", value=1, timestamp_ms=9)
    assert seen == [("old", key)]


@pytest.mark.parametrize("before_ms", [0, 40, 90])
def test_what_a_periodic_timer_sets_fires_after_the_record_that_made_it_due(before_ms):
    """However many periods were missed: that is no property of the record."""
    seen = []
    app = make(handler=lambda record, state, out: seen.append(record.timestamp_ms))

    @app.timer("tick", every_ms=10)
    def tick(timer, state, out):
        if timer.at_ms == 100:
            state.schedule("a", timer.at_ms + 1, timer="ring")

    @app.timer("ring")
    def ring(timer, state, out):
        seen.append(("ring", timer.at_ms))

    harness = Harness(app)
    for at_ms in (before_ms, 105, 106):
        harness.feed(steps, key="a", value=None, timestamp_ms=at_ms)
    assert seen == [before_ms, 105, ("ring", 106), 106]


def test_periodic_timers_that_are_due_at_once_come_by_their_times_then_by_their_names():
    """By the time for which each was due, and the shorter name first."""
    seen = []
    app = make()
    for name, every_ms in (("bb", 10), ("a", 10), ("c", 4), ("zz", 7)):
        app.timer(name, every_ms=every_ms)(lambda timer, state, out: seen.append(timer.name))
    harness = Harness(app)
    for at_ms in (0, 20):
        harness.feed(steps, key="a", value=None, timestamp_ms=at_ms)
    assert seen == ["c", "zz", "a", "bb"]


def test_the_first_period_begins_where_stream_time_begins():
    """Nothing fires, in a replay either."""
    seen: list[int] = []
    app = make()
    app.timer("tick", every_ms=60_000)(lambda timer, state, out: seen.append(timer.at_ms))
    records = [RawRecord("steps", 0, 0, 61_000, b"a", b"1")]
    live = Fold(app, app.new_store(), 0)
    live.begin({"steps": 0}, Portion(records))
    all_of(live.applying(Portion(records)))
    applied = live.finish()
    assert (applied.begun_periods, applied.timers_count, seen) == (1, 1, [])
    recorded = Portion(records, 61_000, 0, is_recorded=True)
    again = all_of(Fold(app, app.new_store(), 0).replaying({"steps": 0}, recorded))
    assert (again.sealed.digest, seen) == (applied.sealed.digest, [])


@pytest.mark.parametrize(("old_ms", "new_ms", "fired"), [(100, 10, [100, 110]), (10, 100, [0, 100])])
def test_another_period_counts_from_the_next_time_of_the_old_one(old_ms, new_ms, fired):
    """It fires once more when it was due; `at_ms` is a multiple of the new period."""

    def version(every_ms, seen):
        app = make()
        app.timer("tick", every_ms=every_ms)(lambda timer, state, out: seen.append(timer.at_ms))
        return app

    seen: list[int] = []
    old = Harness(version(old_ms, []))
    old.feed(steps, key="a", value=None, timestamp_ms=1)
    heir = old.handed_over(version(new_ms, seen))
    for at_ms in range(2, 115):
        heir.feed(steps, key="a", value=None, timestamp_ms=at_ms)
    assert seen == fired
