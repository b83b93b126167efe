"""A LIVE partition on a real broker: what it commits, and what it does about a record that it cannot apply."""

import json
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest

from snapreplay.app.ranges import SkippedRange
from snapreplay.app.record import RawRecord
from snapreplay.errors import RecordId
from snapreplay.service.core.batch_failures import HalfApplied, HandlerFailed
from snapreplay.service.core.kafka_errors import Unreachable
from snapreplay.service.kafka.reader import KafkaReader
from snapreplay.service.live import pipeline
from snapreplay.service.ports import NewTopic
from snapreplay.service.topics.requirements import ensure_topics
from snapreplay.snapshots.format.envelope import RecordKind, kind_of
from tests.support import apps, reference
from tests.support.entries import read_entry
from tests.support.stage import phase, until

pytestmark = pytest.mark.kafka

DEAD_LETTER = {"policy": "dead_letter"}


def amounts(first, last, **poisoned):
    """Records of partition 0; `poisoned` maps "at_N" to what is wrong with amount N."""
    return [
        ("0:a", {"amount": n, **({"poison": True} if f"at_{n}" in poisoned else {})})
        for n in range(first, last)
    ]


def is_poison(value):
    return bool(value.get("poison"))


async def increments_of(here):
    records = (await here.read(f"{here.app.app_id}-increments"))[0]
    return [read_entry(r.value) for r in records if kind_of(r.value) is RecordKind.INCREMENT]


# ---- committing --------------------------------------------------------------------------------


async def test_the_log_is_a_chain_without_gaps(stage, unique):
    """Batch numbers +1, ranges adjacent, outputs counted, positions those of the ranges."""
    here = await stage(apps.ledger(unique("chain")), batch={"records_max": 7, "linger_ms": 0})
    async with here.running() as service:
        await here.feed(100)
        await here.assert_exactly_once(service)
    increments = await increments_of(here)
    assert [i.batch for i in increments] == list(range(len(increments)))
    ranges = [r for i in increments for r in i.ranges]
    assert [r.start_offset for r in ranges] == [0, *(r.end_offset for r in ranges[:-1])]
    assert all(r.record_count <= 7 for r in ranges)
    assert sum(i.outputs.get(here.app.outputs[0].name, 0) for i in increments) == 100
    assert increments[-1].positions == {here.app.inputs[0].name: 100}


async def test_a_batch_is_polled_in_pieces_and_full_all_the_same(stage, unique, monkeypatch):
    """Other tasks have turns between the pieces; what waits in the input fills every batch but the last."""
    monkeypatch.setattr(pipeline, "POLLED_RECORDS", 3)
    poll, asked = KafkaReader.poll, []

    async def counted(self, records_max, timeout_ms):
        asked.append(records_max)
        return await poll(self, records_max, timeout_ms)

    monkeypatch.setattr(KafkaReader, "poll", counted)
    here = await stage(apps.ledger(unique("pieces")), batch={"records_max": 7, "linger_ms": 0})
    await here.feed(100)
    async with here.running() as service:
        await here.assert_exactly_once(service)
    counts = [r.record_count for i in await increments_of(here) for r in i.ranges]
    assert counts == [7] * 14 + [2]
    assert {3, 1} <= set(asked)
    assert 7 not in asked


async def test_counts_and_lag_are_shown(stage, unique):
    """Applied records, state entries and bytes, position and end of the input."""
    here = await stage(apps.ledger(unique("shown")))
    async with here.running() as service:
        await here.feed(50)
        await here.assert_exactly_once(service)
        (status,) = service.restore_status()
        assert (status.records_total, status.skipped_total, status.state_entries) == (50, 0, 20)
        assert status.state_bytes > 0
        assert (status.inputs[0].position, status.inputs[0].lag) == (50, 0)
        assert status.digest.startswith("20:")


