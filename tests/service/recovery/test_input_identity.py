"""Is each input still the log that was processed? Topics that are trimmed, deleted, made again."""

import pytest

from snapreplay.app.ranges import PositionAnchor
from snapreplay.service.core.chain import read_positions
from snapreplay.service.ports import TopicPartition
from snapreplay.service.recovery import input_identity as module
from snapreplay.service.recovery.input_identity import was_cut
from snapreplay.service.topics.reading import AGREED_TIMES, reading
from snapreplay.snapshots.format.envelope import RecordKind
from tests.simulation.cluster import SimCluster
from tests.simulation.log import Transaction, TxnState
from tests.support.stage import until
from tests.support.tampering import with_fields


def made_again(bench, records=()):
    bench.recreate(bench.input, records)
    return bench.broker.topic_ids[bench.input]


def trimmed(bench):
    bench.trim(bench.input, 130)


def copied_behind_a_gap(bench):
    """Copy as if three records and a marker had been passed over, aborted; in the new topic others stand there."""
    passed = with_fields(positions={bench.input: 124})
    bench.tamper(bench.increments, RecordKind.INCREMENT, passed)
    bench.copy_again(bench.input, 120)


def trimmed_copy(bench):
    """Its end is beyond our position, and the record before that is gone."""
    made_again(bench, bench.log(bench.input).committed()[:1] * 121)
    bench.trim(bench.input, 120)


@pytest.mark.parametrize(
    ("change", "more", "kind", "text"),
    [
        (trimmed, 30, "InputTrimmed", "offset 120, but the log begins at 130: 10 offsets are gone"),
        (made_again, 10, "InputShorter", "ends at 10, but the position is 120"),
        (made_again, 150, "InputReplaced", "payments-app-0 holds another record at offset 119"),
        (copied_behind_a_gap, 10, "InputReplaced", "offset 120, before the position 124"),
        (trimmed_copy, 30, "InputReplaced", "its id was id-1, now it is id-6"),
    ],
)
async def test_an_input_that_is_not_the_log_that_was_processed_fails(bench, caplog, change, more, kind, text):
    """By its start, its end, the last record, a record where there was none, or its id alone. The log says it once."""
    await bench.past()
    if change is trimmed:
        await bench.feed(more)
    change(bench)
    if change is not trimmed:
        await bench.feed(more)
    error = (await bench.failure()).error
    assert (error.kind, text in error.message) == (kind, True), error.message
    assert "snapreplay accept" in error.hint
    assert sum(error.message in record.getMessage() for record in caplog.records) == 1


def cut(bench, epoch):
    """The brokers lose twenty of the records that were processed. Returns them."""
    log = bench.log(bench.input)
    lost = log.records[100:120]
    log.cut(100)
    log.elect(epoch)
    return lost


@pytest.mark.parametrize(
    ("epoch", "text"),
    [
        (None, "offsets 100 to 120 were read and are no longer there; 20 other offsets are in their"),
        (0, "holds another record batch below offset 120, up to which it was read: it had leader"),
    ],
    ids=["elected", "epochs repeat"],
)
async def test_a_log_that_was_cut_and_grew_again_is_refused(bench, epoch, text):
    """The id is the same, and the message says where it was cut, as far as a broker knows it."""
    await bench.past()
    cut(bench, epoch)
    await bench.feed(60)
    error = (await bench.failure()).error
    assert (error.kind, text in error.message) == ("InputReplaced", True), error.message


async def test_a_log_that_was_cut_behind_the_last_record_is_refused(bench):
    """There were a transaction that was aborted and its marker, and the position was behind them."""
    await bench.past()
    aborted = Transaction("somebody", 0, 0.0)
    log = bench.log(bench.input)
    for _ in range(3):
        log.append(None, b"{}", (), 1, aborted)
    aborted.state = TxnState.ABORTED
    log.mark(aborted)
    passed = with_fields(positions={bench.input: 124}, position_anchors={bench.input: log.anchor_at(124)})
    bench.tamper(bench.increments, RecordKind.INCREMENT, passed)
    log.cut(120)
    log.elect()
    await bench.feed(30)
    error = (await bench.failure()).error
    assert "offsets 120 to 124 were read and are no longer there" in error.message


