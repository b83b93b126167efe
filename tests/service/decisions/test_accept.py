"""Accepting: only what is the matter, fenced, recorded, and nothing before it is committed."""

import asyncio
import getpass
import socket
from contextlib import asynccontextmanager

import pytest

from snapreplay.errors import UsageError
from snapreplay.service.core.owners import Superseded
from snapreplay.service.decisions.accept import INSTANCE_ID, NotAcceptable, NotTheFinding, carry_out, propose
from snapreplay.service.publish.owned import reader_behind_claim
from snapreplay.service.publish.state import LogWentOn
from snapreplay.snapshots.format.envelope import RecordKind, kind_of
from tests.support import apps
from tests.support.accepting import REASON, accepted, command_in, finding_in, killed_before_its_increment, proposed
from tests.support.entries import read_entry

REPLAY = {"restore": {"mode": "replay"}}


async def gap(bench):
    """Make a FAILED partition: ten records of the input are gone. The hint."""
    await bench.past()
    await bench.feed(20)
    bench.trim(bench.input, 130)
    return (await bench.failure()).error.hint


def other_code(bench):
    """Version 2: FAILED by replay, LIVE by changes."""
    return apps.ledger(bench.app.app_id, apps.subtract, version="2")


async def log_of(bench, topic=None):
    (records,) = await bench.read(topic or bench.increments)
    return [(record.offset, read_entry(record.value)) for record in records]


async def test_a_decision_is_one_fenced_increment_that_points_to_the_accepted_state(bench):
    """Claim, then the increment: empty, with finding, reason and name, and a chain that begins behind the claim."""
    hint = await gap(bench)
    acceptance, written = await accepted(bench, hint)
    (claimed_at, claim), (offset, increment) = (await log_of(bench))[-2:]
    assert claim.instance_id == INSTANCE_ID
    assert (offset, increment.batch) == (written.offset, written.increment.batch) == (offset, 9)
    assert increment.begins_chain
    assert increment.owner_epoch == increment.previous_offset == claimed_at
    assert (increment.ranges, increment.record_count, increment.outputs) == ([], 0, {})
    assert increment.positions == {bench.input: 130}
    assert increment.decision == acceptance.decision
    assert increment.decision["finding"] == finding_in(hint)
    assert increment.decision["reason"] == REASON
    assert increment.decision["by"] == f"{getpass.getuser()}@{socket.gethostname()}"
    (pointer,) = increment.pointers
    assert (pointer.batch, pointer.increment_offset) == (8, claimed_at)
    manifest = dict(await log_of(bench, bench.snapshots))[pointer.manifest_offset]
    assert (manifest.batch, manifest.positions) == (8, {bench.input: 130})
    assert manifest.digest == increment.digest


async def test_something_else_than_what_is_the_matter_is_refused_with_both(bench):
    """The gap has grown since the hint was printed: its id is refused, the new one named with its command."""
    hint = await gap(bench)
    bench.trim(bench.input, 135)
    with pytest.raises(NotTheFinding) as refused:
        await proposed(bench, hint)
    now = finding_in(refused.value.hint)
    assert refused.value.facts == {"given": finding_in(hint), "found": now}
    assert finding_in(hint) in refused.value.message
    assert "15 offsets are gone" in refused.value.message
    assert command_in(refused.value.hint)[:2] == ["snapreplay", "accept"]


async def test_what_cannot_be_decided_is_not_acceptable(bench):
    """Another state schema: refused with the way that helps."""
    await bench.past()
    newer = apps.ledger(bench.app.app_id, schema_version=2)
    settings = bench.settings()
    with pytest.raises(NotAcceptable, match="SchemaDiffers cannot be accepted") as refused:
        await propose(newer, settings, bench.cluster, 0, "log-damaged-0", "let me")
    assert "schema_version=1" in refused.value.hint


@pytest.mark.parametrize(
    ("partition", "reason", "text"),
    [(0, "  ", "no reason was given"), (1, "because", "partition 1 does not exist: there are 1")],
)
async def test_a_reason_and_a_partition_are_needed(bench, partition, reason, text):
    """Refused before anything is examined."""
    await bench.prepare()
    with pytest.raises(UsageError, match=text):
        await propose(bench.app, bench.settings(), bench.cluster, partition, "x", reason)


async def test_a_log_that_went_on_since_is_not_decided_about(bench):
    """Another process, by the other mode, committed meanwhile: nothing is written but the claim."""
    await bench.past()
    status = await bench.failure(other_code(bench), **REPLAY)
    acceptance = await proposed(bench, status.error.hint, other_code(bench))
    async with bench.live() as one:
        await one.feed(20)
    with pytest.raises(LogWentOn, match="has committed up to batch 9"):
        await carry_out(acceptance)
    assert kind_of((await bench.read(bench.increments))[0][-1].value or b"") is RecordKind.CLAIM
    await bench.restored()


async def test_a_running_owner_is_thrown_out_and_comes_back_to_the_accepted_state(bench):
    """Fenced exactly as by a new owner: its next batch is aborted, then it recovers what was decided."""
    await bench.past()
    status = await bench.failure(other_code(bench), **REPLAY)
    async with bench.live() as one:
        epoch = one.status.owner_epoch
        acceptance = await proposed(bench, status.error.hint, other_code(bench))
        await carry_out(acceptance)
        await one.feed(20)
        assert one.status.owner_epoch > epoch
        assert [each.finding for each in one.status.decisions] == [acceptance.decision["finding"]]
        # k0: 0, 20, 40, 60 and 120 added, 80 and 100 subtracted
        assert one.view()["k0"] == {"n": 7, "sum": 120 + 120 - 180}


async def test_an_owner_that_comes_first_keeps_the_partition(bench, monkeypatch):
    """It has claimed between our claim and our look at it: nothing is decided."""
    hint = await gap(bench)
    acceptance = await proposed(bench, hint)

    @asynccontextmanager
    async def late(*arguments):
        await bench.failure()  # another owner: it claims, finds the gap and stays FAILED
        async with reader_behind_claim(*arguments) as behind:
            yield behind

    monkeypatch.setattr("snapreplay.service.publish.owned.reader_behind_claim", late)
    with pytest.raises(Superseded):
        await carry_out(acceptance)


async def test_killed_before_its_increment_nothing_was_decided(bench, monkeypatch):
    """Claim and snapshot are there, the decision is not: the same finding as before, and it can be accepted."""
    hint = await gap(bench)
    killed_before_its_increment(monkeypatch)
    with pytest.raises(asyncio.CancelledError):
        await accepted(bench, hint)
    monkeypatch.undo()
    status = await bench.failure()
    assert finding_in(status.error.hint) == finding_in(hint)
    await accepted(bench, status.error.hint)
    async with bench.live() as one:
        await one.position(140)
