"""A batch is applied without keeping the loop to itself."""

import asyncio
import time

from snapreplay.service.partition import slices as module
from snapreplay.service.partition.slices import feed
from snapreplay.snapshots.program.fold import Fold
from snapreplay.snapshots.program.record import RawRecord
from snapreplay.snapshots.state.store import store_of
from tests.support import apps


def records(count, value=b'{"amount": 1}'):
    return [RawRecord("payments-x", 0, n, n, b"k", value) for n in range(count)]


def fold_of(rule):
    app = apps.ledger("x", rule)
    fold = Fold(app, store_of(app.state()), 0)
    fold.begin({"payments-x": 0})
    return fold


async def test_other_tasks_turn_while_a_large_batch_is_applied(monkeypatch):
    """Every few milliseconds, not once at the end."""
    monkeypatch.setattr(module, "YIELD_AFTER_SECONDS", 0.001)
    turns, ended = [], False

    async def count():
        while not ended:
            turns.append(time.monotonic())
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await asyncio.sleep(0)
    fold = fold_of(apps.add)
    await feed(fold, records(20_000))
    seen, ended = len(turns), True
    await counting
    assert seen > 10
    assert fold.finish().record_count == 20_000


async def test_every_record_is_applied_once_in_order():
    """Also those behind the last whole slice."""
    seen = []
    fold = fold_of(lambda value, account: seen.append(account["n"]))
    await feed(fold, records(module.SLICE_RECORDS * 2 + 3))
    assert seen == list(range(1, module.SLICE_RECORDS * 2 + 4))


async def test_slow_records_are_taken_one_by_one():
    """Other partitions' transactions have deadlines: between two slow calls they get a turn."""
    turns, ended = [], False

    async def count():
        while not ended:
            turns.append(time.monotonic())
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await asyncio.sleep(0)
    await feed(fold_of(lambda value, account: time.sleep(0.01)), records(30))
    seen, ended = len(turns), True
    await counting
    assert seen >= 25
