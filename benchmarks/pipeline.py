"""Throughput of the whole pipeline beside the bare floor, in one run: `python -m benchmarks.pipeline`.

A backlog of 1 M records of about 100 bytes, 100 k keys, one output each, one partition, on the local broker
(same cores). Rate = committed outputs, from 10 % to 100 % of the backlog. CPU and memory are the app's alone.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import NamedTuple

import psutil

from benchmarks import harness

APP = "benchmarks/ledger_app.py"


class Result(NamedTuple):
    """One run of one contestant."""

    records_per_second: float
    cpu_seconds_per_million: float
    rss_mb: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    contestants: dict[str, Callable[[int, int], Result]] = {
        "floor (bare aiokafka loop)": _floor,
        "snapreplay, changes on": lambda records, keys: _service(records, keys, "true"),
        "the same, without engine": lambda records, keys: _service(records, keys, "true", "pure"),
        "snapreplay, changes off": lambda records, keys: _service(records, keys, "false"),
    }
    print(f"{arguments.records:,} records, {arguments.keys:,} keys; {harness.machine()}")
    results: dict[str, list[Result]] = {name: [] for name in contestants}
    for number in range(arguments.runs):
        for name, run in contestants.items():
            result = run(arguments.records, arguments.keys)
            results[name].append(result)
            print(f"  run {number + 1}  {name:28s} {result.records_per_second:9,.0f} records/s", flush=True)
    _show(results)


def _show(results: dict[str, list[Result]]) -> None:
    floor = median(r.records_per_second for r in next(iter(results.values())))
    print(f"\n{'':28s} {'records/s min / median / max':>34s} {'of floor':>9s} {'CPU s/M':>8s} {'RSS MB':>7s}")
    for name, runs in results.items():
        rates = sorted(r.records_per_second for r in runs)
        middle = median(rates)
        spread = f"{rates[0]:,.0f} / {middle:,.0f} / {rates[-1]:,.0f}"
        cpu = median(r.cpu_seconds_per_million for r in runs)
        rss = median(r.rss_mb for r in runs)
        print(f"{name:28s} {spread:>34s} {middle / floor:9.0%} {cpu:8.1f} {rss:7.0f}")


def _floor(records: int, keys: int) -> Result:
    with harness.local_broker() as broker, tempfile.TemporaryDirectory() as scratch:
        harness.create_topics(broker.bootstrap_servers, "bench-in", "bench-out", "bench-changes")
        harness.load(broker.bootstrap_servers, "bench-in", records, keys)
        log = Path(scratch, "floor.log")
        with harness.child(log, "-m", "benchmarks.floor", broker.bootstrap_servers) as process:
            return _measure(broker.bootstrap_servers, process, records, log)


def _service(records: int, keys: int, changes: str, engine: str = "auto") -> Result:
    with harness.local_broker() as broker, tempfile.TemporaryDirectory() as scratch:
        servers = broker.bootstrap_servers
        harness.create_topics(servers, "bench-in", "bench-out")
        harness.snapreplay("topics", "ensure", APP, "--bootstrap-servers", servers)
        harness.snapreplay("init", APP, "--bootstrap-servers", servers)
        harness.load(servers, "bench-in", records, keys)
        log = Path(scratch, "service.log")
        arguments = harness.service_arguments(APP, servers, harness.free_port(), f"changelog.enabled={changes}")
        with harness.child(log, *arguments, SNAPREPLAY_ENGINE=engine) as process:
            return _measure(servers, process, records, log)


def _measure(servers: str, process: psutil.Process, records: int, log: Path) -> Result:
    end = harness.CommittedEnd(servers, "bench-out")
    try:
        began = harness.wait_until(lambda: end() >= records // 10, f"the first outputs ({log})")
        first, cpu_before = end(), _cpu_seconds(process)
        ended = harness.wait_until(lambda: end() >= records, f"the last output ({log})")
        cpu = _cpu_seconds(process) - cpu_before
        rss_mb = process.memory_info().rss / 2**20
    finally:
        end.close()
    measured = records - first
    return Result(measured / (ended - began), cpu / measured * 1e6, rss_mb)


def _cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


if __name__ == "__main__":
    main()