# ---- policy fail -------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [True, False])
async def test_a_hotfix_goes_on_at_exactly_the_failed_record(stage, unique, changes):
    """FAILED names record and way out, the other partition goes on, the good prefix is committed and in a
    snapshot; a fixed handler under the same app id then goes on, in either mode, exactly once."""
    name = unique("hotfix")
    here = await stage(apps.ledger(name, apps.refuse_poison), 2, changelog={"enabled": changes})
    async with here.running() as service:
        await here.send(amounts(0, 20, at_10=True))
        await here.send([("1:b", {"amount": 1})] * 5)
        status = await phase(service, "failed")
        topic = here.app.inputs[0].name
        assert status.error.kind == "HandlerFailed"
        assert status.error.record_id == f"{topic}-0-10"
        assert "ValueError: poison 10" in status.error.message
        assert "deploy a fixed handler" in status.error.hint
        outputs = await here.read(here.app.outputs[0].name)
        assert reference.ids(outputs[0]) == [f"{topic}-0-{n}" for n in range(10)]
        await until(lambda: service.control.partitions()[1].records_total == 5, "the other one")
        assert service.control.partitions()[1].phase == "live"
    increments = await increments_of(here)
    assert increments[-1].pointers[0].batch == increments[-2].batch
    assert service.control.snapshots()[0].reason == "failed_partition"

    fixed = apps.ledger(name, apps.take_poison, version="fixed")
    async with here.running(fixed) as service:
        await here.assert_exactly_once(service, apps.take_poison)
        assert service.restore_status()[0].restore.proof.equal


async def test_the_same_handler_fails_at_the_same_record_again(stage, unique):
    """Restarting is no remedy, and does nothing twice."""
    here = await stage(apps.ledger(unique("again"), apps.refuse_poison))
    await here.send(amounts(0, 20, at_10=True))
    failures = [await here.failure() for _ in range(2)]
    assert {f.error.record_id for f in failures} == {f"{here.app.inputs[0].name}-0-10"}
    assert len((await here.read(here.app.outputs[0].name))[0]) == 10


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (b"0:\xff", {"amount": 1}, "key cannot be read as utf8"),
        ("0:a", b"{not json", "value cannot be read as json"),
    ],
)
async def test_what_cannot_be_decoded_fails_by_record_and_bytes(stage, unique, key, value, message):
    """Which side, what it should be, what it is."""
    here = await stage(apps.ledger(unique("codec")))
    await here.send([("0:a", {"amount": 1}), (key, value)])
    status = await here.failure()
    assert status.error.record_id == f"{here.app.inputs[0].name}-0-1"
    assert message in status.error.message
    assert len((await here.read(here.app.outputs[0].name))[0]) == 1


# ---- policy dead_letter ------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["changes", "replay"])
async def test_a_dead_letter_leaves_nothing_but_itself(stage, unique, mode):
    """It lies in the topic with its reason, its half effect on the state is undone, its offset is in the skip
    list, and both modes skip the same."""
    here = await stage(apps.ledger(unique("dead"), apps.refuse_poison), errors=DEAD_LETTER)
    await here.send(amounts(0, 20, at_5=True, at_6=True, at_19=True))
    async with here.running() as service:
        await here.all_processed(service)
        await here.assert_exactly_once(service, apps.add, is_poison)
        assert service.restore_status()[0].skipped_total == 3
    topic = here.app.inputs[0].name
    skipped = [s for i in await increments_of(here) for s in i.skipped]
    assert skipped == [SkippedRange(topic, 5, 7), SkippedRange(topic, 19, 20)]
    letters = (await here.read(f"{here.app.app_id}-dead-letters"))[0]
    assert [json.loads(letter.value)["amount"] for letter in letters] == [5, 6, 19]
    why = dict(letters[0].headers)
    assert why["__snapreplay.errors.offset"] == b"5"
    assert why["__snapreplay.errors.topic"] == topic.encode()
    assert why["__snapreplay.errors.exception"] == b"ValueError"
    async with here.running(restore={"mode": mode}) as service:
        assert service.restore_status()[0].restore.proof.equal
        await here.assert_exactly_once(service, apps.add, is_poison)
    assert len((await here.read(f"{here.app.app_id}-dead-letters"))[0]) == 3


async def test_undecodable_records_are_dead_letters_too(stage, unique):
    """Key, value and null come out as they went in."""
    here = await stage(apps.ledger(unique("bytes")), errors=DEAD_LETTER)
    await here.send([("0:a", {"amount": 1}), (b"0:\xff", {"amount": 2}), ("0:a", b"\x00{")])
    async with here.running() as service:
        await here.all_processed(service)
    letters = (await here.read(f"{here.app.app_id}-dead-letters"))[0]
    found = [(letter.key, letter.value) for letter in letters]
    assert found == [(b"0:\xff", b'{"amount": 2}'), (b"0:a", b"\x00{")]


