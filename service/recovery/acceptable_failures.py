"""The failures of a recovery that an operator may accept, under which id, and to what effect; and the ways out that its
hint may recommend: only what can succeed. The id binds an acceptance to what was seen: the same finding has the same id
on every start, another gap, batch or end of the log another one."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from enum import StrEnum

from msgspec import Struct

from snapreplay.app.names import alter
from snapreplay.app.ways import app_name, look_again, new_app
from snapreplay.errors import RebuildError, SnapreplayError
from snapreplay.service.core.inspected import TopicChange, changes
from snapreplay.service.core.phase import RestoreMode
from snapreplay.service.core.recovery import Recovery
from snapreplay.service.core.refusals import (
    LEADS_NOWHERE,
    LogCut,
    LogDamaged,
    LogShorter,
    NoRestoreMode,
    NotInitialised,
    OffsetsShifted,
    SchemaDiffers,
)
from snapreplay.service.core.search import FoundIncrement
from snapreplay.service.core.witness import IncrementsBehind
from snapreplay.service.ports import Reader
from snapreplay.service.recovery.follower import CodeChanged, DigestMismatch, OutputsDiffer, ReplayFailed
from snapreplay.service.recovery.input_identity import InputReplaced, InputShorter, InputTrimmed
from snapreplay.service.runtime.context import Context
from snapreplay.service.topics.log_bounds import read_starts
from snapreplay.service.topics.reading import newest, reading
from snapreplay.service.topics.requirements import KEPT_FOR_EVER
from snapreplay.service.topics.savepoint_names import with_savepoints
from snapreplay.service.topics.snapshots import load_state, newest_first, newest_of_owner
from snapreplay.snapshots.format.records import NO_OFFSET, Manifest
from snapreplay.snapshots.log.batches import BrokenChain
from snapreplay.snapshots.log.by_replay import InputDiffers
from snapreplay.snapshots.log.loading import NullSink, Sink
from snapreplay.snapshots.plan import FromSnapshot, NoUsableSnapshot, plan_start


class Resolution(StrEnum):
    """The way on once a finding is accepted."""

    SKIP = "the missing records are never processed"
    REREAD = (
        "the input is read from the point where it differs from the log that was processed, or from its start; records"
        " in it that were processed before are processed again, outputs written a second time"
    )
    AS_REPLAYED = "the state as this code replays it replaces what was recorded"
    KEEP_LOG = "if no owner wrote that manifest, it is ignored, and the state of the last increment counts"
    FROM_LAST = (
        "the state of the last increment that is left counts, and what was processed after it is processed again,"
        " outputs written a second time"
    )
    FROM_SNAPSHOT = "the newest whole snapshot begins a new chain, and outputs written after it are written again"


class Finding(Struct, frozen=True):
    """The trouble of one partition, in a form that can be accepted."""

    id: str
    way: Resolution
    error: SnapreplayError


class _Kind(Struct, frozen=True):
    """A kind of finding; `facts` names the error's facts that identify it: none that change by themselves."""

    name: str
    way: Resolution
    facts: tuple[str, ...] = ()


