"""The rule: no state in memory is dropped while the log has no proven copy of it. Judges what the log has, and what is
written if that state is the only copy. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

import msgspec

from snapreplay.app.ways import ensure, look_again
from snapreplay.counted import counted
from snapreplay.errors import RetryableError, StopError
from snapreplay.service.core.effects import BeginChain
from snapreplay.service.core.inspected import TopicChange
from snapreplay.service.core.refusals import Expected
from snapreplay.service.core.retained import RetainedState, Warm
from snapreplay.service.core.search import FoundIncrement
from snapreplay.snapshots.format.records import Increment


class Verdict(Enum):
    """The relation of the log to a state in memory."""

    SAME = "the log ends with the batch of this state"
    LEADS_ON = "the log holds the batches that follow this state"
    ONLY_COPY = "the log does not lead to this state, and no other process has owned the partition since"
    DISPUTED = "the log does not lead to this state, and another process has owned the partition since"


class IncrementsMissing(RetryableError):
    """The increments topic does not exist: nothing can be committed, and processes must keep their state in memory.

    Safe: Do not stop this process: its memory has the only copy of the state. The partition waits for the topic, and
    its input waits.
    """


class IncrementsReplaced(RetryableError):
    """The increments topic was replaced by another log, or was truncated."""


class StateDisputed(StopError):
    """The increments topic was replaced or truncated, and another process may have a newer state. This process keeps
    its state, but does not write it.

    Safe: Nothing is committed, and this process keeps its state in memory. A stop discards it, so first wait for the
    other process, which writes its own state.
    """


class StateUnsaved(StopError):
    """The state in memory is the only copy.

    Safe: Do not kill a process that still runs: it writes the state once the topics exist. If the process has ended,
    its state is lost; the state in the topics stays.
    """


class DoubtUnresolved(StopError):
    """The increments topic was replaced, and nothing shows whether the last batch was committed. The process keeps its
    state.

    Safe: Do not stop this process: its memory has the only copy of the state. Nothing is committed, and the input
    waits.
    """


def verdict(
    kept: RetainedState, found: FoundIncrement | None, increments: str, topic_ids: Mapping[str, str]
) -> Verdict:
    """Judge by `found`, the last increment of the log.

    Owner epochs are offsets, so they compare within one topic only. If the topic was replaced, an increment with the
    new id belongs to a chain that began there; one with another id was written by an owner that had not noticed. In a
    log that was cut, a later claim may lie at or below ours: then only the coordinator's last fence, or the time of
    writing, tells.
    """
    if found is None:
        return _lost(kept)
    last, newest = kept.last, found.increment
    same_log = _is_of(last, increments, topic_ids)
    if same_log and not kept.replaced and kept.warm(found) is not None:
        return Verdict.SAME
    is_later = newest.written_at_ms > last.written_at_ms and newest != kept.doubtful
    is_theirs = is_later or newest.owner_epoch > last.owner_epoch if same_log else _is_of(newest, increments, topic_ids)
    if not is_theirs:
        return _lost(kept)
    leads_on = newest.batch > last.batch or newest.is_accepted  # who must not be asked twice
    return Verdict.LEADS_ON if leads_on else Verdict.DISPUTED


def is_written_after(newest: FoundIncrement, before: FoundIncrement | None, increments: str) -> bool:
    """Say whether the last increment of the log was written after `before`, which was found earlier (None: nothing). A
    stale leader, or a log that has lost more, ends with an older one."""
    if before is None:
        return True
    if newest == before:
        return False
    other_log = newest.increment.topic_ids.get(increments, "") != before.increment.topic_ids.get(increments, "")
    is_later = newest.increment.written_at_ms > before.increment.written_at_ms
    return other_log or is_later or newest.offset > before.offset


def _is_of(increment: Increment, topic: str, topic_ids: Mapping[str, str]) -> bool:
    """Say whether it was meant for the topic that has this name now. Without ids nothing says otherwise."""
    recorded, now = increment.topic_ids.get(topic), topic_ids.get(topic)
    return not recorded or not now or recorded == now


def _lost(kept: RetainedState) -> Verdict:
    return Verdict.ONLY_COPY if kept.unbroken else Verdict.DISPUTED


def missing(ours: Expected, last: Increment) -> RetryableError:
    """Make the error for a missing topic; the state in memory is the one after `last`."""
    return IncrementsMissing(
        f"topic {ours.increments_topic} of app {ours.app_id!r} was deleted; the state of partition {ours.partition}"
        f" ({_described(last)}) exists only in this process's memory",
        hint=f"create the topic again with {ensure(ours.app())}: the state is then written to it at once. Do not stop"
        " this process",
        topic=ours.increments_topic,
        partition=ours.partition,
        batch=last.batch,
    )


def lost(ours: Expected, change: TopicChange, last: Increment) -> RetryableError:
    """Say what a change of the increments topic means to its owner; `last` is its last increment."""
    return missing(ours, last) if change.found_id is None else IncrementsReplaced(str(change))


def unsaved(ours: Expected, last: Increment, aside: str = "") -> StopError:
    """Make the error for a state that is dropped. `aside`: the snapshot that has it, and nothing points to; or ""."""
    after = "`snapreplay accept` can continue from it after the next start"
    written = f"; snapshot {aside} has it, and {after}" if aside else ""
    return StateUnsaved(
        f"the state of partition {ours.partition} ({_described(last)}) exists only in this process's memory:"
        f" a recovery from {ours.increments_topic} would not restore it{written}",
        hint=f"{ensure(ours.app())} creates what is missing: the state is then written at once",
        partition=ours.partition,
        batch=last.batch,
    )


def disputed(ours: Expected, kept: RetainedState, found: FoundIncrement | None) -> StopError:
    """Make the error for a log that does not lead to the state in memory."""
    there = (
        f"ends with batch {found.increment.batch} of owner epoch {found.increment.owner_epoch}"
        if found is not None
        else "holds no increment that can be read"
    )
    return StateDisputed(
        f"{ours.increments_topic}-{ours.partition} does not lead to the state in this process's memory"
        f" ({_described(kept.last)}): it {there}. Another process may have owned the partition since, and its state may"
        " be newer than this one",
        hint="if the other process still runs, it writes its own state by itself. Otherwise stop this process, which"
        f" gives up its state, and start it again: `snapreplay run {ours.app()}`. Its hint then names what can be"
        " accepted",
        batch=kept.last.batch,
        found_batch=found.increment.batch if found is not None else None,
    )


def unresolved(ours: Expected, kept: RetainedState, why: str) -> StopError:
    batch = kept.doubtful.batch if kept.doubtful is not None else kept.last.batch
    return DoubtUnresolved(
        f"{ours.increments_topic}-{ours.partition} was replaced while batch {batch} was being committed, and its"
        f" outputs do not show whether it was committed: {why}; the state ({_described(kept.last)}) is held in memory",
        hint=f"restore the output topic from a mirror that has its last records, then {look_again(ours.partition)}",
        batch=batch,
    )


def _described(last: Increment) -> str:
    return f"batch {last.batch}, {counted(last.digest.count, 'entry')}"


class Healing(msgspec.Struct, frozen=True):
    """The healing of a log that ends with `found`. `topic_ids`: of both own topics now."""

    found: FoundIncrement | None
    increments: str
    topic_ids: Mapping[str, str]

    @staticmethod
    def doubt(kept: RetainedState, found: FoundIncrement | None) -> Warm | None:
        """Tell what became of the batch in doubt; None: only one of its outputs tells. A commit without outputs that
        was asked for counts as done."""
        if kept.doubtful is None:
            return Warm.KEPT
        if found is not None and found.increment == kept.doubtful:
            return Warm.MERGED
        if kept.ending is None or not kept.ending.asked:
            return Warm.DROPPED
        return Warm.MERGED if kept.ending.output is None else None

    def begin(self, kept: RetainedState) -> BeginChain:
        """Return what to write once the store holds exactly the state after `kept.last`."""
        recorded = kept.last.topic_ids.get(self.increments, "")
        now = {name: each for name, each in self.topic_ids.items() if each}
        standing = msgspec.structs.replace(kept.last, topic_ids={**kept.last.topic_ids, **now})
        there = (
            f"ends with batch {self.found.increment.batch} at offset {self.found.offset}"
            if self.found is not None
            else "holds no increment"
        )
        replaced = now.get(self.increments, recorded) != recorded
        how = "was deleted and created again" if replaced else "was cut, or nothing can be restored from it,"
        problem = f"topic {self.increments} {how} and {there}; the state in memory is that of batch {kept.last.batch}"
        facts = {
            "batch": kept.last.batch,
            "recorded_id": recorded,
            "found_id": now.get(self.increments, ""),
            "found_batch": self.found.increment.batch if self.found is not None else None,
        }
        return BeginChain(standing, problem, facts)


def settled(kept: RetainedState, doubt: Warm) -> tuple[FoundIncrement, Warm]:
    """Return the batch that the state is to be of, and how the store gets there."""
    if doubt is Warm.MERGED:
        return kept.held, Warm.MERGED
    last = FoundIncrement(kept.last, kept.last_offset)
    return last, Warm.KEPT if kept.doubtful is None else Warm.DROPPED
