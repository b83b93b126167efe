"""The errors that stop a recovery until a person acts: the last increment differs from what this process expects.

Pure; every refusal names both facts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from snapreplay.app.topic import TopicPattern
from snapreplay.app.upgrade import fields_read, upgraded_stores
from snapreplay.app.ways import MODULE, beyond_an_older_disk, keys_moved_hint, look_again, new_app
from snapreplay.errors import RetryableError, SnapreplayError, StopError
from snapreplay.service.core.lineage import LastFence
from snapreplay.service.core.search import FoundIncrement
from snapreplay.service.core.witness import IncrementsBehind
from snapreplay.snapshots.format.records import Claim, Increment
from snapreplay.snapshots.log.batches import BrokenChain
from snapreplay.snapshots.plan import NoUsableSnapshot
from snapreplay.state.digest import DEFAULT_STORE
from snapreplay.state.fields import StoreFields
from snapreplay.state.recorded import Recorded


@dataclass(frozen=True)
class Expected:
    """The identity of this process, and the cluster as it is now. `app()`: what a command takes; only hints name it.
    `upgrades`: schema_version and store that each upgrade is from, with the fields it reads. `internal`: internal
    topics, which the owner adds to the inputs by itself."""

    app_id: str
    schema_version: int
    cluster_id: str
    partition: int
    partition_count: int
    inputs: frozenset[str]
    increments_topic: str
    instance_id: str
    process_id: str
    started_at_ms: int
    app: Callable[[], str] = field(default=lambda: MODULE, compare=False)
    fields: Mapping[str, StoreFields] = field(default_factory=dict, hash=False)
    upgrades: Mapping[tuple[int, str], StoreFields] = field(default_factory=dict, hash=False)
    patterns: tuple[TopicPattern[Any, Any], ...] = ()
    internal: frozenset[str] = frozenset()

    def new_inputs(self, recorded: Iterable[str]) -> list[str]:
        """Return the declared inputs, sorted, that are not recorded."""
        return sorted(self.inputs.difference(recorded))

    def retired_inputs(self, recorded: Iterable[str]) -> list[str]:
        """Return the recorded inputs, sorted, that are neither declared nor match a pattern."""
        others = set(recorded) - self.inputs - self.internal
        return sorted(name for name in others if not any(each.matches(name) for each in self.patterns))

    def upgrades_from(self, schema_version: int) -> frozenset[str]:
        """Return the stores of a state of this schema_version that this process upgrades; see `upgraded_stores`."""
        return upgraded_stores(self.upgrades, schema_version, self.schema_version)


class NotInitialised(StopError):
    """The increments topic holds no increment of the app, not even the genesis. The app is not treated as a new one.

    Safe: Nothing is written into the log. Do not stop any process of the app: one may have the state in memory.
    """


class HangingTransaction(StopError):
    """A foreign transaction has held back the last stable offset of the increments topic for too long.

    Safe: Nothing committed is lost. Aborting the transaction discards what its program has written in it.
    """


class TransactionStuck(RetryableError):
    """The coordinator cannot end the last transaction of the partition's transactional id, so no process can fence it.

    Safe: Nothing is lost: the partition tries again by itself until the transaction has ended. A restart does not help.
    """


class ForeignClaim(RetryableError):
    """There is another record at the offset of this process's claim, so this is another log. The next attempt claims in
    this log."""


class DuplicateInstance(StopError):
    """Two processes use the same instance id; the older one steps down while the other runs.

    Safe: Nothing is lost or repeated: the newer process takes the partitions. Either of the two may be stopped.
    """

    @property
    def other(self) -> str:
        """The description of that process."""
        pid, host, name = (self.facts[key] for key in ("other_pid", "other_host", "instance_id"))
        return f"process {pid} on host {host}, which uses the same instance id {name!r}"


class WrongLog(StopError):
    """The increments belong to another app, cluster, set of inputs or number of partitions."""


class SchemaDiffers(StopError):
    """The state was written with another `schema_version`: this version cannot read the stored values.

    Safe: This version has written nothing, so the version that wrote the state may be started again.
    """


class NotUpgradable(StopError):
    """The state has an older `schema_version`, and cannot be restored without the code that wrote it.

    Safe: This version has written nothing, so the version that wrote the state may be started again.
    """


class LogShorter(StopError):
    """The last owner claimed at a higher offset than this one, so the log was truncated.

    Safe: Nothing more is committed. Do not stop any process of the app: one may have the newer state in memory.
    """


class LogDamaged(StopError):
    """A required record of the increments topic cannot be read, and no snapshot makes it unnecessary.

    Safe: Nothing is committed on top of the damage. Do not trim the topic or re-create it.
    """


class NoRestoreMode(StopError):
    """Neither the changes nor the input lead from the snapshot to the last batch."""


class OffsetsShifted(StopError):
    """The pointers of the last increment lead to other records: the topic is a copy with other offsets.

    Safe: Nothing is committed to the copy. Do not delete the original.
    """


class LogCut(StopError):
    """There is a snapshot of a later batch than the last increment, so committed batches are missing from the
    increments topic.

    Safe: Nothing more is committed. Do not stop any process of the app: one may have the newer state in memory.

    Attributes:
        increment_offset: in the increments topic, of the increment that the snapshot is of.
    """

    def __init__(self, message: str, *, hint: str, increment_offset: int, **facts: object) -> None:
        super().__init__(message, hint=hint, increment_offset=increment_offset, **facts)
        self.increment_offset = increment_offset


LEADS_NOWHERE = (
    NotInitialised,
    BrokenChain,
    LogShorter,
    LogCut,
    NoRestoreMode,
    NoUsableSnapshot,
    OffsetsShifted,
    IncrementsBehind,
)
"""The log does not lead to a state: it may be another topic, or one that its owner has not written yet."""


def schema_differs(what: str, recorded: int, now: int) -> SnapreplayError:
    """Make the error for something in the log that was written with another `schema_version` than the app's."""
    return SchemaDiffers(
        f"{what} was written with schema_version {recorded}, but the app has {now}",
        hint=f"start the app version that wrote it, with `App(…, schema_version={recorded})`; or upgrade the stored"
        f" entries to those of this one: `App(…, schema_version={max(now, recorded + 1)})` and"
        f" `@app.upgrade(from_schema={recorded})`",
        recorded=recorded,
        found=now,
    )


