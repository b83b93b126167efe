"""Time from a record's sending until a reader has its committed output, under a steady load:
`python -m benchmarks.latency`.

One partition. A thread sends records at a fixed rate; another one reads the outputs with `read_committed`. The n-th
output belongs to the n-th record. Every second run has full snapshots of the whole state written meanwhile.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks import harness
from snapreplay.devbroker.broker import LocalBroker

APP = "benchmarks/ledger_app.py"
STEP_SECONDS = 0.001
WARM_UP_SECONDS = 3.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=10_000, help="records per second")
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--keys", type=int, default=1_000_000, help="of the state, of which a snapshot is written")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the service")
    arguments = parser.parse_args()
    print(f"{arguments.rate:,} records/s, {arguments.keys:,} keys; {harness.machine()}", flush=True)
    with LocalBroker(heap_mb=512) as broker, tempfile.TemporaryDirectory() as scratch:
        servers, port = broker.bootstrap_servers, harness.free_port()
        harness.create_topics(servers, "bench-in", "bench-out")
        harness.snapreplay("topics", "ensure", APP, "--bootstrap-servers", servers)
        harness.snapreplay("init", APP, "--bootstrap-servers", servers)
        harness.load(servers, "bench-in", arguments.keys, arguments.keys)
        service = harness.service_arguments(APP, servers, port, *arguments.set)
        with harness.child(Path(scratch) / "service.log", *service):
            end = harness.CommittedEnd(servers, "bench-out")
            harness.wait_until(lambda: end() >= arguments.keys, "the first life", 0.1)
            end.close()
            for number in range(1, arguments.runs + 1):
                print(f"run {number} alone: {_played(servers, arguments, None)}", flush=True)
                url = f"http://127.0.0.1:{port}"
                print(f"run {number} while snapshots are written: {_played(servers, arguments, url)}", flush=True)


def _played(servers: str, arguments: argparse.Namespace, url: str | None) -> str:
    run = Run(servers, arguments.rate, arguments.seconds, arguments.keys)
    if url is None:
        run.play()
        return run.shown()
    beside = threading.Thread(target=_snapshots, args=(url, run.over))
    beside.start()
    run.play()
    beside.join()
    return run.shown()


def _snapshots(url: str, over: threading.Event) -> None:
    """Write one full snapshot after the other."""
    while not over.is_set():
        harness.snapreplay("trigger-snapshot", "--wait", "--url", url)


class Run:
    """One stretch of load."""

    def __init__(self, servers: str, rate: int, seconds: float, keys: int) -> None:
        self._keys = keys
        self._servers, self._per_step = servers, max(1, round(rate * STEP_SECONDS))
        self._records = round(rate * (seconds + WARM_UP_SECONDS))
        self._skipped = round(rate * WARM_UP_SECONDS)
        self._sent: list[float] = []
        self._seconds: list[float] = []
        self.over = threading.Event()

    def play(self) -> None:
        """Send all, and wait for all outputs."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": "bench-latency",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 5,
            }
        )
        place = TopicPartition("bench-out", 0)
        place.offset = consumer.get_watermark_offsets(place, timeout=10, cached=False)[1]
        consumer.assign([place])
        feeder = threading.Thread(target=self._feed)
        feeder.start()
        deadline = time.perf_counter() + harness.DEADLINE_SECONDS
        while len(self._seconds) < self._records and time.perf_counter() < deadline:
            for message in consumer.consume(500, timeout=0.005):
                if message.error() is None:
                    self._seconds.append(time.perf_counter() - self._sent[len(self._seconds)])
        self.over.set()
        if len(self._seconds) < self._records:
            raise SystemExit(f"only {len(self._seconds):,} of {self._records:,} outputs came in time")
        feeder.join()
        consumer.close()

    def shown(self) -> str:
        ordered = sorted(self._seconds[self._skipped :])
        parts = {name: ordered[int(part * (len(ordered) - 1))] for name, part in PARTS.items()}
        return ", ".join(f"{name} {1000 * value:.1f} ms" for name, value in parts.items())

    def _feed(self) -> None:
        producer = Producer({"bootstrap.servers": self._servers, "linger.ms": 0})
        began = time.perf_counter()
        for step in range(self._records // self._per_step):
            time.sleep(max(0.0, began + step * STEP_SECONDS - time.perf_counter()))  # the pace of the load
            for number in range(self._per_step):
                key = b"acct%07d" % ((step * self._per_step + number) * 7919 % self._keys)
                self._sent.append(time.perf_counter())
                producer.produce("bench-in", VALUE, key, 0)
            producer.poll(0)
        producer.flush(30)


PARTS = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999, "most": 1.0}
VALUE = f'{{"amount": 1, "ts": 1700000000000, "pad": "{harness.PAD}"}}'.encode()

if __name__ == "__main__":
    main()
