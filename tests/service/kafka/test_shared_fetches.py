"""The fetches that readers which begin at the same time share: one request. If anything is odd about a partition, its
own fetch follows. A scripted broker at the wire."""

import asyncio
import random
import struct
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

from snapreplay.service.config.settings import Settings
from snapreplay.service.kafka import connection, fetching, shared
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.kafka.fetches import BY_ID, Fetch
from snapreplay.service.ports import TopicPartition
from tests.support import record_batches
from tests.support.deadlines import within
from tests.support.kafka import Since, hasty
from tests.support.scripted_fetches import TOPIC, TOPIC_ID, Says, ScriptedBroker
from tests.support.stage import until
from tests.support.wire import Streams

OTHER_ID = "BBECAwQFBgcICQoLDA0ODw"
COUNT = 3
LOGS = [TopicPartition(TOPIC, number) for number in range(COUNT)]
VICTIM = 1
DIVERGING = b"\x0d" + struct.pack(">iq", 77, 0) + b"\0"
"""The size of a tagged field, and in it an epoch and where it ends."""
WAIT_MS = 100


class Asked(NamedTuple):
    """A fetch: by which broker, whether it is shared, and partition → offset."""

    node: int
    is_shared: bool
    offsets: dict[int, int]
    is_committed: bool = True
    is_by_id: bool = True


class Odd(NamedTuple):
    """The answer to a shared fetch: for the victim, or as a whole."""

    code: int = 0
    whole: Says = Says()
    how: str = ""
    """Of the victim: "absent", "empty" although there are records, "cut" inside of its batch, "diverging", or a
    "replica" is named."""


