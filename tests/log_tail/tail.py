"""One partition of an app's T-ZengLiang, from empty to the shape that a test wants, and what finds its way in it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from aiokafka import AIOKafkaProducer, TopicPartition

from snapreplay.service.control.status import StatusBoard
from snapreplay.service.core import effects, events
from snapreplay.service.core.chain import genesis_increment
from snapreplay.service.core.search import FoundIncrement
from snapreplay.service.ports import Bounds
from snapreplay.service.recovery.driver import RecoveryDriver
from snapreplay.service.recovery.memory import Memory
from snapreplay.service.runtime.context import Context
from snapreplay.service.runtime.report import Reporter
from snapreplay.snapshots.format.envelope import encode, headers_of
from snapreplay.snapshots.format.records import ChangesRecord, Genesis, Increment
from snapreplay.state.digest import EMPTY
from tests.support.inside import join
from tests.support.kafka import until_async

LONG_MS = 60_000


class Tail:
    """The tail of a log: what is written here, by whom, and how it ends. Offsets begin at 0."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._source = TopicPartition(*context.increments)
        self._last: tuple[Increment, int] | None = None
        self._producers: list[AIOKafkaProducer] = []
        self._own: AIOKafkaProducer | None = None

    async def build(self, steps: str) -> None:
        """Methods of this class with their numbers: "batch 4, trim 6"."""
        for step in filter(None, steps.split(", ")):
            what, *numbers = step.split()
            await getattr(self, what)(*map(int, numbers))

    async def batch(self, changes: int = 0, between: int = 0) -> int:
        """One committed batch of ours: so many changes records, then the increment, whose offset it is. `between`:
        records of somebody else that arrive in the middle of it."""
        increment = self._next()
        self._own = self._own or await self._producer("own")
        grown = changes + between + 2
        async with self._grows_by(grown), self._own.transaction():
            for part in range(changes):
                record = ChangesRecord(increment.batch, part, {"default": {b"k": b"v"}})
                await self._send(self._own, encode(record), headers_of(record))
            for _ in range(between):
                await self.plain()
            offset = await self._send(self._own, encode(increment), headers_of(increment))
        self._last = (increment, offset)
        return offset

    async def plain_increment(self) -> int:
        """The same outside any transaction: no marker follows. Called by its name in a shape."""
        increment = self._next()
        producer = await self._producer()
        offset = await self._send(producer, encode(increment), headers_of(increment))
        self._last = (increment, offset)
        return offset

    async def plain(self) -> None:
        """A record of somebody else, outside any transaction."""
        await self._send(await self._producer(), b"not ours")

    async def foreign(self, records: int) -> None:
        """A committed transaction of somebody else."""
        producer = await self._producer("foreign")
        async with self._grows_by(records + 1), producer.transaction():
            for _ in range(records):
                await self._send(producer, b"not ours")

    async def aborted(self, transactions: int, records: int) -> None:
        """Batches of ours that were sent and never committed."""
        producer = await self._producer("aborted")
        lost = self._next()
        async with self._grows_by(transactions * (records + 1)):
            for _ in range(transactions):
                await producer.begin_transaction()
                for _ in range(records):
                    await self._send(producer, encode(lost), headers_of(lost))
                await producer.abort_transaction()

    async def bare(self, transactions: int) -> None:
        """Transactions that the partition was added to, and that wrote nothing."""
        producer = await self._producer("bare")
        async with self._grows_by(transactions):
            for _ in range(transactions):
                await producer.begin_transaction()
                await join(producer, self._source)
                await producer.abort_transaction()

    async def open(self, records: int) -> AIOKafkaProducer:
        """A transaction of somebody else, which the test ends."""
        producer = await self._producer("open")
        await producer.begin_transaction()
        for _ in range(records):
            await self._send(producer, b"not ours")
        return producer

    async def trim(self, before_offset: int) -> None:
        await self.context.cluster.delete_records(self.context.increments, before_offset)

    async def close(self) -> None:
        for producer in self._producers:
            await producer.stop()

    def _next(self) -> Increment:
        if self._last is None:
            view, context = self.context.view, self.context
            starts = dict.fromkeys(context.input_names, 0)
            genesis = Genesis(view.cluster_id, view.partition_count, starts)
            return genesis_increment(context.origin, 0, genesis, EMPTY, 0, view.topic_ids)
        increment, offset = self._last
        return msgspec.structs.replace(increment, batch=increment.batch + 1, previous_offset=offset)

    async def _producer(self, role: str | None = None) -> AIOKafkaProducer:
        """Make a producer; with a role: a transactional one."""
        transactional: dict[str, Any] = {}
        if role is not None:
            transactional = {"transactional_id": f"{role}-{self.context.increments}", "transaction_timeout_ms": LONG_MS}
        producer = AIOKafkaProducer(
            bootstrap_servers=self.context.settings.bootstrap_servers, retry_backoff_ms=20, **transactional
        )
        await producer.start()
        self._producers.append(producer)
        return producer

    @asynccontextmanager
    async def _grows_by(self, offsets: int) -> AsyncIterator[None]:
        """Ends when so many more are written. A commit is answered before its marker is, and what another producer
        writes at once may come before it (docs/internals/facts.md)."""
        start = (await _bounds(self.context, False)).end_offset
        yield
        await until_async(lambda: _bounds(self.context, False), lambda bounds: bounds.end_offset >= start + offsets)

    async def _send(self, producer: AIOKafkaProducer, value: bytes, headers: Any = ()) -> int:
        source = self._source
        sent = await producer.send_and_wait(source.topic, value, partition=source.partition, headers=list(headers))
        return int(sent.offset)


class Sought(Exception):
    """The search has ended."""


class Seeker(RecoveryDriver):
    """A real recovery that ends where the last increment is found.

    Attributes:
        claimed_at: the offset of its claim.
        hidden: how often its claim could not be seen.
        windows: how many it has read.
    """

    def __init__(self, context: Context) -> None:
        super().__init__(context, Memory(context), Reporter(StatusBoard(), context.partition))
        self.claimed_at = -1
        self.hidden = 0
        self.windows = 0

    async def seek(self) -> FoundIncrement:
        """
        Raises:
            NotInitialised, HangingTransaction: as a recovery.
        """
        task = asyncio.get_running_loop().create_task(self.recover())
        await asyncio.wait([task])
        error = task.exception()
        assert error is not None, "it cannot have come to its end"
        if isinstance(error, Sought):
            found: FoundIncrement = error.args[0]
            return found
        raise error

    async def _perform(self, effect: effects.Action) -> events.Event:
        if isinstance(effect, effects.ReadStarts):
            raise Sought(effect.last)
        if isinstance(effect, effects.SeeClaim):
            self.claimed_at = effect.offset
        event = await super()._perform(effect)
        self.hidden += isinstance(event, events.ClaimHidden)
        self.windows += isinstance(event, events.WindowRead)
        return event


async def ends(context: Context) -> tuple[int, int]:
    """(last stable offset, high watermark)."""
    return (await _bounds(context, True)).end_offset, (await _bounds(context, False)).end_offset


async def _bounds(context: Context, committed: bool) -> Bounds:
    reader = await context.cluster.reader(read_committed=committed)
    try:
        return await reader.bounds(context.increments)
    finally:
        await reader.close()
