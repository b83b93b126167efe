"""One process against two workers of `run --processes 2`: `python -m benchmarks.processes`.

A backlog in two partitions, on the local broker. Workers and broker share the same cores, so the rate of two workers
is bounded by what the broker leaves to them; its CPU is shown besides. Measured while both partitions are live, each in
its worker, and have records. CPU and memory are those of all processes of the app, HTTP included.

With `--share 0.4` each process of the app has at most so much of a core (a cgroup of Linux, version 1; needs root), so
the broker has what it needs: that is how a broker on another machine is measured on this one.
"""

from __future__ import annotations

import argparse
import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

import psutil

from benchmarks import harness

APP = "benchmarks/ledger_app.py"
PARTITIONS = 2
CGROUPS = Path("/sys/fs/cgroup/cpu")
PERIOD_US = 20_000


class Result(NamedTuple):
    """One run."""

    records_per_second: float
    cpu_seconds_per_million: float
    broker_cpu_seconds_per_million: float
    busy_cores: float
    rss_mb: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--share", type=float, metavar="CORES", help="at most so much of a core for each process")
    arguments = parser.parse_args()
    print(f"{arguments.records:,} records, {arguments.keys:,} keys; {harness.machine()}")
    results: dict[int, list[Result]] = {1: [], 2: []}
    for number in range(arguments.runs):
        for processes, found in results.items():
            found.append(_run(processes, arguments))
            print(f"  run {number + 1}  {processes} process(es)  {found[-1]}", flush=True)
    for processes, found in results.items():
        columns = zip(*found, strict=True)
        cells = [f"{min(each):,.1f} / {median(each):,.1f} / {max(each):,.1f}" for each in columns]
        print(f"{processes}: " + ", ".join(map(" ".join, zip(Result._fields, cells, strict=True))))
    rates = [median(each.records_per_second for each in found) for found in results.values()]
    print(f"two against one: {rates[1] / rates[0]:.2f}")


def _run(processes: int, given: argparse.Namespace) -> Result:
    with harness.local_broker() as broker, tempfile.TemporaryDirectory() as scratch:
        servers = broker.bootstrap_servers
        (java,) = psutil.Process().children()
        harness.create_topics(servers, "bench-in", "bench-out", partitions=PARTITIONS)
        harness.snapreplay("topics", "ensure", APP, "--bootstrap-servers", servers)
        harness.snapreplay("init", APP, "--bootstrap-servers", servers)
        harness.load(servers, "bench-in", given.records, given.keys, partitions=PARTITIONS)
        log = Path(scratch, "service.log")
        arguments = [*harness.service_arguments(APP, servers, 0), "--processes", str(processes)]
        with harness.child(log, *arguments) as process:
            try:
                harness.wait_until(lambda: _is_shared(log, processes), "a partition in each process", 0.1, 30)
                with _limited(process.children() if processes > 1 else [process], given.share):
                    return _measure(servers, process, java, given.records // PARTITIONS)
            except SystemExit:
                print(log.read_text()[-5000:])
                raise
            finally:
                process.terminate()
                process.wait()


@contextmanager
def _limited(processes: list[psutil.Process], cores: float | None) -> Iterator[None]:
    """Give each of them, with its children, at most so much of a core."""
    groups: list[Path] = []
    try:
        for process in processes if cores else ():
            groups.append(CGROUPS / f"snapreplay-bench-{os.getpid()}-{process.pid}")
            groups[-1].mkdir()
            (groups[-1] / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (groups[-1] / "cpu.cfs_quota_us").write_text(str(int(PERIOD_US * (cores or 0))))
            for each in _all(process):
                (groups[-1] / "cgroup.procs").write_text(str(each.pid))
        yield
    finally:
        for group in filter(Path.exists, groups):
            for pid in (group / "cgroup.procs").read_text().split():
                (CGROUPS / "cgroup.procs").write_text(pid)
            group.rmdir()


def _is_shared(log: Path, processes: int) -> bool:
    """Say whether both partitions are live, and as many processes have one."""
    ports = re.findall(r"HTTP API: http://127.0.0.1:(\d+)", log.read_text())
    status = harness.get(int(ports[0]), "/restore-status") if ports else None
    rows: list[dict[str, object]] = status["partitions"] if status else []  # type: ignore[assignment]
    owners = {row["process_id"] for row in rows if row["phase"] == "live"}
    return len(rows) == PARTITIONS and all(row["phase"] == "live" for row in rows) and len(owners) == processes


def _measure(servers: str, process: psutil.Process, java: psutil.Process, each: int) -> Result:
    ends = [harness.CommittedEnd(servers, "bench-out", number) for number in range(PARTITIONS)]
    try:
        time.sleep(1)  # the rebalance and the start of HTTP are no part of it
        began, first, cpu_before, java_before = time.perf_counter(), [end() for end in ends], _cpu(process), _cpu(java)
        if max(first) > each // 2:
            raise SystemExit(f"too few records: {first} of {each:,} are done before both partitions are shared")
        harness.wait_until(lambda: max(end() for end in ends) > each * 0.95, "the end of the first partition", 0.05)
        seconds, last = time.perf_counter() - began, [end() for end in ends]
        cpu, java_cpu = _cpu(process) - cpu_before, _cpu(java) - java_before
    finally:
        for end in ends:
            end.close()
    measured = sum(last) - sum(first)
    rss_mb = sum(one.memory_info().rss for one in _all(process)) / 2**20
    return Result(
        measured / seconds, cpu / measured * 1e6, java_cpu / measured * 1e6, (cpu + java_cpu) / seconds, rss_mb
    )


def _all(process: psutil.Process) -> list[psutil.Process]:
    return [process, *process.children(recursive=True)]


def _cpu(process: psutil.Process) -> float:
    return sum(sum(one.cpu_times()[:2]) for one in _all(process))


if __name__ == "__main__":
    main()
