"""The watch of quiet partitions: who is watched, and what becomes of the readers when anything about it is odd; and the
ends of quiet logs that it knows. A scripted broker that keeps fetch sessions as KIP-227 says; and a real one."""

import asyncio
import struct
from collections import Counter
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from snapreplay.service.config.settings import Settings
from snapreplay.service.kafka import fetching, idle_watch, shared
from snapreplay.service.kafka.cluster import KafkaCluster
from snapreplay.service.kafka.cursors import Answered, Cursor, Reading
from snapreplay.service.kafka.fetches import BY_ID, BY_NAME, batch_at
from snapreplay.service.kafka.idle_watch import EndsWatch, Place, Watches, _End
from snapreplay.service.kafka.shared import Client, Shared
from snapreplay.service.kafka.throttling import THROTTLING
from snapreplay.service.ports import EpochEnd, LogRecord, TopicPartition
from tests.support import record_batches
from tests.support.deadlines import scaled, within
from tests.support.inside import send_uncommitted
from tests.support.kafka import Since, hasty, sockets_to, until_async
from tests.support.scripted_fetches import TOPIC, TOPIC_ID, Says, ScriptedBroker
from tests.support.stage import until
from tests.support.wire import Proxy, Streams

OTHER_ID = "BBECAwQFBgcICQoLDA0ODw"
LOGS = [TopicPartition(TOPIC, number) for number in range(3)]
WAIT_MS = 60
FETCH, LIST_OFFSETS = 1, 2
MANY = 5
HONEST = Says()
_UNKNOWN_ID = 100

Key = tuple[str, int]