_REPLACED = _Kind("input-replaced", Resolution.REREAD, ("topic", "position"))
KINDS: dict[type[SnapreplayError], _Kind] = {
    InputTrimmed: _Kind("input-gap", Resolution.SKIP, ("topic", "position", "log_start_offset")),
    InputShorter: _REPLACED,
    InputReplaced: _REPLACED,
    CodeChanged: _Kind("code-changed", Resolution.AS_REPLAYED, ("recorded_version", "version")),
    OutputsDiffer: _Kind("outputs-differ", Resolution.AS_REPLAYED, ("batch", "topic", "recorded", "computed")),
    DigestMismatch: _Kind("digest-mismatch", Resolution.FROM_SNAPSHOT, ("batch", "recorded", "computed")),
    InputDiffers: _Kind("input-differs", Resolution.FROM_SNAPSHOT, ("recorded", "found")),
    ReplayFailed: _Kind("replay-failed", Resolution.FROM_SNAPSHOT, ("record_id", "batch")),
    NotInitialised: _Kind("increments-lost", Resolution.FROM_SNAPSHOT),
    LogShorter: _Kind("increments-cut", Resolution.FROM_SNAPSHOT, ("recorded",)),
    LogCut: _Kind("increments-cut", Resolution.FROM_SNAPSHOT, ("manifest_batch", "last_batch")),
    OffsetsShifted: _Kind("offsets-shifted", Resolution.FROM_SNAPSHOT, ("batch", "offset")),
    IncrementsBehind: _Kind("increments-behind", Resolution.FROM_LAST, ("witness_batch", "last_batch")),
    BrokenChain: _Kind("chain-broken", Resolution.FROM_SNAPSHOT, ("expected_batch", "found_batch")),
    LogDamaged: _Kind("log-damaged", Resolution.FROM_SNAPSHOT, ("topic", "partition", "offset")),
    NoRestoreMode: _Kind("no-restore-mode", Resolution.FROM_SNAPSHOT, ("topic", "partition", "offset")),
    NoUsableSnapshot: _Kind("no-usable-snapshot", Resolution.FROM_SNAPSHOT),
}
ALSO: dict[type[SnapreplayError], _Kind] = {
    LogCut: _Kind("manifest-ahead", Resolution.KEEP_LOG, ("manifest_offset", "manifest_batch", "last_batch"))
}
"""A second way to continue: a person knows which of the two is true."""


def findings_of(error: SnapreplayError, context: Context, last: FoundIncrement | None) -> tuple[Finding, ...]:
    """Return one for each way on; none when accepting would not help: its own hint says what does."""
    kinds = (KINDS.get(type(error)), ALSO.get(type(error)))
    return tuple(_finding(kind, error, context, last) for kind in kinds if kind is not None)


def _finding(kind: _Kind, error: SnapreplayError, context: Context, last: FoundIncrement | None) -> Finding:
    way = kind.way
    if isinstance(error, DigestMismatch) and error.facts.get("mode") == RestoreMode.REPLAY:
        way = Resolution.AS_REPLAYED
    what = {
        "log": str(context.increments),
        "last": last.offset if last is not None else NO_OFFSET,
        **{name: str(error.facts.get(name)) for name in kind.facts},
    }
    return Finding(f"{kind.name}-{_hashed(what)}", way, error)


def fingerprint_of(context: Context, facts: Mapping[str, object]) -> str:
    """Return the end of a finding's id: what a process decides by itself has one, too."""
    return _hashed({"log": str(context.increments), **{name: str(fact) for name, fact in facts.items()}})


def _hashed(what: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:8]


def command(finding: Finding, context: Context) -> str:
    """Write what an operator types; settings that decide what is found are part of it."""
    settings = context.settings
    text = (
        f"snapreplay accept {app_name(context.app)} --partition {context.partition} --finding {finding.id}"
        " --reason TEXT"
    )
    if not settings.changelog.enabled:
        text += " --set changelog.enabled=false"
    if RestoreMode(settings.restore.mode) is not RestoreMode.CHANGES:
        text += f" --set restore.mode={settings.restore.mode}"
    return text


async def with_way_out(error: SnapreplayError, context: Context, recovery: Recovery) -> SnapreplayError:
    """Return the same error. Its hint also has the exact command to accept it where that leads to a state, or says what
    remains; and the savepoints, if the log is lost."""
    findings = findings_of(error, context, recovery.last)
    if findings:
        await _with_acceptance(error, findings, context, recovery)
    if isinstance(error, NotInitialised):
        await with_savepoints(error, context.app, context.cluster)
    return error


