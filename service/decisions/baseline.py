"""The state to go on with once a finding is accepted, and in words what that means."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from snapreplay.app.anchor import anchor_of
from snapreplay.app.ways import new_app
from snapreplay.counted import counted
from snapreplay.errors import StopError
from snapreplay.service.core.chain import decided_at, genesis_increment
from snapreplay.service.core.kafka_errors import OffsetBeyondEnd, OffsetTrimmed
from snapreplay.service.core.search import FoundIncrement
from snapreplay.service.decisions import places
from snapreplay.service.decisions.common_prefix import newest_common
from snapreplay.service.decisions.examine import Examiner
from snapreplay.service.ports import TopicPartition
from snapreplay.service.recovery.acceptable_failures import Finding, Resolution, findings_of
from snapreplay.service.recovery.inputs import InputReplaced, InputShorter, InputTrimmed
from snapreplay.service.recovery.newest_whole import newest_whole
from snapreplay.service.recovery.replay import ReplayFailed
from snapreplay.service.recovery.ways_out import nothing_left
from snapreplay.service.runtime.context import Context
from snapreplay.service.topics.log_bounds import manifests_ahead
from snapreplay.service.topics.reading import reading
from snapreplay.service.topics.snapshots import load_manifest
from snapreplay.snapshots.format.records import NO_OFFSET, Increment, Manifest, Pointer
from snapreplay.snapshots.plan import FromSnapshot
from snapreplay.state.contract import Store
from snapreplay.state.digest import Digest


class NoBaseline(StopError):
    """There is no state that could be accepted: no snapshot is whole, or none was ever taken."""


@dataclass(frozen=True)
class Baseline:
    """`increment` stands for the accepted state as if it had been committed: batch number, positions, digest. `plan`
    says in sentences what accepting it means."""

    increment: Increment
    plan: tuple[str, ...]


async def ground_of(context: Context, examiner: Examiner, finding: Finding) -> Baseline:
    """Bring the examiner's store to the state to go on with.

    Raises:
        NoBaseline: nothing can be accepted.
        StopError: the app cannot read the stored state.
    """
    match finding.way:
        case Resolution.SKIP | Resolution.REREAD:
            return await _input_moved(context, examiner, finding)
        case Resolution.AS_REPLAYED:
            return await _as_replayed(context, examiner)
        case Resolution.KEEP_LOG:
            return await _log_kept(context, examiner)
        case Resolution.FROM_SNAPSHOT:
            return await _from_snapshot(context, examiner)


async def _log_kept(context: Context, examiner: Examiner) -> Baseline:
    """The state that the log leads to. The decision's snapshot lies behind the manifests, so that no recovery looks at
    them again."""
    problem = await examiner.examine_log_alone()
    last = examiner.last
    if last is None:
        raise AssertionError("a manifest is ahead of a last increment")
    lines = [
        f"snapshot {manifest.snapshot_id} of batch {manifest.batch} (manifest at offset {offset}, owner epoch"
        f" {manifest.owner_epoch}) is disregarded: if an owner wrote it after all, the batches after"
        f" {last.increment.batch} are processed again, outputs written a second time"
        for offset, manifest in await manifests_ahead(context, last)
    ]
    if problem is None:
        kept = await _present_state(context, examiner)
    elif isinstance(problem, InputTrimmed | InputShorter | InputReplaced):
        (moved,) = findings_of(problem, context, last)
        kept = await _input_moved(context, examiner, moved)
    else:
        raise NoBaseline(
            f"partition {context.partition}: without that manifest the log does not lead to batch"
            f" {last.increment.batch}, either: {problem.message}",
            hint=problem.hint,
        )
    return Baseline(kept.increment, (*lines, *kept.plan))


async def _input_moved(context: Context, examiner: Examiner, finding: Finding) -> Baseline:
    """The state stays as it is, or is that of the newest snapshot if only the input led further."""
    state = await _present_state(context, examiner)
    replaced = str(finding.error.facts["topic"]) if finding.way is Resolution.REREAD else ""
    return await _placed(context, examiner, state, replaced)


async def _placed(
    context: Context, examiner: Examiner, state: Baseline, replaced: str = ""
) -> Baseline:
    """Sets each input to the first record that exists and is not in the state; `replaced` names an input that is
    another log."""
    last = examiner.last
    positions, anchors = dict(state.increment.positions), dict(state.increment.anchors)
    lines = []
    for topic, position in state.increment.positions.items():
        reached = last.increment.positions.get(topic) if last else None
        start_offset = await _log_start(context, topic)
        other = topic == replaced or await _is_other(context, topic, last, start_offset)
        if last is None or reached is None or not other:
            begin, line = places.same_log(topic, position, reached, start_offset)
            if begin > position:  # what lies between is given up: a copy that has it is another log
                anchors.pop(topic, None)
        else:
            common = await newest_common(context, topic, last.offset)
            end = common.offset + 1 if common is not None else None
            begin, line = places.other_log(topic, position, reached, start_offset, end)
            anchors.pop(topic, None)
            if common is not None and begin == end:
                anchors[topic] = common
        positions[topic] = begin
        lines += [line] if line else []
    moved = msgspec.structs.replace(state.increment, positions=positions, anchors=anchors)
    return Baseline(moved, (*state.plan, *lines))


async def _present_state(context: Context, examiner: Examiner) -> Baseline:
    last = examiner.last
    if last is None:
        raise AssertionError("an input is checked against the last increment")
    if await examiner.bring_forward():
        line = f"the state stays that of batch {last.increment.batch}{_digest(examiner.store)}"
        return Baseline(_as_committed(last.increment, last.offset, examiner.store), (line,))
    if not isinstance(examiner.start, FromSnapshot):
        raise NoBaseline(
            f"partition {context.partition}: the state of batch {last.increment.batch} cannot be restored without the"
            " lost input, and there is no snapshot",
            hint=f"bring the input back, or process what is left under a new app id: {new_app()}",
        )
    async with reading(context.cluster, read_committed=False) as reader:
        manifest = await load_manifest(reader, context.snapshots, examiner.start.pointer)
    return _snapshot_ground(context, examiner, manifest, ())


async def _as_replayed(context: Context, examiner: Examiner) -> Baseline:
    """If this code refuses a record, the newest snapshot is taken instead, and live the record meets the policy."""
    try:
        await examiner.replay()
    except ReplayFailed:
        return await _from_snapshot(context, examiner)
    last = examiner.last
    if last is None:
        raise AssertionError("replaying leads to the last increment")
    line = (
        f"the state becomes what app version {context.app.version} makes of the records up to batch"
        f" {last.increment.batch}{_digest(examiner.store)}; the recorded digest is {last.increment.digest}."
        " Committed outputs stay as they are"
    )
    return Baseline(_as_committed(last.increment, last.offset, examiner.store), (line,))


async def _from_snapshot(context: Context, examiner: Examiner) -> Baseline:
    manifest, passed_over = await newest_whole(context, examiner.store)
    if manifest is not None:
        state = _snapshot_ground(context, examiner, manifest, passed_over)
        return await _placed(context, examiner, state)
    raise NoBaseline(
        f"partition {context.partition}: {context.snapshots} holds no whole snapshot"
        + "".join(f"; {line}" for line in passed_over),
        hint=nothing_left(),
    )


def _snapshot_ground(
    context: Context, examiner: Examiner, manifest: Manifest, passed_over: tuple[str, ...]
) -> Baseline:
    last, store = examiner.last, examiner.store
    batch = max(manifest.batch, last.increment.batch if last else 0)
    genesis = genesis_increment(
        context.origin, NO_OFFSET, manifest.genesis, store.digest, 0, context.view.topic_ids
    )
    increment = msgspec.structs.replace(
        genesis,
        batch=batch,
        positions=dict(manifest.positions),
        stream_time_ms=manifest.stream_time_ms,
        store_digests=store.store_digests,
        last_decision_offset=decided_at(last.increment, last.offset) if last else NO_OFFSET,
    )
    state = f"the state becomes that of snapshot {manifest.snapshot_id}, of batch {manifest.batch}{_digest(store)}"
    if manifest.proposed_by is not None:
        state += f"; {manifest.proposed_by} proposed it, and it is not known whether the owner adopted it"
    return Baseline(increment, (*passed_over, state))


def _as_committed(last: Increment, offset: int, store: Store) -> Increment:
    pointers: list[Pointer] = []
    return msgspec.structs.replace(
        last,
        pointers=pointers,
        digest=store.digest,
        store_digests=store.store_digests,
        decision=None,
        last_decision_offset=decided_at(last, offset),
    )


async def _is_other(
    context: Context, topic: str, last: FoundIncrement | None, start_offset: int
) -> bool:
    """Whether the record at the last increment's anchor is another one. An input that only seems too short is not: a
    leader may be stale, and the next recovery asks for longer."""
    anchor = last.increment.anchors.get(topic) if last else None
    if anchor is None or anchor.offset < start_offset:
        return False
    async with reading(context.cluster) as reader:
        try:
            record = await reader.read_at(TopicPartition(topic, context.partition), anchor.offset)
        except (OffsetTrimmed, OffsetBeyondEnd):
            return False
    return record is not None and anchor_of(record) != anchor


async def _log_start(context: Context, topic: str) -> int:
    async with reading(context.cluster) as reader:
        return (await reader.bounds(TopicPartition(topic, context.partition))).start_offset


def _digest(store: Store) -> str:
    digest: Digest | None = store.digest
    return f" ({counted(digest.count, 'entry')}, digest {digest})" if digest is not None else ""
