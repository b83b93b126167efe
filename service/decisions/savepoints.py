"""Keeps the state of an app under a name, as a savepoint, until it is dropped.

A savepoint is a chain that is never continued, under an app id of its own (`names.savepoint_id`): in each partition
what `init --state-of` writes. So every reader of an app's topics can read it, and no owner or trimming touches it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from msgspec.structs import replace

from snapreplay.app import names
from snapreplay.app.app import APP_ID_MAX, App
from snapreplay.app.topic import LEGAL_NAME
from snapreplay.app.ways import MODULE, app_name
from snapreplay.errors import DamagedError, SnapreplayError, StopError, UsageError
from snapreplay.service.clock import time_of
from snapreplay.service.config.settings import Settings
from snapreplay.service.control.kafka_reads import SavepointList, SavepointPart, SavepointShown, SavepointsUnread
from snapreplay.service.control.operations import CreateSavepoint, OnDone, OperationState, SavepointCommand
from snapreplay.service.core.search import FoundIncrement
from snapreplay.service.decisions.state_import import STATE_BATCH, CannotTakeOver, named, takeover_of
from snapreplay.service.ports import Cluster, NewTopic, Reader, TopicFacts, TopicPartition
from snapreplay.service.preflight import inspect
from snapreplay.service.publish.state import publish
from snapreplay.service.recovery.examine import Examiner
from snapreplay.service.runtime.context import Context, contexts_of
from snapreplay.service.runtime.cooperative import throttled
from snapreplay.service.runtime.tasks import cancel_and_wait
from snapreplay.service.topics.increments import last_in_log, last_increment
from snapreplay.service.topics.reading import reading
from snapreplay.service.topics.requirements import KEPT_FOR_EVER
from snapreplay.service.topics.savepoint_names import names_of
from snapreplay.service.topics.snapshots import UNUSABLE, load_manifest, load_state
from snapreplay.snapshots.format.records import NO_REASON, Increment
from snapreplay.snapshots.log.loading import NullSink
from snapreplay.snapshots.plan import chain_began_at
from snapreplay.state.composite import Store

KEPT_AS = "savepoint"
"""The key of a decision that names the savepoint which it made."""

_OF_THE_APP = ("max.message.bytes", "min.insync.replicas")


class Deleting(Cluster, Protocol):
    """A cluster whose topics and groups may be deleted. Commands are given one, and `Savepoints`."""

    async def delete_topics(self, names: Sequence[str]) -> None:
        """Delete those that exist, and wait until no broker knows them.

        Raises:
            NotAuthorized: Delete on a topic is needed.
            StopError: the cluster deletes no topics.
        """

    async def delete_group(self, group_id: str) -> None:
        """Delete a consumer group with its committed offsets, if it exists.

        Raises:
            GroupInUse: it has members.
            NotAuthorized: Delete on the group is needed.
        """


class NoSuchSavepoint(UsageError):
    """The app has no savepoint of this name."""


class SavepointExists(UsageError):
    """The app has a savepoint of this name, or part of an interrupted one.

    Safe: The existing savepoint was not changed.
    """


class SavepointUnusable(StopError):
    """Parts of the savepoint are missing, damaged, or from a state that was discarded, so no app can begin with it.

    Safe: No app was changed, and the app continues.
    """


async def create(
    app: App[Any],
    settings: Settings,
    cluster: Cluster,
    name: str,
    reason: str = "",
    *,
    by: str = "",
    kept: Callable[[int], object] = lambda _: None,
) -> SavepointShown:
    """Keep the state of every partition after its last committed batch; the app may run, and does not notice.

    Args:
        by: who asked; "": the user of this process.
        kept: called with the number of each partition that is kept.

    Returns:
        The savepoint, read back and proven.

    Raises:
        SavepointExists: there is one of this name, or a part of an interrupted one.
        CannotTakeOver, StopError, OlderState: a recovery would not come to the state of a partition either, or this
            version of the app upgrades it first.
        SavepointUnusable: it cannot be read back; or the app has given up its state meanwhile.
        UsageError, Unreachable: as preflight.
    """
    _refuse_name(app.app_id, name)
    sources = contexts_of(app, settings, cluster, await inspect(app, settings, cluster))
    chains = await _chains(sources)
    contexts = await _saved(sources, names.savepoint_id(app.app_id, name))
    if any([await last_in_log(each) is not None for each in contexts]):
        raise SavepointExists(
            f"app {app.app_id} has a savepoint {name} already",
            hint=f"use another name; or first `snapreplay savepoint drop {app_name(app)} {name}`",
        )
    said = {"reason": reason.strip() or NO_REASON} | ({"by": by} if by else {})
    for context in contexts:
        # The last part makes the savepoint usable, and the app may have been set back meanwhile.
        if context is contexts[-1] and await _chains(sources) != chains:
            raise SavepointUnusable(
                f"app {app.app_id} was reset, patched or upgraded while savepoint {name} was created",
                hint=f"`snapreplay savepoint drop {app_name(app)} {name}`, then create it again",
            )
        await _keep(context, app.app_id, name, said)
        kept(context.partition)
    return await usable(app.app_id, name, cluster, prove=True)


def _refuse_name(app_id: str, name: str) -> None:
    longest = APP_ID_MAX - len(names.savepoint_id(app_id, ""))
    if not LEGAL_NAME.fullmatch(name) or len(name) > longest:
        raise UsageError(
            f"savepoint name {name!r} cannot be part of a topic name",
            hint=f'use 1 to {longest} letters, digits, ".", "_" or "-"',
        )


async def _chains(contexts: list[Context]) -> list[str]:
    """Return the chain of each partition, or raise CannotTakeOver: there is no state."""
    chains = []
    for context in contexts:
        last = await last_in_log(context)
        if last is None:
            raise CannotTakeOver(
                f"{context.increments} holds no increment: there is no state to save",
                hint=f"`snapreplay init {app_name(context.app)}` begins a new app, or says what was lost",
            )
        chains.append(_chain_of(context, last))
    return chains


def _chain_of(source: Context, last: FoundIncrement) -> str:
    """Name the chain that `last` is in, by the topic and the offset at which it begins."""
    topic_id = last.increment.topic_ids.get(source.increments.topic, "")
    return f"{topic_id}:{chain_began_at(last.increment, last.offset)}"


async def _saved(sources: list[Context], saved_id: str) -> list[Context]:
    """Return the partitions of the savepoint. Its topics are created if they are missing, as safe as those of the
    app."""
    source = sources[0]
    cluster, own, pair = source.cluster, names.own_pair(source.app.app_id), names.own_pair(saved_id)
    facts = await cluster.topics([*own, *pair])
    missing = [_like(facts[each], new) for each, new in zip(own, pair, strict=True) if new not in facts]
    await cluster.create_topics(missing)
    ids = {name: each for name, each in source.view.topic_ids.items() if name not in own}
    view = replace(source.view, topic_ids={**ids, **await cluster.topic_ids(pair)})
    return contexts_of(named(source.app, saved_id), source.settings, cluster, view)


def _like(source: TopicFacts, name: str) -> NewTopic:
    config = {key: source.config[key] for key in _OF_THE_APP if key in source.config}
    return NewTopic(name, source.partition_count, source.replication_factor, KEPT_FOR_EVER | config)


async def _keep(context: Context, app_id: str, name: str, said: dict[str, str]) -> None:
    async with reading(context.cluster) as reader:
        end_offset = (await reader.bounds(context.increments)).end_offset
    taken = await takeover_of(context, app_id, "positions", _restored)
    decision = {
        **taken.decision,
        "problem": f"partition {context.partition} of app {app_id} is saved as savepoint {name}",
        KEPT_AS: name,
        **said,
    }
    await publish(context, taken.store, taken.before, decision, end_offset)  # and wait until everybody can read it


async def _restored(source: Context, store: Store) -> FoundIncrement:
    """Restore the state as a recovery of the app would, by changes or by replay."""
    examiner = Examiner(source, store)
    try:
        return await examiner.restored()
    finally:
        await examiner.close()


async def usable(app_id: str, name: str, cluster: Cluster, *, prove: bool = False) -> SavepointShown:
    """Return a savepoint that something can begin with. Raises NoSuchSavepoint, SavepointUnusable: there is none."""
    found = await find(app_id, name, cluster, prove=prove)
    refuse_unusable(found)
    return found


def refuse_unusable(found: SavepointShown) -> None:
    """Raise SavepointUnusable if a part cannot be used."""
    if found.problems:
        raise SavepointUnusable(
            f"savepoint {found.savepoint} of app {found.app_id} cannot be used: {'; '.join(found.problems)}",
            hint=f"`snapreplay savepoint drop {MODULE} {found.savepoint}`; if the app still has its state, create it"
            " again",
        )


async def find(app_id: str, name: str, cluster: Cluster, *, prove: bool) -> SavepointShown:
    """Find a savepoint, usable or not; `prove`: compare every entry with the digest.

    Raises:
        NoSuchSavepoint: none of its topics exists.
    """
    pair = names.own_pair(names.savepoint_id(app_id, name))
    facts = await cluster.topics(pair)
    if not facts:
        raise await _none(app_id, name, cluster)
    missing = [f"topic {topic} is missing" for topic in pair if topic not in facts]
    parts, decision = list[SavepointPart](), dict[str, str]()
    for partition in range(min(each.partition_count for each in facts.values())):
        log, snapshots = (TopicPartition(topic, partition) for topic in pair)
        if missing:
            parts.append(SavepointPart(partition, problem=missing[0]))
            continue
        increment, problem = await _part(cluster, log, snapshots, prove=prove)
        decision = decision or (increment and increment.decision) or {}
        parts.append(_shown(partition, increment, problem))
    problems = any(each.problem for each in parts)
    return SavepointShown(app_id, name, not problems, decision.get("by"), decision.get("reason"), tuple(parts))


def _shown(partition: int, increment: Increment | None, problem: str | None) -> SavepointPart:
    if increment is None:
        return SavepointPart(partition, problem=problem)
    return SavepointPart(
        partition,
        int((increment.decision or {}).get(STATE_BATCH, 0)),
        increment.digest.count,
        str(increment.digest),
        dict(increment.positions),
        time_of(increment.written_at_ms),
        problem,
    )


async def _none(app_id: str, name: str, cluster: Cluster) -> NoSuchSavepoint:
    known = ", ".join(await names_of(app_id, cluster)) or "none"
    return NoSuchSavepoint(f"app {app_id} has no savepoint {name}; its savepoints: {known}")


async def _part(
    cluster: Cluster, log: TopicPartition, snapshots: TopicPartition, *, prove: bool
) -> tuple[Increment | None, str | None]:
    """Return the increment of a part, and why it cannot be used."""
    increment = None
    try:
        async with reading(cluster) as reader:
            found = await last_increment(reader, log)
        if found is None:
            return None, "it is not saved yet: the savepoint was interrupted"
        increment = found.increment
        async with reading(cluster, read_committed=False, large=True) as reader:
            await _prove(reader, snapshots, increment, whole=prove)
    except UNUSABLE as error:
        return increment, error.message
    return increment, None


async def _prove(reader: Reader, snapshots: TopicPartition, increment: Increment, *, whole: bool) -> None:
    """Read the manifest, and every chunk if the `whole` snapshot is to be proven. Raises one of `UNUSABLE`."""
    manifest = await load_manifest(reader, snapshots, increment.pointers[0])
    if manifest.digest != increment.digest:
        raise DamagedError(f"{snapshots} has digest {manifest.digest}, but the increment has {increment.digest}")
    if whole:
        schema_version = manifest.origin.schema_version
        await load_state(reader, snapshots, manifest, schema_version, NullSink(), lambda _, __: None, verify_sums=True)


async def drop(app_id: str, name: str, cluster: Deleting) -> list[str]:
    """Delete the topics of a savepoint, complete or not, and return them. Raises NoSuchSavepoint: there are none."""
    pair = names.own_pair(names.savepoint_id(app_id, name))
    there = [topic for topic in pair if topic in await cluster.topic_ids(pair)]
    if not there:
        raise await _none(app_id, name, cluster)
    await cluster.delete_topics(there)
    return there


log = logging.getLogger("snapreplay")


class Savepoints:
    """The savepoints of an app."""

    def __init__(self, app: App[Any], settings: Settings, cluster: Deleting) -> None:
        self._app, self._settings, self._cluster = app, settings, cluster
        self._one = asyncio.Lock()  # none is dropped while it is being kept
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._cancelled: set[str] = set()

    async def read(self) -> SavepointList:
        """List them, also those that cannot be used.

        Raises:
            SavepointsUnread: the cluster does not answer, or does not allow it.
        """
        app_id, cluster = self._app.app_id, self._cluster
        try:
            names = await names_of(app_id, cluster)
            return SavepointList(tuple([await find(app_id, name, cluster, prove=False) for name in names]))
        except SnapreplayError as error:
            raise SavepointsUnread(error.message) from error

    def begin(self, operation_id: str, asked: SavepointCommand, dones: Sequence[OnDone]) -> None:
        """Keep a savepoint, or drop it, one after the other; each of `dones` hears of its partition."""
        task = asyncio.get_running_loop().create_task(self._work(operation_id, asked, dones))
        self._tasks[operation_id] = task
        task.add_done_callback(lambda _: self._tasks.pop(operation_id))

    def cancel(self, operation_id: str) -> None:
        """Give up this operation, if it is under way. What is kept already stays until it is dropped."""
        task = self._tasks.get(operation_id)
        if task is not None:
            self._cancelled.add(operation_id)
            task.cancel()

    async def close(self) -> None:
        """Give up what is under way, and wait for its end."""
        for task in tuple(self._tasks.values()):
            await cancel_and_wait(task)

    async def _work(self, operation_id: str, asked: SavepointCommand, dones: Sequence[OnDone]) -> None:
        why = "the process ended first"
        try:
            async with self._one:
                if isinstance(asked, CreateSavepoint):
                    await self._create(asked, dones)
                else:
                    await drop(self._app.app_id, asked.name, self._cluster)
        except SnapreplayError as error:
            why = str(error)
        except Exception as error:  # any error must end the operation, with its text
            log.exception("a savepoint could not be created or dropped")
            why = repr(error)
        else:
            for done in dones:
                done(OperationState.SUCCEEDED, None, "")
        finally:
            is_cancelled = operation_id in self._cancelled
            self._cancelled.discard(operation_id)
            for done in dones:  # those that have not ended
                if is_cancelled:
                    done(OperationState.CANCELLED, None, "it is saved, but not proven")
                done(OperationState.FAILED, None, why)

    async def _create(self, asked: CreateSavepoint, dones: Sequence[OnDone]) -> None:
        def kept(number: int) -> None:
            dones[number](OperationState.RUNNING, None, "saved, but not proven yet")

        with throttled(self._settings.restore.drill_share):
            await create(self._app, self._settings, self._cluster, asked.name, asked.reason, by=asked.by, kept=kept)
