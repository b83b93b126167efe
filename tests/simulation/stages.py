"""The two stages for `histories`: one in memory, one on a real broker. What is observed is noted the same way."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any

from aiokafka.structs import TopicPartition as ClientPartition

from snapreplay.errors import SnapreplayError
from snapreplay.service.config.settings import Settings
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.kafka.errors import CLIENT_ERRORS, commit_error
from snapreplay.service.ports import Cluster, LogRecord, Reader, TopicPartition
from tests.simulation.broker import Broker, InvalidTxnState
from tests.simulation.cluster import SimCluster
from tests.simulation.histories import Open

TOPIC = "t"
Note = Any
LOOK_SECONDS = 10.0


class Noting:
    """What both stages share: everything goes through the ports, and is noted by value or by class of error."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.notes: list[Note] = []
        self._cluster, self._topic = cluster, topic
        self._log = TopicPartition(topic, 0)
        self._names: dict[str, str] = {}
        self._sent = 0
        self._producers: list[Any] = []

    async def commit(self, name: str, count: int) -> None:
        producer = await self.keep(name)
        await self.use(producer, count)
        await producer.discard()

    async def keep(self, name: str) -> Any:
        self._producers.append(await self._cluster.fence(self.id_of(name)))
        return self._producers[-1]

    async def close(self) -> None:
        for producer in self._producers:
            await producer.discard()

    async def use(self, producer: Any, count: int) -> None:
        records = [LogRecord(self._topic, value) for value in self.values(count)]
        self.notes.append(await outcome(producer.commit(0, (), records)))

    async def fence(self, name: str) -> None:
        await (await self.keep(name)).discard()

    async def append(self, count: int) -> None:
        appender = await self._cluster.appender()
        for value in self.values(count):
            self.notes.append(await appender.append(LogRecord(self._topic, value), 0))
        await appender.close()

    async def delete(self, before_offset: int) -> None:
        self.notes.append(await outcome(self._cluster.delete_records(self._log, before_offset)))

    def id_of(self, name: str) -> str:
        """Unique to this history."""
        return self._names.setdefault(name, f"{name}-{uuid.uuid4().hex[:8]}")

    def values(self, count: int) -> list[bytes]:
        self._sent += count
        return [b"%d" % number for number in range(self._sent - count, self._sent)]

    async def observed(self) -> Note:
        """Bounds, all records, single records around both ends, and errors out of range; both isolations."""
        found: list[Note] = []
        beyond = 0
        for read_committed in (False, True):
            reader = await self._cluster.reader(read_committed=read_committed)
            try:
                start, end = await reader.bounds(self._log)
                found.append(((start, end), await self._records(reader, start, end)))
                for offset in sorted({start - 1, end - 2, end} - {-1, -2}):
                    record = await outcome(reader.read_at(self._log, offset))
                    found.append((offset, getattr(record, "value", record)))
                beyond = max(beyond, end + 5)  # of the high watermark, for both
                found.append(await outcome(self._records(reader, beyond, beyond + 1)))
                if start > 0:
                    found.append(await outcome(self._records(reader, start - 1, end)))
            finally:
                await reader.close()
        return found

    async def _records(
        self, reader: Reader, start: int, end: int
    ) -> list[tuple[int, bytes | None]]:
        return [
            (record.offset, record.value)
            async for records in reader.read(self._log, start, end)
            for record in records
        ]


class MemoryStage(Noting):
    """The simulator's broker, without faults."""

    def __init__(self, cluster: SimCluster, broker: Broker) -> None:
        super().__init__(cluster, TOPIC)
        self._broker = broker
        broker.create(TOPIC, 1)

    async def begin(self, name: str) -> Open:
        producer = await self.keep(name)
        self._broker.add_partition(self.id_of(name), producer._epoch, self._log)
        return _MemoryOpen(self, self._broker, self.id_of(name), producer._epoch)

    async def decided(self) -> None:
        log = self._broker.logs[self._log]
        while log.stable < log.end:
            change: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            log.tell(change)
            await change

    async def look(self) -> None:
        self.notes.append(await self.observed())


class _MemoryOpen:
    def __init__(self, stage: MemoryStage, broker: Broker, name: str, epoch: int) -> None:
        self._stage, self._broker, self._name, self._epoch = stage, broker, name, epoch

    async def write(self, count: int) -> None:
        batch = [LogRecord(TOPIC, value) for value in self._stage.values(count)]
        self._broker.produce(self._name, self._epoch, self._stage._log, list(batch))

    async def end(self, *, commit: bool) -> str:
        try:
            self._broker.end_transaction(self._name, self._epoch, commit=commit)
        except (SnapreplayError, InvalidTxnState) as error:
            self._stage.notes.append(type(error).__name__)
            return type(error).__name__
        self._stage.notes.append("ok")
        return "ok"


class BrokerStage(Noting):
    """A real one. `expected` are the notes of the other stage: markers come when they come, so a look waits for
    what is expected and notes what there is at last."""

    def __init__(self, settings: Settings, topic: str, expected: list[Note]) -> None:
        super().__init__(KafkaCluster(settings), topic)
        self._expected = expected

    async def begin(self, name: str) -> Open:
        producer = await self.keep(name)
        client = producer._producer
        await client.client._wait_on_metadata(self._topic)
        await client.begin_transaction()
        client._txn_manager.maybe_add_partition_to_txn(ClientPartition(self._topic, 0))
        joins = client._txn_manager
        while joins.partitions_to_add():  # noqa: ASYNC110 - the client's own task, without an event
            await asyncio.sleep(0.005)  # it asks the coordinator
        return _BrokerOpen(self, producer)

    async def decided(self) -> None:
        plain = await self._cluster.reader(read_committed=False)
        reader = await self._cluster.reader()
        while (await plain.bounds(self._log)) != (await reader.bounds(self._log)):  # noqa: ASYNC110 - no event either
            await asyncio.sleep(0.05)  # the broker looks for old transactions once a second
        await plain.close()
        await reader.close()

    async def look(self) -> None:
        loop = asyncio.get_running_loop()
        at, deadline = len(self.notes), loop.time() + LOOK_SECONDS
        expected = self._expected[at] if at < len(self._expected) else None
        found = await self.observed()
        while found != expected and loop.time() < deadline:
            await asyncio.sleep(0.02)  # a marker comes some milliseconds after its answer
            found = await self.observed()
        self.notes.append(found)


class _BrokerOpen:
    def __init__(self, stage: BrokerStage, producer: Any) -> None:
        self._stage, self._producer = stage, producer._producer

    async def write(self, count: int) -> None:
        for value in self._stage.values(count):
            await self._producer.send_and_wait(self._stage._topic, value, partition=0)

    async def end(self, *, commit: bool) -> str:
        name = "ok"
        try:
            ended = (
                self._producer.commit_transaction if commit else self._producer.abort_transaction
            )
            await ended()
        except CLIENT_ERRORS as error:
            name = type(commit_error(error, "x")).__name__
        self._stage.notes.append(name)
        return name


async def outcome(call: Any) -> Note:
    """What it returns, or the class of what it raises."""
    try:
        return await call
    except SnapreplayError as error:
        return type(error).__name__
