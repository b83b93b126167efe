"""The owner's trim: what is kept is enough to come back, what is not needed goes."""

import asyncio
from dataclasses import replace

import msgspec
import pytest

from snapreplay.service.core.kafka_errors import Unreachable
from snapreplay.service.live.snapshot_scheduler import Trimmer
from snapreplay.service.runtime.pulse import Pulse
from snapreplay.snapshots.plan import retention_floors
from tests.simulation.cluster import SimCluster
from tests.support.in_memory import virtual


def starts(bench):
    """Log starts of (increments, snapshots)."""
    return (bench.log(bench.increments).start, bench.log(bench.snapshots).start)


async def snapshots(bench, count, **tables):
    """Let an owner write pointed snapshots, with something new in each. Return the last increment."""
    await bench.prepare(**tables)
    async with bench.live() as one:
        for _ in range(count):
            await bench.feed(10)
            await one.position(bench.sent)
            await one.snapshot()
        await asyncio.sleep(1)  # virtual: for the last trim
        return one.live.last


@virtual
async def test_nothing_is_trimmed_before_enough_snapshots_exist(bench):
    """With one snapshot fewer than are kept, the genesis is still there to fall back to."""
    await snapshots(bench, 2, retention={"snapshots_kept": 3})
    assert starts(bench) == (0, 0)


@virtual
async def test_both_topics_begin_at_what_the_oldest_kept_snapshot_needs(bench):
    """Four snapshots, two kept: the floors are the third one's, and the app still comes back from there."""
    last = await snapshots(bench, 4, retention={"snapshots_kept": 2})
    newest, oldest = last.pointers
    assert starts(bench) == (oldest.increment_offset, oldest.first_chunk_offset)
    assert (await bench.restored()).snapshot.snapshot_id == newest.snapshot_id


@virtual
async def test_what_was_asked_before_a_standstill_is_no_reason_to_trim(bench, monkeypatch):
    """The snapshots topic may have been replaced meanwhile (seed 1403589); the next snapshot tries again."""
    last = await snapshots(bench, 2, retention={"snapshots_kept": 3})
    now, topic_ids = [0.0], SimCluster.topic_ids
    pulse = Pulse(lambda: now[0])
    beating = asyncio.create_task(pulse.beat())
    await asyncio.sleep(0)  # the first beat
    context = replace(await bench.context(retention={"snapshots_kept": 2}), pulse=pulse)
    floors = retention_floors(last, 10_000, 2)
    assert floors is not None

    async def frozen(*asked):
        ids = await topic_ids(*asked)
        now[0] += 5.0
        return ids

    with monkeypatch.context() as still:
        still.setattr(SimCluster, "topic_ids", frozen)
        await trimmed(context, last)
    assert starts(bench) == (0, 0)
    await trimmed(context, last)
    assert starts(bench) == tuple(floors)
    beating.cancel()


async def trimmed(context, last):
    """Trim as if a pointer was committed with `last`."""
    trimmer = Trimmer(context)
    trimmer.pointed(last, 10_000)
    await asyncio.sleep(0.1)
    await trimmer.close()


@pytest.mark.parametrize("old", ["snapshots", "increments", None])
@virtual
async def test_nothing_is_trimmed_when_an_own_topic_was_replaced(bench, caplog, old):
    """The snapshots are gone with the old topic: the changes in the increments topic are all that is left. In a
    replaced increments topic the offsets are of other records."""
    last = await snapshots(bench, 2, retention={"snapshots_kept": 3})
    topic = getattr(bench, old) if old else ""
    context = await bench.context(retention={"snapshots_kept": 2})
    ids = {name: "old" if name == topic else each for name, each in last.topic_ids.items()}
    await trimmed(context, msgspec.structs.replace(last, topic_ids=ids))
    assert (starts(bench) == (0, 0)) is bool(old)
    told = f"not trimmed: topic {topic} was deleted and created again"
    assert (told in caplog.text) is bool(old)


@virtual
async def test_a_trim_that_fails_is_only_a_warning(bench, caplog, monkeypatch):
    """Processing goes on; the log says that the next snapshot tries again."""

    async def no_leader(*_):
        raise Unreachable("no leader")

    monkeypatch.setattr(SimCluster, "delete_records", no_leader)
    await snapshots(bench, 3, retention={"snapshots_kept": 2})
    assert "the next snapshot tries again" in caplog.text
    assert starts(bench) == (0, 0)
    await bench.restored()