def not_to_be_upgraded(expected: Expected, last: Increment, cause: SnapreplayError) -> SnapreplayError:
    """Make the error for a state that only a replay by the old code could restore."""
    return NotUpgradable(
        f"the state after batch {last.batch} was written with schema_version {last.origin.schema_version}, and only a"
        f" replay by that version leads to it: {cause.message}",
        hint="start the version that wrote it again and stop it gracefully: the snapshot that it writes at its end"
        " (snapshot.before_stop) is enough",
        recorded=last.origin.schema_version,
        found=expected.schema_version,
    )


def concerns(refusal: StopError, last: Increment) -> bool:
    """Say whether the state after the last increment has the store that a snapshot was refused for."""
    default = {DEFAULT_STORE} if last.digest.count else set()
    return refusal.facts.get("store") in (last.store_digests.keys() or default)


def no_genesis(expected: Expected) -> SnapreplayError:
    return NotInitialised(
        f"partition {expected.partition} of {expected.increments_topic} holds no increment of"
        f" app {expected.app_id!r}, not even the genesis",
        hint=f"if the app is new, `snapreplay init {expected.app()}`. Otherwise its increments were deleted: restore"
        " the topic, and do not initialise the app again",
        topic=expected.increments_topic,
        partition=expected.partition,
    )


def foreign_claim(increments: str, claim_offset: int, instead: str = "no record") -> ForeignClaim:
    return ForeignClaim(
        f"{increments} holds {instead} at offset {claim_offset}, where this process committed its claim: the topic was"
        " deleted and created again, or an unclean election shortened it",
        claim_offset=claim_offset,
    )


