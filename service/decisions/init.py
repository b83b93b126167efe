"""The `init` of an app: the beginning of every partition's chain. Nothing else ever takes an empty log for a new app.

It is batch 0 with the empty state; or, with the state of another app, an increment that begins the chain with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from snapreplay.app.app import App
from snapreplay.app.ways import app_name, new_app
from snapreplay.errors import StopError, UsageError
from snapreplay.service.clock import wall_ms
from snapreplay.service.config.settings import Settings
from snapreplay.service.core.chain import decided_at, genesis_increment
from snapreplay.service.core.lineage import Fencer
from snapreplay.service.core.search import FoundIncrement
from snapreplay.service.decisions.before_init import StartFrom, check_start, fenced_before, holds_ours, start_offsets
from snapreplay.service.decisions.state_import import (
    STATE_CHAIN,
    STATE_OF,
    BeginAt,
    chain_of,
    check_source,
    named,
    takeover_of,
)
from snapreplay.service.ports import Cluster
from snapreplay.service.preflight import inspect
from snapreplay.service.publish.owned import owned
from snapreplay.service.publish.state import publish
from snapreplay.service.runtime.context import Context, contexts_of
from snapreplay.service.topics.increments import increment_at, last_in_log, last_increment
from snapreplay.service.topics.reading import holds_records, reading
from snapreplay.service.topics.savepoint_names import with_savepoints
from snapreplay.snapshots.format.records import NO_OFFSET, Genesis


class PartitionLost(StopError):
    """Some partitions have processed records, another one holds no increment at all.

    Safe: Nothing was written. Do not stop any process of the app: one may have the state of the lost partition in
    memory, and writes it by itself.
    """


class OwnedBefore(StopError):
    """A log holds no increment, but its partition has or had an owner: the state may be in that owner's memory only."""


class AlreadyBegun(UsageError):
    """The partition already has a state, which is never replaced by that of another app.

    Safe: Nothing was written, and the partition keeps its state. `snapreplay delete` gives that state up: use it only
    where the hint names it.
    """


async def init_app(
    app: App[Any], settings: Settings, cluster: Cluster, start: StartFrom = "earliest", *, state_is_lost: bool = False
) -> list[str]:
    """Write the genesis of every partition that has none; repeating it changes nothing.

    Args:
        state_is_lost: also of an app that has run, as long as none of its processes is a member of its group.

    Returns:
        One line per partition, then one per output topic that may get the same records a second time.

    Raises:
        PartitionLost: a partition is empty although others are past their genesis; nothing was written.
        OwnedBefore: the app runs, or has run and its state is not said to be lost; nothing was written.
        StopError: increments are gone but snapshots exist.
        UsageError: `start` is not a `StartFrom`; or as preflight.
        Unreachable: as preflight.
    """
    check_start(start)
    contexts = contexts_of(app, settings, cluster, await inspect(app, settings, cluster))
    existing = [await _last(context) for context in contexts]
    await _refuse_lost(contexts, existing)
    await _refuse_owned(contexts, existing, state_is_lost=state_is_lost)
    begins = start == "earliest" and None in existing
    filled = await _filled_outputs(app, cluster) if begins else []
    lines = [
        _already(context, found) if found is not None else await _write(context, start)
        for context, found in zip(contexts, existing, strict=True)
    ]
    return [*lines, *filled]


