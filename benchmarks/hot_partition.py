"""Time from a record's sending until a reader has its committed output, of quiet partitions beside a hot one:
`python -m benchmarks.hot_partition`.

One process owns all partitions. All but the first one get a few records a second each. Each run has four cases: nothing
else; the load of the hot one in a topic without a reader, which is work for sender and broker only; the same load
worked off by a bare process (`benchmarks.floor`), which takes no turn of our loop; and in the first partition of the
service. The n-th output of a partition belongs to its n-th record. CPU is in shares of a core.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import psutil
from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks import harness
from benchmarks.latency import VALUE

APP = "benchmarks/ledger_app.py"
WARM_UP_SECONDS = 3.0
ALONE, UNREAD, BARE, HOT = "alone", "beside an unread topic", "beside a bare process", "beside a hot partition"
CASES = (ALONE, UNREAD, BARE, HOT)


class Place(NamedTuple):
    """The place of the benchmark: the broker, the processes by name, and a directory."""

    servers: str
    processes: dict[str, psutil.Process]
    scratch: Path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=50)
    parser.add_argument("--rate", type=float, default=10.0, help="records per second of each quiet partition")
    parser.add_argument("--hot", type=int, default=20_000, help="records per second of the hot one")
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    print(f"{arguments.partitions} partitions; {harness.machine()}", flush=True)
    with harness.local_broker() as broker, tempfile.TemporaryDirectory() as scratch:
        servers, port = broker.bootstrap_servers, harness.free_port()
        harness.create_topics(servers, "bench-in", "bench-out", partitions=arguments.partitions)
        harness.create_topics(servers, "unread")
        harness.snapreplay("topics", "ensure", APP, "--bootstrap-servers", servers)
        harness.snapreplay("init", APP, "--bootstrap-servers", servers)
        service = harness.service_arguments(APP, servers, port)
        with harness.child(Path(scratch) / "service.log", *service) as process:
            harness.wait_until(lambda: harness.get(port, "/readyz") is not None, "all partitions LIVE", 0.1)
            place = Place(servers, {"service": process, "broker": psutil.Process(broker.pid)}, Path(scratch))
            for number in range(1, arguments.runs + 1):
                for case in CASES:
                    print(f"run {number} {case:24s} {_case(place, arguments, case, number)}", flush=True)


def _case(place: Place, arguments: argparse.Namespace, case: str, number: int) -> str:
    hot = 0 if case == ALONE else arguments.hot
    if case != BARE:
        return _played(place, arguments, hot, "unread" if case == UNREAD else "bench-in")
    with _bare(place, f"bare{number}") as topic:
        return _played(place, arguments, hot, topic)


@contextmanager
def _bare(place: Place, prefix: str) -> Iterator[str]:
    """Run a bare process for the length of the block, and give the topic that it reads."""
    harness.create_topics(place.servers, *(f"{prefix}-{each}" for each in ("in", "out", "changes")))
    end = harness.CommittedEnd(place.servers, f"{prefix}-out")
    harness.load(place.servers, f"{prefix}-in", 1, 1)
    with harness.child(place.scratch / f"{prefix}.log", "-m", "benchmarks.floor", place.servers, prefix):
        harness.wait_until(lambda: end() > 0, f"the bare process ({prefix})", 0.1)
        end.close()
        yield f"{prefix}-in"


def _played(place: Place, arguments: argparse.Namespace, hot: int, hot_topic: str) -> str:
    servers = place.servers
    places = [TopicPartition("bench-out", number) for number in range(1, arguments.partitions)]
    settings = {"group.id": "bench-hot", "isolation.level": "read_committed"}
    consumer = Consumer({"bootstrap.servers": servers, **settings})
    for each in places:
        each.offset = consumer.get_watermark_offsets(each, timeout=10, cached=False)[1]
    consumer.assign(places)
    sent: dict[int, list[float]] = {each.partition: [] for each in places}
    feeder = threading.Thread(target=_feed, args=(servers, arguments, hot, hot_topic, sent))
    since, cpu = time.perf_counter(), _cpu_seconds(place)
    feeder.start()
    seen = dict.fromkeys(sent, 0)
    found: list[tuple[float, float]] = []
    total = len(places) * round(arguments.rate * (arguments.seconds + WARM_UP_SECONDS))
    deadline = time.perf_counter() + harness.DEADLINE_SECONDS
    while len(found) < total and time.perf_counter() < deadline:
        for message in harness.arrived(consumer):
            partition = message.partition() or 0
            at = sent[partition][seen[partition]]
            seen[partition] += 1
            found.append((at, time.perf_counter() - at))
    spent = (_cpu_seconds(place)[name] - before for name, before in cpu.items())
    shares = [seconds / (time.perf_counter() - since) for seconds in spent]
    feeder.join()
    consumer.close()
    if len(found) < total:
        raise SystemExit(f"only {len(found):,} of {total:,} outputs came in time")
    began = min(at for at, _ in found)
    late = sorted(seconds for at, seconds in found if at - began > WARM_UP_SECONDS)
    times = ", ".join(f"p{100 * part:g} {1000 * late[int(part * (len(late) - 1))]:.1f} ms" for part in (0.5, 0.9, 0.99))
    return f"{times}; CPU " + ", ".join(f"{name} {100 * share:.0f} %" for name, share in zip(cpu, shares, strict=True))


def _cpu_seconds(place: Place) -> dict[str, float]:
    return {name: harness.cpu_seconds(process) for name, process in place.processes.items()}


def _feed(servers: str, arguments: argparse.Namespace, hot: int, hot_topic: str, sent: dict[int, list[float]]) -> None:
    """Send to one quiet partition after the other, in steps of equal length, and the hot load in each step."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
    count = round(arguments.rate * (arguments.seconds + WARM_UP_SECONDS))
    step_seconds = 1 / (arguments.rate * len(sent))
    began = time.perf_counter()
    for step in range(count * len(sent)):
        time.sleep(max(0.0, began + step * step_seconds - time.perf_counter()))  # the pace of the load
        partition = 1 + step % len(sent)
        sent[partition].append(time.perf_counter())
        producer.produce("bench-in", VALUE, b"acct%07d" % (step % 1000), partition)
        for number in range(round(hot * step_seconds)):
            producer.produce(hot_topic, VALUE, b"acct%07d" % (number * 7919 % 1000), 0)
        producer.poll(0)
    producer.flush(60)


if __name__ == "__main__":
    main()
