"""A producer before brokers that answer by a script: each request refused, cut off, answered by half or never."""

import asyncio
import time
from collections import Counter

import pytest
from aiokafka.errors import KafkaError

from snapreplay.app.record import Output
from snapreplay.errors import StopError
from snapreplay.service.core.kafka_errors import (
    ClockRefused,
    CommitInDoubt,
    Fenced,
    NotAuthorized,
    RefusedRecord,
    RefusedTopic,
    Unreachable,
)
from snapreplay.service.kafka.config import MIB
from snapreplay.service.kafka.feeding import KafkaAppender, KafkaFeeder
from snapreplay.service.kafka.producer import KafkaProducer
from snapreplay.service.ports import LogRecord
from tests.support.deadlines import scaled
from tests.support.kafka import hasty
from tests.support.scripted_broker import FIND_COORDINATOR, ScriptedCluster
from tests.support.stage import until
from tests.support.wire import ADD_PARTITIONS, END_TXN, INIT_PRODUCER_ID, PRODUCE

LOG, OUT = "log", "out"
PHASES = {"find": FIND_COORDINATOR, "init": INIT_PRODUCER_ID, "add": ADD_PARTITIONS, "produce": PRODUCE, "end": END_TXN}
CUTS = ("close before", "close after", "half", "mute", "hold")


@pytest.fixture
async def brokers():
    """Two of them; the log is led by one, the output by the other."""
    cluster = ScriptedCluster()
    cluster.leaders[OUT] = 2
    async with cluster.listening():
        yield cluster


async def limits(topics):
    return dict.fromkeys(topics, MIB)


def producer_of(brokers, **timeouts):
    return KafkaProducer(hasty(brokers.servers, 250, **timeouts), "app-0", limits)


async def started(brokers, **timeouts):
    producer = producer_of(brokers, **timeouts)
    await producer.start(scaled(20))
    return producer


async def committed(producer, number):
    """Commit an output and an increment; return its offset."""
    outputs = [Output(OUT, b"k", b"o%d" % number, 0, False, 1000)]
    (offset,) = await producer.commit(0, outputs, [LogRecord(LOG, b"i%d" % number)])
    return offset


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("phase", PHASES)
async def test_a_request_without_an_answer_is_sent_again_and_ends_the_producer(brokers, phase, cut):
    """What was to be committed is committed once. The next transaction needs a new producer, because the first copy of
    the request may still be under way (KAFKA-17754)."""
    brokers.script[PHASES[phase]] = [cut]
    producer = await started(brokers)
    assert await committed(producer, 0) == 0
    assert brokers.committed == {LOG: [b"i0"], OUT: [b"o0"]}
    assert producer.needs_renewal == (phase in {"add", "produce", "end"})
    if producer.needs_renewal:
        with pytest.raises(CommitInDoubt, match="must be renewed"):
            await committed(producer, 1)
    else:
        assert await committed(producer, 1) == 1
        await producer.discard()
    await until(lambda: not brokers.connections)


@pytest.mark.parametrize(
    ("phase", "step"),
    [
        *((phase, code) for phase in ("init", "add", "end") for code in (14, 15, 51, "moved")),
        *(("produce", code) for code in (3, 5, 6, 7, 19, 20, 56, "moved")),
        *(("find", 15), ("add", 3)),
    ],
)
async def test_what_passes_is_asked_for_again(brokers, phase, step):
    """Each is repeated until it is done, twice here, and is no doubt about anything."""
    producer = None
    brokers.script[PHASES[phase]] = [step, step]
    producer = await started(brokers)
    for number in range(3):
        assert await committed(producer, number) == number
    assert not producer.needs_renewal
    assert brokers.committed == {LOG: [b"i0", b"i1", b"i2"], OUT: [b"o0", b"o1", b"o2"]}
    assert not brokers.script[PHASES[phase]]
    await producer.discard()