async def init_with_state(
    app: App[Any],
    settings: Settings,
    cluster: Cluster,
    source_id: str,
    begin: BeginAt = "positions",
    *,
    state_is_lost: bool = False,
) -> list[str]:
    """Begin the chain of every partition with the state of app `source_id` after its last committed batch, proven.
    Nothing is written before all of them can; repeating it completes what was interrupted.

    Args:
        state_is_lost: as for `init_app`.

    Returns:
        One line per partition.

    Raises:
        AlreadyBegun: a partition has a chain, and not one that began with that state; or it began with what the other
            app has given up since.
        NoSuchState, CannotTakeOver, SchemaDiffers: nothing was written.
        OwnedBefore: as `init_app`.
        StopError: increments are gone but snapshots exist.
        UsageError, Unreachable: as preflight.
        LogWentOn, Superseded, CommitInDoubt: somebody else is at work on this app id.
    """
    contexts = contexts_of(app, settings, cluster, await inspect(app, settings, cluster))
    await check_source(source_id, app, cluster, len(contexts))
    existing = [await _last(context) for context in contexts]
    await _refuse_owned(contexts, existing, state_is_lost=state_is_lost)
    for context, found in zip(contexts, existing, strict=True):
        if found is None:
            await takeover_of(context, source_id, begin)
            continue
        said = await _begun_with(context, found)
        if said.get(STATE_OF) != source_id:
            raise AlreadyBegun(
                f"partition {context.partition} of app {app.app_id} is already initialised, at batch"
                f" {found.increment.batch}: its state is not replaced",
                hint=f"begin under another app id: {new_app(f' --state-of {source_id}')}",
            )
        if None in existing:
            await _refuse_given_up(context, source_id, said)
    return [
        _already(context, found) if found is not None else await _take_over(context, source_id, begin)
        for context, found in zip(contexts, existing, strict=True)
    ]


async def _filled_outputs(app: App[Any], cluster: Cluster) -> list[str]:
    """Name outputs that already hold records; nobody can tell who wrote them: another app, or this one before its
    topics were lost."""
    facts = await cluster.topics([each.name for each in app.outputs if each.name not in app.internal_names])
    async with reading(cluster) as reader:
        return [
            f"output {each.name} already holds records: if they come from this input, they are written a second time"
            for each in facts.values()
            if await holds_records(reader, each)
        ]


async def _source_of(context: Context, found: FoundIncrement) -> str | None:
    """Return the app with whose state the chain began, as far as its newest decision says so."""
    return (await _begun_with(context, found)).get(STATE_OF)


async def _begun_with(context: Context, found: FoundIncrement) -> Mapping[str, str]:
    """Return the newest decision, if the chain began with it."""
    offset = decided_at(found.increment, found.offset)
    if offset == NO_OFFSET:
        return {}
    async with reading(context.cluster) as reader:
        decided = await increment_at(reader, context.increments, offset)
    return (decided.decision or {}) if decided is not None and decided.begins_anew else {}


async def _refuse_given_up(context: Context, source_id: str, said: Mapping[str, str]) -> None:
    """Raise AlreadyBegun if an interrupted `init` began this partition with a state that the other app has given up
    since: the rest would begin with another one."""
    source = replace(context, app=named(context.app, source_id))
    last, chain = await last_in_log(source), said.get(STATE_CHAIN)
    if last is None or chain in (None, chain_of(source, last)):
        return
    app_id = context.app.app_id
    raise AlreadyBegun(
        f"partition {context.partition} of app {app_id} began with a state that app {source_id} gave up since, or began"
        " anew with: the others would begin with another one",
        hint=f"`snapreplay delete {app_id}`, `snapreplay topics ensure {app_name(context.app)}`, and the same command"
        " with --state-is-lost: all partitions begin with the state of today",
    )


async def _take_over(context: Context, source_id: str, begin: BeginAt) -> str:
    async with reading(context.cluster) as reader:
        end_offset = (await reader.bounds(context.increments)).end_offset
    taken = await takeover_of(context, source_id, begin)
    published = await publish(context, taken.store, taken.before, taken.decision, end_offset, begins=True)
    return f"partition {context.partition}: {taken.decision['decided']}; snapshot {published.snapshot_id}"


def _already(context: Context, found: FoundIncrement) -> str:
    return f"partition {context.partition}: already initialised, at batch {found.increment.batch}"


