"""The owner's trim on a real broker: what is kept is enough to come back, what is not needed goes."""

import asyncio
import logging
from dataclasses import replace

import msgspec
import pytest

from snapreplay.service.core.kafka_errors import Unreachable
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.live.trimming import Trimmer
from snapreplay.service.runtime.pulse import Pulse
from snapreplay.service.runtime.tasks import cancel_and_wait
from snapreplay.snapshots.retention import Floors
from tests.support import apps
from tests.support.kafka import until_async
from tests.support.stage import processed, snapshot

pytestmark = pytest.mark.kafka


async def starts(here):
    """Log starts of (increments, snapshots)."""
    context = await here.context()
    reader = await here.cluster.reader()
    try:
        return [
            (await reader.bounds(log)).start_offset
            for log in (context.increments, context.snapshots)
        ]
    finally:
        await reader.close()


async def take_snapshots(here, service, count):
    """Pointed ones, with something new in each. Returns their pointers, oldest first."""
    for _ in range(count):
        await here.feed(10)
        await processed(service, {0: here.sent})
        await snapshot(service)
    return list(reversed(service._supervisor.runners[0]._live._committer.chain.last.pointers))


async def test_nothing_is_trimmed_before_enough_snapshots_exist(stage, unique):
    """With one snapshot fewer than are kept, the genesis is still there to fall back to."""
    here = await stage(apps.ledger(unique("few")))
    async with here.running(retention={"snapshots_kept": 3}) as service:
        await take_snapshots(here, service, 2)
    assert await starts(here) == [0, 0]


async def test_both_topics_begin_at_what_the_oldest_kept_snapshot_needs(stage, unique):
    """Four snapshots, two kept: the floors are the third one's, and the app still comes back from there."""
    here = await stage(apps.ledger(unique("floors")))
    async with here.running(retention={"snapshots_kept": 2}) as service:
        pointers = await take_snapshots(here, service, 4)
        wanted = [pointers[0].increment_offset, pointers[0].first_chunk_offset]
        await until_async(lambda: starts(here), lambda found: found == wanted)
    assert len(pointers) == 2
    restore = await here.restored()
    assert restore.snapshot is not None
    assert restore.snapshot.snapshot_id == pointers[1].snapshot_id


async def test_what_was_asked_before_a_standstill_is_no_reason_to_trim(stage, unique, monkeypatch):
    """The snapshots topic may have been replaced meanwhile (seed 1403589); the next snapshot tries again."""
    here = await stage(apps.ledger(unique("stood")))
    async with here.running(retention={"snapshots_kept": 3}) as service:
        await take_snapshots(here, service, 2)
        last = service._supervisor.runners[0]._live._committer.chain.last
    now, beating = [0.0], Pulse(lambda: now[0])
    beat = asyncio.create_task(beating.beat())
    await asyncio.sleep(0)  # the first beat
    context = replace(await here.context(), pulse=beating)
    floors = Floors(last.pointers[0].increment_offset, last.pointers[0].first_chunk_offset)
    topic_ids = KafkaCluster.topic_ids

    async def frozen(*asked):
        ids = await topic_ids(*asked)
        now[0] += 5.0
        return ids

    with monkeypatch.context() as still:
        still.setattr(KafkaCluster, "topic_ids", frozen)
        await Trimmer(context)._trim(last, floors)
    assert await starts(here) == [0, 0]
    await Trimmer(context)._trim(last, floors)
    assert await starts(here) == list(floors)
    await cancel_and_wait(beat)


async def test_nothing_is_trimmed_for_snapshots_whose_topic_was_replaced(stage, unique, caplog):
    """The snapshots are gone with the old topic: the changes in the increments topic are all that is left."""
    here = await stage(apps.ledger(unique("gone")), retention={"snapshots_kept": 2})
    async with here.running(retention={"snapshots_kept": 3}) as service:
        await take_snapshots(here, service, 2)
        last = service._supervisor.runners[0]._live._committer.chain.last
    context = await here.context()
    ids = {**last.topic_ids, context.snapshots.topic: "the old topic"}
    for recorded, kept in ((ids, True), (last.topic_ids, False)):
        trimmer = Trimmer(context)
        trimmer.pointed(msgspec.structs.replace(last, topic_ids=recorded), 10_000)
        assert trimmer._task is not None
        await trimmer._task
        assert (await starts(here) == [0, 0]) is kept
    assert (
        f"not trimmed: topic {context.snapshots.topic} was deleted and created again" in caplog.text
    )


class WithoutDelete(KafkaCluster):
    """The real thing, but nothing can be deleted."""

    async def delete_records(self, partition, before_offset):
        raise Unreachable(f"no leader for {partition} to delete below {before_offset}")


async def test_a_trim_that_fails_is_only_a_warning(stage, unique, caplog):
    """Processing goes on; the log says that the next snapshot tries again."""
    here = await stage(apps.ledger(unique("stuck")), retention={"snapshots_kept": 2})
    async with here.running(cluster=WithoutDelete(here.settings())) as service:
        with caplog.at_level(logging.WARNING, "snapreplay.partition"):
            await take_snapshots(here, service, 3)
        assert "the next snapshot tries again" in caplog.text
        await here.assert_exactly_once(service)
    assert await starts(here) == [0, 0]