@pytest.mark.parametrize(
    ("phase", "code", "expected"),
    [
        ("add", 47, Fenced),
        ("add", 48, CommitInDoubt),
        ("add", 49, CommitInDoubt),
        ("add", 29, NotAuthorized),
        ("add", 53, NotAuthorized),
        ("add", -1, CommitInDoubt),
        ("produce", 47, Fenced),
        ("produce", 10, RefusedRecord),
        ("produce", 18, RefusedRecord),
        ("produce", 44, RefusedRecord),
        ("produce", 87, RefusedRecord),
        ("produce", 32, ClockRefused),
        ("produce", 17, RefusedTopic),
        ("produce", 29, NotAuthorized),
        ("produce", 45, CommitInDoubt),
        ("produce", 46, CommitInDoubt),
        ("produce", 48, CommitInDoubt),
        ("produce", 59, CommitInDoubt),
        ("produce", -1, CommitInDoubt),
        ("end", 47, Fenced),
        ("end", 48, CommitInDoubt),
        ("end", 53, NotAuthorized),
        ("end", -1, CommitInDoubt),
    ],
)
async def test_what_is_refused_ends_the_transaction_and_the_producer(brokers, phase, code, expected):
    """Nothing is committed around it, and nothing is sent afterwards."""
    producer = await started(brokers)
    brokers.always[PHASES[phase]] = code
    with pytest.raises(expected):
        await committed(producer, 0)
    assert producer.needs_renewal
    assert producer.ending.asked == (phase == "end")
    assert not brokers.committed
    await until(lambda: not brokers.connections)
    assert Counter(brokers.asked)[END_TXN] == (phase == "end")


@pytest.mark.parametrize(
    ("phase", "code", "expected"),
    [("find", 53, NotAuthorized), ("init", 53, NotAuthorized), ("init", 50, StopError), ("init", -1, Unreachable)],
)
async def test_a_fence_that_is_refused_leaves_nothing(brokers, phase, code, expected):
    """With the name of what may not be used."""
    brokers.script[PHASES[phase]] = [code]
    with pytest.raises(expected) as refused:
        await started(brokers)
    if expected is NotAuthorized:
        assert "app-0" in refused.value.message
    await until(lambda: not brokers.connections)


@pytest.mark.parametrize("kind", ["producer", "feeder"])
@pytest.mark.parametrize(
    ("always", "cause", "hint"),
    [
        (15, "no broker is the coordinator", "transaction.state.log.replication.factor"),
        (51, "deadline passed; before it: .*Concurrent", ""),
        ("mute", "deadline passed; before it: .*RequestTimedOut", ""),
    ],
)
async def test_a_fence_names_what_it_met_before_its_deadline(brokers, kind, always, cause, hint):
    brokers.always[INIT_PRODUCER_ID] = always
    settings = hasty(brokers.servers, 250, fence_ms=2000)
    is_producer = kind == "producer"
    start = producer_of(brokers).start(scaled(2)) if is_producer else KafkaFeeder(settings, "feed").start()
    with pytest.raises(Unreachable, match=cause) as late:
        await start
    assert hint in late.value.hint
    await until(lambda: not brokers.connections)


async def test_a_discard_that_is_cancelled_closes_the_client(brokers):
    """Also while it still waits for the transaction under way."""
    producer = await started(brokers)
    async with producer._sink._working:
        discard = asyncio.create_task(producer.discard())
        await asyncio.sleep(0)
        discard.cancel()
        await asyncio.wait({discard})
        await until(lambda: not brokers.connections)


@pytest.mark.parametrize("cut", ["mute", "hold"])
@pytest.mark.parametrize("phase", ["add", "produce", "end"])
async def test_brokers_that_never_answer_are_left_at_the_deadline(brokers, phase, cut):
    """With what was asked for last; whoever is asked for nothing more hears nothing more."""
    producer = await started(brokers, commit_ms=700)
    brokers.always[PHASES[phase]] = cut
    began = time.monotonic()
    with pytest.raises(CommitInDoubt, match=r"deadline passed; before it: .*RequestTimedOut"):
        await committed(producer, 0)
    assert time.monotonic() - began < scaled(10)
    assert producer.ending.asked == (phase == "end")
    await until(lambda: not brokers.connections)


