"""The pipeline: poll, apply, commit; while one batch's transaction commits (IO) the next is applied (CPU).

Order inside one turn: apply N+1 on top of N → settle N (merge) → mark a snapshot if one is due (nothing uncommitted
is merged here, so its image is a committed state) → seal N+1 and start its transaction.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from msgspec import UNSET
from msgspec.structs import replace

from snapreplay.app.batch import Applied, ErrorPolicy, Portion
from snapreplay.app.fold import Fold
from snapreplay.app.ranges import Anchor, PositionAnchor, anchor_of
from snapreplay.app.record import InputRecord, id_of
from snapreplay.errors import RecordError, SnapreplayError
from snapreplay.service.control.operations import OnDone, OperationState
from snapreplay.service.core.batch_failures import BatchBisection, HandlerFailed, handler_failed
from snapreplay.service.core.chain import positions_after
from snapreplay.service.core.partitioners import misplaced
from snapreplay.service.core.retained import RetainedState
from snapreplay.service.live.caller import Caller
from snapreplay.service.live.committer import Committed, Committer
from snapreplay.service.live.fetcher import Ends, Fetcher, InputGuard
from snapreplay.service.live.live_report import DeadLetterCheck, DeadLetterLimitReached, LiveReport
from snapreplay.service.live.pace import AT_REST, QUIET, WAITED_FOR, AtWork, IdleTime, Pace
from snapreplay.service.live.snapshot_scheduler import SnapshotScheduler
from snapreplay.service.recovery.driver import Recovered
from snapreplay.service.runtime.context import Context
from snapreplay.service.runtime.cooperative import feeding, pause, run_cooperatively
from snapreplay.service.runtime.report import Reporter
from snapreplay.service.runtime.schemas import SchemasOf, SchemaWait
from snapreplay.service.runtime.tasks import within
from snapreplay.snapshots.format.records import NO_REASON, Increment, Paused


class KeySample:
    """Looks at the first and the last record of each batch: a producer that hashes differently misplaces most keys."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._is_needed = any(each.partitioner for each in context.app.inputs)
        self._named: set[str] = set()

    def look(self, records: Sequence[InputRecord]) -> None:
        """Log an error for each topic with a key in another partition, once."""
        if not self._is_needed:
            return
        for record in (records[0], records[-1]):
            declared = self._context.app.declaration(record.topic)
            if declared is None or declared.partitioner is None or record.topic in self._named:
                continue
            count = self._context.view.partition_count
            if proof := misplaced(record.key, record.partition, count, declared.partitioner):
                self._named.add(record.topic)
                log.error(
                    "partition %d: the producer of %s does not partition by %s, as the app declares: %s. Handlers of"
                    " other inputs have this key in another partition, with another state; `snapreplay doctor` samples"
                    " all inputs",
                    self._context.partition,
                    record.topic,
                    declared.partitioner,
                    proof,
                )


log = logging.getLogger("snapreplay.partition")

BUSY_POLL_MS = 5  # a transaction is under way: look at its answer soon
POLLED_RECORDS = 1024  # unpacked in one go, a millisecond


class _Refused(NamedTuple):
    """A record or timer that the broker does not take; `anchor` of the record."""

    error: RecordError
    anchor: Anchor | None

    def is_replaced_by(self, record: InputRecord) -> bool:
        """Say whether another record has the offset of the refused one: the log was cut since."""
        return self.error.record_id == id_of(record) and self.anchor != anchor_of(record)


