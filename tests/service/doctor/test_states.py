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


@pytest.fixture
async def here(stage, unique):
    """Batch 1, a snapshot of it, and batch 2, which points to it; records not processed yet behind."""
    here = await stage(apps.ledger(unique("states")))
    async with here.running() as service:
        await here.feed(40)
        await processed(service, {0: 40})
        await snapshot(service)
    return here


async def test_the_whole_chain_is_seen(here):
    """Batch, snapshot with its sizes, and the time of the record to process next."""
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


async def test_what_is_damaged_is_said(here):
    """The newest snapshot; then the last increment."""
    app_id = here.app.app_id
    await tamper(here, f"{app_id}-snapshots", RecordKind.CHUNK, flip)
    state = await state_of(here)
    assert "cannot be used" in state.unusable
    assert "crc32" in state.unusable
    await tamper(here, f"{app_id}-increments", RecordKind.INCREMENT, flip)
    state = await state_of(here)
    assert "crc32" in state.missing
    assert state.batch is None


async def test_an_empty_partition_holds_nothing(here):
    """No increment: not a new app for certain."""
    recreate(here.bootstrap_servers, f"{here.app.app_id}-increments", 1)
    state = await state_of(here)
    assert (state.batch, state.missing) == (None, None)


async def test_b4_input_that_is_gone_is_missed_where_replay_needs_it(here):
    """The snapshot covers it; what was deleted beyond it is missed."""
    await here.feed(5)
    trim(here.bootstrap_servers, here.app.inputs[0].name, 0, 40)
    assert (await state_of(here, changelog={"enabled": False})).missing is None
    trim(here.bootstrap_servers, here.app.inputs[0].name, 0, 43)
    assert "begins at offset 43" in (await state_of(here, changelog={"enabled": False})).missing
