"""Nothing is committed on top of an input that may be another log than it was."""

import asyncio
from contextlib import asynccontextmanager, nullcontext
from copy import copy
from types import SimpleNamespace
from typing import Any

import pytest

from snapreplay.app.ranges import PositionAnchor, anchor_of
from snapreplay.app.record import RawRecord
from snapreplay.service.core.chain import Chain, ReadPosition
from snapreplay.service.core.kafka_errors import OffsetTrimmed
from snapreplay.service.live.fetcher import InputGuard
from snapreplay.service.ports import Bounds, EpochEnd, LogBatch, TopicPartition
from snapreplay.service.recovery import input_identity
from snapreplay.service.recovery.input_identity import InputDoubtful, InputMissing
from snapreplay.service.runtime.pulse import Pulse
from snapreplay.service.topics.reading import reading
from tests.support import apps
from tests.support.entries import increment, read_entry
from tests.support.stage import phase, until
from tests.support.tampering import create, delete, messages, topic_id, write_again

NAMES = ("in", "log", "snaps")
IDS = {"in": "A", "log": "B", "snaps": "C"}


def record(offset: int, value: bytes = b"v") -> RawRecord:
    return RawRecord("in", 0, offset, 1000 + offset, b"k", value, ())


NEXT = {"in": ReadPosition(9, anchor_of(record(6)), PositionAnchor(4, 8))}
"""To be committed: a record, then two aborted ones."""


class FakeReader:
    """A reader of one input that begins at `start`."""

    def __init__(self, here: "Here") -> None:
        self._here = here
        self.disturbances = 1

    doubt = ""

    async def follow(self, positions: Any, anchors: Any = None) -> None:
        self._here.followed, self._here.asked_for = positions, anchors

    async def batch_below(self, _: Any, position: int) -> LogBatch | None:
        anchor = self._here.batches[position - 1] if position > self._here.start else None
        return LogBatch(position - 1, position, anchor, self._here.is_cleaned) if anchor else None

    async def epoch_end(self, _: Any, leader_epoch: int) -> EpochEnd | None:
        return self._here.epoch_ends.get(leader_epoch)

    async def bounds(self, _: Any) -> Bounds:
        return Bounds(self._here.start, len(self._here.records))

    async def read_at(self, _: Any, offset: int) -> RawRecord | None:
        if offset < self._here.start:
            raise OffsetTrimmed("gone")
        return self._here.records[offset]

    async def close(self) -> None:
        self._here.closed += 1


class Here:
    """A cluster of one input, and a guard over it. It has committed up to offset 3."""

    def __init__(self) -> None:
        self.ids, self.start, self.closed, self.looks = dict(IDS), 0, 0, 0
        self.records = [record(offset) for offset in range(10)]
        self.batches: list[PositionAnchor | None]
        self.batches = [PositionAnchor(4, offset) for offset in range(10)]
        self.epoch_ends = {4: EpochEnd(4, 10)}
        self.is_cleaned = False
        self.followed: Any = None
        self.asked_for: Any = None
        self.asked_by: list[Any] = []
        self.now = 100.0
        self.pulse = Pulse(lambda: self.now)
        self.cluster: Any = SimpleNamespace(reader=self.reader, topic_ids=self.topic_ids)
        context: Any = SimpleNamespace(
            app=SimpleNamespace(input_names=("in",)),
            partition=0,
            input_names=("in",),
            increments=SimpleNamespace(topic="log"),
            snapshots=SimpleNamespace(topic="snaps"),
            pulse=self.pulse,
            cluster=self.cluster,
        )
        last = increment(
            5,
            positions={"in": 3},
            anchors={"in": anchor_of(record(2))},
            topic_ids=dict(IDS),
            position_anchors={"in": PositionAnchor(4, 2)},
        )
        self.chain = Chain(last.origin, 1, last, 7, 3)
        self.guard = InputGuard(context)

    async def reader(self, *, patient: bool = False, topic_ids: Any = None, **_: Any) -> Any:
        self.asked_by.append(topic_ids)
        return FakeReader(self)

    async def topic_ids(self, names: Any) -> dict[str, str]:
        self.looks += 1
        return {name: self.ids[name] for name in names if name in self.ids}

    async def opened(self) -> "Here":
        self.reading: Any = await self.guard.open(self.chain)
        return self


def disturb(here: Here) -> None:
    here.reading.disturbances += 1


