"""Accepting on a real log: only what is the matter, fenced, recorded, and nothing before it is committed."""

import asyncio
import getpass
import socket
from contextlib import asynccontextmanager

import pytest

from snapreplay.errors import UsageError
from snapreplay.service.core.owners import Superseded
from snapreplay.service.decisions.accept import (
    INSTANCE_ID,
    NotAcceptable,
    NotTheFinding,
    carry_out,
    propose,
)
from snapreplay.service.publish import snapshot_writer
from snapreplay.service.publish.claim import reader_behind_claim
from snapreplay.service.publish.publish import LogWentOn
from snapreplay.snapshots.format.envelope import RecordKind, kind_of
from tests.support import apps
from tests.support.accepting import REASON, accepted, command_in, finding_in, proposed
from tests.support.entries import read_entry
from tests.support.stage import processed
from tests.support.tampering import trim

pytestmark = pytest.mark.kafka

REPLAY = {"restore": {"mode": "replay"}}


@pytest.fixture
async def gap(past):
    """FAILED: ten records of the input are gone. The past and the hint."""
    then = await past()
    await then.here.feed(20)
    trim(then.here.bootstrap_servers, then.input, 0, 130)
    status = await then.here.failure()
    return then, status.error.hint


def other_code(then):
    """Version 2: FAILED by replay, LIVE by changes."""
    return apps.ledger(then.here.app.app_id, apps.subtract, version="2")


async def log_of(then, topic=None):
    (records,) = await then.here.read(topic or then.increments)
    return [(record.offset, read_entry(record.value)) for record in records]


async def test_a_decision_is_one_fenced_increment_that_points_to_the_accepted_state(gap):
    """Claim, then the increment: empty, with finding, reason and name, and a chain that begins behind the claim."""
    then, hint = gap
    proposal, written = await accepted(then.here, hint)
    (claimed_at, claim), (offset, increment) = (await log_of(then))[-2:]
    assert claim.instance_id == INSTANCE_ID
    assert (offset, increment.batch) == (written.offset, written.increment.batch) == (offset, 9)
    assert increment.begins_anew
    assert increment.owner_epoch == increment.previous_offset == claimed_at
    assert (increment.ranges, increment.record_count, increment.outputs) == ([], 0, {})
    assert increment.positions == {then.input: 130}
    assert increment.decision == proposal.decision
    assert increment.decision["finding"] == finding_in(hint)
    assert increment.decision["reason"] == REASON
    assert increment.decision["by"] == f"{getpass.getuser()}@{socket.gethostname()}"
    (pointer,) = increment.pointers
    assert (pointer.batch, pointer.increment_offset) == (8, claimed_at)
    manifest = dict(await log_of(then, then.snapshots))[pointer.manifest_offset]
    assert (manifest.batch, manifest.positions) == (8, {then.input: 130})
    assert manifest.digest == increment.digest


async def test_a_proposal_writes_nothing(gap):
    """As --dry-run: both topics are as they were, no claim, no chunk."""
    then, hint = gap
    before = [await then.here.read(topic) for topic in (then.increments, then.snapshots)]
    proposal = await proposed(then.here, hint)
    assert (
        f"{then.input}: goes on at offset 130; offsets 120 to 130 are never processed"
        in proposal.plan
    )
    assert [await then.here.read(topic) for topic in (then.increments, then.snapshots)] == before


async def test_something_else_than_what_is_the_matter_is_refused_with_both(gap):
    """The gap has grown since the hint was printed: its id is refused, the new one named with its command."""
    then, hint = gap
    trim(then.here.bootstrap_servers, then.input, 0, 135)
    with pytest.raises(NotTheFinding) as refused:
        await proposed(then.here, hint)
    now = finding_in(refused.value.hint)
    assert refused.value.facts == {"given": finding_in(hint), "found": now}
    assert finding_in(hint) in refused.value.message
    assert "15 offsets are gone" in refused.value.message
    assert command_in(refused.value.hint)[:2] == ["snapreplay", "accept"]


async def test_a_healthy_partition_accepts_nothing(past):
    """A LIVE owner is not thrown out for a finding that is none."""
    then = await past()
    settings = then.here.settings()
    with pytest.raises(NotTheFinding, match="has no finding"):
        await propose(then.here.app, settings, then.here.cluster, 0, "input-gap-0", "why not")


