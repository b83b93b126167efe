"""Is each input still the log that was processed, and does it reach our position?

Two witnesses: the topic's id, which no other topic of this name has, and the anchor, the last record that was read,
applied or skipped. Another topic with the same record is a faithful copy (a mirror, a backup). If the record is gone,
only the id counts.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from snapreplay.app.anchor import anchor_of
from snapreplay.app.ranges import Anchor
from snapreplay.counted import counted_are
from snapreplay.errors import RetryableError, StopError
from snapreplay.service.core.chain import Chain
from snapreplay.service.core.kafka_errors import OffsetBeyondEnd, OffsetTrimmed
from snapreplay.service.core.topic_changes import TopicChange, changes
from snapreplay.service.ports import Bounds, Reader, TopicPartition
from snapreplay.service.runtime.context import Context
from snapreplay.service.topics.reading import reading
from snapreplay.service.topics.requirements import check_replayable
from snapreplay.service.topics.stale_leader import OnWaiting, Patience
from snapreplay.snapshots.format.records import Increment

log = logging.getLogger("snapreplay.partition")


class InputReplaced(StopError):
    """The record at an anchor is another one, or it is gone and the topic has another id."""


class InputShorter(StopError):
    """The input ends before our position, and no broker says otherwise."""


class InputTrimmed(StopError):
    """The records to go on with are gone: the input's log begins beyond our position."""


class InputMissing(RetryableError):
    """There is no topic of this name. When there is one, the recovery checks whether it is the same log."""


REFUSALS = (InputReplaced, InputShorter, InputTrimmed, InputMissing)


class InputDoubtful(RetryableError):
    """While live: an input has changed. The recovery finds out how."""


class Witness(Enum):
    """What the anchor says."""

    SAME = "same"
    OTHER = "other"
    NONE = "none"  # there never was one, or its record was trimmed or compacted away


@dataclass(frozen=True)
class Checked:
    """`topic_ids`: of the inputs and both own topics now. `copies`: those that have another id and the same records."""

    topic_ids: Mapping[str, str]
    copies: tuple[TopicChange, ...]

    @property
    def known_ids(self) -> dict[str, str]:
        """Without those that the cluster has no id for."""
        return {topic: topic_id for topic, topic_id in self.topic_ids.items() if topic_id}


async def topic_ids(context: Context) -> dict[str, str]:
    """The ids of the inputs and both own topics, asked afresh. A missing own topic is absent.

    Raises:
        InputMissing: an input is not there.
        Unreachable: the cluster could not be asked.
    """
    names = (*context.input_names, context.increments.topic, context.snapshots.topic)
    ids = await context.cluster.topic_ids(names)
    for name in context.input_names:
        if name not in ids:
            raise InputMissing(
                f"input {name} does not exist any more",
                hint="bring it back from a backup or a mirror, with its old offsets: a topic of this name that holds"
                " other records is refused",
                topic=name,
            )
    return ids


async def check_policies(context: Context) -> None:
    """Compaction may have been switched on since the start.

    Raises:
        UsageError: an input is compacted, and this app recovers by replay.
        Unreachable: the cluster could not be asked.
    """
    facts = await context.cluster.topics(context.input_names)
    check_replayable(context.app, context.settings, list(facts.values()))


async def check_inputs(
    context: Context, last: Increment, on_waiting: OnWaiting = lambda _: None
) -> Checked:
    """Compare every input with the last increment. An input that ends too early is asked for again, because a broker
    may be behind, but not for long if all brokers agree on its end.

    Args:
        on_waiting: hears what is waited for, at every try.

    Raises:
        InputReplaced, InputTrimmed, InputShorter: STOP, with both facts.
        InputMissing, Unreachable: ask again.
    """
    patience = Patience()
    while True:
        ids = await topic_ids(context)
        changed = {
            change.topic: change for change in changes(context.input_names, last.topic_ids, ids)
        }
        try:
            await _check_once(context, last, ids, changed)
        except OffsetBeyondEnd as error:
            partition = TopicPartition(str(error.facts["topic"]), context.partition)
            await patience.ask_all(context.cluster, partition, last.positions[partition.topic])
            if patience.is_over:
                change = changed.get(partition.topic)
                raise InputShorter(
                    _with(error.message, change), hint=error.hint, **error.facts
                ) from error
            on_waiting(f"{error.message}; asking all brokers, {patience.left_seconds:.0f} s left")
        else:
            return Checked(ids, tuple(changed.values()))
        await patience.pause()


def warn_of_copies(context: Context, last: Increment, checked: Checked) -> None:
    """Once per recovery. Also for own topics, whose records were read and form a chain."""
    for change in checked.copies:
        anchor = last.anchors.get(change.topic)
        what = f"holds the last processed record, at offset {anchor.offset}," if anchor else ""
        log.warning(
            "partition %d: %s; it %s and is taken for a faithful copy",
            context.partition,
            change,
            what or "is read from its start, because nothing of the old one was processed,",
        )
    own = (context.increments.topic, context.snapshots.topic)
    for change in changes(own, last.topic_ids, checked.topic_ids):
        if change.found_id is not None:
            log.warning(
                "partition %d: %s; its records lead to batch %d, so it is taken for a faithful copy. What was committed"
                " after the copy was made is lost, but its outputs may exist",
                context.partition,
                change,
                last.batch,
            )


