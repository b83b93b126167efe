"""Accepting a finding: the partition is examined again, then a fenced increment records the decision. It begins a new
chain and points to a full snapshot of the accepted state, written under the same claim. Until it is committed nothing
has changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from snapreplay.app.app import App
from snapreplay.app.ways import new_app
from snapreplay.counted import counted
from snapreplay.errors import SnapreplayError, StopError, UnknownPartition, UsageError
from snapreplay.service.config.settings import Settings
from snapreplay.service.core.chain import decided_at, ground_increment, read_positions, standing_for
from snapreplay.service.core.inspected import changes
from snapreplay.service.core.kafka_errors import OffsetBeyondEnd
from snapreplay.service.core.search import FoundIncrement
from snapreplay.service.decisions import places
from snapreplay.service.decisions.places import newest_common
from snapreplay.service.ports import Cluster, TopicPartition
from snapreplay.service.preflight import inspect
from snapreplay.service.publish.state import Begun, by_whom, publish
from snapreplay.service.recovery.acceptable_failures import (
    Finding,
    Resolution,
    command,
    findings_of,
    newest_acceptable_snapshot,
    nothing_left,
)
from snapreplay.service.recovery.examine import Examiner, News, OnNews
from snapreplay.service.recovery.follower import ReplayFailed
from snapreplay.service.recovery.input_identity import (
    InputReplaced,
    InputShorter,
    InputTrimmed,
    Match,
    record_at_anchor,
    was_cut,
)
from snapreplay.service.runtime.context import Context, contexts_of
from snapreplay.service.runtime.witnesses import witness_of
from snapreplay.service.topics.log_bounds import manifests_ahead
from snapreplay.service.topics.reading import reading
from snapreplay.service.topics.snapshots import load_manifest
from snapreplay.snapshots.format.records import NO_OFFSET, Increment, Manifest, RetiredInput
from snapreplay.snapshots.plan import FromSnapshot
from snapreplay.state.composite import Store

INSTANCE_ID = "snapreplay-accept"
"""In the claim: tells a fenced owner that no process of the service fenced it."""


class NotTheFinding(UsageError):
    """The partition now has another finding than the one to accept.

    Safe: Nothing was written, and no owner was fenced.
    """


class NotAcceptable(StopError):
    """The error cannot be accepted; its hint says what to do instead.

    Safe: Nothing was written, and no owner was fenced.
    """


class Acceptance(msgspec.Struct, frozen=True):
    """The work of `carry_out`: `plan` in sentences, and the `decision` to record. `store` holds the state of `ground`;
    the log was examined up to `end_offset`."""

    plan: tuple[str, ...]
    decision: dict[str, str]
    context: Context
    store: Store
    ground: Baseline
    end_offset: int


async def propose(
    app: App[Any],
    settings: Settings,
    cluster: Cluster,
    partition: int,
    finding_id: str,
    reason: str,
    on_news: OnNews = lambda _: None,
) -> Acceptance:
    """Find the present finding, and what accepting it means. Only reads; `on_news` hears how far it is.

    Raises:
        UnknownPartition; UsageError: no reason.
        NotTheFinding: there is another finding, or none.
        NotAcceptable, NoBaseline: no acceptance would help.
        OlderState: this version of the app upgrades the state first.
    """
    if not reason.strip():
        raise UsageError("no reason was given", hint="give --reason TEXT: it is recorded in the log")
    view = await inspect(app, settings, cluster)
    if not 0 <= partition < view.partition_count:
        raise UnknownPartition(partition, view.partition_count)
    context = contexts_of(app, settings, cluster, view, INSTANCE_ID)[partition]
    examiner = Examiner(context, app.new_store(), News(on_news))
    try:
        return await _acceptance(context, examiner, finding_id, reason.strip())
    finally:
        await examiner.close()


async def _acceptance(context: Context, examiner: Examiner, finding_id: str, reason: str) -> Acceptance:
    error = await examiner.examine_beside_owner()
    if error is None:
        raise NotTheFinding(
            f"partition {context.partition} has no finding, because a recovery would succeed: {finding_id} cannot be"
            " accepted",
            hint="restart the service, with the same settings as this command",
        )
    examiner.refuse_older()
    findings = findings_of(error, context, examiner.last)
    if not findings:
        raise NotAcceptable(
            f"partition {context.partition}: {type(error).__name__} cannot be accepted: {error.message}",
            hint=error.hint,
        )
    finding = next((each for each in findings if each.id == finding_id), findings[0])
    ground = await ground_of(context, examiner, finding)  # before a command is printed that could not succeed
    if finding.id != finding_id:
        raise NotTheFinding(
            f"partition {context.partition}: asked to accept {finding_id}, but the finding is {finding.id}:"
            f" {error.message}",
            hint=f"to accept that one: `{command(finding, context)}` ({finding.way})",
            given=finding_id,
            found=finding.id,
        )
    plan = (
        *ground.plan,
        f"a full snapshot of this state is written, and increment {ground.increment.batch + 1} records the decision"
        " and points to it; a running owner of the partition is fenced",
    )
    decision = {
        "finding": finding_id,
        "problem": f"{type(error).__name__}: {error.message}",
        "decided": "; ".join(ground.plan),
        "reason": reason,
        "by": by_whom(),
    }
    return Acceptance(plan, decision, context, examiner.store, ground, examiner.end_offset)


async def carry_out(acceptance: Acceptance) -> Begun:
    """Fence, claim, write the snapshot, commit the decision; raises what `publish` does."""
    return await publish(
        acceptance.context, acceptance.store, acceptance.ground.increment, acceptance.decision, acceptance.end_offset
    )


class NoBaseline(StopError):
    """There is no state to accept: no snapshot is complete, or none was ever taken.

    Safe: Nothing was written, and no owner was fenced.
    """


class Baseline(msgspec.Struct, frozen=True):
    """The state to accept: `increment` stands for it as if committed, `plan` says what accepting it means."""

    increment: Increment
    plan: tuple[str, ...]


async def ground_of(context: Context, examiner: Examiner, finding: Finding) -> Baseline:
    """Bring the examiner's store to the state to resume from.

    Raises:
        NoBaseline: nothing can be accepted.
        StopError: the app cannot read the stored state.
    """
    ground = await _ground(context, examiner, finding)
    witness = await witness_of(context)
    if witness is None or witness.batch <= ground.increment.batch:
        return ground
    # The next batches are later than any that was committed: what was lost is not found missing again.
    return Baseline(msgspec.structs.replace(ground.increment, batch=witness.batch), ground.plan)


async def _ground(context: Context, examiner: Examiner, finding: Finding) -> Baseline:
    match finding.way:
        case Resolution.SKIP | Resolution.REREAD:
            return await _input_moved(context, examiner, finding)
        case Resolution.AS_REPLAYED:
            return await _as_replayed(context, examiner)
        case Resolution.KEEP_LOG:
            return await _log_kept(context, examiner)
        case Resolution.FROM_LAST:
            return await _log_as_left(context, examiner, finding.error)
        case Resolution.FROM_SNAPSHOT:
            return await _from_snapshot(context, examiner)


async def _log_kept(context: Context, examiner: Examiner) -> Baseline:
    """Keep the log: the decision's snapshot lies behind the manifests, so no recovery looks at them again."""
    last = examiner.found
    lines = [
        f"snapshot {manifest.snapshot_id} of batch {manifest.batch} (manifest at offset {offset}, owner epoch"
        f" {manifest.owner_epoch}) is ignored: if an owner wrote it after all, the batches after"
        f" {last.increment.batch} are processed again, outputs written a second time"
        for offset, manifest in await manifests_ahead(context, last)
    ]
    return await _log_alone(context, examiner, lines)


