"""Can the app read what is stored? Checked after a restore, before a record meets a value that cannot be read.

Digests prove only bytes: a value that an earlier version wrote as another type is as proven as any other. A part of
every shard is read before the partition is LIVE, so that a changed type is found before anything is written with it.
The rest is read while the partition is LIVE, in a tenth of the loop's time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator

from snapreplay.counted import counted
from snapreplay.errors import SnapreplayError
from snapreplay.service.control.status import ValuesRead
from snapreplay.service.runtime.context import Context
from snapreplay.service.runtime.cooperative import YIELD_AFTER_SECONDS, Pauses, run_cooperatively
from snapreplay.service.runtime.report import Reporter
from snapreplay.service.runtime.tasks import cancel_and_wait
from snapreplay.state.contract import Store
from snapreplay.state.values import StoredValueUnreadable

log = logging.getLogger("snapreplay.partition")

SAMPLE_EACH_SHARD = 2
IDLE_TIMES = 9  # as long as it has read
TELL_SECONDS = 0.5


class ValueCheck:
    """Checks restored states, one per runner: `sample`, then `begin` and `end` whenever the partition is LIVE. A state
    that was still in memory continues its check."""

    def __init__(self, context: Context, reporter: Reporter) -> None:
        self._context = context
        self._reporter = reporter
        self._rest: Iterator[int] | None = None
        self._read = 0
        self._task: asyncio.Task[None] | None = None
        self._entries: int | None = None
        self._told_at = 0.0

    async def sample(self, store: Store) -> None:
        """Read a sample of a restored state, or raise StoredValueUnreadable or UnknownTimer: the partition must
        not be LIVE."""
        restore = self._reporter.recovery
        if self._rest is not None and restore is not None and restore.warm is not None:
            return
        self._reporter.note(values_read=None)
        digest = store.digest
        self._rest, self._read = store.checking(), 0
        self._entries = digest.count if digest is not None and store.keeps_changes else None
        await run_cooperatively(store.refusing_pending())
        pauses = Pauses()
        for _ in store.checking(SAMPLE_EACH_SHARD):
            await pauses.when_due()

    def begin(self, unreadable: Callable[[SnapreplayError], None]) -> None:
        """Read on from where it stopped. `unreadable` gets the error of the first value that cannot be read."""
        if self._rest is not None and self._entries is not None:
            self._task = asyncio.get_running_loop().create_task(self._read_on(self._rest, unreadable))

    async def end(self) -> None:
        """Stop, because the partition is not LIVE any more; nothing is forgotten."""
        task, self._task = self._task, None
        if task is not None:
            await cancel_and_wait(task)

    async def _read_on(self, rest: Iterator[int], unreadable: Callable[[SnapreplayError], None]) -> None:
        loop = asyncio.get_running_loop()
        resumed = self._told_at = loop.time()
        try:
            for count in rest:
                self._read += count
                worked = loop.time() - resumed
                if worked > YIELD_AFTER_SECONDS:
                    self._tell(all_read=False)
                    await asyncio.sleep(IDLE_TIMES * worked)
                    resumed = loop.time()
        except StoredValueUnreadable as error:
            unreadable(error)
            return
        self._tell(all_read=True)

    def _tell(self, *, all_read: bool) -> None:
        """Tell the progress twice a second. The end is logged only if progress was shown before."""
        now = asyncio.get_running_loop().time()
        if not all_read and now - self._told_at < TELL_SECONDS:
            return
        before = self._reporter.status.values_read
        if all_read and before is not None and not before.all_read:
            log.info(
                "partition %d: the app can read all of %s", self._context.partition, counted(self._read, "stored value")
            )
        self._told_at = now
        entries = self._read if all_read else max(self._read, self._entries or 0)
        self._reporter.note(values_read=ValuesRead(self._read, entries, all_read))


def named(error: StoredValueUnreadable, context: Context) -> StoredValueUnreadable:
    """Add the partition and what reads it."""
    app = context.app
    return StoredValueUnreadable(
        f"partition {context.partition}: {error.message} (read by app version {app.version}, schema_version"
        f" {app.schema_version})",
        hint=error.hint,
        **error.facts,
    )
