"""A LIVE partition whose state follows stream time: judged by hand, through restarts in both modes and quiet input."""

import asyncio
import json
import random
from collections import Counter
from typing import Any

import pytest

from snapreplay import App, MapState, Topic
from snapreplay.app import codecs
from snapreplay.service import clock
from snapreplay.service.clock import SteadyClock
from snapreplay.service.live.fetcher import Fetcher
from snapreplay.service.live.pace import IdleTime
from snapreplay.state.stores import Stores, store_of
from tests.simulation import program
from tests.support import timed_bench
from tests.support.clocks import time_is
from tests.support.in_memory import virtual
from tests.support.stage import until
from tests.support.timed_bench import DO, ByHand, TimedBench, timed_app

START_MS = 1_000_000
DEAD_LETTER = {"policy": "dead_letter"}


def drawn(rng, count):
    """(key, what, number, milliseconds later), now and then a long jump."""
    for _ in range(count):
        later = rng.choice((0, 1, 3, 8, 20, 300))
        yield rng.choice("ab"), rng.choice(list(DO)), rng.randint(0, 30), later


class Feed:
    """Writes records, and the same by hand."""

    def __init__(self, bench, seed):
        self.bench, self.rng, self.hand = bench, random.Random(seed), ByHand()
        self.at_ms = START_MS

    def send(self, count):
        log = self.bench.log("steps")
        for key, do, number, later in drawn(self.rng, count):
            self.at_ms += later
            self.hand.record(log.end, key, do, number, self.at_ms)
            log.append(key.encode(), json.dumps([do, number]).encode(), (), self.at_ms, None)

    def check(self, one):
        """Outputs, dead letters, entries and timers."""
        bench, hand = self.bench, self.hand
        assert [json.loads(each.value) for each in bench.log("told").committed()] == hand.told
        letters = [dict(each.headers) for each in bench.log(bench.dead_letters).committed()]
        assert list(map(timed_bench.letter_of, letters)) == hand.letters
        view = one.runner.store.committed_view()
        assert dict(view.items.items()) == {key: value for key, (value, _) in hand.items.items()}
        assert dict(view.kept.items()) == {key: value for key, (value, _) in hand.kept.items()}
        assert one.runner.store.timetable.pending_timers == len(hand.timers)
        shown = {each.name: each for each in one.status.stores}
        assert shown["_timers"].next_due_ms == min(hand.timers.values(), default=None)
        assert (shown["items"].entries, shown["kept"].entries) == (len(hand.items), len(hand.kept))


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("changes", [True, False], ids=["changes", "lean"])
async def test_restarts_change_nothing(bench, seed, changes):
    """With anything due, in batches that have no room for it, with failing timers: each restore is proven, and resumes
    where the last batch ended."""
    settings = {"batch": {"records_max": 5, "linger_ms": 0}, "changelog": {"enabled": changes}}
    await bench.prepare(timed_app(), errors=DEAD_LETTER, **settings)
    feed = Feed(bench, seed)
    for _ in range(4):
        feed.send(20)
        for mode in ("changes" if changes else "replay", "replay"):
            async with bench.live(restore={"mode": mode}) as one:
                await one.position(bench.log("steps").end)
                feed.check(one)
                assert one.status.restore.proof.equal
                feed.send(10)
                if feed.rng.random() < 0.3:
                    await one.snapshot()
    assert any(each.fired_count for each in bench.batches()), "no batch was ever full"
    assert any(each.skipped_timers for each in bench.batches())


