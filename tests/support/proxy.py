"""A wire in front of one broker, in the test's own loop: chosen requests are lost, held back or left unanswered."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tests.support.wire import (
    ADD_PARTITIONS,
    END_TXN,
    INIT_PRODUCER_ID,
    PRODUCE,
    Fate,
    Wire,
    api_key,
    detour,
)

__all__ = ["ADD_PARTITIONS", "END_TXN", "INIT_PRODUCER_ID", "PRODUCE", "Proxy", "once"]

Fault = Callable[[int], Fate]
"""The API key of a request → what becomes of it."""


class Proxy:
    """One broker behind it. `seen` counts requests by API key; `fault` decides on each."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.fault: Fault = lambda _: "pass"
        self.seen: Counter[int] = Counter()
        self._address = bootstrap_servers
        host, _, port = bootstrap_servers.rpartition(":")
        self._wire = Wire((host, int(port)), self._decide)

    @asynccontextmanager
    async def through(self) -> AsyncIterator[None]:
        """Pass aiokafka's new connections to the broker through the proxy, while this is open."""
        async with self._wire.listening():
            with detour({self._address: self._wire.port}):
                yield

    async def _decide(self, wire: Wire, frame: bytes) -> Fate:
        self.seen[api_key(frame)] += 1
        return self.fault(api_key(frame))


def once(key: int, fate: Fate) -> Fault:
    """A fault that hits the first such request only."""
    left = {key}

    def fault(found: int) -> Fate:
        if found not in left:
            return "pass"
        left.clear()
        return fate

    return fault