class Pausing:
    """Lives and dies with one LIVE incarnation. A pause or its end is done when an increment says so."""

    def __init__(
        self, context: Context, committer: Committer, fetcher: Fetcher, doubt_inputs: Callable[[str], None]
    ) -> None:
        """Take `doubt_inputs`, which makes the inputs be compared and read again from the committed positions."""
        self._context, self._committer, self._fetcher = context, committer, fetcher
        self._doubt_inputs = doubt_inputs
        self._done: OnDone | None = None
        self._asked = asyncio.Event()

    @property
    def is_paused(self) -> bool:
        return self._committer.chain.paused is not None

    @property
    def committed(self) -> Paused | None:
        """The pause in the log, unless its end was requested."""
        return self._committer.chain.last.paused if self.is_paused else None

    def ask(self, paused: Paused | None, done: OnDone) -> None:
        """Pause after the batch in progress, or resume (None). `done` is called when that is committed."""
        if self.is_paused == (paused is not None):
            state = "it is paused already" if paused else "it is not paused"
            done(OperationState.SKIPPED, None, state if self._done is None else "the same was requested before")
            return
        self._end(OperationState.FAILED, "the opposite was requested before it was committed")
        self._committer.chain = replace(self._committer.chain, asked_pause=paused)
        self._done = done
        self.wake()
        if paused is None:
            self._doubt_inputs("the partition was paused")

    def wake(self) -> None:
        """End `rest` and the wait of the fetcher at once."""
        self._asked.set()
        self._fetcher.wake()

    async def rest(self, seconds: float) -> None:
        """Wait for a request while the partition is paused."""
        await within(seconds, self._asked)
        self._asked.clear()

    def look(self) -> None:
        """Answer the request once an increment has the pause, or its end."""
        chain = self._committer.chain
        if self._done is None or chain.asked_pause is not UNSET:
            return
        number, paused = self._context.partition, chain.paused
        if paused is None:
            log.info("partition %d: resumed", number)
        else:
            log.warning("partition %d: paused after batch %d: %s", number, chain.batch, paused.reason or NO_REASON)
        self._end(OperationState.SUCCEEDED, "")

    def close(self) -> None:
        """Fail the pending request: it may not be committed."""
        self._end(OperationState.FAILED, "the partition left LIVE first: its status says whether it is paused")

    def _end(self, state: OperationState, detail: str) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(state, None, detail)


