"""The logs of a LIVE partition that an open transaction holds back: what it reads, and what the next owner must
read."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime

import msgspec

from snapreplay.errors import SnapreplayError
from snapreplay.service.clock import time_of
from snapreplay.service.control.input_status import BlockedTopic, OpenTransactionStatus
from snapreplay.service.core.inspected import OpenTransaction
from snapreplay.service.ports import Bounds, TopicPartition
from snapreplay.service.runtime.context import Context

log = logging.getLogger("snapreplay.partition")

LogBounds = Mapping[TopicPartition, tuple[Bounds, Bounds]]
"""Bounds of each log, as read_committed and as read_uncommitted see them."""


class HeldBack:
    """Compares each look with the one before. Most transactions end in between."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._held_at: dict[TopicPartition, int] = {}
        self._blocked: dict[TopicPartition, BlockedTopic] = {}

    def look(self, found: LogBounds) -> tuple[BlockedTopic, ...]:
        """Return the logs that one transaction has held back since the last look, and which, as far as was asked."""
        before, self._held_at = self._held_at, {}
        known, self._blocked = self._blocked, {}
        for each, bounds in found.items():
            stable, end_offset = (those.end_offset for those in bounds)
            if end_offset <= stable:
                continue
            self._held_at[each] = stable
            if before.get(each) == stable:  # the same transaction: the first that is open is where the stable part ends
                held_by = known[each].held_by if each in known else None
                self._blocked[each] = BlockedTopic(each.topic, stable, end_offset - stable, held_by)
        return tuple(self._blocked.values())

    async def named(self) -> tuple[BlockedTopic, ...]:
        """Return the same as the last look, after asking which transactions these are. While a broker is away that
        takes long."""
        for each, blocked in tuple(self._blocked.items()):
            if blocked.held_by is None:
                self._blocked[each] = msgspec.structs.replace(blocked, held_by=await self._ask(each))
        return tuple(self._blocked.values())

    async def _ask(self, partition: TopicPartition) -> OpenTransactionStatus | None:
        try:
            found = await self._context.cluster.open_transaction(partition)
        except SnapreplayError as error:
            log.info("cannot ask which transaction holds back %s: %s", partition, error)
            return None
        return None if found is None else _shown(found)


def _shown(found: OpenTransaction) -> OpenTransactionStatus:
    def time(at_ms: int | None) -> datetime | None:
        return None if at_ms is None or at_ms < 0 else time_of(at_ms)

    return OpenTransactionStatus(
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        start_offset=found.start_offset,
        transactional_id=found.transactional_id,
        started_at=time(found.started_at_ms),
        timeout_seconds=None if found.timeout_ms is None else found.timeout_ms / 1000,
        last_record_at=time(found.last_record_at_ms),
    )
