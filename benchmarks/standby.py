"""CPU that a standby costs its owner and itself: `python -m benchmarks.standby`.

Two processes of one app own one partition of 100,000 keys. A backlog of 1,000,000 records is worked off, several times,
with a warm copy in the other process and without one. Measured: CPU seconds of both processes per million records.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import psutil

from benchmarks import harness
from benchmarks.takeover import Pair
from snapreplay.devbroker.broker import LocalBroker

KEYS = 100_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    print(f"{arguments.records:,} records, {KEYS:,} keys; {harness.machine()}", flush=True)
    for replicas in (1, 0):
        with LocalBroker(heap_mb=512) as broker, tempfile.TemporaryDirectory() as scratch:
            pair = Pair(broker.bootstrap_servers, Path(scratch), replicas)
            pair.prepare(KEYS)
            owner = pair.ready()
            runs = [Run(pair, owner, broker.bootstrap_servers, arguments.records) for _ in range(arguments.runs)]
            for name in ("owner", "follower"):
                shown = " / ".join(f"{each:.2f}" for each in _least_median_most([getattr(run, name) for run in runs]))
                print(f"{replicas} standby: {shown} CPU s per million of the {name}", flush=True)
            pair.end()


class Run:
    """One backlog. `owner` and `follower`: CPU seconds per million records, of the process alone, without its HTTP."""

    def __init__(self, pair: Pair, owner: str, servers: str, records: int) -> None:
        processes = {name == owner: process for name, (_, process) in pair.running.items()}
        before = {is_owner: _cpu(process) for is_owner, process in processes.items()}
        end = harness.CommittedEnd(servers, "bench-out")
        wanted = end() + records  # markers come on top: the positions decide
        harness.load(servers, "bench-in", records, KEYS)
        harness.wait_until(lambda: end() >= wanted, "the outputs", 0.1)
        harness.wait_until(lambda: pair.is_even(owner), "the copy", 0.1)
        end.close()
        spent = {is_owner: _cpu(process) - before[is_owner] for is_owner, process in processes.items()}
        self.owner, self.follower = (spent[is_owner] * 1_000_000 / records for is_owner in (True, False))


def _cpu(process: psutil.Process) -> float:
    times: Any = process.cpu_times()
    return float(times.user + times.system)


def _least_median_most(values: list[float]) -> tuple[float, float, float]:
    ordered = sorted(values)
    return ordered[0], ordered[len(ordered) // 2], ordered[-1]


if __name__ == "__main__":
    main()
