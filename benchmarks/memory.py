"""Memory of a large state, live, in a snapshot and in a restore: `python -m benchmarks.memory`.

A real service gets one record for each of 5 M keys, writes a full snapshot, writes another one while further records
arrive, and is killed; a new process restores. Resident memory and its peaks, as the kernel counts them (VmRSS, VmHWM).
The state's memory is what the restored process has above a service without state; the exit code is 1 unless every
peak stays below twice that.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from benchmarks import harness
from snapreplay.devbroker.broker import LocalBroker

APP = "benchmarks/ledger_app.py"
BOUND = 2.0
PATIENCE_SECONDS = 3600.0  # nothing here is a matter of speed


class Memory(NamedTuple):
    """One moment of a process: resident bytes, and the most since the last `forget_peak` or its start."""

    name: str
    resident_bytes: int
    peak_bytes: int


class Result(NamedTuple):
    """The result: `memories` in order of time, the first without any state; seconds by phase of the restore."""

    memories: list[Memory]
    phases: dict[str, float]

    @property
    def empty_bytes(self) -> int:
        return self.memories[0].resident_bytes

    @property
    def state_bytes(self) -> int:
        """The bytes that the restored process, the last one seen, has above one without state."""
        return self.memories[-1].resident_bytes - self.empty_bytes

    @property
    def worst(self) -> Memory:
        return max(self.memories, key=lambda memory: memory.peak_bytes)

    @property
    def bounded(self) -> bool:
        return self.worst.peak_bytes < BOUND * self.state_bytes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=5_000_000, help="with fewer, constant costs dominate")
    parser.add_argument("--meanwhile", type=int, default=500_000, help="records that arrive during a snapshot")
    arguments = parser.parse_args()
    print(
        f"{arguments.keys:,} keys, {arguments.meanwhile:,} records during a snapshot; {harness.machine()}", flush=True
    )
    result = measure(arguments.keys, arguments.meanwhile)
    print(table(result))
    return 0 if result.bounded else 1


def table(result: Result) -> str:
    """Show the result to people; sizes in MiB."""
    lines = [
        f"{memory.name:34s} {memory.resident_bytes / 2**20:8,.0f} MiB   peak {memory.peak_bytes / 2**20:8,.0f} MiB"
        for memory in result.memories
    ]
    phases = ", ".join(f"{name} {seconds:.3f}" for name, seconds in result.phases.items())
    worst = result.worst
    lines += [
        f"seconds of the restore: {phases}",
        f"memory of the state {result.state_bytes / 2**20:,.0f} MiB; highest peak {worst.name!r}:"
        f" {worst.peak_bytes / result.state_bytes:.2f} times that,"
        f" {'below' if result.bounded else 'NOT BELOW'} {BOUND:g}",
    ]
    return "\n".join(lines)


def measure(keys: int, meanwhile: int) -> Result:
    with LocalBroker(heap_mb=512) as broker, tempfile.TemporaryDirectory() as scratch:
        servers, port = broker.bootstrap_servers, harness.free_port()
        harness.create_topics(servers, "bench-in", "bench-out")
        harness.snapreplay("topics", "ensure", APP, "--bootstrap-servers", servers)
        harness.snapreplay("init", APP, "--bootstrap-servers", servers)
        arguments = harness.service_arguments(APP, servers, port, "snapshot.every_seconds=0")
        memories = []
        log = Path(scratch, "first.log")
        with harness.child(log, *arguments) as process:
            memories += _first_life(process, servers, port, keys, meanwhile, log)
        log = Path(scratch, "second.log")
        with harness.child(log, *arguments) as process:
            restore = _live(port, log)
            memories.append(memory_of("restored, LIVE", process))
        return Result(memories, restore["seconds_per_phase"])


def _first_life(process: psutil.Process, servers: str, port: int, keys: int, meanwhile: int, log: Path) -> list[Memory]:
    """Measure without state, with all of it, in a quiet snapshot, and in one during processing."""
    _live(port, log)
    memories = [memory_of("no state, LIVE", process)]
    harness.load(servers, "bench-in", keys, keys)
    _caught_up(port, keys, log)
    memories.append(memory_of("every key written once", process))
    forget_peak(process)
    _snapshot(port)
    memories.append(memory_of("after a snapshot, nothing else", process))
    # Written faster than processed: most of them are still to come when the snapshot begins.
    harness.load(servers, "bench-in", meanwhile, keys, seed=2)
    forget_peak(process)
    _snapshot(port)
    _caught_up(port, keys + meanwhile, log)
    memories.append(memory_of("after a snapshot while records came", process))
    return memories


def _snapshot(port: int) -> None:
    harness.snapreplay("trigger-snapshot", "--wait", "--url", f"http://127.0.0.1:{port}")


def _live(port: int, log: Path) -> dict[str, Any]:
    """Return the finished recovery of partition 0."""
    found: list[dict[str, Any]] = []

    def look() -> bool:
        status: Any = harness.get(port, "/restore-status")
        found[:] = status["partitions"] if status else []
        return bool(found) and found[0]["phase"] == "live"

    harness.wait_until(look, f"LIVE ({log})", 0.05)
    return found[0]


def _caught_up(port: int, records: int, log: Path) -> None:
    def look() -> bool:
        answer: Any = harness.get(port, "/api/v1/partitions")
        items = answer["items"] if answer else []
        return bool(items and items[0]["inputs"]) and items[0]["inputs"][0]["position"] >= records

    harness.wait_until(look, f"{records} records ({log})", 0.1, PATIENCE_SECONDS)


def memory_of(name: str, process: psutil.Process) -> Memory:
    status = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
    sizes = dict(line.split(":", 1) for line in status.splitlines())
    resident, peak = (int(sizes[field].split()[0]) * 1024 for field in ("VmRSS", "VmHWM"))
    return Memory(name, resident, peak)


def forget_peak(process: psutil.Process) -> None:
    """Reset the peak, as in proc(5): from here on, VmHWM is the highest of what follows."""
    Path(f"/proc/{process.pid}/clear_refs").write_text("5", encoding="ascii")


if __name__ == "__main__":
    raise SystemExit(main())
