"""The local broker as its users see it: start, crash, restart, and that nothing ever stays."""

import asyncio
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from snapreplay.devbroker import cluster
from snapreplay.devbroker.broker import LocalBroker
from snapreplay.devbroker.errors import LocalBrokerFailed, LocalBrokerUnavailable
from snapreplay.devbroker.ports import free_ports


class Shared(Protocol):
    """What these tests use of the session's broker."""

    @property
    def bootstrap_servers(self) -> str: ...


pytestmark = pytest.mark.kafka
DEADLINE_S = 30.0

OWNER = """
import time
from snapreplay.devbroker.broker import LocalBroker
broker = LocalBroker()
broker.start()
print(broker.pid, broker.node(0)._process._keeper.pid, broker.log_path.parent, flush=True)
time.sleep(600)
"""


def is_running(pid: int) -> bool:
    """Whether a process of this id is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_nothing_runs_in(directory: Path) -> None:
    """Wait until no process names the directory in its command line."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        ps = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
        if str(directory) not in ps.stdout:
            return
        assert time.monotonic() < deadline, ps.stdout
        time.sleep(0.02)


def left_in(directory: Path) -> list[Path]:
    """What brokers have not removed."""
    return list(directory.iterdir())


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


async def consume(bootstrap_servers: str, topic: str) -> list[bytes]:
    """Read all committed values."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap_servers, isolation_level="read_committed"
    )
    await consumer.start()
    try:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        await consumer.seek_to_beginning(partition)
        end = (await consumer.end_offsets([partition]))[partition]
        values: list[bytes] = []
        async with asyncio.timeout(DEADLINE_S):
            while await consumer.position(partition) < end:
                polled = await consumer.getmany(timeout_ms=200)
                values += [record.value for record in polled.get(partition, [])]
        return values
    finally:
        await consumer.stop()


async def test_what_is_committed_can_be_read(broker: Shared, unique: Callable[[str], str]) -> None:
    """The session's broker stores and gives back."""
    topic = unique("records")
    await create(broker.bootstrap_servers, topic)
    await produce(broker.bootstrap_servers, topic, b"one", b"two")
    assert await consume(broker.bootstrap_servers, topic) == [b"one", b"two"]


async def test_the_probe_leaves_no_topic(temporary: Path) -> None:
    """A new broker is empty for its user: no topic of ours, and none of the internal ones."""
    async with LocalBroker() as local:
        admin = AIOKafkaAdminClient(bootstrap_servers=local.bootstrap_servers)
        await admin.start()
        try:
            assert set(await admin.list_topics()) <= {"__transaction_state"}
        finally:
            await admin.close()


async def test_a_crash_keeps_address_and_data(
    temporary: Path, unique: Callable[[str], str]
) -> None:
    """After kill and restart everything committed is there, at the same address."""
    topic = unique("crash")
    async with LocalBroker() as local:
        address, pid = local.bootstrap_servers, local.pid
        await create(address, topic)
        await produce(address, topic, b"before")
        await asyncio.to_thread(local.kill)
        assert not is_running(pid)
        await asyncio.to_thread(local.restart)
        assert (local.bootstrap_servers, local.pid != pid) == (address, True)
        await produce(address, topic, b"after")
        assert await consume(address, topic) == [b"before", b"after"]
    assert left_in(temporary) == []


async def test_a_given_data_directory_is_kept_and_used_again(
    temporary: Path, tmp_path: Path, unique: Callable[[str], str]
) -> None:
    """`dev` finds yesterday's topics, though the ports are others."""
    topic = unique("kept")
    async with LocalBroker(data_dir=tmp_path / "mine") as first:
        await create(first.bootstrap_servers, topic)
        await produce(first.bootstrap_servers, topic, b"yesterday")
    async with LocalBroker(data_dir=tmp_path / "mine") as second:
        assert await consume(second.bootstrap_servers, topic) == [b"yesterday"]
    assert left_in(temporary) == []


def test_it_does_not_outlive_its_killed_owner(temporary: Path) -> None:
    """SIGKILL of the owner: broker, keeper and directory are gone within the deadline."""
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        jvm, keeper, work_dir = owner.stdout.readline().split()
        assert is_running(int(jvm))
        assert (Path(work_dir) / "data").is_dir()
        owner.kill()
        deadline = time.monotonic() + DEADLINE_S
        while is_running(int(jvm)) or is_running(int(keeper)) or Path(work_dir).exists():
            assert time.monotonic() < deadline, (jvm, keeper, work_dir)
            time.sleep(0.02)
    assert left_in(temporary) == []


