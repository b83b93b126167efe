"""The question whether a refused timestamp is our clock's fault: the transaction coordinator knows when our
transaction began."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from aiokafka.client import AIOKafkaClient, CoordinationType

from snapreplay.service.clock import wall_ms
from snapreplay.service.core.kafka_errors import ClockRefused
from snapreplay.service.kafka.errors import CLIENT_ERRORS
from snapreplay.service.kafka.requests import DescribeTransactions

SKEW_MS_MIN = 10_000
"""A smaller difference may be a slow network."""

_ASK_S = 2.0


async def clock_refused(
    client: AIOKafkaClient, transactional_id: str, began_ms: int
) -> ClockRefused | None:
    """Compare the clocks; None when they agree, or the coordinator does not say. Call while the transaction is
    open; `began_ms` is our time when it began."""
    try:
        async with asyncio.timeout(_ASK_S):
            node = await client.coordinator_lookup(CoordinationType.TRANSACTION, transactional_id)
            answer = await client.send(node, DescribeTransactions(transactional_id))
    except CLIENT_ERRORS:
        return None
    ((code, _, _, _, started_ms, *_),) = answer.transaction_states
    return None if code else _compared(began_ms, int(started_ms), wall_ms())


def _compared(began_ms: int, brokers_ms: int, asked_ms: int) -> ClockRefused | None:
    """Compare the clocks: if they agree, the transaction began for the coordinator between `began_ms` and
    `asked_ms` of ours."""
    if brokers_ms < 0:  # it knows of no open transaction
        return None
    ahead_ms, behind_ms = began_ms - brokers_ms, brokers_ms - asked_ms
    if max(ahead_ms, behind_ms) < SKEW_MS_MIN:
        return None
    skew_ms = ahead_ms if ahead_ms > 0 else -behind_ms
    which = f"{abs(skew_ms) / 1000:.0f} s {'ahead of' if skew_ms > 0 else 'behind'} the brokers'"
    return ClockRefused(
        f"the clock of this machine is {which}: it showed {_utc(began_ms)} when the transaction coordinator's showed"
        f" {_utc(brokers_ms)}, and a broker refuses records with our time",
        hint="correct the clock (`timedatectl` shows whether it is synchronised)",
        skew_ms=skew_ms,
        ours_ms=began_ms,
        brokers_ms=brokers_ms,
    )


def _utc(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
