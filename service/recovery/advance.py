"""From the snapshot's state to the last increment's: two modes, one proof.

By changes the recorded entries are folded in; by replay the handlers run again over the recorded ranges, outputs
dropped but compared. Either way each recorded digest is compared, so the first differing batch is named.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from snapreplay.app.ways import go_on
from snapreplay.errors import DamagedError
from snapreplay.service.control.status import DigestProof
from snapreplay.service.core.base import Base
from snapreplay.service.core.restore_mode import RestoreMode
from snapreplay.service.recovery.comparison import Comparison
from snapreplay.service.recovery.mismatch import CodeChanged, DigestMismatch, OutputsDiffer
from snapreplay.service.recovery.replay import InputDiffers, Replayer, ReplayFailed
from snapreplay.service.runtime.context import Context
from snapreplay.service.runtime.cooperative import Pauses, run_cooperatively
from snapreplay.service.runtime.report import Reporter
from snapreplay.service.topics.decode import decode_as
from snapreplay.service.topics.increments import ChangesLost, Step
from snapreplay.snapshots.format.changes import check_changes
from snapreplay.snapshots.format.records import ChangesRecord, Increment
from snapreplay.state.contract import Store
from snapreplay.state.digest import Digest, wrong_stores


@dataclass
class Tally:
    """What advancing covered: digests that were compared, and the records that were applied.

    Attributes:
        damage: the first increment that could not be read; the digest of the next one shows that nothing is missing.
        has_changes: each batch with records has its changes in the log, too.
        computed: the digest of the state as it is, if it was computed at the end of the way.
    """

    digests: int = 0
    records: int = 0
    damage: str | None = None
    has_changes: bool = True
    computed: Digest | None = None


async def advance(
    context: Context,
    store: Store,
    steps: AsyncIterator[Step],
    mode: RestoreMode,
    reporter: Reporter,
    base: Base,
    last: Increment,
) -> Tally:
    """Bring `store` from the state of `base` to that after `last`.

    Raises:
        ChangesLost: by changes only; the other mode may lead there.
        DamagedError: the same; by replay, when an increment cannot be read.
        OffsetTrimmed: by replay only; the input is gone.
        OutputsDiffer, DigestMismatch, CodeChanged: STOP.
    """
    tally, pauses = Tally(), Pauses()
    comparison = Comparison(store, mode, context.app.version, context.partition)
    replayer = None
    if mode is RestoreMode.REPLAY:
        replayer = Replayer(context, store, base.positions, last.positions, base.topic_ids)
    try:
        async for step in steps:
            tally.has_changes = tally.has_changes and _has_changes(step)
            sent = None
            if replayer is None:
                _apply_unread(context, step, store)
                await _apply_changes(context, step, store, pauses)
            else:
                sent = await _replay(comparison, replayer, step)
            store.stream_time_ms = step.increment.stream_time_ms
            await comparison.batch(step, sent)
            tally.digests, tally.computed = comparison.digests, comparison.computed
            tally.records += step.increment.record_count
            tally.damage = tally.damage or next((u.error.message for u in step.unread), None)
            reporter.progress(
                "records",
                sum(base.positions.values()),
                sum(step.increment.positions.values()),
                sum(last.positions.values()),
            )
            reporter.restore(
                records_replayed=tally.records if replayer else 0, entries=_entries(store)
            )
            await pauses.when_due()  # what was polled at once holds many small batches
        comparison.end()
    except (CodeChanged, DigestMismatch, OutputsDiffer, ReplayFailed, InputDiffers) as error:
        if replayer is not None:
            async for step in steps:
                tally.has_changes = tally.has_changes and _has_changes(step)
            error.hint = _with_changes(context, store, error.hint, tally)
        raise
    finally:
        if replayer is not None:
            await replayer.close()
    return tally


def _has_changes(step: Step) -> bool:
    return step.increment.changes is not None or step.increment.is_empty


def _with_changes(context: Context, store: Store, hint: str, tally: Tally) -> str:
    """The other mode, where every batch up to the last one has recorded its changes."""
    if not (tally.has_changes and store.keeps_changes):
        return hint
    settings = "--set restore.mode=changes"
    if not context.settings.changelog.enabled:
        settings = f"--set changelog.enabled=true {settings}"
    mode = f"`{settings}` needs no handler: with it, {go_on(context.partition)}"
    return f"{mode}; or {hint}" if hint else mode


async def prove(store: Store, last: Increment, tally: Tally) -> DigestProof | None:
    """The comparison that ends a recovery; None where the last increment has no digest.

    Raises:
        DigestMismatch: the state is not the last increment's.
    """
    if last.digest is None:
        return None
    computed = tally.computed
    if computed is None:
        computed = await run_cooperatively(store.digesting())
    if computed != last.digest:
        raise DigestMismatch(
            f"the restored state has digest {computed}, but batch {last.batch} recorded {last.digest}"
            f"{wrong_stores(last.store_digests, store.store_digests)}",
            batch=last.batch,
            recorded=str(last.digest),
            computed=str(computed),
        )
    return DigestProof(str(last.digest), str(computed), max(1, tally.digests))


def _apply_unread(context: Context, step: Step, store: Store) -> None:
    """Only the next digest shows whether this is all that those batches changed."""
    first_batch = step.increment.batch - len(step.unread)
    for batch, each in enumerate(step.unread, first_batch):
        for part, value in enumerate(each.changes):
            record = decode_as(ChangesRecord, value, context.increments, each.offset)
            if (record.batch, record.part) != (batch, part):
                raise each.error
            store.apply_changes(record.stores)


async def _apply_changes(context: Context, step: Step, store: Store, pauses: Pauses) -> None:
    log, increment = context.increments, step.increment
    if increment.cleared:
        store.apply_changes({}, increment.cleared)
    where = f"{log} offset {step.offset}: batch {increment.batch}"
    if increment.changes is None:
        if not increment.is_empty:
            raise ChangesLost(f"{where} was written without changes (changelog.enabled = false)")
        return
    try:
        for stores in check_changes(increment.changes, step.changes):
            store.apply_changes(stores)
            await pauses.when_due()
    except DamagedError as error:
        raise DamagedError(f"{where}: {error.message}", hint=error.hint, **error.facts) from error


async def _replay(comparison: Comparison, replayer: Replayer, step: Step) -> dict[str, int]:
    """A refusal by code of another version than the batch's says that the code changed."""
    try:
        return await replayer.apply(step)
    except ReplayFailed as error:
        meaning = comparison.refused(step, error)
        if meaning is error:
            raise
        raise meaning from error


def _entries(store: Store) -> int:
    digest = store.digest
    return digest.count if digest is not None else 0
