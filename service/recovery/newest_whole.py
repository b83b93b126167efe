"""The newest full snapshot that is whole, pointed to or not: what pointed to it may be what was lost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from snapreplay.errors import RebuildError
from snapreplay.service.ports import Reader
from snapreplay.service.runtime.context import Context
from snapreplay.service.topics.manifests import newest_first
from snapreplay.service.topics.reading import reading
from snapreplay.service.topics.snapshots import Sink, load_state
from snapreplay.snapshots.format.records import Manifest
from snapreplay.state.contract import ShardSlice


@dataclass
class Nowhere:
    """Takes a snapshot in and keeps nothing: everything of it is read and checked."""

    stream_time_ms: int = field(default=-1)

    def clear(self, shard_count: int = 0) -> None:
        """There is nothing."""

    def load(self, slices: Iterable[ShardSlice], store: str) -> None:
        """Their sums were added up on the way."""

    def loaded(self) -> None:
        """There is still nothing."""


async def newest_whole(context: Context, store: Sink) -> tuple[Manifest | None, tuple[str, ...]]:
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
        async for offset, manifest in newest_first(reader, context.snapshots, bounds):
            reason = await _unusable(context, reader, manifest, store)
            if reason is None:
                return manifest, tuple(passed_over)
            passed_over.append(
                f"snapshot {manifest.snapshot_id} (manifest at offset {offset}) is skipped: {reason}"
            )
    return None, tuple(passed_over)


async def _unusable(
    context: Context, reader: Reader, manifest: Manifest, store: Sink
) -> str | None:
    """Why not, or None: then the store holds its state."""
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
