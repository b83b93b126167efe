"""The knowledge of a partition from one ownership to the next, and whether anything may still be waited for."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from snapreplay.errors import SnapreplayError
from snapreplay.service.core.batch_failures import BatchFailures
from snapreplay.service.core.ownership import Ownership
from snapreplay.service.core.refusals import DuplicateInstance
from snapreplay.service.runtime.context import Context


class Lifecycle:
    """One per runner, which shares it with its incarnations.

    Attributes:
        stopped: the partition is to be released.
        interrupted: stopped or refused: nothing is waited for any more.
        final_snapshot: whether a LIVE partition writes one before it is released.
    """

    def __init__(self, context: Context) -> None:
        restore = context.settings.restore
        self._ownership = Ownership(
            context.expected,
            restore.retry_backoff_ms,
            restore.retry_backoff_max_ms,
            BatchFailures(context.partition),
        )
        self.stopped = asyncio.Event()
        self.interrupted = asyncio.Event()
        self.final_snapshot = False

    @property
    def ownership(self) -> Ownership:
        """The ownership as it was left last; `update` replaces it."""
        return self._ownership

    @property
    def is_holding(self) -> bool:
        return self._ownership.is_holding

    def update(self, ownership: Ownership | None = None, **known: Any) -> None:
        """Update what is known. Stopped or refused, nothing is waited for; but what is held is written first."""
        self._ownership = replace(ownership or self._ownership, **known)
        ends = self.stopped.is_set() or self._ownership.refused is not None
        if ends and not self.is_holding:
            self.interrupted.set()
        else:
            self.interrupted.clear()

    def stop(self) -> None:
        self.stopped.set()
        self.update()

    def take_back(self) -> None:
        """Process again: the partition is ours again."""
        self.stopped.clear()
        self.update(is_holding=False)

    def refuse(self, error: SnapreplayError) -> None:
        """Refuse to go on. When a process of our name has gone, what else refuses us is still true."""
        known = self._ownership.refused
        is_new = known is None or isinstance(known, DuplicateInstance)
        self.update(refused=error if is_new else known)

    def raise_refused(self) -> None:
        """Raise the reason why the partition must not process, unless it is held."""
        refused = self._ownership.refused
        if refused is not None and not self.is_holding:
            raise refused
