"""Is each input still the log that was processed? Real topics, trimmed, deleted, made again."""

import pytest

from snapreplay.service.decisions.init import init_app
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.ports import NewTopic
from snapreplay.service.recovery import inputs as module
from snapreplay.service.topics import stale_leader
from snapreplay.service.topics.requirements import ensure_topics
from snapreplay.snapshots.format.envelope import RecordKind
from tests.support import apps
from tests.support.stage import Stage, phase
from tests.support.tampering import copy_again, grow, recreate, tamper, topic_id, trim, with_fields

pytestmark = pytest.mark.kafka


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """A stale leader is believed for half a second here."""
    monkeypatch.setattr(stale_leader, "PATIENCE_SECONDS", 0.5)
    monkeypatch.setattr(stale_leader, "ASK_AGAIN_SECONDS", 0.1)


async def test_an_input_trimmed_up_to_our_position_is_fine(past):
    """Everything that is gone was processed; the anchor that is gone proves nothing."""
    then = await past()
    trim(then.here.bootstrap_servers, then.input, 0, 120)
    async with then.here.running() as service:
        assert service.view(0)["k0"]["n"] == 6


async def test_an_input_trimmed_beyond_our_position_fails(past, caplog):
    """FAILED with position and log start: never a silent jump over records nobody has seen. The log says it once."""
    then = await past()
    await then.here.feed(30)
    trim(then.here.bootstrap_servers, then.input, 0, 130)
    status = await then.here.failure()
    assert status.error.kind == "InputTrimmed"
    assert f"{then.input}-0" in status.error.message
    assert "offset 120, but the log begins at 130: 10 offsets are gone" in status.error.message
    assert "snapreplay accept" in status.error.hint
    assert sum(status.error.message in record.getMessage() for record in caplog.records) == 1


async def test_an_input_trimmed_behind_the_check_fails_all_the_same(past, monkeypatch):
    """The first read finds it trimmed; the next recovery names it."""
    then = await past()
    await then.here.feed(30)
    check = module.check_inputs

    async def check_and_trim(*given):
        checked = await check(*given)
        trim(then.here.bootstrap_servers, then.input, 0, 130)
        return checked

    monkeypatch.setattr(module, "check_inputs", check_and_trim)
    status = await then.here.failure()
    assert status.error.kind == "InputTrimmed"
    assert status.owner_epoch is not None, "it was never LIVE"


async def test_a_shorter_input_was_made_again(past):
    """Its end lies before our position, and no broker says otherwise for long enough."""
    then = await past()
    recreate(then.here.bootstrap_servers, then.input, 1)
    await then.here.feed(10)
    status = await then.here.failure()
    assert status.error.kind == "InputShorter"
    assert "ends at 10, but our position is 120" in status.error.message
    assert "snapreplay accept" in status.error.hint


async def test_all_brokers_that_agree_are_believed_at_once(past, monkeypatch, caplog):
    """Nobody waits for a stale leader where there is none; and what is waited for is said."""
    monkeypatch.setattr(stale_leader, "PATIENCE_SECONDS", 3600.0)
    then = await past()
    recreate(then.here.bootstrap_servers, then.input, 1)
    status = await then.here.failure()
    assert status.error.kind == "InputShorter"
    lines = [record.getMessage() for record in caplog.records]
    assert any("ends at 0, but our position is 120" in line and "s left" in line for line in lines)


async def test_brokers_that_do_not_agree_are_waited_for(past, monkeypatch):
    """One that answers late may know a longer log: the partition is not FAILED while it may; the status says why."""
    monkeypatch.setattr(stale_leader, "PATIENCE_SECONDS", 3600.0)
    monkeypatch.setattr(stale_leader, "ASK_AGAIN_SECONDS", 0.01)
    answers = []

    async def unknown(_, partition):
        answers.append(partition)
        return None if len(answers) < 20 else 0

    monkeypatch.setattr(KafkaCluster, "agreed_end_offset", unknown)
    then = await past()
    recreate(then.here.bootstrap_servers, then.input, 1)
    service = then.here.service()
    waits = []
    service._board.subscribe(
        lambda status: waits.append(status.restore and status.restore.waiting_for)
    )
    await service.start()
    try:
        await phase(service, "failed")
    finally:
        await service.stop()
    assert len(answers) == 19 + stale_leader.AGREED_TIMES
    assert any(wait and "asking all brokers, 3600 s left" in wait for wait in waits)