@pytest.mark.parametrize(
    ("errors", "poison", "message"),
    [
        ({"dead_letters_consecutive_max": 5}, range(30), "in a row were dead-lettered"),
        ({"window_records": 10, "dead_letters_percent_max": 30}, range(0, 30, 2), "% of the last"),
    ],
)
async def test_a_flood_of_dead_letters_stops_the_partition(stage, unique, errors, poison, message):
    """A bad deploy does not drain the input: FAILED after some, and a good handler takes the rest."""
    name = unique("flood")
    batch = {"records_max": 4, "linger_ms": 0}
    app = apps.ledger(name, apps.refuse_poison)
    here = await stage(app, errors=DEAD_LETTER | errors, batch=batch)
    await here.send(amounts(0, 30, **{f"at_{n}": True for n in poison}))
    status = await here.failure()
    assert status.error.kind == "DeadLetterLimitReached"
    assert message in status.error.message
    assert status.error.hint
    letters = len((await here.read(f"{name}-dead-letters"))[0])
    assert 0 < letters < len(poison)
    gone = {
        s
        for i in await increments_of(here)
        for r in i.skipped
        for s in range(r.start_offset, r.end_offset)
    }
    assert len(gone) == letters
    async with here.running(apps.ledger(name, apps.take_poison)) as service:
        await here.assert_exactly_once(service, apps.take_poison, lambda v: v["amount"] in gone)


# ---- outputs that do not fit -------------------------------------------------------------------


async def with_small_output(stage, unique, limit_bytes, **tables):
    """The ledger with an output topic that takes little."""
    app = apps.ledger(unique("large"), apps.grow)
    here = await stage(apps.ledger(unique("aside")))
    limit = {"max.message.bytes": str(limit_bytes)}
    await here.cluster.create_topics([NewTopic(app.outputs[0].name, 1, config=limit)])
    return await stage(app, **tables)


async def test_an_output_larger_than_its_topic_takes_is_the_records_fault(stage, unique):
    """Both sizes are named, before anything is sent; the producer does not hang."""
    here = await with_small_output(stage, unique, 20_000)
    await here.send([("0:a", {"amount": 1}), ("0:a", {"amount": 2, "padding": 30_000})])
    status = await here.failure()
    assert status.error.record_id == f"{here.app.inputs[0].name}-0-1"
    assert "the topic accepts at most 20,000" in status.error.message
    assert "raise max.message.bytes" in status.error.hint
    assert len((await here.read(here.app.outputs[0].name))[0]) == 1


async def test_an_output_too_large_goes_to_the_dead_letters(stage, unique):
    """The state is as if it had never been applied."""
    here = await with_small_output(stage, unique, 20_000, errors=DEAD_LETTER)
    await here.send([("0:a", {"amount": 1}), ("0:a", {"amount": 2, "padding": 30_000})])
    await here.send([("0:a", {"amount": 4})])
    async with here.running() as service:
        await here.all_processed(service)
        assert service.view(0)["0:a"] == {"n": 2, "sum": 5, "padding": ""}


async def test_dead_letters_need_their_topic(stage, unique):
    """Switched on later: ensure makes it, and then it runs."""
    here = await stage(apps.ledger(unique("later")))
    settings = here.settings(errors=DEAD_LETTER)
    lines = await ensure_topics(here.app, settings, here.cluster)
    assert lines[-1] == f"created {here.app.app_id}-dead-letters (1 partition)"
    async with here.running(errors=DEAD_LETTER):
        pass


def test_a_failed_record_that_somebody_else_has_processed_stops_nothing():
    """Only that very record is a failure known beforehand: neither one behind it nor one of another input."""
    half = HalfApplied(HandlerFailed("payments-0-7: no such account"), RecordId("payments", 0, 7))
    around = [RawRecord("payments", 0, offset, 0, None, None) for offset in (6, 7, 8)]
    assert [half.is_another(record) for record in around] == [True, False, True]
    assert half.is_another(RawRecord("refunds", 0, 7, 0, None, None))


@pytest.mark.parametrize("keeps_changes", [True, False])
async def test_a_batch_that_is_in_the_state_for_good_is_noted_when_it_is_not_sent(keeps_changes):
    """Its inputs became doubtful after it was applied; where it can be dropped it is dropped."""
    one: Any = object.__new__(pipeline.Live)
    one._guard = SimpleNamespace(check=AsyncMock(side_effect=Unreachable("no broker")))
    one._store = SimpleNamespace(keeps_changes=keeps_changes)
    one._committer = MagicMock()
    one._digests = SimpleNamespace(after_batch=AsyncMock(return_value=None))
    applied: Any = SimpleNamespace(ranges=["one"], anchors={})
    with pytest.raises(Unreachable):
        await one._commit(applied)
    assert one._committer.not_sent.called is not keeps_changes
