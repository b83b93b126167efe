"""Attack B13: a state that is no map has no overlay and no running digest: half of a failed batch stays, and nothing
proves what was restored."""

from typing import Any

import pytest

from snapreplay.snapshots.format.envelope import RecordKind
from tests.support import apps, inside, reference
from tests.support.stage import snapshot, until
from tests.support.tampering import flip, tamper

GOOD, BAD = {"amount": 1}, {"amount": 1, "poison": True}


async def counts(here: Any) -> list[int]:
    outputs = (await here.read(here.output))[0]
    return [value["n"] for _, value in reference.decoded(outputs)]


@pytest.mark.kafka
async def test_b13_a_damaged_snapshot_of_an_object_is_not_believed(stage, unique):
    """No digest is kept from batch to batch, but each snapshot proves itself: one bit flipped, and recovery goes back
    to the one before it and replays; nothing is counted twice."""
    here = await stage(apps.tape(unique("b13")))
    taken = []
    async with here.running() as service:
        for _ in range(2):
            await here.feed(10)
            await here.all_processed(service)
            taken.append(await snapshot(service))
    await tamper(here, here.snapshots, RecordKind.CHUNK, flip)
    async with here.running() as service:
        restore = service.restore_status()[0].restore
        assert restore.snapshot.snapshot_id == taken[0]
        assert restore.fallback_from == taken[1]
        assert restore.records_replayed == 10
        await here.feed(10)
        await here.all_processed(service)
        await until(lambda: inside.runner(service).store is not None, "LIVE")
        assert await counts(here) == list(range(1, 31))
