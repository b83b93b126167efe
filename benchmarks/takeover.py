"""Seconds without an output while a partition moves to the other of two processes, 1 M keys:
`python -m benchmarks.takeover`.

Two processes of one app own one partition. A record arrives every 10 ms. The owner is killed (SIGKILL) or stopped
(SIGTERM), with and without a standby in the other process. Measured: the longest time in which no read_committed reader
saw a new output.
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

import psutil
from confluent_kafka import Producer

from benchmarks import harness

APP = "benchmarks/ledger_app.py"
SESSION_MS = 6000
PAUSE_SECONDS = 0.01
WAYS = ("SIGTERM", "SIGKILL")
COPIES = "/restore-status?scope=local"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--only", choices=WAYS, help="one way to end the owner; default: one after the other")
    parser.add_argument("--replicas", type=int, choices=(0, 1), help="standbys; default: 1, then 0")
    parser.add_argument("--watch", type=float, default=20.0, metavar="SECONDS", help="after each end")
    arguments = parser.parse_args()
    print(f"{arguments.keys:,} keys, session {SESSION_MS} ms; {harness.machine()}", flush=True)
    for replicas in (1, 0) if arguments.replicas is None else (arguments.replicas,):
        with prepared(replicas, arguments.keys) as pair:
            for way in (arguments.only,) if arguments.only else WAYS:
                gaps = [pair.gap(way, arguments.watch) for _ in range(arguments.runs)]
                print(f"{way}, {replicas} standby: {harness.spread(gaps)} s without an output", flush=True)


class Pair:
    """Two processes, of which one owns the partition."""

    def __init__(self, servers: str, scratch: Path, replicas: int) -> None:
        self.servers, self._scratch, self._replicas = servers, scratch, replicas
        self._ports = {"a": harness.free_port(), "b": harness.free_port()}
        self.running: dict[str, tuple[Any, psutil.Process]] = {}
        self._lives = 0

    def prepare(self, keys: int) -> None:
        harness.create_topics(self.servers, "bench-in", "bench-out")
        harness.snapreplay("topics", "ensure", APP, "--bootstrap-servers", self.servers)
        harness.snapreplay("init", APP, "--bootstrap-servers", self.servers)
        harness.load(self.servers, "bench-in", keys, keys)
        end = harness.CommittedEnd(self.servers, "bench-out")
        self._start("a")
        harness.wait_until(lambda: end() >= keys, "the first life", 0.1)
        end.close()
        harness.snapreplay("trigger-snapshot", "--wait", "--url", f"http://127.0.0.1:{self._ports['a']}")
        self._start("b")

    def gap(self, way: str, watched_seconds: float) -> float:
        """End the owner, and watch for so long; return the longest time without an output. Then there are two processes
        again."""
        owner = self.ready()
        end = harness.CommittedEnd(self.servers, "bench-out")
        block, process = self.running.pop(owner)
        with feeding(self.servers):
            began = last = time.perf_counter()
            longest, seen = 0.0, end()
            process.terminate() if way == "SIGTERM" else process.kill()
            while time.perf_counter() - began < watched_seconds:
                now_at = end()
                if now_at > seen:
                    now = time.perf_counter()
                    longest, last, seen = max(longest, now - last), now, now_at
        end.close()
        block.__exit__(None, None, None)
        self._start(owner)
        return longest

    def end(self) -> None:
        for block, _ in self.running.values():
            block.__exit__(None, None, None)

    def _start(self, name: str) -> None:
        self._lives += 1
        arguments = harness.service_arguments(APP, self.servers, self._ports[name])
        settings = (
            f"instance_id={name}",
            f"standby.replicas={self._replicas}",
            f"group.session_timeout_ms={SESSION_MS}",
        )
        block = harness.child(
            self._scratch / f"{self._lives}.log", *arguments, *(part for each in settings for part in ("--set", each))
        )
        self.running[name] = (block, block.__enter__())

    def ready(self) -> str:
        """Wait until one process is LIVE and the other one a member that follows it, with a warm copy if there is to
        be one."""

        def owner() -> str:
            found = ""
            for name in self.running:
                status: Any = harness.get(self._ports[name], "/restore-status?scope=local")
                checks: Any = harness.get(self._ports[name], "/readyz")
                processes: Any = harness.get(self._ports[name], "/api/v1/processes")
                if status is None or checks is None or processes is None:
                    return ""
                if {each["state"] for each in processes["items"]} != {"self", "reachable"}:
                    return ""
                if status["summary"]["all_live"]:
                    found = name
                elif [each["state"] for each in status["standbys"]] != ["warm"] * self._replicas:
                    return ""
            return found

        harness.wait_until(lambda: bool(owner()), "both processes", 0.2)
        return owner()

    def is_even(self, owner: str) -> bool:
        """Say whether all records are committed, and copied if there is a copy."""
        batches = []
        for name, port in self._ports.items():
            status: Any = harness.get(port, "/api/v1/partitions?scope=local" if name == owner else COPIES)
            if status is None:
                return False
            rows = status["items" if name == owner else "standbys"]
            batches += [each["batch"] for each in rows]
            if name == owner and any(source["lag"] for source in rows[0]["inputs"]):
                return False
        return len(set(batches)) == 1


@contextmanager
def prepared(replicas: int, keys: int) -> Iterator[Pair]:
    """Start a broker and two processes whose state has so many keys, for the length of the block."""
    with harness.local_broker() as broker, tempfile.TemporaryDirectory() as scratch:
        pair = Pair(broker.bootstrap_servers, Path(scratch), replicas)
        try:
            pair.prepare(keys)
            yield pair
        finally:
            pair.end()


@contextmanager
def feeding(servers: str, topic: str = "bench-in") -> Iterator[None]:
    """Send a record every 10 ms for the length of the block."""
    producer, over = Producer({"bootstrap.servers": servers, "linger.ms": 0}), threading.Event()

    def feed() -> None:
        while not over.wait(PAUSE_SECONDS):
            producer.produce(topic, b'{"amount": 1, "ts": 1700000000000, "pad": ""}', b"acct0000001", 0)
            producer.poll(0)

    thread = threading.Thread(target=feed)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        producer.flush(10)


if __name__ == "__main__":
    main()
