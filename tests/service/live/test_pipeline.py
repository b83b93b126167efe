"""A LIVE partition: what it commits, and what it does about a record that it cannot apply."""

import asyncio
import json

import pytest

from snapreplay.app.ranges import SkippedRange
from snapreplay.service.live import pace, pipeline, recoverability_monitor
from snapreplay.service.ports import NewTopic
from tests.simulation.log import Transaction, TxnState
from tests.support import apps
from tests.support.stage import until

DEAD_LETTER = {"policy": "dead_letter"}
SMALL = {"records_max": 7, "linger_ms": 0}


def amounts(first, last, poisoned=()):
    """Payments, some of which are poison."""
    return [("a", {"amount": n, **({"poison": True} if n in poisoned else {})}) for n in range(first, last)]


def is_poison(value):
    return bool(value.get("poison"))


# ---- committing --------------------------------------------------------------------------------


async def test_the_log_is_a_chain_without_gaps(bench):
    """Batch numbers +1, ranges adjacent, outputs counted, positions those of the ranges; all that is shown is true."""
    await bench.prepare(batch=SMALL)
    await bench.feed(100)
    async with bench.live() as one:
        await bench.assert_exactly_once(one)
        status = one.status
    assert (status.records_total, status.skipped_total, status.state_entries) == (100, 0, 20)
    (payments,) = status.inputs
    assert payments.handled_total == 100
    assert payments.handler_seconds_total > 0
    assert status.outputs_total == 100
    assert (status.inputs[0].position, status.inputs[0].lag) == (100, 0)
    assert status.digest.startswith("20:")
    assert status.state_bytes > status.state_largest_entry_bytes > 0
    increments = bench.batches()
    assert [i.batch for i in increments] == list(range(len(increments)))
    ranges = [r for i in increments for r in i.ranges]
    assert [r.start_offset for r in ranges] == [0, *(r.end_offset for r in ranges[:-1])]
    assert [r.record_count for r in ranges] == [7] * 14 + [2], "what waits fills every batch"
    assert sum(i.outputs.get(bench.output, 0) for i in increments) == 100
    assert status.commits.total == 15
    assert 0 < status.commits.longest_seconds <= status.commits.seconds_total
    assert increments[-1].positions == {bench.input: 100}


@pytest.mark.parametrize("ends", [TxnState.COMMITTED, TxnState.ABORTED], ids=["committed", "aborted"])
async def test_an_input_that_ends_in_a_marker_has_no_lag(bench, ends):
    """All records are processed, and no increment is written for what holds none."""
    await bench.prepare()
    await bench.feed(5)
    log, transaction = bench.log(bench.input), Transaction("somebody", 0, 0.0)
    for number in range(3):
        log.append(b"a", json.dumps({"amount": number}).encode(), (), 1, transaction)
    transaction.state = ends
    log.mark(transaction)
    records = 8 if ends is TxnState.COMMITTED else 5
    async with bench.live() as one:
        await until(lambda: one.status.inputs[0].lag == 0, "no lag")
        assert one.status.inputs[0].lag_to_high_watermark == 0
        assert one.status.inputs[0].position == log.end
        assert bench.batches()[-1].positions == {bench.input: records}
        await bench.send([("a", {"amount": 1})])
        transaction = Transaction("somebody", 1, 0.0, TxnState.ABORTED)
        log.append(b"a", b"{}", (), 1, transaction)
        log.mark(transaction)
        await until(lambda: one.status.inputs[0].position == log.end, "no lag again")
        assert bench.batches()[-1].positions == {bench.input: log.end - 2}
    async with bench.live() as one:
        await until(lambda: one.status.inputs[0].lag == 0, "no lag of the next owner")


