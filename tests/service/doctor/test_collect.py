"""Looking at a real cluster: a running owner notices nothing, and what is the matter is found."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from aiokafka import AIOKafkaProducer

from snapreplay.errors import StopError
from snapreplay.service.core.inspected import OpenTransaction
from snapreplay.service.doctor import collect
from snapreplay.service.doctor.collect import Collector, examine, impatient
from snapreplay.service.doctor.facts import Log
from snapreplay.service.kafka.diagnostics import KafkaDiagnostics
from snapreplay.service.ports import TopicPartition
from snapreplay.service.topics.requirements import ensure_topics
from tests.support import apps
from tests.support.healthy import SNAPSHOT
from tests.support.stage import phase, processed, settings_for, snapshot, until
from tests.support.tampering import copy_again, delete, recreate, topic_id

pytestmark = pytest.mark.kafka

DEVELOPMENT = [("brokers", "cluster")]
"""All that is the matter with a broker for tests: it is the only one."""


def found(report):
    """Which check, where."""
    return [(finding.check, finding.where) for finding in report.findings]


@asynccontextmanager
async def held_back(servers, topic):
    """A foreign transaction open in partition 0."""
    producer = AIOKafkaProducer(bootstrap_servers=servers, transactional_id=f"{topic}-foreign")
    await producer.start()
    await producer.begin_transaction()
    try:
        await (await producer.send(topic, b"x", partition=0))
        yield
        await producer.abort_transaction()
    finally:
        await producer.stop()


async def test_a_running_owner_is_looked_at_and_not_disturbed(stage, unique):
    """Nothing is the matter but the single broker; state, sizes and times are seen; same owner, exactly once."""
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
    assert report.looked_at["partitions"] == 8
    first, second = seen.states
    assert (first.newest is not None, second.newest) == (True, None)
    assert 0 < (first.newest or SNAPSHOT).entries <= 20
    assert first.inputs[0].timestamp_ms == pytest.approx(seen.now_ms, abs=60_000)


async def test_a_pinned_topic_is_found_with_the_transaction_that_pins_it(stage, unique):
    """Who, where, and what to do; when it ends, the finding is gone."""
    here = await stage(apps.ledger(unique("doctor")))
    increments = f"{here.app.app_id}-increments"
    async with held_back(here.bootstrap_servers, increments):
        report = await examine(here.app, here.settings())
    (finding,) = [each for each in report.findings if each.check == "open transaction"]
    assert finding.where == f"{increments}-0"
    assert f"'{increments}-foreign'" in finding.problem
    await here.read(increments)  # until its marker is there
    assert found(await examine(here.app, here.settings())) == DEVELOPMENT


async def test_what_is_missing_or_refused_is_found_and_the_rest_is_looked_at(
    stage, unique, monkeypatch
):
    """One of the pair is gone, and who may use the group cannot be asked."""
    here = await stage(apps.ledger(unique("doctor")))
    delete(here.bootstrap_servers, f"{here.app.app_id}-snapshots")

    async def refused(self, group_id, owners):
        raise StopError("not allowed", hint="allow it")

    with monkeypatch.context() as patch:
        patch.setattr(KafkaDiagnostics, "refused", refused)
        async with KafkaDiagnostics(here.settings()) as ask:
            seen = await Collector(here.app, here.settings(), ask).collect()
    assert [each.where for each in seen.refusals] == [f"group {here.app.app_id}"]
    report = await examine(here.app, here.settings())
    assert ("topics", f"{here.app.app_id}-snapshots") in found(report)
    assert report.looked_at["partitions"] == 3


async def test_an_app_that_was_never_initialised_is_told_how(stage, unique):
    """None of its topics is there: no other check has anything to say about them."""
    here = await stage(apps.ledger(unique("doctor")))
    report = await examine(apps.ledger(unique("new")), here.settings())
    assert {check for check, _ in found(report)} == {"brokers", "topics"}


async def test_without_an_app_the_cluster_is_looked_at(broker):
    """Nothing is written at all."""
    report = await examine(None, settings_for(broker.bootstrap_servers))
    assert found(report) == DEVELOPMENT
    assert (report.app_id, report.looked_at["states"]) == (None, 0)


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


async def test_nothing_is_lost_by_looking(stage, unique):
    """The probe's markers in the topics are stepped over by the next recovery."""
    here = await stage(apps.ledger(unique("doctor")))
    async with here.running() as service:
        await here.feed(20)
        await processed(service, {0: 20})
    for _ in range(3):
        assert found(await examine(here.app, here.settings())) == DEVELOPMENT
    restore = await here.restored()
    assert restore.fallback_reason is None


async def test_a_topic_deleted_under_its_owner_is_named_and_the_remedy_heals(stage, unique):
    """Missing: the command that is recommended, and nothing else, brings all back. Then nothing is the matter."""
    here = await stage(apps.ledger(unique("remade")))
    async with here.running() as service:
        await here.feed(50)
        await processed(service, {0: 50})
        increments = f"{here.app.app_id}-increments"
        await asyncio.to_thread(delete, here.bootstrap_servers, increments)
        await until(lambda: service.restore_status()[0].error, "noticed")
        missing = next(
            each
            for each in (await examine(here.app, here.settings())).findings
            if each.check == "topics"
        )
        assert missing.where == increments
        assert "`snapreplay topics ensure " in missing.remedy
        await ensure_topics(here.app, here.settings(), here.cluster)
        await phase(service, "live")
        assert found(await examine(here.app, here.settings())) == DEVELOPMENT
        await here.assert_exactly_once(service)


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
