"""The first start: who waits for a genesis, who refuses, who begins; on the simulator's Kafka, in virtual time."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from snapreplay.app.names import transactional_id, witness_group
from snapreplay.errors import NotBegun
from snapreplay.service.core.kafka_errors import Unreachable
from snapreplay.service.decisions.first_start import begun
from snapreplay.service.decisions.init import OwnedBefore, init_app
from snapreplay.service.ports import TopicPartition
from snapreplay.service.preflight import OwnTopicsMissing
from snapreplay.service.publish.owned import claim_record
from snapreplay.service.topics.requirements import TopicsIncomplete
from snapreplay.snapshots.format.envelope import RecordKind, decode, kind_of
from tests.support import apps
from tests.support.in_memory import InMemory, virtual
from tests.support.tampering import with_fields

TRANSACTION_SECONDS = 30.0


def fresh(partitions: int = 2) -> InMemory:
    """An app with topics and without a genesis."""
    return InMemory().beside(apps.ledger("fresh"), partitions)


@virtual
async def test_init_waits_for_the_coordinator_of_a_new_cluster(monkeypatch):
    """The first question makes the brokers create the coordinator's topic. Without a coordinator it is an error."""
    here = fresh(1)
    last_fence, asked = here.broker.last_fence, 0

    def not_yet(transactional_id):
        nonlocal asked
        asked += 1
        if asked < answers_after:
            raise Unreachable("no broker is the coordinator yet")
        return last_fence(transactional_id)

    monkeypatch.setattr(here.broker, "last_fence", not_yet)
    answers_after = 1000
    with pytest.raises(Unreachable):
        await init_app(here.app, here.settings(), here.cluster)
    answers_after, asked = 5, 0
    await init_app(here.app, here.settings(), here.cluster)
    assert asked >= 5


class Start:
    """A process that starts: what it waited for, and what came of it."""

    def __init__(self, here: InMemory, first_start="wait"):
        self.heard: list[NotBegun] = []
        work = begun(here.app, here.settings(), here.cluster, first_start, self.heard.append)
        self.task = asyncio.create_task(work)

    async def waits(self) -> bool:
        await asyncio.sleep(30)  # virtual time
        return not self.task.done()


@virtual
async def test_a_new_app_waits_and_starts_after_init():
    """Told what is missing and the one command; no owner is fenced and nothing is written meanwhile."""
    here = fresh()
    start = Start(here)
    assert await start.waits()
    (awaited, *_) = start.heard
    assert "app 'fresh' has not begun" in awaited.message
    assert awaited.hint.startswith("`snapreplay init ")
    assert here.log(here.increments).end == 0
    await init_app(here.app, here.settings(), here.cluster)
    view = await start.task
    assert view.partition_count == 2


@virtual
async def test_a_process_never_starts_in_the_middle_of_init():
    """The first partition has begun, the last one has not: it would fence the `init`."""
    here = fresh(1)
    await init_app(here.app, here.settings(), here.cluster)
    for topic in list(here.broker.topic_ids):
        if topic != here.increments:
            here.broker.delete(topic)
            here.broker.create(topic, 2)
    begun_one = here.log(here.increments).committed()
    here.broker.delete(here.increments)
    here.broker.create(here.increments, 2)
    for each in begun_one:
        value: Any = each.value
        if kind_of(value) is RecordKind.INCREMENT:
            entry: Any = decode(value)
            value = with_fields(genesis=replace(entry.genesis, partition_count=2))(value)
        here.log(here.increments).append(each.key, value, each.headers, each.timestamp, None)
    assert await Start(here).waits()


async def killed(here: InMemory, then: str) -> None:
    """Leave what an `init` leaves of its first partition when it is killed at that moment."""
    broker, log = here.broker, TopicPartition(here.increments, 0)
    claim = claim_record(await here.context(app=here.app), "killed")
    name = transactional_id(here.app.app_id, 0)
    epoch = broker.init_producer(name, TRANSACTION_SECONDS).epoch
    if then == "fenced":
        return
    broker.add_partition(name, epoch, log)
    if then == "written":
        broker.produce(name, epoch, log, [claim])


@pytest.mark.parametrize("seconds", [0.0, 60.0], ids=["at once", "a minute later"])
@pytest.mark.parametrize("then", ["fenced", "begun", "written"])
@virtual
async def test_an_init_that_was_killed_before_its_claim_is_completed(then, seconds):
    """With anything left open: a process waits, names `init` as the command, and continues once that has run."""
    here = fresh()
    await killed(here, then)
    await asyncio.sleep(seconds)  # virtual time: until the transaction is over
    start = Start(here)
    assert await start.waits()
    awaited = start.heard[0]
    assert "`init` is running or was interrupted; partitions with a genesis: 0 of 2" in awaited.message
    assert awaited.hint.startswith("`snapreplay init ")
    await init_app(here.app, here.settings(), here.cluster)
    await start.task
    assert len(here.batches()) == 1


@virtual
async def test_without_own_topics_it_waits_for_them_first():
    """The hint names `topics ensure`, then `init`; both are noticed."""
    here = fresh()
    here.delete_own_topics()
    start = Start(here)
    assert await start.waits()
    assert start.heard[0].hint.startswith("`snapreplay topics ensure ")
    here.create_topics(2)
    assert await start.waits()
    assert start.heard[-1].hint.startswith("`snapreplay init ")
    await init_app(here.app, here.settings(), here.cluster)
    await start.task


