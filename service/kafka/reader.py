"""Reads partitions without a group: done means "the position has reached the end".

An empty poll means nothing: it may be an election, a reconnect, aborted data. A leader that is cut off may answer and
have nothing, so a read without progress asks again who leads.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Concatenate, ParamSpec, TypeVar

from aiokafka.cluster import ClusterMetadata
from aiokafka.errors import (
    CorruptRecordException,
    KafkaError,
    OffsetOutOfRangeError,
    TopicAuthorizationFailedError,
    UnsupportedCodecError,
)

from snapreplay.app.ranges import PositionAnchor
from snapreplay.app.record import InputRecord
from snapreplay.app.ways import MODULE, look_again
from snapreplay.counted import some
from snapreplay.errors import DamagedError, SnapreplayError, StopError, described
from snapreplay.service.config.settings import Settings
from snapreplay.service.core.kafka_errors import OffsetBeyondEnd, OffsetTrimmed, ReadStalled, TopicGone, Unreachable
from snapreplay.service.kafka.config import FETCH_WAIT_MS, fetch_limits
from snapreplay.service.kafka.connection import KERNEL_ENDS_SILENCE
from snapreplay.service.kafka.cursors import Cursor, Reading
from snapreplay.service.kafka.errors import Asked, client_error, translated
from snapreplay.service.kafka.fetches import batch_at, epoch_end
from snapreplay.service.kafka.fetching import CANCEL_S, Fetching
from snapreplay.service.kafka.idle_watch import EndsWatch, Watches
from snapreplay.service.kafka.log_ends import LogEnds
from snapreplay.service.kafka.records import TooInflated
from snapreplay.service.kafka.shared import Client, Shared
from snapreplay.service.ports import NO_ANCHORS, NO_IDS, Bounds, EndSeen, EpochEnd, LogBatch, TopicPartition

SLICE_RECORDS = 5000
_POLL_MS = 200
LAG_SECONDS = 5.0  # a broker may not know a topic that exists
# Among many clients fetches that return nothing are what an idle process does most.
FETCH_WAIT_MS_MAX, FETCH_MS_PER_CLIENT = 20_000 if KERNEL_ENDS_SILENCE else 5000, 60
ATTEMPTS_MAX = 3
"""At a batch that is damaged."""
_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.05, 5.0

log = logging.getLogger(__name__)

_Answer = TypeVar("_Answer")
_Asked = ParamSpec("_Asked")


def _until_answered(
    ask: Callable[Concatenate[KafkaReader, _Asked], Coroutine[Any, Any, _Answer]],
) -> Callable[Concatenate[KafkaReader, _Asked], Coroutine[Any, Any, _Answer]]:
    """Repeat a question while no broker answers, for up to timeouts.metadata_ms."""

    async def asked(reader: KafkaReader, /, *what: _Asked.args, **how: _Asked.kwargs) -> _Answer:
        deadline, pause_s = _now() + reader.metadata_s, _FIRST_PAUSE_S
        while True:
            reader.check_open()
            try:
                return await ask(reader, *what, **how)
            except Unreachable:
                if _now() + pause_s > deadline:
                    raise
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(2 * pause_s, _LAST_PAUSE_S)
            await reader.start_over()

    return asked


class KafkaReader:
    """A reader, `ports.Reader`. Call `start` first."""

    def __init__(
        self,
        settings: Settings,
        *,
        read_committed: bool,
        large: bool,
        patient: bool = False,
        topic_ids: Mapping[str, str] = NO_IDS,
        shared: Shared | None = None,
        watches: Watches | None = None,
    ) -> None:
        """Take `shared` and `watches`, of this loop; None: it shares nothing, and quiet logs are not watched."""
        self._settings = settings
        self._shared = shared or Shared(settings)
        self._topic_ids = topic_ids
        self._ends = EndsWatch(self._shared, watches, topic_ids) if watches is not None and read_committed else None
        self._disturbances = 0  # of earlier positions
        self._patient = patient
        self._limits = fetch_limits(settings, read_committed=read_committed, large=large, patient=patient)
        replica_s = int(str(settings.kafka.get("metadata.max.age.ms", 30_000))) / 1000
        self._how = Reading(read_committed, self._limits.checks_crcs, replica_s)
        self.metadata_s = settings.timeouts.metadata_ms / 1000
        self._progress_s = settings.timeouts.progress_ms / 1000
        # Longer than one request and its retry: a slow answer is no reason for doubt.
        self._patience_s = 2.5 * settings.request_timeout_ms / 1000
        self._lag_s = min(LAG_SECONDS, self._progress_s)
        self._client = Client(self._shared, is_reading=True)
        self._fetching = Fetching(self._client, self._limits, self._fetch_wait_ms, watches, is_large=large)
        self._cursors: dict[TopicPartition, Cursor] = {}
        self._late: Exception | None = None  # for the next poll: records come first
        self._closed = False
        self._woken = False

    async def start(self) -> None:
        """Make sure that a broker answers.

        Raises:
            Unreachable: no broker answered.
            NotAuthenticated: access was refused.
        """
        async with translated("connecting a reader", Asked(self._settings, "Read"), give_up=self._client.close):
            await self._client.start()
            if self._closed:  # meanwhile, by another task
                raise _closed()

    @property
    def disturbances(self) -> int:
        return self._disturbances + self._fetching.losses + sum(each.disturbances for each in self._cursors.values())

    @property
    def doubt(self) -> str:
        return next((each.doubt for each in self._cursors.values() if each.doubt), "")

    @property
    def is_silent(self) -> bool:
        return self._fetching.is_silent or any(each.is_unanswered for each in self._cursors.values())

    async def bounds(self, partition: TopicPartition) -> Bounds:
        return (await self.bounds_of([partition]))[partition]

    @_until_answered
    async def bounds_of(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, Bounds]:
        if not partitions:
            return {}
        async with self._asking(partitions, f"asking for the bounds of {some(map(str, partitions))}") as log_ends:
            return await log_ends.bounds(partitions, read_committed=self._how.read_committed)

    async def end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        doing = f"asking where {some(map(str, partitions))} end"
        async with self._asking(partitions, doing) as log_ends:
            return await log_ends.end_offsets(partitions, read_committed=self._how.read_committed)

    async def ends_seen(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, EndSeen]:
        seen = {each: end for each in partitions if self._ends and (end := self._ends.end_of(each))}
        if unknown := [each for each in partitions if each not in seen]:
            asked_at, found = _now(), dict[TopicPartition, int]()
            try:
                found = await self.end_offsets(unknown)
            except SnapreplayError as error:
                if not seen:
                    raise
                log.debug("%s", error)
            for each, end_offset in found.items():
                seen[each] = EndSeen(end_offset, asked_at)
                if self._ends is not None and not self._closed:
                    self._ends.watch(each, end_offset)
        return seen

    @_until_answered
    async def first_at(self, partition: TopicPartition, timestamp_ms: int) -> int:
        async with self._asking([partition], f"asking {partition} for a time") as log_ends:
            found = await log_ends.first_at(partition, timestamp_ms, read_committed=self._how.read_committed)
        return (await self.bounds(partition)).end_offset if found is None else found

    @_until_answered
    async def batch_below(self, partition: TopicPartition, position: int) -> LogBatch | None:
        offset, asked = position - 1, Asked(self._settings, "Read", partition.topic)
        async with translated(f"asking {partition} for offset {offset}", asked):
            return await batch_at(self._client, partition, offset, self._topic_ids)

    @_until_answered
    async def epoch_end(self, partition: TopicPartition, leader_epoch: int) -> EpochEnd | None:
        asked = Asked(self._settings, "Describe", partition.topic)
        async with translated(f"asking {partition} for leader epoch {leader_epoch}", asked):
            return await epoch_end(self._client, partition, leader_epoch)

    @asynccontextmanager
    async def _asking(self, partitions: Collection[TopicPartition], doing: str) -> AsyncIterator[LogEnds]:
        self.check_open()
        topics = {each.topic for each in partitions}
        asked = Asked(self._settings, "Read", next(iter(topics)) if len(topics) == 1 else "")
        async with translated(doing, asked, within_s=self._settings.request_timeout_ms / 1000):
            await self._shared.track(topics)
            check_allowed(self._shared.cluster, topics, self._settings)
            yield self._shared.log_ends

    async def read(
        self, partition: TopicPartition, start_offset: int, end_offset: int
    ) -> AsyncIterator[Sequence[InputRecord]]:
        if start_offset >= end_offset:
            return
        self._seek({partition: start_offset}, stop_offset=end_offset)
        try:
            async for records in self._up_to(partition, start_offset, end_offset):
                yield records
        finally:
            self._fetching.begin(())

    async def _up_to(
        self, partition: TopicPartition, start_offset: int, end_offset: int
    ) -> AsyncIterator[Sequence[InputRecord]]:
        position, moved_at, doubted_at = start_offset, _now(), _now()
        while position < end_offset:
            records = await self._poll_patiently(partition)
            if records and records[-1].offset >= end_offset:
                records = [record for record in records if record.offset < end_offset]
            if records:
                yield records
            if self.position(partition) > position:
                position, moved_at, doubted_at = self.position(partition), _now(), _now()
                continue
            if _now() - moved_at > self._progress_s:
                self._check_cut(0.0)
                raise stalled(partition, position, end_offset, self._progress_s)
            if _now() - (self._cursors[partition].missing_since or _now()) > self._lag_s:
                raise gone(partition, self._topic_ids.get(partition.topic, ""))
            if _now() - doubted_at > self._patience_s:
                await self.start_over()
                doubted_at = _now()

    async def read_at(self, partition: TopicPartition, offset: int) -> InputRecord | None:
        """Read as `ports.Reader.read_at` says. Also None at or beyond the end.

        Raises:
            OffsetTrimmed: below the start.
        """
        self._seek({partition: offset}, stop_offset=offset + 1)
        try:
            records = await self._poll_patiently(partition, 1)
            if self.position(partition) <= offset:  # perhaps nothing is there: only the leader knows
                bounds = await self.bounds(partition)
                if offset < bounds.start_offset:
                    raise trimmed(partition, offset, bounds)
                if offset >= bounds.end_offset:
                    return None
                records = [record async for some in self._up_to(partition, offset, offset + 1) for record in some]
        except OffsetBeyondEnd:
            return None
        finally:
            self._fetching.begin(())
        return records[0] if records and records[0].offset == offset else None

    async def follow(
        self, positions: Mapping[TopicPartition, int], anchors: Mapping[TopicPartition, PositionAnchor] = NO_ANCHORS
    ) -> None:
        self._seek(positions, anchors)

    def anchor_below(self, partition: TopicPartition, position: int) -> PositionAnchor | None:
        cursor = self._cursors.get(partition)
        if cursor is None or cursor.batches is None:
            return None
        cursor.batches.forget_before(position)
        return cursor.batches.below(position)

    def _seek(
        self,
        positions: Mapping[TopicPartition, int],
        anchors: Mapping[TopicPartition, PositionAnchor] | None = None,
        stop_offset: int | None = None,
    ) -> None:
        """Read from these positions; with `anchors` to follow."""
        self.check_open()
        before, self._cursors, self._late = self._cursors, {}, None
        self._disturbances += sum(each.disturbances for each in before.values())
        for partition, position in positions.items():
            cursor = Cursor(partition, position, self._how, self._topic_ids.get(partition.topic, ""))
            if partition in before:
                cursor.missing_since = before[partition].missing_since
                cursor.is_unanswered = before[partition].is_unanswered
            if anchors is not None:
                cursor.follow(anchors.get(partition))
            cursor.stop_offset = stop_offset
            self._cursors[partition] = cursor
        self._fetching.begin(self._cursors.values())
        if self._patient:
            self._client.give_back()  # else the next fetch waits for the answer to the last, futile one

    async def poll(
        self, records_max: int, timeout_ms: int, only: Collection[TopicPartition] | None = None
    ) -> Mapping[TopicPartition, Sequence[InputRecord]]:
        if self._late is not None:
            late, self._late = self._late, None
            raise late
        self._check_cut(self._progress_s)
        self.check_open()
        check_allowed(self._client.cluster, (topic for topic, _ in self._cursors), self._settings)
        wait_ms, self._woken = 0 if self._woken else timeout_ms, False
        fetched, moved = await self._take(records_max, only)
        if not moved and wait_ms:
            await self._fetching.news(wait_ms)
            fetched, _ = await self._take(records_max, only)
        return fetched

    async def _take(
        self, records_max: int, only: Collection[TopicPartition] | None
    ) -> tuple[dict[TopicPartition, Sequence[InputRecord]], bool]:
        """Take what was fetched. Return it, and whether there is a reason not to wait: a position has moved, or an
        error was met, which may have ended these fetches. A partition that gave something is last the next time."""
        fetched: dict[TopicPartition, Sequence[InputRecord]] = {}
        moved, left = False, records_max
        for partition in list(self._cursors if only is None else only):
            cursor = self._cursors[partition]
            if not cursor.has_something or not left:
                continue
            position = cursor.position
            try:
                records = cursor.take(left)
            except Exception as error:  # noqa: BLE001 - also a defect behind the wire
                try:
                    await self._judge(cursor, error)
                except Exception as wrong:  # kept for the next poll, else the records above are lost
                    if not fetched:
                        raise
                    self._late = wrong
                moved = True
                break
            moved = moved or cursor.position > position
            if records:
                fetched[partition] = records
                left -= len(records)
                self._cursors[partition] = self._cursors.pop(partition)
        self._fetching.fetch_due()
        return fetched, moved

    def _check_cut(self, longest_s: float) -> None:
        for cursor in self._cursors.values():
            if cursor.cut_since is not None and (seconds := _now() - cursor.cut_since) > longest_s:
                raise cut_off(cursor.partition, cursor.position, seconds)

    def wake(self) -> None:
        if not self._fetching.wake():
            self._woken = True

    def position(self, partition: TopicPartition) -> int:
        return self._cursors[partition].position

    def end_offset(self, partition: TopicPartition) -> int | None:
        return self._cursors[partition].end_offset

    def high_watermark(self, partition: TopicPartition) -> int | None:
        return self._cursors[partition].high_watermark

    async def close(self) -> None:
        self._closed = True
        ended = self._ends.close() if self._ends is not None else ()
        try:
            if ended:
                await asyncio.wait(ended, timeout=CANCEL_S)
        finally:
            try:
                await self._fetching.close()
            finally:
                await self._client.close()

    async def _poll_patiently(
        self, partition: TopicPartition, records_max: int = SLICE_RECORDS
    ) -> Sequence[InputRecord]:
        """Poll; an absent broker only means no progress: the progress timeout decides."""
        try:
            return (await self.poll(records_max, _POLL_MS)).get(partition, ())
        except Unreachable:
            self.check_open()
            await asyncio.sleep(_POLL_MS / 1000)
            return ()

    def check_open(self) -> None:
        if not self._client.is_open:
            raise _closed()

    def _fetch_wait_ms(self) -> int:
        """Return the wait of the next fetch of a quiet log that no watch takes."""
        is_alone = self._patient and len(self._topic_ids) == 1  # no other input waits for its fetch
        if not is_alone or "fetch.max.wait.ms" in self._settings.kafka:
            return self._limits.wait_ms
        return max(FETCH_WAIT_MS, min(FETCH_MS_PER_CLIENT * self._shared.users, FETCH_WAIT_MS_MAX))

    async def start_over(self) -> None:
        """Fetch again from the same positions, with newer metadata, and on other connections."""
        self._fetching.begin(())
        self._shared.distrust()
        try:
            with suppress(Unreachable):  # the caller has a deadline
                async with translated("connecting a reader", Asked(self._settings, "Read")):
                    await self._shared.freshen()
            self.check_open()
        finally:  # also after a cancellation or a refusal: the next poll would wait for nothing
            if self._client.is_open:
                self._disturbances += 1
                self._fetching.begin(self._cursors.values())
                self._client.give_back()

    async def _judge(self, cursor: Cursor, error: Exception) -> None:
        """Raise what an error of a fetch means, or nothing if it is fetched again.

        Raises:
            SnapreplayError: it is of no use.
        """
        partition, at = cursor.partition, cursor.position
        match error:
            case OffsetOutOfRangeError():  # fresh bounds show on which side; if on neither any more, fetch again
                wrong = out_of_range(partition, at, await self.bounds(partition))
                if wrong is not None:
                    raise wrong from error
                cursor.refused_inside()
            case CorruptRecordException():
                if cursor.attempts >= ATTEMPTS_MAX:
                    raise self._damaged(cursor, error) from error
                await self.start_over()
            case UnsupportedCodecError():
                raise client_error(error, f"reading {partition} from offset {at} on") from error
            case TooInflated():
                raise StopError(
                    f"{partition} offset {at}: the record batch cannot be read: {described(error)}",
                    hint="let its producer send smaller batches, and skip what is there",
                    topic=partition.topic,
                    partition=partition.partition,
                    offset=at,
                ) from error
            case KafkaError():
                raise client_error(error, f"reading {partition}", Asked(self._settings, "Read")) from error
            case _:
                raise error

    def _damaged(self, cursor: Cursor, error: Exception) -> DamagedError:
        partition, at = cursor.partition, cursor.position
        leader = leader_of(self._client, partition)
        return DamagedError(
            f"{partition} offset {at}: the record batch was damaged {cursor.attempts} times in a row:"
            f" {described(error)}",
            hint=f"the copy of the leader, {leader}, is damaged. Stop that broker, so that an intact replica leads,"
            f" then {look_again(partition.partition)}. Before the broker is started again, remove the directory"
            f" {partition} from its log.dirs: the broker then copies the partition again",
            topic=partition.topic,
            partition=partition.partition,
            offset=at,
        )


def _closed() -> Unreachable:
    return Unreachable("this reader is closed")


def _now() -> float:
    return asyncio.get_running_loop().time()


def leader_of(client: Client, partition: TopicPartition) -> str:
    """Name the broker whose bytes were fetched, as far as it is known."""
    node_id = client.leader(partition)
    node = client.cluster.broker_metadata(node_id)
    return f"broker {node_id}" + ("" if node is None else f" at {node.host}:{node.port}")


def trimmed(partition: TopicPartition, offset: int, bounds: Bounds) -> OffsetTrimmed:
    return OffsetTrimmed(
        f"offset {offset} of {partition} is gone: the log starts at {bounds.start_offset}",
        topic=partition.topic,
        partition=partition.partition,
        offset=offset,
        **bounds._asdict(),
    )


def out_of_range(partition: TopicPartition, offset: int, bounds: Bounds) -> SnapreplayError | None:
    """Return on which side it is; None: on neither."""
    if offset < bounds.start_offset:
        return trimmed(partition, offset, bounds)
    return _beyond_end(partition, offset, bounds) if offset > bounds.end_offset else None


def _beyond_end(partition: TopicPartition, offset: int, bounds: Bounds) -> OffsetBeyondEnd:
    return OffsetBeyondEnd(
        f"offset {offset} of {partition} is above its end"
        f" {bounds.end_offset}: the leader is stale, or the log is shorter than before",
        topic=partition.topic,
        partition=partition.partition,
        offset=offset,
        **bounds._asdict(),
    )


def gone(partition: TopicPartition, topic_id: str) -> TopicGone:
    which = f"topic {partition.topic} with the id {topic_id}" if topic_id else str(partition)
    return TopicGone(f"{which} no longer exists", topic=partition.topic, topic_id=topic_id)


def stalled(partition: TopicPartition, position: int, end_offset: int, seconds: float) -> ReadStalled:
    return ReadStalled(
        f"reading {partition} has not moved from offset {position} of {end_offset} for {seconds:.0f} s",
        hint=f"`snapreplay doctor {MODULE}` shows which partitions have no leader",
        topic=partition.topic,
        partition=partition.partition,
        position=position,
        end_offset=end_offset,
    )


def cut_off(partition: TopicPartition, position: int, seconds: float) -> ReadStalled:
    return ReadStalled(
        f"reading {partition} has not moved from offset {position} for {seconds:.0f} s: every answer to a fetch ends"
        " inside of its first record batch",
        hint="Kafka's own brokers send at least one whole batch: look for a proxy between the broker and this process,"
        " and connect without it",
        topic=partition.topic,
        partition=partition.partition,
        position=position,
    )


def check_allowed(cluster: ClusterMetadata, topics: Iterable[str], settings: Settings) -> None:
    """Refuse hidden topics: the client would wait for ever for what it may not even see.

    Raises:
        NotAuthorized: one of these topics is hidden.
    """
    hidden = cluster.unauthorized_topics
    for topic in topics if hidden else ():
        if topic in hidden:
            raise client_error(TopicAuthorizationFailedError(topic), "looking for it", Asked(settings, "Read"))