def stand_still(here: Here) -> None:
    here.guard.stood_still(3.0)


def tell(here: Here) -> None:
    here.guard.tell("topic in no longer exists")


TRIGGERS = [disturb, stand_still, tell]


async def test_the_inputs_are_read_by_id_from_the_committed_positions():
    """So that no other topic of the name is ever read."""
    here = await Here().opened()
    assert here.asked_by == [{"in": "A"}]
    assert here.followed == {("in", 0): 3}
    assert here.asked_for == {("in", 0): PositionAnchor(4, 2)}
    await here.guard.check(here.chain)
    assert here.looks == 0, "nothing unusual, nothing compared"


@pytest.mark.parametrize("trigger", TRIGGERS)
async def test_after_anything_unusual_they_are_compared_once(trigger):
    """And once only; what was opened for it is closed."""
    here = await Here().opened()
    trigger(here)
    assert here.guard.is_reported == (trigger is tell)
    for _ in range(2):
        await here.guard.check(here.chain, NEXT)
    assert (here.looks, here.closed) == (1, 1)


async def test_a_standstill_is_seen_although_no_timer_has_run_yet():
    """What came over a socket runs first, after SIGCONT."""
    here = await Here().opened()
    beat = asyncio.create_task(here.pulse.beat())
    await asyncio.sleep(0)
    with here.pulse.notifying(here.guard.stood_still):
        here.now += 4.0
        assert here.guard.has_news()
        assert not here.guard.has_news()
        assert "did not run for 4.0 s" in here.guard.reason
    beat.cancel()


def other_id(here: Here) -> None:
    here.ids["in"] = "Z"


def other_record(here: Here) -> None:
    here.records[2] = record(2, b"other")


def other_batch(here: Here) -> None:
    here.records[6] = record(6, b"other")


def shorter(here: Here) -> None:
    del here.records[6:]


def other_marker(here: Here) -> None:
    here.batches[8] = PositionAnchor(5, 8)


def cut_behind_the_last_record(here: Here) -> None:
    del here.records[8:]


def cut_below_the_committed_position(here: Here) -> None:
    here.batches[2] = PositionAnchor(4, 77)


@pytest.mark.parametrize("trigger", TRIGGERS)
@pytest.mark.parametrize(
    "change",
    [
        other_id,
        other_record,
        other_batch,
        shorter,
        other_marker,
        cut_behind_the_last_record,
        cut_below_the_committed_position,
    ],
)
async def test_what_is_not_as_it_was_ends_the_batch(trigger, change):
    """Another id, another record where the last one was or where the batch ends, or less of them."""
    here = await Here().opened()
    change(here)
    trigger(here)
    with pytest.raises(InputDoubtful):
        await here.guard.check(here.chain, NEXT)


@pytest.mark.parametrize(("end", "differs"), [(10, False), (9, False), (8, True)])
@pytest.mark.parametrize("gone", [True, False], ids=["gone", "written again"])
async def test_of_a_compacted_batch_the_leader_epoch_tells(end, differs, gone):
    """Compaction rewrites batches or removes them, and keeps their epochs."""
    here = await Here().opened()
    here.is_cleaned = True
    here.batches[8] = None if gone else PositionAnchor(4, 77)
    here.epoch_ends[4] = EpochEnd(4, end)
    disturb(here)
    with pytest.raises(InputDoubtful) if differs else nullcontext():
        await here.guard.check(here.chain, NEXT)


async def test_what_was_fetched_before_a_doubt_is_distrusted_until_it_is_read_again():
    """A comparison covers what is committed and the batch to be committed, and nothing behind it."""
    here = await Here().opened()
    assert not here.guard.distrusts_fetched
    disturb(here)
    assert here.guard.distrusts_fetched
    await here.guard.check(here.chain, NEXT)
    assert not here.guard.reason
    assert here.guard.distrusts_fetched
    here.guard.read_again()
    assert not here.guard.distrusts_fetched


async def test_the_leader_is_asked_again_about_what_another_broker_was_compared_with():
    """A comparison may reach a stale leader, which has it all: that ends no doubt which the leader has named."""
    here = await Here().opened()
    for _ in range(2):  # as the recovery has compared it, and again
        assert here.guard.anchors(here.chain) == {"in": PositionAnchor(4, 2)}
        disturb(here)
        await here.guard.check(here.chain)