@virtual
async def test_between_the_creation_of_two_topics_it_is_patient():
    """Only who waited for both: a start with one of them is refused."""
    here = fresh()
    here.delete_own_topics()
    start = Start(here)
    assert await start.waits()
    here.broker.create(here.increments, 2)
    with pytest.raises(TopicsIncomplete):
        await Start(here).task
    here.broker.create(here.snapshots, 2)
    assert await start.waits()
    here.delete_own_topics()
    again = Start(here)
    assert await again.waits()
    here.broker.create(here.increments, 2)
    with pytest.raises(TopicsIncomplete):
        await again.task
    start.task.cancel()


@virtual
async def test_several_processes_begin_it_together():
    """A process that is fenced by another one looks again: one genesis, all continue."""
    here = fresh(1)
    here.delete_own_topics()
    starts = [Start(here, "earliest") for _ in range(4)]
    for each in starts:
        await each.task
    assert len(here.batches()) == 1


# ---- what is never taken for a new app ----------------------------------------------------------


async def ran(here: InMemory) -> None:
    """Ten records are processed, then all processes end."""
    await here.prepare(here.app)
    async with here.live() as one:
        await one.feed(10)


@virtual
async def test_a_lost_log_is_not_waited_for():
    """Emptied, or another topic of its name, without a process: the recovery follows, which says what was lost."""
    for lose in (lambda h: h.trim(h.increments, h.log(h.increments).end), lambda h: h.recreate(h.increments)):
        here = InMemory()
        await ran(here)
        lose(here)
        left = here.log(here.increments).end
        for first_start in ("wait", "refuse", "earliest"):
            await Start(here, first_start).task
        assert here.log(here.increments).end == left, "it was not begun again"
        status = await here.failure()
        assert status.error.kind == "NotInitialised"


async def refuses(here: InMemory) -> None:
    """No process waits for `init`, and `init` itself writes nothing."""
    left = here.batches()
    for first_start in ("wait", "refuse", "earliest"):
        assert not await Start(here, first_start).waits()
    with pytest.raises(OwnedBefore) as refused:
        await init_app(here.app, here.settings(), here.cluster)
    assert "--state-is-lost" in refused.value.hint
    assert here.batches() == left


@pytest.mark.parametrize("seconds", [0.0, 60.0], ids=["at once", "a minute later"])
@pytest.mark.parametrize("forgotten", [False, True], ids=["known", "after a week"])
@virtual
async def test_the_marker_of_a_dead_owner_does_not_make_a_lost_log_new(seconds, forgotten):
    """An owner is killed within a transaction, and both topics are created again: the marker comes into the new topic.
    It makes no difference if the coordinator knew no fence before that owner's, because it forgets after a week."""
    here = InMemory()
    await here.prepare(here.app)
    name = transactional_id(here.app.app_id, 0)
    if forgotten:
        here.broker.forget(name)
    async with here.live() as one:
        await one.feed(10)
    last = here.broker.last_fence(name)
    assert last is not None
    here.broker.add_partition(name, last.lineage.producer_epoch, TopicPartition(here.increments, 0))
    here.recreate_own_topics()
    await asyncio.sleep(seconds)  # virtual time: until the transaction is over
    await refuses(here)


@virtual
async def test_a_log_that_was_cut_to_a_claim_is_not_new_although_only_the_witness_knows():
    """A claim without an increment looks like an `init` that was interrupted."""
    here = InMemory()
    await here.prepare(here.app)
    async with here.live(records=10) as one:
        group = here.cluster.offset_committer(witness_group(here.app.app_id))
        await one.context.witnesses.end(group)
    increments = TopicPartition(here.increments, 0)
    genesis = here.log(here.increments).committed()[1]
    assert kind_of(genesis.value or b"") is RecordKind.INCREMENT
    here.broker.lose(increments, genesis.offset, 0, None)
    await refuses(here)
    await init_app(here.app, here.settings(), here.cluster, state_is_lost=True)
    async with here.live() as one:
        await one.position(10)


@virtual
async def test_an_owner_that_died_before_its_claim_does_not_make_a_lost_log_new():
    """It committed nothing, but its fence was not the first one."""
    here = InMemory()
    await ran(here)
    here.broker.init_producer(transactional_id(here.app.app_id, 0), TRANSACTION_SECONDS)
    here.recreate_own_topics()
    await refuses(here)


@pytest.mark.parametrize("left", [0, 2], ids=["nothing is left", "the last claim is left"])
@virtual
async def test_a_log_that_was_emptied_is_not_begun_again(left):
    """Before the first snapshot, only the deleted records show that the app ran. Even `init` refuses it."""
    here = InMemory()
    await ran(here)
    async with here.live():
        pass
    log = here.log(here.increments)
    assert kind_of(log.committed()[-1].value or b"") is RecordKind.CLAIM
    here.trim(here.increments, log.end - left)
    here.recreate(here.snapshots)
    await refuses(here)


@virtual
async def test_an_app_with_a_member_is_not_new():
    """A process that waits is no member. So one has run, and may be about to write the only copy of the state: so far
    its claim is all that is in the topics."""

    here = fresh(1)
    record = claim_record(await here.context(app=here.app), "c")
    here.log(here.increments).append(None, record.value, record.headers, 1000, None)
    assert await Start(here).waits()
    here.broker.members = ["one"]
    for first_start in ("wait", "refuse", "earliest"):
        await Start(here, first_start).task
    assert here.batches() == []
    here.delete_own_topics()
    with pytest.raises(OwnTopicsMissing, match="are missing"):
        await Start(here, "earliest").task


@virtual
async def test_own_topics_that_were_deleted_are_refused():
    """Both are gone, and the coordinator knows their owner: nothing is created, by no process."""
    here = InMemory()
    await ran(here)
    here.delete_own_topics()
    for first_start in ("wait", "refuse", "earliest"):
        with pytest.raises(OwnTopicsMissing, match="are missing"):
            await Start(here, first_start).task
    assert here.increments not in here.broker.topic_ids