@pytest.mark.parametrize("fault", ["mute", 51, 15])
@pytest.mark.parametrize("phase", ["add", "produce", "end"])
async def test_a_discard_ends_the_transaction_under_way_and_nothing_is_sent_afterwards(brokers, phase, fault):
    """It waits for an answer, or before it asks again."""
    producer = await started(brokers)
    brokers.always[PHASES[phase]] = 19 if phase == "produce" and fault == 51 else fault
    commit = asyncio.create_task(committed(producer, 0))
    await until(lambda: PHASES[phase] in brokers.asked)
    await producer.discard()
    sent = len(brokers.asked)
    with pytest.raises(CommitInDoubt):
        await commit
    await until(lambda: not brokers.connections)
    with pytest.raises(KafkaError, match="discarded"):  # also where the cancellation was lost
        await producer._sink.end(commit=True)
    assert len(brokers.asked) == sent
    assert not brokers.connections


async def test_a_quota_lengthens_the_transaction_and_is_no_doubt(brokers):
    """Each answer to a batch mutes its connection for longer than a transaction may take."""
    producer = await started(brokers, commit_ms=600)
    commit_s = producer._commit_s
    brokers.throttle_ms = int(1200 * commit_s)
    values = [b"%d" % number * (MIB // 2) for number in range(3)]
    began = time.monotonic()
    await producer.commit(0, [], [LogRecord(LOG, value) for value in values])
    assert time.monotonic() - began > 2 * commit_s
    assert brokers.committed[LOG] == values
    assert not producer.needs_renewal
    await producer.discard()


async def test_a_leader_that_is_refused_for_a_while_gets_the_same_bytes(brokers):
    """Several batches of a partition, each refused and cut off: in order, each once, with the sequence numbers that the
    broker expects, also in the next transaction."""
    producer = await started(brokers)
    brokers.script[PRODUCE] = ["moved", "close after", 19, "half", 7, "close before"]
    values = [b"%d" % number * (MIB // 2) for number in range(5)]
    offsets = await producer.commit(0, [], [LogRecord(LOG, value) for value in values])
    assert offsets == (0, 1, 2, 3, 4)
    assert brokers.committed[LOG] == values
    assert not brokers.script[PRODUCE]
    await producer.discard()


@pytest.mark.parametrize("cut", CUTS)
async def test_an_appender_writes_once_wherever_the_connection_is_cut(brokers, cut):
    """Without a transaction; the offsets are the acknowledged ones."""
    appender = KafkaAppender(hasty(brokers.servers, 250))
    brokers.script[INIT_PRODUCER_ID] = [cut]
    await appender.start()
    for number in range(3):
        brokers.script[PRODUCE] = [cut]
        assert await appender.append(LogRecord(LOG, b"%d" % number), 0) == number
    assert brokers.committed[LOG] == [b"0", b"1", b"2"]
    await appender.close()
    await until(lambda: not brokers.connections)


@pytest.mark.parametrize("fate", [*CUTS, "never", 48])
async def test_a_feeder_says_once_that_a_transaction_is_to_be_committed(brokers, fate):
    """What is not answered is asked for again; an abort never follows, because it could decide the transaction."""
    feeder = KafkaFeeder(hasty(brokers.servers, 250, commit_ms=700), "feed")
    await feeder.start()
    outputs = [Output(OUT, b"k", b"%d" % number, None, False, None) for number in range(3)]
    brokers.script[END_TXN] = [] if fate == "never" else [fate]
    if fate == "never":
        brokers.always[END_TXN] = "mute"
    if fate in CUTS:
        assert [offset for _, offset in await feeder.feed(outputs)] == [0, 1, 2]
    else:
        with pytest.raises(
            CommitInDoubt, match="before it: RequestTimedOut" if fate == "never" else "did not end with OK"
        ):
            await feeder.feed(outputs)
    await feeder.close()
    with pytest.raises(CommitInDoubt, match="discarded"):
        await feeder.feed(outputs)
    assert brokers.committed.get(OUT, []) == ([] if fate == 48 else [b"0", b"1", b"2"])
    assert set(brokers.ends) <= {True}


async def test_a_feeder_aborts_what_was_refused(brokers):
    """Readers need not wait for the transaction's timeout."""
    feeder = KafkaFeeder(hasty(brokers.servers, 250), "feed")
    await feeder.start()
    brokers.script[PRODUCE] = [10]
    with pytest.raises(RefusedRecord):
        await feeder.feed([Output(OUT, b"k", b"v", None, False, None)])
    assert brokers.ends == [False]
    assert not brokers.committed
