"""A3: an empty increments partition is never a new app, and a log that was cut is never a shorter history."""

import pytest

from snapreplay.service.decisions.init import PartitionLost, init_app
from snapreplay.service.ports import TopicPartition
from snapreplay.service.topics import increments as claims
from snapreplay.service.topics.snapshots import manifest_in
from snapreplay.snapshots.format.envelope import RecordKind
from tests.support import apps
from tests.support.stage import phase
from tests.support.tampering import cut, tamper, trim

pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("impatient")]

LOG_END = -1  # for DeleteRecords: everything


async def test_a3_one_lost_partition_of_several_is_not_begun_anew(stage, unique):
    """The others run; the lost one is FAILED, and `init` leaves it so."""
    here = await stage(apps.ledger(unique("lost")), 2)
    async with here.running() as service:
        await here.send([("0:a", {"amount": 1}), ("1:b", {"amount": 2})])
        await here.all_processed(service)
    trim(here.bootstrap_servers, here.increments, 1, LOG_END)
    with pytest.raises(PartitionLost, match="the increments of partition 1 were lost"):
        await init_app(here.app, here.settings(), here.cluster)
    async with here.started() as service:
        status = await phase(service, "failed", 1)
        assert status.error.kind == "NotInitialised"
        await phase(service, "live", 0)


async def test_a3_a_snapshot_ahead_of_the_last_increment_proves_a_cut(past, monkeypatch):
    """Committed batches are gone: FAILED with both batches, though a shorter history would look whole."""
    then = await past()
    await tamper(then.here, then.increments, RecordKind.CHANGES, cut, 3)  # of batch 5
    known: list[int] = []
    ask = claims.newer_owner

    async def asked(context, owner_epoch, known_offset):
        known.append(known_offset)
        return await ask(context, owner_epoch, known_offset)

    monkeypatch.setattr(claims, "newer_owner", asked)
    status = await then.here.failure()
    assert status.error.kind == "LogCut"
    assert "snapshot of batch 5, but the last increment is batch 4" in status.error.message
    (snapshots,) = await then.here.read(then.here.snapshots)
    manifest = next(
        m for r in snapshots if (m := manifest_in(r.value, TopicPartition("snapshots", 0), 0)) and m.batch == 5
    )
    assert known == [manifest.increment_offset], "whoever lacks it is no witness"
    assert then.increments in status.error.message
    assert "backup" in status.error.hint