# ---- policy fail -------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [True, False])
async def test_a_hotfix_resumes_at_exactly_the_failed_record(bench, changes):
    """FAILED names record and way out, again after a restart; the good prefix is committed and in a snapshot; a fixed
    handler under the same app id then continues, in either mode, exactly once."""
    await bench.prepare(apps.ledger("app", apps.refuse_poison), changelog={"enabled": changes})
    await bench.send(amounts(0, 20, {10}))
    for _ in range(2):
        status = await bench.failure()
        assert status.error.kind == "HandlerFailed"
        assert status.error.record_id == f"{bench.input}-0-10"
        assert "ValueError: poison 10" in status.error.message
        assert "deploy a fixed handler" in status.error.hint
        outputs = await bench.owners[-1].outputs()
        assert outputs == [f"{bench.input}-0-{n}" for n in range(10)]
    assert bench.owners[0].status.snapshot.reason == "failed_partition"
    increments = bench.batches()
    assert increments[-1].pointers[0].batch == increments[-2].batch
    async with bench.live(apps.ledger("app", apps.take_poison, version="fixed")) as one:
        await bench.assert_exactly_once(one, apps.take_poison)
        assert one.status.restore.proof.equal


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [(b"0:\xff", {"amount": 1}, "key cannot be read as utf8"), ("0:a", b"{not json", "value cannot be read as json")],
)
async def test_what_cannot_be_decoded_fails_by_record_and_bytes(bench, key, value, message):
    """Which side, what it should be, what it is. As a dead letter it comes out as it went in."""
    await bench.prepare()
    await bench.send([("0:a", {"amount": 1}), (key, value)])
    error = (await bench.failure()).error
    assert error.record_id == f"{bench.input}-0-1"
    assert message in error.message
    assert len(await bench.owners[-1].outputs()) == 1
    async with bench.live(errors=DEAD_LETTER) as one:
        await one.position(2)
    (letter,) = bench.log(bench.dead_letters).committed()
    sent = bench.log(bench.input).records[1]
    assert (letter.key, letter.value) == (sent.key, sent.value)


# ---- policy dead_letter ------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["changes", "replay"])
async def test_a_dead_letter_leaves_nothing_but_itself(bench, mode):
    """It lies in the topic with its reason, its half effect on the state is undone, its offset is in the skip
    list, and both modes skip the same."""
    await bench.prepare(apps.ledger("app", apps.refuse_poison), errors=DEAD_LETTER)
    await bench.send(amounts(0, 20, {5, 6, 19}))
    async with bench.live() as one:
        await bench.assert_exactly_once(one, skipped=is_poison)
        assert one.status.skipped_total == 3
    skipped = [s for i in bench.batches() for s in i.skipped]
    assert skipped == [SkippedRange(bench.input, 5, 7), SkippedRange(bench.input, 19, 20)]
    letters = bench.log(bench.dead_letters).committed()
    assert [json.loads(letter.value)["amount"] for letter in letters] == [5, 6, 19]
    why = dict(letters[0].headers)
    assert why["__snapreplay.errors.offset"] == b"5"
    assert why["__snapreplay.errors.topic"] == bench.input.encode()
    assert why["__snapreplay.errors.exception"] == b"ValueError"
    async with bench.live(restore={"mode": mode}) as one:
        assert one.status.restore.proof.equal
        await bench.assert_exactly_once(one, skipped=is_poison)
    assert len(bench.log(bench.dead_letters).committed()) == 3


@pytest.mark.parametrize(
    ("errors", "poison", "message"),
    [
        ({"dead_letters_consecutive_max": 5}, range(30), "in a row were dead-lettered"),
        ({"window_records": 10, "dead_letters_percent_max": 30}, range(0, 30, 2), "% of the last"),
    ],
)
async def test_a_flood_of_dead_letters_stops_the_partition(bench, errors, poison, message):
    """A bad deploy does not drain the input: FAILED after some, and a good handler takes the rest."""
    batch = {"records_max": 4, "linger_ms": 0}
    app = apps.ledger("app", apps.refuse_poison)
    await bench.prepare(app, errors=DEAD_LETTER | errors, batch=batch)
    await bench.send(amounts(0, 30, poison))
    error = (await bench.failure()).error
    assert error.kind == "DeadLetterLimitReached"
    assert message in error.message
    assert error.hint
    letters = len(bench.log(bench.dead_letters).committed())
    assert 0 < letters < len(poison)
    gone = {offset for i in bench.batches() for r in i.skipped for offset in range(r.start_offset, r.end_offset)}
    assert len(gone) == letters
    async with bench.live(apps.ledger("app", apps.take_poison)) as one:
        await bench.assert_exactly_once(one, apps.take_poison, lambda v: v["amount"] in gone)


