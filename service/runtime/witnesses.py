"""Says outside of the increments topic how far each partition of this process is committed."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from snapreplay.app import names
from snapreplay.errors import SnapreplayError, described
from snapreplay.service.core.kafka_errors import Unreachable
from snapreplay.service.core.search import FoundIncrement
from snapreplay.service.core.witness import IncrementsBehind, Witness, behind
from snapreplay.service.ports import CommittedOffset, OffsetCommitter, TopicPartition
from snapreplay.service.runtime.pulse import STOOD_STILL_SECONDS
from snapreplay.snapshots.format.records import Increment

if TYPE_CHECKING:
    from snapreplay.service.runtime.context import Context

log = logging.getLogger("snapreplay.partition")

WRITE_SECONDS = 5.0
LAST_SECONDS = 2.0
READ_SECONDS = 5.0


class Witnesses:
    """One per process. What was committed is noted at once, and what has changed is written every few seconds.

    Args:
        group: the name for messages of the group that they are written to; empty: they are not written.
    """

    def __init__(self, group: str = "") -> None:
        self._group = group
        self._reached: dict[TopicPartition, tuple[Increment, int]] = {}
        self._written: dict[TopicPartition, Witness] = {}
        self._said = ""

    def reached(self, source: TopicPartition, last: Increment, offset: int) -> None:
        """Note that the commit of this increment was answered OK, or that a recovery has found it."""
        self._reached[source] = last, offset

    def forget(self, source: TopicPartition) -> None:
        """Forget it, because another process may own it by now: what it writes is newer."""
        self._reached.pop(source, None)
        self._written.pop(source, None)

    async def keep_writing(self, committer: OffsetCommitter) -> None:
        """Write what has changed until cancelled. After a standstill the partitions hear first who owns them."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + WRITE_SECONDS
            await asyncio.sleep(WRITE_SECONDS)
            if loop.time() - due > STOOD_STILL_SECONDS:
                continue
            try:
                await self._write(committer)
            except Exception:  # a defect here must not end a process
                log.exception(
                    "the positions of the partitions could not be written to group %s, so the loss of the newest"
                    " increments would go unnoticed: a defect",
                    self._group,
                )

    async def end(self, committer: OffsetCommitter) -> None:
        """Write the last ones, for no longer than a moment."""
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST_SECONDS):
                    await self._write(committer)
        finally:
            await committer.close()

    async def _write(self, committer: OffsetCommitter) -> None:
        now = {source: Witness.of(source.topic, *found) for source, found in self._reached.items()}
        new = {source: witness for source, witness in now.items() if self._written.get(source) != witness}
        if not new:
            return
        try:
            await committer.commit({source: _committed(witness) for source, witness in new.items()})
        except SnapreplayError as error:
            self._tell(error)
        else:
            self._said = ""
            self._written |= new

    def _tell(self, error: SnapreplayError) -> None:
        """Log it: a missing permission is no failure, but a lost end of the increments topic would go unnoticed."""
        if isinstance(error, Unreachable):
            log.debug("the positions of the partitions could not be written to group %s: %s", self._group, error)
        elif error.message != self._said:
            self._said = error.message
            log.warning(
                "the positions of the partitions could not be written to group %s, so the loss of the newest"
                " increments would go unnoticed: %s%s",
                self._group,
                error.message,
                f" ({error.hint})" if error.hint else "",
            )


def _committed(witness: Witness) -> CommittedOffset:
    return CommittedOffset(witness.increment_offset + 1, witness.metadata)


async def give_up_later(context: Context, begun: FoundIncrement) -> None:
    """Take back what the witness says of batches after `begun`, which is about to begin a chain: they were given up.

    Raises:
        NotAuthorized: Read on the group and on the topic is needed.
    """
    if await behind_witness(context, begun) is None:
        return
    committer = context.cluster.offset_committer(names.witness_group(context.app.app_id))
    try:
        witness = Witness.of(context.increments.topic, begun.increment, begun.offset)
        await committer.commit({context.increments: _committed(witness)})
    finally:
        await committer.close()


async def witness_of(context: Context) -> Witness | None:
    """Return what an owner wrote last; None if there is nothing, or it could not be read."""
    group_id, source = names.witness_group(context.app.app_id), context.increments
    try:
        async with asyncio.timeout(READ_SECONDS):
            found = await context.cluster.committed_offsets(group_id, [source])
    except (SnapreplayError, TimeoutError) as error:
        log.warning(
            "partition %d: it is not known whether %s has lost its newest records: group %s could not be asked: %s",
            source.partition,
            source,
            group_id,
            described(error),
        )
        return None
    return Witness.from_metadata(found[source].metadata) if source in found else None


async def behind_witness(context: Context, last: FoundIncrement) -> IncrementsBehind | None:
    """Return the error if the log, which ends with `last`, has lost the batch that the witness names."""
    witness, source = await witness_of(context), context.increments
    if witness is None or not witness.is_ahead(source.topic, last):
        return None
    return behind(f"group {names.witness_group(context.app.app_id)}", str(source), witness, last)