class Live:
    """One LIVE partition. `run()` returns after `stop()`, or raises what ended it.

    Attributes:
        committer: extends the chain.
        snapshots: takes snapshots of the state.
        at_work: whether the partition has come past the record at which it failed before.
        pausing: the pause of the partition.
        lost: the error that `lose` got.
    """

    def __init__(self, context: Context, recovered: Recovered, reporter: Reporter) -> None:
        self._context, self._store = context, (store := recovered.store)
        self.committer = committer = Committer(context, store, recovered.producer, recovered.chain)
        self._positions = dict(recovered.chain.last.positions)
        self._passed: dict[str, int] = {}  # inputs that hold no record up to there
        self._fold = Fold(
            context.app,
            store,
            context.partition,
            output_limits=context.view.output_limits,
            policy=ErrorPolicy(context.settings.errors.policy),
            carries=context.settings.tracing != "off",
            clock=time.perf_counter,
        )
        self._flood = DeadLetterCheck(context)
        self._fetcher = Fetcher(context, self._positions, POLLED_RECORDS, reporter.waiting_for)
        self.snapshots = SnapshotScheduler(context, store, committer, reporter, recovered, self._wake, self._saw_ends)
        self._caller = Caller(context, store.calls) if store.calls is not None else None
        self._report = LiveReport(context, store, reporter, self._fetcher, self._caller)
        self._idle_time = IdleTime(store, context.settings.stream_time.idle_advance_ms, context.clock)
        self._pace = Pace(context.settings.batch.records_max, self._report.applied)
        self._keys = KeySample(context)
        self._stopping = False
        self._left: Sequence[InputRecord] = ()
        """Fetched, but a batch had no room for what is due before them."""
        self._refused: _Refused | None = None
        schemas = SchemasOf(context.app)
        self._schemas = SchemaWait(schemas, reporter.waiting_for) if schemas.are_any else None
        self.at_work = AtWork(recovered.chain.batch)
        self._guard = InputGuard(context)
        self.pausing = Pausing(context, self.committer, self._fetcher, self._guard.tell)
        self.lost: SnapreplayError | None = None
        self._cutting: asyncio.Task[None] | None = None

    def lose(self, error: SnapreplayError) -> None:
        """Let `run` raise this error at once: the increments topic was deleted, or has lost what we wrote."""
        if self.lost is None:
            self.lost = error
            self._cutting = asyncio.get_running_loop().create_task(self.committer.cut())
            self._wake()

    def learn_limits(self, limits: Mapping[str, int]) -> None:
        """Use these limits: output topic → the largest record that it takes now, in bytes."""
        self._fold.learn_limits(limits)

    def stop(self) -> None:
        """Finish the batch under way, then let `run` return."""
        self._stopping = True
        self._wake()

    def careful(self, caution: BatchBisection, refused: RecordError | None, anchor: Anchor | None) -> None:
        """Continue after a commit that failed, perhaps because of its batch: with batches as small as `caution` says,
        and no commit beside a handler. `refused`: the record that the broker does not take."""
        self._pace.careful(caution, self._positions, self.last.batch + 1)
        self._refused = _Refused(refused, anchor) if refused is not None else None

    @property
    def last(self) -> Increment:
        return self.committer.chain.last

    @property
    def reached(self) -> dict[str, int]:
        """Input → all records before this offset are committed."""
        committed = self.committer.chain.last.positions
        return {name: max(at, self._passed.get(name, at)) for name, at in committed.items()}

    def doubt_inputs(self, reason: str) -> None:
        """Commit nothing before the inputs were compared: the cluster names another topic of an input, or none."""
        self._guard.tell(reason)
        self._wake()

    def kept(self) -> RetainedState:
        """Return what the store holds, after `close`."""
        return self.committer.kept(self.snapshots.unpointed.left(asyncio.get_running_loop().time()))

    async def run(self) -> None:
        """Process until stopped.

        Raises:
            HandlerFailed, DeadLetterLimitReached: everything before is committed, a snapshot of it is pointed to.
            Fenced, CommitInDoubt, RefusedRecord, ProducerSpent, Unreachable, OffsetTrimmed, InputDoubtful: recover.
        """
        try:
            self._store.retire()
            await self._fetcher.open(self._guard, self.committer.chain)
            if self._caller is not None:
                self._caller.open()
            with self._context.pulse.notifying(self._guard.stood_still):
                while not self._stopping:
                    await self._turn(await self._poll())
                    self._raise_lost()
                    self.at_work.look(self.last.batch, idle=self.committer.idle)
                    if self._caller is not None and not self._caller.has_begun:
                        self._caller.look(answers_read=self._are_read(self._caller.topics))
                self._settled(await self.committer.settle())
                self._raise_lost()
        except (HandlerFailed, DeadLetterLimitReached):
            await self._last_snapshot("failed_partition")
            raise
        finally:
            if self._caller is not None:
                await self._caller.close()
            await self._fetcher.close()

    def _are_read(self, topics: Collection[str]) -> bool:
        """Say whether these inputs are processed up to their ends."""
        return self._fetcher.are_read({name: at for name, at in self.reached.items() if name in topics})

    async def finish(self) -> None:
        """Commit what the next owner needs, after `run`: the end of each input, which retention may delete."""
        await self._pass_markers()
        self._settled(await self.committer.settle())

    def _raise_lost(self) -> None:
        if self.lost is not None:
            raise self.lost

    async def hand_over(self, *, even_unchanged: bool) -> None:
        """Take a last snapshot after `finish`, so that the next owner has nothing to advance."""
        await self._last_snapshot("shutdown", even_unchanged=even_unchanged)

    async def close(self) -> None:
        """Give up what is under way; the log says what happened."""
        try:
            if self._schemas is not None:
                await self._schemas.close()
            if self._cutting is not None:
                await self._cutting
            self.pausing.close()
            await self.snapshots.close()
        finally:
            await self.committer.discard()

    async def _turn(self, records: Sequence[InputRecord]) -> None:
        if self._guard.is_reported or (records and self._guard.distrusts_fetched):
            await self._read_again()
            return
        alone = self._pace.is_alone
        if not records or alone:
            await self._settle_and_mark(wait=alone or self.committer.answered)
        if not records:
            has_news, is_idle = self.committer.chain.has_news, self.committer.idle
            is_at_rest = is_idle and not has_news and not self.pausing.is_paused and not self._left
            if is_at_rest:
                self._passed = self._fetcher.beyond(self._positions)
            self._report.ends(self.reached, is_paused=self.pausing.is_paused)
            if is_idle and has_news:
                self.committer.start(None)
            elif is_at_rest:
                await (self._pass_markers() if self.snapshots.monitor.has_looked() else self._pass_time())
            return
        self._idle_time.restart()
        self._keys.look(records)
        await self._apply_and_commit(self._portion(records))

    async def _read_again(self) -> None:
        """Read again what was fetched before a doubt: it may be gone from the log, even if nothing committed is."""
        self._settled(await self.committer.settle())
        await self._guard.check(self.committer.chain)
        self._left, self._passed = (), {}
        chain = self.committer.chain
        await self._fetcher.read_again(chain, self._guard.anchors(chain))
        self._guard.read_again()

    def _portion(self, records: Sequence[InputRecord], to_ms: int | None = None) -> Portion:
        room = self._pace.records_max
        if self._refused is not None and any(map(self._refused.is_replaced_by, records)):
            self._refused = None
        return Portion(records, to_ms, events_max=room, refused=self._refused.error if self._refused else None)

    async def _apply_and_commit(self, portion: Portion) -> None:
        began = asyncio.get_running_loop().time()
        failure = await self._apply(portion)
        await self._settle_and_mark(wait=True)
        applied = await self._finish(portion, failure)
        if self._refused is not None and self._refused.error in applied.errors:
            self._refused = None  # a periodic timer fires again, and may send something else
        if applied.is_full:
            positions = applied.positions
            self._left = [each for each in portion.records if each.offset >= positions[each.topic]]
        await self._commit(applied, began)

    async def _pass_time(self) -> None:
        """Advance stream time on quiet input. After a standstill the input is fetched first."""
        if self._idle_time.is_followed and self._guard.has_news():
            chain = self.committer.chain
            await self._fetcher.read_again(chain, self._guard.anchors(chain))
        if not self._fetcher.is_quiet():
            self._idle_time.restart()
            return
        to_ms = await self._idle_time.reached(turn_has_begun=self.last.begun_input is not None)
        if to_ms is not None:
            await self._apply_and_commit(self._portion((), to_ms))

    async def _pass_markers(self) -> None:
        """Commit an empty batch past trailing markers, whose deletion would look like lost records."""
        ends = {} if self._left or self.pausing.is_paused else self._fetcher.beyond(self._positions)
        if ends:
            self._fold.begin(self._positions)
            self._fold.pass_over(ends)
            await self._commit(self._fold.finish(), asyncio.get_running_loop().time())

    async def _settle_and_mark(self, *, wait: bool) -> None:
        if wait:
            self._settled(await self.committer.settle())
        if self.committer.idle:
            self.snapshots.begin_if_due()

    async def _apply(self, portion: Portion) -> RecordError | None:
        """Apply on top of what is being committed. A failed batch is dropped whole here."""
        records = portion.records
        if self._refused is not None and records and id_of(records[0]) == self._refused.error.record_id:
            return self._refused.error
        loop = asyncio.get_running_loop()
        began = loop.time()
        self._fold.begin(self._positions, portion)
        try:
            await run_cooperatively(feeding(self._fold, portion))
            await run_cooperatively(self._fold.staging())
        except RecordError as error:
            self._fold.abandon()
            return error
        finally:
            self._pace.applied(loop.time() - began)
        return None

    async def _finish(self, portion: Portion, failure: RecordError | None) -> Applied:
        """Seal the batch; a failed one runs again record by record, so that only the failing record is lost."""
        if failure is None:
            return await run_cooperatively(self._fold.sealing())
        return await run_cooperatively(self._fold.isolating(self._positions, portion))

    async def _commit(self, applied: Applied, began: float) -> None:
        """Begin its transaction. `began`: when its records began to be applied, by the loop's clock."""
        if not applied.is_empty:
            below = await self._compared(applied)
            self._positions.update(applied.positions)
            self.committer.start(applied, below, began)
            await pause()  # it gets ahead before the next ones are unpacked: less to wait for later
        else:
            self._store.merge()  # nothing was applied: there is nothing to write, and nothing to undo
        if applied.failure is not None:
            self._settled(await self.committer.settle())
            raise handler_failed(applied.failure, self._context.partition, self._context.app)

    async def _compared(self, applied: Applied) -> Mapping[str, PositionAnchor]:
        """Return what lies below the positions of this batch; after a doubt, once the log has confirmed it."""
        chain, below = self.committer.chain, self._fetcher.anchors_below(applied.positions)
        await self._guard.check(chain, positions_after(chain, applied, below))
        return below

    def _settled(self, committed: Committed | None) -> None:
        if committed is None:
            return
        applied = committed.applied
        self._note_reached()
        self.pausing.look()
        self.snapshots.committed(committed.increment)
        self._report.committed(committed)
        if applied is not None:
            self._pace.committed(self._positions, committed.increment.batch + 1)
            if self._caller is not None:
                self._caller.committed(applied.sealed.changes)
            self._flood.check(applied)
        self.committer.check()

    def _note_reached(self) -> None:
        chain = self.committer.chain
        self._context.witnesses.reached(self._context.increments, chain.last, chain.last_offset)

    def report(self) -> None:
        """Publish where the chain and the state are."""
        self._note_reached()
        self._report.show(self.committer.chain.last)

    async def _last_snapshot(self, reason: str, *, even_unchanged: bool = False) -> None:
        """Write a last snapshot and point to it while we are still the owner; commit nothing else."""
        self._settled(await self.committer.settle())
        await self.snapshots.write_now(reason, even_unchanged=even_unchanged)
        if self.committer.chain.new_pointer is not None:
            self.committer.start(None)
            self._settled(await self.committer.settle())

    async def _poll(self) -> Sequence[InputRecord]:
        timeout_ms = self._idle_poll_ms() if self.committer.idle else BUSY_POLL_MS
        if self._schemas is not None and not self._schemas.is_over:
            await self._schemas.rest(timeout_ms / 1000)
            return ()
        if self._left and not self.pausing.is_paused:
            left, self._left = self._left, ()
            return left
        if self.pausing.is_paused:
            await self.pausing.rest(timeout_ms / 1000)
            return ()
        rest = partial(self.committer.rest, self._pace.apply_seconds)
        records = await self._fetcher.next_batch(self._pace.records_max, timeout_ms, rest)
        if self._schemas is not None and self._schemas.is_needed_for(records):
            self._left = records
            return ()
        return records

    def _idle_poll_ms(self) -> int:
        is_waited_for = self._idle_time.is_followed or self.at_work.is_awaited or self.snapshots.requests.waiting
        is_to_begin = self.snapshots.may_become_due or (self._caller is not None and not self._caller.has_begun)
        idle = WAITED_FOR if is_waited_for or not self._fetcher.is_quiet() else QUIET if is_to_begin else AT_REST
        return idle.poll_ms(self._context.neighbours())

    def _saw_ends(self, ends: Mapping[str, Ends]) -> None:
        """Show the ends that a look at the logs has found; a partition at rest commits past trailing markers then."""
        self._fetcher.saw_ends(ends)
        self._wake()

    def _wake(self) -> None:
        """Take the next turn at once."""
        if self._schemas is not None:
            self._schemas.wake()
        self.pausing.wake()
