"""The cost of Spark's jobs, each beside the same in plain Python: `python -m benchmarks.spark`.

A real service makes the log: every key once, a snapshot, then the rest of the records. Each job runs twice in a process
of its own. The first run includes the start of Python and of Spark; the second one has a session that is warm. CPU
seconds are those of the whole process tree, without the broker and without this measuring. Memory is the highest sum of
proportional sets: a page that several processes share, such as those of a forked worker, counts once.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

import psutil

from benchmarks import harness
from snapreplay.app.load import load_app
from snapreplay.service.blocking import BlockingClient, BlockingReader
from snapreplay.service.clock import wall_ms
from snapreplay.service.config.settings import Settings, load_settings
from snapreplay.snapshots.jobs import compaction
from snapreplay.snapshots.jobs.compaction import PartitionResult
from snapreplay.snapshots.jobs.fixed_logs import PartitionLogs, freeze
from snapreplay.snapshots.proof.partition import audit_partition
from snapreplay.snapshots.proof.replay import prove
from snapreplay.snapshots.proof.report import Level

APP = "benchmarks/ledger_app.py"
APP_ID = "bench"
SAMPLE_SECONDS = 0.2
LIVE_SECONDS = 900.0
T = TypeVar("T")


class Cost(NamedTuple):
    """The cost of one run."""

    seconds: float
    cpu_seconds: float
    peak_mb: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--records", type=int, default=3_000_000)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--jobs", nargs="+", default=list(JOBS), choices=list(JOBS))
    parser.add_argument("--one", help=argparse.SUPPRESS)  # a child process: which job
    parser.add_argument("--servers", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        _one(arguments.one, load_settings({"kafka.bootstrap.servers": arguments.servers}))
        return
    if arguments.records < arguments.keys:
        parser.error("--records must be at least --keys: each key is written once")
    print(
        f"{arguments.keys:,} keys, {arguments.records:,} records, {arguments.partitions} partitions;"
        f" {harness.machine()}"
    )
    with harness.local_broker() as broker:
        make_log(broker.bootstrap_servers, arguments.keys, arguments.records, arguments.partitions)
        print(f"{'':26} {'first run':^27} {'second run':^27}")
        print(f"{'':26} {'wall s':>8} {'CPU s':>8} {'MB':>8}  {'wall s':>8} {'CPU s':>8} {'MB':>8}")
        for name in arguments.jobs:
            _show(name, measured(name, broker.bootstrap_servers), arguments)


def _show(name: str, costs: Sequence[Cost], arguments: argparse.Namespace) -> None:
    cells = "  ".join(f"{c.seconds:8.1f} {c.cpu_seconds:8.1f} {c.peak_mb:8,.0f}" for c in costs)
    rate = arguments.records / costs[-1].cpu_seconds / 1000
    print(f"{name:26} {cells}   {rate:6,.0f} k records per CPU s", flush=True)


def make_log(servers: str, keys: int, records: int, partitions: int) -> None:
    """Let a real service make the log and stop."""
    harness.create_topics(servers, "bench-in", "bench-out", partitions=partitions)
    harness.snapreplay("topics", "ensure", APP, "--bootstrap-servers", servers)
    harness.snapreplay("init", APP, "--bootstrap-servers", servers)
    port = harness.free_port()
    life = harness.service_arguments(APP, servers, port, "snapshot.every_seconds=0")
    life += ["--set", "snapshot.every_records=0", "--set", "snapshot.before_stop=false"]
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch, "service.log")
        with harness.child(log, *life):
            harness.load(servers, "bench-in", keys, keys, partitions=partitions)
            _until_processed(port, keys, log)
            url = f"http://127.0.0.1:{port}"
            harness.snapreplay("trigger-snapshot", "--wait", "--url", url)
            if rest := records - keys:
                harness.load(servers, "bench-in", rest, keys, 2, partitions)
            _until_processed(port, records, log)


def _until_processed(port: int, records: int, log: Path) -> None:
    def done() -> bool:
        answer: Any = harness.get(port, "/api/v1/partitions")
        items = answer["items"] if answer else []
        positions: list[int] = [i["position"] for each in items for i in each["inputs"]]
        return sum(positions) >= records

    harness.wait_until(done, f"{records} records ({log})", 0.2, LIVE_SECONDS)


def measured(name: str, servers: str) -> list[Cost]:
    """Measure the first run of a job and the second one, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.spark", "--one", name, "--servers", servers]
    ended = subprocess.run(command, capture_output=True, check=False, text=True)
    if ended.returncode != 0:
        raise SystemExit(f"{name} failed:\n{ended.stderr}")
    return [Cost(*each) for each in json.loads(ended.stdout.splitlines()[-1])]


