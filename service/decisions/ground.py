"""The state to go on with once a finding is accepted, and in words what that means."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

import msgspec

from snapreplay.service.core.chain import decided_at, genesis_increment
from snapreplay.service.core.search import windows
from snapreplay.service.decisions.examine import Examiner
from snapreplay.service.decisions.same_input import newest_common
from snapreplay.service.partition.context import Context
from snapreplay.service.partition.findings import Finding, Way
from snapreplay.service.partition.loading import load_manifest, load_state
from snapreplay.service.partition.replay import ReplayFailed
from snapreplay.service.partition.starts import manifest_in
from snapreplay.service.ports import Reader, TopicPartition
from snapreplay.snapshots.errors import RebuildError, StopError
from snapreplay.snapshots.format.records import NO_OFFSET, Increment, Manifest, Pointer
from snapreplay.snapshots.plan import FromSnapshot
from snapreplay.snapshots.state.contract import Store
from snapreplay.snapshots.state.digest import Digest


class NothingToStandOn(StopError):
    """There is no state that could be accepted: no snapshot is whole, or none was ever taken."""


@dataclass(frozen=True)
class Ground:
    """`increment` stands for the accepted state as if it had been committed: batch number, positions, digest. `plan`
    says in sentences what accepting it means."""

    increment: Increment
    plan: tuple[str, ...]


async def ground_of(context: Context, examiner: Examiner, finding: Finding) -> Ground:
    """Bring the examiner's store to the state to go on with.

    Raises:
        NothingToStandOn: nothing can be accepted.
        StopError: the app cannot read what is there.
    """
    match finding.way:
        case Way.SKIP | Way.REREAD:
            return await _input_moved(context, examiner, finding)
        case Way.AS_REPLAYED:
            return await _as_replayed(context, examiner)
        case Way.FROM_SNAPSHOT:
            return await _from_snapshot(context, examiner)


async def _input_moved(context: Context, examiner: Examiner, finding: Finding) -> Ground:
    """The state stays; only where one input goes on is another place."""
    topic = str(finding.error.facts["topic"])
    state = await _present_state(context, examiner)
    position = state.increment.positions[topic]
    anchors = {name: each for name, each in state.increment.anchors.items() if name != topic}
    begin = await _log_start(context, topic)
    if finding.way is Way.SKIP:
        line = (
            f"{topic}: goes on at offset {begin}; offsets {position} to {begin} are never processed"
        )
    else:
        common = await newest_common(context, topic, examiner.last.offset if examiner.last else 0)
        if common is not None:
            begin, anchors[topic] = common.offset + 1, common
            line = (
                f"{topic}: holds the records that were processed up to offset {begin}, behind it others: goes on at"
                f" offset {begin}; what is still the same of offsets {begin} to {position} is processed again"
            )
        else:
            line = (
                f"{topic}: holds none of the records that were processed: is read as a new log from its start, offset"
                f" {begin}; of the old one nothing from offset {position} on was or will be processed"
            )
    moved = msgspec.structs.replace(
        state.increment, positions=state.increment.positions | {topic: begin}, anchors=anchors
    )
    return Ground(moved, (*state.plan, line))


async def _present_state(context: Context, examiner: Examiner) -> Ground:
    last = examiner.last
    if last is None:
        raise AssertionError("an input is checked against the last increment")
    if await examiner.bring_forward():
        line = f"the state stays that of batch {last.increment.batch}{_digest(examiner.store)}"
        return Ground(_as_committed(last.increment, last.offset, examiner.store), (line,))
    if not isinstance(examiner.start, FromSnapshot):
        raise NothingToStandOn(
            f"partition {context.partition}: the state of batch {last.increment.batch} cannot be had without the"
            " input that is gone, and there is no snapshot",
            hint="bring the input back, or process what is left under a new app id"
            ' (`App("NEW-ID", …)`, then `snapreplay init MODULE:APP`)',
        )
    reader = await context.cluster.reader(read_committed=False)
    try:
        manifest = await load_manifest(reader, context.snapshots, examiner.start.pointer)
    finally:
        await reader.close()
    return _snapshot_ground(context, examiner, manifest, ())


async def _as_replayed(context: Context, examiner: Examiner) -> Ground:
    """A record that this code refuses cannot be replayed: then the newest snapshot, and live it meets the policy."""
    try:
        await examiner.replay()
    except ReplayFailed:
        return await _from_snapshot(context, examiner)
    last = examiner.last
    if last is None:
        raise AssertionError("replaying leads to the last increment")
    line = (
        f"the state becomes what app version {context.app.version} makes of the records up to batch"
        f" {last.increment.batch}{_digest(examiner.store)}; recorded was digest {last.increment.digest}."
        " Outputs that were committed stay as they are"
    )
    return Ground(_as_committed(last.increment, last.offset, examiner.store), (line,))


async def _from_snapshot(context: Context, examiner: Examiner) -> Ground:
    """The newest snapshot in T-QuanLiang that is whole, pointed to or not: what pointed to it may be what was lost."""
    passed_over: list[str] = []
    reader = await context.cluster.reader(read_committed=False, large=True)
    try:
        async for offset, manifest in _newest_first(reader, context.snapshots):
            reason = await _unusable(context, reader, manifest, examiner.store)
            if reason is None:
                return _snapshot_ground(context, examiner, manifest, tuple(passed_over))
            passed_over.append(
                f"snapshot {manifest.snapshot_id} (manifest at offset {offset}) is passed over: {reason}"
            )
    finally:
        await reader.close()
    raise NothingToStandOn(
        f"partition {context.partition}: {context.snapshots} holds no whole snapshot"
        + "".join(f"; {line}" for line in passed_over),
        hint="a new app: `snapreplay init MODULE:APP`. One that ran before: bring its topics back from a backup or"
        ' mirror, or process the input again under a new app id (`App("NEW-ID", …)`, then `snapreplay init`)',
    )


async def _newest_first(reader: Reader, log: TopicPartition) -> AsyncIterator[tuple[int, Manifest]]:
    bounds = await reader.bounds(log)
    for window in windows(bounds.end_offset, bounds.start_offset):
        found: list[tuple[int, Manifest]] = []
        async for records in reader.read(log, window.start_offset, window.end_offset):
            for record in records:
                manifest = manifest_in(record.value or b"")
                if manifest is not None:
                    found.append((record.offset, manifest))
        for each in reversed(found):
            yield each


async def _unusable(
    context: Context, reader: Reader, manifest: Manifest, store: Store
) -> str | None:
    """Why not, or None: then the store holds its state."""
    expected, genesis = context.expected, manifest.genesis
    said = (manifest.origin.app_id, genesis.cluster_id, genesis.partition_count)
    ours = (expected.app_id, expected.cluster_id, expected.partition_count)
    if said != ours or set(genesis.start_offsets) != expected.inputs:
        return f"it is of app, cluster and partition count {said} with inputs {sorted(genesis.start_offsets)}"
    try:
        await load_state(
            reader, context.snapshots, manifest, context.app.schema_version, store, _no_report
        )
    except RebuildError as error:
        return error.message
    return None


def _snapshot_ground(
    context: Context, examiner: Examiner, manifest: Manifest, passed_over: tuple[str, ...]
) -> Ground:
    last, store = examiner.last, examiner.store
    batch = max(manifest.batch, last.increment.batch if last else 0)
    genesis = genesis_increment(context.origin, NO_OFFSET, manifest.genesis, store.digest, 0)
    increment = msgspec.structs.replace(
        genesis,
        batch=batch,
        positions=dict(manifest.positions),
        stream_time_ms=manifest.stream_time_ms,
        last_decision_offset=decided_at(last.increment, last.offset) if last else NO_OFFSET,
    )
    state = f"the state becomes that of snapshot {manifest.snapshot_id}, of batch {manifest.batch}{_digest(store)}"
    return Ground(
        increment,
        (*passed_over, state, *_again(manifest.positions, last.increment if last else None)),
    )


def _again(positions: Mapping[str, int], last: Increment | None) -> list[str]:
    """How far it had come is known only as far as an increment is left that says so."""
    lines = []
    for topic, position in positions.items():
        before = last.positions.get(topic, -1) if last else -1
        if before != position:
            what = (
                f"offsets {position} to {before} are"
                if before > position
                else "whatever was processed from there on is"
            )
            lines.append(
                f"{topic}: goes on at offset {position}; {what} processed again, outputs written a second time"
            )
    return lines


def _as_committed(last: Increment, offset: int, store: Store) -> Increment:
    pointers: list[Pointer] = []
    return msgspec.structs.replace(
        last,
        pointers=pointers,
        digest=store.digest,
        decision=None,
        last_decision_offset=decided_at(last, offset),
    )


async def _log_start(context: Context, topic: str) -> int:
    reader = await context.cluster.reader()
    try:
        return (await reader.bounds(TopicPartition(topic, context.partition))).start_offset
    finally:
        await reader.close()


def _digest(store: Store) -> str:
    digest: Digest | None = store.digest
    return f" ({digest.count} entries, digest {digest})" if digest is not None else ""


def _no_report(done: int, total: int) -> None:
    del done, total  # nobody watches
