"""From the snapshot's state to the last increment's: two roads, one proof.

By changes the recorded entries are folded in; by replay the handlers run again over the recorded ranges, outputs
dropped. Either way the digest is compared after every batch, so the first differing one is named.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from snapreplay.service.core.road import Road
from snapreplay.service.partition.context import Context
from snapreplay.service.partition.decoding import decode_as
from snapreplay.service.partition.increments import Base, ChangesLost, Step
from snapreplay.service.partition.replay import Replayer, ReplayFailed
from snapreplay.service.partition.report import Reporter
from snapreplay.service.status import DigestProof
from snapreplay.snapshots.errors import DamagedError, StopError
from snapreplay.snapshots.format.changes import check_changes
from snapreplay.snapshots.format.records import DEFAULT_STORE, ChangesRecord, Increment
from snapreplay.snapshots.state.contract import Store


class DigestMismatch(StopError):
    """The state after a batch is not the one that was committed, though every record read is intact."""


class CodeChanged(StopError):
    """Replay under another app version gives another state: the handlers changed, nothing is corrupt."""


@dataclass
class Tally:
    """What advancing covered: batches, each compared by digest, and the records they had applied. `damage`: the first
    increment that could not be read; the digest of the next one has shown that nothing is missing."""

    batches: int = 0
    records: int = 0
    damage: str | None = None


async def advance(
    context: Context,
    store: Store,
    steps: AsyncIterator[Step],
    road: Road,
    reporter: Reporter,
    base: Base,
    last: Increment,
) -> Tally:
    """Bring `store` from the state of `base` to that after `last`.

    Raises:
        ChangesLost: by changes only; the other road may lead there.
        DamagedError: the same; by replay, when an increment cannot be read.
        OffsetTrimmed: by replay only; the input is gone.
        DigestMismatch, CodeChanged: STOP.
    """
    tally = Tally()
    replayer = None
    if road is Road.REPLAY:
        replayer = Replayer(context, store, base.positions, last.positions)
    try:
        async for step in steps:
            if replayer is None:
                _apply_unread(context, step, store)
                _apply_changes(context, step, store)
            else:
                await _replay(context, replayer, step)
            store.stream_time_ms = step.increment.stream_time_ms
            _compare(context, step, store, road)
            tally.batches += 1
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
    finally:
        if replayer is not None:
            await replayer.close()
    return tally


def prove(store: Store, last: Increment, tally: Tally) -> DigestProof | None:
    """The comparison that ends a recovery; None for a state that keeps no digest.

    Raises:
        DigestMismatch: the state is not the last increment's.
    """
    if last.digest is None:
        return None
    if store.digest != last.digest:
        raise DigestMismatch(
            f"restored state has digest {store.digest}, batch {last.batch} recorded {last.digest}",
            hint="run `snapreplay audit`; nothing was written",
            batch=last.batch,
            recorded=str(last.digest),
            computed=str(store.digest),
        )
    return DigestProof(str(last.digest), str(store.digest), max(1, tally.batches))


def _apply_unread(context: Context, step: Step, store: Store) -> None:
    """Whether this is all that those batches changed, nobody says; the next digest does."""
    first_batch = step.increment.batch - len(step.unread)
    for batch, each in enumerate(step.unread, first_batch):
        for part, value in enumerate(each.changes):
            record = decode_as(ChangesRecord, value, context.increments, each.offset)
            if (record.batch, record.part) != (batch, part):
                raise each.error
            store.apply_changes(record.stores.get(DEFAULT_STORE, {}))


def _apply_changes(context: Context, step: Step, store: Store) -> None:
    log, increment = context.increments, step.increment
    where = f"{log} offset {step.offset}: batch {increment.batch}"
    if increment.changes is None:
        if increment.ranges:
            raise ChangesLost(f"{where} was written without changes (changes = false)")
        return
    try:
        for stores in check_changes(increment.changes, step.changes):
            store.apply_changes(stores.get(DEFAULT_STORE, {}))
    except DamagedError as error:
        raise DamagedError(f"{where}: {error.message}", hint=error.hint, **error.facts) from error


async def _replay(context: Context, replayer: Replayer, step: Step) -> None:
    """A refusal by handlers of another version than the batch's says that the code changed."""
    try:
        await replayer.apply(step)
    except ReplayFailed as error:
        if step.increment.origin.app_version == context.app.version:
            raise
        raise code_changed(error.message, step.increment, context.app.version) from error


def _compare(context: Context, step: Step, store: Store, road: Road) -> None:
    increment, app, recorded = step.increment, context.app, step.increment.digest
    if recorded is not None and store.digest == recorded:
        return
    for each in step.unread:  # nothing else proves that nothing of them is missing
        raise each.error
    if recorded is None:
        _refuse_unproven(step, app.version)
        return
    facts = {
        "batch": increment.batch,
        "offset": step.offset,
        "recorded": str(recorded),
        "computed": str(store.digest),
        "road": road.value,
    }
    where = f"batch {increment.batch} (increment at offset {step.offset})"
    if road is Road.REPLAY and increment.origin.app_version != app.version:
        raise code_changed(where, increment, app.version, **facts)
    raise DigestMismatch(
        f"{where} by {road.value}: digest {store.digest}, recorded {recorded};"
        f" written by {increment.origin.fingerprint}",
        hint="by replay: the handlers are not deterministic, `snapreplay.testing.check` names the first record;"
        " restart with restore.road = changes"
        if road is Road.REPLAY
        else "run `snapreplay audit`; restart with restore.road = replay",
        **facts,
    )


def _refuse_unproven(step: Step, version: str) -> None:
    """A state that keeps no digest cannot show that other handlers made the same of these records."""
    increment = step.increment
    if not increment.ranges or increment.origin.app_version == version:
        return
    raise CodeChanged(
        f"batch {increment.batch} (increment at offset {step.offset}) was processed by app version"
        f" {increment.origin.app_version}, this is {version}: a state that is no map has no digest to prove that"
        " replaying gives the same",
        hint="start the old version and stop it (its last snapshot needs no replay), then start the new one; or,"
        " if the change makes no difference to these records, give App the old version= for one start",
        recorded_version=increment.origin.app_version,
        version=version,
    )


def code_changed(where: str, increment: Increment, version: str, **facts: object) -> CodeChanged:
    """Both versions and the three ways out."""
    return CodeChanged(
        f"{where} was processed by app version {increment.origin.app_version}, this is {version}:"
        " replaying with changed handlers gives another state",
        hint="restart with restore.road = changes (needs no handler code); or start the old version, `snapreplay"
        " trigger-snapshot --wait`, stop it, start the new one",
        recorded_version=increment.origin.app_version,
        version=version,
        **facts,
    )


def _entries(store: Store) -> int:
    digest = store.digest
    return digest.count if digest is not None else 0
