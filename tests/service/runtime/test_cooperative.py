"""A batch is applied without keeping the loop to itself."""

import asyncio
import time
from collections import Counter
from contextlib import asynccontextmanager

import msgspec
import pytest
from msgspec.structs import replace

from snapreplay import App, MapState, Topic
from snapreplay.app.batch import ErrorPolicy, Portion
from snapreplay.app.fold import SLICE_RECORDS, Fold
from snapreplay.app.ranges import SkippedRange
from snapreplay.app.record import RawRecord
from snapreplay.errors import RecordError, RecordId
from snapreplay.service.runtime import cooperative as module
from snapreplay.service.runtime.cooperative import (
    EMPTY_TURN_SECONDS,
    PAUSE_TURNS,
    PAUSE_TURNS_MAX,
    YIELD_AFTER_SECONDS,
    Pauses,
    feeding,
    pause,
    run_cooperatively,
    throttled,
)
from snapreplay.service.runtime.tasks import cancel_and_wait
from snapreplay.state.shards import BLOCK
from snapreplay.state.steps import all_of
from snapreplay.state.stores import store_of
from tests.support import apps


def records(count, value=b'{"amount": 1}'):
    return [RawRecord("payments-x", 0, n, n, b"k", value) for n in range(count)]


def keyed(count):
    """Each record has a key of its own."""
    return [msgspec.structs.replace(r, key=b"%d" % r.offset) for r in records(count)]


def fold_of(rule):
    app = apps.ledger("x", rule)
    fold = Fold(app, store_of(app.state()), 0)
    fold.begin({"payments-x": 0})
    return fold


@asynccontextmanager
async def turns_of_others():
    """Say when another task of this loop had its turns, so far."""
    turns = []

    async def count():
        while True:
            turns.append(time.monotonic())
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await asyncio.sleep(0)
    try:
        yield turns
    finally:
        await cancel_and_wait(counting)


async def test_other_tasks_turn_while_a_large_batch_is_applied(monkeypatch):
    """Every few milliseconds, not once at the end."""
    monkeypatch.setattr(module, "YIELD_AFTER_SECONDS", 0.001)
    fold = fold_of(apps.add)
    async with turns_of_others() as turns:
        await run_cooperatively(feeding(fold, Portion(records(20_000))))
        assert len(turns) > 10 * module.PAUSE_TURNS
    assert fold.finish().record_count == 20_000


async def test_every_record_is_applied_once_in_order():
    """Also those behind the last whole slice."""
    seen = []
    fold = fold_of(lambda value, account: seen.append(account["n"]))
    await run_cooperatively(feeding(fold, Portion(records(SLICE_RECORDS * 2 + 3))))
    assert seen == list(range(1, SLICE_RECORDS * 2 + 4))


async def test_slow_records_are_taken_one_by_one():
    """Other partitions' transactions have deadlines: between two slow calls they get a turn."""
    async with turns_of_others() as turns:
        slow = fold_of(lambda value, account: time.sleep(0.01))  # a handler that takes long
        await run_cooperatively(feeding(slow, Portion(records(30))))
        assert len(turns) >= 25 * module.PAUSE_TURNS


async def test_slow_records_behind_quick_timers_are_taken_one_by_one():
    """How quick the timers were says nothing about the records."""
    bills, called_at = Topic("bills"), []
    app = App("dunning", inputs=[bills], state=lambda: MapState(str, int))

    @app.handler(bills)
    def on_bill(record, state, out):
        if record.offset > 2:  # the slice that the first two are in was cut before the timers fired
            called_at.append(len(turns))
            time.sleep(0.01)
        elif record.offset == 0:
            for number in range(8):
                state.schedule(f"{number}", 10, timer="remind")

    app.timer("remind")(lambda timer, state, out: None)
    fold = Fold(app, app.new_store(), 0)
    fold.begin({"bills": 0})
    some = [RawRecord("bills", 0, n, 20 * min(n, 1), b"k", b"1") for n in range(30)]
    async with turns_of_others() as turns:
        await run_cooperatively(feeding(fold, Portion(some)))
    assert fold.finish().timers_count == 8
    assert max(Counter(called_at).values()) <= 4


async def test_other_tasks_turn_while_a_large_batch_is_staged_and_sealed(monkeypatch):
    """After every block, for a block of 512 keys takes a good part of a millisecond."""
    monkeypatch.setattr(module, "YIELD_AFTER_SECONDS", -1)
    keys = 4 * BLOCK
    fold = fold_of(apps.add)
    await run_cooperatively(feeding(fold, Portion(keyed(keys))))
    async with turns_of_others() as turns:
        applied = await run_cooperatively(fold.finishing())
        assert len(turns) >= 2 * keys / BLOCK * module.PAUSE_TURNS
    assert len(applied.sealed.changes["default"]) == keys


async def test_a_pause_lasts_longer_while_others_have_work():
    """A transaction of another partition is a chain of such steps. Endless work of others does not stop us."""
    steps = 0

    async def working():
        nonlocal steps
        while True:
            until = time.perf_counter() + 5 * EMPTY_TURN_SECONDS
            while time.perf_counter() < until:
                pass
            steps += 1
            await asyncio.sleep(0)

    others = asyncio.create_task(working())
    await pause()
    made = steps
    await cancel_and_wait(others)
    assert made == PAUSE_TURNS_MAX


