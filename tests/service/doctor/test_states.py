"""The end of a partition's chain as doctor reads it, whole and damaged, on a real broker."""

import pytest

from snapreplay.service.doctor.collect import Collector
from snapreplay.service.kafka.diagnostics import KafkaDiagnostics
from snapreplay.snapshots.format.envelope import RecordKind
from tests.support import apps
from tests.support.stage import processed, snapshot
from tests.support.tampering import flip, recreate, tamper, trim

pytestmark = pytest.mark.kafka


async def state_of(here, **tables):
    """The only partition's."""
    settings = here.settings(**tables)
    async with KafkaDiagnostics(settings) as ask:
        (state,) = (await Collector(here.app, settings, ask).collect()).states
    return state


async def test_the_end_of_a_chain_is_seen_whole_and_damaged(stage, unique):
    """Batch, snapshot with its sizes, and the time of the record to process next; input that a replay would miss; a
    snapshot, then an increment that cannot be read; no increment at all, which is no new app for certain."""
    here = await stage(apps.ledger(unique("states")))
    app_id, servers = here.app.app_id, here.bootstrap_servers
    async with here.running() as service:
        await here.feed(40)
        await processed(service, {0: 40})
        await snapshot(service)
    state = await state_of(here)
    assert (state.missing, state.unusable) == (None, None)
    assert state.batch >= 2
    assert state.newest.entries == 20
    assert 0 < state.newest.raw_bytes < 20 * 100
    last_processed = state.inputs[0].timestamp_ms
    await here.feed(5)
    state = await state_of(here)
    assert state.inputs[0].position == 40
    assert state.inputs[0].timestamp_ms > last_processed

    lean = {"changelog": {"enabled": False}}
    trim(servers, here.app.inputs[0].name, 0, 40)
    assert (await state_of(here, **lean)).missing is None
    trim(servers, here.app.inputs[0].name, 0, 43)
    assert "begins at offset 43" in (await state_of(here, **lean)).missing

    await tamper(here, f"{app_id}-snapshots", RecordKind.CHUNK, flip)
    unusable = (await state_of(here)).unusable
    assert "cannot be used" in unusable
    assert "crc32" in unusable
    await tamper(here, f"{app_id}-increments", RecordKind.INCREMENT, flip)
    state = await state_of(here)
    assert (state.batch, "crc32" in state.missing) == (None, True)
    recreate(servers, f"{app_id}-increments", 1)
    state = await state_of(here)
    assert (state.batch, state.missing) == (None, None)
