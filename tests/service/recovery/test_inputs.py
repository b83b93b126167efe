"""Is each input still the log that was processed? Topics that are trimmed, deleted, made again."""

import pytest

from snapreplay.service.decisions.init import init_app
from snapreplay.service.ports import NewTopic
from snapreplay.service.recovery import inputs as module
from snapreplay.service.topics import stale_leader
from snapreplay.snapshots.format.envelope import RecordKind
from tests.simulation.cluster import SimCluster
from tests.support import apps
from tests.support.in_memory import virtual
from tests.support.tampering import with_fields


@virtual
async def test_an_input_trimmed_up_to_our_position_is_fine(bench):
    """Everything that is gone was processed; the anchor that is gone proves nothing."""
    await bench.past()
    bench.trim(bench.input, 120)
    async with bench.live() as one:
        assert one.view()["k0"]["n"] == 6


@virtual
async def test_an_input_trimmed_beyond_our_position_fails(bench, caplog):
    """FAILED with position and log start: never a silent jump over records nobody has seen. The log says it once."""
    await bench.past()
    await bench.feed(30)
    bench.trim(bench.input, 130)
    status = await bench.failure()
    assert status.error.kind == "InputTrimmed"
    assert f"{bench.input}-0" in status.error.message
    assert "offset 120, the log begins at 130; 10 offsets are gone" in status.error.message
    assert "snapreplay accept" in status.error.hint
    assert sum(status.error.message in record.getMessage() for record in caplog.records) == 1


@virtual
async def test_an_input_trimmed_behind_the_check_fails_all_the_same(bench, monkeypatch):
    """The first read finds it trimmed; the next recovery names it."""
    await bench.past()
    await bench.feed(30)
    check = module.check_inputs

    async def check_and_trim(*given):
        checked = await check(*given)
        bench.trim(bench.input, 130)
        return checked

    monkeypatch.setattr(module, "check_inputs", check_and_trim)
    status = await bench.failure()
    assert status.error.kind == "InputTrimmed"
    assert status.owner_epoch is not None, "it was never LIVE"


@virtual
async def test_a_shorter_input_was_made_again(bench):
    """Its end lies before our position, and no broker says otherwise for long enough."""
    await bench.past()
    bench.recreate(bench.input)
    await bench.feed(10)
    status = await bench.failure()
    assert status.error.kind == "InputShorter"
    assert "ends at 10, our position is 120" in status.error.message
    assert "snapreplay accept" in status.error.hint


@pytest.mark.parametrize("unsure", [0, 19])
@virtual
async def test_brokers_that_do_not_agree_are_waited_for(bench, monkeypatch, unsure):
    """One that answers late may know a longer log: the partition is not FAILED while it may; the status says why. All
    that agree are believed at once."""
    monkeypatch.setattr(stale_leader, "PATIENCE_SECONDS", 3600.0)
    answers, waits = [], []

    async def answered(_, partition):
        answers.append(partition)
        return None if len(answers) <= unsure else 0

    monkeypatch.setattr(SimCluster, "agreed_end_offset", answered)
    await bench.past()
    bench.recreate(bench.input)
    one = await bench.owner()
    one.board.subscribe(lambda status: waits.append(status.restore and status.restore.waiting_for))
    assert (await one.phase("failed")).error.kind == "InputShorter"
    assert len(answers) == unsure + stale_leader.AGREED_TIMES
    assert any(wait and "asking all brokers, 3600 s left" in wait for wait in waits)


@virtual
async def test_a_longer_input_that_was_made_again_is_known_by_its_anchor(bench):
    """Another record stands where the last one was that we processed."""
    await bench.past()
    bench.recreate(bench.input)
    await bench.feed(150)
    status = await bench.failure()
    assert status.error.kind == "InputReplaced"
    assert f"{bench.input}-0 offset 119" in status.error.message
    assert "snapreplay accept" in status.error.hint


@virtual
async def test_a_copy_that_has_records_where_there_were_none_is_another_log(bench):
    """As if three records and a marker had been passed over, aborted; in the new topic others stand there."""
    await bench.past()
    passed = with_fields(positions={bench.input: 124})
    bench.tamper(bench.increments, RecordKind.INCREMENT, passed)
    bench.copy_again(bench.input, 120)
    await bench.feed(10)
    error = (await bench.failure()).error
    assert error.kind == "InputReplaced"
    assert "another one at offset 120, before our position 124" in error.message


@virtual
async def test_the_same_app_id_on_other_inputs_is_refused(bench):
    """Both sets of inputs are named."""
    then = await bench.past()
    name = bench.app.app_id
    other = apps.pair(name)
    await then.here.cluster.create_topics(
        [NewTopic(topic.name, 1) for topic in (*other.inputs, *other.outputs)]
    )
    status = await bench.failure(other)
    assert status.error.kind == "WrongLog"
    assert f"'payments-{name}', now it is 'left-{name}, right-{name}'" in status.error.message
    assert f"--state-of {name}" in status.error.hint


@virtual
async def test_where_the_last_record_is_gone_the_id_alone_says_that_it_is_another_input(bench):
    """The new log reaches beyond our position and was trimmed up to it."""
    await bench.past()
    old = bench.broker.topic_ids[bench.input]
    bench.recreate(bench.input)
    await bench.feed(150)
    bench.trim(bench.input, 120)
    status = await bench.failure()
    assert status.error.kind == "InputReplaced"
    assert (
        f"its id was {old}, now it is {bench.broker.topic_ids[bench.input]}" in status.error.message
    )
    assert "position 120" in status.error.message


@virtual
async def test_another_input_of_which_nothing_was_processed_is_read_from_its_start(bench, caplog):
    """Said once; nothing of it is skipped."""
    await bench.prepare()
    bench.recreate(bench.input)
    await bench.feed(30)
    await bench.restored()
    assert len([r for r in caplog.records if "is read from its start" in r.getMessage()]) == 1


@virtual
async def test_another_input_behind_whose_start_we_would_begin_is_refused(bench):
    """The genesis began at the end of a topic that is gone: its offset 20 is not that of this one."""
    bench.create_topics()
    await bench.feed(20)
    await init_app(bench.app, bench.settings(), bench.cluster, start="latest")
    bench.recreate(bench.input)
    await bench.feed(30)
    error = (await bench.failure()).error
    assert error.kind == "InputReplaced"
    assert "position 20" in error.message
