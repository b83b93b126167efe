"""The times at which a state that keeps no digest is hashed as a whole, so that a replay has something to arrive
at."""

from __future__ import annotations

import asyncio

from snapreplay.service.runtime.cooperative import run_cooperatively
from snapreplay.state.contract import Store
from snapreplay.state.digest import Digest

PART_OF_TIME = 0.02
"""Hashing takes at most this part of the time, however large the state and however small the batches."""


class StateDigests:
    """The digests of one LIVE incarnation's state. Never takes one of a map, which keeps a digest of its own."""

    def __init__(self, store: Store, every_batches: int) -> None:
        """Take `every_batches`; 0: only when asked."""
        self._store = store
        self._every_batches = every_batches
        self._batches = 0
        self._not_before = 0.0

    async def after_batch(self) -> Digest | None:
        """Return the digest of the state with the batch that was just sealed; None: none is due."""
        self._batches += 1
        due = 0 < self._every_batches <= self._batches
        if not due or asyncio.get_running_loop().time() < self._not_before:
            return None
        return await self.taken()

    async def taken(self) -> Digest | None:
        """Return the digest of the state as it is; nothing may be applied meanwhile."""
        if self._store.digest is not None:
            return None
        loop = asyncio.get_running_loop()
        began = loop.time()
        digest = await run_cooperatively(self._store.digesting())
        took = loop.time() - began
        self._batches, self._not_before = 0, loop.time() + took / PART_OF_TIME
        return digest