async def _log_as_left(context: Context, examiner: Examiner, error: SnapreplayError) -> Baseline:
    last, lost = examiner.found.increment, error.facts["witness_batch"]
    line = (
        f"batches {last.batch + 1} to {lost}, and any later ones, are lost: what they processed is processed again"
        f" ({_places(last.positions)}), outputs written a second time"
    )
    return await _log_alone(context, examiner, [line])


def _places(positions: Mapping[str, int]) -> str:
    return ", ".join(f"{topic} from offset {at} on" for topic, at in sorted(positions.items()))


async def _log_alone(context: Context, examiner: Examiner, lines: Sequence[str]) -> Baseline:
    problem = await examiner.examine_log_alone()
    last = examiner.found
    if problem is None:
        kept = await _present_state(context, examiner)
    elif isinstance(problem, InputTrimmed | InputShorter | InputReplaced):
        (moved,) = findings_of(problem, context, last)
        kept = await _input_moved(context, examiner, moved)
    else:
        raise NoBaseline(
            f"partition {context.partition}: the log does not lead to batch {last.increment.batch}, either:"
            f" {problem.message}",
            hint=problem.hint,
        )
    return Baseline(kept.increment, (*lines, *kept.plan))


async def _input_moved(context: Context, examiner: Examiner, finding: Finding) -> Baseline:
    state = await _present_state(context, examiner)
    replaced = str(finding.error.facts["topic"]) if finding.way is Resolution.REREAD else ""
    return await _placed(context, examiner, state, replaced)


