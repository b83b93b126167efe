"""Which state can be stood on, on real logs; the ways themselves: tests/attacks, B3."""

import pytest

from snapreplay.service.decisions.accept import propose
from snapreplay.service.decisions.baseline import NoBaseline
from snapreplay.service.topics.requirements import KEPT_FOR_EVER
from snapreplay.snapshots.format.envelope import RecordKind
from snapreplay.snapshots.format.records import Genesis
from tests.support import apps
from tests.support.accepting import REASON, accepted
from tests.support.tampering import flip, recreate, tamper, trim, with_fields

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize(
    ("kind", "change", "reason"),
    [
        pytest.param(RecordKind.CHUNK, flip, "crc32", marks=pytest.mark.slow),
        (
            RecordKind.MANIFEST,
            with_fields(genesis=Genesis("elsewhere", 1, {"payments": 0})),
            "elsewhere",
        ),
    ],
)
async def test_a_snapshot_that_is_not_whole_or_not_ours_is_passed_over(past, kind, change, reason):
    """The one before it counts, and the plan says why not the newest."""
    then = await past()
    await tamper(then.here, then.snapshots, kind, change)
    recreate(then.here.bootstrap_servers, then.increments, 1, KEPT_FOR_EVER)
    status = await then.here.failure()
    proposal, _ = await accepted(then.here, status.error.hint)
    assert f"snapshot {then.second} (manifest at offset" in proposal.plan[0]
    assert reason in proposal.plan[0]
    assert f"that of snapshot {then.first}, of batch 2 (20 entries" in proposal.plan[1]
    async with then.here.running() as service:
        await then.here.all_processed(service)
        assert service.view(0)["k0"]["n"] == 6


async def test_without_a_whole_snapshot_nothing_can_be_accepted(past):
    """Lost increments and damaged snapshots: refused with each reason, and what remains."""
    then = await past()
    for number in (-1, -2):
        await tamper(then.here, then.snapshots, RecordKind.CHUNK, flip, number)
    recreate(then.here.bootstrap_servers, then.increments, 1, KEPT_FOR_EVER)
    status = await then.here.failure()
    assert "snapreplay accept" not in status.error.hint
    with pytest.raises(NoBaseline) as refused:
        await propose(then.here.app, then.here.settings(), then.here.cluster, 0, "any", REASON)
    assert refused.value.message.count("is skipped") == 2
    assert "snapreplay init" in refused.value.hint


async def test_lean_and_without_a_snapshot_a_lost_input_cannot_be_accepted(stage, unique):
    """The state is nowhere any more: an empty one is never put in its place."""
    here = await stage(apps.ledger(unique("bare")), changelog={"enabled": False})
    async with here.running() as service:
        await here.feed(20)
        await here.all_processed(service)
    await here.feed(20)
    trim(here.bootstrap_servers, here.app.inputs[0].name, 0, 30)
    status = await here.failure()
    assert status.error.kind == "InputTrimmed"
    assert "snapreplay accept" not in status.error.hint
    with pytest.raises(NoBaseline, match="there is no snapshot"):
        await propose(here.app, here.settings(), here.cluster, 0, "any", REASON)
