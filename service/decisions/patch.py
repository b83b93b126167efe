"""Corrects single entries of the state: it is restored and proven, and the lines are compared with it. Then the
partition is fenced, and an increment records the decision and points to a snapshot of the corrected state. No handler
runs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any

import msgspec

from snapreplay.app.app import App
from snapreplay.counted import counted
from snapreplay.errors import DamagedError, ReleaseError, UsageError
from snapreplay.service.config.settings import Settings
from snapreplay.service.core.chain import standing_for
from snapreplay.service.core.kafka_errors import Fenced, OffsetTrimmed
from snapreplay.service.core.owners import Superseded
from snapreplay.service.core.refusals import LogCut
from snapreplay.service.core.refusals import refuse as refuse_last
from snapreplay.service.core.search import FoundIncrement
from snapreplay.service.core.witness import IncrementsBehind
from snapreplay.service.ports import Cluster
from snapreplay.service.preflight import inspect
from snapreplay.service.publish.owned import Owned, owned
from snapreplay.service.publish.state import Begun, LogWentOn, begin_chain, by_whom
from snapreplay.service.recovery.examine import Examiner, News, OnNews
from snapreplay.service.recovery.follower import DigestMismatch
from snapreplay.service.runtime.context import Context, contexts_of
from snapreplay.service.topics.log_bounds import read_starts
from snapreplay.service.topics.reading import decided_bounds
from snapreplay.snapshots.format.records import PATCHED_KIND
from snapreplay.snapshots.log.batches import BrokenChain, ChangesLost
from snapreplay.snapshots.plan import chain_began_at
from snapreplay.state.correction import Correction, correct, corrections_of, entry_of, refusals, refuse, timers_of
from snapreplay.state.digest import Digest

INSTANCE_ID = "snapreplay-patch"
ATTEMPTS_MAX = 4
"""The most attempts. A running owner takes its partition back after 1 s, then 2 s, 4 s and 8 s, so a large state has
more time in a later one."""
ENTRIES_SHOWN = 20
"""The most entries that a decision names."""


class OwnerTookItBack(ReleaseError):
    """The running owner fenced the command before the snapshot was written.

    Safe: Nothing was changed in this partition, and its owner continues. Partitions that the command has printed as
    corrected stay corrected, and the same file skips them.
    """


class OtherVersion(UsageError):
    """This version of the app stores other fields than the version that wrote the state.

    Safe: Nothing was changed in this partition, and its owner continues.
    """


class Patch(msgspec.Struct, frozen=True):
    """The corrections of one partition. `examiner` holds its uncorrected state."""

    context: Context
    corrections: Sequence[Correction]
    examiner: Examiner

    @property
    def partition(self) -> int:
        return self.context.partition

    @property
    def last(self) -> FoundIncrement:
        return self.examiner.found

    @property
    def has_values(self) -> bool:
        """Whether the entries have the values already that they are to get."""
        return all(entry_of(self.examiner.store, each)[1] == each.stored[1] for each in self.corrections)

    @property
    def timers(self) -> dict[int, list[str]]:
        """The names of the timers that are deleted with their entries, by line."""
        found = timers_of(self.examiner.store, self.corrections)
        return {line: sorted(each.name for each in timers) for line, timers in found.items()}


async def propose(
    app: App[Any], settings: Settings, cluster: Cluster, lines: Iterable[bytes], reason: str, on_news: OnNews
) -> list[Patch]:
    """Restore the states and compare the lines with them. Only reads; `on_news` hears how far it is. All partitions are
    restored if a line does not name its own; `reason` is for lines that give none.

    Returns:
        By partition; none where the lines have been carried out already. The caller closes them.

    Raises:
        NotCorrected: lines that cannot be read, or expect something else than the state has.
        LogWentOn: another decision was made meanwhile.
        StopError: a recovery of a partition would fail.
        OlderState, OtherVersion: another version of the app must write to this state.
        UsageError, Unreachable: as preflight.
    """
    view = await inspect(app, settings, cluster)
    corrections = corrections_of(lines, app.new_store().view, view.partition_count, reason)
    named = {each.partition for each in corrections}
    contexts = [
        each
        for each in contexts_of(app, settings, cluster, view, INSTANCE_ID)
        if None in named or each.partition in named
    ]
    patches: list[Patch] = []
    try:
        for context in contexts:
            patches.append(await _patch(context, corrections, on_news))  # noqa: PERF401 - closed if a later one fails
        refuse(_misplaced(corrections, patches))
        done = [each for each in patches if each.corrections and await _is_done(each)]
        for each in done:
            on_news(f"partition {each.partition}: skipped, because its lines were applied before")
        await close(each for each in patches if each in done or not each.corrections)
        patches = [each for each in patches if each.corrections and each not in done]
        refuse([why for each in patches for why in _refused(each)])
    except BaseException:
        await close(patches)
        raise
    return patches


async def _is_done(patch: Patch) -> bool:
    """Say whether all entries are as the lines want them, also with what was committed up to now."""
    if not patch.has_values:
        return False
    context, examiner = patch.context, patch.examiner
    await decided_bounds(context.cluster, context.increments)
    newer = await examiner.newer()
    if newer is not None:
        _refuse_another_decision(patch, newer)
        await examiner.follow(newer)
    return patch.has_values


async def close(patches: Iterable[Patch]) -> None:
    """Give up what their examiners hold."""
    for each in patches:
        await each.examiner.close()


async def _patch(context: Context, corrections: Sequence[Correction], on_news: OnNews) -> Patch:
    examiner = Examiner(context, context.app.new_store(), News(on_news, context.partition))
    try:
        _refuse_other_fields(context, await examiner.restored())
        number = context.partition
        mine = [each._replace(partition=number) for each in corrections if _is_in(each, number, examiner)]
    except BaseException:
        await examiner.close()
        raise
    return Patch(context, mine, examiner)


def _refuse_other_fields(context: Context, last: FoundIncrement) -> None:
    """Raise OtherVersion if the decision would record other fields or another layout than the last increment has."""
    increment, later = last.increment, context.recorded_after(last.increment)
    if later.fields == increment.fields and later.layouts == increment.layouts:
        return
    what = "another layout" if later.fields == increment.fields else "other fields"
    raise OtherVersion(
        f"partition {context.partition}: values have {what} in app version {context.app.version} than in"
        f" {increment.origin.app_version}, which wrote the state and could not read corrected entries",
        hint="run the command with the version that wrote the state; or let this version commit a batch first",
    )


def _is_in(correction: Correction, partition: int, examiner: Examiner) -> bool:
    if correction.partition is not None:
        return correction.partition == partition
    return entry_of(examiner.store, correction)[1] is not None


def _misplaced(corrections: Sequence[Correction], patches: Sequence[Patch]) -> list[str]:
    """Return a message for each line that fits no partition, or several, or an entry that another line is for."""
    problems = []
    for patch in patches:
        lines: dict[tuple[str, Any], int] = {}
        for each in patch.corrections:
            first = lines.setdefault((each.store, each.key), each.line)
            if first != each.line:
                problems.append(
                    f"line {each.line}: {each.place} of partition {patch.partition} is in line {first} already"
                )
    for each in corrections:
        places = [patch.partition for patch in patches if each.line in {one.line for one in patch.corrections}]
        if not places:
            problems.append(f"line {each.line}: {each.place} is in no partition{_why_nowhere(each)}")
        elif len(places) > 1:
            problems.append(
                f"line {each.line}: {each.place} is in the partitions {', '.join(map(str, places))}:"
                ' say which with "partition"'
            )
    return problems


def _why_nowhere(correction: Correction) -> str:
    if correction.expected is msgspec.UNSET:
        return ': an entry that is added needs "partition"'
    deleted = correction.value is msgspec.UNSET
    return ': if an interrupted run has deleted it, say in which "partition"' if deleted else ""


def _refused(patch: Patch) -> list[str]:
    return list(refusals(patch.examiner.store, patch.corrections))


async def carry_out(patch: Patch) -> Begun:
    """Fence, claim, compare once more, write the snapshot, commit the decision. The patch cannot be used again. If the
    owner takes the partition back meanwhile, it is tried again; batches that it has committed are kept.

    Raises:
        NotCorrected: an entry has changed meanwhile.
        OwnerTookItBack: `ATTEMPTS_MAX` times in a row.
        LogWentOn: what the owner has committed cannot be followed, or the log is another.
        OutputsDiffer, CodeChanged, InputDiffers, ReplayFailed: without recorded changes it is replayed, in vain.
        CommitInDoubt, Unreachable: only the log shows what happened.
    """
    for attempt in count(1):
        try:
            return await _carried_out(patch)
        except (Fenced, Superseded) as error:
            if attempt == ATTEMPTS_MAX:
                raise OwnerTookItBack(
                    f"the running owner took partition {patch.partition} back {attempt} times before its snapshot was"
                    f" written, so nothing was changed: {error.message}",
                    hint="if the app runs, stop it; if another patch runs, wait for it. Then run the command again",
                ) from error
        finally:
            await patch.examiner.close()
        patch = await _patch(patch.context, patch.corrections, _silent)
    raise AssertionError("the last attempt returned or raised")


def _silent(_: str) -> None:
    """Say nothing: the first attempt has said it."""


async def _carried_out(patch: Patch) -> Begun:
    context, examiner = patch.context, patch.examiner
    async with owned(context) as ours:
        await _catch_up(patch, ours)
        refuse(_refused(patch), f" in partition {patch.partition}")
        store, last = examiner.store, patch.last
        before, timers = store.digest, patch.timers
        correct(store, patch.corrections)
        standing = standing_for(last, store.digest, store.store_digests)
        standing = msgspec.structs.replace(standing, topic_ids=_topic_ids(patch))
        decision = _decision(patch, before, store.digest, timers)
        return await begin_chain(context, ours.producer, ours.owner_epoch, store, standing, decision)


def with_timers(names: Sequence[str]) -> str:
    """Say which timers are deleted with an entry: " and its timer remind"; empty: none."""
    return f" and its {'timer' if len(names) == 1 else 'timers'} {', '.join(names)}" if names else ""


def _topic_ids(patch: Patch) -> dict[str, str]:
    """Return the ids of the inputs as examined, or as the owner continued with; and those of both own topics."""
    context = patch.context
    own = {topic: context.view.topic_ids[topic] for topic in (context.increments.topic, context.snapshots.topic)}
    return {**patch.examiner.topic_ids, **own}


async def _catch_up(patch: Patch, ours: Owned) -> None:
    """Bring the state to the last increment before our claim. Much may have happened since it was examined."""
    context, examiner = patch.context, patch.examiner
    own = [context.increments.topic, context.snapshots.topic]
    ids = await context.cluster.topic_ids(own)
    if ours.owner_epoch < examiner.end_offset or any(ids.get(n) != context.view.topic_ids.get(n) for n in own):
        raise _went_on(patch, "its log was truncated or created again since it was examined")
    newer = await ours.last_increment(examiner.end_offset)
    if newer is not None:
        await _follow(patch, ours, newer)
    try:
        await read_starts(context, patch.last)
    except (IncrementsBehind, LogCut) as error:
        raise _went_on(patch, f"its log has lost its newest records since it was examined: {error.message}") from error


async def _follow(patch: Patch, ours: Owned, newer: FoundIncrement) -> None:
    went_on = f"it has committed up to batch {newer.increment.batch} since it was examined"
    _refuse_another_decision(patch, newer)
    if (refusal := refuse_last(patch.context.expected, ours.owner_epoch, newer)) is not None:
        raise _went_on(patch, f"{went_on}: {refusal.message}") from refusal
    try:
        await patch.examiner.follow(newer)
    except (BrokenChain, ChangesLost, DamagedError, DigestMismatch, OffsetTrimmed) as error:
        raise _went_on(patch, f"{went_on}, and its changes do not lead there: {error.message}") from error


def _refuse_another_decision(patch: Patch, newer: FoundIncrement) -> None:
    decided = chain_began_at(newer.increment, newer.offset)
    if decided != chain_began_at(patch.last.increment, patch.last.offset):
        raise LogWentOn(
            f"partition {patch.partition}: another decision was made since it was examined, at"
            f" {patch.context.increments} offset {decided}. Nothing was changed",
            hint="run the command again: it examines the present state",
        )


def _went_on(patch: Patch, what: str) -> LogWentOn:
    return LogWentOn(
        f"partition {patch.partition}: {what}. Nothing was changed",
        hint="stop the app, run the command again, and start the app",
    )


def _decision(patch: Patch, before: Digest, after: Digest, timers: dict[int, list[str]]) -> dict[str, str]:
    corrections, batch = patch.corrections, patch.last.increment.batch
    entries = [f"{each}{with_timers(timers.get(each.line, ()))}" for each in corrections]
    entries[ENTRIES_SHOWN:] = [f"and {len(entries) - ENTRIES_SHOWN} more"] if len(entries) > ENTRIES_SHOWN else []
    digest = hashlib.sha256(f"{patch.context.increments} {patch.last.offset} {corrections}".encode()).hexdigest()
    return {
        "finding": f"{PATCHED_KIND}-{digest[:8]}",
        "problem": f"{counted(len(corrections), 'entry')} of the state after batch {batch} had to be corrected",
        "decided": f"{'; '.join(entries)}; digest {before} became {after}; no handler ran, and no outputs were written",
        "reason": "; ".join(dict.fromkeys(each.reason for each in corrections))[:1000],
        "by": by_whom(),
    }
