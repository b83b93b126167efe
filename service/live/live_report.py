"""Tells status, metrics and log what a LIVE partition has committed."""

from __future__ import annotations

from snapreplay.service.live.committer import Committed
from snapreplay.service.live.dead_letter_log import DeadLetterLog
from snapreplay.service.live.fetcher import Fetcher
from snapreplay.service.live.stream_time_log import StreamTimeLog
from snapreplay.service.runtime.context import Context
from snapreplay.service.runtime.report import Reporter
from snapreplay.snapshots.format.records import Increment
from snapreplay.state.contract import Store
from snapreplay.state.sizes import largest_entries


class LiveReport:
    """Of one ownership."""

    def __init__(
        self, context: Context, store: Store, reporter: Reporter, fetcher: Fetcher
    ) -> None:
        self._metrics = context.metrics
        self._store, self._reporter, self._fetcher = store, reporter, fetcher
        self._dead_letters = DeadLetterLog(context.partition)
        self._stream_time = StreamTimeLog(context.partition, store)

    def committed(self, committed: Committed, owner_epoch: int) -> None:
        """A batch, or an increment without one."""
        self._metrics.batch_committed(committed.seconds)
        applied = committed.applied
        if applied is not None:
            skipped = len(applied.dead_letters)
            self._reporter.count(
                applied.record_count, skipped, applied.timers_count, applied.expired_count
            )
            self._dead_letters.committed(applied.errors)
            self._stream_time.committed(applied, committed.increment.batch)
            self._reporter.entries(largest_entries(applied.sealed.changes))
        self.show(committed.increment, owner_epoch)

    def show(self, last: Increment, owner_epoch: int) -> None:
        """Where the chain and the state are."""
        digest = self._store.digest or last.digest
        self._reporter.state(self._store, digest)
        self._reporter.update(
            batch=last.batch,
            owner_epoch=owner_epoch,
            inputs=self._fetcher.status(last.positions),
            stream_time_ms=last.stream_time_ms if last.stream_time_ms >= 0 else None,
            digest=str(digest) if digest else None,
        )
