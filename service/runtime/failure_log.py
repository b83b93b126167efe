"""Logs one partition's failures: each once with its hint, repeats in sums, and a line when they are over."""

from __future__ import annotations

import asyncio
import logging

from snapreplay.counted import counted
from snapreplay.errors import SnapreplayError
from snapreplay.service.core.repeats import Repeats

log = logging.getLogger("snapreplay.partition")


class Failures:
    """In the runners' loop."""

    def __init__(self, partition: int) -> None:
        self._partition = partition
        self._repeats = Repeats()
        self._times = 0  # since `over`
        self._since = 0.0
        self._last = ""

    def retried(self, error: SnapreplayError) -> None:
        """Log a failure after which it is tried again."""
        now = asyncio.get_running_loop().time()
        if not self._times:
            self._since = now
        self._times += 1
        self._last = f"{type(error).__name__}: {error.message}"
        said = self._repeats.met(self._last, now)
        if said is None:
            return
        text = f"{type(error).__name__}: {error}" if said.times == 1 else self._last
        again = said.more(now)
        log.warning("partition %d: %s%s; trying again", self._partition, text, again)

    def over(self) -> None:
        """The partition is LIVE. Logs nothing if nothing failed before."""
        if self._times:
            log.info(
                "partition %d: recovered after %s in %.1f s, the last one %s",
                self._partition,
                counted(self._times, "failure"),
                asyncio.get_running_loop().time() - self._since,
                self._last,
            )
        self._repeats, self._times = Repeats(), 0

    def final(self, error: BaseException, *, is_told: bool) -> None:
        """The partition is FAILED. `is_told`: its hint was already logged, once for all partitions."""
        said = error.message if isinstance(error, SnapreplayError) and is_told else str(error)
        log.error("partition %d FAILED: %s: %s", self._partition, type(error).__name__, said)
