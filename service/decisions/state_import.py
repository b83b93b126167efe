"""The state of another app as the beginning of a new one: `init --state-of`. Only reads. The other app is not fenced
and need not be able to run: its increments and snapshots are enough."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from snapreplay.app import names
from snapreplay.app.app import App
from snapreplay.app.upgrade import upgrading
from snapreplay.counted import counted
from snapreplay.errors import RebuildError, SnapreplayError, StopError, UsageError
from snapreplay.service.core import effects, events
from snapreplay.service.core.chain import ground_increment
from snapreplay.service.core.phase import RestoreMode
from snapreplay.service.core.refusals import recorded_in, schema_differs
from snapreplay.service.core.search import FoundIncrement
from snapreplay.service.decisions.before_init import Places, start_offsets
from snapreplay.service.ports import Cluster, TopicPartition
from snapreplay.service.publish.state import by_whom
from snapreplay.service.recovery.executor import RecoveryExecutor
from snapreplay.service.recovery.input_identity import check_inputs
from snapreplay.service.runtime.context import Context
from snapreplay.service.runtime.cooperative import run_cooperatively
from snapreplay.service.runtime.progress import SILENT
from snapreplay.service.topics.increments import last_increment
from snapreplay.service.topics.log_bounds import read_starts
from snapreplay.service.topics.reading import reading
from snapreplay.service.topics.requirements import is_broadcast
from snapreplay.service.topics.savepoint_names import apps_in
from snapreplay.snapshots.format.records import Genesis, Increment
from snapreplay.snapshots.plan import plan_start
from snapreplay.state.composite import Store
from snapreplay.state.recorded import Recorded
from snapreplay.state.steps import all_of
from snapreplay.state.values import StoredValueUnreadable

BeginAt = Literal["earliest", "latest", "positions"]

STATE_OF, STATE_BATCH = "state_of", "state_batch"
"""The keys of a decision that name the app whose state a new one began with, and its batch."""


class NoSuchState(UsageError):
    """There is no app of this id in the cluster, or its number of partitions differs."""


class CannotTakeOver(StopError):
    """The state exists, but this app cannot start from it.

    Safe: The requested state was only read. Partitions that the command has already written stay as they are, and the
    same command completes the others.
    """


class StateImport(msgspec.Struct, frozen=True):
    """The proven state of one partition. `before` stands for it as if committed; `decision` names its origin."""

    store: Store
    before: Increment
    decision: dict[str, str]


async def check_source(source_id: str, app: App[Any], cluster: Cluster, partitions: int) -> None:
    """Raise NoSuchState if there are no topics of that app, or another number of partitions."""
    if source_id == app.app_id:
        raise NoSuchState(f"--state-of {source_id}: an app cannot begin with its own state")
    own = names.own_pair(source_id)
    facts = await cluster.topics(own)
    for name in own:
        if name not in facts:
            raise NoSuchState(
                f"--state-of {source_id}: there is no topic {name} in this cluster; apps with"
                f" increments here: {await apps_in(cluster)}"
            )
    count = facts[own[0]].partition_count
    if count < partitions:  # with more, its increments say how many it has
        raise _other_count(source_id, app.app_id, count, partitions)


def _other_count(source_id: str, app_id: str, count: int, partitions: int) -> NoSuchState:
    return NoSuchState(
        f"--state-of {source_id}: its state has {counted(count, 'partition')}, but the inputs of {app_id} have"
        f" {partitions}: keys would be in other partitions than their state",
        found=partitions,
        expected=count,
    )


Restore = Callable[[Context, Store], Awaitable[FoundIncrement]]
"""Brings the store to the last committed batch of a partition, proven, and returns its increment."""


async def takeover_of(context: Context, source_id: str, begin: BeginAt, restore: Restore | None = None) -> StateImport:
    """Load the state at the other app's last committed batch and prove it; find out where to resume. `restore`, if not
    given: from a snapshot and by recorded changes only, because this app's handlers are not the other one's.

    Raises:
        CannotTakeOver: that state cannot be had or read, or `begin` is nowhere in the inputs.
        SchemaDiffers, UpgradeFailed: the state is of another schema_version, and this app cannot upgrade it.
        UnknownFields, MeaningChanged: this app would lose fields of that state, or misread values.
    """
    store = context.app.new_store()
    source = replace(context, app=named(context.app, source_id))
    last = await (restore or _load)(source, store)
    increment, app = last.increment, context.app
    recorded = increment.origin.schema_version
    stores = app.upgrades_from(recorded)
    if not stores:
        _check_entries(source, store)
    count = increment.genesis.partition_count
    if count != context.view.partition_count:
        raise _other_count(source_id, context.app.app_id, count, context.view.partition_count)
    if unknown := recorded_in(increment).refuse(app.fields_read(recorded), increment.origin.app_version):
        raise unknown
    digest_before = store.digest
    if stores:
        await run_cooperatively(upgrading(app.upgrades.values(), recorded, store))
    kept = Recorded(increment.fields, increment.layouts).without(stores)
    if begin == "positions":
        places = await _same_positions(context, source, increment)
    else:
        places = await start_offsets(context, context.input_names, begin)
    positions = places.positions
    genesis = Genesis(context.view.cluster_id, context.view.partition_count, positions)
    before = msgspec.structs.replace(
        ground_increment(
            context.origin,
            genesis,
            (store.digest, store.store_digests),
            context.view.topic_ids,
            increment.stream_time_ms,
            msgspec.structs.replace(increment, fields=kept.fields, layouts=kept.layouts),
        ),
        anchors=places.anchors,
        position_anchors=places.below,
        begun_input=increment.begun_input if begin == "positions" else None,
        paused=None,  # it is of the other app
    )
    listed = ", ".join(f"{topic} from offset {offset}" for topic, offset in positions.items())
    proven = f" ({counted(store.digest.count, 'entry')}, digest {store.digest})"
    if stores:
        proven += f", upgraded from schema_version {recorded} to {app.schema_version}, digest before {digest_before}"
    decision = {
        "finding": _finding(source, last),
        "problem": f"{context.app.app_id} is a new app id",
        "decided": f"begins with the state of app {source_id} after its batch {increment.batch}{proven}, {listed}",
        "reason": f"init --state-of {source_id} --from {begin}",
        "by": by_whom(),
        STATE_OF: source_id,
        STATE_BATCH: str(increment.batch),
    }
    return StateImport(store, before, decision)


def named(app: App[Any], app_id: str) -> App[Any]:
    """Return the same program under another id: its topics are those of that app."""
    named = copy.copy(app)
    named.app_id = app_id
    return named


async def _load(source: Context, store: Store) -> FoundIncrement:
    executor = RecoveryExecutor(source, store, SILENT)
    try:
        reader = await executor.follower.reader()
        last = await last_increment(reader, source.increments)
        if last is None:
            raise CannotTakeOver(f"{source.increments} holds no increment: there is no state")
        _check_schema(source, last)
        await _bring_to(source, executor, last)
    except RebuildError as error:
        raise _not_to_be_had(source, error) from error
    else:
        return last
    finally:
        executor.end_load()
        await executor.follower.close_reader()


async def _bring_to(source: Context, executor: RecoveryExecutor, last: FoundIncrement) -> None:
    """Bring the state to `last` by changes only: another app's handlers cannot be replayed here."""
    starts = await read_starts(source, last)
    unusable: dict[str, str] = {}
    refusal: StopError | None = None
    while True:
        try:
            start = plan_start(last.increment, last.offset, starts, unusable)
        except StopError as error:
            raise refusal or _not_to_be_had(source, error) from error
        loaded = await executor.load(effects.Load(start, last))
        if isinstance(loaded, events.StartLoaded):
            break
        unusable[loaded.snapshot_id] = loaded.reason
        refusal = refusal or loaded.refusal
    event = await executor.perform(effects.Advance(loaded.base, last, RestoreMode.CHANGES))
    if isinstance(event, events.ModeUnavailable):
        raise _not_to_be_had(source, event.error)


