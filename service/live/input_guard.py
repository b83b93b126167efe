"""Nothing is committed while an input may be another log than before.

Records are fetched by topic id, so none of another topic is ever applied. But a log may keep its id and lose or change
its records: a leader that was cut, a broker whose disk was restored from a backup. Something unusual always precedes
that, or a broker says it in the answer to the next fetch. This is a doubt. It ends in two steps:

- A batch that was fetched before is committed only after a comparison that covers it.
- Whatever else was fetched before is thrown away and read again, from the committed positions.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from snapreplay.app.ranges import PositionAnchor
from snapreplay.service.core.chain import Chain
from snapreplay.service.core.read_positions import ReadPosition, committed_positions
from snapreplay.service.ports import Reader, TopicPartition
from snapreplay.service.recovery.inputs import compare_while_live
from snapreplay.service.runtime.context import Context

log = logging.getLogger("snapreplay.partition")

NO_BATCH: Mapping[str, ReadPosition] = {}


class InputGuard:
    """Collects what was unusual in one LIVE partition; `check` compares."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._reader: Reader | None = None
        self._disturbances = 0
        self._told = ""
        self._stood_still = ""
        self._has_doubtful = False
        self._go_on: set[str] = set()  # by the last comparison

    async def open(self, chain: Chain) -> Reader:
        """Return the reader of the inputs, which the recovery has checked. It reads by id: a topic that takes an
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
        anchors = chain.expected_anchors
        await reader.follow(
            {TopicPartition(name, number): at for name, at in positions.items()},
            {TopicPartition(name, number): below for name, below in anchors.items()},
        )
        self._disturbances = reader.disturbances
        return reader

    def tell(self, reason: str) -> None:
        """Compare at once, even with nothing to commit: the cluster reports another topic id, or no topic."""
        self._told = reason

    def stood_still(self, seconds: float) -> None:
        self._stood_still = f"the process stood still for {seconds:.1f} s"

    @property
    def is_told(self) -> bool:
        """Whether somebody said that an input is another one: nothing more may come of it."""
        return bool(self._told) or (self._reader is not None and bool(self._reader.doubt))

    @property
    def distrusts_fetched(self) -> bool:
        """Whether what was fetched and is not applied must be read again."""
        return self._has_doubtful or bool(self.reason)

    def read_again(self) -> None:
        """Note that what was fetched before the last comparison was thrown away."""
        self._has_doubtful = False

    def anchors(self, chain: Chain) -> dict[str, PositionAnchor]:
        """Return what lies below the committed positions of the inputs that were compared last, to fetch with. The
        leader may not be the broker that was compared: it says so again, until it is."""
        return {
            name: anchor for name, anchor in chain.expected_anchors.items() if name in self._go_on
        }

    @property
    def reason(self) -> str:
        """The reason why the inputs must be compared before the next commit; empty: they need not be."""
        self._context.pulse.look()
        told = self._told or self._stood_still
        if self._reader is not None and self._reader.disturbances != self._disturbances:
            return told or self._reader.doubt or "a connection broke, or a fetch was refused"
        return told

    async def check(self, chain: Chain, batch: Mapping[str, ReadPosition] = NO_BATCH) -> None:
        """Compare, if there is a reason, until there is none: what is committed, and `batch`, which is to be committed
        next. What was fetched and is in neither stays in doubt, until `read_again`.

        Raises:
            InputDoubtful, InputMissing, Unreachable: recover; nothing of the batch was committed.
        """
        while reason := self.reason:
            log.info(
                "partition %d: %s: its inputs are compared before the next commit",
                self._context.partition,
                reason,
            )
            self._has_doubtful = True
            self._told = self._stood_still = ""
            if self._reader is not None:
                self._disturbances = self._reader.disturbances
            read = (*committed_positions(chain).items(), *batch.items())
            self._go_on = await compare_while_live(self._context, chain.expected_ids, read)
