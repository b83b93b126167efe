"""The history of a partition, as it is read from its log."""

from snapreplay.service.control import kafka_reads
from snapreplay.service.topics import histories as read_backwards
from snapreplay.service.topics.histories import history_of


async def test_owners_and_snapshots_are_read_from_the_log(bench, monkeypatch):
    """Each owner with its last batch, newest first, one that committed nothing, too; each snapshot that was pointed
    to, with the time of its batch. Beyond a limit, the answer says that there is more."""
    await bench.prepare()
    await bench.feed(20)
    epochs, batches = [], []
    for number in range(3):
        async with bench.live() as one:
            if number != 1:
                await one.feed(20)
                await one.snapshot()
            epochs.append(one.status.owner_epoch)
            batches.append(one.status.batch)
    context = await bench.context()
    found = await history_of(context.cluster, context.increments)
    owners = found.ownerships[:3]
    assert [each.owner_epoch for each in owners] == epochs[::-1]
    assert [each.last_batch for each in owners] == [batches[2], None, batches[0]]
    times = [each.claimed_at for each in owners]
    assert times == sorted(filter(None, times), reverse=True)
    assert {each.process_id for each in owners} != {""}
    assert found.is_whole
    assert [each.is_kept for each in found.snapshots] == [True, True]
    assert found.snapshots[0].batch > found.snapshots[1].batch
    assert all(each.batch_at for each in found.snapshots)

    monkeypatch.setattr(read_backwards, "OWNERSHIPS_MAX", 2)
    few = await history_of(context.cluster, context.increments)
    assert few.ownerships == found.ownerships[:2]
    assert not few.is_whole
    assert kafka_reads.OWNERSHIPS_MAX == 100
