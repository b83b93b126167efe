"""The pause of a LIVE partition: the chain has it, so it holds for every owner until an operator ends it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from msgspec import UNSET

from snapreplay.service.control.operations import OnDone, OperationState
from snapreplay.service.live.committer import Committer
from snapreplay.service.live.fetcher import Fetcher
from snapreplay.service.runtime.context import Context
from snapreplay.service.runtime.tasks import within
from snapreplay.snapshots.format.records import NO_REASON, Paused

log = logging.getLogger("snapreplay.partition")


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
            done(OperationState.SKIPPED, None, state if self._done is None else "the same is asked for already")
            return
        self._end(OperationState.FAILED, "the opposite was asked for before it was committed")
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
