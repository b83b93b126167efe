"""The newest whole snapshot, looked for on a real log; what is passed over is also in tests/service/decisions."""

import msgspec
import pytest

from snapreplay.service.core.refusals import SchemaDiffers
from snapreplay.service.recovery.acceptable_snapshot import newest_acceptable_snapshot
from snapreplay.snapshots.format.envelope import RecordKind
from snapreplay.snapshots.log.loading import Nowhere
from snapreplay.state.store import store_of
from tests.support import apps
from tests.support.in_memory import virtual
from tests.support.proposals import JOB, Job
from tests.support.tampering import flip


@virtual
async def test_the_newest_snapshot_that_reads_back_whole_is_found(bench):
    """Checked to the last entry whether something keeps the entries or nothing does; a damaged one is passed over."""
    then = await bench.past()
    context = await bench.context()
    store = store_of(bench.app.state())
    for sink in (Nowhere(), store):
        manifest, passed_over = await newest_acceptable_snapshot(context, sink)
        assert manifest is not None
        assert (manifest.snapshot_id, passed_over) == (then.second, ())
        assert sink is not store or store.digest == manifest.entries_digest
    bench.tamper(bench.snapshots, RecordKind.CHUNK, flip)
    manifest, passed_over = await newest_acceptable_snapshot(context, Nowhere())
    assert manifest is not None
    assert manifest.snapshot_id == then.first
    assert [then.second in line for line in passed_over] == [True]
    bench.tamper(bench.snapshots, RecordKind.CHUNK, flip, 0)
    manifest, passed_over = await newest_acceptable_snapshot(context, Nowhere())
    assert (manifest, len(passed_over)) == (None, 2)


@virtual
async def test_the_sums_of_a_proposal_are_not_believed(bench):
    """No owner has hashed it, perhaps: an entry that is not the hashed one makes it useless. A true one is as good as
    another snapshot."""

    def lying(parts):
        first = parts[0][0]
        entries = dict.fromkeys(first.entries, b"\x01")
        parts[0][0] = msgspec.structs.replace(first, entries=entries)

    then = await bench.past()
    context, job = await bench.context(), Job(bench)
    job.propose(forge=lying)
    manifest, (why,) = await newest_acceptable_snapshot(context, Nowhere())
    assert manifest is not None
    assert manifest.snapshot_id == then.second
    assert "add up to" in why
    job.propose()
    manifest, _ = await newest_acceptable_snapshot(context, Nowhere())
    assert manifest is not None
    assert manifest.proposed_by == JOB


@virtual
async def test_an_older_snapshot_is_no_substitute_for_one_of_another_schema(bench):
    """It would be another state: both schema versions are named."""
    await bench.past()
    bench.app = apps.ledger(bench.app.app_id, schema_version=2)
    with pytest.raises(SchemaDiffers, match="written with schema_version 1, but the app has 2"):
        await newest_acceptable_snapshot(await bench.context(), Nowhere())


@virtual
async def test_a_late_proposal_hides_no_newer_snapshot_of_an_owner(bench):
    """A slow job wrote its manifest behind the owner's: it is used only if the newer state is damaged, and before an
    older one."""
    then = await bench.past()
    context, job = await bench.context(), Job(bench)
    job.propose(4)
    manifest, passed_over = await newest_acceptable_snapshot(context, Nowhere())
    assert manifest is not None
    assert (manifest.snapshot_id, passed_over) == (then.second, ())
    bench.tamper(bench.snapshots, RecordKind.CHUNK, flip, -3)
    manifest, (why,) = await newest_acceptable_snapshot(context, Nowhere())
    assert manifest is not None
    assert (manifest.proposed_by, manifest.batch) == (JOB, 4)
    assert then.second in why


@virtual
async def test_a_proposal_of_a_log_that_was_replaced_is_used_last(bench):
    """Its offsets are of another topic, so they cannot be compared."""
    then = await bench.past()
    names = {bench.increments: "another"}
    Job(bench).propose(at=1000, topic_ids=names, owner_epoch=1000)
    manifest, _ = await newest_acceptable_snapshot(await bench.context(), Nowhere())
    assert manifest is not None
    assert manifest.snapshot_id == then.second
