"""The first start of an app: a process waits for the genesis, without fencing, claiming or joining the group."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args

from snapreplay.app.app import App
from snapreplay.app.ways import app_name
from snapreplay.errors import DamagedError, NotBegun, ReleaseError, StopError, UsageError
from snapreplay.service.config.settings import Settings
from snapreplay.service.core.kafka_errors import CommitInDoubt, OffsetTrimmed
from snapreplay.service.core.lineage import Fencer, PartitionTraces, awaits_genesis
from snapreplay.service.core.refusals import wrong_log
from snapreplay.service.decisions.before_init import StartFrom, fenced_before, never_owned
from snapreplay.service.decisions.init import init_app
from snapreplay.service.decisions.state_import import STATE_OF
from snapreplay.service.ports import Cluster
from snapreplay.service.preflight import OwnTopicsMissing, inspect
from snapreplay.service.runtime.context import ClusterView, Context, contexts_of
from snapreplay.service.topics.increments import last_increment
from snapreplay.service.topics.reading import reading
from snapreplay.service.topics.requirements import TopicsIncomplete, ensure_topics
from snapreplay.service.topics.savepoint_names import with_savepoints

log = logging.getLogger("snapreplay")

LOOK_SECONDS = 1.0
LOOKS_AT_HALF = 5

FirstStart = Literal["wait", "refuse", "earliest", "latest"]
"""What a process does for an app without a genesis."""


def check_first_start(first_start: object) -> None:
    """Raise UsageError if it is not a `FirstStart`. A typo must not decide where an app begins."""
    if first_start not in get_args(FirstStart):
        raise UsageError(
            f"first_start={first_start!r} is not a valid value",
            hint=f"use one of {', '.join(map(repr, get_args(FirstStart)))}",
        )


async def begun(
    app: App[Any], settings: Settings, cluster: Cluster, first_start: FirstStart, on_waiting: Callable[[NotBegun], None]
) -> ClusterView:
    """Wait until the app has begun, or begin it; returns the inspected cluster.

    Args:
        first_start: for a new app: "wait" for `init`, "refuse", or begin it in all inputs at "earliest" or "latest".
        on_waiting: hears what is waited for, perhaps more than once.

    Raises:
        NotBegun: the app is new, and `first_start` is "refuse".
        WrongLog: the log belongs to another app of this id, or to another cluster.
        UsageError, StopError, AccessError: as `inspect`.
        Unreachable: ask again later.
    """
    patience = 0  # of the moment between the creation of two topics
    while True:
        last: Context | None = None
        try:
            view = await inspect(app, settings, cluster)
            last = contexts_of(app, settings, cluster, view)[-1]
            awaited = await awaited_genesis(app, settings, cluster, view)
            if awaited is None:
                return view
        except OwnTopicsMissing as missing:
            awaited, patience = await awaited_topics(app, cluster, missing), LOOKS_AT_HALF
            if awaited is None:
                if missing.pair_is_missing:
                    await with_savepoints(missing, app, cluster, own_are_gone=True)
                raise
        except TopicsIncomplete as incomplete:
            if patience == 0:
                await with_savepoints(incomplete, app, cluster)
                raise
            patience -= 1
            await asyncio.sleep(LOOK_SECONDS)
            continue
        await with_savepoints(awaited, app, cluster, own_are_gone=True)  # such an app has run, and lost its topics
        if first_start == "refuse":
            raise awaited
        if first_start != "wait":
            await _begin(app, settings, cluster, first_start)
            continue
        on_waiting(awaited)
        await (_until_begun(last) if last is not None else asyncio.sleep(LOOK_SECONDS))


async def awaited_genesis(app: App[Any], settings: Settings, cluster: Cluster, view: ClusterView) -> NotBegun | None:
    """Return what the app waits for; None: it has begun, or ran before. The last partition is asked first, because
    `init` begins it last."""
    contexts = contexts_of(app, settings, cluster, view)
    last = await _found(contexts[-1])
    if last.has_increment:
        return None
    found = [*[await _found(context) for context in contexts[:-1]], last]
    if not awaits_genesis(found) or await cluster.member_count(app.app_id):
        return None  # a process that waits is no member: one with members has run
    return _not_begun(app, _how_far(found))


def _how_far(found: Sequence[PartitionTraces]) -> str:
    begun = sum(each.has_increment for each in found)
    if begun or any(each.fenced_by is not Fencer.NONE for each in found):
        return f"`init` is running or was interrupted; partitions with a genesis: {begun} of {len(found)}"
    return "its topics hold no genesis"


async def _until_begun(last: Context) -> None:
    """Wait until the last partition has its genesis. What the others hold meanwhile is the business of `init`."""
    while not (await _found(last, asks_coordinator=False)).has_increment:  # noqa: ASYNC110 - it is in the cluster
        await asyncio.sleep(LOOK_SECONDS)


async def awaited_topics(app: App[Any], cluster: Cluster, missing: OwnTopicsMissing) -> NotBegun | None:
    """Return the same for an app without its increments and snapshots topics."""
    if not missing.pair_is_missing or not await never_owned(cluster, app, missing.partition_count):
        return None
    if await cluster.member_count(app.app_id):
        return None
    return _not_begun(app, missing.message, f"`snapreplay topics ensure {app_name(app)}`, then ")


async def _begin(app: App[Any], settings: Settings, cluster: Cluster, start: StartFrom) -> None:
    """Begin as other processes of the app may do now: who is fenced by them looks again."""
    try:
        lines = await ensure_topics(app, settings, cluster)
        lines += await init_app(app, settings, cluster, start)
    except (ReleaseError, CommitInDoubt) as error:
        cause = "another process initialises it, too" if isinstance(error, ReleaseError) else "it is tried again"
        log.warning("app %r has not begun yet, %s: %s", app.app_id, cause, error)
        await asyncio.sleep(LOOK_SECONDS)
        return
    for line in lines:
        log.info("%s", line)


def _not_begun(app: App[Any], why: str, before: str = "") -> NotBegun:
    return NotBegun(
        f"app {app.app_id!r} has not begun: {why}",
        hint=f"{before}`snapreplay init {app_name(app)}`: a waiting process then starts by itself. If the app ran"
        " before, its topics were lost: restore them instead, and do not initialise it again",
    )


async def _found(context: Context, *, asks_coordinator: bool = True) -> PartitionTraces:
    """Look at a partition; what cannot be read was written by somebody: a recovery says what is wrong with it."""
    async with reading(context.cluster) as reader:
        bounds = await reader.bounds(context.increments)
        try:
            last = await last_increment(reader, context.increments, bounds)
        except (DamagedError, OffsetTrimmed, StopError):
            return PartitionTraces(has_increment=True)
        if last is not None:
            if (wrong := wrong_log(context.expected, last)) is not None:
                raise wrong  # the process must not take partitions away from the app whose log it is
            begins = last.increment.batch == 0 or STATE_OF in (last.increment.decision or {})
            is_last = last.offset == bounds.end_offset - 2  # the marker is behind it
            return PartitionTraces(True, is_at_beginning=begins, is_untouched=begins and is_last)
        snapshots = await reader.bounds(context.snapshots)
    return PartitionTraces(
        is_empty=bounds.start_offset == snapshots.end_offset == 0,
        fenced_by=await fenced_before(context) if asks_coordinator else Fencer.NONE,
    )
