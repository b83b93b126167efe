"""The dead letters of an app: the newest for people to read, and their way back to the inputs.

Each goes back once, however often a redrive is killed. One transaction has the records and, in the dead-letters topic
itself, a note of how far it came. A consumer group's offsets would expire with the group, and the dead letters would
then be sent again. The start of the producer fences an earlier redrive that still runs, and aborts what a killed one
left open, before the last note is looked for.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any

from msgspec import Struct, field

from snapreplay.app.app import App
from snapreplay.app.failure import PREFIX, Headers
from snapreplay.app.names import dead_letters_topic
from snapreplay.app.ranges import anchor_of
from snapreplay.app.record import InputRecord, Output
from snapreplay.counted import counted
from snapreplay.errors import SnapreplayError, StopError, UsageError
from snapreplay.service.clock import time_of
from snapreplay.service.config.settings import Settings
from snapreplay.service.control.kafka_reads import LETTERS_MAX, VALUE_CHARACTERS_MAX, DeadLetter, DeadLetterList
from snapreplay.service.control.operations import OnDone, OperationState
from snapreplay.service.control.state_reads import NotReadable
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.kafka.feeding import KafkaFeeder
from snapreplay.service.ports import Cluster, Reader, TopicPartition
from snapreplay.service.runtime.tasks import cancel_and_wait
from snapreplay.service.topics.reading import newest, reading
from snapreplay.service.topics.requirements import described

log = logging.getLogger("snapreplay")

LEFT_SHOWN_MAX = 3
LEFT_CHARACTERS_MAX = 300


class DeadLetters:
    """The dead letters of an app. For the service's loop, until `close`."""

    def __init__(self, app: App[Any], settings: Settings, cluster: Cluster) -> None:
        self._app, self._settings, self._cluster = app, settings, cluster
        self._tasks: set[asyncio.Task[None]] = set()

    async def read(self) -> DeadLetterList:
        """Return the newest of all partitions, at most LETTERS_MAX.

        Raises:
            NotReadable: the cluster does not answer, or does not allow it.
        """
        name, number = dead_letters_topic(self._app.app_id), 0
        try:
            facts = (await self._cluster.topics([name])).get(name)
            if facts is None:
                return DeadLetterList(None)
            found: list[DeadLetter] = []
            async with reading(self._cluster, large=True) as reader:
                for number in range(facts.partition_count):
                    found += _letters(await newest(reader, TopicPartition(name, number), LETTERS_MAX))
                    found.sort(key=lambda each: each.written_at, reverse=True)
                    del found[LETTERS_MAX:]
        except SnapreplayError as error:
            raise NotReadable(number, "unknown", f"its dead letters cannot be read: {error.message}") from error
        return DeadLetterList(name, tuple(found))

    def begin(self, dones: Sequence[OnDone]) -> None:
        """Send all of them back to their inputs; each of `dones` hears of its input partition."""
        task = asyncio.get_running_loop().create_task(self._redrive(dones))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Give up a redrive that is under way. The next one continues it: no record is sent twice."""
        for task in tuple(self._tasks):
            await cancel_and_wait(task)

    async def _redrive(self, dones: Sequence[OnDone]) -> None:
        why = "the process ended before it had finished; redrive again: no record is sent twice"
        try:
            done = await redrive(self._app, self._settings)
        except SnapreplayError as error:
            why = str(error)
        except Exception as error:  # any error must end the operation, with its text
            log.exception("the dead letters could not be sent back")
            why = repr(error)
        else:
            sent: Counter[int] = Counter()
            for place, count in done.sent.items():
                sent[place.partition] += count
            left = _left(done.left)
            for number, each in enumerate(dones):
                each(OperationState.SUCCEEDED, None, f"{counted(sent[number], 'record')} sent back{left}")
                left = ""
        finally:
            for each in dones:  # those that have not ended
                each(OperationState.FAILED, None, why)


def _left(left: Sequence[str]) -> str:
    """Say how many were skipped, and of the first few why: each answer about operations has this."""
    if not left:
        return ""
    more = f"; and {len(left) - LEFT_SHOWN_MAX:,} more" if len(left) > LEFT_SHOWN_MAX else ""
    return f"; {len(left):,} skipped: {'; '.join(each[:LEFT_CHARACTERS_MAX] for each in left[:LEFT_SHOWN_MAX])}{more}"


def _letters(records: Sequence[InputRecord]) -> list[DeadLetter]:
    """Show the records of a partition of the topic. Those below the last note were sent back or skipped."""
    sent_until, left, found = 0, dict[int, str](), list[InputRecord]()
    for each in records:
        if (noted := noted_in(each)) is None:
            found.append(each)
        else:
            sent_until = max(sent_until, noted)
            left |= passed_over_in(each)
    return [_shown(each, sent_until, left.get(each.offset, "")) for each in found]


def _shown(letter: InputRecord, sent_until: int, left: str) -> DeadLetter:
    headers, reasons = parted(letter.headers)
    why = {name.removeprefix(PREFIX): _text(data) or "" for name, data in reasons}
    shown = _some(headers)
    return DeadLetter(
        partition=letter.partition,
        offset=letter.offset,
        written_at=time_of(letter.timestamp),
        exception=why.get("exception", ""),
        message=why.get("message", ""),
        app_version=why.get("app_version", ""),
        state="passed_over" if left else "sent_back" if letter.offset < sent_until else "open",
        passed_over=left,
        topic=why.get("topic", ""),
        input_partition=_number(why.get("partition")),
        input_offset=_number(why.get("offset")),
        timer=why.get("timer", ""),
        key=_text(letter.key),
        value=_text(letter.value),
        value_is_cut=len(_decoded(letter.value)) > VALUE_CHARACTERS_MAX,
        headers=shown,
        headers_left_out=len({name for name, _ in headers} - shown.keys()),
        dropped=why.get("dropped", ""),
    )


def _some(headers: Headers) -> dict[str, str]:
    """Return as many of these headers as fit into VALUE_CHARACTERS_MAX together."""
    shown, left = dict[str, str](), VALUE_CHARACTERS_MAX
    for name, data in headers:
        text = _text(data) or ""
        left -= len(name) + len(text)
        if left < 0:
            break
        shown[name] = text
    return shown


def _text(data: bytes | None) -> str | None:
    return None if data is None else _decoded(data)[:VALUE_CHARACTERS_MAX]


def _decoded(data: bytes | None) -> str:
    """Decode no more than what is shown, and a bit: this runs in the runners' loop."""
    return (data or b"")[: 4 * (VALUE_CHARACTERS_MAX + 1)].decode(errors="backslashreplace")


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None


