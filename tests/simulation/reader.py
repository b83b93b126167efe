"""`ports.Reader` in memory, with what the adapter makes of a broker's answers.

renew    the connection breaks; the new one may lead to another replica, a stale one perhaps
stuck    no progress until the progress timeout
empty    a poll gives nothing although there is something
cut      the answers to some fetches end inside of their first batch: they give nothing, and no position moves
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from snapreplay.app.ranges import PositionAnchor
from snapreplay.app.record import InputRecord
from snapreplay.errors import SnapreplayError
from snapreplay.service.core.kafka_errors import OffsetBeyondEnd, OffsetTrimmed, ReadStalled, TopicGone, Unreachable
from snapreplay.service.kafka.idle_watch import OLD_S
from snapreplay.service.ports import NO_ANCHORS, Bounds, EndSeen, EpochEnd, LogBatch, TopicPartition
from tests.simulation.broker import Replica
from tests.simulation.log import Log, View, finish
from tests.simulation.network import Link

_Answer = TypeVar("_Answer")

PATIENCE_SECONDS = 0.5
"""Without progress for longer, a reader makes a new connection."""

CUT_TIMES, CUT_PAUSE_SECONDS = (1, 1, 3, 10), 0.1

ONCE_SECONDS = 3.0
"""For the answer of a leader that is asked once."""

OLD_SHARE = 0.5
"""Of the ends that were seen a moment ago, and are not asked for."""

STALE_SHARE = 0.6
"""Of connections made while a broker is cut off from its peers."""


@dataclass(frozen=True)
class Waits:
    """Timeouts in seconds."""

    metadata: float
    progress: float


class SimReader:
    is_silent = False
    """It asks at each poll, and is answered then."""

    def __init__(
        self,
        link: Link,
        waits: Waits,
        read_committed: bool,
        slice_records: int,
        topic_ids: Mapping[str, str],
        ahead_records: int = 0,
    ) -> None:
        """`ahead_records`: fetched beside what a poll asks for, and given out later, even if the log is cut."""
        self.link, self._waits = link, waits
        self._topic_ids = topic_ids
        self._ahead_records = ahead_records
        self.disturbances = 1
        self._elections: dict[TopicPartition, int] = {}
        self._epochs: dict[TopicPartition, int] = {}
        self._fetched: dict[TopicPartition, tuple[list[InputRecord], int]] = {}
        self.doubt = ""
        self._passed: dict[TopicPartition, dict[int, PositionAnchor | None]] = {}
        self._committed = read_committed
        self.slice_records = slice_records
        self._positions: dict[TopicPartition, int] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._high_watermarks: dict[TopicPartition, int] = {}
        self._stale: bool | None = None
        self._woken = False
        self._cut_left = 0
        self._waiting: asyncio.Future[None] | None = None
        self._seen: dict[TopicPartition, EndSeen] = {}
        self._old_ends: random.Random | None = None

    async def bounds(self, partition: TopicPartition) -> Bounds:
        bounds = await self._asked(partition, lambda replica: self._bounds(replica.view), self._waits.metadata)
        self.link.network.trace(self.link.owner.name, f"bounds {partition} {tuple(bounds)}")
        return bounds

    async def bounds_of(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Bounds]:
        return {each: await self.bounds(each) for each in partitions}

    async def end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        async def asked(partition: TopicPartition) -> int | None:
            try:
                async with asyncio.timeout(ONCE_SECONDS):
                    return await self._asked(partition, lambda replica: self._end(replica.view))
            except (TimeoutError, Unreachable):
                return None

        async with asyncio.TaskGroup() as group:
            asking = {each: group.create_task(asked(each)) for each in partitions}
        return {each: end for each, task in asking.items() if (end := task.result()) is not None}

    async def ends_seen(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, EndSeen]:
        """Return also ends that were seen up to OLD_S ago, as from the watch of a broker."""
        if self._old_ends is None:  # forked: what is drawn here moves no other delay
            self._old_ends = random.Random()
            self._old_ends.setstate(self.link.rng.getstate())
        draw, asked_at = self._old_ends.random, asyncio.get_running_loop().time()
        old = {
            each: seen
            for each in partitions
            if (seen := self._seen.get(each)) and asked_at - seen.asked_at <= OLD_S and draw() < OLD_SHARE
        }
        found = await self.end_offsets([each for each in partitions if each not in old])
        self._seen |= {each: EndSeen(end, asked_at) for each, end in found.items()}
        return old | {each: self._seen[each] for each in found}

    def read(
        self, partition: TopicPartition, start_offset: int, end_offset: int
    ) -> AsyncIterator[Sequence[InputRecord]]:
        self._positions, self._passed = {partition: start_offset}, {}
        return _Slices(self, partition, end_offset)

    async def read_at(self, partition: TopicPartition, offset: int) -> InputRecord | None:
        """Read as `ports.Reader.read_at` says; None also at or beyond the end."""
        bounds = await self.bounds(partition)
        if offset < bounds.start_offset:
            raise _out_of_range(partition, offset, bounds, trimmed=True)
        if offset >= bounds.end_offset:
            return None
        async for records in self.read(partition, offset, offset + 1):
            return records[0]
        return None

    async def first_at(self, partition: TopicPartition, timestamp_ms: int) -> int:
        """Return the offset of the first record that is not earlier; the end if there is none."""
        bounds = await self.bounds(partition)
        async for records in self.read(partition, *bounds):
            for record in records:
                if record.timestamp >= timestamp_ms:
                    return record.offset
        return bounds.end_offset

    async def batch_below(self, partition: TopicPartition, position: int) -> LogBatch | None:
        return await self._asked(partition, lambda replica: replica.log.batch_below(position))

    async def epoch_end(self, partition: TopicPartition, leader_epoch: int) -> EpochEnd | None:
        return await self._asked(partition, lambda replica: replica.log.epoch_end(leader_epoch))

    async def _asked(
        self, partition: TopicPartition, ask: Callable[[Replica], _Answer], patience: float = 0.0
    ) -> _Answer:
        """`patience`: how long a topic that is not there is looked up."""
        fault = self.link.draw("bounds")
        if fault == "renew":
            self.reconnect()
            fault = None
        if patience and self.is_unknown(partition):
            await asyncio.sleep(patience)
            raise Unreachable(f"no answer about {partition}")

        def answer() -> _Answer:
            if self.is_unknown(partition):  # by the time that it arrives
                raise Unreachable(f"no answer about {partition}")
            return ask(self.replica(partition))

        return await self.link.perform(fault, answer, self._waits.metadata)

    async def follow(
        self, positions: Mapping[TopicPartition, int], anchors: Mapping[TopicPartition, PositionAnchor] = NO_ANCHORS
    ) -> None:
        self._positions = dict(positions)
        self._ends.clear()
        self._high_watermarks.clear()
        self._fetched.clear()
        self._epochs.clear()
        self.doubt = ""
        self._passed = {each: {at: anchors.get(each)} for each, at in positions.items()}

    def anchor_below(self, partition: TopicPartition, position: int) -> PositionAnchor | None:
        return self._passed[partition].get(position)

    async def poll(
        self, records_max: int, timeout_ms: int, only: Collection[TopicPartition] | None = None
    ) -> Mapping[TopicPartition, Sequence[InputRecord]]:
        fault = self.link.draw("poll")
        if fault == "empty":
            await asyncio.sleep(timeout_ms / 1000)
            return {}
        if await self._is_cut(fault):
            return {}
        places = list(self._positions if only is None else only)
        if not self._fetched and not self._pending(places) and not self._woken:
            await self._change(places, timeout_ms / 1000)
        self._woken = False
        return await self.link.perform(fault, lambda: self._take(places, records_max), PATIENCE_SECONDS)

    def wake(self) -> None:
        self._woken = True
        if self._waiting is not None:
            finish(self._waiting)

    def position(self, partition: TopicPartition) -> int:
        return self._positions[partition]

    def end_offset(self, partition: TopicPartition) -> int | None:
        return self._ends.get(partition)

    def high_watermark(self, partition: TopicPartition) -> int | None:
        return self._high_watermarks.get(partition)

    async def close(self) -> None:
        """Nothing to close."""

    def replica(self, partition: TopicPartition) -> Replica:
        broker = self.link.network.broker
        cut = broker.stale.get(partition)
        if cut is None:
            return broker.leader(partition)
        if self._stale is None:
            self._stale = self.link.rng.random() < STALE_SHARE
        if self._stale:
            self.link.network.met("stale leader")
        return cut if self._stale else broker.leader(partition)

    def reconnect(self) -> None:
        """Connect to whichever broker answers first."""
        self.disturbances += 1
        self._stale = None

    def is_unknown(self, partition: TopicPartition) -> bool:
        return partition not in self.link.network.broker.logs

    def is_gone(self, partition: TopicPartition) -> bool:
        """Say whether a fetch is answered by "unknown topic", by its id where that was given."""
        known = self.link.network.broker.topic_ids.get(partition.topic)
        return known is None or self._topic_ids.get(partition.topic, known) not in (known, "")

    def take(self, partition: TopicPartition, end_offset: int, most: int) -> list[InputRecord]:
        """The next records below `end_offset`, as one fetch gives them; moves the position.

        Raises:
            OffsetTrimmed, OffsetBeyondEnd: out of range on this replica.
        """
        if self.is_gone(partition):
            self.disturbances += 1
            self.link.network.met("fetch of a topic that is gone")
            return []
        self._meet_leader(partition)
        (view, log), position = self.replica(partition), self._positions[partition]
        end = self._ends[partition] = self._end(view)
        self._high_watermarks[partition] = view.end
        if self._diverges(partition, position):
            return []
        if not view.start <= position <= view.end:
            raise _out_of_range(partition, position, self._bounds(view), trimmed=position < view.start)
        found = list[InputRecord]()
        while position < min(end, end_offset) and len(found) < most:
            record = log.visible(position, committed_only=self._committed)
            position += 1
            if partition in self._passed:
                self._passed[partition][position] = log.anchor_at(position)
            if record is not None:
                found.append(record)
        self._positions[partition] = position
        self._look_at_epoch(partition, log)
        return found

    async def wait(self, partition: TopicPartition, stood_still: float) -> None:
        """Wait for more of a partition; a connection that gives nothing for long is made again.

        Raises:
            ReadStalled: for longer than the progress timeout.
            TopicGone.
        """
        if self.is_gone(partition) and stood_still > PATIENCE_SECONDS:
            raise TopicGone(f"{partition} is not there any more", topic=partition.topic)
        if stood_still > self._waits.progress:
            raise _stalled(partition, self._positions[partition], self._waits.progress)
        await self._change([partition], PATIENCE_SECONDS)
        self.reconnect()

    async def _is_cut(self, fault: str | None) -> bool:
        """Say whether this answer is cut off; the first of several is a disturbance."""
        if fault == "cut":
            self._cut_left = self.link.rng.choice(CUT_TIMES)
            self.disturbances += 1
        if self._cut_left == 0:
            return False
        self._cut_left -= 1
        await asyncio.sleep(CUT_PAUSE_SECONDS)
        return True

    async def request(self, partition: TopicPartition) -> bool:
        """The way of one fetch; say whether its answer may be read.

        Raises:
            ReadStalled: nothing came back for the progress timeout.
        """
        fault = self.link.draw("read")
        if await self._is_cut(fault):
            return False
        if fault == "renew":
            self.reconnect()
        elif fault == "stuck":
            await asyncio.sleep(self._waits.progress)
            raise _stalled(partition, self._positions[partition], self._waits.progress)
        else:
            try:
                await self.link.perform(fault, lambda: None, self._waits.progress)
            except Unreachable as error:  # the broker has muted the connection for longer
                raise _stalled(partition, self._positions[partition], self._waits.progress) from error
        return True

    def _end(self, view: View) -> int:
        return view.stable if self._committed else view.end

    def _bounds(self, view: View) -> Bounds:
        return Bounds(min(view.start, self._end(view)), self._end(view))

    def _pending(self, places: Collection[TopicPartition]) -> bool:
        """Say whether a poll would move; a position out of range counts, for it raises."""
        there = {each: self._positions[each] for each in places if not self.is_gone(each)}
        views = ((self.replica(partition).view, at) for partition, at in there.items())
        return any(at < self._end(view) or at > view.end for view, at in views)

    def _meet_leader(self, partition: TopicPartition) -> None:
        """Another one than before: the old one's connection broke, or it said NOT_LEADER_OR_FOLLOWER."""
        elections = self.replica(partition).log.elections
        if self._elections.setdefault(partition, elections) != elections:
            self._elections[partition] = elections
            self.disturbances += 1
            self.link.network.met("another leader was noticed")

    def _diverges(self, partition: TopicPartition, position: int) -> bool:
        """Each fetch names the leader epoch of what was read before (KIP-595)."""
        below = self._passed.get(partition, {}).get(position)
        if below is None or (self._stale and partition in self.link.network.broker.stale):
            return False
        diverges = self.link.network.broker.logs[partition].diverges(position, below.leader_epoch)
        if diverges and not self.doubt:
            self.doubt = f"{partition} went another way"
            self.disturbances += 1
            self.link.network.met("diverging epoch")
        return diverges

    def _look_at_epoch(self, partition: TopicPartition, log: Log) -> None:
        """Look at the epoch of the last batch that was fetched: one below the last one is noticed."""
        at = self._positions[partition] - 1
        if 0 <= at < log.end:
            epoch = log.places[at].epoch
            self.disturbances += epoch < self._epochs.get(partition, -1)
            self._epochs[partition] = epoch

    def _given_out(self, partition: TopicPartition, most: int) -> list[InputRecord]:
        """Return what was fetched ahead first; the position is that of the next record to give out."""
        records, after = self._fetched.pop(partition, ([], -1))
        if records:
            if self.link.rng.random() < 0.5:  # the next fetch is under way, or was answered
                self._meet_leader(partition)
            self.link.network.met("given out of what was fetched")
        else:
            records = self.take(partition, 1 << 62, most + self._ahead_records)
            after = self._positions[partition]
        if len(records) > most:
            self._fetched[partition] = records[most:], after
            after = records[most - 1].offset + 1 if most else records[0].offset
        self._positions[partition] = after
        return records[:most]

    def _take(
        self, places: Collection[TopicPartition], records_max: int
    ) -> dict[TopicPartition, Sequence[InputRecord]]:
        found: dict[TopicPartition, Sequence[InputRecord]] = {}
        for partition in places:
            records = (
                self._given_out(partition, records_max)
                if self._ahead_records
                else self.take(partition, 1 << 62, records_max)
            )
            records_max -= len(records)
            if records:
                found[partition] = records
        return found

    async def _change(self, partitions: list[TopicPartition], seconds: float) -> None:
        """Wait until one of them changes, at most `seconds`."""
        loop, logs = self.link.network.loop, self.link.network.broker.logs
        change: asyncio.Future[None] = loop.create_future()
        for partition in partitions:
            if partition in logs:
                logs[partition].tell(change)
        timer, self._waiting = loop.call_later(seconds, finish, change), change
        try:
            await change
        finally:
            timer.cancel()
            self._waiting = None


