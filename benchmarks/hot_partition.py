"""Time from a record's sending until a reader has its committed output, of quiet partitions beside a hot one:
`python -m benchmarks.hot_partition`.

One process owns all partitions. All but the first one get a few records a second each. In every second run the first
one gets as many as it can take besides. The n-th output of a partition belongs to its n-th record.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks import harness
from benchmarks.latency import VALUE
from snapreplay.devbroker.broker import LocalBroker

APP = "benchmarks/ledger_app.py"
WARM_UP_SECONDS = 3.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=50)
    parser.add_argument("--rate", type=float, default=10.0, help="records per second of each quiet partition")
    parser.add_argument("--hot", type=int, default=20_000, help="records per second of the hot one")
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    print(f"{arguments.partitions} partitions; {harness.machine()}", flush=True)
    with LocalBroker(heap_mb=512) as broker, tempfile.TemporaryDirectory() as scratch:
        servers, port = broker.bootstrap_servers, harness.free_port()
        harness.create_topics(servers, "bench-in", "bench-out", partitions=arguments.partitions)
        harness.snapreplay("topics", "ensure", APP, "--bootstrap-servers", servers)
        harness.snapreplay("init", APP, "--bootstrap-servers", servers)
        with harness.child(Path(scratch) / "service.log", *harness.service_arguments(APP, servers, port)):
            harness.wait_until(lambda: harness.get(port, "/readyz") is not None, "all partitions LIVE", 0.1)
            for number in range(1, arguments.runs + 1):
                for hot in (0, arguments.hot):
                    told = f"beside one with {hot:,} records/s" if hot else "alone"
                    print(f"run {number} {told}: {_played(servers, arguments, hot)}", flush=True)


def _played(servers: str, arguments: argparse.Namespace, hot: int) -> str:
    places = [TopicPartition("bench-out", number) for number in range(1, arguments.partitions)]
    settings = {"group.id": "bench-hot", "isolation.level": "read_committed", "fetch.wait.max.ms": 5}
    consumer = Consumer({"bootstrap.servers": servers, **settings})
    for place in places:
        place.offset = consumer.get_watermark_offsets(place, timeout=10, cached=False)[1]
    consumer.assign(places)
    sent: dict[int, list[float]] = {place.partition: [] for place in places}
    feeder = threading.Thread(target=_feed, args=(servers, arguments, hot, sent))
    feeder.start()
    seen = dict.fromkeys(sent, 0)
    found: list[tuple[float, float]] = []
    total = len(places) * round(arguments.rate * (arguments.seconds + WARM_UP_SECONDS))
    deadline = time.perf_counter() + harness.DEADLINE_SECONDS
    while len(found) < total and time.perf_counter() < deadline:
        for message in consumer.consume(500, timeout=0.005):
            if message.error() is None:
                partition = message.partition() or 0
                at = sent[partition][seen[partition]]
                seen[partition] += 1
                found.append((at, time.perf_counter() - at))
    feeder.join()
    consumer.close()
    if len(found) < total:
        raise SystemExit(f"only {len(found):,} of {total:,} outputs came in time")
    began = min(at for at, _ in found)
    late = sorted(seconds for at, seconds in found if at - began > WARM_UP_SECONDS)
    return ", ".join(f"p{100 * part:g} {1000 * late[int(part * (len(late) - 1))]:.1f} ms" for part in (0.5, 0.9, 0.99))


def _feed(servers: str, arguments: argparse.Namespace, hot: int, sent: dict[int, list[float]]) -> None:
    """Send to one quiet partition after the other, in steps of equal length, and to the hot one in each step."""
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
            producer.produce("bench-in", VALUE, b"acct%07d" % (number * 7919 % 1000), 0)
        producer.poll(0)
    producer.flush(60)


if __name__ == "__main__":
    main()