async def _refuse_lost(contexts: list[Context], existing: list[FoundIncrement | None]) -> None:
    """Refuse to begin where the log is lost: an interrupted `init` leaves partitions without genesis; but then none
    of the others has processed."""
    ahead = [(c, f) for c, f in zip(contexts, existing, strict=True) if f is not None and f.increment.batch > 0]
    empty = [c for c, f in zip(contexts, existing, strict=True) if f is None]
    if not ahead or not empty:
        return
    (ran, found), lost = ahead[0], empty[0]
    source_id = await _source_of(ran, found)
    if source_id is not None:
        raise UsageError(
            f"partition {ran.partition} began with the state of app {source_id}, but partition {lost.partition} is"
            " empty: init was interrupted",
            hint=f"`snapreplay init {app_name(lost.app)} --state-of {source_id}` completes it",
        )
    error = PartitionLost(
        f"{lost.increments} holds no increment, but partition {ran.partition} is at batch"
        f" {found.increment.batch}: the increments of partition {lost.partition} were lost",
        hint="bring the increments topic back from a backup or mirror; or `snapreplay run"
        f" {app_name(lost.app)}`: its hint says what can be accepted; or start over under a new app id: {new_app()}",
        partition=lost.partition,
    )
    await with_savepoints(error, lost.app, lost.cluster)
    raise error


async def _refuse_owned(contexts: list[Context], existing: list[FoundIncrement | None], *, state_is_lost: bool) -> None:
    """Refuse to fence an owner that holds the only copy of a state: it would be cut off from the log.

    Whoever fences claims next. So if the log has no claim, and the coordinator knows more than a first fence, the log
    is not the one that the owner wrote.
    """
    for context, found in zip(contexts, existing, strict=True):
        if found is None and await fenced_before(context) is Fencer.OWNER:
            running = await context.cluster.member_count(context.app.app_id)
            if state_is_lost and not running:
                continue
            error = OwnedBefore(
                f"{context.increments} holds no increment, but partition {context.partition} of app"
                f" {context.app.app_id} " + ("has an owner: init would fence it" if running else "had an owner"),
                hint=_owner_hint(context, running=bool(running)),
                partition=context.partition,
            )
            await with_savepoints(error, context.app, context.cluster)
            raise error


def _owner_hint(context: Context, *, running: bool) -> str:
    ways = [
        ("wait: " if running else "if a process of the app still runs, connect it to the cluster: ")
        + "a process that has the state in memory writes it by itself",
        "bring the increments topic back from a backup or mirror",
        f"start over under a new app id: {new_app()}",
    ]
    stop = "stop all processes of the app and " if running else ""
    ways.append(
        "if no process has the state in memory any more, or the app never ran (two interrupted inits look"
        f" like an owner), {stop}begin with an empty state:"
        f" `snapreplay init {app_name(context.app)} --state-is-lost`"
    )
    return "; or ".join(ways)


async def _last(context: Context) -> FoundIncrement | None:
    """Find the last increment without fencing anybody: a running owner must not notice `init`."""
    async with reading(context.cluster) as reader:
        found = await last_increment(reader, context.increments, await reader.bounds(context.increments))
        if found is not None:
            return found
        lost = await holds_ours(reader, context.snapshots, await reader.bounds(context.snapshots))
    if lost:
        error = StopError(
            f"{context.increments} holds no increment, but"
            f" {context.snapshots} holds snapshots: the increments were lost",
            hint="bring the increments topic back from a backup or mirror; or"
            f" `snapreplay run {app_name(context.app)}`: its hint has the command to accept the newest snapshot; or"
            f" begin anew under a new app id: {new_app()}; or, if only an `init --state-of` was interrupted,"
            f" `snapreplay delete {context.app.app_id}`, `topics ensure`, and the same with --state-is-lost",
        )
        await with_savepoints(error, context.app, context.cluster)
        raise error
    return None


async def _write(context: Context, start: StartFrom) -> str:
    view = context.view
    places = await start_offsets(context, context.input_names, start)
    starts = places.positions
    genesis = Genesis(view.cluster_id, view.partition_count, starts)
    digest = context.app.new_store().digest
    async with owned(context, begins=True) as ours:
        found = await ours.last_increment()
        if found is not None:
            return _already(context, found)
        epoch, now_ms = ours.owner_epoch, wall_ms()
        begun = genesis_increment(context.origin, epoch, genesis, digest, now_ms, view.topic_ids, places.below)
        await ours.give_up_later(begun)
        await ours.commit(begun)
    listed = ", ".join(f"{topic} from offset {offset}" for topic, offset in starts.items())
    return f"partition {context.partition}: initialised, {listed}"
