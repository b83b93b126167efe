"""The `init` of an app: the beginning of every partition's chain. Nothing else ever takes an empty log for a new app.

It is batch 0 with the empty state; or, with the state of another app, an increment that begins the chain with it.
"""

from __future__ import annotations

from typing import Any

from snapreplay.app.app import App
from snapreplay.app.ways import app_name, new_app
from snapreplay.errors import StopError, UsageError
from snapreplay.service.clock import wall_ms
from snapreplay.service.config.settings import Settings
from snapreplay.service.core.chain import genesis_increment
from snapreplay.service.core.lineage import Fencer
from snapreplay.service.core.search import FoundIncrement
from snapreplay.service.decisions.before_init import StartFrom, check_start, fenced_before, holds_ours, start_offsets
from snapreplay.service.decisions.state_import import STATE_OF, BeginAt, check_source, takeover_of
from snapreplay.service.ports import Cluster
from snapreplay.service.preflight import inspect
from snapreplay.service.publish.owned import owned
from snapreplay.service.publish.state import publish
from snapreplay.service.runtime.context import Context, contexts_of
from snapreplay.service.topics.increments import last_increment
from snapreplay.service.topics.reading import holds_records, reading
from snapreplay.service.topics.savepoint_names import with_savepoints
from snapreplay.snapshots.format.records import Genesis


class PartitionLost(StopError):
    """Some partitions have processed records, but another one has no increment at all.

    Safe: Nothing was written. Do not stop any process of the app: one may have the state of the lost partition in
    memory, and will write it.
    """


class OwnedBefore(StopError):
    """A partition has no increment, but it has or had an owner: the state may be only in the memory of that owner."""


class AlreadyBegun(UsageError):
    """The partition already has a state, which is never replaced by that of another app.

    Safe: Nothing was written, and the partition keeps its state. `snapreplay delete` discards that state: use it only
    if the hint says so.
    """


async def init_app(
    app: App[Any], settings: Settings, cluster: Cluster, start: StartFrom = "earliest", *, state_is_lost: bool = False
) -> list[str]:
    """Write the genesis of every partition that has none; repeating it changes nothing.

    Args:
        state_is_lost: also of an app that has run, if none of its processes is a member of its group.

    Returns:
        One line per partition, then one per output topic that may get the same records a second time.

    Raises:
        PartitionLost: a partition is empty although others are past their genesis.
        OwnedBefore: the app runs, or has run and its state is not said to be lost.
        StopError: increments are gone but snapshots exist.
        UsageError, Unreachable: as preflight; or `start` is not a `StartFrom`.
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
    """Begin every partition with the state of app `source_id` after its last committed batch, proven. Nothing is
    written before all of them can. Returns one line per partition.

    Raises:
        AlreadyBegun: a partition has a chain, perhaps of an interrupted `init` like this.
        NoSuchState, CannotTakeOver, SchemaDiffers: nothing was written.
        OwnedBefore, StopError, UsageError, Unreachable: as `init_app`.
        LogWentOn, Superseded, CommitInDoubt: another process is at work on this app id.
    """
    contexts = contexts_of(app, settings, cluster, await inspect(app, settings, cluster))
    await check_source(source_id, app, cluster, len(contexts))
    existing = [await _last(context) for context in contexts]
    for context, found in zip(contexts, existing, strict=True):
        if found is not None:
            raise AlreadyBegun(
                f"partition {context.partition} of app {app.app_id} is already initialised, at batch"
                f" {found.increment.batch}: its state is not replaced",
                hint=f"begin under another app id: {new_app(f' --state-of {source_id}')}; or {_begin_again(app)}",
            )
    await _refuse_owned(contexts, existing, state_is_lost=state_is_lost)
    for context in contexts:
        await takeover_of(context, source_id, begin)
    return [await _take_over(context, source_id, begin) for context in contexts]


def _begin_again(app: App[Any]) -> str:
    return (
        f"if only an `init --state-of` was interrupted, run `snapreplay delete {app.app_id}`, `snapreplay topics ensure"
        f" {app_name(app)}`, then the same `init` with `--state-is-lost`"
    )


async def _filled_outputs(app: App[Any], cluster: Cluster) -> list[str]:
    """Name outputs that already hold records: of another app, or of this one before its topics were lost."""
    facts = await cluster.topics([each.name for each in app.outputs if each.name not in app.internal_names])
    async with reading(cluster) as reader:
        return [
            f"output {each.name} already holds records: if they come from this input, they are written a second time"
            for each in facts.values()
            if await holds_records(reader, each)
        ]


async def _take_over(context: Context, source_id: str, begin: BeginAt) -> str:
    async with reading(context.cluster) as reader:
        end_offset = (await reader.bounds(context.increments)).end_offset
    taken = await takeover_of(context, source_id, begin)
    published = await publish(context, taken.store, taken.before, taken.decision, end_offset, begins=True)
    return f"partition {context.partition}: {taken.decision['decided']}; snapshot {published.snapshot_id}"


def _already(context: Context, found: FoundIncrement) -> str:
    return f"partition {context.partition}: already initialised, at batch {found.increment.batch}"


async def _refuse_lost(contexts: list[Context], existing: list[FoundIncrement | None]) -> None:
    """Refuse to begin where the log is lost: when an `init` was interrupted, no partition has processed anything."""
    ahead = [(c, f) for c, f in zip(contexts, existing, strict=True) if f is not None and f.increment.batch > 0]
    empty = [c for c, f in zip(contexts, existing, strict=True) if f is None]
    if not ahead or not empty:
        return
    (ran, found), lost = ahead[0], empty[0]
    may_be_init = all(STATE_OF in (each.increment.decision or {}) for _, each in ahead)
    error = PartitionLost(
        f"{lost.increments} holds no increment, but partition {ran.partition} is at batch"
        f" {found.increment.batch}: the increments of partition {lost.partition} were lost",
        hint="restore the increments topic from a backup or mirror; or `snapreplay run"
        f" {app_name(lost.app)}`: its hint says what can be accepted; or start over under a new app id: {new_app()}"
        + (f"; or {_begin_again(lost.app)}" if may_be_init else ""),
        partition=lost.partition,
    )
    await with_savepoints(error, lost.app, lost.cluster)
    raise error


async def _refuse_owned(contexts: list[Context], existing: list[FoundIncrement | None], *, state_is_lost: bool) -> None:
    """Refuse to fence an owner that holds the only copy of a state. If the log has no claim, and the coordinator knows
    more than a first fence, the log is not what the owner wrote."""
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
        "restore the increments topic from a backup or mirror",
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
        found = await last_increment(reader, context.increments)
        if found is not None:
            return found
        lost = await holds_ours(reader, context.snapshots, await reader.bounds(context.snapshots))
    if lost:
        error = StopError(
            f"{context.increments} holds no increment, but"
            f" {context.snapshots} holds snapshots: the increments were lost",
            hint="restore the increments topic from a backup or mirror; or"
            f" `snapreplay run {app_name(context.app)}`: its hint has the command to accept the newest snapshot; or"
            f" start again under a new app id: {new_app()}; or {_begin_again(context.app)}",
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
