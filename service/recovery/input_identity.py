"""Is each input still the log that was processed, and does it reach our position?

Three witnesses: the topic's id; the position's anchor, the record batch directly below our position; and the record
anchor, the last record that was read. The same id with another batch there: cut and grown again. Another id with the
same record: a faithful copy. If both anchors are gone, the id and the leader epochs count.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from enum import Enum

from msgspec import Struct
from msgspec.structs import replace

from snapreplay.app.names import place_of_input
from snapreplay.app.ranges import Anchor, PositionAnchor, anchor_of
from snapreplay.app.ways import app_name, keys_moved_hint
from snapreplay.counted import counted, counted_are
from snapreplay.errors import RetryableError, StopError
from snapreplay.service.core.chain import ReadPosition, read_positions
from snapreplay.service.core.inspected import TopicChange, changes
from snapreplay.service.core.kafka_errors import OffsetBeyondEnd, OffsetTrimmed
from snapreplay.service.ports import Bounds, Reader, TopicPartition
from snapreplay.service.runtime.context import Context
from snapreplay.service.topics.reading import OnWaiting, Patience, reading
from snapreplay.service.topics.requirements import check_replayable, is_broadcast
from snapreplay.snapshots.format.records import Increment

log = logging.getLogger("snapreplay.partition")


class InputReplaced(StopError):
    """The last processed record of an input was replaced by another one, or it is missing and the topic has another
    id."""


class InputShorter(StopError):
    """The input ends before the position of the partition, on every broker."""


class InputTrimmed(StopError):
    """The next records to process were deleted: the input begins after the position of the partition."""


class InputGrown(StopError):
    """An input that matches a pattern has another number of partitions than the other inputs."""


class InputMissing(RetryableError):
    """The topic or partition does not exist. When it exists again, the recovery checks whether it is the same log.

    Safe: State and positions are in the log, and the partition waits for the topic. Do not restart its process: a start
    without the input is refused.
    """


class InputShrunk(StopError):
    """The topic of a broadcast table has fewer partitions than were read.

    Safe: Nothing has been processed since. The state keeps the table as it was read.
    """


REFUSALS = (InputReplaced, InputShorter, InputTrimmed, InputMissing, InputShrunk)


class InputDoubtful(RetryableError):
    """An input was changed while the partition was LIVE. The recovery examines it."""


class Checked(Struct, frozen=True):
    """The inputs as they were found. `copies`: another id and the same records. `anchors`: what lies directly below
    each position. `rewritten`: inputs that were cut and got the last processed record back at its offset."""

    topic_ids: Mapping[str, str]
    copies: tuple[TopicChange, ...]
    anchors: Mapping[str, PositionAnchor]
    rewritten: tuple[str, ...]

    @property
    def known_ids(self) -> dict[str, str]:
        """The ids that are known, without those that the cluster has no id for."""
        return {topic: topic_id for topic, topic_id in self.topic_ids.items() if topic_id}


async def topic_ids(context: Context, inputs: Iterable[str]) -> dict[str, str]:
    """Return the ids of these inputs and both own topics; a missing own topic is absent.

    Raises:
        InputMissing: an input is not there.
    """
    names = tuple(inputs)
    ids = await context.cluster.topic_ids((*names, context.increments.topic, context.snapshots.topic))
    for name in names:
        if name not in ids:
            topic, _ = place_of_input(name, context.partition)
            raise InputMissing(
                f"input {topic} no longer exists",
                hint="restore it from a backup or a mirror, with its old offsets: a topic of this name that holds"
                f" other records is refused{_retiring(context, name)}",
                topic=topic,
            )
    return ids


async def checked_ids(context: Context, last: Increment) -> dict[str, str]:
    """Return what `topic_ids` does. All partitions that were read are there.

    Raises:
        InputShrunk: the topic of a broadcast table was created again with fewer partitions.
        InputMissing, Unreachable: ask again.
    """
    ids = await topic_ids(context, last.positions)
    for name, count in (await lost_partitions(context, last.positions)).items():
        topic, partition = place_of_input(name, context.partition)
        found = (
            f"partition {partition} of broadcast table {topic} was read, but the topic now has"
            f" {counted(count, 'partition')}"
        )
        facts = {"topic": topic, "found": count, "expected": partition + 1}
        hint = (
            "restore it from a backup, with all partitions and its old offsets; or take the table out of the app"
            f" and run `snapreplay inputs {app_name(context.app)} --leave-records`"
        )
        if not changes([name], last.topic_ids, ids):
            raise InputMissing(
                f"{found}: nothing shows that it was created again, so a broker may lag behind",
                hint=f"wait: the brokers are asked again. If it stays so, {hint}",
                **facts,
            )
        raise InputShrunk(f"{found}: it was created again", hint=hint, **facts)
    return ids


async def lost_partitions(context: Context, inputs: Iterable[str]) -> dict[str, int]:
    """Return those inputs of broadcast tables whose topic does not have the partition, with the number that it has."""
    broadcast = [name for name in inputs if is_broadcast(name)]
    facts = await context.cluster.topics(broadcast) if broadcast else {}
    return {
        name: each.partition_count
        for name, each in facts.items()
        if place_of_input(name, context.partition)[1] >= each.partition_count
    }


def _retiring(context: Context, name: str) -> str:
    if name in context.app.input_names or is_broadcast(name):
        return ""
    return f"; or, if it is no longer needed: `snapreplay inputs {app_name(context.app)} --retire {name}`"


async def check_policies(context: Context, inputs: Iterable[str]) -> None:
    """Compaction may have been switched on since the start.

    Raises:
        UsageError: an input is compacted, and this app recovers by replay.
    """
    facts = await context.cluster.topics(inputs)
    check_replayable(context.settings, list(facts.values()))


async def check_inputs(context: Context, last: Increment, on_waiting: OnWaiting = lambda _: None) -> Checked:
    """Compare every input with the last increment. An input that ends too early is asked for again, because a broker
    may be behind, unless all brokers agree on its end. `on_waiting` hears of every try.

    Raises:
        InputReplaced, InputTrimmed, InputShorter, InputShrunk, InputGrown: STOP, with both facts.
        InputMissing, Unreachable: ask again.
    """
    await _check_counts(context, last)
    patience = Patience()
    while True:
        ids = await checked_ids(context, last)
        changed = {change.topic: change for change in changes(last.positions, last.topic_ids, ids)}
        try:
            found = await _check_once(context, last, ids, changed)
        except OffsetBeyondEnd as error:
            partition = TopicPartition(str(error.facts["topic"]), context.partition)
            await patience.ask_all(context.cluster, partition, last.positions[partition.topic])
            if patience.is_over:
                change = changed.get(partition.topic)
                text = (
                    f"{error.message}; offsets {error.facts['end_offset']} to"
                    f" {error.facts['position']} were read and are no longer there"
                )
                raise InputShorter(_with(text, change), hint=error.hint, **error.facts) from error
            on_waiting(f"{error.message}; asking all brokers, {patience.left_seconds:.0f} s left")
        else:
            anchors = {topic: each.anchor for topic, each in found.items() if each.anchor is not None}
            rewritten = tuple(topic for topic, each in found.items() if each.rewritten)
            return Checked(ids, tuple(changed.values()), anchors, rewritten)
        await patience.pause()


async def _check_counts(context: Context, last: Increment) -> None:
    """Check the inputs that were not among those that match a pattern when the cluster was inspected."""
    count, others = context.view.partition_count, [n for n in last.positions if n not in context.input_names]
    others = [name for name in others if not is_broadcast(name)]
    for facts in (await context.cluster.topics(others)).values() if others else ():
        if facts.partition_count != count:
            raise InputGrown(
                f"input {facts.name} has {counted(facts.partition_count, 'partition')}, but the app has {count}",
                hint=keys_moved_hint(context.app.app_id, count),
                topic=facts.name,
                found=facts.partition_count,
                expected=count,
            )


def warn_of_copies(context: Context, last: Increment, checked: Checked) -> None:
    """Warn once per recovery. Also for own topics, whose records were read and form a chain."""
    for change in checked.copies:
        anchor = last.anchors.get(change.topic)
        what = f"holds the last processed record, at offset {anchor.offset}," if anchor else ""
        log.warning(
            "partition %d: %s; it %s and is accepted as a faithful copy",
            context.partition,
            change,
            what or "is read from its start, because nothing of the old one was processed,",
        )
    for topic in checked.rewritten:
        log.warning(
            "partition %d: input %s was cut and has grown again. It holds the last processed record at its offset, so"
            " it is accepted as a faithful copy of itself",
            context.partition,
            topic,
        )
    own = (context.increments.topic, context.snapshots.topic)
    for change in changes(own, last.topic_ids, checked.topic_ids):
        if change.found_id is not None:
            log.warning(
                "partition %d: %s; its records lead to batch %d, so it is accepted as a faithful copy. Batches that"
                " were committed after the copy was made are lost, but their outputs may exist",
                context.partition,
                change,
                last.batch,
            )


async def compare_while_live(
    context: Context, topic_ids_before: Mapping[str, str], read: Iterable[tuple[str, ReadPosition]]
) -> set[str]:
    """Compare the inputs before a commit, after something unusual. `read`: what is committed, and what is to be.

    Returns:
        Inputs whose log continues behind the last of these positions by their leader epochs, too.

    Raises:
        InputDoubtful: another id, record or batch, or fewer: a recovery finds out what that means.
        InputMissing, Unreachable.
    """
    read = tuple(read)
    inputs = dict.fromkeys(topic for topic, _ in read)
    ids = await topic_ids(context, inputs)
    for change in changes(inputs, topic_ids_before, ids):
        raise InputDoubtful(str(change), topic=change.topic)
    async with reading(context.cluster, topic_ids=ids) as reader:
        found = {
            topic: await _compare(reader, TopicPartition(topic, context.partition), read_position)
            for topic, read_position in read
        }
    return {topic for topic, is_known in found.items() if is_known}


async def _compare(reader: Reader, partition: TopicPartition, read_position: ReadPosition) -> bool:
    """Say whether a fetch from the position, with the leader epoch below it, would continue in this log."""
    position, record = read_position.position, read_position.record
    bounds = await reader.bounds(partition)
    if position > bounds.end_offset:
        raise InputDoubtful(
            f"input {partition} ends at {bounds.end_offset}, but it was read up to {position}", topic=partition.topic
        )
    if (await below_position(reader, partition, read_position)).match is Match.OTHER:
        raise InputDoubtful(
            f"input {partition} no longer holds what was read directly below offset {position}", topic=partition.topic
        )
    if record is not None and (await record_at_anchor(reader, partition, record))[0] is Match.OTHER:
        raise InputDoubtful(
            f"input {partition} no longer holds the record that was read at offset {record.offset}",
            topic=partition.topic,
        )
    return await goes_on(reader, partition, read_position)


async def _check_once(
    context: Context, last: Increment, ids: Mapping[str, str], changed: Mapping[str, TopicChange]
) -> dict[str, Below]:
    """Check with a new client each time: another broker may know better than a stale leader."""
    async with reading(context.cluster, topic_ids=ids) as reader:
        places = {topic: TopicPartition(topic, context.partition) for topic in last.positions}
        bounds = await reader.bounds_of(places.values())
        return {
            topic: await _check_one(reader, places[topic], bounds[places[topic]], each, changed.get(topic))
            for topic, each in read_positions(last).items()
        }


async def _check_one(
    reader: Reader, partition: TopicPartition, bounds: Bounds, read_position: ReadPosition, change: TopicChange | None
) -> Below:
    position, anchor = read_position.position, read_position.record
    _check_position(bounds, partition, position)
    if change is not None:  # leader epochs and batches of another topic say nothing
        read_position = read_position._replace(below=None)
    below = await below_or_copied(reader, partition, read_position)
    if below.match is Match.OTHER:
        raise await _rewritten(reader, partition, read_position, below, bounds)
    match, found = Match.NONE, None
    if anchor is not None:
        match, found = await record_at_anchor(reader, partition, anchor)
    if match is Match.OTHER and anchor is not None and found is not None:
        raise _other_record(partition, position, anchor, found, change)
    if change is not None and match is Match.SAME and anchor is not None:
        await _check_between(reader, partition, anchor, position, change)
    from_start = anchor is None and position == bounds.start_offset
    if change is not None and match is Match.NONE and not from_start:
        raise _other_topic(
            partition,
            position,
            change,
            "It has no processed record left to compare, so nothing shows that position"
            f" {position} means the same in it",
        )
    return below


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
            f"input {partition} ends at {bounds.end_offset}, but the position is"
            f" {position}: the log is shorter than before",
            topic=partition.topic,
            position=position,
            end_offset=bounds.end_offset,
        )


async def _check_between(
    reader: Reader, partition: TopicPartition, anchor: Anchor, position: int, change: TopicChange
) -> None:
    """Check that there is no record between the anchor and our position, where there was none: it would never be
    processed."""
    async for records in reader.read(partition, anchor.offset + 1, position):
        for record in records:
            raise _other_topic(
                partition,
                position,
                change,
                f"It has the last processed record at offset {anchor.offset}, but also one at offset {record.offset},"
                f" before the position {position}, where there was none",
            )


async def _rewritten(
    reader: Reader, partition: TopicPartition, read_position: ReadPosition, below: Below, bounds: Bounds
) -> InputReplaced:
    """Make the error for a log that was cut below the position and has grown again; the broker may tell where."""
    position, expected, found = read_position.position, read_position.below, below.anchor
    if expected is None:
        raise AssertionError("nothing could differ")
    end = await reader.epoch_end(partition, expected.leader_epoch)
    what = f"it had leader epoch {expected.leader_epoch}, crc32c {expected.crc32c:08x}; now" + (
        f" leader epoch {found.leader_epoch}, crc32c {found.crc32c:08x}" if found else " nothing"
    )
    if end is not None and end.end_offset < position:
        others = min(bounds.end_offset, position) - end.end_offset
        text = (
            f"input {partition}: offsets {end.end_offset} to {position} were read and are no longer there;"
            f" {counted_are(others, 'other offset')} in their place and would never be processed: the log was cut and"
            f" has grown again (the record batch below offset {position}: {what})"
        )
    else:
        text = (
            f"input {partition} holds another record batch below offset {position}, up to which it was read: {what}."
            " The log was cut and has grown again, and what is new below that offset would never be processed"
        )
    return InputReplaced(
        text,
        topic=partition.topic,
        position=position,
        cut_at=end.end_offset if end is not None else None,
        recorded=str(expected),
        found=str(found),
    )


def _other_record(
    partition: TopicPartition, position: int, anchor: Anchor, found: Anchor, change: TopicChange | None
) -> InputReplaced:
    return InputReplaced(
        _with(
            f"input {partition} holds another record at offset {anchor.offset} than the processed one: it had"
            f" timestamp {anchor.timestamp_ms}, xxh64 {anchor.xxh64:016x}; now timestamp {found.timestamp_ms},"
            f" xxh64 {found.xxh64:016x}: the topic was created again, or is another mirror",
            change,
        ),
        topic=partition.topic,
        position=position,
        recorded=anchor.xxh64,
        found=found.xxh64,
    )


def _other_topic(partition: TopicPartition, position: int, change: TopicChange, how: str) -> InputReplaced:
    """Make the error for another topic; `how`: what shows it, as a sentence without its full stop."""
    return InputReplaced(
        f"input {partition}: {change}. {how}",
        topic=partition.topic,
        position=position,
        recorded=change.recorded_id,
        found=change.found_id,
    )


def _with(message: str, change: TopicChange | None) -> str:
    return f"{message}; {change}" if change is not None else message


class Match(Enum):
    """The result of comparing the log with an anchor."""

    SAME = "same"
    OTHER = "other"
    NONE = "none"  # there never was an anchor, or its record was trimmed or compacted away


class Below(Struct, frozen=True):
    """The result of comparing the anchor of a position. `anchor`: of the batch that is there now, or that was there."""

    match: Match
    anchor: PositionAnchor | None = None
    rewritten: bool = False


async def was_cut(reader: Reader, partition: TopicPartition, read_position: ReadPosition) -> bool:
    """Say whether the log of the same topic holds another batch below the position than it did."""
    return (await below_or_copied(reader, partition, read_position)).match is Match.OTHER


async def below_or_copied(reader: Reader, partition: TopicPartition, read_position: ReadPosition) -> Below:
    """Compare as `below_position`. Another batch that ends with the same last record is a copy of what was there."""
    record = read_position.record
    below = await below_position(reader, partition, read_position)
    if below.match is not Match.OTHER or record is None or not read_position.is_behind_record:
        return below
    match, _ = await record_at_anchor(reader, partition, record)
    return replace(below, match=match, rewritten=True) if match is Match.SAME else below


async def below_position(reader: Reader, partition: TopicPartition, read_position: ReadPosition) -> Below:
    """Compare what lies below the position, in the topic that it was read from. If the batch is gone, or was rewritten
    by the log cleaner, the broker may still know how far its leader epoch reached."""
    batch = await reader.batch_below(partition, read_position.position) if read_position.position else None
    found = batch.anchor if batch is not None else None
    expected = read_position.below
    if expected is None:
        return Below(Match.NONE, found)
    if found == expected:
        return Below(Match.SAME, found)
    if batch is not None and not (batch.is_cleaned and batch.anchor.leader_epoch == expected.leader_epoch):
        return Below(Match.OTHER, found)
    end = await reader.epoch_end(partition, expected.leader_epoch)
    cut = end is not None and end.end_offset < read_position.position
    return Below(Match.OTHER if cut else Match.NONE, found or expected)


async def goes_on(reader: Reader, partition: TopicPartition, read_position: ReadPosition) -> bool:
    """Say whether the log knows the leader epoch below the position, and it reaches the position. An older disk may
    hold a batch of an epoch that its leader has forgotten: a fetch that names it gives nothing."""
    expected = read_position.below
    if expected is None:
        return False
    end = await reader.epoch_end(partition, expected.leader_epoch)
    return end is not None and end.leader_epoch == expected.leader_epoch and end.end_offset >= read_position.position


async def record_at_anchor(reader: Reader, partition: TopicPartition, anchor: Anchor) -> tuple[Match, Anchor | None]:
    """Compare the record; a trimmed or compacted anchor proves nothing either way; only another record there does."""
    try:
        record = await reader.read_at(partition, anchor.offset)
    except OffsetTrimmed:
        return Match.NONE, None
    if record is None:
        return Match.NONE, None
    found = anchor_of(record)
    return (Match.SAME if found == anchor else Match.OTHER), found