async def test_a_pause_is_short_where_no_other_task_has_work():
    """At least one of many: the machine may be busy."""
    lengths = []
    async with turns_of_others() as turns:
        for _ in range(500):
            before = len(turns)
            await pause()
            lengths.append(len(turns) - before)
    assert min(lengths) == PAUSE_TURNS


async def test_pauses_are_made_when_they_are_due_and_not_more_often(monkeypatch):
    """A millisecond after the last one, also behind the last step: twelve steps of 0.4 ms have four."""
    now, paused_at = 0.0, []

    async def pause():
        paused_at.append(now)

    def steps():
        nonlocal now
        for _ in range(11):
            now += 0.0004
            yield
        now += 0.0004

    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)
    monkeypatch.setattr(module, "pause", pause)
    await run_cooperatively(steps())
    assert paused_at == pytest.approx([0.0012, 0.0024, 0.0036, 0.0048])


START = {"payments-x": 0}


async def isolate(fold, positions, records, refused=None):
    return await run_cooperatively(fold.isolating(positions, Portion(records, refused=refused)))


def refusing(policy=ErrorPolicy.DEAD_LETTER):
    app = apps.ledger("x", apps.refuse_poison)
    return Fold(app, store_of(app.state()), 0, policy=policy)


@pytest.mark.parametrize("policy", ErrorPolicy)
async def test_what_was_taken_alone_is_sealed_in_steps(monkeypatch, policy):
    """Up to a failure as well as to the end: a pause for each record, for each block of keys, and of outputs."""
    pauses = 0

    async def pause():
        nonlocal pauses
        pauses += 1

    monkeypatch.setattr(module, "YIELD_AFTER_SECONDS", -1)
    monkeypatch.setattr(module, "pause", pause)
    poison = records(1, b'{"amount": 1, "poison": true}')[0]
    poison = msgspec.structs.replace(poison, offset=2 * BLOCK)
    applied = await isolate(refusing(policy), START, [*keyed(2 * BLOCK), poison])
    assert len(applied.sealed.changes["default"]) == applied.record_count == 2 * BLOCK
    pieces = 9 + 3  # of 1, 2, 4 … 256 outputs; then of 256, 256 and 1
    assert pauses >= 2 * BLOCK + 3 + pieces


async def test_taken_alone_the_records_do_the_same_as_without_pauses():
    """State, outputs, dead letters and positions are those of `Fold.isolating`."""
    poison = records(1, b'{"amount": 1, "poison": true}')[0]
    batch = [*records(10), msgspec.structs.replace(poison, offset=10, timestamp=10)]
    one, other = await isolate(refusing(), START, batch), all_of(refusing().isolating(START, Portion(batch)))
    assert [e.message for e in one.errors] == [e.message for e in other.errors]
    assert replace(one, errors=[]) == replace(other, errors=[])


async def test_a_record_that_was_refused_is_not_applied_again():
    """Skipped like one that cannot be applied, or the end of the batch, as the policy says; the others are applied."""
    refused = RecordError("the broker does not take it", record_id=RecordId("payments-x", 0, 3))
    skipped = await isolate(refusing(), START, records(6), refused)
    assert skipped.skipped == [SkippedRange("payments-x", 3, 4)]
    assert (skipped.record_count, len(skipped.outputs), skipped.errors) == (5, 5, [refused])
    failed = await isolate(refusing(ErrorPolicy.FAIL), START, records(6), refused)
    assert (failed.record_count, failed.failure) == (3, refused)


def spun(seconds):
    """Work for so long without a pause."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


async def test_a_throttled_task_keeps_its_share_of_the_loop():
    """Nine times as long as it works, it rests; the tasks beside it do not."""

    def steps():
        for _ in range(20):
            spun(2 * YIELD_AFTER_SECONDS)
            yield

    began = time.monotonic()
    with throttled(0.1) as throttle:
        await run_cooperatively(steps())
    elapsed = time.monotonic() - began
    assert throttle.rested_seconds >= 0.9 * 9 * 20 * 2 * YIELD_AFTER_SECONDS
    assert elapsed >= throttle.rested_seconds + 20 * 2 * YIELD_AFTER_SECONDS
    rested = throttle.rested_seconds
    await run_cooperatively(steps())
    assert throttle.rested_seconds == rested


async def test_a_loop_that_is_not_busy_is_not_spared():
    """It runs the others between two steps, and continues."""
    with throttled(0.1, lambda: False) as throttle:
        await run_cooperatively(spun(2 * YIELD_AFTER_SECONDS) for _ in range(3))
    assert throttle.rested_seconds == 0


async def test_a_wait_counts_for_a_second_at_most(monkeypatch):
    """A throttled task that waits for a broker for a minute does not rest for nine."""
    slept = []

    async def rest(seconds):
        slept.append(seconds)

    with throttled(0.5):
        pauses = Pauses()
        pauses._resumed -= 3600
        monkeypatch.setattr(asyncio, "sleep", rest)
        await pauses.when_due()
    assert slept == [1.0]
