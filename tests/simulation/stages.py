"""Small scripted histories of one topic with one partition, told through the ports: in memory, and on a real broker.

    commit NAME N       a new producer of this transactional id commits N records
    keep, use NAME N    a producer of this id is started and kept; it commits N records
    begin NAME          a new producer of this id joins the partition in a transaction, and writes nothing yet
    write NAME N        within it
    end NAME HOW        it is to be committed, or aborted
    fence NAME
    append N            outside of any transaction
    delete OFFSET       DeleteRecords below it
    decided             until no transaction is open: the last one has outlived its timeout
    look                everything that a reader can observe now

What each step gives, or the class of its error, is noted in the same way by both stages.
"""

import asyncio
import random
import uuid
from collections.abc import Coroutine
from typing import Any

from snapreplay.errors import SnapreplayError
from snapreplay.service.config.settings import Settings
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.kafka.errors import CLIENT_ERRORS, commit_error
from snapreplay.service.ports import Cluster, LogRecord, NewTopic, Reader, TopicPartition
from tests.simulation.broker import Broker, InvalidTxnState, Writable
from tests.simulation.cluster import undisturbed
from tests.simulation.loop import VirtualLoop
from tests.support import inside
from tests.support.kafka import decided

TOPIC = "t"
Note = Any
LOOK_SECONDS = 10.0


class Stage:
    """The common ground of both stages: everything goes through the ports."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.notes: list[Note] = []
        self._cluster, self._topic = cluster, topic
        self._log = TopicPartition(topic, 0)
        self._names: dict[str, str] = {}
        self._sent = 0
        self._started: list[Any] = []
        self._kept: dict[str, Any] = {}
        self._open: dict[str, Any] = {}

    async def play(self, history: str) -> list[Note]:
        try:
            await self.steps(history)
        finally:
            await self.close()
        return self.notes

    async def steps(self, history: str) -> None:
        for step in history.split(", "):
            what, *arguments = step.split()
            await getattr(self, what)(*(int(a) if a.isdigit() else a for a in arguments))

    async def close(self) -> None:
        for producer in self._started:
            await producer.discard()

    async def commit(self, name: str, count: int) -> None:
        producer = await self._start(name)
        await self._commit(producer, count)
        await producer.discard()

    async def keep(self, name: str) -> None:
        self._kept[name] = await self._start(name)

    async def use(self, name: str, count: int) -> None:
        await self._commit(self._kept[name], count)

    async def fence(self, name: str) -> None:
        await self._start(name)

    async def append(self, count: int) -> None:
        appender = await self._cluster.appender()
        for value in self._values(count):
            self.notes.append(await appender.append(LogRecord(self._topic, value), 0))
        await appender.close()

    async def delete(self, before_offset: int) -> None:
        self.notes.append(await _outcome(self._cluster.delete_records(self._log, before_offset)))

    async def look(self) -> None:
        self.notes.append(await self._observed())

    async def _start(self, name: str) -> Any:
        self._started.append(await self._cluster.fence(self._id(name)))
        return self._started[-1]

    async def _commit(self, producer: Any, count: int) -> None:
        records = [LogRecord(self._topic, value) for value in self._values(count)]
        self.notes.append(await _outcome(producer.commit(0, (), records)))

    def _id(self, name: str) -> str:
        return self._names.setdefault(name, f"{name}-{uuid.uuid4().hex[:8]}")

    def _values(self, count: int) -> list[bytes]:
        self._sent += count
        return [b"%d" % number for number in range(self._sent - count, self._sent)]

    async def _observed(self) -> Note:
        """Bounds, all records, single records around both ends, and errors out of range; both isolations."""
        found: list[Note] = []
        beyond = 0
        for read_committed in (False, True):
            reader = await self._cluster.reader(read_committed=read_committed)
            try:
                start, end = await reader.bounds(self._log)
                found.append(((start, end), await self._records(reader, start, end)))
                for offset in sorted({start - 1, end - 2, end} - {-1, -2}):
                    record = await _outcome(reader.read_at(self._log, offset))
                    found.append((offset, getattr(record, "value", record)))
                beyond = max(beyond, end + 5)  # of the high watermark, for both
                found.append(await _outcome(self._records(reader, beyond, beyond + 1)))
                if start > 0:
                    found.append(await _outcome(self._records(reader, start - 1, end)))
            finally:
                await reader.close()
        return found

    async def _records(self, reader: Reader, start: int, end: int) -> list[tuple[int, bytes | None]]:
        slices = [records async for records in reader.read(self._log, start, end)]
        return [(record.offset, record.value) for records in slices for record in records]


class MemoryStage(Stage):
    """The simulator's broker, without faults."""

    def __init__(self, settings: Settings) -> None:
        self._loop, self._broker = VirtualLoop(), Broker(random.Random(1), slow_markers=False)
        super().__init__(undisturbed(self._loop, self._broker, settings), TOPIC)
        self._broker.create(TOPIC, 1)

    def run(self, playing: Coroutine[Any, Any, list[Note]]) -> list[Note]:
        try:
            return self._loop.run_until_complete(playing)
        finally:
            self._loop.close()

    async def begin(self, name: str) -> None:
        self._open[name] = (await self._start(name)).lineage.producer_epoch
        self._broker.add_partition(self._id(name), self._open[name], self._log)

    async def write(self, name: str, count: int) -> None:
        batch: list[Writable] = [LogRecord(TOPIC, value) for value in self._values(count)]
        self._broker.produce(self._id(name), self._open[name], self._log, batch)

    async def end(self, name: str, how: str) -> None:
        try:
            self._broker.end_transaction(self._id(name), self._open[name], commit=how == "commit")
        except (SnapreplayError, InvalidTxnState) as error:
            self.notes.append(type(error).__name__)
        else:
            self.notes.append("ok")

    async def decided(self) -> None:
        log = self._broker.logs[self._log]
        while log.stable < log.end:
            change: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            log.tell(change)
            await change


