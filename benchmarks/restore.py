"""Seconds from kill -9 to the next output, 1 M keys: `python -m benchmarks.restore`.

A service with 1 M keys of state is killed; a new process is started at once with the same instance id. Measured
from the start of that process: LIVE (its own status) and the first new output visible to a read_committed reader.
Both modes, with nothing to advance, and by a version that upgrades each entry.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import harness

APP = "benchmarks/ledger_app.py"
NEXT_APP = "benchmarks/ledger_app_2.py"


class Case(NamedTuple):
    """The records between the newest snapshot and the last increment, and the mode."""

    name: str
    mode: str
    records_after_snapshot: int
    is_upgraded: bool = False


CASES = (
    Case("nothing to advance", "changes", 0),
    Case("by changes", "changes", 100_000),
    Case("by replay", "replay", 100_000),
    Case("upgraded", "changes", 0, is_upgraded=True),
)


class Result(NamedTuple):
    """Seconds; `phases` as the service reports them. `cpu`: of the process, from its start to the first output."""

    live: float
    first_output: float
    fence_to_live: float
    cpu: float
    phases: dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", default="", help="cases whose names have this in them")
    arguments = parser.parse_args()
    print(f"{arguments.keys:,} keys; {harness.machine()}")
    for case in CASES:
        if arguments.only not in case.name:
            continue
        if case.is_upgraded:  # once for each log
            results = [_case(case, arguments.keys, 1)[0] for _ in range(arguments.runs)]
        else:
            results = _case(case, arguments.keys, arguments.runs)
        _show(case, results)


def _show(case: Case, results: list[Result]) -> None:
    def spread(values: list[float]) -> str:
        ordered = sorted(values)
        return " / ".join(f"{v:.2f}" for v in (ordered[0], ordered[len(ordered) // 2], ordered[-1]))

    middle = sorted(results, key=lambda result: result.first_output)[len(results) // 2]
    phases = ", ".join(f"{name} {seconds:.3f}" for name, seconds in middle.phases.items())
    print(
        f"{case.name:24s} process start to LIVE {spread([r.live for r in results])} s,"
        f" to first output {spread([r.first_output for r in results])} s,"
        f" fence to LIVE {spread([r.fence_to_live for r in results])} s,"
        f" CPU {spread([r.cpu for r in results])} s\n"
        f"{'':24s} {phases}",
        flush=True,
    )


def _case(case: Case, keys: int, runs: int) -> list[Result]:
    with harness.local_broker() as broker, tempfile.TemporaryDirectory() as scratch:
        servers, port = broker.bootstrap_servers, harness.free_port()
        harness.create_topics(servers, "bench-in", "bench-out")
        harness.snapreplay("topics", "ensure", APP, "--bootstrap-servers", servers)
        harness.snapreplay("init", APP, "--bootstrap-servers", servers)
        harness.load(servers, "bench-in", keys, keys)
        arguments = harness.service_arguments(
            APP, servers, port, f"restore.mode={case.mode}", "snapshot.every_seconds=0"
        )
        processed = keys
        _first_life(arguments, port, Path(scratch, "first.log"), processed)
        if case.records_after_snapshot:
            harness.load(servers, "bench-in", case.records_after_snapshot, keys, seed=2)
            processed += case.records_after_snapshot
        results = []
        for number in range(runs):
            then = [NEXT_APP if each == APP else each for each in arguments] if case.is_upgraded else arguments
            results.append(_restart(servers, port, (arguments, then), Path(scratch, f"{number}.log"), processed))
            processed += 1
        return results


def _first_life(arguments: list[str], port: int, log: Path, records: int) -> None:
    """Process everything, write a snapshot, be killed."""
    with harness.child(log, *arguments):
        harness.wait_until(lambda: _position(port) >= records, f"{records} records ({log})", 0.1)
        harness.snapreplay("trigger-snapshot", "--wait", "--url", f"http://127.0.0.1:{port}")


def _restart(servers: str, port: int, both: tuple[list[str], list[str]], log: Path, processed: int) -> Result:
    """Let the process catch up first, kill it, and measure the one after it; `both`: their command lines."""
    before_it, arguments = both
    with harness.child(log, *before_it):
        harness.wait_until(lambda: _position(port) >= processed, f"catching up ({log})", 0.1)
    end = harness.CommittedEnd(servers, "bench-out")
    before = end()
    harness.load(servers, "bench-in", 1, 1, seed=3)
    began, started_at = time.perf_counter(), time.time()
    with harness.child(log, *arguments) as process:
        first_output = harness.wait_until(lambda: end() > before, f"the first output ({log})") - began
        used = process.cpu_times()
        harness.wait_until(lambda: harness.get(port, "/healthz") is not None, f"HTTP ({log})")
        status: Any = harness.get(port, "/restore-status")
        end.close()
    restore = status["partitions"][0]
    phases = restore["seconds_per_phase"]
    finished_at = datetime.fromisoformat(restore["finished_at"]).timestamp()
    live = finished_at - started_at
    return Result(live, first_output, sum(phases.values()), used.user + used.system, phases)


def _position(port: int) -> int:
    answer: Any = harness.get(port, "/api/v1/partitions")
    if not answer or not answer["items"] or not answer["items"][0]["inputs"]:
        return 0
    position: int = answer["items"][0]["inputs"][0]["position"]
    return position


if __name__ == "__main__":
    main()
