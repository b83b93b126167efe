"""`init` against a real broker: batch 0 in every partition, once."""

import pytest

from snapreplay.app.names import transactional_id
from snapreplay.errors import NotBegun, StopError
from snapreplay.service.decisions import init as module
from snapreplay.service.decisions.first_start import begun
from snapreplay.service.decisions.init import init_app
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.ports import TopicPartition
from snapreplay.service.topics.requirements import KEPT_FOR_EVER, ensure_topics
from snapreplay.snapshots.format.records import NO_OFFSET, Claim, Increment
from tests.support import apps, reference
from tests.support.deadlines import scaled
from tests.support.entries import read_entry
from tests.support.inside import add_uncommitted
from tests.support.stage import Stage, processed
from tests.support.tampering import recreate, trim


@pytest.fixture
async def bare(broker, unique):
    """Topics, but no genesis."""
    here = Stage(broker.bootstrap_servers, apps.ledger(unique("genesis")), 2)
    await ensure_topics(here.app, here.settings(), here.cluster, create_io_partitions=2)
    return here


async def log_of(here, partition):
    records = (await here.read(f"{here.app.app_id}-increments"))[partition]
    return [(record.offset, read_entry(record.value)) for record in records]


async def test_each_partition_gets_a_claim_and_batch_zero(bare):
    """Everything a recovery checks stands in it, and the start offsets are the input's first ones."""
    await bare.feed(20)
    trim(bare.bootstrap_servers, f"payments-{bare.app.app_id}", 1, 4)
    lines = await init_app(bare.app, bare.settings(), bare.cluster)
    topic = f"payments-{bare.app.app_id}"
    assert lines[0] == f"partition 0: initialised, {topic} from offset 0"
    assert lines[1] == f"partition 1: initialised, {topic} from offset 4"
    for partition, start in ((0, 0), (1, 4)):
        (claimed_at, claim), (_, genesis) = await log_of(bare, partition)
        assert isinstance(claim, Claim)
        assert isinstance(genesis, Increment)
        assert (genesis.batch, genesis.previous_offset) == (0, NO_OFFSET)
        assert genesis.owner_epoch == claimed_at
        assert genesis.genesis.start_offsets == genesis.positions == {topic: start}
        assert genesis.genesis.partition_count == 2
        assert set(genesis.topic_ids) == {topic, f"{bare.app.app_id}-increments", f"{bare.app.app_id}-snapshots"}
        assert all(len(each) == 22 for each in genesis.topic_ids.values())
        assert genesis.genesis.cluster_id == (await bare.cluster.facts()).cluster_id


async def test_latest_begins_behind_what_is_there(bare):
    """The records before are never processed."""
    await bare.feed(20)
    await init_app(bare.app, bare.settings(), bare.cluster, "latest")
    ends = [len(records) for records in await bare.read(f"payments-{bare.app.app_id}")]
    async with bare.started() as service:
        await service.wait_live(scaled(30))
        await bare.feed(10)
        more = [len(records) for records in await bare.read(f"payments-{bare.app.app_id}")]
        await processed(service, dict(enumerate(more)))
        counts = [s.records_total for s in service.restore_status()]
        assert counts == [after - before for before, after in zip(ends, more, strict=True)]


async def test_outputs_that_are_there_already_are_told(bare):
    """A new app id over old topics, or own topics that a mirror did not bring along."""
    (output,) = bare.app.outputs
    await bare.feed(20)
    reference.send(bare.bootstrap_servers, output.name, 1, [("k", 1)])
    told = f"output {output.name} already holds records: if they come from this input, they are written a second time"
    assert (await init_app(bare.app, bare.settings(), bare.cluster))[-1] == told
    assert told not in await init_app(bare.app, bare.settings(), bare.cluster)


async def left_open(here, seconds=60):
    """A process fences partition 0 and is killed in a transaction without a record, which times out after `seconds`."""
    settings = here.settings()
    settings = settings.replaced(timeouts=settings.timeouts.replaced(transaction_ms=seconds * 1000))
    name = transactional_id(here.app.app_id, 0)
    producer = await KafkaCluster(settings).fence(name)
    log = TopicPartition(f"{here.app.app_id}-increments", 0)
    await add_uncommitted(producer, log)
    await producer.discard()


async def test_one_that_was_killed_before_its_claim_is_run_again(bare):
    """Its transaction is open, and nothing in the log shows who began it."""
    await left_open(bare)
    with pytest.raises(NotBegun, match="`init` is running or was interrupted; partitions with a genesis: 0 of 2"):
        await begun(bare.app, bare.settings(), bare.cluster, "refuse", lambda _: None)
    lines = await init_app(bare.app, bare.settings(), bare.cluster)
    assert [": initialised, " in line for line in lines] == [True, True]
    async with bare.running() as service:
        await bare.feed(20)
        await bare.assert_exactly_once(service)


async def test_an_app_that_has_processed_something_is_not_initialised_again(bare):
    """It says how far the app is, and writes nothing."""
    await init_app(bare.app, bare.settings(), bare.cluster)
    await bare.send([("0:a", {"amount": 1})])
    async with bare.running() as service:
        await processed(service, {0: 1})
        before = await log_of(bare, 1)
        lines = await init_app(bare.app, bare.settings(), bare.cluster)
        assert "partition 0: already initialised, at batch 1" in lines
        assert await log_of(bare, 1) == before


async def test_lost_increments_are_not_a_new_app(bare):
    """Snapshots without increments: init refuses, and says how to start again on purpose."""
    await init_app(bare.app, bare.settings(), bare.cluster)
    await bare.send([("0:a", {"amount": 1})])
    service = bare.service(snapshot={"before_stop": True})
    await service.start()
    await processed(service, {0: 1})
    await service.stop()
    topic = f"{bare.app.app_id}-increments"
    recreate(bare.bootstrap_servers, topic, 2, KEPT_FOR_EVER)
    with pytest.raises(StopError, match="the increments were lost") as refused:
        await init_app(bare.app, bare.settings(), bare.cluster)
    assert "restore the increments topic" in refused.value.hint
    assert await bare.read(topic) == [[], []]


async def test_a_chain_that_was_not_seen_at_first_is_never_begun_again(stage, unique, monkeypatch):
    """Another `init` was quicker, or a stale leader answered: only what precedes our own claim counts."""
    here = await stage(apps.ledger(unique("late")))
    await here.feed(20)

    async def not_yet(_):
        return None

    monkeypatch.setattr(module, "_last", not_yet)
    lines = await init_app(here.app, here.settings(), here.cluster)
    assert lines[0].startswith("partition 0: already initialised, at batch ")
    async with here.running() as service:
        await here.assert_exactly_once(service)