@pytest.mark.parametrize("mode", ["changes", "replay"])
async def test_quiet_input_lets_time_pass(bench, monkeypatch, mode):
    """By the setting: what is due happens without a record, once, a replay does the same, and nothing is written where
    nothing is due."""
    now_ms = [START_MS]
    time_is(monkeypatch, lambda: now_ms[0])
    idle = {"stream_time": {"idle_advance_ms": 1000}}
    await bench.prepare(timed_app(), errors=DEAD_LETTER, **idle)
    feed = Feed(bench, 1)
    feed.send(30)
    async with bench.live() as one:
        await one.position(30)
        feed.check(one)
        before = len(bench.batches())
        now_ms[0] = START_MS + 100_000 + 1000
        feed.hand.turn(START_MS + 100_000)
        feed.hand.now = START_MS + 100_000
        await until(lambda: bench.batches()[-1].stream_time_ms == START_MS + 100_000, "time", 100)
        await until(lambda: one.runner.store.timetable.pending_timers == 0, "no timer", 100)
        feed.check(one)
        quiet = bench.batches()[before:]
        assert quiet
        assert all(not each.ranges for each in quiet)
        assert sum(each.fired_count for each in quiet) > 0
    feed.at_ms = START_MS + 100_001
    feed.send(5)
    async with bench.live(restore={"mode": mode}) as one:
        await one.position(35)
        assert one.status.restore.proof.equal
        feed.check(one)


@virtual
async def test_time_passes_only_when_the_input_was_quiet_for_as_long(monkeypatch):
    """And again from each record on."""
    time_is(monkeypatch, lambda: START_MS + 100_000)
    bench = TimedBench()
    bench.feed([timed_bench.step(0, "a", "put", 1, START_MS)], 9)
    idle, due_ms = IdleTime(bench.store, 1000, SteadyClock()), START_MS + 99_000
    for _ in range(2):
        assert await idle.reached() is None
        await asyncio.sleep(0.9)
        assert await idle.reached() is None
        await asyncio.sleep(0.2)
        assert await idle.reached() == due_ms
        idle.restart()


async def test_a_jump_of_the_clock_is_not_quiet_time(bench, monkeypatch, caplog):
    """Set 50 minutes ahead, nothing happens 50 minutes early, and the log says so; real time makes it due."""
    boot, jump = [START_MS], [0]
    monkeypatch.setattr(clock, "boot_seconds", lambda: boot[0] / 1000)
    monkeypatch.setattr(clock, "wall_ms", lambda: boot[0] + jump[0])
    await bench.prepare(timed_app(), errors=DEAD_LETTER, stream_time={"idle_advance_ms": 1000})
    bench.log("steps").append(b"a", json.dumps(["set", 900]).encode(), (), START_MS, None)
    async with bench.live() as one:
        await one.position(1)
        count = len(bench.batches())
        jump[0] = 50 * 60_000
        await asyncio.sleep(85)
        assert len(bench.batches()) == count
        assert "clock of this machine was set 0:50:00 ahead" in caplog.text
    async with bench.live() as one:
        jump[0] = 0
        boot[0] += 2_000
        await until(lambda: one.runner.store.timetable.pending_timers == 0, "the timer", 100)


@pytest.mark.parametrize(
    ("passed_ms", "jump_ms", "confirmed_ms", "now_ms"),
    [
        (7_000, 0, 0, 7_000),
        (7_000, 4_000, 0, 11_000),  # a correction
        (7_000, 3_000_000, 0, 7_000),
        (7_000, 3_000_000, 2_000_000, 2_000_000),  # another machine is as late
        (7_000, 3_000_000, 9_000_000, 3_007_000),  # but no later than this one
        (7_000, -3_000_000, 0, 7_000 - 3_000_000),
        (7_000, -3_000_000, 9_000_000, 7_000 - 3_000_000),
    ],
)
def test_the_steady_clock_follows_what_is_confirmed(monkeypatch, passed_ms, jump_ms, confirmed_ms, now_ms):
    """Ahead only with the records, back at once."""
    boot, wall = [0], [START_MS]
    monkeypatch.setattr(clock, "boot_seconds", lambda: boot[0] / 1000)
    monkeypatch.setattr(clock, "wall_ms", lambda: wall[0])
    steady = SteadyClock()
    boot[0], wall[0] = passed_ms, START_MS + passed_ms + jump_ms
    assert steady.now_ms(START_MS + confirmed_ms) == START_MS + now_ms
    boot[0], wall[0] = boot[0] + 1_000, wall[0] + 1_000
    assert steady.now_ms(START_MS + confirmed_ms) == START_MS + now_ms + 1_000