def _not_to_be_had(source: Context, error: SnapreplayError) -> CannotTakeOver:
    app_id = source.app.app_id
    hint = (
        f"start {app_id} again and stop it gracefully: the snapshot that it writes at its end (snapshot.before_stop) is"
        " enough. If it cannot start, its own hint says why"
    )
    if names.SAVEPOINT in app_id:
        hint = (
            f"begin with another savepoint, or with the app itself: `--state-of {app_id.partition(names.SAVEPOINT)[0]}`"
        )
    return CannotTakeOver(
        f"the state of partition {source.partition} of app {app_id} after its last batch cannot be restored:"
        f" {error.message}",
        hint=hint,
    )


def _check_schema(source: Context, last: FoundIncrement) -> None:
    recorded, now = last.increment.origin.schema_version, source.app.schema_version
    if recorded != now and not source.app.upgrades_from(recorded):
        raise schema_differs(f"the state of app {source.app.app_id} after batch {last.increment.batch}", recorded, now)


def _check_entries(source: Context, store: Store) -> None:
    """Read each key and value as this app's types, which the handlers would do only when they meet them."""
    all_of(store.refusing_pending())
    try:
        for _ in store.checking():
            pass
    except StoredValueUnreadable as error:
        raise CannotTakeOver(
            f"the state of partition {source.partition} of app {source.app.app_id} has other types than this app's:"
            f" {error.message}"
        ) from error


