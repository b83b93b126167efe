"""Looking at a real cluster: a running owner notices nothing, and what is the matter is found."""

import asyncio

import pytest

from snapreplay.service.doctor import collect
from snapreplay.service.doctor.collect import Collector, examine, lasting
from snapreplay.service.kafka.diagnostics import KafkaDiagnostics
from snapreplay.snapshots.format.envelope import RecordKind
from tests.support import apps
from tests.support.stage import snapshot
from tests.support.tampering import copy_again, delete, flip, recreate, tamper, topic_id, trim

DEVELOPMENT = [("brokers", "cluster")]
"""All that is the matter with a broker for tests: it is the only one."""


def found(report):
    """Return which check, where."""
    return [(finding.check, finding.where) for finding in report.findings]


async def test_a_running_owner_is_looked_at_and_not_disturbed(stage, unique):
    """Nothing is the matter but the single broker; state, sizes, times and the process are seen; same owner, exactly
    once. The probe's markers in the topics are stepped over by the next recovery."""
    here = await stage(apps.ledger(unique("doctor")), partitions=2)
    async with here.running(records=60) as service:
        await snapshot(service, 0)
        before = [status.owner_epoch for status in service.restore_status()]
        async with KafkaDiagnostics(here.settings()) as ask:
            seen = await Collector(here.app, here.settings(), ask).collect()
        report = await examine(here.app, here.settings())
        assert found(report) == DEVELOPMENT
        await here.feed(60)
        await here.assert_exactly_once(service)
        assert [status.owner_epoch for status in service.restore_status()] == before
    restored = await here.restored()
    assert restored.fallback_reason is None
    assert report.looked_at["partitions"] == 8
    assert (seen.members, seen.owned) == (1, frozenset({0, 1}))
    first, _ = seen.states
    assert first.timestamps_ms[here.app.inputs[0].name] == pytest.approx(seen.now_ms, abs=60_000)


async def test_what_is_missing_is_found_and_the_rest_is_looked_at(stage, unique):
    """One of the pair; all topics of a new app, of which no other check has anything to say; the app itself."""
    here = await stage(apps.ledger(unique("doctor")))
    new = await examine(apps.ledger(unique("new")), here.settings())
    assert {check for check, _ in found(new)} == {"brokers", "topics"}
    without_app = await examine(None, here.settings())
    assert found(without_app) == DEVELOPMENT
    assert (without_app.app_id, without_app.looked_at["states"]) == (None, 0)
    await asyncio.to_thread(delete, here.bootstrap_servers, f"{here.app.app_id}-snapshots")
    report = await examine(here.app, here.settings())
    assert ("topics", f"{here.app.app_id}-snapshots") in found(report)
    assert report.looked_at["partitions"] == 3


async def test_only_what_is_still_there_a_second_later_lasts(monkeypatch):
    """A running owner has one transaction after the other open: none of them is a finding."""
    looks = [{"here": 1, "busy": 2, "done": 3}, {"here": 1, "busy": 4}]

    async def look(_):
        return looks.pop(0)

    monkeypatch.setattr(collect, "LOOK_AGAIN_SECONDS", 0)
    assert await lasting(look, ["here", "busy", "done"]) == {"here": 1}


async def test_topics_that_were_made_again_are_told_by_their_ids(stage, unique):
    """An input that holds the same records is gone on from, and then records its new id. Increments that are empty are
    told from a new app by the ids in the snapshots."""
    here = await stage(apps.ledger(unique("ids")))
    topic = here.app.inputs[0].name
    async with here.running(records=20) as service:
        await snapshot(service)
    before = topic_id(here.bootstrap_servers, topic)
    await copy_again(here, topic, 20)
    (finding,) = told_ids(await examine(here.app, here.settings()))
    assert finding.where == topic
    now = topic_id(here.bootstrap_servers, topic)
    assert f"recorded id {before}, the topic now has id {now}" in finding.problem
    async with here.running(records=5) as service:
        await here.decided()
        assert told_ids(await examine(here.app, here.settings())) == []
    increments = f"{here.app.app_id}-increments"
    await asyncio.to_thread(recreate, here.bootstrap_servers, increments, 1)
    assert increments in [each.where for each in told_ids(await examine(here.app, here.settings()))]


def told_ids(report):
    return [finding for finding in report.findings if finding.check == "topic ids"]


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
    async with here.running(records=40) as service:
        await snapshot(service)
    state = await state_of(here)
    assert (state.missing, state.unusable) == (None, None)
    assert state.batch >= 2
    (last_processed,) = state.timestamps_ms.values()
    await here.feed(5)
    state = await state_of(here)
    assert state.timestamps_ms[here.app.inputs[0].name] > last_processed

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
