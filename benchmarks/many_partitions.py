"""The cost of many partitions in one process: `python -m benchmarks.many_partitions [--keys 10000]`.

A service owns every partition of an app that has begun, and has no records or, with `--keys`, so many entries in each
partition, which are in a snapshot and restored at each start. Measured from the start of its process: the
first answer of HTTP, and all partitions LIVE. Then CPU, connections, files and memory while nothing happens, and the
stop. Each life also shows what was said of
the time until all are LIVE, beside the truth, and how evenly the partitions were served. With `--replicas N`, N more
processes hold a warm copy of every partition (`benchmarks.copies`), and each life shows what they cost while nothing
happens.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from benchmarks import harness

APP = "benchmarks/ledger_app.py"
SETTLE_SECONDS, IDLE_SECONDS = 5.0, 10.0


class Result(NamedTuple):
    """One life of a process."""

    http_seconds: float
    live_seconds: float
    start_cpu_seconds: float
    idle_percent: float
    connections: int
    files: int
    rss_mb: float
    most_mb: float
    stop_seconds: float


COLUMNS = ("HTTP s", "LIVE s", "CPU s", "idle %", "connections", "files", "RSS MB", "most MB", "stop s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, nargs="+", default=[8, 200])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--keys", type=int, default=0, help="entries in each partition")
    parser.add_argument("--replicas", type=int, default=0, metavar="N", help="processes with a copy of each partition")
    arguments = parser.parse_args()
    print(harness.machine())
    print(f"{'partitions':>10s} {''.join(f'{name:>24s}' for name in COLUMNS)}")
    for partitions in arguments.partitions:
        _show(partitions, _lives(partitions, arguments))


def _show(partitions: int, results: list[Result]) -> None:
    cells = [harness.spread(values) for values in zip(*results, strict=True)]
    print(f"{partitions:10d} {''.join(f'{cell:>24s}' for cell in cells)}", flush=True)


def _lives(partitions: int, arguments: argparse.Namespace) -> list[Result]:
    with harness.local_broker() as broker, tempfile.TemporaryDirectory() as scratch:
        servers = broker.bootstrap_servers
        harness.create_topics(servers, "bench-in", "bench-out", partitions=partitions)
        harness.snapreplay("topics", "ensure", APP, "--bootstrap-servers", servers)
        harness.snapreplay("init", APP, "--bootstrap-servers", servers)
        if arguments.keys:
            _filled(servers, Path(scratch, "first.log"), partitions, arguments.keys * partitions)
        lives = []
        for number in range(arguments.runs):
            with _holders(servers, scratch, partitions, arguments.replicas) as holders:
                lives.append(_life(servers, Path(scratch, f"{number}.log"), holders))
        return lives


def _filled(servers: str, log: Path, partitions: int, records: int) -> None:
    """Give every partition its entries, and stop: that writes snapshots."""
    harness.load(servers, "bench-in", records, records, partitions=partitions)
    ends = [harness.CommittedEnd(servers, "bench-out", number) for number in range(partitions)]
    with harness.child(log, *harness.service_arguments(APP, servers, harness.free_port())) as process:
        for number, end in enumerate(ends):
            expected = len(range(number, records, partitions))
            harness.wait_until(partial(_has, end, expected), f"partition {number}", 0.1)
            end.close()
        process.send_signal(signal.SIGTERM)
        process.wait(harness.DEADLINE_SECONDS)


class _Holder(NamedTuple):
    """A process that holds copies, and where it prints."""

    process: psutil.Process
    printed: Path

    def said(self) -> dict[str, Any]:
        lines = [line for line in self.printed.read_text().splitlines(keepends=True) if line.startswith('{"warm"')]
        said: dict[str, Any] = json.loads(lines[-1]) if lines else {"warm": 0, "sent": {}}
        return said

    def idles(self, broker_port: int) -> Iterator[None]:
        """Show what it costs from the first call of `next` to the second."""
        sent, cpu, since = Counter(self.said()["sent"]), _cpu_seconds(self.process), time.perf_counter()
        yield
        seconds = time.perf_counter() - since
        idle = (_cpu_seconds(self.process) - cpu) / seconds
        sent = Counter(self.said()["sent"]) - sent
        requests = ", ".join(f"{count / seconds:.1f} {name}" for name, count in sent.most_common())
        rss_mb = self.process.memory_info().rss / 2**20
        print(
            f"  {self.said()['warm']} copies: idle {100 * idle:.2f} %, {_connections(self.process, broker_port)}"
            f" connections, RSS {rss_mb:.0f} MB; requests a second: {requests}",
            flush=True,
        )


@contextmanager
def _holders(servers: str, scratch: str, partitions: int, count: int) -> Iterator[list[_Holder]]:
    """Run so many processes with a copy of each partition for the length of the block."""
    with ExitStack() as stack:
        logs = [Path(scratch, f"copies{number}.log") for number in range(count)]
        words = ("-m", "benchmarks.copies", servers, str(partitions))
        holders = [_Holder(stack.enter_context(harness.child(log, *words)), log) for log in logs]
        for each in holders:
            harness.wait_until(lambda each=each: each.said()["warm"] == partitions, "copies", 0.2)  # type: ignore[misc]
        yield holders


def _life(servers: str, log: Path, holders: list[_Holder]) -> Result:
    port = harness.free_port()
    began = time.perf_counter()
    with harness.child(log, *harness.service_arguments(APP, servers, port)) as process:
        http_at = harness.wait_until(_answers(port, "/healthz"), f"HTTP ({log})")
        progress = _Progress(port)
        live_at = harness.wait_until(progress.is_over, f"all partitions LIVE ({log})", 0.05)
        progress.show(live_at)
        start_cpu = _cpu_seconds(process)
        time.sleep(SETTLE_SECONDS)  # what follows LIVE is no part of being idle
        copies = [each.idles(int(servers.rpartition(":")[2])) for each in holders]
        for each in copies:
            next(each)
        cpu, since = _cpu_seconds(process), time.perf_counter()
        time.sleep(IDLE_SECONDS)  # the measurement itself
        idle = (_cpu_seconds(process) - cpu) / (time.perf_counter() - since)
        for each in copies:
            next(each, None)
        with process.oneshot():
            connections = _connections(process, int(servers.rpartition(":")[2]))
            files, rss_mb = process.num_fds(), process.memory_info().rss / 2**20
        most = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process.pid}/status").read_text())
        most_mb = int(most[1]) / 1024 if most else 0.0
        stopping = time.perf_counter()
        process.send_signal(signal.SIGTERM)
        process.wait(harness.DEADLINE_SECONDS)
        stop_seconds = time.perf_counter() - stopping
    times = http_at - began, live_at - began, start_cpu, 100 * idle
    return Result(*times, connections, files, rss_mb, most_mb, stop_seconds)


class _Progress:
    """The restore as the service tells it, until all partitions are LIVE."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._status: Any = None
        self._said: list[tuple[float, int, float]] = []

    def is_over(self) -> bool:
        self._status = harness.get(self._port, "/restore-status")
        if self._status is None:
            return False
        summary = self._status["summary"]
        etas = [each["progress"] and each["progress"]["eta_seconds"] for each in self._status["partitions"]]
        if known := [eta for eta in etas if eta is not None]:
            live = summary["partitions_by_phase"].get("live", 0)
            self._said.append((time.perf_counter(), live, max(known)))
        return bool(summary["all_live"])

    def show(self, live_at: float) -> None:
        restores = self._status["partitions"]
        for quarters in (1, 2, 3):
            for at, live, eta in self._said:
                if live >= len(restores) * quarters / 4:
                    print(f"  {live} LIVE: {eta:.1f} s more were said, {live_at - at:.1f} s it took")
                    break
        took = [sum(map(each["seconds_per_phase"].get, ("loading", "advancing"), (0.0, 0.0))) for each in restores]
        print(f"  loading and advancing: {harness.spread(took)} s of a partition", flush=True)


def _has(end: harness.CommittedEnd, records: int) -> bool:
    return end() >= records


def _answers(port: int, path: str) -> Callable[[], bool]:
    return lambda: harness.get(port, path) is not None


def _connections(process: psutil.Process, broker_port: int) -> int:
    return sum(1 for each in process.net_connections("tcp") if each.raddr and each.raddr.port == broker_port)


def _cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


if __name__ == "__main__":
    main()