async def _same_positions(context: Context, source: Context, last: Increment) -> Places:
    """Resume where the other app stopped, if the inputs are still the same logs. The owner adds the partitions of
    broadcast tables that it did not read."""
    source_id = source.app.app_id.partition(names.SAVEPOINT)[0]
    own_id, is_savepoint, _ = context.app.app_id.partition(names.SAVEPOINT)
    theirs = sorted(name for name in last.positions if not names.is_internal_topic(source_id, name))
    ours = sorted(name for name in context.input_names if name not in context.app.internal_names)
    hint = "`--from earliest` resumes at the start of each input, `--from latest` at its end"
    if theirs != [name for name in ours if name in theirs or not is_broadcast(name)]:
        raise CannotTakeOver(
            f"--from positions: app {source.app.app_id} has the inputs {', '.join(theirs)}, this one has"
            f" {', '.join(ours)}: offsets of other topics mean nothing here",
            hint=hint,
        )
    try:
        checked = await check_inputs(context, last)
    except StopError as error:
        raise CannotTakeOver(f"--from positions: {error.message}", hint=hint) from error
    internal = last.positions.keys() - set(theirs)
    if not is_savepoint:
        await _refuse_in_flight(context, last, sorted(internal))
    if source_id == own_id:
        return Places(dict(last.positions), dict(checked.anchors), dict(last.anchors))
    begun = await start_offsets(context, context.app.internal_names, "latest")
    kept = {name: at for name, at in last.positions.items() if name not in internal}
    below = {name: anchor for name, anchor in checked.anchors.items() if name not in internal}
    anchors = {name: anchor for name, anchor in last.anchors.items() if name not in internal}
    return Places(kept | begun.positions, below | begun.below, anchors)


async def _refuse_in_flight(context: Context, last: Increment, internal: list[str]) -> None:
    """Raise CannotTakeOver if these internal topics have records behind the positions of the state: it may have sent
    some of them, and others would be sent again."""
    async with reading(context.cluster) as reader:
        for name in internal:
            place, position = TopicPartition(name, context.partition), last.positions[name]
            async for records in reader.read(place, position, (await reader.bounds(place)).end_offset):
                raise CannotTakeOver(
                    f"--from positions: internal topic {place} has records from offset {records[0].offset} on that the"
                    " state has not processed",
                    hint="resume with a state that has processed all of them: let the app run without new records in"
                    " its inputs until `snapreplay lag` shows none, stop it, and use the state that it has then",
                )


def _finding(source: Context, last: FoundIncrement) -> str:
    digest = hashlib.sha256(f"{source.increments} {last.offset}".encode()).hexdigest()
    return f"state-taken-over-{digest[:8]}"