def _one(name: str, settings: Settings) -> None:
    """Measure in a process of its own; the first run counts from its start."""
    run = JOBS[name]
    me = psutil.Process()
    began, cpu = me.create_time(), 0.0
    costs = []
    with _session(name):
        for _ in range(2):
            with _Watch() as watch:
                run(settings)
            now, used = time.time(), _cpu_seconds()
            costs.append(Cost(now - began, used - cpu - watch.looking_seconds, watch.peak_mb))
            began, cpu = now, used
    print(json.dumps(costs))


def _session(name: str) -> contextlib.AbstractContextManager[object]:
    if not name.endswith("Spark"):
        return contextlib.nullcontext()
    from snapreplay.snapshots.jobs.session import spark_session

    return spark_session("snapreplay benchmark")


def _tree() -> list[psutil.Process]:
    me = psutil.Process()
    return [me, *me.children(recursive=True)]


def _cpu_seconds() -> float:
    """Sum the CPU seconds of the tree; a child that has ended is among its parent's `children_*`."""
    total = 0.0
    for process in _tree():
        with contextlib.suppress(psutil.Error):
            total += sum(process.cpu_times()[:4])
    return total


class _Watch:
    """A watch on what a run takes; looking costs CPU seconds itself, which do not count."""

    def __init__(self) -> None:
        self.peak_mb = 0.0
        self.looking_seconds = 0.0
        self._over = threading.Event()

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(SAMPLE_SECONDS):
            held = 0
            for process in _tree():
                with contextlib.suppress(psutil.Error):
                    held += process.memory_full_info().pss
            self.peak_mb = max(self.peak_mb, held / 1e6)
            self.looking_seconds = time.thread_time()


def _spark_audit(level: Level, settings: Settings) -> None:
    from snapreplay.spark import audit

    report = audit(settings, APP_ID, level, APP if level is Level.REPLAY else None)
    assert not report.findings, report.findings


def _spark_compact(settings: Settings) -> None:
    from snapreplay.spark import compact

    report = compact(settings, APP_ID)
    assert report.exit_code == 0, report


def _plain_audit(level: Level, settings: Settings) -> None:
    app = load_app(APP)
    with BlockingReader(settings) as reader:
        for moment in freeze(reader, APP_ID):
            logs = PartitionLogs(reader, APP_ID, moment.partition)
            report = audit_partition(APP_ID, moment, logs, level)
            assert not report.findings, report.findings
            for segment in report.segments:
                assert prove(app, segment, logs).finding is None


def _plain_compact(settings: Settings) -> None:
    assert all(result.outcome == "proposed" for result in compacted(settings))


def compacted(settings: Settings) -> list[PartitionResult]:
    """Compact without Spark."""
    with BlockingClient(settings) as client:
        work = partial(compaction.compacted, APP_ID, "compact@benchmark", wall_ms, client)
        return [work(moment) for moment in freeze(client, APP_ID)]


JOBS: dict[str, Callable[[Settings], None]] = {
    "audit integrity, Spark": partial(_spark_audit, Level.INTEGRITY),
    "audit integrity, plain": partial(_plain_audit, Level.INTEGRITY),
    "audit changes, Spark": partial(_spark_audit, Level.CHANGES),
    "audit changes, plain": partial(_plain_audit, Level.CHANGES),
    "audit replay, Spark": partial(_spark_audit, Level.REPLAY),
    "audit replay, plain": partial(_plain_audit, Level.REPLAY),
    "compact, Spark": _spark_compact,
    "compact, plain": _plain_compact,
}


if __name__ == "__main__":
    main()
