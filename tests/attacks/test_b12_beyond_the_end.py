"""B12: "out of range" is not "trimmed". Above the end it may be a leader that is behind: asked again with new clients,
before a snapshot is passed over or a partition FAILED."""

import pytest

from snapreplay.service.core.kafka_errors import OffsetBeyondEnd
from snapreplay.service.kafka.reader import KafkaReader
from snapreplay.service.ports import Bounds
from snapreplay.service.topics import reading
from tests.support import inside
from tests.support.owner import Owner
from tests.support.stage import until

pytestmark = pytest.mark.kafka


@pytest.fixture
def behind(monkeypatch):
    """Leaders that are behind: as many clients as `left` says of a topic are told that it ends at offset 1."""
    left: dict[str, int] = {}
    told: set[KafkaReader] = set()
    bounds = KafkaReader.bounds

    async def stale(self, partition):
        true = await bounds(self, partition)
        if self not in told and left.get(partition.topic, 0) > 0:
            left[partition.topic] -= 1
            told.add(self)
        return Bounds(true.start_offset, 1) if self in told else true

    monkeypatch.setattr(KafkaReader, "bounds", stale)
    monkeypatch.setattr(reading, "PATIENCE_SECONDS", 10.0)
    monkeypatch.setattr(reading, "ASK_AGAIN_SECONDS", 0.05)
    return left


async def restored(then):
    """The restore of an owner that is LIVE, and how it ended."""
    one = Owner(then.here, await then.here.context())
    restore = (await one.phase("live")).restore
    await then.here.feed(10)
    await one.position(130)
    await one.end()
    return restore


@pytest.mark.whole
async def test_b12_a_snapshot_beyond_a_stale_end_is_asked_for_with_new_clients(past, behind):
    """No fallback, no new snapshot: it was there all the time."""
    then = await past()
    behind[then.snapshots] = 3
    restore = await restored(then)
    assert behind[then.snapshots] == 0
    assert (restore.snapshot.snapshot_id, restore.fallback_from) == (then.second, None)


async def test_b12_a_live_partition_whose_leader_is_behind_goes_on(past):
    """Out of range above the end while it runs: out of memory, with another client, at the same position."""
    then = await past()
    one = Owner(then.here, await then.here.context())
    epoch = (await one.phase("live")).owner_epoch

    async def out_of_range(_):
        raise OffsetBeyondEnd("offset 120 is above its end 1: a stale leader")

    inside.poll_by(one.live, out_of_range)
    await until(lambda: one.status.owner_epoch > epoch, "another incarnation")
    assert (await one.phase("live")).restore.warm == "kept"
    await then.here.feed(10)
    await one.position(130)
    await one.end()
