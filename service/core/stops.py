"""What stops a recovery until a person acts: the last increment held against what this process expects.

Pure; every refusal names both facts.
"""

from __future__ import annotations

from dataclasses import dataclass

from snapreplay.service.core.search import Found
from snapreplay.snapshots.errors import SnapreplayError, StopError
from snapreplay.snapshots.format.records import Claim

NEW_APP = '`App("NEW-ID", …)`, then `snapreplay init MODULE:APP`'
NO_ROAD_HINT = (
    "bring the input's records back, or the increments topic, from a backup or mirror; or process what is left"
    f" under a new app id ({NEW_APP}): its state starts empty."
    " To be spared this: changes = true, and retention.ms of the input longer than between two snapshots"
)


@dataclass(frozen=True)
class Expected:
    """Who we are and what the cluster looks like now."""

    app_id: str
    cluster_id: str
    partition: int
    partition_count: int
    inputs: frozenset[str]
    increments_topic: str
    instance_id: str
    process_id: str
    started_at_ms: int


class NotInitialised(StopError):
    """No genesis and no increment: never taken for a new app."""


class LogPinned(StopError):
    """A foreign transaction holds back the last stable offset of T-ZengLiang for longer than it may."""


class DuplicateInstance(StopError):
    """Two processes use the same instance id; the one that was started first stays down."""


class WrongLog(StopError):
    """The increments belong to another app, cluster, set of inputs or number of partitions."""


class LogShorter(WrongLog):
    """The last increment's owner claimed at an offset that the log has not reached again."""


class LogDamaged(StopError):
    """A record of T-ZengLiang that is needed cannot be read, and nothing leads around it."""


class NoRoad(StopError):
    """Neither the changes nor the input can bring the snapshot forward."""


def keys_moved_hint(old_count: int) -> str:
    """For another partition count than `old_count`: the one thing that nobody can accept."""
    return (
        "keys have moved between partitions and no state can follow them, so this cannot be accepted: copy the input"
        f" to a topic with the old count, `kafka-topics.sh --create --topic NEW --partitions {old_count}`;"
        f" or process it again under a new app id: {NEW_APP}"
    )


def no_genesis(expected: Expected) -> SnapreplayError:
    return NotInitialised(
        f"partition {expected.partition} of {expected.increments_topic} holds no increment of"
        f" app {expected.app_id!r}, not even the genesis",
        hint="a new app: `snapreplay init MODULE:APP`; an app that ran before: its increments were deleted,"
        " restore the topic, do not initialise it again",
        topic=expected.increments_topic,
        partition=expected.partition,
    )


def pinned(claim_offset: int, end_offset: int, high_watermark: int) -> SnapreplayError:
    return LogPinned(
        f"our claim at offset {claim_offset} stays invisible: last stable offset {end_offset},"
        f" high watermark {high_watermark}",
        hint="another transactional id left a transaction open in this topic:"
        " `kafka-transactions.sh find-hanging`, then `abort`; or one broker answers as a stale leader",
        claim_offset=claim_offset,
        last_stable_offset=end_offset,
        high_watermark=high_watermark,
    )


def duplicate_instance(expected: Expected, newer: Claim) -> SnapreplayError | None:
    """The error, when the newer owner calls itself by our instance id and is the younger process.

    By start and not by claim: claims cross in a race, and then each of the two would stay down for the other on
    some partition. The younger one claims again, and that is what the older one finds.
    """
    if newer.instance_id != expected.instance_id:
        return None
    ours = (expected.started_at_ms, expected.process_id)
    if (newer.started_at_ms, newer.process_id) <= ours:
        return None
    return DuplicateInstance(
        f"process {newer.pid} on host {newer.host} uses our instance id {newer.instance_id!r}"
        f" and has taken partition {expected.partition}",
        hint="give every process its own: `--set instance_id=NAME` or SNAPREPLAY_INSTANCE_ID; then restart this one",
        instance_id=newer.instance_id,
        other_host=newer.host,
        other_pid=newer.pid,
    )


def damaged(error: SnapreplayError) -> SnapreplayError:
    """What is damaged may be the last increment itself, so an older one must not be taken for it."""
    return LogDamaged(
        error.message,
        hint=error.hint
        or "run `snapreplay audit`; bring the topic back from a replica, backup or mirror",
        **error.facts,
    )


def no_road(first: SnapreplayError, second: SnapreplayError) -> SnapreplayError:
    return NoRoad(
        f"neither road leads to the last increment: {first.message}; and {second.message}",
        hint=first.hint or second.hint or NO_ROAD_HINT,
        **{**second.facts, **first.facts},
    )


def refuse(expected: Expected, owner_epoch: int, found: Found) -> SnapreplayError | None:
    """Why the last increment must not be continued by this process, or None."""
    increment, genesis = found.increment, found.increment.genesis
    checks = [
        (
            "app id",
            increment.origin.app_id,
            expected.app_id,
            f"the topics belong to another app; under a new app id: {NEW_APP}",
        ),
        (
            "cluster id",
            genesis.cluster_id,
            expected.cluster_id,
            "offsets of another cluster mean nothing here: `--bootstrap-servers HOST:PORT` of the old one; or"
            f" process what is here under a new app id: {NEW_APP}",
        ),
        (
            "partition count",
            genesis.partition_count,
            expected.partition_count,
            keys_moved_hint(genesis.partition_count),
        ),
        (
            "inputs",
            ", ".join(sorted(genesis.start_offsets)),
            ", ".join(sorted(expected.inputs)),
            f"the same app id was initialised on other inputs: use another app id ({NEW_APP}) or the old inputs",
        ),
    ]
    for name, recorded, now, hint in checks:
        if recorded != now:
            return WrongLog(
                f"{name} recorded in {expected.increments_topic}-{expected.partition}"
                f" at offset {found.offset} is {recorded!r}, now it is {now!r}",
                hint=hint,
                recorded=recorded,
                found=now,
            )
    if increment.owner_epoch > owner_epoch:
        return LogShorter(
            f"the last increment's owner epoch {increment.owner_epoch} lies beyond our claim {owner_epoch}",
            hint="the increments log is shorter than it was (topic re-created, unclean election?)",
            recorded=increment.owner_epoch,
            found=owner_epoch,
        )
    return None