class _Slices:
    """The iterator of one `read`: no generator, so nothing of it is left to be closed later."""

    def __init__(self, reader: SimReader, partition: TopicPartition, end_offset: int) -> None:
        self._reader, self._partition, self._end_offset = reader, partition, end_offset
        self._moved_at = asyncio.get_running_loop().time()

    def __aiter__(self) -> _Slices:
        return self

    async def __anext__(self) -> Sequence[InputRecord]:
        reader, partition, loop = self._reader, self._partition, asyncio.get_running_loop()
        while (before := reader.position(partition)) < self._end_offset:
            is_whole = await reader.request(partition)
            records = reader.take(partition, self._end_offset, reader.slice_records) if is_whole else []
            if reader.position(partition) > before:
                self._moved_at = loop.time()
            else:
                await reader.wait(partition, loop.time() - self._moved_at)
            if records:
                return records
        raise StopAsyncIteration


def _out_of_range(partition: TopicPartition, offset: int, bounds: Bounds, *, trimmed: bool) -> SnapreplayError:
    told: dict[str, Any] = {**partition._asdict(), "offset": offset, **bounds._asdict()}
    what = f"offset {offset} of {partition} is"
    if trimmed:
        return OffsetTrimmed(f"{what} gone: the log starts at {bounds.start_offset}", **told)
    return OffsetBeyondEnd(f"{what} above its end {bounds.end_offset}", **told)


def _stalled(partition: TopicPartition, position: int, seconds: float) -> ReadStalled:
    return ReadStalled(
        f"reading {partition} has stood at {position} for {seconds} s",
        topic=partition.topic,
        partition=partition.partition,
    )
