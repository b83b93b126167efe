"""The local broker as its users see it: start, crash, restart, and that nothing ever stays."""

import asyncio
import socket
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from snapreplay.devbroker import broker as local_broker
from snapreplay.devbroker import node
from snapreplay.devbroker.broker import LocalBroker
from snapreplay.devbroker.files import LocalBrokerFailed
from snapreplay.devbroker.free_ports import free_ports
from snapreplay.errors import UsageError
from snapreplay.testing import broker
from tests.support.deadlines import is_running, within
from tests.support.waiting import eventually

pytestmark = pytest.mark.kafka
OWNER = """
import time
from snapreplay.devbroker.broker import LocalBroker
broker = LocalBroker()
broker.start()
print(broker.pid, broker._node._process._keeper.pid, broker.log_path.parent, flush=True)
time.sleep(600)
"""


def resident_kb(pid: int) -> int:
    """The memory that a process takes."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


def running_in(directory: Path) -> list[str]:
    """Processes that name the directory in their command line, which `ps` would cut off after 80 characters."""
    ps = subprocess.run(["ps", "-ww", "-eo", "args"], capture_output=True, text=True, check=True)
    return [line for line in ps.stdout.splitlines() if str(directory) in line]


def left_in(directory: Path) -> list[str]:
    """These, and what brokers have not removed."""
    return [path.name for path in directory.iterdir()] + running_in(directory)


async def topics(bootstrap_servers: str) -> set[str]:
    """All that there are."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers)
    await admin.start()
    try:
        return set(await admin.list_topics())
    finally:
        await admin.close()


async def create(bootstrap_servers: str, topic: str) -> None:
    """Make a topic of one partition."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, 1, 1)])
    finally:
        await admin.close()


async def produce(bootstrap_servers: str, topic: str, *values: bytes) -> None:
    """Write the values in one transaction."""
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap_servers, transactional_id=topic)
    await producer.start()
    try:
        async with producer.transaction():
            for value in values:
                await producer.send_and_wait(topic, value)
    finally:
        await producer.stop()


async def end_of(consumer: AIOKafkaConsumer, partition: TopicPartition) -> int:
    offset: int = (await consumer.end_offsets([partition]))[partition]
    return offset


async def consume(bootstrap_servers: str, topic: str, count: int) -> list[bytes]:
    """Read all committed values, which are at least so many: a commit is answered before its marker is in the log."""
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap_servers, isolation_level="read_committed")
    await consumer.start()
    try:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        values: list[bytes] = []
        async with within(30):
            while len(values) < count or await consumer.position(partition) < await end_of(consumer, partition):
                polled = await consumer.getmany(timeout_ms=200)
                values += [record.value for record in polled.get(partition, [])]
        return values
    finally:
        await consumer.stop()


@pytest.mark.whole
async def test_a_crash_keeps_address_and_data(temporary: Path, unique: Callable[[str], str]) -> None:
    """A new broker is small and empty for its user: none of our topics. After kill and restart everything committed is
    there, at the same address; it is stopped once and for all."""
    topic = unique("crash")
    async with LocalBroker() as local:
        address, pid = local.bootstrap_servers, local.pid
        assert resident_kb(pid) < 220_000
        assert await topics(address) <= {"__transaction_state"}
        await create(address, topic)
        await produce(address, topic, b"before")
        await asyncio.to_thread(local.kill)
        assert not is_running(pid)
        await asyncio.to_thread(local.restart)
        assert (local.bootstrap_servers, local.pid != pid) == (address, True)
        await produce(address, topic, b"after")
        assert await consume(address, topic, 2) == [b"before", b"after"]
        await asyncio.to_thread(local.stop)
    assert left_in(temporary) == []


def test_it_does_not_outlive_its_killed_owner(temporary: Path) -> None:
    """SIGKILL of the owner: broker, keeper and directory are gone within the deadline."""
    with subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        jvm, keeper, work_dir = owner.stdout.readline().split()
        assert is_running(int(jvm))
        assert (Path(work_dir) / "data").is_dir()
        owner.kill()
        eventually(lambda: not (is_running(int(jvm)) or is_running(int(keeper))), (jvm, keeper))
        eventually(lambda: not left_in(temporary), work_dir)


async def test_a_cancelled_start_ends_the_broker(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left running when the task that wanted the broker is cancelled."""
    monkeypatch.setattr(node, "says_started", lambda *_: False)  # it takes longer than this process may pause
    starting = asyncio.create_task(LocalBroker().__aenter__())
    await asyncio.to_thread(eventually, lambda: running_in(temporary), "it is starting")
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    await asyncio.to_thread(eventually, lambda: not running_in(temporary), "gone")


@pytest.mark.whole
def test_taken_ports_are_exchanged_for_others(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another program was quicker, on that of the clients or of the controllers: the broker starts on other ports."""
    with socket.create_server(("127.0.0.1", 0)) as quicker:
        taken = quicker.getsockname()[1]
        offers = iter([[taken, *free_ports(1)], [*free_ports(1), taken], free_ports(2)])
        monkeypatch.setattr(local_broker, "free_ports", lambda _count: next(offers))
        with LocalBroker() as local:
            assert local.bootstrap_servers != f"127.0.0.1:{taken}"
    assert left_in(temporary) == []


def test_a_bad_property_is_explained_and_its_log_kept(temporary: Path) -> None:
    """The error names the log and its last lines, which have the cause; the data are removed."""
    with pytest.raises(LocalBrokerFailed) as caught:
        LocalBroker(properties={"process.roles": "observer"}).start()
    assert "Invalid value observer for configuration process.roles" in caught.value.hint
    assert caught.value.log_path.parent.parent == temporary
    assert str(caught.value.log_path) in caught.value.hint
    assert "ConfigException" in caught.value.hint
    assert "ConfigException" in caught.value.log_path.read_text()
    assert not (caught.value.log_path.parent / "data").exists()


@pytest.mark.whole
def test_a_port_of_ones_own_is_kept_or_refused(temporary: Path, tmp_path: Path, unique: Callable[[str], str]) -> None:
    """`broker(data_dir, port)` listens there, also when the thread that started it has ended; while it does, another
    one is refused, and port 0 works, as the hint says. The next one finds the topics, though the ports are others."""
    data, topic, (port,) = tmp_path / "mine", unique("kept"), free_ports(1)
    first = broker(data, port)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(first.start).result()
    try:
        assert first.bootstrap_servers == f"127.0.0.1:{port}"
        asyncio.run(create(first.bootstrap_servers, topic))
        asyncio.run(produce(first.bootstrap_servers, topic, b"yesterday"))
        with pytest.raises(UsageError, match=f"cannot listen on 127.0.0.1:{port}") as refused:
            broker(port=port).start()
        assert "0 for a free one" in refused.value.hint
    finally:
        first.stop()
    with broker(str(data), 0) as second:
        assert asyncio.run(consume(second.bootstrap_servers, topic, 1)) == [b"yesterday"]
    assert left_in(temporary) == []
