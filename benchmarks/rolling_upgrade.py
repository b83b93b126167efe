"""Replaces three processes of an older snapreplay by this version, one after the other, under load:
`python -m benchmarks.rolling_upgrade --old REV`.

The processes share the partitions, and each partition has a standby. A process gets SIGTERM. When it has ended, one of
the new version starts under the same name. The next one follows when all partitions are live and have a warm copy. For
each partition and each replacement, the longest time without an output for a read_committed reader is measured. In the
end the checker judges the topics: each output exactly once. `--old HEAD` is a rolling restart.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Consumer, TopicPartition

from benchmarks import harness
from tests.checker import verify
from tests.checker.app import APP_ID
from tests.checker.load import Load, send

ROOT = Path(__file__).resolve().parents[1]
APP, ID = "tests.checker.app:app", "rolling"
NAMES = ("a", "b", "c")
SETTLED_SECONDS = 3.0
WARM_UP_SECONDS = 45.0  # the broker compiles what it does often, and takes a core for it


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--old", default="HEAD~100", help="revision that is replaced")
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--rate", type=int, default=600, help="records a second")
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    os.environ[APP_ID] = ID
    commit = subprocess.check_output(["git", "log", "-1", "--format=%h of %cs", given.old], cwd=ROOT, text=True).strip()
    print(f"{given.old} is {commit}; {given.keys:,} keys; {harness.machine()}", flush=True)
    longest: list[float] = []
    for number in range(given.runs):
        with harness.local_broker() as broker, tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            group = Group(broker.bootstrap_servers, Path(folder), given.partitions, stack)
            gaps = group.upgrade(given)
        longest += gaps
        print(f"  run {number + 1}: {harness.spread(gaps)} s, load {os.getloadavg()[0]:.1f}", flush=True)
    above = sum(each > 0.5 for each in longest)
    print(f"without an output: {harness.spread(longest)} s; {above} of {len(longest)} above 0.5 s")


class Group:
    """Three processes of one app."""

    def __init__(self, servers: str, folder: Path, partitions: int, stack: ExitStack) -> None:
        self._servers, self._folder, self._partitions, self._stack = servers, folder, partitions, stack
        self._ports = {name: harness.free_port() for name in NAMES}
        self._running: dict[str, psutil.Process] = {}

    def upgrade(self, given: argparse.Namespace) -> list[float]:
        """Fill the state and replace all processes; return the longest gap of each partition at each of them."""
        old = self._folder / "old"
        topics = [f"{name}-{ID}" for name in ("payments", "refunds", "accounts")]
        old.mkdir()
        archive = subprocess.check_output(["git", "archive", given.old], cwd=ROOT)
        subprocess.run(["tar", "-x", "-C", old], input=archive, check=True)
        harness.create_topics(self._servers, *topics, partitions=self._partitions)
        for words in (("topics", "ensure"), ("init",)):
            harness.snapreplay(*words, APP, "--bootstrap-servers", self._servers)
        send(self._servers, ID, self._partitions, seed=1, count=given.keys * 2, keys=given.keys)
        for name in NAMES:
            self._start(name, old)
        harness.wait_until(self._is_whole, "three old processes", 0.2)
        gaps: list[float] = []
        with (
            Load(self._servers, ID, self._partitions, seed=2, rate=given.rate, keys=given.keys),
            watched(self._servers, topics[-1], self._partitions) as times,
        ):
            time.sleep(WARM_UP_SECONDS)
            psutil.cpu_percent()
            time.sleep(SETTLED_SECONDS)  # the rate without an upgrade is part of what is seen
            print(f"  before the upgrade {psutil.cpu_percent():.0f} % of the CPU are used", flush=True)
            for name in NAMES:
                gaps += self._replace(name, times)
        self._judge()
        return gaps

    def _replace(self, name: str, times: list[list[float]]) -> list[float]:
        began = time.perf_counter()
        process = self._running.pop(name)
        process.terminate()
        process.wait(60)
        self._start(name, ROOT)
        harness.wait_until(self._is_whole, f"{name} of the new version", 0.2)
        time.sleep(SETTLED_SECONDS)  # for what moves later
        ended = time.perf_counter()
        return [longest(each, began, ended) for each in times]

    def _start(self, name: str, tree: Path) -> None:
        words = harness.service_arguments(APP, self._servers, self._ports[name], f"instance_id={name}")
        log = self._folder / f"{name}-{tree.name}.log"
        block = harness.child(log, *words, "--set", "standby.replicas=1", cwd=tree, PYTHONPATH=str(tree))
        self._running[name] = self._stack.enter_context(block)

    def _is_whole(self) -> bool:
        """Say whether each partition has an owner that is LIVE, and a warm copy in a process that all others know."""
        states, copies = [], []
        for port in self._ports.values():
            status: Any = harness.get(port, "/restore-status?scope=local")
            processes: Any = harness.get(port, "/api/v1/processes")
            if status is None or processes is None:
                return False
            if sorted(each["state"] for each in processes["items"]) != ["reachable", "reachable", "self"]:
                return False
            states += [each["phase"] for each in status["partitions"]]
            copies += [each["state"] for each in status["standbys"]]
        return states == ["live"] * self._partitions and copies == ["warm"] * self._partitions

    def _judge(self) -> None:
        urls = [f"http://127.0.0.1:{port}" for port in self._ports.values()]
        verdict = verify(self._servers, ID, deadline_seconds=60, urls=urls)
        assert verdict.good, str(verdict)


def longest(times: list[float], began: float, ended: float) -> float:
    """Return the longest time between two outputs that touches the given one; the end counts as an output."""
    after = [each for each in times if began < each < ended]
    before = max((each for each in times if each <= began), default=began)
    points = [before, *after, ended]
    return max(later - earlier for earlier, later in pairwise(points))


@contextmanager
def watched(servers: str, topic: str, partitions: int) -> Iterator[list[list[float]]]:
    """Note for each partition when each new output was seen."""
    settings = {"bootstrap.servers": servers, "group.id": "watch", "isolation.level": "read_committed"}
    consumer = Consumer(settings | {"enable.auto.commit": False})
    ends = [consumer.get_watermark_offsets(TopicPartition(topic, n), timeout=10)[1] for n in range(partitions)]
    consumer.assign([TopicPartition(topic, n, end) for n, end in enumerate(ends)])
    times: list[list[float]] = [[] for _ in range(partitions)]
    over = threading.Event()

    def watch() -> None:
        while not over.is_set():
            for message in harness.arrived(consumer):
                times[message.partition() or 0].append(time.perf_counter())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield times
    finally:
        over.set()
        thread.join()
        consumer.close()


if __name__ == "__main__":
    main()