async def compare_while_live(context: Context, chain: Chain, batch: Mapping[str, Anchor]) -> None:
    """Before a commit, after something unusual. `batch`: the last record of each input that is to be committed.

    Raises:
        InputDoubtful: another id, another record, or fewer of them: a recovery finds out what that means.
        InputMissing, Unreachable.
    """
    ids = await topic_ids(context)
    for change in changes(context.input_names, chain.expected_ids, ids):
        raise InputDoubtful(str(change), topic=change.topic)
    async with reading(context.cluster, topic_ids=ids) as reader:
        for topic, anchor in (*chain.last.anchors.items(), *batch.items()):
            partition = TopicPartition(topic, context.partition)
            bounds = await reader.bounds(partition)
            witness = Witness.OTHER
            if anchor.offset < bounds.end_offset:
                witness, _ = await _witness(reader, partition, anchor)
            if witness is Witness.OTHER:
                raise InputDoubtful(
                    f"input {partition} no longer holds the record that was read at offset {anchor.offset}",
                    topic=topic,
                )


async def _check_once(
    context: Context, last: Increment, ids: Mapping[str, str], changed: Mapping[str, TopicChange]
) -> None:
    """With a new client each time: another broker may know better than a stale leader."""
    async with reading(context.cluster, topic_ids=ids) as reader:
        for topic, position in last.positions.items():
            partition = TopicPartition(topic, context.partition)
            bounds = await reader.bounds(partition)
            _check_position(bounds, partition, position)
            anchor = last.anchors.get(topic)
            witness, found = Witness.NONE, None
            if anchor is not None:
                witness, found = await _witness(reader, partition, anchor)
            change = changed.get(topic)
            if witness is Witness.OTHER and anchor is not None and found is not None:
                raise _other_record(partition, position, anchor, found, change)
            if change is not None and witness is Witness.SAME and anchor is not None:
                await _check_between(reader, partition, anchor, position, change)
            from_start = anchor is None and position == bounds.start_offset
            if change is not None and witness is Witness.NONE and not from_start:
                raise _other_topic(
                    partition,
                    position,
                    change,
                    "It has no processed record left to compare, so nothing shows that position"
                    f" {position} means the same in it",
                )


def _check_position(bounds: Bounds, partition: TopicPartition, position: int) -> None:
    if position < bounds.start_offset:
        raise InputTrimmed(
            f"input {partition}: the next record to process is at offset {position}, but the log begins at"
            f" {bounds.start_offset}: {counted_are(bounds.start_offset - position, 'offset')} gone",
            topic=partition.topic,
            position=position,
            log_start_offset=bounds.start_offset,
        )
    if position > bounds.end_offset:
        raise OffsetBeyondEnd(
            f"input {partition} ends at {bounds.end_offset}, but our position is"
            f" {position}: the log is shorter than it was",
            topic=partition.topic,
            position=position,
            end_offset=bounds.end_offset,
        )


async def _witness(
    reader: Reader, partition: TopicPartition, anchor: Anchor
) -> tuple[Witness, Anchor | None]:
    """A trimmed or compacted anchor proves nothing either way; only another record there does."""
    try:
        record = await reader.read_at(partition, anchor.offset)
    except OffsetTrimmed:
        return Witness.NONE, None
    if record is None:
        return Witness.NONE, None
    found = anchor_of(record)
    return (Witness.SAME if found == anchor else Witness.OTHER), found


async def _check_between(
    reader: Reader, partition: TopicPartition, anchor: Anchor, position: int, change: TopicChange
) -> None:
    """Between the anchor and our position there was no record: only markers and aborted ones. A copy must have none
    there either: it would never be processed."""
    async for records in reader.read(partition, anchor.offset + 1, position):
        for record in records:
            raise _other_topic(
                partition,
                position,
                change,
                f"It has the last processed record at offset {anchor.offset}, but also one at offset {record.offset},"
                f" before our position {position}, where there was none",
            )


def _other_record(
    partition: TopicPartition,
    position: int,
    anchor: Anchor,
    found: Anchor,
    change: TopicChange | None,
) -> InputReplaced:
    return InputReplaced(
        _with(
            f"input {partition} holds another record at offset {anchor.offset} than the one that was processed: it had"
            f" timestamp {anchor.timestamp_ms}, xxh64 {anchor.xxh64:016x}; now timestamp {found.timestamp_ms},"
            f" xxh64 {found.xxh64:016x}: the topic was created again, or is another mirror",
            change,
        ),
        topic=partition.topic,
        position=position,
        recorded=anchor.xxh64,
        found=found.xxh64,
    )


def _other_topic(
    partition: TopicPartition, position: int, change: TopicChange, how: str
) -> InputReplaced:
    """`how`: what shows it, as a sentence without its full stop."""
    return InputReplaced(
        f"input {partition}: {change}. {how}",
        topic=partition.topic,
        position=position,
        recorded=change.recorded_id,
        found=change.found_id,
    )


def _with(message: str, change: TopicChange | None) -> str:
    return f"{message}; {change}" if change is not None else message