REDRIVEN_HEADER = f"{PREFIX}redriven_to"
"""Of a note: the next dead letter's offset."""
BATCH_RECORDS = 500


class Redriven(Struct, frozen=True):
    """The records that were sent, or would be.

    Attributes:
        sent: input partition to the number of records.
        left: dead letters that cannot be sent back, and why; they are skipped.
    """

    sent: dict[TopicPartition, int] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)


async def redrive(app: App[Any], settings: Settings, *, dry_run: bool = False) -> Redriven:
    """Send back every dead letter that is there now and was not sent back before.

    Raises:
        UsageError: the app has no dead-letters topic.
        NotesShifted: the dead letters were copied with other offsets. Nothing of their partition was sent back.
        OtherRecord: the input does not hold the record of a dead letter without value any more. Everything before that
            dead letter was sent back; it and those after it in its partition are not marked as done.
        Fenced: another `redrive` of the app has begun since. What was committed is not sent again.
    """
    cluster, name = KafkaCluster(settings), dead_letters_topic(app.app_id)
    facts = (await described(app, settings, cluster)) | await cluster.topics([name])
    if name not in facts:
        raise UsageError(f"app {app.app_id!r} has no dead letters: there is no topic {name!r}")
    counts = {topic: each.partition_count for topic, each in facts.items() if app.input_named(topic)}
    feeder = None if dry_run else KafkaFeeder(settings, f"{app.app_id}-redrive")
    done = Redriven()
    try:
        if feeder is not None:
            await feeder.start()
        async with reading(cluster) as letters, reading(cluster) as inputs:
            for number in range(facts[name].partition_count):
                source = TopicPartition(name, number)
                async for some in _new_letters(letters, source):
                    found = await _outputs(app, some, inputs, counts, done)
                    if feeder is not None:
                        await feeder.feed([*found.outputs, _note(source, found)])
                    for each in found.outputs:
                        place = TopicPartition(each.topic, each.partition or 0)
                        done.sent[place] = done.sent.get(place, 0) + 1
                    if found.refused is not None:
                        raise found.refused
    finally:
        if feeder is not None:
            await feeder.close()
    return done