def claim_hidden(expected: Expected, claim_offset: int, end_offset: int, high_watermark: int) -> SnapreplayError:
    """Make the error for a hidden claim. A last stable offset behind the claim hides nothing, and a log that ends
    before it was cut."""
    if end_offset > claim_offset or high_watermark <= claim_offset:
        return foreign_claim(f"{expected.increments_topic}-{expected.partition}", claim_offset)
    return HangingTransaction(
        f"the claim of this process at offset {claim_offset} cannot be read: the last stable offset stays at"
        f" {end_offset}, the high watermark is {high_watermark}",
        hint="another producer has an open transaction on this topic:"
        f" `snapreplay doctor {expected.app()}` shows its transactional id and how to end it; once it has ended,"
        f" {look_again(expected.partition)}",
        claim_offset=claim_offset,
        last_stable_offset=end_offset,
        high_watermark=high_watermark,
    )


def transaction_stuck(expected: Expected, transactional_id: str, last: LastFence) -> TransactionStuck:
    """Make the error for a transaction that does not end: until then the coordinator answers no fence."""
    return TransactionStuck(
        f"the coordinator cannot end the last transaction of {transactional_id} ({last.state}, epoch"
        f" {last.lineage.producer_epoch}), so no process can own partition {expected.partition}: a partition of the"
        " transaction has no leader, or its log knows a newer epoch, because __transaction_state is older than the"
        " topics",
        hint=f"start the brokers that are down: `snapreplay doctor {expected.app()}` names them. If none is down,"
        f" {beyond_an_older_disk(expected.app_id)}",
        state=last.state,
        producer_epoch=last.lineage.producer_epoch,
    )


def duplicate_instance(expected: Expected, newer: Claim) -> DuplicateInstance | None:
    """Return the error if the newer owner has the same instance id and is the younger process. By start and not by
    claim: claims cross in a race, and then each would step down for the other."""
    if newer.instance_id != expected.instance_id:
        return None
    ours = (expected.started_at_ms, expected.process_id)
    if (newer.started_at_ms, newer.process_id) <= ours:
        return None
    return DuplicateInstance(
        f"process {newer.pid} on host {newer.host} uses the same instance id {newer.instance_id!r}"
        f" and has taken partition {expected.partition}",
        hint="this process resumes by itself when the other one has left the group. To run both, give each of them"
        " its own instance id: `--set instance_id=NAME` or SNAPREPLAY_INSTANCE_ID; or set none",
        instance_id=newer.instance_id,
        other_host=newer.host,
        other_pid=newer.pid,
    )


def damaged(error: SnapreplayError) -> SnapreplayError:
    """Make the error for what is damaged: it may be the last increment, which no older one must be taken for."""
    return LogDamaged(
        error.message, hint=error.hint or "restore the topic from a replica, backup or mirror", **error.facts
    )


def beside(refusal: SnapreplayError, error: SnapreplayError) -> SnapreplayError:
    """Return the same error; it also names why a newer snapshot could not be used, which may be its cause."""
    named = error.__class__.__new__(error.__class__, *error.args)
    vars(named).update(vars(error))
    named.__cause__ = error.__cause__
    named.message = f"{error.message}; a newer snapshot could not be used: {refusal.message}"
    named.hint = "; or ".join(filter(None, (refusal.hint, error.hint)))
    return named


def no_mode(first: SnapreplayError, second: SnapreplayError) -> SnapreplayError:
    return NoRestoreMode(
        f"neither mode leads to the last increment: {first.message}; and {second.message}",
        hint=first.hint or second.hint,
        **{**second.facts, **first.facts},
    )


def whose_log(expected: Expected, found: FoundIncrement) -> WrongLog | None:
    """Say whose the log is, if it is not this app's, regardless of its inputs; None: it is."""
    return _differs(expected, found, _held_against(expected, found.increment))


