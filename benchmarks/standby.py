"""CPU that a standby costs its owner and itself: `python -m benchmarks.standby`.

Two processes of one app own one partition of 100,000 keys. A backlog of 1,000,000 records is worked off, several times,
with a warm copy in the other process and without one. Measured: CPU seconds of both processes per million records.
"""

from __future__ import annotations

import argparse
from typing import Any

import psutil

from benchmarks import harness
from benchmarks.takeover import Pair, prepared

KEYS = 100_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    print(f"{arguments.records:,} records, {KEYS:,} keys; {harness.machine()}", flush=True)
    for replicas in (1, 0):
        with prepared(replicas, KEYS) as pair:
            runs = [cpu_of_a_backlog(pair, arguments.records) for _ in range(arguments.runs)]
            for name, values in zip(("owner", "other process"), zip(*runs, strict=True), strict=True):
                print(f"{replicas} standby: {harness.spread(values)} CPU s per million of the {name}", flush=True)


def cpu_of_a_backlog(pair: Pair, records: int) -> tuple[float, float]:
    """Work off a backlog; return the CPU seconds per million records of the owner and of the other process, each
    without its HTTP."""
    owner = pair.ready()
    (other,) = pair.running.keys() - {owner}
    processes = [pair.running[name][1] for name in (owner, other)]
    before = [_cpu(process) for process in processes]
    end = harness.CommittedEnd(pair.servers, "bench-out")
    wanted = end() + records
    harness.load(pair.servers, "bench-in", records, KEYS)
    # Markers have offsets, too, so the outputs may not be all there yet.
    harness.wait_until(lambda: end() >= wanted, "most outputs", 0.1)
    harness.wait_until(lambda: pair.is_even(owner), "the copy", 0.1)
    end.close()
    first, second = (
        (_cpu(process) - spent) * 1_000_000 / records for process, spent in zip(processes, before, strict=True)
    )
    return first, second


def _cpu(process: psutil.Process) -> float:
    times: Any = process.cpu_times()
    return float(times.user + times.system)


if __name__ == "__main__":
    main()