async def test_what_nobody_can_decide_is_not_acceptable(past):
    """Another state schema: refused with the way that helps."""
    then = await past()
    newer = apps.ledger(then.here.app.app_id, schema_version=2)
    settings = then.here.settings()
    with pytest.raises(NotAcceptable, match="SchemaDiffers cannot be accepted") as refused:
        await propose(newer, settings, then.here.cluster, 0, "log-damaged-0", "let me")
    assert "schema_version=1" in refused.value.hint


@pytest.mark.parametrize(
    ("partition", "reason", "text"),
    [(0, "  ", "no reason was given"), (1, "because", "partition 1 does not exist: there are 1")],
)
async def test_a_reason_and_a_partition_are_needed(stage, unique, partition, reason, text):
    """Refused before anything is examined."""
    here = await stage(apps.ledger(unique("usage")))
    with pytest.raises(UsageError, match=text):
        await propose(here.app, here.settings(), here.cluster, partition, "x", reason)


async def test_a_log_that_went_on_since_is_not_decided_about(past):
    """Another process, by the other mode, committed meanwhile: nothing is written but the claim."""
    then = await past()
    status = await then.here.failure(other_code(then), **REPLAY)
    proposal = await proposed(then.here, status.error.hint, other_code(then))
    async with then.here.running() as service:
        await then.here.feed(20)
        await processed(service, {0: 140})
    with pytest.raises(LogWentOn, match="went on to batch 9"):
        await carry_out(proposal)
    assert kind_of((await then.here.read(then.increments))[0][-1].value or b"") is RecordKind.CLAIM
    await then.here.restored()


async def test_a_running_owner_is_thrown_out_and_comes_back_to_the_accepted_state(past):
    """Fenced exactly as by a new owner: its next batch is aborted, then it recovers what was decided."""
    then = await past()
    status = await then.here.failure(other_code(then), **REPLAY)
    async with then.here.running() as service:
        epoch = service.restore_status()[0].owner_epoch
        proposal = await proposed(then.here, status.error.hint, other_code(then))
        await carry_out(proposal)
        await then.here.feed(20)
        await processed(service, {0: 140})
        (partition,) = service.restore_status()
        assert partition.owner_epoch > epoch
        assert [each.finding for each in partition.decisions] == [proposal.finding_id]
        # k0: 0, 20, 40, 60 and 120 added, 80 and 100 subtracted
        assert service.view(0)["k0"] == {"n": 7, "sum": 120 + 120 - 180}


async def test_an_owner_that_comes_first_keeps_the_partition(gap, monkeypatch):
    """It has claimed between our claim and our look at it: nothing is decided."""
    then, hint = gap
    proposal = await proposed(then.here, hint)

    @asynccontextmanager
    async def late(*arguments):
        await then.here.failure()  # another owner: it claims, finds the gap and stays FAILED
        async with reader_behind_claim(*arguments) as behind:
            yield behind

    monkeypatch.setattr("snapreplay.service.publish.owned.reader_behind_claim", late)
    with pytest.raises(Superseded):
        await carry_out(proposal)


async def test_killed_before_its_increment_nothing_was_decided(gap, monkeypatch):
    """Claim and snapshot are there, the decision is not: the same finding as before, and it can be accepted."""
    then, hint = gap
    real = snapshot_writer.write

    async def then_killed(*arguments):
        await real(*arguments)
        raise asyncio.CancelledError

    monkeypatch.setattr(snapshot_writer, "write", then_killed)
    with pytest.raises(asyncio.CancelledError):
        await accepted(then.here, hint)
    monkeypatch.undo()
    status = await then.here.failure()
    assert finding_in(status.error.hint) == finding_in(hint)
    await accepted(then.here, status.error.hint)
    async with then.here.running() as service:
        await processed(service, {0: 140})


async def test_a_snapshot_after_the_decision_is_pointed_to_as_ever(gap):
    """The chain goes on: new snapshots, and recovery from them, with the decision still told."""
    then, hint = gap
    await accepted(then.here, hint)
    async with then.here.running(snapshot={"before_stop": True}) as service:
        await processed(service, {0: 140})
        reasons = {each.reason for each in service.control.snapshots()}
        assert reasons <= {"restored"}, "none by itself"
    async with then.here.running() as service:
        (partition,) = service.restore_status()
        assert partition.restore.snapshot.batch == partition.batch - 1
        assert len(partition.decisions) == 1