async def _new_letters(reader: Reader, source: TopicPartition) -> AsyncIterator[Sequence[InputRecord]]:
    """Yield the letters after the last note, at most BATCH_RECORDS at a time."""
    start, end = await reader.bounds(source)
    position = await _noted(reader, source, start, end)
    async for records in reader.read(source, position, end):
        letters = [record for record in records if not is_note(record)]
        for first in range(0, len(letters), BATCH_RECORDS):
            yield letters[first : first + BATCH_RECORDS]


async def _noted(reader: Reader, source: TopicPartition, start: int, end: int) -> int:
    """Say where the last note says that the next dead letter is. Notes are looked for backwards. Raises
    NotesShifted."""
    window_end, size = end, BATCH_RECORDS
    while window_end > start:
        window_start = max(start, window_end - size)
        found = None
        async for records in reader.read(source, window_start, window_end):
            for record in records:
                noted = noted_in(record)
                if noted is not None and noted > record.offset:
                    raise _shifted(source, record.offset, noted)
                found = noted if noted is not None else found
        if found is not None:
            return max(start, found)
        window_end, size = window_start, size * 8
    return start


def _shifted(source: TopicPartition, offset: int, noted: int) -> NotesShifted:
    return NotesShifted(
        f"{source} offset {offset} says that dead letters below offset {noted} were sent back, but these come after it:"
        " the topic was copied with shifted offsets, and new dead letters would be skipped",
        hint="restore the topic from a copy that keeps every offset; or, if the records before that one are no"
        " longer needed (they were sent back, except any written at that moment), `kafka-delete-records.sh` removes"
        f" {source} up to offset {offset + 1}, then run it again",
        offset=offset,
        noted=noted,
    )


def _note(source: TopicPartition, found: _Found) -> Output:
    end = str(found.end_offset)
    left = ", ".join(f"{offset} ({word})" for offset, word in found.left.items())
    value = f"dead letters below offset {end} were sent back{left and f', except {left}'}".encode()
    headers = ((REDRIVEN_HEADER, end.encode()),)
    return Output(source.topic, None, value, source.partition, False, None, headers)


def is_note(record: InputRecord) -> bool:
    """Say whether this record of the dead-letters topic says how far a redrive came, and is no dead letter."""
    return noted_in(record) is not None


def noted_in(record: InputRecord) -> int | None:
    """Return how far a note says that dead letters were sent back; None: it is a dead letter. A note has one header, a
    dead letter has more, even if its record had that of a note."""
    match record.headers:
        case ((name, bytes() as data),) if name == REDRIVEN_HEADER and data.isdigit():
            return int(data)
    return None


def passed_over_in(note: InputRecord) -> dict[int, str]:
    """Return the offsets of the dead letters that a note says were skipped, with the reason of each in a word."""
    return {int(offset): word.decode() for offset, word in re.findall(rb"(\d+) \(([^)]*)\)", note.value or b"")}


class _Found(Struct, frozen=True):
    """The outputs that go back for some dead letters, up to `end_offset`; `left`: the offset of each that is skipped,
    with the reason in a word; `refused`: why not the one at `end_offset`."""

    outputs: list[Output]
    end_offset: int
    left: dict[int, str]
    refused: OtherRecord | None = None


async def _outputs(
    app: App[Any], letters: Sequence[InputRecord], inputs: Reader, counts: dict[str, int], done: Redriven
) -> _Found:
    found: list[Output] = []
    left: dict[int, str] = {}
    for letter in letters:
        if _is_repeated(app, letter):
            continue
        try:
            found.append(await _original(letter, inputs, counts))
        except _NotSendable as error:
            left[letter.offset] = error.word
            done.left.append(f"{letter.topic}-{letter.partition}-{letter.offset}: {error}")
        except OtherRecord as refused:
            return _Found(found, letter.offset, left, refused)
    return _Found(found, letters[-1].offset + 1, left)


def _is_repeated(app: App[Any], letter: InputRecord) -> bool:
    """Say whether partition 0 has a letter of the same record: each partition of the app writes one for a row of a
    broadcast table, and each record sent back would lead to as many again."""
    topic = dict(parted(letter.headers)[1]).get(f"{PREFIX}topic") or b""
    return letter.partition > 0 and topic.decode(errors="replace") in app.broadcast_names