class Broker(ScriptedBroker):
    """Brokers 1 and 2, which have the same logs of one record a batch.

    Attributes:
        own: the fetches without a session; `waiting` counts for which logs some wait.
        in_session: the fetches in a session, of which only the newest is known; `watched` is what it has.
        holds: whether the former are answered once `lets_go` is set.
        fault: how a fetch in a session is answered; "absent": without what is new in it.
    """

    def __init__(self) -> None:
        super().__init__(lambda *_: Says())
        self.partitions = len(LOGS)
        self.topics = {TOPIC_ID}
        self.own: list[Any] = []
        self.waiting: Counter[Key] = Counter()
        self.in_session: list[Any] = []
        self.watched: dict[Key, int] = {}
        self.fault = HONEST
        self.holds = False
        self._ends: Counter[Key] = Counter()
        self._said: dict[Key, Any] = {}
        self._session = (0, 0)
        self._changed = asyncio.Condition()

    async def append(self, number: int, topic: str = TOPIC_ID) -> None:
        async with self._changed:
            self._ends[topic, number] += 1
            self._changed.notify_all()

    async def delete(self, topic: str) -> None:
        async with self._changed:
            self.topics.discard(topic)
            self._changed.notify_all()

    async def fail(self, fault: Says) -> None:
        """Answer fetches in a session like this, also the one under way."""
        async with self._changed:
            self.fault = fault
            self._changed.notify_all()

    async def _answer(self, node: int, client: Streams, head: bytes, asked: Any) -> bool:
        named = {(topic, number): offset for topic, some, _ in asked.topics for number, _, offset, *_ in some}
        if asked.session_epoch >= 0:
            return await self._answer_session(client, head, asked, named)
        self.own.append(asked)
        self.waiting.update(named.keys())
        await self._wait(asked, lambda: self._has_news(named))
        self.waiting.subtract(named.keys())
        if self.holds:
            await self.lets_go.wait()
        await self._send(client, head + _answer_to(asked, {key: self._part(key, at) for key, at in named.items()}))
        return True

    async def _answer_session(self, client: Streams, head: bytes, asked: Any, named: dict[Key, int]) -> bool:
        self.in_session.append(asked)
        if asked.session_epoch == 0:
            self._session, self.watched, self._said = (self._session[0] + 1, 1), {}, {}
        else:
            assert (asked.session_id, asked.session_epoch) == self._session
            self._session = self._session[0], self._session[1] + 1
        self.watched.update(named)
        for topic, numbers, _ in asked.forgotten_topics_data:
            for number in numbers:
                del self.watched[topic, number]
                self._said.pop((topic, number), None)
        await self._wait(asked, lambda: self._is_odd() or self._has_news(self.watched))
        says, parts = self.fault, {key: self._part(key, at) for key, at in self.watched.items()}
        changed = {key: part for key, part in parts.items() if _has_changed(part, self._said.get(key))}
        self._said = parts
        if says.how in ("silent", "closed"):
            return says.how == "silent"
        hidden = changed if says.whole_code else named if says.how == "absent" else ()
        found = {key: part for key, part in changed.items() if key not in hidden}
        answer = head + _answer_to(asked, found, says, 0 if says.whole_code else self._session[0])
        if says.how == "half":
            client[1].write(struct.pack(">i", len(answer)) + answer[: len(answer) // 2])
            await client[1].drain()
            return False
        await self._send(client, answer[: len(answer) // 2] if says.how == "short" else answer)
        return True

    async def _wait(self, asked: Any, is_over: Any) -> None:
        async with self._changed:
            try:
                async with asyncio.timeout(asked.max_wait_time / 1000):
                    await self._changed.wait_for(is_over)
            except TimeoutError:
                pass

    def _is_odd(self) -> bool:
        return self.fault != HONEST and self.fault.how != "absent"

    def _has_news(self, fetched: dict[Key, int]) -> bool:
        return any(key[0] not in self.topics or self._ends[key] > offset for key, offset in fetched.items())

    def _part(self, key: Key, offset: int) -> tuple[Any, ...]:
        if key[0] not in self.topics:
            return (key[1], _UNKNOWN_ID, -1, -1, -1, [], -1, b"", {})
        end = self._ends[key]
        records = b"".join(record_batches.batch(at, at, [(at, b"k", b"%d" % at)]) for at in range(offset, end))
        return (key[1], 0, end, end, 0, [], -1, records, {})


def _has_changed(part: Any, said: Any) -> bool:
    """Say whether a broker names a partition of a session: also one that it has had from another offset (KIP-227)."""
    _, code, high_watermark, _, log_start, _, preferred, records, tags = part
    if code or records or tags or preferred >= 0 or said is None or said[1]:
        return True
    return (high_watermark, log_start) != (said[2], said[4])


def _answer_to(asked: Any, parts: dict[Key, Any], says: Says = HONEST, session_id: int = 0) -> bytes:
    topics: dict[str, list[Any]] = {}
    for (topic, _), part in parts.items():
        topics.setdefault(topic, []).append(part)
    named: list[Any] = [(topic, some, {}) for topic, some in topics.items()]
    answer: bytes = asked.RESPONSE_TYPE(says.throttle_ms, says.whole_code, session_id, named, {}).encode()
    return answer


@pytest.fixture(autouse=True)
def haste(monkeypatch):
    """Partitions are quiet soon; a broker on a busy machine is not late."""
    monkeypatch.setattr(fetching, "QUIET_S", 0.1)
    monkeypatch.setattr(fetching, "LATE_S", scaled(10))
    monkeypatch.setattr(idle_watch, "LATE_S", scaled(10))
    monkeypatch.setattr(idle_watch, "_REST_S", 0.3)


@asynccontextmanager
async def following(broker, *places, **kafka):
    """Provide readers of these logs. A place is a log and the id of its topic. Nothing is left of them afterwards."""
    async with broker.running():
        given = hasty(broker.address, 300).kafka
        settings, since = Settings(kafka={**given, "fetch.max.wait.ms": WAIT_MS, **kafka}), Since(broker.address)
        cluster, readers = KafkaCluster(settings), []
        try:
            for place, topic_id in places:
                readers.append(await cluster.reader(patient=True, topic_ids={place.topic: topic_id}))
                await readers[-1].follow({place: 0})
            yield readers
        finally:
            for reader in readers:
                await reader.close()
        await until(lambda: not since.tasks and not since.sockets)


@asynccontextmanager
async def watched(broker, *places, **kafka):
    """The same, once all of them are quiet and have no fetch of their own."""
    async with following(broker, *places, **kafka) as readers:
        await until(lambda: are_watched(readers))
        yield readers


def are_watched(readers: list[Any]) -> bool:
    """Say whether all of them are, and have no fetch of their own."""
    fetches = [each._fetching for each in readers]
    places = [place for each in fetches for place in each._places.values()]
    return len(places) == len(readers) and all(p.is_watched for p in places) and not any(f._late_at for f in fetches)


async def read(reader, place, count=1):
    """Poll until so many records came; return their offsets."""
    found: list[int] = []
    async with within(60):
        while len(found) < count:
            found += [each.offset for each in (await reader.poll(100, 1000)).get(place, ())]
    return found


@pytest.mark.parametrize("count", [3, 1], ids=["beside others", "alone"])
async def test_what_comes_to_a_quiet_partition_is_read_by_its_own_fetch(count):
    """No other is disturbed. It is watched again when it is quiet again, from where it was read to."""
    broker, places = Broker(), [(log, TOPIC_ID) for log in LOGS[-count:]]
    async with watched(broker, *places) as readers:
        disturbances = [each.disturbances for each in readers]
        for at in range(3):
            own = len(broker.own)
            await broker.append(2)
            assert await read(readers[-1], LOGS[2]) == [at]
            assert {key for each in broker.own[own:] for key in named(each)} == {(TOPIC_ID, 2)}
            await until(lambda: are_watched(readers))
            assert broker.watched == {(TOPIC_ID, log.partition): 0 for log, _ in places} | {(TOPIC_ID, 2): at + 1}
        assert [each.disturbances for each in readers] == disturbances
        assert not any(each.is_silent for each in readers)
        if count == 1:  # no fetch is lost by naming what the session has
            assert not any(each.session_epoch and named(each) for each in broker.in_session)


async def test_partitions_that_begin_together_are_watched_without_a_connection_of_their_own(monkeypatch):
    """Until something comes: from the end of what they fetched together."""
    monkeypatch.setattr(fetching, "SHARED_USERS_MIN", 1)
    broker = Broker()
    await broker.append(1)
    async with following(broker, *((log, TOPIC_ID) for log in LOGS)) as readers:
        assert await read(readers[1], LOGS[1]) == [0]
        await until(lambda: are_watched(readers))
        assert broker.watched == {(TOPIC_ID, 0): 0, (TOPIC_ID, 1): 1, (TOPIC_ID, 2): 0}
        assert not readers[0]._client._connecting, "it has connected"
        await broker.append(0)
        assert await read(readers[0], LOGS[0]) == [0]
        assert readers[0]._client._connecting
        assert [each.disturbances for each in readers] == [0, 0, 0]


def named(asked):
    return [(topic, number) for topic, some, _ in asked.topics for number, *_ in some]


@pytest.mark.parametrize("code", [70, 71, 106])
async def test_a_session_that_the_broker_refuses_is_begun_again(code):
    """It ends the former one. Nothing is known that disturbs what is read."""
    broker, places = Broker(), [(log, TOPIC_ID) for log in LOGS[:2]]
    async with watched(broker, *places) as readers:
        disturbances, refused = [each.disturbances for each in readers], broker.in_session[-1].session_id
        await broker.fail(Says(whole_code=code))
        await until(lambda: broker.waiting[TOPIC_ID, 0] and broker.waiting[TOPIC_ID, 1])
        await broker.append(0)
        assert await read(readers[0], LOGS[0]) == [0]
        fetches = len(broker.in_session)
        await broker.fail(HONEST)
        await until(lambda: are_watched(readers))
        assert refused in [each.session_id for each in broker.in_session[fetches - 1 :] if each.session_epoch == 0]
        assert [each.disturbances for each in readers] == disturbances


ODD = {
    "half a frame": Says(how="half"),
    "a frame with half an answer": Says(how="short"),
    "the connection ends": Says(how="closed"),
    "refused": Says(whole_code=-1),
}


@pytest.mark.parametrize("name", ODD)
async def test_a_watch_that_is_lost_is_a_loss_for_all_its_readers(monkeypatch, name):
    """What they read next may come from another log. Also when the client has not seen its connection go."""
    broker, places = Broker(), [(log, TOPIC_ID) for log in LOGS[:2]]
    monkeypatch.setattr(Client, "losses", property(lambda _: 0, lambda *_: None), raising=False)
    async with watched(broker, *places) as readers:
        disturbances = [each.disturbances for each in readers]
        await broker.fail(ODD[name])
        await until(lambda: broker.waiting[TOPIC_ID, 0] and broker.waiting[TOPIC_ID, 1])
        assert all(each.disturbances > before for each, before in zip(readers, disturbances, strict=True))
        await broker.append(1)
        assert await read(readers[1], LOGS[1]) == [0]
        await broker.fail(HONEST)
        await until(lambda: are_watched(readers))


async def test_a_broker_that_does_not_answer_the_watch_is_silent(monkeypatch):
    """As soon as for a fetch of its own; and it is a loss. The reader hears of it again by itself, and a poll ends: an
    owner at rest has to show it."""
    broker = Broker()
    async with watched(broker, (LOGS[0], TOPIC_ID)) as (reader,):
        monkeypatch.setattr(idle_watch, "LATE_S", 0.3)
        disturbances = reader.disturbances
        await until(lambda: broker.in_session[-1].session_epoch > 2)
        seen: list[bool] = []
        polling = asyncio.create_task(reader.poll(10, 3_600_000))
        await broker.fail(Says(how="silent"))
        async with within(30):
            while reader.disturbances == disturbances:
                await asyncio.sleep(0)
                seen.append(reader.is_silent)
        assert reader.is_silent
        assert not seen[0]
        async with within(30):
            assert not await polling
        await until(lambda: not reader.is_silent)
        await broker.append(0)
        assert await read(reader, LOGS[0]) == [0]


@pytest.mark.parametrize(
    "fault",
    [Says(throttle_ms=400), ODD["the connection ends"], Says(whole_code=70), Says(how="silent")],
    ids=["throttled", "the connection ends", "no session", "silent"],
)
async def test_what_stays_odd_makes_no_tight_loop(monkeypatch, fault):
    """The watch rests longer and longer, and its readers fetch for themselves."""
    monkeypatch.setattr(idle_watch, "LATE_S", 0.1)
    broker, loop = Broker(), asyncio.get_running_loop()
    async with watched(broker, (LOGS[0], TOPIC_ID), (LOGS[1], TOPIC_ID)) as readers:
        await broker.fail(fault)
        began, fetches, own = loop.time(), len(broker.in_session), len(broker.own)
        for at in range(12):
            await broker.append(0)
            assert await read(readers[0], LOGS[0]) == [at]
            await asyncio.sleep(0.1)  # what is counted is in this time
        waits = (loop.time() - began) * 1000 / WAIT_MS
        assert len(broker.in_session) - fetches <= 2 * waits
        assert len(broker.own) - own <= 2 * (2 * waits + 12)


async def test_a_partition_that_the_broker_does_not_name_keeps_its_fetches():
    """It is asked about again, but no faster than it fetches itself."""
    broker = Broker()
    broker.fault = Says(how="absent")
    async with following(broker, (LOGS[0], TOPIC_ID)) as readers:
        await until(lambda: are_watched(readers) or len([each for each in broker.in_session if each.topics]) > 3)
        assert not are_watched(readers)
        assert len(broker.in_session) <= len(broker.own)
        await broker.append(0)
        assert await read(readers[0], LOGS[0]) == [0]
        fetches = len(broker.in_session)
        await until(lambda: len(broker.in_session) > fetches + 1)
        await broker.fail(HONEST)
        await until(lambda: are_watched(readers))
        assert broker.watched == {(TOPIC_ID, 0): 1}
        assert readers[0].disturbances == 0


async def test_a_quota_is_waited_for():
    """The broker does not read the connection meanwhile. The readers fetch for themselves; it is no disturbance."""
    broker, loop = Broker(), asyncio.get_running_loop()
    async with watched(broker, (LOGS[0], TOPIC_ID)) as (reader,):
        disturbances, fetches = reader.disturbances, len(broker.in_session)
        await broker.fail(Says(throttle_ms=700))
        began = loop.time()
        await until(lambda: broker.waiting[TOPIC_ID, 0])
        await broker.fail(HONEST)
        fetches = len(broker.in_session)
        await until(lambda: len(broker.in_session) > fetches)
        assert loop.time() - began >= 0.65
        assert reader.disturbances == disturbances
        assert "consumer_byte_rate" in str(THROTTLING)


async def test_a_topic_that_is_made_again_under_its_name_is_another_one():
    """Both are watched under their ids. Only the reader of one learns of its end."""
    broker, places = Broker(), [(LOGS[0], TOPIC_ID), (LOGS[0], OTHER_ID)]
    broker.topics.add(OTHER_ID)
    async with watched(broker, *places) as (former, later):
        disturbances = former.disturbances, later.disturbances
        await broker.append(0, OTHER_ID)
        assert await read(later, LOGS[0]) == [0]
        await broker.delete(TOPIC_ID)
        await until(lambda: former.disturbances > disturbances[0] + 1)
        assert later.disturbances == disturbances[1]
        assert former.position(LOGS[0]) == 0
        await broker.append(0, OTHER_ID)
        assert await read(later, LOGS[0]) == [1]


async def test_a_partition_that_two_readers_watch_is_one_in_the_session():
    """Both read what comes, and what comes after one of them has closed."""
    broker, place = Broker(), (LOGS[0], TOPIC_ID)
    async with watched(broker, place, place) as readers:
        await broker.append(0)
        assert [await read(each, LOGS[0]) for each in readers] == [[0], [0]]
        await until(lambda: are_watched(readers))
        await readers[0].close()
        await broker.append(0)
        assert await read(readers[1], LOGS[0]) == [1]


async def test_a_reader_whose_close_is_cancelled_leaves_the_watch():
    broker = Broker()
    async with watched(broker, (LOGS[0], TOPIC_ID)) as (reader,):
        watch = reader._fetching._watches.of(1, read_committed=True)
        closing = asyncio.create_task(reader.close())
        await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])
        assert closing.cancelled()
        assert not watch._readers


async def test_a_question_under_way_keeps_its_connection():
    """A reader gives its connections back when it begins at another position."""
    broker = Broker()
    async with watched(broker, (LOGS[0], TOPIC_ID)) as (reader,):
        broker.holds, own, client = True, len(broker.own), reader._fetching.client
        asking = asyncio.create_task(batch_at(client, LOGS[0], 0, {TOPIC: TOPIC_ID}))
        await until(lambda: len(broker.own) > own)
        (held,) = client._held.values()
        await reader.follow({LOGS[0]: 0})
        assert list(client._held.values()) == [held]
        await broker.append(0)
        broker.lets_go.set()
        found = await asking
        assert found is not None
        assert found.base_offset == 0
        assert await read(reader, LOGS[0]) == [0]


SAID = [
    (None, False, 0),
    (Answered(0, 5, 5), False, 0),
    (Answered(0, 6, 5), True, 0),
    (Answered(0, 6, 6, records=b"?"), True, 0),
    (Answered(0, 5, 5, diverging=EpochEnd(1, 2)), True, 0),
    (Answered(6), True, 1),
]
"""What a broker says of a watched partition, whether that ends its watch, and how many disturbances it is."""


@pytest.mark.parametrize(("answer", "is_over", "disturbances"), SAID)
async def test_news_and_errors_end_the_watch(answer, is_over, disturbances):
    cursor = Cursor(LOGS[0], 5, Reading(), TOPIC_ID)
    cursor.follow(None)
    cursor.answered(5, Answered(0, 5, 5), 0.0)
    client: Any = SimpleNamespace(leader=lambda _: 1)
    place = Place({(TOPIC_ID, 0): cursor}, client)
    place.judge({}, {} if answer is None else {(TOPIC_ID, 0): answer}, 0.0)
    assert (place.over.done(), cursor.disturbances) == (is_over, disturbances)
    assert place.is_watched is not is_over


async def test_a_partition_is_not_watched_from_two_offsets():
    """A session has one offset of it: news of the one would be old for the other."""
    broker = Broker()
    async with watched(broker, (LOGS[0], TOPIC_ID)) as (reader,):
        watch = reader._fetching._watches.of(1, read_committed=True)
        for offset, is_taken in ((7, False), (0, True)):
            cursor = Cursor(LOGS[0], offset, Reading(), TOPIC_ID)
            cursor.follow(None)
            cursor.answered(offset, Answered(0, offset, offset), 0.0)
            assert (watch.join(reader._fetching, {(TOPIC_ID, 0): cursor}) is not None) is is_taken


async def test_a_loss_counts_when_the_leader_has_moved_meanwhile():
    """The reader fetches from another broker by then; what it read before came from this one."""
    broker = Broker()
    async with watched(broker, (LOGS[0], TOPIC_ID)) as (reader,):
        disturbances = reader.disturbances
        broker.leader = 2
        await reader._shared.refresh()
        await until(lambda: reader.disturbances > disturbances)
        await until(lambda: len(reader._fetching._watches._made) == 2)
        before = reader.disturbances
        await broker.fail(Says(how="closed"))
        await until(lambda: reader.disturbances > before)


async def test_a_late_answer_behind_the_watch_is_a_loss(monkeypatch):
    """The broker may have been away, while the reader had no connection that would have shown it."""
    broker = Broker()
    async with watched(broker, (LOGS[0], TOPIC_ID)) as (reader,):
        monkeypatch.setattr(fetching, "LATE_S", 0.1)
        disturbances, broker.holds = reader.disturbances, True
        await broker.append(0)
        await until(lambda: reader.is_silent)
        assert reader.disturbances == disturbances
        broker.lets_go.set()
        assert await read(reader, LOGS[0]) == [0]
        assert reader.disturbances == disturbances + 1


async def test_a_busy_partition_is_never_watched():
    """It has a record each 20 ms, beside a quiet one."""
    broker, loop = Broker(), asyncio.get_running_loop()
    async with watched(broker, (LOGS[0], TOPIC_ID), (LOGS[1], TOPIC_ID)) as readers:
        await broker.append(1)
        assert await read(readers[1], LOGS[1]) == [0]
        late = 0
        for at in range(1, 60):
            began = loop.time()
            await broker.append(1)
            assert await read(readers[1], LOGS[1]) == [at]
            late += loop.time() - began > scaled(WAIT_MS / 1000)
            assert (TOPIC_ID, 1) not in broker.watched or late
            await asyncio.sleep(0.02)  # the rate
        assert late < 6, "a record has waited for a quiet partition"


async def test_the_users_limits_are_kept():
    """By the fetches that deliver. The watch signals each byte: its fence must not wait for a batch."""
    broker = Broker()
    async with watched(broker, (LOGS[0], TOPIC_ID), **{"fetch.min.bytes": 1000, "fetch.max.wait.ms": 150}) as (reader,):
        asked = broker.in_session[0]
        ((_, ((*_, partition_bytes, _),), _),) = asked.topics
        assert (asked.max_wait_time, asked.min_bytes, asked.max_bytes, partition_bytes) == (150, 1, 1, 1)
        own = len(broker.own)
        await broker.append(0)
        assert await read(reader, LOGS[0]) == [0]
        await until(lambda: len(broker.own) > own)
        assert {(each.min_bytes, each.max_wait_time) for each in broker.own} == {(1000, 150)}


async def test_a_broker_without_topic_ids_is_read_as_before():
    """Kafka 3.0: a session would name topics by their names."""
    broker = Broker()
    broker.newest_version, broker.topics = BY_NAME.API_VERSION, {TOPIC}
    assert BY_NAME.API_VERSION < BY_ID.API_VERSION
    async with broker.running():
        settings = hasty(broker.address, 300)
        cluster = KafkaCluster(settings)
        reader = await cluster.reader(patient=True, topic_ids={TOPIC: TOPIC_ID})
        await reader.follow({LOGS[0]: 0})
        await until(lambda: len(broker.own) > 3)
        await broker.append(0, TOPIC)
        assert await read(reader, LOGS[0]) == [0]
        assert not broker.in_session
        assert reader.disturbances == 0
        await reader.close()


async def test_an_idle_connection_is_closed_after_a_while(monkeypatch):
    monkeypatch.setattr(shared, "IDLE_SECONDS", 0.1)
    broker = Broker()
    async with watched(broker, *((log, TOPIC_ID) for log in LOGS)):
        # That of the watch, and the metadata's where chance has asked this broker.
        await until(lambda: len(sockets_to(broker.address)) <= 2)


async def test_a_real_broker_watches_a_lone_partition_again(broker, new_topic):
    """Its session has the partition from the offset before. Then others join, and there is no tight loop."""
    topic, proxy, loop = await new_topic(2), Proxy(broker.bootstrap_servers), asyncio.get_running_loop()
    async with proxy.through():
        cluster = KafkaCluster(hasty(broker.bootstrap_servers, 5000))
        ids, readers = await cluster.topic_ids([topic]), []
        appender = await cluster.appender()
        for number in range(2):
            readers.append(await cluster.reader(patient=True, topic_ids=ids))
            await readers[-1].follow({TopicPartition(topic, number): 0})
            await until(lambda: are_watched(readers))
            began, fetches = loop.time(), proxy.seen[FETCH]
            for at in range(3):
                await appender.append(LogRecord(topic, b"there"), number)
                assert await read(readers[-1], TopicPartition(topic, number)) == [at]
                await until(lambda: are_watched(readers))
            assert proxy.seen[FETCH] - fetches < 30 + 20 * (loop.time() - began)
        await appender.close()
        for reader in readers:
            await reader.close()


async def test_a_real_broker_tells_of_what_comes(broker, new_topic):
    """Twenty quiet partitions have one fetch together. Each gets what comes to it; and its loss is one for all."""
    topic, proxy, count = await new_topic(20), Proxy(broker.bootstrap_servers), 20
    async with proxy.through():
        cluster = KafkaCluster(hasty(broker.bootstrap_servers, 5000))
        ids = await cluster.topic_ids([topic])
        places, readers = [TopicPartition(topic, number) for number in range(count)], []
        for place in places:
            readers.append(await cluster.reader(patient=True, topic_ids=ids))
            await readers[-1].follow({place: 0})
        await until(lambda: are_watched(readers))
        appender = await cluster.appender()
        for number in (3, 17):
            await appender.append(LogRecord(topic, b"there"), number)
            assert await read(readers[number], places[number]) == [0]
            assert readers[number].end_offset(places[number]) == 1
        before = [each.disturbances for each in readers]
        assert set(before) == {0}
        await until(lambda: are_watched(readers))
        proxy.fault = lambda key: "reset before" if key == FETCH else "pass"
        await until(lambda: all(each.disturbances > 0 for each in readers))
        proxy.fault = lambda _: "pass"
        await appender.append(LogRecord(topic, b"more"), 5)
        assert await read(readers[5], places[5]) == [0]
        await appender.close()
        for reader in readers:
            await reader.close()


@pytest.mark.parametrize(
    ("answer", "is_news"),
    [
        (Answered(0, 4, 4), False),
        (Answered(0, 9, 4), False),  # of a transaction that is open
        (Answered(0, 9, 9, records=b"more"), True),
        (Answered(0, 9, 9), True),
        (Answered(0, 3, 3), True),
        (Answered(1), True),
        (Answered(0, 4, 4, diverging=EpochEnd(1, 2)), True),
    ],
)
def test_what_moves_an_end(answer, is_news):
    end = _End(TopicPartition("t", 0), 4, Reading(), "id")
    assert end.is_news(answer) is is_news


@pytest.mark.kafka
async def test_a_quiet_end_is_not_asked_for_again(broker, new_topic, unique):
    """But one that has moved is; and when the watch is lost, all are. Each has the time when its leader was asked."""
    topic, proxy, loop = await new_topic(MANY), Proxy(broker.bootstrap_servers), asyncio.get_running_loop()
    logs, before = [TopicPartition(topic, number) for number in range(MANY)], asyncio.all_tasks()
    async with proxy.through():
        cluster = KafkaCluster(hasty(broker.bootstrap_servers, 5000))
        producer = await cluster.fence(unique("app"))
        await producer.commit(1, [], [LogRecord(topic, b"x")] * 3)
        reader: Any = await cluster.reader(patient=True, topic_ids=await cluster.topic_ids([topic]))

        async def asked():
            """How many questions a look takes, and what it sees."""
            count = proxy.seen[LIST_OFFSETS]
            seen = await reader.ends_seen(logs)
            assert all(each.asked_at <= loop.time() for each in seen.values())
            return proxy.seen[LIST_OFFSETS] - count, {each.partition: end for each, (end, _) in seen.items()}

        async def none_is_asked_for(ends):
            _, found = await until_async(asked, lambda answer: not answer[0])
            assert found == ends

        ends = {0: 0, 1: 4, 2: 0, 3: 0, 4: 0}
        assert await asked() == (1, ends)
        await none_is_asked_for(ends)
        await send_uncommitted(producer, topic, b"open")
        sent_at = loop.time()
        await until(lambda: all(each.asked_at > sent_at for each in reader._ends._places.values()))
        assert await asked() == (0, ends)
        other = await cluster.fence(unique("other"))
        await other.commit(3, [], [LogRecord(topic, b"x")])
        await until(lambda: not reader._ends._places[logs[3]].is_watched)
        ends[3] = 2
        assert await asked() == (1, ends)
        await none_is_asked_for(ends)
        proxy.fault = lambda key: "reset before" if key == FETCH else "pass"
        await until(lambda: not any(each.is_watched for each in reader._ends._places.values()))
        assert await asked() == (1, ends)
        proxy.fault = lambda _: "pass"
        await reader.close()
        await producer.discard()
        await other.discard()
        await until(lambda: asyncio.all_tasks() == before)


@pytest.mark.kafka
async def test_the_users_batching_delays_no_news(broker, new_topic, unique):
    """A reader's own fetches may wait for a minute."""
    topic, given = await new_topic(), hasty(broker.bootstrap_servers, 5000)
    batching = {"fetch.min.bytes": 100_000, "fetch.max.wait.ms": 60_000}
    cluster = KafkaCluster(Settings(kafka={**given.kafka, **batching}))
    producer = await cluster.fence(unique("app"))
    reader: Any = await cluster.reader(patient=True, topic_ids=await cluster.topic_ids([topic]))
    log = TopicPartition(topic, 0)
    assert (await reader.ends_seen([log]))[log].end_offset == 0
    await until(lambda: reader._ends._places[log].is_watched)
    first = reader._ends._places[log]
    began = first.asked_at
    await until(lambda: first.asked_at > began)
    await producer.commit(0, [], [LogRecord(topic, b"x")])
    await until(lambda: not first.is_watched)
    assert (await reader.ends_seen([log]))[log].end_offset == 2
    await reader.close()
    await producer.discard()


@pytest.mark.parametrize(("age_s", "is_known"), [(1.0, True), (3.0, False)])
async def test_an_end_that_was_confirmed_too_long_ago_is_asked_for(age_s, is_known):
    shared, log = Shared(Settings()), TopicPartition("t", 0)
    watch, cursor = EndsWatch(shared, Watches(Settings(), shared), {}), _End(log, 4, Reading(), "id")
    place = watch._places[log] = Place({("id", 0): cursor}, Client(shared))
    place.judge({}, {}, asyncio.get_running_loop().time() - age_s)
    assert (watch.end_of(log) is not None) is is_known


@pytest.mark.kafka
async def test_without_topic_ids_each_end_is_asked_for(cluster, new_topic):
    topic = await new_topic()
    reader = await cluster.reader(patient=True)
    for _ in range(2):
        assert (await reader.ends_seen([TopicPartition(topic, 0)]))[TopicPartition(topic, 0)].end_offset == 0
        assert not reader._ends._places