async def _placed(context: Context, examiner: Examiner, state: Baseline, replaced: str = "") -> Baseline:
    """Set each input to the first record that exists and is not in the state; `replaced`: an input, now another log."""
    last = examiner.last
    positions, anchors = dict(state.increment.positions), dict(state.increment.anchors)
    below = dict(state.increment.position_anchors)
    lines = []
    for topic, position in state.increment.positions.items():
        reached = last.increment.positions.get(topic) if last else None
        start_offset = await _log_start(context, topic)
        match = Match.OTHER if topic == replaced else await _compared(context, topic, last, start_offset)
        other = match is Match.OTHER
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
        if other or begin != position:  # the next recovery records what lies there
            below.pop(topic, None)
        positions[topic] = begin
        lines += [line] if line else []
        if match is Match.NONE and begin > start_offset:
            lines += _unproven(context, topic, state.increment, begin)
    moved = msgspec.structs.replace(state.increment, positions=positions, anchors=anchors, position_anchors=below)
    return Baseline(moved, (*state.plan, *lines))


async def _present_state(context: Context, examiner: Examiner) -> Baseline:
    last = examiner.found
    if await examiner.bring_forward():
        line = f"the state stays that of batch {last.increment.batch}{_digest(examiner.store)}"
        return Baseline(standing_for(last, examiner.store.digest, examiner.store.store_digests), (line,))
    if not isinstance(examiner.start, FromSnapshot):
        raise NoBaseline(
            f"partition {context.partition}: the state of batch {last.increment.batch} cannot be restored without the"
            " lost input, and there is no snapshot",
            hint=f"restore the input, or process what is left under a new app id: {new_app()}",
        )
    async with reading(context.cluster, read_committed=False) as reader:
        manifest = await load_manifest(reader, context.snapshots, examiner.start.pointer)
    return _snapshot_ground(context, examiner, manifest, ())


async def _as_replayed(context: Context, examiner: Examiner) -> Baseline:
    """Replay; if this code refuses a record, take the newest snapshot: live, the record meets the policy."""
    try:
        await examiner.replay()
    except ReplayFailed:
        return await _from_snapshot(context, examiner)
    last = examiner.found
    line = (
        f"the state is replaced by what app version {context.app.version} computes from the records up to batch"
        f" {last.increment.batch}{_digest(examiner.store)}; the recorded digest is {last.increment.digest}."
        " Committed outputs stay as they are"
    )
    return Baseline(standing_for(last, examiner.store.digest, examiner.store.store_digests), (line,))