def test_an_owner_killed_during_the_start_leaves_nothing(temporary: Path) -> None:
    """There is no moment between the JVM's start and its being watched over."""
    with subprocess.Popen(
        [sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True
    ) as owner:
        deadline = time.monotonic() + DEADLINE_S
        while not list(temporary.glob("*/broker.log")):
            assert time.monotonic() < deadline
            time.sleep(0.005)
        owner.send_signal(signal.SIGKILL)
        while list(temporary.iterdir()):
            assert time.monotonic() < deadline, list(temporary.iterdir())
            time.sleep(0.02)
    wait_nothing_runs_in(temporary)


def test_it_lives_on_when_the_thread_that_started_it_ends(temporary: Path) -> None:
    """A broker belongs to the process, not to one of its threads."""
    local = LocalBroker()
    thread = threading.Thread(target=local.start)
    thread.start()
    thread.join()
    try:
        assert is_running(local.pid)
        local.restart()
    finally:
        local.stop()
    assert left_in(temporary) == []


async def test_a_cancelled_start_ends_the_broker(temporary: Path) -> None:
    """Nothing is left running when the task that wanted the broker is cancelled."""
    cancelled = LocalBroker()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await cancelled.__aenter__()
    await asyncio.to_thread(wait_nothing_runs_in, temporary)


def test_taken_ports_are_exchanged_for_others(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program was quicker: the broker starts on other ports."""
    with socket.create_server(("127.0.0.1", 0)) as quicker:
        taken = quicker.getsockname()[1]
        offers = iter([[taken, *free_ports(1)], free_ports(2)])
        monkeypatch.setattr(cluster, "free_ports", lambda _count: next(offers))
        with LocalBroker() as local:
            assert local.bootstrap_servers != f"127.0.0.1:{taken}"
    assert left_in(temporary) == []


def test_ports_that_are_always_taken_are_an_error(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not try for ever."""
    monkeypatch.setattr(cluster, "_PORT_TRIES", 1)
    with socket.create_server(("127.0.0.1", 0)) as quicker:
        taken = quicker.getsockname()[1]
        monkeypatch.setattr(cluster, "free_ports", lambda _count: [taken, *free_ports(1)])
        with pytest.raises(LocalBrokerUnavailable, match="took the local broker's ports 1 times"):
            LocalBroker().start()
    assert left_in(temporary) == []


def test_a_bad_property_is_explained_and_its_log_kept(temporary: Path) -> None:
    """The error names the cause, the log and its last lines; the data are removed."""
    with pytest.raises(LocalBrokerFailed) as caught:
        LocalBroker(properties={"process.roles": "observer"}).start()
    assert "Invalid value observer for configuration process.roles" in caught.value.message
    assert caught.value.log_path.parent.parent == temporary
    assert str(caught.value.log_path) in caught.value.hint
    assert "ConfigException" in caught.value.hint
    assert "ConfigException" in caught.value.log_path.read_text()
    assert not (caught.value.log_path.parent / "data").exists()


def test_a_heap_that_cannot_be_had_is_explained(temporary: Path) -> None:
    """A JVM that does not even start is diagnosed, too."""
    with pytest.raises(LocalBrokerFailed, match="the JVM does not start: Too small maximum heap"):
        LocalBroker(heap_mb=1).start()


def test_without_java_it_says_what_to_install(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was started yet, and nothing is left."""
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(LocalBrokerUnavailable, match="default-jre-headless"):
        LocalBroker().start()
    assert left_in(temporary) == []


def test_it_is_small(temporary: Path) -> None:
    """A fresh broker takes less than 220 MB of memory; stop ends it, once and for all."""
    local = LocalBroker()
    local.start()
    pid = local.pid
    status = Path(f"/proc/{pid}/status").read_text()
    resident_kb = int(status.partition("VmRSS:")[2].split()[0])
    local.stop()
    local.stop()
    assert resident_kb < 220_000
    assert not is_running(pid)
    assert left_in(temporary) == []