async def test_time_stands_as_long_as_there_may_be_records_to_fetch(bench, monkeypatch):
    """What is due would happen before a record that was written earlier."""
    quiet = [False]
    time_is(monkeypatch, lambda: START_MS + 100_000)
    monkeypatch.setattr(Fetcher, "is_quiet", lambda _: quiet[0])
    await bench.prepare(timed_app(), errors=DEAD_LETTER, stream_time={"idle_advance_ms": 1000})
    Feed(bench, 1).send(30)
    async with bench.live() as one:
        await one.position(30)
        count = len(bench.batches())
        await asyncio.sleep(10)
        assert len(bench.batches()) == count
        quiet[0] = True
        await until(lambda: len(bench.batches()) > count, "time", 100)


async def stopped_in_a_turn(bench, **tables):
    """The batch had no room for the record: its turn has begun."""
    app = timed_app()
    stopping: list[Any] = []
    bell = app.timers["bell"].function

    def and_stop(timer, state, out):
        bell(timer, state, out)
        for runner in stopping:
            runner.stop(last_snapshot=True)

    app.timers["bell"] = app.timers["bell"]._replace(function=and_stop)
    await bench.prepare(app, batch={"records_max": 2, "linger_ms": 0}, **tables)
    for key, do, number, at_ms in (*((key, "other", 8, 1) for key in "abcd"), ("a", "put", 1, 90)):
        bench.log("steps").append(key.encode(), json.dumps([do, number]).encode(), (), at_ms, None)
    one = await bench.owner()
    stopping.append(one.runner)
    await one.task
    assert bench.batches()[-1].positions == {"steps": 4}
    stopping.clear()


async def test_a_stop_leaves_a_fetched_record_to_the_next_owner(bench):
    """No marker lies there that the position could pass."""
    await stopped_in_a_turn(bench)
    async with bench.live() as one:
        await one.position(5)
        assert dict(one.runner.store.committed_view().items.items()) == {"a": 1}


async def test_a_turn_whose_record_is_lost_does_not_hold_time_for_ever(bench):
    """After an unclean election, say. For a minute a stale broker may hide it."""
    await stopped_in_a_turn(bench, stream_time={"idle_advance_ms": 1000})
    bench.log("steps").cut(4)
    async with bench.live() as one:
        await asyncio.sleep(30)
        assert one.runner.store.timetable.pending_timers
        await until(lambda: one.runner.store.timetable.pending_timers == 0, "the timers", 100)


async def test_without_the_setting_time_stands(bench):
    """A timer waits for the next record, however late it is."""
    await bench.prepare(timed_app(), errors=DEAD_LETTER)
    feed = Feed(bench, 1)
    feed.send(30)
    async with bench.live() as one:
        await one.position(30)
        count = len(bench.batches())
        feed.check(one)
        assert len(bench.batches()) == count


async def test_a_timer_that_fails_stops_the_partition_which_resumes_when_repaired(bench):
    """Named, after everything before it; again after a restart; once with the repaired handler."""
    app = timed_app()
    await bench.prepare(app)
    log = bench.log("steps")
    for do, number, at_ms in (("set", 5 + 6, 1), ("put", 1, 2), ("put", 2, 50), ("put", 3, 51)):
        log.append(b"a", json.dumps([do, number]).encode(), (), at_ms, None)
    for _ in range(2):
        error = (await bench.failure()).error
        assert error.kind == "HandlerFailed"
        assert "timer ring of items['a'] at 7: handler" in error.message
        assert "ValueError: no" in error.message
        assert bench.batches()[-1].positions == {"steps": 2}
        assert bench.batches()[-1].stream_time_ms == 2, "it did not fire, so it is not yet so late"
    repaired = timed_app()
    repaired.timers["ring"] = repaired.timers["bell"]
    async with bench.live(repaired) as one:
        await one.position(4)
        told = [json.loads(each.value) for each in bench.log("told").committed()]
        assert [each[:2] for each in told if each[0] == "bell"] == [["bell", 7]]


