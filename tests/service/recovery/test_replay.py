"""The input once more on a real broker: several inputs in the order of the first pass, and state that is no map."""

import random
from typing import Any

import msgspec
import pytest

from examples import order_book
from snapreplay.app.ranges import InputRange
from snapreplay.service.topics import stale_leader
from snapreplay.snapshots.format.envelope import RecordKind, kind_of
from tests.support import apps, reference
from tests.support.entries import read_entry
from tests.support.stage import phase, processed, snapshot
from tests.support.tampering import recreate, tamper, with_fields

pytestmark = pytest.mark.kafka


# ---- two inputs --------------------------------------------------------------------------------


async def feed_both(here, first, last):
    """Alternating little groups, so that batches hold both."""
    left, right = (topic.name for topic in here.app.inputs)
    for start in range(first, last, 10):
        for topic in (left, right):
            records = [(f"k{n % 7}", {"amount": n}) for n in range(start, start + 10)]
            await here.send(records, topic)


@pytest.mark.parametrize("mode", ["changes", "replay"])
async def test_the_interleaving_of_two_inputs_is_replayed_as_it_was(stage, unique, mode):
    """Recorded in the ranges: the digest of an order-sensitive fold is the same on both modes."""
    here = await stage(apps.pair(unique("pair")), 2, batch={"records_max": 13, "linger_ms": 0})
    async with here.running() as service:
        await feed_both(here, 0, 50)
        await here.all_processed(service)
        await snapshot(service)
    await feed_both(here, 50, 150)
    async with here.running() as service:
        await here.assert_merged(service)
    log = (await here.read(f"{here.app.app_id}-increments"))[0]
    ranges = [read_entry(r.value).ranges for r in log if kind_of(r.value) is RecordKind.INCREMENT]
    assert any(len({part.topic for part in parts}) == 2 for parts in ranges), "no batch of both"
    async with here.running(restore={"mode": mode}) as service:
        restores = [s.restore for s in service.restore_status()]
        assert {r.mode for r in restores} == {mode}
        assert all(r.proof.equal for r in restores)
        await here.assert_merged(service)


async def test_an_input_with_other_records_than_then_is_noticed(past):
    """A range that holds fewer records: FAILED with both counts, and the mode that still works."""
    then = await past()
    forged = with_fields(ranges=[InputRange(then.input, 100, 120, 21)])
    await tamper(then.here, then.increments, RecordKind.INCREMENT, forged)
    status = await then.here.failure(restore={"mode": "replay"})
    assert status.error.kind == "InputDiffers"
    told = "holds 20 records in offsets 100 to 120, but it held 21 when processed"
    assert told in status.error.message
    assert "`--set restore.mode=changes`" in status.error.hint


async def test_an_input_that_ends_too_early_is_not_waited_for(past, monkeypatch):
    """Made again, with fewer records than are to be replayed: FAILED at once, not a read that stalls."""
    monkeypatch.setattr(stale_leader, "PATIENCE_SECONDS", 0.5)
    then = await past()
    recreate(then.here.bootstrap_servers, then.input, 1)
    await then.here.feed(110)
    status = await then.here.failure(restore={"mode": "replay"})
    assert status.error.kind == "InputShorter"


# ---- state that is no map ----------------------------------------------------------------------


async def assert_tape(here, service):
    """Outputs count the records of the input, one each, in order."""
    topic = here.app.inputs[0].name
    (records,) = await here.read(topic)
    await processed(service, {0: len(records)})
    (found,) = await here.read(here.app.outputs[0].name)
    told = [{"id": f"{topic}-0-{r.offset}", "n": n} for n, r in enumerate(records, 1)]
    assert [value for _, value in reference.decoded(found)] == told
    runner = service._supervisor.runners[0]
    assert runner.store.view.ids == [each["id"] for each in told]


@pytest.mark.parametrize("state", [apps.Tape, apps.Undoable])
async def test_an_object_comes_back_by_snapshot_and_replay(stage, unique, state):
    """From genesis, and from a snapshot that was taken while it ran."""
    here = await stage(apps.tape(unique("tape"), state), batch={"records_max": 7, "linger_ms": 0})
    async with here.running() as service:
        await here.feed(50)
        await assert_tape(here, service)
    async with here.running() as service:
        restore = service.restore_status()[0].restore
        assert (restore.mode, restore.snapshot, restore.records_replayed) == ("replay", None, 50)
        taken = await snapshot(service)
        await here.feed(30)
        await assert_tape(here, service)
    async with here.running() as service:
        restore = service.restore_status()[0].restore
        assert (restore.snapshot.snapshot_id, restore.records_replayed) == (taken, 30)
        await assert_tape(here, service)