async def _with_acceptance(
    error: SnapreplayError, findings: Sequence[Finding], context: Context, recovery: Recovery
) -> None:
    before = f"{error.hint}; or " if error.hint else ""
    try:
        offered = [each for each in findings if await _leads_to_a_state(each, context, recovery)]
    except SchemaDiffers as other:
        error.hint = f"{before}{other.message}: {other.hint}"
        return
    if offered:
        ways = "; or ".join(f"`{command(each, context)}` ({each.way})" for each in offered)
        error.hint = f"{before}accept it: {ways}; then {look_again(context.partition)}"
        if offered[0].way in {Resolution.SKIP, Resolution.REREAD} and _has_changes(recovery):
            options = f" --state-of {context.app.app_id} --from earliest"
            error.hint += f"; or copy the state to a new app id: {new_app(options)}"
    elif not isinstance(error, NoUsableSnapshot):  # which has looked for the same
        error.hint = f"{before}{nothing_left()}"


def nothing_left() -> str:
    """Name the ways out if no snapshot is whole and the log does not lead from its beginning to its end."""
    return (
        "restore the topics from a backup or mirror (no snapshot is complete, so there is no state to accept);"
        f" or process the input again under a new app id: {new_app()}"
    )


async def _leads_to_a_state(finding: Finding, context: Context, recovery: Recovery) -> bool:
    from_snapshot = isinstance(recovery.start, FromSnapshot)
    if recovery.start is None and recovery.last is not None:  # the state in memory, or the search for a start failed
        from_snapshot = recovery.kept is not None and bool(recovery.last.increment.pointers)
    match finding.way:
        case Resolution.SKIP | Resolution.REREAD:
            return from_snapshot or recovery.state_is_last or _has_changes(recovery)
        case Resolution.AS_REPLAYED if not _refuses_records(finding.error):
            return True
        case Resolution.KEEP_LOG | Resolution.FROM_LAST:
            return await _log_leads_to_a_state(context, recovery)
        case _:
            return from_snapshot or (await newest_acceptable_snapshot(context, NullSink()))[0] is not None


async def _log_leads_to_a_state(context: Context, recovery: Recovery) -> bool:
    last = recovery.last
    if last is None:
        return False
    starts = await read_starts(context, last, disregard_manifests=True)
    try:
        plan_start(last.increment, last.offset, starts, {})
    except NoUsableSnapshot:
        return False
    return True


def _refuses_records(error: SnapreplayError) -> bool:
    """Say whether nothing can be replayed, so that only a snapshot helps."""
    return isinstance(error, CodeChanged) and isinstance(error.__cause__, ReplayFailed)


def _has_changes(recovery: Recovery) -> bool:
    """Say whether the last batches can be restored without the input."""
    last, closed = recovery.last, recovery.unavailable_mode
    if last is None or (closed is not None and closed.mode is RestoreMode.CHANGES):
        return False
    return last.increment.changes is not None or last.increment.is_empty


HINT = "the former records are gone with the old topic: restore them, with their offsets, from a backup or mirror"


async def with_cause(error: SnapreplayError, context: Context, last: FoundIncrement | None) -> SnapreplayError:
    """Return the same error. If an own topic was created again, or lost its records to a setting or command, its
    message says so first."""
    if not isinstance(error, LEADS_NOWHERE):
        return error
    try:
        remade = await _remade(context, last)
        emptied = await _emptied(context) if isinstance(error, NotInitialised) and not remade else None
    except SnapreplayError:
        return error  # the cluster does not answer: the error stays without a cause
    if emptied is not None:
        error.message = f"{emptied}; {error.message}"
        settings = ",".join(f"{name}={value}" for name, value in KEPT_FOR_EVER.items())
        error.hint = (
            f"first let the topic keep its records: `{alter(context.increments.topic, settings)}`. Then bring back the"
            " lost ones, with their offsets, from a backup or mirror"
        )
    if not remade:
        return error
    error.message = "; ".join((*map(str, remade), error.message))
    if not isinstance(error, NoUsableSnapshot):  # which names what is left as well
        error.hint = HINT
    return error


