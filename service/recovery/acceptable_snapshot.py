"""The snapshot that `accept` can begin with: the newest whole one, pointed to or not, as the pointers may be lost.

A recovery loads only what the last increment points to: `snapshots/plan.py`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable

from snapreplay.errors import RebuildError
from snapreplay.service.ports import Reader
from snapreplay.service.runtime.context import Context
from snapreplay.service.topics.manifests import newest_first
from snapreplay.service.topics.reading import reading
from snapreplay.service.topics.snapshots import load_state
from snapreplay.snapshots.format.records import Manifest
from snapreplay.snapshots.log.loading import Sink


async def newest_acceptable_snapshot(
    context: Context, store: Sink
) -> tuple[Manifest | None, tuple[str, ...]]:
    """Load the newest whole snapshot of the snapshots topic into `store`.

    Returns:
        Its manifest, None when there is none; and why each newer one was passed over.

    Raises:
        SchemaDiffers: the newest one is of another schema_version; an older one would be another state.
        Unreachable, ReadStalled: it could not be found out.
    """
    passed_over: list[str] = []
    async with reading(context.cluster, read_committed=False, large=True) as reader:
        bounds = await reader.bounds(context.snapshots)
        found = newest_first(reader, context.snapshots, bounds)
        async for offset, manifest in _newest_state_first(found, context.increments.topic):
            reason = await _unusable(context, reader, manifest, store)
            if reason is None:
                return manifest, tuple(passed_over)
            passed_over.append(
                f"snapshot {manifest.snapshot_id} (manifest at offset {offset}) is skipped: {reason}"
            )
    return None, tuple(passed_over)


async def _newest_state_first(
    found: AsyncIterator[tuple[int, Manifest]], increments: str
) -> AsyncIterator[tuple[int, Manifest]]:
    """Yield the newest state first: a job may have written its proposal behind an owner's snapshot of a later
    batch. So a proposal comes directly before the first owner's snapshot, from the end, than which its state is
    newer."""
    held: list[tuple[int, Manifest]] = []
    async for each in found:
        if each[1].proposed_by is not None:
            held.append(each)
            continue
        newer = [one for one in held if _is_newer(one[1], each[1], increments)]
        held = [one for one in held if one not in newer]
        for one in (*_by_state(newer), each):
            yield one
    for one in _by_state(held):
        yield one


def _is_newer(proposal: Manifest, owners: Manifest, increments: str) -> bool:
    """Compare; a proposal of another increments topic is older: an owner begins in a new topic with a snapshot of
    its own."""
    same_log = proposal.topic_ids.get(increments) == owners.topic_ids.get(increments)
    return same_log and _place(proposal) > _place(owners)


def _by_state(found: Iterable[tuple[int, Manifest]]) -> list[tuple[int, Manifest]]:
    return sorted(found, key=lambda one: _place(one[1]), reverse=True)


def _place(manifest: Manifest) -> tuple[int, int]:
    """Return what rises in a log, also over a decision; the epoch of the next owner rises over a cut, too."""
    return manifest.owner_epoch, manifest.increment_offset


async def _unusable(
    context: Context, reader: Reader, manifest: Manifest, store: Sink
) -> str | None:
    """Say why it is unusable, or None: then the store holds its state."""
    expected, genesis = context.expected, manifest.genesis
    said = (manifest.origin.app_id, genesis.cluster_id, genesis.partition_count)
    ours = (expected.app_id, expected.cluster_id, expected.partition_count)
    if said != ours or set(genesis.start_offsets) != expected.inputs:
        return f"its app, cluster and partition count are {said}, its inputs {sorted(genesis.start_offsets)}"
    try:
        await load_state(
            reader,
            context.snapshots,
            manifest,
            context.app.schema_version,
            store,
            _no_report,
            verify_sums=manifest.proposed_by is not None,
        )
    except RebuildError as error:
        return error.message
    return None


def _no_report(done: int, total: int) -> None:
    del done, total  # nobody watches
