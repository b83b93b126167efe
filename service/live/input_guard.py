"""Nothing is committed while an input may be another log than before.

Records are fetched by topic id, so none of another topic is ever applied. But a log may keep its id and lose or change
its records: a leader that was cut, a broker whose disk was restored from a backup. Something unusual always precedes
that; after it, the inputs are compared before the next commit.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from snapreplay.app.ranges import Anchor
from snapreplay.service.core.chain import Chain
from snapreplay.service.ports import Reader, TopicPartition
from snapreplay.service.recovery.inputs import compare_while_live
from snapreplay.service.runtime.context import Context

log = logging.getLogger("snapreplay.partition")

NO_BATCH: Mapping[str, Anchor] = {}


class InputGuard:
    """Collects what was unusual in one LIVE partition; `check` compares."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._reader: Reader | None = None
        self._disturbances = 0
        self._told = ""
        self._stood_still = ""

    async def open(self, chain: Chain) -> Reader:
        """Returns the reader of the inputs, which the recovery has checked. It reads by id: a topic that takes an
        input's name meanwhile is never read.

        Raises:
            Unreachable.
        """
        positions, ids = chain.last.positions, chain.expected_ids
        reader = await self._context.cluster.reader(
            patient=True, topic_ids={name: ids.get(name, "") for name in positions}
        )
        self._reader = reader
        number = self._context.partition
        await reader.follow({TopicPartition(name, number): at for name, at in positions.items()})
        self._disturbances = reader.disturbances
        return reader

    def tell(self, reason: str) -> None:
        """The cluster reports another topic id, or no topic: compare at once, even with nothing to commit."""
        self._told = reason

    def stood_still(self, seconds: float) -> None:
        self._stood_still = f"the process stood still for {seconds:.1f} s"

    @property
    def is_told(self) -> bool:
        return bool(self._told)

    @property
    def reason(self) -> str:
        """Why the inputs must be compared before the next commit; empty: they need not be."""
        self._context.pulse.look()
        if self._reader is not None and self._reader.disturbances != self._disturbances:
            return self._told or self._stood_still or "a connection broke, or a fetch was refused"
        return self._told or self._stood_still

    async def check(self, chain: Chain, batch: Mapping[str, Anchor] = NO_BATCH) -> None:
        """Compare, if there is a reason, until there is none. `batch`: the last record of each input that is to be
        committed next.

        Raises:
            InputDoubtful, InputMissing, Unreachable: recover; nothing of the batch was committed.
        """
        while reason := self.reason:
            log.info(
                "partition %d: %s: its inputs are compared before the next commit",
                self._context.partition,
                reason,
            )
            self._told = self._stood_still = ""
            if self._reader is not None:
                self._disturbances = self._reader.disturbances
            await compare_while_live(self._context, chain, batch)
