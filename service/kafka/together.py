"""The same question of many partitions, asked once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Together(Generic[K, V]):
    """Asks for what several tasks want to know in one question. Who comes while one is under way waits for the next: no
    answer is older than its question."""

    def __init__(self, ask: Callable[[frozenset[K]], Awaitable[Mapping[K, V]]]) -> None:
        self._ask = ask
        self._last: _Question[K, V] | None = None

    async def ask(self, keys: Collection[K]) -> dict[K, V]:
        """Return what is known of these keys; raise as the question does, whoever's key is to blame."""
        last = self._last
        if last is None or last.is_asked:
            last = self._last = _Question(self._ask, last)
        found = await last.answer(keys)
        return {key: found[key] for key in keys if key in found}


class _Question(Generic[K, V]):
    def __init__(self, ask: Callable[[frozenset[K]], Awaitable[Mapping[K, V]]], before: _Question[K, V] | None) -> None:
        self.is_asked = False
        self._keys: set[K] = set()
        self._waiting = 0
        earlier = before.task if before is not None else None
        self.task: asyncio.Task[Mapping[K, V]] = asyncio.create_task(self._asked(ask, earlier))

    async def answer(self, keys: Collection[K]) -> Mapping[K, V]:
        self._keys.update(keys)
        self._waiting += 1
        try:
            return await asyncio.shield(self.task)
        finally:
            self._waiting -= 1
            if not self._waiting and not self.task.done():
                self.is_asked = True  # by nobody any more
                self.task.cancel()
                await asyncio.wait([self.task])

    async def _asked(
        self, ask: Callable[[frozenset[K]], Awaitable[Mapping[K, V]]], before: asyncio.Task[Mapping[K, V]] | None
    ) -> Mapping[K, V]:
        if before is not None and not before.done():
            await asyncio.wait([before])
        self.is_asked = True
        return await ask(frozenset(self._keys))
