"""Changes the inputs of an app: what the code declares and the log does not have is added, and the reverse is retired.

The increment that does it stands in the chain as it is, with the same state. So nothing is restored, and no handler
runs. Topics that match a pattern are added by the owner.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import count
from typing import Any

from msgspec import Struct

from snapreplay.app.app import App
from snapreplay.app.ways import app_name
from snapreplay.counted import counted_are
from snapreplay.errors import StopError, UsageError
from snapreplay.service.config.settings import Settings
from snapreplay.service.core import refusals
from snapreplay.service.core.input_change import Added, InputChange
from snapreplay.service.core.kafka_errors import CommitInDoubt, Fenced
from snapreplay.service.core.owners import Superseded
from snapreplay.service.core.refusals import LogCut
from snapreplay.service.core.search import FoundIncrement
from snapreplay.service.core.witness import IncrementsBehind
from snapreplay.service.decisions.before_init import place_ms
from snapreplay.service.ports import Cluster, Reader, TopicPartition
from snapreplay.service.preflight import inspect
from snapreplay.service.publish.owned import commit_change, owned
from snapreplay.service.publish.state import LogWentOn, by_whom
from snapreplay.service.recovery.input_identity import lost_partitions
from snapreplay.service.runtime.context import Context, contexts_of
from snapreplay.service.topics.increments import last_in_log, last_increment, raise_superseded
from snapreplay.service.topics.log_bounds import refuse_lost_end
from snapreplay.service.topics.reading import Patience, reading
from snapreplay.snapshots.format.envelope import RecordKind, decode, kind_of
from snapreplay.snapshots.format.records import Increment

INSTANCE_ID = "snapreplay-inputs"
ATTEMPTS_MAX = 5
"""The most attempts. An owner that waits fences again after longer and longer pauses."""


class NotDrained(StopError):
    """An input to retire has unprocessed records.

    Safe: The partition keeps its inputs. Partitions that the command has printed as changed stay changed, and the same
    command skips them.
    """


class NotRetirable(StopError):
    """The input is still needed, or would be added again at once.

    Safe: The partition keeps its inputs. Partitions that the command has printed as changed stay changed, and the same
    command skips them.
    """


class Wish(Struct, frozen=True):
    """What an operator asks for.

    Attributes:
        start: where a new input begins: "earliest", "latest", "resume" (where it was retired), or a time (ISO 8601 with
            its offset from UTC); "": nothing may be added.
        retire: inputs of a pattern that no longer exist, or are own topics of another app.
        leave_records: also retire inputs that have records left.
    """

    start: str = ""
    retire: Collection[str] = ()
    leave_records: bool = False
    reason: str = ""

    @property
    def start_ms(self) -> int | None:
        """The time, in milliseconds since the epoch; None: it is none. Raises UsageError: it is nothing else either."""
        return place_ms(self.start, ("earliest", "latest", "resume")) if self.start else None


class Proposed(Struct, frozen=True):
    """The change of one partition behind its last increment. It may be empty."""

    context: Context
    wish: Wish
    last: FoundIncrement
    change: InputChange


async def propose(app: App[Any], settings: Settings, cluster: Cluster, wish: Wish) -> list[Proposed]:
    """Find out what would change, in each partition. Only reads.

    Raises:
        NotDrained, NotRetirable: an input cannot be retired.
        NotInitialised, WrongLog: there is no log of this app.
        UsageError, Unreachable: as preflight; or `wish` does not fit.
    """
    _ = wish.start_ms
    view = await inspect(app, settings, cluster)
    contexts = contexts_of(app, settings, cluster, view, INSTANCE_ID)
    found: list[Proposed] = []
    async with reading(cluster) as reader:
        lasts = [await _last(context, reader) for context in contexts]
        for context, last in zip(contexts, lasts, strict=True):
            found.append(Proposed(context, wish, last, await _change(context, reader, wish, last)))
    inputs = {name for each in found for name in each.last.increment.positions}
    for name in wish.retire:
        if name not in inputs:
            raise UsageError(f"topic {name} is not an input", hint=f"name one of {', '.join(sorted(inputs))}")
    return found


async def _last(context: Context, reader: Reader) -> FoundIncrement:
    last = await last_increment(reader, context.increments)
    if last is None:
        raise refusals.no_genesis(context.expected)
    return last


async def carry_out(proposed: Proposed) -> FoundIncrement:
    """Fence, claim, look once more, commit. What a running owner has committed meanwhile is kept. If it takes the
    partition back first, or the commit is not answered, this is tried again.

    Raises:
        LogWentOn: other inputs would be changed than were proposed.
        IncrementsBehind, LogCut: the log has lost its end, and a later batch would hide it.
        Fenced, Superseded, CommitInDoubt: `ATTEMPTS_MAX` times in a row.
        As `propose`; Unreachable: only the log shows what happened.
    """
    for attempt in count(1):
        try:
            return await _carried_out(proposed)
        except (Fenced, Superseded, CommitInDoubt):
            if attempt == ATTEMPTS_MAX:
                raise
    raise AssertionError("the last attempt returned or raised")


async def _carried_out(proposed: Proposed) -> FoundIncrement:
    context = proposed.context
    await _refuse_before_fence(context)
    async with owned(context) as ours:
        last = await ours.last_increment()
        if last is None:
            raise refusals.no_genesis(context.expected)
        await _refuse_lost_end(context, ours.owner_epoch, last)
        async with reading(context.cluster) as reader:
            change = await _change(context, reader, proposed.wish, last)
        if not change and last.increment.changes_inputs:  # an earlier attempt was committed
            return last
        if (change.added.keys(), change.retired.keys()) != (
            proposed.change.added.keys(),
            proposed.change.retired.keys(),
        ):
            raise LogWentOn(
                f"partition {context.partition}: its inputs are now {', '.join(sorted(last.increment.positions))}:"
                " another command has changed them meanwhile. This one changed nothing",
                hint="run the command again",
            )
        reason = proposed.wish.reason or "the app declares these inputs"
        decision = change.decision(context.increments, last, reason, by_whom())
        return await commit_change(context, ours.producer, ours.owner_epoch, last, change, decision)


async def _refuse_before_fence(context: Context) -> None:
    """Refuse a log that has lost its end before anything is fenced: an owner that has the end in memory writes it,
    while it is the last one to fence. A stale leader only looks like a loss, so the log is asked again."""
    patience = Patience()
    while True:
        last = await last_in_log(context)
        if last is None:
            raise refusals.no_genesis(context.expected)
        try:
            return await refuse_lost_end(context, last)
        except (IncrementsBehind, LogCut) as error:
            await patience.ask_all(context.cluster, context.increments, error.increment_offset + 1)
            if patience.is_over:
                if await _is_hidden(context, error.increment_offset):
                    return None  # nothing shows a loss; the fence reports what hides the claim
                raise
        await patience.pause()


async def _is_hidden(context: Context, offset: int) -> bool:
    """Say whether the log has this offset, behind a transaction that is open."""
    cluster, log = context.cluster, context.increments
    async with reading(cluster) as committed, reading(cluster, read_committed=False) as plain:
        stable, whole = await committed.bounds(log), await plain.bounds(log)
    return stable.end_offset <= offset < whole.end_offset


async def _refuse_lost_end(context: Context, owner_epoch: int, last: FoundIncrement) -> None:
    """Refuse to append to a log that has lost its end: the increment would have the number of a lost batch."""
    try:
        await refuse_lost_end(context, last)
    except (IncrementsBehind, LogCut) as error:
        await raise_superseded(context, owner_epoch, error)
        raise


async def _change(context: Context, reader: Reader, wish: Wish, last: FoundIncrement) -> InputChange:
    expected, increment = context.expected, last.increment
    wrong = refusals.whose_log(expected, last)
    if wrong is not None:
        raise wrong
    new, retired = expected.new_inputs(increment.positions), expected.retired_inputs(increment.positions)
    retired += [name for name in wish.retire if _is_retirable(context, increment, name) and name not in retired]
    if new and not wish.start:
        raise UsageError(
            f"new input {new[0]} needs a place to begin",
            hint="give `--from earliest`, `--from latest`, `--from resume` (where it was retired) or a time",
        )
    ids = await context.cluster.topic_ids((*new, *retired))
    for name in await lost_partitions(context, retired):
        ids.pop(name, None)
    added = {name: await _begin(context, reader, name, wish, increment, ids.get(name, "")) for name in new}
    left = {name: await _end(context, reader, name, wish, increment, ids.get(name)) for name in retired}
    lean = await _batch_without_changes(context, reader, last, retired) if retired else None
    if lean is not None:
        batch, topic = lean
        raise NotRetirable(
            f"partition {context.partition}: batch {batch} can be restored only by a replay of {topic}",
            hint="start the previous version, stop it gracefully (it writes a snapshot), and run the command again",
            topic=topic,
        )
    if not new and len(retired) == len(increment.positions):
        raise NotRetirable(
            f"partition {context.partition} would have no input left", hint="add another input with the same command"
        )
    topic_ids = {name: each for name, each in ids.items() if name in added and each}
    return InputChange(added, left, topic_ids, [name for name in left if name in ids])


async def _batch_without_changes(
    context: Context, reader: Reader, last: FoundIncrement, topics: Collection[str]
) -> tuple[int, str] | None:
    """Return a batch after the newest snapshot that only a replay of one of these topics restores, and the topic."""
    pointers = last.increment.pointers
    begin = pointers[0].increment_offset + 1 if pointers else (await reader.bounds(context.increments)).start_offset
    async for records in reader.read(context.increments, begin, last.offset + 1):
        for value in (record.value or b"" for record in records):
            entry = decode(value) if kind_of(value) is RecordKind.INCREMENT else None
            if not isinstance(entry, Increment) or entry.changes is not None:
                continue
            needed = next((part.topic for part in entry.ranges if part.topic in topics and part.record_count), None)
            if needed is not None:
                return entry.batch, needed
    return None


def _is_retirable(context: Context, increment: Increment, name: str) -> bool:
    """Say whether the input is there to be retired, or raise NotRetirable: the app would have it again at once."""
    if name in context.app.input_names or name in context.view.matched:
        raise NotRetirable(
            f"input {name} exists, and the app declares it: it would be added again at once",
            hint="remove it from the app's inputs; or, if it matches a pattern, delete the topic or narrow the pattern",
        )
    return name in increment.positions


async def _begin(context: Context, reader: Reader, name: str, wish: Wish, increment: Increment, topic_id: str) -> Added:
    place, start_ms = TopicPartition(name, context.partition), wish.start_ms
    if wish.start == "resume":
        return _resumed(context, name, increment, topic_id)
    bounds = await reader.bounds(place)
    position = bounds.end_offset if wish.start == "latest" else bounds.start_offset
    if start_ms is not None:
        position = await reader.first_at(place, start_ms)
    batch = await reader.batch_below(place, position) if position > bounds.start_offset else None
    below = batch.anchor if batch is not None else None
    before = increment.retired_inputs.get(name)
    again = before is not None and before.position > position
    how = f"; records up to offset {before.position} were processed before it was retired" if before and again else ""
    return Added(position, below, how=how)


def _resumed(context: Context, name: str, increment: Increment, topic_id: str) -> Added:
    before = increment.retired_inputs.get(name)
    if before is None:
        raise UsageError(
            f"partition {context.partition}: the log does not show that {name} was an input before",
            hint="give `--from earliest` or `--from latest`",
        )
    if before.topic_id != topic_id:
        raise UsageError(
            f"topic {name} was created again since it was retired", hint="`--from earliest` reads it from its start"
        )
    return Added.again(before)


async def _end(
    context: Context, reader: Reader, name: str, wish: Wish, increment: Increment, topic_id: str | None
) -> str:
    """Say where an input ends, or raise NotDrained: records are left. `topic_id`: None if there is no such topic."""
    position = increment.positions[name]
    if topic_id is None:
        return f"at offset {position}; the topic does not exist"
    place = TopicPartition(name, context.partition)
    async with reading(context.cluster, read_committed=False) as plain:  # what is open may be committed later
        start_offset, end_offset = await plain.bounds(place)
    left = "it was created again" if topic_id != increment.topic_ids.get(name, "") else ""
    if not start_offset <= position <= end_offset:
        left = left or f"its log goes from offset {start_offset} to {end_offset}"
    left = left or await _records_left(reader, place, position, end_offset)
    if not left:
        return f"at offset {position}, where it ends"
    if wish.leave_records:
        return f"at offset {position}; {left}: the rest, up to offset {end_offset}, is never processed"
    raise NotDrained(
        f"input {place} is not processed to its end: it was read up to offset {position}, and {left}",
        hint="stop the producers and let the previous version process the rest; or, to skip the rest permanently,"
        f" `snapreplay inputs {app_name(context.app)} --leave-records`",
        topic=name,
        position=position,
        end_offset=end_offset,
    )


async def _records_left(reader: Reader, place: TopicPartition, position: int, end_offset: int) -> str:
    """Say what is left up to the end; "" if only markers and aborted records are."""
    stable = (await reader.bounds(place)).end_offset if position < end_offset else end_offset
    if stable < end_offset:
        return f"an open transaction holds back offsets {stable} to {end_offset}"
    left = 0
    if position == stable:
        return ""
    async for records in reader.read(place, position, stable):
        left += len(records)
    return f"{counted_are(left, 'record')} left up to offset {end_offset}" if left else ""