def wrong_log(expected: Expected, found: FoundIncrement) -> WrongLog | None:
    """Say whose the log is, if it is not this app's with these inputs; None: it is."""
    return whose_log(expected, found) or _differs(expected, found, _inputs(expected, found.increment))


def _differs(
    expected: Expected, found: FoundIncrement, held: Iterable[tuple[str, object, object, str]]
) -> WrongLog | None:
    for name, recorded, now, hint in held:
        if recorded != now:
            return WrongLog(
                f"{name} recorded in {expected.increments_topic}-{expected.partition}"
                f" at offset {found.offset} is {recorded!r}, now it is {now!r}",
                hint=hint,
                recorded=recorded,
                found=now,
            )
    return None


def refuse(
    expected: Expected, owner_epoch: int, found: FoundIncrement, *, any_inputs: bool = False
) -> SnapreplayError | None:
    """Say why this process must not continue the last increment, or None. `any_inputs`: its inputs do not matter."""
    wrong, increment = (whose_log if any_inputs else wrong_log)(expected, found), found.increment
    if wrong is not None:
        return wrong
    recorded = increment.origin.schema_version
    if recorded != expected.schema_version and not expected.upgrades_from(recorded):
        where = f"{expected.increments_topic}-{expected.partition} offset {found.offset}"
        return schema_differs(f"batch {increment.batch} ({where})", recorded, expected.schema_version)
    read = fields_read(expected.fields, expected.upgrades, recorded)
    unknown = recorded_in(increment).refuse(read, increment.origin.app_version)
    if unknown is not None:
        return unknown
    if increment.owner_epoch > owner_epoch:
        return LogShorter(
            f"the last increment's owner epoch {increment.owner_epoch} is beyond this process's claim, {owner_epoch}:"
            " the log is shorter than before (re-created, unclean election)",
            hint="restore the topic from a replica, backup or mirror",
            recorded=increment.owner_epoch,
            found=owner_epoch,
        )
    return None


def recorded_in(increment: Increment) -> Recorded:
    """Return what is recorded of the values of the stores with entries."""
    counts = {store: digest.count for store, digest in increment.store_digests.items()}
    counts = counts or {DEFAULT_STORE: increment.digest.count}
    return Recorded(increment.fields, increment.layouts).of_entries(counts)


def _held_against(expected: Expected, increment: Increment) -> list[tuple[str, object, object, str]]:
    """Return what is compared: its name, as recorded, as it is now, and what helps when they differ."""
    genesis = increment.genesis
    return [
        (
            "app id",
            increment.origin.app_id,
            expected.app_id,
            f"the topics belong to another app; begin under another id: {new_app()}",
        ),
        (
            "cluster id",
            genesis.cluster_id,
            expected.cluster_id,
            "the recorded offsets mean nothing in another cluster: give the `--bootstrap-servers HOST:PORT` of the old"
            " one; or copy the state to a new app id, if this cluster is a copy that kept the offsets:"
            f" {new_app(f' --state-of {expected.app_id} --from positions')}; or process the inputs here from their"
            f" start under a new app id: {new_app()}",
        ),
        (
            "partition count",
            genesis.partition_count,
            expected.partition_count,
            keys_moved_hint(expected.app_id, genesis.partition_count),
        ),
    ]


def _inputs(expected: Expected, increment: Increment) -> Iterator[tuple[str, object, object, str]]:
    recorded = increment.genesis.start_offsets
    if not (expected.new_inputs(recorded) or expected.retired_inputs(recorded)):
        return
    yield (
        "inputs",
        ", ".join(sorted(recorded)),
        ", ".join(sorted((*expected.inputs, *(each.name for each in expected.patterns)))),
        f"to change the inputs of the app: `snapreplay inputs {expected.app()}`; or go back to the old inputs; or take"
        f" the state along to a new app id: {new_app(f' --state-of {expected.app_id} --from latest')}",
    )
