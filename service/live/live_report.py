"""Reports the commits of a LIVE partition to status, metrics and log, and stops one that skips too many records."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from snapreplay.app.batch import Applied
from snapreplay.app.ways import go_on
from snapreplay.errors import RecordError, StopError
from snapreplay.service.clock import time_of
from snapreplay.service.control.status import NO_COMMITS, CallStatus, CommitTimes, InputStatus
from snapreplay.service.core.batch_failures import DeadLetterGauge, DeadLetterLimits
from snapreplay.service.core.repeats import Repeats
from snapreplay.service.live.caller import Caller
from snapreplay.service.live.committer import Committed
from snapreplay.service.live.fetcher import Fetcher
from snapreplay.service.runtime.context import Context
from snapreplay.service.runtime.report import Reporter
from snapreplay.snapshots.format.records import Increment
from snapreplay.state.composite import Store
from snapreplay.state.contract import largest_entry_bytes

log = logging.getLogger("snapreplay.partition")


class LiveReport:
    """The report of one ownership to metrics and status."""

    def __init__(
        self, context: Context, store: Store, reporter: Reporter, fetcher: Fetcher, caller: Caller | None
    ) -> None:
        self._metrics = context.metrics
        self._commits = CommitClock(reporter.status.commits)
        self._spans = context.spans
        self._store, self._reporter, self._fetcher, self._caller = store, reporter, fetcher, caller
        self._apply_seconds = reporter.status.apply_seconds_total
        self._handled = {
            each.topic: (each.handled_total, each.handler_seconds_total) for each in reporter.status.inputs
        }
        self._dead_letters = DeadLetterLog(context.partition)

    def applied(self, seconds: float) -> None:
        """Count the time in which a batch was applied; shown with the next commit."""
        self._metrics.batch_applied(seconds)
        self._apply_seconds += seconds

    def committed(self, committed: Committed) -> None:
        """Report a batch, or an increment without one."""
        self._metrics.batch_committed(committed.seconds)
        self._commits.committed(committed.seconds, asyncio.get_running_loop().time())
        applied = committed.applied
        if self._spans is not None and applied is not None:
            seconds = asyncio.get_running_loop().time() - committed.since
            self._spans.batch(committed.increment.batch, applied.record_count, seconds, applied.contexts)
        if applied is not None:
            skipped = len(applied.dead_letters)
            self._reporter.count(
                applied.record_count, skipped, applied.timers_count, applied.expired_count, len(applied.outputs)
            )
            for topic, (count, seconds) in applied.handled.items():
                before, seconds_before = self._handled.get(topic, (0, 0.0))
                self._handled[topic] = before + count, seconds_before + seconds
            for window, count in applied.late.items():
                self._metrics.late(window, count)
            if applied.errors:
                self._dead_letters.committed(applied.errors)
            changes = applied.sealed.changes
            self._reporter.entries({name: largest_entry_bytes(entries) for name, entries in changes.items()})
        self.show(committed.increment)

    def show(self, last: Increment) -> None:
        """Show where the chain and the state are."""
        self._reporter.state(self._store)
        self._reporter.update(
            batch=last.batch,
            commits=self._commits.times,
            apply_seconds_total=self._apply_seconds,
            inputs=self._inputs(last.positions, is_paused=last.paused is not None),
            calls=self._calls(),
            stream_time_ms=last.stream_time_ms if last.stream_time_ms >= 0 else None,
            digest=str(self._store.digest),
            paused_since=time_of(last.paused.since_ms) if last.paused else None,
            paused_reason=last.paused.reason if last.paused else "",
        )

    def ends(self, positions: Mapping[str, int], *, is_paused: bool) -> None:
        """Show the ends of the inputs as far as the reader knows them. Without records no commit would."""
        self._reporter.note(inputs=self._inputs(positions, is_paused=is_paused), calls=self._calls())

    def _inputs(self, positions: Mapping[str, int], *, is_paused: bool) -> tuple[InputStatus, ...]:
        found = []
        for each in self._fetcher.status(positions, is_paused=is_paused):
            count, seconds = self._handled.get(each.topic, (0, 0.0))
            found.append(replace(each, handled_total=count, handler_seconds_total=seconds))
        return tuple(found)

    def _calls(self) -> tuple[CallStatus, ...]:
        return self._caller.status if self._caller is not None else ()


WINDOW_SECONDS = 10.0


class CommitClock:
    """Adds up the commits of a partition in this process."""

    def __init__(self, before: CommitTimes = NO_COMMITS) -> None:
        """Take what was committed `before`, in other ownerships of this process: totals do not fall."""
        self._total, self._seconds = before.total, before.seconds_total
        self._since = 0.0
        self._longest = self._longest_before = 0.0

    def committed(self, seconds: float, now: float) -> None:
        """Add a commit that ended at `now`."""
        if (age := now - self._since) >= WINDOW_SECONDS:
            self._longest_before = self._longest if age < 2 * WINDOW_SECONDS else 0.0
            self._since, self._longest = now, 0.0
        self._total += 1
        self._seconds += seconds
        self._longest = max(self._longest, seconds)

    @property
    def times(self) -> CommitTimes:
        return CommitTimes(self._total, self._seconds, max(self._longest, self._longest_before))


class DeadLetterLog:
    """The log lines about dead letters in one ownership. A kind is an input topic and the exception's class."""

    def __init__(self, partition: int) -> None:
        self._partition = partition
        self._said = Repeats()

    def committed(self, errors: Sequence[RecordError]) -> None:
        """Log why each of the batch's dead letters was not applied: `errors`, in order."""
        now = asyncio.get_running_loop().time()
        for error in errors:
            said = self._said.met(_kind(error), now)
            if said is not None:
                log.warning("partition %d: dead letter: %s%s", self._partition, error.message, said.more(now))


def _kind(error: RecordError) -> tuple[str, str]:
    topic = error.record_id.topic if error.record_id is not None else ""
    return topic, str(error.facts.get("exception") or type(error).__name__)


class DeadLetterLimitReached(StopError):
    """Processing has stopped because too many records were dead-lettered.

    Safe: The dead letters are kept, and no later record was processed. Do not restart or `retry` before the cause is
    repaired, because the count would begin again, and more records would become dead letters.
    """


class DeadLetterCheck:
    """Counts the dead letters of an ownership."""

    def __init__(self, context: Context) -> None:
        errors = context.settings.errors
        self._partition = context.partition
        self._gauge = DeadLetterGauge()
        self._limits = DeadLetterLimits(
            errors.dead_letters_consecutive_max, errors.dead_letters_percent_max, errors.window_records
        )

    def check(self, applied: Applied) -> None:
        """Raise DeadLetterLimitReached if with this committed batch it is too many."""
        skipped = len(applied.dead_letters)
        self._gauge = self._gauge.after(applied.record_count, skipped, self._limits)
        flood = self._gauge.flooded(self._limits)
        if flood is not None:
            raise DeadLetterLimitReached(
                f"partition {self._partition}: {flood}",
                hint="see the headers in the dead-letter topic for the reason, deploy a fixed handler, then"
                f" {go_on(self._partition)}. Until then no more records become dead letters",
            )