async def test_a_state_whose_snapshot_is_lost_as_well_is_written_before_its_input_is_refused(bench):
    """Input and snapshots lost their ends together: what is in memory is the only copy, although the last increment
    points to a snapshot of it."""
    await bench.prepare()
    async with bench.live(records=20) as one:
        await one.snapshot()
        bench.broker.lose(TopicPartition(bench.snapshots, 0), 0, 0, None)
        bench.broker.lose(TopicPartition(bench.input, 0), 10, 0, None)
        await bench.feed(20)
        await until(lambda: one.status.phase == "failed", "FAILED", 120.0)
        assert one.status.error.kind == "InputReplaced"
    error = (await bench.failure()).error
    assert error.kind == "InputReplaced", error.message


async def test_a_log_that_got_its_last_record_back_is_a_copy_of_itself(bench, caplog):
    """Somebody has sent again what was lost. A warning says so, once: what lies there now is recorded."""
    await bench.past()
    for record in cut(bench, None):
        log = bench.log(bench.input)
        log.append(record.key, record.value, record.headers, record.timestamp, None)
    context, partition = await bench.context(), TopicPartition(bench.input, 0)
    position = read_positions(bench.batches()[-1])[bench.input]
    async with reading(context.cluster) as reader:
        assert not await was_cut(reader, partition, position), "all callers have one rule"
    for _ in range(2):
        async with bench.live() as one:
            await bench.feed(1)
            await bench.assert_exactly_once(one)
    told = [each for each in caplog.messages if "copy of itself" in each]
    assert len(told) == 1
    assert f"input {bench.input} was cut and has grown again" in told[0]


def rewritten(log):
    """Rewrite every batch, as the cleaner does with a batch that loses a record or holds a tombstone."""
    log.clean(log.end, lambda ways: ways[1])


def removed(log):
    """The batch below the position held nothing that is read."""
    log.clean(log.end, lambda ways: ways[-1])


@pytest.mark.parametrize("clean", [rewritten, removed])
@pytest.mark.parametrize("behind_marker", [True, False], ids=["marker", "record"])
async def test_an_input_that_was_compacted_for_a_while_is_read_on(bench, caplog, clean, behind_marker):
    """The topic's cleanup.policy is `delete` by now: what the batch holds says that it was cleaned, not cut. Nothing is
    refused, and nothing is taken for a copy of itself."""
    await bench.past()
    log = bench.log(bench.input)
    if behind_marker:
        log.mark(Transaction("somebody", 0, 0.0, TxnState.COMMITTED))
        async with bench.live() as one:
            await one.position(log.end)
    clean(log)
    async with bench.live() as one:
        await bench.feed(5)
        await bench.assert_exactly_once(one)
    assert not [each for each in caplog.messages if "grown again" in each or "was cut" in each]


async def test_a_log_that_was_cut_and_grew_again_before_it_was_cleaned_is_refused(bench):
    """A batch that was cleaned may be another one all the same: the leader epochs tell."""
    await bench.past()
    cut(bench, None)
    await bench.feed(60)
    rewritten(bench.log(bench.input))
    error = (await bench.failure()).error
    assert error.kind == "InputReplaced", error.message


async def test_the_same_bytes_of_another_leader_epoch_are_another_batch(bench, caplog):
    """Two logs may have the same batch behind other ones."""
    await bench.past()
    here = bench.log(bench.input).anchor_at(120)
    other = {bench.input: PositionAnchor(here.leader_epoch + 1, here.crc32c)}
    bench.tamper(bench.increments, RecordKind.INCREMENT, with_fields(position_anchors=other))
    async with bench.live():
        pass
    assert any("copy of itself" in each for each in caplog.messages)


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


@pytest.mark.parametrize("unsure", [0, 19])
async def test_brokers_that_do_not_agree_are_waited_for(bench, monkeypatch, unsure):
    """One that answers late may know a longer log: the partition is not FAILED while it may; the status says why. All
    that agree are believed at once."""
    monkeypatch.setattr("snapreplay.service.topics.reading.PATIENCE_SECONDS", 3600.0)
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
    assert len(answers) == unsure + AGREED_TIMES
    assert any(wait and "asking all brokers, 3600 s left" in wait for wait in waits)


async def test_another_input_of_which_nothing_was_processed_is_read_from_its_start(bench, caplog):
    """Said once; nothing of it is skipped."""
    await bench.prepare()
    bench.recreate(bench.input)
    await bench.feed(30)
    await bench.restored()
    assert len([r for r in caplog.records if "is read from its start" in r.getMessage()]) == 1