class NotesShifted(StopError):
    """The dead letters are not at the offsets where they were written, so the note that records the progress of
    `redrive` points to another dead letter.

    Safe: No dead letter of this partition was sent back. Dead letters that `kafka-delete-records.sh` removes can no
    longer be sent back.
    """


class OtherRecord(StopError):
    """At the offset of the original record, the input now has another record.

    Safe: Every earlier dead letter was sent back and is noted, so the same command sends none of them twice. This one
    is kept.
    """


class _NotSendable(Exception):
    """The reason why a dead letter cannot be sent back, as a sentence and in a word."""

    def __init__(self, word: str, why: str) -> None:
        super().__init__(why)
        self.word = word


async def _original(letter: InputRecord, inputs: Reader, counts: dict[str, int]) -> Output:
    """Restore the record as it was, with its own time."""
    headers, reasons = parted(letter.headers)
    why = {name.removeprefix(PREFIX): data or b"" for name, data in reasons}
    if "timer" in why:
        raise _NotSendable("timer", f"{_timer(why)} is not a record: a handler may set it again")
    try:
        topic, partition = why["topic"].decode(), int(why["partition"])
        offset, timestamp_ms = int(why["offset"]), int(why["timestamp_ms"])
    except (KeyError, ValueError) as error:
        raise _NotSendable("no origin", f"it does not say where it comes from ({error})") from error
    if partition >= counts.get(topic, 0):
        raise _NotSendable("no such input", f"{topic}-{partition} is not an input partition of the app")
    key, value = letter.key, letter.value
    if "dropped" in why:  # it was too large for the dead-letters topic
        source = TopicPartition(topic, partition)
        bounds = await inputs.bounds(source)
        whole = await inputs.read_at(source, offset) if offset >= bounds.start_offset else None
        if whole is None:
            raise _NotSendable(
                "record gone",
                f"its {why['dropped'].decode()} did not fit into the dead letter, and {source}-{offset} is gone",
            )
        _check_same(letter, source, whole, timestamp_ms, why)
        key, value, headers = whole.key, whole.value, tuple(whole.headers)
    return Output(topic, key, value, partition, False, timestamp_ms, headers)


def _check_same(
    letter: InputRecord, source: TopicPartition, found: InputRecord, timestamp_ms: int, why: dict[str, bytes]
) -> None:
    """Raise OtherRecord if the timestamp or the hash differs."""
    now, recorded = anchor_of(found), why.get("xxh64", b"").decode()
    if (timestamp_ms, recorded) == (now.timestamp_ms, f"{now.xxh64:016x}"):
        return
    place = f"{letter.topic}-{letter.partition}"
    raise OtherRecord(
        f"dead letter {place}-{letter.offset} has no value of its own, and {source}-{found.offset} holds another record"
        f" than the record that failed: it had timestamp {timestamp_ms}, xxh64 {recorded}; now timestamp"
        f" {now.timestamp_ms}, xxh64 {now.xxh64:016x}: the input was created again or truncated. Everything before it"
        " was sent back",
        hint="restore the input with its old records, then run the same command again; or give the record up:"
        f" `kafka-delete-records.sh` removes {place} up to offset {letter.offset + 1}, then run it again",
        dead_letter=f"{place}-{letter.offset}",
        record=f"{source}-{found.offset}",
    )


def parted(headers: Sequence[tuple[str, bytes | None]]) -> tuple[Headers, Headers]:
    """Return the headers that the record had, and the reasons behind them. The record may have reasons of its own,
    if it was the dead letter of another app."""
    firsts = (f"{PREFIX}topic", f"{PREFIX}timer")
    starts = [at for at, (name, _) in enumerate(headers) if name in firsts]
    start = starts[-1] if starts else len(headers)
    return tuple(headers[:start]), tuple(headers[start:])


def _timer(why: dict[str, bytes]) -> str:
    name, store, key, at_ms = (
        why.get(each, b"").decode(errors="replace") for each in ("timer", "store", "key", "at_ms")
    )
    of = f" of {store}[{key}]" if store else ""  # a periodic one has no store
    return f"timer {name}{of} at {at_ms}"