async def _from_snapshot(context: Context, examiner: Examiner) -> Baseline:
    manifest, passed_over = await newest_acceptable_snapshot(context, examiner.store)
    if manifest is not None:
        return await _placed(context, examiner, _snapshot_ground(context, examiner, manifest, passed_over))
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
    ground = ground_increment(
        context.origin,
        manifest.genesis,
        (store.digest, store.store_digests),
        manifest.topic_ids,
        manifest.stream_time_ms,
        last.increment if last else None,
    )
    ground, positions, changed = _with_inputs_of(last.increment if last else None, manifest, ground)
    increment = msgspec.structs.replace(
        ground,
        batch=batch,
        positions=positions,
        last_decision_offset=decided_at(last.increment, last.offset) if last else NO_OFFSET,
    )
    state = f"the state becomes that of snapshot {manifest.snapshot_id}, of batch {manifest.batch}{_digest(store)}"
    if manifest.proposed_by is not None:
        state += f"; {manifest.proposed_by} proposed it, and it is not known whether the owner adopted it"
    return Baseline(increment, (*passed_over, state, *changed))


def _with_inputs_of(
    last: Increment | None, manifest: Manifest, ground: Increment
) -> tuple[Increment, dict[str, int], list[str]]:
    """Give the state of a snapshot the inputs that the log has now. Returns the increment, the positions, and
    sentences."""
    positions, lines = dict(manifest.positions), list[str]()
    if last is None or last.positions.keys() == positions.keys():
        return ground, positions, lines
    begun, retired = last.genesis.start_offsets, dict(ground.retired_inputs)
    for topic in sorted(positions.keys() - last.positions.keys()):
        at, topic_id = positions.pop(topic), manifest.topic_ids.get(topic, "")
        retired[topic] = RetiredInput(manifest.batch, at, manifest.genesis.start_offsets[topic], topic_id)
        lines.append(f"{topic} was retired since and stays retired: its records from offset {at} on have no effect")
    for topic in sorted(last.positions.keys() - positions.keys()):
        positions[topic] = begun[topic]
        lines.append(f"{topic} was added since: it is processed again from offset {begun[topic]} on")
    genesis = msgspec.structs.replace(manifest.genesis, start_offsets=dict(begun))
    retired = {topic: each for topic, each in retired.items() if topic not in positions}
    return msgspec.structs.replace(ground, genesis=genesis, retired_inputs=retired), positions, lines


async def _compared(context: Context, topic: str, last: FoundIncrement | None, start_offset: int) -> Match:
    """Compare an input with what was read last. One that only seems too short is not another one: a leader may be
    stale."""
    if last is None:
        return Match.NONE
    partition, match = TopicPartition(topic, context.partition), Match.NONE
    read_position, ids = read_positions(last.increment)[topic], context.view.topic_ids
    anchor = read_position.record
    async with reading(context.cluster) as reader:
        if anchor is not None and anchor.offset >= start_offset:
            try:
                match, _ = await record_at_anchor(reader, partition, anchor)
            except OffsetBeyondEnd:
                return Match.NONE
        if match is Match.OTHER or last.increment.topic_ids.get(topic) != ids.get(topic):
            return match
        bounds = await reader.bounds(partition)
        is_there = bounds.start_offset < read_position.position <= bounds.end_offset
        return Match.OTHER if is_there and await was_cut(reader, partition, read_position) else match


def _unproven(context: Context, topic: str, ground: Increment, begin: int) -> Iterator[str]:
    """Tell of an input that is another topic than that of the state, if nothing shows whether it is a copy."""
    for change in changes([topic], ground.topic_ids, context.view.topic_ids):
        yield (
            f"{change}, and nothing is left that shows whether offset {begin} means the same in it: if it is not a"
            " copy, what it holds below that offset is never processed"
        )


async def _log_start(context: Context, topic: str) -> int:
    async with reading(context.cluster) as reader:
        return (await reader.bounds(TopicPartition(topic, context.partition))).start_offset


def _digest(store: Store) -> str:
    return f" ({counted(store.digest.count, 'entry')}, digest {store.digest})"
