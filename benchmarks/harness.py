"""The parts that the benchmarks against a broker share: topics, load, watching the committed end, child processes."""

from __future__ import annotations

import json
import os
import platform
import random
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from snapreplay.devbroker.broker import LocalBroker

PAD = "x" * 48
DEADLINE_SECONDS = 300.0


def machine() -> str:
    memory_gib = psutil.virtual_memory().total / 2**30
    return (
        f"{os.cpu_count()} cores, {memory_gib:.0f} GiB, {platform.machine()},"
        f" Python {platform.python_version()}, load {os.getloadavg()[0]:.1f}"
    )


@contextmanager
def local_broker() -> Iterator[LocalBroker]:
    """Run a broker. It shares the cores with what is measured, so it is started as by Kafka's own scripts."""
    os.environ.setdefault("KAFKA_JVM_PERFORMANCE_OPTS", "-server -XX:+UseG1GC -XX:MaxGCPauseMillis=20")
    with LocalBroker(heap_mb=512) as broker:
        yield broker


def create_topics(bootstrap_servers: str, *names: str, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    config = {"retention.ms": "-1"}
    created = admin.create_topics([NewTopic(name, partitions, 1, config=config) for name in names])
    for future in created.values():
        future.result()
    # The controller has them before the broker tells clients of them.
    wait_until(lambda: all(name in admin.list_topics().topics for name in names), "the new topics")


def load(
    bootstrap_servers: str, topic: str, records: int, keys: int, seed: int = 1, partitions: int = 1, pad_bytes: int = 0
) -> None:
    """Load records of about 95 bytes; the first `keys` touch every key once, the rest draw keys uniformly. With
    `pad_bytes`, each has so many characters of its own, in hexadecimal, which compress to half."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "linger.ms": 20,
            "batch.size": 262144,
            "queue.buffering.max.messages": 500_000,
        }
    )
    random_ = random.Random(seed)
    order = list(range(keys))
    random_.shuffle(order)
    for number in range(records):
        key = order[number] if number < keys else random_.randrange(keys)
        pad = random_.randbytes(pad_bytes // 2).hex() if pad_bytes else PAD
        value = f'{{"amount": {random_.randrange(1, 1000)}, "ts": {1700000000000 + number}, "pad": "{pad}"}}'
        while True:
            try:
                producer.produce(topic, value, b"acct%07d" % key, key % partitions)
                break
            except BufferError:
                producer.poll(0.05)
        if number % 1000 == 0:
            producer.poll(0)
    producer.flush(60)


def arrived(consumer: Consumer, wait_seconds: float = 0.1) -> Iterator[Message]:
    """Give the records that have come, as soon as there is one. `Consumer.consume` alone would take all of its time to
    fill its list."""
    first = consumer.poll(wait_seconds)
    messages = [first, *consumer.consume(500, timeout=0)] if first is not None else []
    return (each for each in messages if each.error() is None)


class CommittedEnd:
    """The end offset of a read_committed reader: one record per offset, except markers."""

    def __init__(self, bootstrap_servers: str, topic: str, partition: int = 0) -> None:
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap_servers, "group.id": "bench-watch", "isolation.level": "read_committed"}
        )
        self._partition = TopicPartition(topic, partition)

    def __call__(self) -> int:
        end: int = self._consumer.get_watermark_offsets(self._partition, timeout=10, cached=False)[1]
        return end

    def close(self) -> None:
        self._consumer.close()


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Show least / median / most."""
    return " / ".join(f"{each:.{digits}f}" for each in (min(values), median(values), max(values)))


def wait_until(
    condition: Callable[[], bool], what: str, pause_seconds: float = 0.01, deadline_seconds: float = DEADLINE_SECONDS
) -> float:
    """Return the time, in seconds on the clock, when the condition first held."""
    deadline = time.perf_counter() + deadline_seconds
    while not condition():
        if time.perf_counter() > deadline:
            raise SystemExit(f"gave up waiting for {what} after {deadline_seconds:.0f} s")
        time.sleep(pause_seconds)  # between two looks, under the deadline
    return time.perf_counter()


@contextmanager
def running(
    log: Path, words: Sequence[str], environment: Mapping[str, str], cwd: Path | None = None
) -> Iterator[psutil.Process]:
    """Start a process; it is killed at the end of the block."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            words, cwd=cwd, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, **environment}
        )
        try:
            yield psutil.Process(process.pid)
        finally:
            process.kill()
            process.wait()


def child(
    log: Path, *arguments: str, cwd: Path | None = None, **environment: str
) -> AbstractContextManager[psutil.Process]:
    """Start a process of this Python; it is killed at the end of the block."""
    return running(log, [sys.executable, *arguments], environment, cwd)


def cpu_seconds(*processes: psutil.Process) -> float:
    """Return the CPU seconds that these processes have taken, of user and system."""
    return sum(sum(each.cpu_times()[:2]) for each in processes)


def service_arguments(app: str, bootstrap_servers: str, http_port: int, *overrides: str) -> list[str]:
    arguments = ["-m", "snapreplay.api.cli", "run", app, "--bootstrap-servers", bootstrap_servers]
    arguments += ["--http-port", str(http_port)]
    # With a name, it has its partitions at once after a kill and restart.
    for override in ("instance_id=benchmark", *overrides):
        arguments += ["--set", override]
    return arguments


def snapreplay(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "snapreplay.api.cli", *arguments], check=True, stdout=subprocess.DEVNULL)


def get(http_port: int, path: str) -> dict[str, object] | None:
    """Return the JSON answer, None while there is no answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{http_port}{path}", timeout=5) as answer:
            body: dict[str, object] = json.load(answer)
            return body
    except OSError:
        return None


def snapshot_written(http_port: int) -> None:
    """Have snapshots written, and wait for them: as the command does, without the CPU of its start."""
    asked = urllib.request.Request(f"http://127.0.0.1:{http_port}/trigger-snapshot", method="POST")
    with urllib.request.urlopen(asked, timeout=5) as answer:  # noqa: S310 - ours
        begun: Any = json.load(answer)
    path = f"/api/v1/operations/{begun['id']}"

    def has_ended() -> bool:
        operation = get(http_port, path)
        return operation is not None and operation["finished_at"] is not None

    wait_until(has_ended, "the snapshot", 0.05)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