async def test_a_longer_input_that_was_made_again_is_known_by_its_anchor(past):
    """Another record stands where the last one was that we processed."""
    then = await past()
    recreate(then.here.bootstrap_servers, then.input, 1)
    await then.here.feed(150)
    status = await then.here.failure()
    assert status.error.kind == "InputReplaced"
    assert f"{then.input}-0 holds another record at offset 119" in status.error.message
    assert "snapreplay accept" in status.error.hint


async def test_a_copy_that_has_records_where_there_were_none_is_another_log(past):
    """As if three records and a marker had been passed over, aborted; in the new topic others stand there."""
    then = await past()
    passed = with_fields(positions={then.input: 124})
    await tamper(then.here, then.increments, RecordKind.INCREMENT, passed)
    await copy_again(then.here, then.input, 120)
    await then.here.feed(10)
    error = (await then.here.failure()).error
    assert error.kind == "InputReplaced"
    assert "but also one at offset 120, before our position 124" in error.message


async def test_more_partitions_of_an_input_are_refused_at_start(past):
    """Both counts are named, before any partition is touched."""
    then = await past()
    grow(then.here.bootstrap_servers, then.input, 2)
    service = then.here.service()
    await service.start()
    try:
        with pytest.raises(Exception, match="has 1 partition, but the inputs have 2"):
            await service.wait_live(30)
        assert service.restore_status() == []
    finally:
        await service.stop()


async def test_the_same_app_id_on_other_inputs_is_refused(past):
    """Both sets of inputs are named."""
    then = await past()
    name = then.here.app.app_id
    other = apps.pair(name)
    await then.here.cluster.create_topics(
        [NewTopic(topic.name, 1) for topic in (*other.inputs, *other.outputs)]
    )
    status = await then.here.failure(other)
    assert status.error.kind == "WrongLog"
    assert f"'payments-{name}', now it is 'left-{name}, right-{name}'" in status.error.message
    assert f"--state-of {name}" in status.error.hint


async def test_where_the_last_record_is_gone_the_id_alone_says_that_it_is_another_input(past):
    """The new log reaches beyond our position and was trimmed up to it."""
    then = await past()
    servers = then.here.bootstrap_servers
    old = topic_id(servers, then.input)
    recreate(servers, then.input, 1)
    await then.here.feed(150)
    trim(servers, then.input, 0, 120)
    status = await then.here.failure()
    assert status.error.kind == "InputReplaced"
    assert f"its id was {old}, now it is {topic_id(servers, then.input)}" in status.error.message
    assert "position 120" in status.error.message


async def test_another_input_of_which_nothing_was_processed_is_read_from_its_start(
    stage, unique, caplog
):
    """Said once; nothing of it is skipped."""
    here = await stage(apps.ledger(unique("fresh")))
    recreate(here.bootstrap_servers, here.app.inputs[0].name, 1)
    await here.feed(30)
    async with here.running() as service:
        await here.assert_exactly_once(service)
    assert len([r for r in caplog.records if "is read from its start" in r.getMessage()]) == 1


async def test_another_input_behind_whose_start_we_would_begin_is_refused(broker, unique):
    """The genesis began at the end of a topic that is gone: its offset 20 is not that of this one."""
    app = apps.ledger(unique("behind"))
    topic = app.inputs[0].name
    here = Stage(broker.bootstrap_servers, app)
    await ensure_topics(app, here.settings(), here.cluster, create_io_partitions=1)
    await here.feed(20)
    await init_app(app, here.settings(), here.cluster, start="latest")
    recreate(here.bootstrap_servers, topic, 1)
    await here.feed(30)
    status = await here.failure()
    assert status.error.kind == "InputReplaced"
    assert "position 20" in status.error.message