class BrokerStage(Stage):
    """A real one. `expected` are the notes of the other stage: markers come when they come, so a look waits for
    what is expected and notes what there is at last."""

    def __init__(self, settings: Settings, topic: str, expected: list[Note]) -> None:
        self._kafka, self._expected = KafkaCluster(settings), expected
        super().__init__(self._kafka, topic)

    async def play(self, history: str) -> list[Note]:
        await self.prepare()
        return await super().play(history)

    async def prepare(self) -> None:
        await self._kafka.create_topics([NewTopic(self._topic, 1)])

    async def begin(self, name: str) -> None:
        producer = await self._start(name)
        self._open[name] = producer
        await inside.add_uncommitted(producer, self._log)

    async def write(self, name: str, count: int) -> None:
        await inside.send_uncommitted(self._open[name], self._topic, *self._values(count))

    async def end(self, name: str, how: str) -> None:
        try:
            await inside.sink(self._open[name]).end(commit=how == "commit")
        except CLIENT_ERRORS as error:
            self.notes.append(type(commit_error(error, "x")).__name__)
        else:
            self.notes.append("ok")

    async def decided(self) -> None:
        await decided(self._kafka, self._log)

    async def look(self) -> None:
        loop = asyncio.get_running_loop()
        at, deadline = len(self.notes), loop.time() + LOOK_SECONDS
        expected = self._expected[at] if at < len(self._expected) else None
        found = await self._observed()
        while found != expected and loop.time() < deadline:
            await asyncio.sleep(0.02)  # a marker comes some milliseconds after its answer
            found = await self._observed()
        self.notes.append(found)


async def _outcome(call: Any) -> Note:
    """Return what it returns, or the class of what it raises."""
    try:
        return await call
    except SnapreplayError as error:
        return type(error).__name__