@pytest.mark.parametrize("end", [None, EpochEnd(3, 10), EpochEnd(4, 2)])
async def test_no_leader_is_asked_about_an_epoch_that_the_compared_log_does_not_know(end):
    """Its answer would be a doubt each time, and no comparison could end that."""
    here = await Here().opened()
    here.epoch_ends = {4: end} if end is not None else {}
    disturb(here)
    await here.guard.check(here.chain)
    assert here.guard.anchors(here.chain) == {}


async def test_a_stale_leader_ends_no_doubt_that_the_leader_named(bench, monkeypatch):
    """It still has what was read, so comparisons find nothing. What came instead is not applied."""
    async with bench.live(records=20) as one:
        stale, compared = stale_network(bench, bench.input), list[Any]()

        @asynccontextmanager
        async def reaching_it_first(cluster: Any, **ids: Any) -> Any:
            reader: Any
            async with reading(cluster, **ids) as reader:
                if len(compared) < 5:
                    reader.link = copy(reader.link)
                    reader.link.network = stale
                compared.append(reader)
                yield reader

        monkeypatch.setattr(input_identity, "reading", reaching_it_first)
        bench.broker.lose(TopicPartition(bench.input, 0), 10, 0, None)
        await bench.feed(30)
        await until(lambda: one.status.phase == "failed", "failed", 300.0)
        assert one.status.error.kind == "InputReplaced"
        assert len(compared) > 5
    assert len((await bench.read(bench.output))[0]) == 20


def stale_network(bench: Any, topic: str) -> Any:
    """Make a network in which a partition is as it is now, with any loss."""
    network, log = copy(bench.cluster.link.network), copy(bench.log(topic))
    log.records, log.transactions = [*log.records], [*log.transactions]
    log.places, log.epochs = [*log.places], [*log.epochs]
    network.broker = copy(bench.broker)
    network.broker.logs = bench.broker.logs | {log.partition: log}
    return network


async def test_a_missing_input_is_named():
    """A recovery asks again until it is there."""
    here = await Here().opened()
    del here.ids["in"]
    tell(here)
    with pytest.raises(InputMissing, match="input in no longer exists"):
        await here.guard.check(here.chain)


async def test_what_was_trimmed_behind_us_is_the_same_input():
    """The id says so."""
    here = await Here().opened()
    here.start = 5
    disturb(here)
    await here.guard.check(here.chain, NEXT)


async def test_what_happens_during_the_comparison_is_compared_again():
    """Nothing is lost between a look and the next commit."""
    here = await Here().opened()
    disturb(here)
    look = here.topic_ids

    async def disturbed_once(names: Any) -> dict[str, str]:
        if here.looks == 0:
            disturb(here)
        return await look(names)

    here.cluster.topic_ids = disturbed_once
    await here.guard.check(here.chain)
    assert here.looks == 2


@pytest.fixture
def patient(monkeypatch):
    """However long it takes to write an input again, one that ends too early meanwhile is waited for."""
    monkeypatch.setattr("snapreplay.service.topics.reading.AGREED_TIMES", 1000)


async def test_an_input_that_is_brought_back_as_it_was_is_gone_on_with(stage, unique, caplog, patient):
    """While it is missing that is said; then there is one warning with both ids, the new id is recorded from the next
    increment on, and every record counts once."""
    here = await stage(apps.ledger(unique("back")))
    servers, topic = here.bootstrap_servers, here.app.inputs[0].name
    async with here.running(records=50) as service:
        old = topic_id(servers, topic)
        kept = await asyncio.to_thread(messages, servers, topic, 50)
        await asyncio.to_thread(delete, servers, topic)
        await until(
            lambda: (
                [(s.error.kind, s.phase != "live") for s in service.restore_status() if s.error]
                == [("InputMissing", True)]
            ),
            "the missing input",
        )
        await asyncio.to_thread(create, servers, topic, 1)
        await asyncio.to_thread(write_again, servers, topic, kept)
        await phase(service, "live")
        await here.process(service, 10)
        new = topic_id(servers, topic)
        last = (await here.read(f"{here.app.app_id}-increments"))[0][-1]
        assert read_entry(last.value).topic_ids[topic] == new
    assert len((await here.read(here.app.outputs[0].name))[0]) == 60
    warnings = [r.getMessage() for r in caplog.records if "faithful copy" in r.getMessage()]
    assert len(warnings) == 1
    assert f"its id was {old}, now it is {new}" in warnings[0]