# ---- outputs that do not fit -------------------------------------------------------------------


@pytest.mark.parametrize("policy", [pytest.param("fail", marks=pytest.mark.whole), "dead_letter"])
async def test_an_output_larger_than_its_topic_takes_is_the_records_fault(stage, unique, policy):
    """Both sizes are named, before anything is sent; as a dead letter it leaves the state as it was."""
    app = apps.ledger(unique("large"), apps.grow)
    topic = NewTopic(app.outputs[0].name, 1, config={"max.message.bytes": "20000"})
    await (await stage(apps.ledger(unique("aside")))).cluster.create_topics([topic])
    here = await stage(app, errors={"policy": policy})
    await here.send([("a", {"amount": 1}), ("a", {"amount": 2, "padding": 30_000})])
    if policy == "fail":
        error = (await here.failure()).error
        assert error.record_id == f"{here.app.inputs[0].name}-0-1"
        assert "the topic accepts at most 20,000" in error.message
        assert "raise max.message.bytes" in error.hint
        assert len((await here.read(here.app.outputs[0].name))[0]) == 1
        return
    await here.send([("a", {"amount": 4})])
    async with here.running() as service:
        await here.all_processed(service)
        assert service.view(0)["a"] == {"n": 2, "sum": 5, "padding": ""}


# ---- the last step before a commit -------------------------------------------------------------


def noted(monkeypatch, kind, name, steps):
    """Note each call of a method of this class."""
    method = getattr(kind, name)

    def call(self, *given, **named):
        steps.append(name)
        return method(self, *given, **named)

    monkeypatch.setattr(kind, name, call)


# ---- nothing to do ------------------------------------------------------------------------------


async def test_a_quiet_partition_among_many_does_at_once_what_is_asked_of_it(bench, monkeypatch, caplog):
    """It looks once a minute by itself: a snapshot, a doubt about an input and a stop do not wait for that."""
    monkeypatch.setattr(pace, "IDLE_POLL_MS", 60_000)
    caplog.set_level("INFO")
    await bench.prepare()
    await bench.feed(10)
    loop = asyncio.get_running_loop()
    async with bench.live() as one:
        await one.position(10)
        await asyncio.sleep(300)
        began = loop.time()
        await one.snapshot()
        assert loop.time() - began < 5
        await asyncio.sleep(300)
        one.runner._incarnation.live.doubt_inputs("told so")
        doubted = loop.time()
        await until(lambda: "told so" in caplog.text, "the comparison")
        assert loop.time() - doubted < 5
        await asyncio.sleep(300)
        await one.feed(10)
        await asyncio.sleep(300)
        stopping = loop.time()
    assert loop.time() - stopping < 5


@pytest.fixture
def rest(monkeypatch):
    """A partition at rest takes no turn by itself for an hour."""
    monkeypatch.setattr(pipeline, "AT_REST", pace.Idle(3_600_000, 3_600_000))


async def test_a_quiet_partition_with_changes_takes_its_snapshot_in_time(bench, rest, monkeypatch):
    monkeypatch.setattr(recoverability_monitor, "WATCH_SECONDS", 3600.0)  # each look wakes it
    await bench.prepare(snapshot={"every_seconds": 300})
    await bench.feed(10)
    async with bench.live() as one:
        await one.position(10)
        await until(lambda: one.status.snapshot, "the snapshot", 310)


async def test_a_partition_at_rest_commits_past_trailing_markers_after_a_look_at_the_logs(bench, rest):
    await bench.prepare()
    await bench.feed(10)
    async with bench.live() as one:
        await one.position(10)
        await one.snapshot()
        log, transaction = bench.log(bench.input), Transaction("somebody", 0, 0.0, TxnState.ABORTED)
        log.append(b"a", b"{}", (), 1, transaction)
        log.mark(transaction)
        within_s = 2 * recoverability_monitor.WATCH_SECONDS
        await until(lambda: bench.batches()[-1].positions == {bench.input: log.end}, "the commit", within_s)
