"""Time from a record's sending until a reader has its committed output, under a steady load:
`python -m benchmarks.latency`.

One partition. A thread sends records at a fixed rate; another one reads the outputs with `read_committed`. The n-th
output belongs to the n-th record. Every second stretch has full snapshots of the whole state written meanwhile. With
`--turns batch.linger_ms=0,1,2,5` each run has one service after the other, with each value of the setting. `--floor`
gives the same load to a bare aiokafka process (`benchmarks.floor`) in turn: what this machine, broker and client leave.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks import harness

APP = "benchmarks/ledger_app.py"
STEP_SECONDS = 0.001
WARM_UP_SECONDS = 10.0  # the broker compiles what it does often


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=10_000, help="records per second")
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--keys", type=int, default=1_000_000, help="of the state, of which a snapshot is written")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the service")
    parser.add_argument("--turns", metavar="NAME=VALUE,…", help="a setting whose values take turns in each run")
    parser.add_argument("--alone", action="store_true", help="without the stretches that have snapshots")
    parser.add_argument("--floor", action="store_true", help="a bare process takes turns with the service")
    arguments = parser.parse_args()
    print(f"{arguments.rate:,} records/s, {arguments.keys:,} keys; {harness.machine()}", flush=True)
    name, _, values = (arguments.turns or "").partition("=")
    turns = [f"{name}={value}" for value in values.split(",")] if values else [""]
    with harness.local_broker() as broker, tempfile.TemporaryDirectory() as scratch:
        servers = broker.bootstrap_servers
        harness.create_topics(servers, "bench-in", "bench-out")
        harness.snapreplay("topics", "ensure", APP, "--bootstrap-servers", servers)
        harness.snapreplay("init", APP, "--bootstrap-servers", servers)
        harness.load(servers, "bench-in", arguments.keys, arguments.keys)
        for number in range(1, arguments.runs + 1):
            if arguments.floor:
                with _floor(servers, arguments.keys, Path(scratch) / f"{number}.log", f"floor{number}") as topics:
                    print(f"run {number} floor: {_played(servers, arguments, None, topics)}", flush=True)
            for turn in turns:
                log = Path(scratch) / f"{number}{turn}.log"
                for line in _lines(servers, arguments, turn, log):
                    print(f"run {number} {turn} {line}".replace("  ", " "), flush=True)


@contextmanager
def _floor(servers: str, keys: int, log: Path, topics: str) -> Iterator[str]:
    """Run a bare process that has as many keys; the block gets the prefix of its topics."""
    harness.create_topics(servers, *(f"{topics}-{name}" for name in ("in", "out", "changes")))
    harness.load(servers, f"{topics}-in", keys, keys)
    with harness.child(log, "-m", "benchmarks.floor", servers, topics):
        end = harness.CommittedEnd(servers, f"{topics}-out")
        harness.wait_until(lambda: end() >= keys, f"the first records ({log})", 0.1)
        end.close()
        yield topics


def _lines(servers: str, arguments: argparse.Namespace, turn: str, log: Path) -> Iterator[str]:
    """Run a service, and give a line for each stretch of load."""
    port, settings = harness.free_port(), [*arguments.set, *filter(None, [turn])]
    with harness.child(log, *harness.service_arguments(APP, servers, port, *settings)) as process:
        harness.wait_until(lambda: _has_processed(port, arguments.keys), f"the first records ({log})", 0.1)
        for name, beside in {"alone": None, "while snapshots are written": port}.items():
            if not (beside and arguments.alone):
                batches, cpu, began = _batch(port), harness.cpu_seconds(process), time.perf_counter()
                times = _played(servers, arguments, beside)
                seconds = time.perf_counter() - began
                each_second = (_batch(port) - batches) / seconds
                busy = (harness.cpu_seconds(process) - cpu) / seconds
                yield f"{name}: {times}; {each_second:.0f} batches a second, CPU {100 * busy:.0f} %"


def _partition(port: int) -> dict[str, Any]:
    answer: Any = harness.get(port, "/api/v1/partitions")
    return answer["items"][0] if answer and answer["items"] else {}


def _has_processed(port: int, records: int) -> bool:
    inputs = _partition(port).get("inputs") or [{"position": 0}]
    return int(inputs[0]["position"]) >= records and _partition(port)["phase"] == "live"


def _batch(port: int) -> int:
    return int(_partition(port)["batch"])


def _played(servers: str, arguments: argparse.Namespace, port: int | None, topics: str = "bench") -> str:
    run = Run(servers, arguments, topics)
    if port is None:
        run.play()
        return run.shown()
    seconds: list[float] = []
    beside = threading.Thread(target=_snapshots, args=(port, run.over, seconds))
    beside.start()
    run.play()
    beside.join()
    return f"{run.shown()}; seconds of a snapshot: {harness.spread(seconds)}"


def _snapshots(port: int, over: threading.Event, seconds: list[float]) -> None:
    """Have one full snapshot after the other written, and note how long each takes."""
    while not over.is_set():
        began = time.perf_counter()
        harness.snapshot_written(port)
        seconds.append(time.perf_counter() - began)


class Run:
    """One stretch of load."""

    def __init__(self, servers: str, arguments: argparse.Namespace, topics: str) -> None:
        rate, self._keys, self._topics = arguments.rate, arguments.keys, topics
        self._servers, self._per_step = servers, max(1, round(rate * STEP_SECONDS))
        self._records = round(rate * (arguments.seconds + WARM_UP_SECONDS))
        self._skipped = round(rate * WARM_UP_SECONDS)
        self._sent: list[float] = []
        self._seconds: list[float] = []
        self.over = threading.Event()

    def play(self) -> None:
        """Send all, and wait for all outputs."""
        consumer = Consumer(
            {"bootstrap.servers": self._servers, "group.id": "bench-latency", "isolation.level": "read_committed"}
        )
        place = TopicPartition(f"{self._topics}-out", 0)
        place.offset = consumer.get_watermark_offsets(place, timeout=10, cached=False)[1]
        consumer.assign([place])
        feeder = threading.Thread(target=self._feed)
        feeder.start()
        deadline = time.perf_counter() + harness.DEADLINE_SECONDS
        while len(self._seconds) < self._records and time.perf_counter() < deadline:
            for _ in harness.arrived(consumer):
                self._seconds.append(time.perf_counter() - self._sent[len(self._seconds)])
        self.over.set()
        if len(self._seconds) < self._records:
            raise SystemExit(f"only {len(self._seconds):,} of {self._records:,} outputs came in time")
        feeder.join()
        consumer.close()

    def milliseconds(self) -> dict[str, float]:
        ordered = sorted(self._seconds[self._skipped :])
        return {name: 1000 * ordered[int(part * (len(ordered) - 1))] for name, part in PARTS.items()}

    def shown(self) -> str:
        return ", ".join(f"{name} {value:.1f} ms" for name, value in self.milliseconds().items())

    def _feed(self) -> None:
        producer = Producer({"bootstrap.servers": self._servers, "linger.ms": 0})
        began = time.perf_counter()
        for step in range(self._records // self._per_step):
            time.sleep(max(0.0, began + step * STEP_SECONDS - time.perf_counter()))  # the pace of the load
            for number in range(self._per_step):
                key = b"acct%07d" % ((step * self._per_step + number) * 7919 % self._keys)
                self._sent.append(time.perf_counter())
                producer.produce(f"{self._topics}-in", VALUE, key, 0)
            producer.poll(0)
        producer.flush(30)


PARTS = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999, "most": 1.0}
VALUE = f'{{"amount": 1, "ts": 1700000000000, "pad": "{harness.PAD}"}}'.encode()

if __name__ == "__main__":
    main()