async def test_the_order_book_of_the_examples_comes_back(stage):
    """Matching by price and time after a snapshot and a replay is that of a book that was never interrupted."""
    here = await stage(order_book.app)
    dice = random.Random(7)
    book = order_book.OrderBook()
    told: list[Any] = []

    async def trade(service, first, last):
        orders = []
        for n in range(first, last):
            side: order_book.Side = "buy" if dice.random() < 0.5 else "sell"
            new = order_book.New(f"o{n}", side, dice.randint(95, 105), dice.randint(1, 9))
            orders.append(("ACME", msgspec.json.encode(new)))
            told.extend(msgspec.to_builtins(t) for t in book.place("ACME", new))
        await here.send(orders)
        await here.all_processed(service)

    for part in range(3):
        async with here.running() as service:
            await trade(service, 100 * part, 100 * part + 50)
            if part < 2:
                await snapshot(service)
            await trade(service, 100 * part + 50, 100 * part + 100)
            restored = service._supervisor.runners[0].store.view
            assert dict(restored.snapshot()) == dict(book.snapshot())
    (found,) = await here.read("trades")
    assert [value for _, value in reference.decoded(found)] == told
    assert len(told) > 50


@pytest.mark.parametrize("state", [apps.Tape, apps.Undoable])
async def test_a_hotfix_of_an_object_goes_on_exactly_once(stage, unique, state):
    """With and without rollback: what is before the failed record is committed and in a snapshot, nothing of the
    record itself stays, and the fixed handler needs no replay."""
    here = await stage(apps.tape(unique("tape"), state))
    async with here.running() as service:
        await here.feed(10)
        await assert_tape(here, service)
        await here.send([("0:a", {}), ("0:a", {"poison": True}), ("0:a", {})])
        status = await phase(service, "failed")
        assert (status.error.kind, status.batch) == ("HandlerFailed", status.snapshot.batch + 1)
        assert status.error.record_id == f"{here.app.inputs[0].name}-0-11"
        assert (status.snapshot.reason, status.snapshot.state) == ("failed_partition", "pointed")
    assert len((await here.read(here.app.outputs[0].name))[0]) == 11
    fixed = apps.tape(here.app.app_id, state, poison=False, version="fixed")
    async with here.running(fixed) as service:
        assert service.restore_status()[0].restore.records_replayed == 0
        await assert_tape(here, service)


async def test_a_dead_letter_leaves_nothing_in_an_object(stage, unique):
    """Rolled back to the record before, live and in the replay."""
    app = apps.tape(unique("tape"), apps.Undoable)
    here = await stage(app, errors={"policy": "dead_letter"})
    await here.send([("0:a", {"poison": n % 3 == 1}) for n in range(10)])
    good = [f"{app.inputs[0].name}-0-{n}" for n in range(10) if n % 3 != 1]
    for _ in range(2):
        async with here.running() as service:
            await here.all_processed(service)
            assert service._supervisor.runners[0].store.view.ids == good
    (found,) = await here.read(app.outputs[0].name)
    assert reference.ids(found) == good


@pytest.mark.parametrize("state", [apps.Tape, apps.Undoable])
async def test_an_objects_digest_is_taken_every_so_many_batches_and_compared(stage, unique, state):
    """Also when it ends gracefully: the replay counts those that it compared."""
    here = await stage(
        apps.tape(unique("tape"), state),
        batch={"records_max": 1, "linger_ms": 0},
        snapshot={"digest_every_batches": 4},
    )
    async with here.running() as service:
        await here.feed(10)
        await assert_tape(here, service)
    (log,) = await here.read(f"{here.app.app_id}-increments")
    digests = [
        read_entry(r.value).digest
        for r in log
        if kind_of(r.value) is RecordKind.INCREMENT and r.value
    ]
    assert [each.count for each in digests if each is not None][-1] == 10
    taken = sum(each is not None for each in digests)
    assert 2 <= taken < 10
    async with here.running() as service:
        restore = service.restore_status()[0].restore
        assert (restore.records_replayed, restore.proof.batches_compared) == (10, taken)
        await assert_tape(here, service)