async def test_timers_that_the_app_has_no_more_stop_it_until_they_are_dropped(bench):
    """Named, with both ways on; retired as the hint says, they are gone."""
    await bench.prepare(timed_app(), errors=DEAD_LETTER)
    bench.log("steps").append(b"a", json.dumps(["set", 900]).encode(), (), START_MS, None)
    async with bench.live() as one:
        await one.position(1)
        await one.snapshot()
    error = (await bench.failure(untimed())).error
    assert error.kind == "UnknownStore"
    assert "It has the timers that the app had: keep a handler, `@app.timer(…)`" in error.hint
    assert 'retired=("_periods", "_timers",)' in error.hint
    bench.log("steps").append(b"a", json.dumps(["put", 1]).encode(), (), START_MS, None)
    async with bench.live(untimed(retired=("_periods", "_timers"))) as one:
        await one.position(2)
    assert set(bench.batches()[-1].cleared) == {"_periods", "_timers"}
    async with bench.live(untimed(), restore={"mode": "changes"}) as one:
        assert one.status.restore.proof.equal


async def test_a_renamed_timer_is_refused_before_the_first_record(bench):
    """Not when the old one is due; with both names on the handler, as the hint says, it fires."""
    await bench.prepare(timed_app(), errors=DEAD_LETTER)
    log = bench.log("steps")
    log.append(b"a", json.dumps(["other", 900]).encode(), (), START_MS, None)
    async with bench.live() as one:
        await one.position(1)
    renamed = timed_app()
    renamed.timers["chime"] = renamed.timers.pop("bell")
    log.append(b"b", json.dumps(["put", 1]).encode(), (), START_MS + 1, None)
    status = await bench.failure(renamed)
    assert (status.error.kind, bench.batches()[-1].positions) == ("UnknownTimer", {"steps": 1})
    assert "the log has 1 timer 'bell' pending" in status.error.message
    assert '`@app.timer("bell")` above the same function' in status.error.hint
    renamed.timer("bell")(renamed.timers["chime"].function)
    log.append(b"b", json.dumps(["put", 2]).encode(), (), START_MS + 1_000, None)
    async with bench.live(renamed) as one:
        await one.position(3)
        assert one.runner.store.timetable.pending_timers == 0
    told = [json.loads(each.value)[0] for each in bench.log("told").committed()]
    assert "bell" in told


def untimed(**options):
    app = timed_app()
    state = app.state
    app.timers.clear()
    app.state = lambda: Stores(items=state().items, kept=state().kept, **options)
    app.handlers[app.inputs[0]] = lambda record, state, out: None
    return app


@pytest.mark.whole  # in memory: the tests above
async def test_on_a_real_broker_timers_fire_once_and_entries_expire(stage, unique):
    """Without a record, by the clock; after a restart in either mode nothing fires again, and the state is proven."""
    name = unique("rings")
    rings, rung = Topic(f"rings-{name}", value=codecs.json()), Topic(f"rung-{name}")
    app = App(name, inputs=[rings], outputs=[rung], state=lambda: MapState(str, int, ttl_ms=300))

    @app.handler(rings)
    def on_record(record, state, out):
        state[record.key] = record.value
        state.schedule(record.key, record.timestamp_ms + 100, timer="ring")

    @app.timer("ring")
    def ring(timer, state, out):
        out.send(rung, key=timer.key, value=state[timer.key])

    here = await stage(app, stream_time={"idle_advance_ms": 200}, batch={"records_max": 20})
    for mode in ("changes", "replay", "replay"):
        async with here.running(restore={"mode": mode}) as service:
            await here.send((f"{mode}-{n}", n) for n in range(50))
            await until(lambda: service.restore_status()[0].expired_total == 50, mode)
            status = service.restore_status()[0]
            assert status.restore.proof.equal
            assert (status.timers_total, status.timers_pending, len(service.view(0))) == (50, 0, 0)
    ((found,),) = [await here.read(rung.name)]
    told = Counter((one.key.decode(), json.loads(one.value)) for one in found)
    assert told == {(f"{m}-{n}", n): c for m, c in (("changes", 1), ("replay", 2)) for n in range(50)}


