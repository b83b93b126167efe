"""Looking at a real cluster: a running owner notices nothing, and what is the matter is found."""

import asyncio

import pytest

from snapreplay.service.core.inspected import OpenTransaction
from snapreplay.service.doctor import collect
from snapreplay.service.doctor.collect import Collector, examine, impatient
from snapreplay.service.doctor.facts import Log
from snapreplay.service.kafka.diagnostics import KafkaDiagnostics
from snapreplay.service.ports import TopicPartition
from tests.support import apps
from tests.support.healthy import SNAPSHOT
from tests.support.stage import processed, settings_for, snapshot
from tests.support.tampering import copy_again, delete, recreate, topic_id

pytestmark = pytest.mark.kafka

DEVELOPMENT = [("brokers", "cluster")]
"""All that is the matter with a broker for tests: it is the only one."""


def found(report):
    """Return which check, where."""
    return [(finding.check, finding.where) for finding in report.findings]


async def test_a_running_owner_is_looked_at_and_not_disturbed(stage, unique):
    """Nothing is the matter but the single broker; state, sizes, times and the process are seen; same owner, exactly
    once. The probe's markers in the topics are stepped over by the next recovery."""
    here = await stage(apps.ledger(unique("doctor")), partitions=2)
    async with here.running() as service:
        await here.feed(60)
        await here.all_processed(service)
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
    first, second = seen.states
    assert (first.newest is not None, second.newest) == (True, None)
    assert 0 < (first.newest or SNAPSHOT).entries <= 20
    assert first.inputs[0].timestamp_ms == pytest.approx(seen.now_ms, abs=60_000)


async def test_what_is_missing_is_found_and_the_rest_is_looked_at(stage, unique):
    """One of the pair; all topics of a new app, of which no other check has anything to say; the app itself."""
    here = await stage(apps.ledger(unique("doctor")))
    new = await examine(apps.ledger(unique("new")), here.settings())
    assert {check for check, _ in found(new)} == {"brokers", "topics"}
    nobody = await examine(None, here.settings())
    assert found(nobody) == DEVELOPMENT
    assert (nobody.app_id, nobody.looked_at["states"]) == (None, 0)
    await asyncio.to_thread(delete, here.bootstrap_servers, f"{here.app.app_id}-snapshots")
    report = await examine(here.app, here.settings())
    assert ("topics", f"{here.app.app_id}-snapshots") in found(report)
    assert report.looked_at["partitions"] == 3


async def test_only_what_is_still_there_a_second_later_pins(monkeypatch):
    """A running owner has one transaction after the other open: none of them is a finding."""
    lasting, first, second = (OpenTransaction(number, 0, 40) for number in (1, 2, 3))
    logs = [Log(TopicPartition("t", number), 0, 40, 100) for number in range(3)]
    here, busy, done = (log.partition for log in logs)
    looks = [{here: lasting, busy: first, done: first}, {here: lasting, busy: second}]

    async def look(self, logs):
        return looks.pop(0)

    monkeypatch.setattr(Collector, "_pins", look)
    monkeypatch.setattr(collect, "LOOK_AGAIN_SECONDS", 0)
    settings = settings_for("127.0.0.1:9")
    found = await Collector(None, settings, KafkaDiagnostics(settings))._with_pins(logs)
    assert [log.pinned_by for log in found] == [lasting, None, None]


def test_a_partition_that_nobody_leads_is_not_waited_for_long():
    """Three requests, not the five minutes that a recovery has."""
    patient = settings_for("127.0.0.1:9")
    assert patient.timeouts.metadata_ms == 300_000
    quick = impatient(patient)
    assert (quick.timeouts.metadata_ms, quick.timeouts.progress_ms) == (30_000, 30_000)
    assert quick.timeouts.commit_ms == patient.timeouts.commit_ms


async def test_topics_that_were_made_again_are_told_by_their_ids(stage, unique):
    """An input that holds the same records is gone on from, and then records its new id. Increments that are empty are
    told from a new app by the ids in the snapshots."""
    here = await stage(apps.ledger(unique("ids")))
    topic = here.app.inputs[0].name
    async with here.running() as service:
        await here.feed(20)
        await processed(service, {0: 20})
        await snapshot(service)
    before = topic_id(here.bootstrap_servers, topic)
    await copy_again(here, topic, 20)
    (finding,) = told_ids(await examine(here.app, here.settings()))
    assert finding.where == topic
    now = topic_id(here.bootstrap_servers, topic)
    assert f"recorded id {before}, the topic now has id {now}" in finding.problem
    async with here.running() as service:
        await here.feed(5)
        await processed(service, {0: 25})
        assert told_ids(await examine(here.app, here.settings())) == []
    increments = f"{here.app.app_id}-increments"
    await asyncio.to_thread(recreate, here.bootstrap_servers, increments, 1)
    assert increments in [each.where for each in told_ids(await examine(here.app, here.settings()))]


def told_ids(report):
    return [finding for finding in report.findings if finding.check == "topic ids"]