class Broker(ScriptedBroker):
    """Brokers 1 and 2, whose partitions have so many records, one a batch. Attributes: `asked`; `odd`, how each shared
    fetch is answered; `is_held` answers none before `lets_go` is set; `open_from`, where a transaction is open."""

    def __init__(self, records: int = 1, odd: Odd | None = None) -> None:
        super().__init__(lambda *_: Says())
        self.partitions = COUNT
        self.ends = dict.fromkeys(range(COUNT), records)
        self.asked: list[Asked] = []
        self.asked_at: list[float] = []
        self.odd, self.is_held = odd, False
        self.open_from = 1000
        self._changed = asyncio.Condition()

    @property
    def own(self) -> list[Asked]:
        return [each for each in self.asked if not each.is_shared]

    @property
    def shared(self) -> list[Asked]:
        return [each for each in self.asked if each.is_shared]

    async def append(self, number: int) -> None:
        async with self._changed:
            self.ends[number] += 1
            self._changed.notify_all()

    async def _answer(self, node: int, client: Streams, head: bytes, asked: Any) -> bool:
        limits = {each[5] for _, some, _ in asked.topics for each in some}
        offsets = {number: offset for _, some, _ in asked.topics for number, _, offset, *_ in some}
        is_shared = limits == {fetching.SHARED_LOG_BYTES}
        is_committed = bool(asked.isolation_level)
        self.asked.append(Asked(node, is_shared, offsets, is_committed, isinstance(asked, BY_ID)))
        self.asked_at.append(asyncio.get_running_loop().time())
        odd = self.odd if is_shared else None
        if self.is_held:
            await self.lets_go.wait()
        if odd is None and node == self.leader:
            await self._wait(asked.max_wait_time, offsets, is_committed)
        whole = odd.whole if odd is not None else Says()
        if whole.how in ("silent", "closed"):
            return whole.how == "silent"
        found = [self._part(node, each, offset, odd, is_committed) for each, offset in offsets.items()]
        topics: list[Any] = [(asked.topics[0][0], [part for part in found if part is not None], {})]
        answer = (
            head
            + asked.RESPONSE_TYPE(
                whole.throttle_ms, whole.whole_code, 0, [] if whole.whole_code else topics, {}
            ).encode()
        )
        answer = answer.replace(b"\1" + DIVERGING, b"\0" + DIVERGING)  # aiokafka writes no tag 0
        if whole.how == "half":
            client[1].write(struct.pack(">i", len(answer)) + answer[: len(answer) // 2])
            await client[1].drain()
            return False
        await self._send(client, answer[: len(answer) // 2] if whole.how == "short" else answer)
        return whole.how != "last"

    def _end(self, number: int, is_committed: bool) -> int:
        return min(self.ends[number], self.open_from) if is_committed else self.ends[number]

    async def _wait(self, wait_ms: int, offsets: dict[int, int], is_committed: bool) -> None:
        def has_some() -> bool:
            return any(self._end(each, is_committed) > at for each, at in offsets.items())

        async with self._changed:
            try:
                async with asyncio.timeout(wait_ms / 1000):
                    await self._changed.wait_for(has_some)
            except TimeoutError:
                pass

    def _part(self, node: int, number: int, offset: int, odd: Odd | None, is_committed: bool) -> Any:
        if node != self.leader:
            return (number, 6, -1, -1, -1, [], -1, b"", {})
        how, code = "", 0
        if odd is not None and number == VICTIM:
            how, code = odd.how, odd.code
        if how == "absent":
            return None
        offsets = range(offset, self._end(number, is_committed))
        records = b"".join(record_batches.batch(at, at, [(at, b"k", b"%d" % at)]) for at in offsets)
        records = {"empty": b"", "cut": records[:40], "diverging": b"", "replica": b""}.get(how, records)
        if code:
            return (number, code, -1, -1, -1, [], -1, b"", {})
        tags = {1: DIVERGING} if how == "diverging" else {}
        return (
            number,
            0,
            self.ends[number],
            self._end(number, True),
            0,
            [],
            2 if how == "replica" else -1,
            records,
            tags,
        )


@pytest.fixture(autouse=True)
def many(monkeypatch):
    """As among many clients, and no partition is watched."""
    monkeypatch.setattr(fetching, "SHARED_USERS_MIN", 1)
    monkeypatch.setattr(fetching, "QUIET_S", 3600.0)
    monkeypatch.setattr(shared, "WAIT_S_PER_CLIENT", 1.0)
    monkeypatch.setattr(shared, "WAIT_S_MAX", 0.05)


@asynccontextmanager
async def reading(broker: Broker, *ids: str, how: Any = None, **kafka: Any):
    """Provide a patient reader for each of these topic ids; `how` is a dict, or one for each reader. Nothing is left of
    them afterwards."""
    async with broker.running():
        settings = Settings(kafka={**hasty(broker.address, 500).kafka, "fetch.max.wait.ms": WAIT_MS, **kafka})
        since, cluster, readers = Since(broker.address), KafkaCluster(settings), []
        try:
            named = [{TOPIC: topic_id} for topic_id in ids or (TOPIC_ID,) * COUNT]
            hows = how if isinstance(how, list) else [how or {}] * len(named)
            for ids_of, more in zip(named, hows, strict=True):
                readers.append(await cluster.reader(patient=True, topic_ids=ids_of, **more))
            yield readers
        finally:
            for reader in readers:
                await reader.close()
        await until(lambda: not since.tasks and not since.sockets)


async def follow(readers: list[Any]) -> None:
    for reader, log in zip(readers, LOGS, strict=True):
        await reader.follow({log: 0})


async def read(reader: Any, log: TopicPartition, count: int = 1) -> list[int]:
    found: list[int] = []
    async with within(60):
        while len(found) < count:
            found += [each.offset for each in (await reader.poll(100, 1000)).get(log, ())]
    return found


@pytest.mark.parametrize("bytes_max", [1 << 20, (1 << 20) + 1])
async def test_readers_that_begin_together_fetch_together(bytes_max):
    """Each has its own records, and fetches alone afterwards."""
    broker = Broker(2)
    async with reading(broker, **{"max.partition.fetch.bytes": bytes_max}) as readers:
        await follow(readers)
        assert [await read(*each, 2) for each in zip(readers, LOGS, strict=True)] == [[0, 1]] * COUNT
        assert broker.asked[0] == Asked(1, True, dict.fromkeys(range(COUNT), 0))
        assert len(broker.shared) == 1
        await until(lambda: len(broker.own) >= COUNT)
        assert all(len(each.offsets) == 1 for each in broker.own)
        assert [each.disturbances for each in readers] == [0] * COUNT


async def test_single_records_are_read_together():
    """By readers that follow nothing, one record after the other."""
    broker = Broker(3)
    async with reading(broker) as readers:
        for at in (2, 0):
            found = await asyncio.gather(*(each.read_at(log, at) for each, log in zip(readers, LOGS, strict=True)))
            assert [(each.partition, each.offset) for each in found] == [(number, at) for number in range(COUNT)]
        assert broker.asked == [Asked(1, True, dict.fromkeys(range(COUNT), at)) for at in (2, 0)]
        assert broker.bounds_asked == 0


async def test_quiet_partitions_fetch_together_until_something_comes():
    """It comes at once, with that fetch; the others have only asked again."""
    broker = Broker(0)
    async with reading(broker, **{"fetch.max.wait.ms": 60_000}) as readers:
        await follow(readers)
        await until(lambda: len(broker.shared) == 1)
        await broker.append(VICTIM)
        assert await read(readers[VICTIM], LOGS[VICTIM]) == [0]
        await until(lambda: len(broker.asked) >= 3)
        others = {number: 0 for number in range(COUNT) if number != VICTIM}
        assert [each.offsets for each in broker.shared] == [dict.fromkeys(range(COUNT), 0), others]
        assert [each.offsets for each in broker.own] == [{VICTIM: 1}]
        assert [each.end_offset(log) for each, log in zip(readers, LOGS, strict=True)] == [0, 1, 0]
        await broker.append(2)
        assert await read(readers[2], LOGS[2]) == [0]
        assert [each.disturbances for each in readers] == [0] * COUNT


OF_ONE = {
    "absent": Odd(how="absent"),
    "no room": Odd(how="empty"),
    "half a batch": Odd(how="cut"),
    "a log that went another way": Odd(how="diverging"),
    "a replica": Odd(how="replica"),
    "unknown topic id": Odd(100),
    "not the leader": Odd(6),
    "out of range": Odd(1),
    "forbidden": Odd(29),
    "unknown": Odd(-1),
}
"""What a shared fetch says of one partition."""


@pytest.mark.parametrize("name", OF_ONE)
async def test_what_is_odd_about_one_partition_is_for_its_own_fetch(name):
    """It is not even a doubt about that one: its own fetch is answered as it should."""
    broker = Broker(1, OF_ONE[name])
    async with reading(broker) as readers:
        await follow(readers)
        assert [await read(*each) for each in zip(readers, LOGS, strict=True)] == [[0]] * COUNT
        assert len(broker.shared) == 1
        assert [each.offsets for each in broker.own if each.offsets == {VICTIM: 0}] == [{VICTIM: 0}]
        assert {number for each in broker.own for number, at in each.offsets.items() if at == 0} == {VICTIM}
        assert [(each.disturbances, each.doubt) for each in readers] == [(0, "")] * COUNT


OF_ALL = {
    "half a frame": Says(how="half"),
    "a frame with half an answer": Says(how="short"),
    "the connection ends": Says(how="closed"),
    "no answer": Says(how="silent"),
    "refused": Says(whole_code=-1),
}


@pytest.mark.parametrize("name", OF_ALL)
async def test_a_shared_fetch_without_an_answer_is_a_loss_for_each_reader(name):
    """As their own fetch would have been; each reads for itself then."""
    broker = Broker(1, Odd(whole=OF_ALL[name]))
    async with reading(broker) as readers:
        await follow(readers)
        assert [await read(*each) for each in zip(readers, LOGS, strict=True)] == [[0]] * COUNT
        assert len(broker.shared) == 1
        assert [each.disturbances for each in readers] == [1] * COUNT


async def test_an_outage_behind_a_shared_fetch_is_a_loss_for_each_reader(monkeypatch):
    """No connection was kept that would have shown it."""
    broker, real, is_down = Broker(1, Odd(whole=Says(how="last"))), connection.connect, True

    async def connect(*given: Any) -> Any:
        if broker.shared and is_down:
            raise ConnectionRefusedError("the broker restarts")
        return await real(*given)

    async with reading(broker) as readers:
        monkeypatch.setattr(connection, "connect", connect)
        await follow(readers)
        await until(lambda: all(each.is_silent for each in readers))
        is_down = False
        assert [await read(*each) for each in zip(readers, LOGS, strict=True)] == [[0]] * COUNT
        assert all(each.disturbances for each in readers)


async def test_a_frozen_broker_does_not_hold_up_what_another_one_has(monkeypatch):
    """A shared fetch needs no newer metadata, which this broker would be asked for."""
    broker = Broker(0)
    async with reading(broker, **{"request.timeout.ms": 14_000}) as readers:
        await follow(readers)
        await until(lambda: broker.shared)
        monkeypatch.setattr(shared, "FRESH_SECONDS", 0.0)
        monkeypatch.setattr(random, "sample", lambda some, _: sorted(some, key=lambda each: -each.nodeId))
        broker.frozen = {2}
        readers[0]._shared.doubt()
        begun = len(broker.asked)
        try:
            async with asyncio.timeout(10):  # below that of the request
                await until(lambda: len(broker.asked) >= begun + 2)  # until the next fetch: the first was under way
                await broker.append(0)
                assert await read(readers[0], LOGS[0]) == [0]
        finally:
            broker.lets_go.set()
        assert [each.disturbances for each in readers] == [0] * COUNT


async def test_a_quota_is_waited_for_by_each_reader():
    """The broker would read their own connections, and be asked for more than the quota allows. It is no loss."""
    broker = Broker(1, Odd(whole=Says(throttle_ms=700)))
    async with reading(broker) as readers:
        await follow(readers)
        assert [await read(*each) for each in zip(readers, LOGS, strict=True)] == [[0]] * COUNT
        await until(lambda: len(broker.own) >= COUNT)
        assert broker.asked_at[1] - broker.asked_at[0] >= 0.69
        assert [each.disturbances for each in readers] == [0] * COUNT


async def test_an_answer_that_no_decoder_takes_is_for_the_own_fetches(monkeypatch, caplog):
    """The broker's connection is whole: another one's partition is no loss for a reader. The log has the error."""
    broker, decoded = Broker(1), Fetch.answers

    def answers(self, answer):
        if len(self._wanted) > 1:
            raise struct.error("of one partition")
        return decoded(self, answer)

    monkeypatch.setattr(Fetch, "answers", answers)
    async with reading(broker) as readers:
        await follow(readers)
        assert [await read(*each) for each in zip(readers, LOGS, strict=True)] == [[0]] * COUNT
        assert "partitions of several readers from broker 1 failed: error: of one partition" in caplog.text
        assert [each.disturbances for each in readers] == [0] * COUNT


async def test_a_leader_that_has_moved_is_found_by_each_reader():
    broker = Broker(1)
    async with reading(broker) as readers:
        await readers[0]._shared.track([TOPIC])
        broker.leader = 2
        await follow(readers)
        assert [await read(*each) for each in zip(readers, LOGS, strict=True)] == [[0]] * COUNT
        assert broker.asked[0].node == 1
        assert broker.asked[-1].node == 2
        assert all(each.disturbances for each in readers)


async def test_a_silent_broker_is_noticed_as_soon_as_alone(monkeypatch):
    """Long before the request times out. It is no longer silent once it answers."""
    monkeypatch.setattr(fetching, "LATE_S", 0.3)
    broker, loop = Broker(0), asyncio.get_running_loop()
    broker.is_held = True
    async with reading(broker, **{"request.timeout.ms": 12_000}) as readers:
        began = loop.time()
        await follow(readers)
        await until(lambda: all(each.is_silent for each in readers))
        assert 0.3 <= loop.time() - began < 4
        broker.lets_go.set()
        await until(lambda: not any(each.is_silent for each in readers))


async def test_a_late_answer_behind_a_shared_fetch_is_a_loss(monkeypatch):
    """The broker may have been away since, and no connection was kept that would have shown it."""
    monkeypatch.setattr(fetching, "LATE_S", 0.2)
    broker = Broker(0)
    async with reading(broker) as readers:
        await follow(readers)
        await until(lambda: len(broker.shared) >= 1)
        broker.is_held = True
        await until(lambda: all(each.is_silent for each in readers))
        broker.lets_go.set()
        await until(lambda: all(each.disturbances for each in readers))


async def test_a_reader_that_ends_leaves_the_fetch_to_the_others():
    """One begins elsewhere, one is closed; the third still gets what comes."""
    broker = Broker(0)
    async with reading(broker, **{"fetch.max.wait.ms": 60_000}) as readers:
        await follow(readers)
        await until(lambda: len(broker.shared) == 1)
        await readers[0].follow({LOGS[0]: 5})
        await readers[2].close()
        await broker.append(VICTIM)
        assert await read(readers[VICTIM], LOGS[VICTIM]) == [0]
        assert readers[VICTIM].disturbances == 0


@pytest.mark.parametrize(
    ("ids", "numbers", "offsets"),
    [((TOPIC_ID, TOPIC_ID), (0, 0), (0, 1)), ((TOPIC_ID, OTHER_ID), (0, 1), (0, 0))],
    ids=["two offsets", "two topics of a name"],
)
async def test_what_two_readers_want_differently_is_shared_by_one(ids, numbers, offsets):
    """A request names a partition once, and a topic by one id."""
    broker = Broker(2)
    async with reading(broker, *ids) as readers:
        wanted = list(zip(readers, [LOGS[number] for number in numbers], offsets, strict=True))
        for reader, log, at in wanted:
            await reader.follow({log: at})
        assert [await read(each, log, 2 - at) for each, log, at in wanted] == [list(range(at, 2)) for at in offsets]
        assert [len(each.offsets) for each in broker.shared] == [1]


@pytest.mark.parametrize(
    ("how", "kafka", "users_min"),
    [({}, {}, 1000), ({"large": True}, {}, 1), ({}, {"client.rack": "b"}, 1), ({}, {"fetch.min.bytes": 1000}, 1)],
    ids=["few clients", "large records", "a rack", "the user's batching"],
)
async def test_what_is_better_alone_is_not_shared(monkeypatch, how, kafka, users_min):
    monkeypatch.setattr(fetching, "SHARED_USERS_MIN", users_min)
    broker = Broker(1)
    async with reading(broker, how=how, **kafka) as readers:
        await follow(readers)
        assert [await read(*each) for each in zip(readers, LOGS, strict=True)] == [[0]] * COUNT
        assert not broker.shared


async def test_readers_of_committed_and_of_all_records_do_not_share():
    """Of one log, behind which a transaction is open: each has what it may read, and its own end."""
    broker = Broker(3)
    broker.open_from = 1
    async with reading(broker, TOPIC_ID, TOPIC_ID, how=[{}, {"read_committed": False}]) as readers:
        for reader in readers:
            await reader.follow({LOGS[0]: 0})
        assert [await read(each, LOGS[0], count) for each, count in zip(readers, (1, 3), strict=True)] == [
            [0],
            [0, 1, 2],
        ]
        assert [each.end_offset(LOGS[0]) for each in readers] == [1, 3]
        assert sorted(each.is_committed for each in broker.shared if each.offsets == {0: 0}) == [False, True]


async def test_a_reader_without_topic_ids_does_not_share_with_others():
    """A request is by id or by name as a whole."""
    broker = Broker(1)
    broker.is_named = True
    async with reading(broker, TOPIC_ID, TOPIC_ID, "") as readers:
        await follow(readers)
        assert [await read(*each) for each in zip(readers, LOGS, strict=True)] == [[0]] * COUNT
        assert sorted((each.is_by_id, each.offsets) for each in broker.shared) == [
            (False, {2: 0}),
            (True, {0: 0, 1: 0}),
        ]


async def test_a_reader_does_not_wait_for_a_shared_fetch_that_is_under_way():
    """The broker keeps that one until something comes to a quiet partition."""
    broker = Broker(0)
    broker.ends[2] = 1
    async with reading(broker, **{"fetch.max.wait.ms": 300_000}) as readers:
        for reader, log in list(zip(readers, LOGS, strict=True))[:2]:
            await reader.follow({log: 0})
        await until(lambda: broker.shared)
        await readers[2].follow({LOGS[2]: 0})
        async with within(20):
            assert await read(readers[2], LOGS[2]) == [0]
        assert [each.offsets for each in broker.shared] == [{0: 0, 1: 0}, {2: 0}]


async def test_a_reader_that_no_watch_takes_fetches_alone(monkeypatch):
    """It waits long at the broker, and would hold up the others there."""
    monkeypatch.setattr(fetching, "QUIET_S", 0.05)
    broker = Broker(0)
    broker.is_named = True
    async with reading(broker, "", "", "") as readers:
        await follow(readers)
        await until(lambda: len(broker.own) >= 2 * COUNT)
        assert broker.shared
        assert all(len(each.offsets) == 1 for each in broker.own)