def alarms():
    """Make an app of which, of the 40 timers of one moment, one sends what the broker refuses."""
    rings, out = Topic("steps", value=codecs.json()), Topic(program.OUTPUT, value=codecs.utf8)
    app = App("alarms", inputs=[rings], outputs=[out], state=lambda: MapState(str, int))

    @app.handler(rings)
    def on_record(record, state, out):
        state.schedule(record.key, 50, timer="ring")

    @app.timer("ring")
    def ring(timer, state, sent):
        state[timer.key] = 1
        sent.send(out, key=timer.key, value=program.BULKY if timer.key == "k27" else "fine")

    return app


@pytest.mark.parametrize("policy", ["fail", "dead_letter"])
async def test_a_timer_whose_output_the_broker_refuses_is_found_among_many(bench, policy):
    """Alone it is named, and the policy decides; all others happen once."""
    errors = {"policy": policy, "dead_letters_percent_max": 100}
    await bench.prepare(alarms(), errors=errors, batch={"records_max": 64, "linger_ms": 0})
    log = bench.log("steps")
    for number in range(40):
        log.append(b"k%02d" % number, b"0", (), number, None)
    log.append(b"last", b"0", (), 100, None)
    found = "timer ring of default['k27'] at 50"
    if policy == "fail":
        error = (await bench.failure()).error
        assert (error.kind, found in error.message) == ("HandlerFailed", True)
        done = 27
    else:
        async with bench.live() as one:
            await one.position(41)
            assert one.status.restore.proof.equal
            assert one.runner.store.timetable.pending_timers == 1
        (letter,) = bench.log(bench.dead_letters).committed()
        headers = {name.rpartition(".")[2]: value.decode() for name, value in letter.headers}
        assert (headers["timer"], headers["key"]) == ("ring", "'k27'")
        async with bench.live(restore={"mode": "replay"}) as one:
            assert one.status.restore.proof.equal
        done = 39
    assert len(bench.log(program.OUTPUT).committed()) == done


def reports():
    """A periodic timer whose first outputs the broker refuses."""
    rings, out = Topic("steps", value=codecs.json()), Topic(program.OUTPUT, value=codecs.utf8)
    app = App("reports", inputs=[rings], outputs=[out], state=lambda: MapState(str, int))

    @app.handler(rings)
    def on_record(record, state, out):
        state[record.key] = record.value

    @app.timer("report", every_ms=60_000)
    def report(timer, state, sent):
        sent.send(out, key="all", value=program.BULKY if 0 < timer.at_ms < 600_000 else "fine")

    return app


@pytest.mark.parametrize("policy", ["fail", "dead_letter"])
async def test_a_periodic_timer_that_fires_by_the_clock_is_named_when_it_is_refused(bench, monkeypatch, policy):
    """Also where the clock has reached its next period at each attempt: the policy decides, as for a record. Its next
    time is tried again."""
    now_ms = [0]

    def passing():
        now_ms[0] += 70_000
        return now_ms[0]

    time_is(monkeypatch, passing)
    errors = {"policy": policy, "dead_letters_percent_max": 100}
    await bench.prepare(reports(), errors=errors, stream_time={"idle_advance_ms": 1000})
    bench.log("steps").append(b"a", b"1", (), 1, None)
    if policy == "fail":
        error = (await bench.failure()).error
        assert (error.kind, "made of timer report at " in error.message) == ("HandlerFailed", True)
        return
    async with bench.live() as one:
        sent = bench.log(program.OUTPUT)
        await until(lambda: len(sent.committed()) >= 3, "later periods", 100)
        assert one.status.error is None
    letters = bench.log(bench.dead_letters).committed()
    assert letters
    assert {each.key for each in letters} == {b"report"}
    async with bench.live(restore={"mode": "replay"}) as one:
        assert one.status.restore.proof.equal


def test_its_state_has_a_timetable():
    """Or there would be nothing to show."""
    assert store_of(timed_app().state()).timetable is not None