async def _remade(context: Context, last: FoundIncrement | None) -> tuple[TopicChange, ...]:
    own = (context.increments.topic, context.snapshots.topic)
    recorded = last.increment.topic_ids if last is not None else await _in_newest_manifest(context)
    return changes(own, recorded, await context.cluster.topic_ids(own))


async def _emptied(context: Context) -> str | None:
    """Say what shows that the increments topic had records that are gone; None if it still has some, or never had."""
    log = context.increments
    async with reading(context.cluster, read_committed=False) as reader:
        start_offset, end_offset = await reader.bounds(log)
        if not end_offset or await newest(reader, log, 1):
            return None
    if start_offset:
        how = "the records before it were deleted (retention.ms, retention.bytes, kafka-delete-records.sh)"
        return f"{log} begins at offset {start_offset} and ends at {end_offset}: {how}"
    how = "they were compacted away (cleanup.policy=compact)"
    return f"{log} ends at offset {end_offset} and holds no record below it: {how}"


async def _in_newest_manifest(context: Context) -> Mapping[str, str]:
    """Return the topic ids, if no increment is left that records them."""
    async with reading(context.cluster, read_committed=False) as reader:
        manifest = await newest_of_owner(reader, context.snapshots, await reader.bounds(context.snapshots))
    return manifest.topic_ids if manifest is not None else {}


async def newest_acceptable_snapshot(context: Context, store: Sink) -> tuple[Manifest | None, tuple[str, ...]]:
    """Load the newest whole snapshot into `store`. Returns its manifest, None when there is none; and why each newer
    one was skipped.

    Raises:
        SchemaDiffers: the newest one is of another schema_version; an older one would be another state.
    """
    passed_over: list[str] = []
    async with reading(context.cluster, read_committed=False, large=True) as reader:
        found = newest_first(reader, context.snapshots, await reader.bounds(context.snapshots))
        async for offset, manifest in _newest_state_first(found, context.increments.topic):
            reason = await _unusable(context, reader, manifest, store)
            if reason is None:
                return manifest, tuple(passed_over)
            passed_over.append(f"snapshot {manifest.snapshot_id} (manifest at offset {offset}) is skipped: {reason}")
    return None, tuple(passed_over)


async def _newest_state_first(
    found: AsyncIterator[tuple[int, Manifest]], increments: str
) -> AsyncIterator[tuple[int, Manifest]]:
    """Yield the newest state first. A job may have written its proposal behind an owner's snapshot of a later batch, so
    a proposal comes directly before the first owner's snapshot, from the end, that is older."""
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
    """Compare; a proposal of another topic is older: an owner begins in a new one with a snapshot of its own."""
    same_log = proposal.topic_ids.get(increments) == owners.topic_ids.get(increments)
    return same_log and _place(proposal) > _place(owners)


def _by_state(found: Iterable[tuple[int, Manifest]]) -> list[tuple[int, Manifest]]:
    return sorted(found, key=lambda one: _place(one[1]), reverse=True)


def _place(manifest: Manifest) -> tuple[int, int]:
    """Return what rises in a log, also over a decision; the epoch of the next owner rises over a cut, too."""
    return manifest.owner_epoch, manifest.increment_offset


async def _unusable(context: Context, reader: Reader, manifest: Manifest, store: Sink) -> str | None:
    """Say why it is unusable, or None: then the store holds its state."""
    expected, genesis = context.expected, manifest.genesis
    said = (manifest.origin.app_id, genesis.cluster_id, genesis.partition_count)
    ours = (expected.app_id, expected.cluster_id, expected.partition_count)
    inputs = genesis.start_offsets
    if said != ours or expected.new_inputs(inputs) or expected.retired_inputs(inputs):
        return f"its app, cluster and partition count are {said}, its inputs {sorted(inputs)}"
    try:
        await load_state(
            reader,
            context.snapshots,
            manifest,
            context.app.schema_version,
            store,
            lambda _done, _total: None,
            verify_sums=manifest.proposed_by is not None,
        )
    except RebuildError as error:
        return error.message
    return None
