"""Memory of a large state, live, in a snapshot and in a restore: `python -m benchmarks.memory`.

A real service gets one record for each of 5 M keys, writes a full snapshot, writes another one while further records
arrive, and is killed; a new process restores. Resident memory and its peaks, as the kernel counts them (VmRSS, VmHWM).
The state's memory is what the restored process has above a service without state; the exit code is 1 unless every
peak stays below twice that. Beside it are the longest stop of the event loop in each of these (`benchmarks.beats`), the
seconds of snapshots, and those until a process without it has a warm copy. `--keys 2000000 --value-bytes 1000` is a
partition of two gigabytes.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from benchmarks import harness
from benchmarks.beats import longest_since

APP, PADDED = "benchmarks/ledger_app.py", "benchmarks/padded_app.py"
BOUND = 2.0
PATIENCE_SECONDS = 3600.0  # nothing here is a matter of speed


class Memory(NamedTuple):
    """One moment of a process: resident bytes, and the most since the last `forget_peak` or its start. `seconds` that
    what led there took, and the longest stop of the event loop in them."""

    name: str
    resident_bytes: int
    peak_bytes: int
    seconds: float = 0.0
    stop_seconds: float = 0.0


class Result(NamedTuple):
    """The result: `memories` in order of time, the first without any state; seconds by phase of the restore; those
    until a copy was warm."""

    memories: list[Memory]
    phases: dict[str, float]
    copy_seconds: float = 0.0

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
    parser.add_argument("--value-bytes", type=int, default=0, help="of a text in each value; 0: three numbers only")
    arguments = parser.parse_args()
    print(
        f"{arguments.keys:,} keys, {arguments.meanwhile:,} records during a snapshot; {harness.machine()}", flush=True
    )
    result = measure(arguments.keys, arguments.meanwhile, arguments.value_bytes)
    print(table(result))
    return 0 if result.bounded else 1


def table(result: Result) -> str:
    """Show the result to people; sizes in MiB."""
    lines = [
        f"{memory.name:36s} {memory.resident_bytes / 2**20:8,.0f} MiB   peak {memory.peak_bytes / 2**20:8,.0f} MiB"
        f"   in {memory.seconds:7.1f} s, longest stop {1000 * memory.stop_seconds:6.1f} ms"
        for memory in result.memories
    ]
    phases = ", ".join(f"{name} {seconds:.3f}" for name, seconds in result.phases.items())
    worst = result.worst
    lines += [
        f"seconds of the restore: {phases}",
        f"seconds from the start of a process until its copy is warm: {result.copy_seconds:.0f}",
        f"memory of the state {result.state_bytes / 2**20:,.0f} MiB; highest peak {worst.name!r}:"
        f" {worst.peak_bytes / result.state_bytes:.2f} times that,"
        f" {'below' if result.bounded else 'NOT BELOW'} {BOUND:g}",
    ]
    return "\n".join(lines)


class Stage(NamedTuple):
    """The place of the benchmark: the broker, the port of the service, the size of a value, and a directory."""

    servers: str
    port: int
    value_bytes: int
    scratch: Path

    @property
    def app(self) -> str:
        return PADDED if self.value_bytes else APP

    @property
    def beats(self) -> Path:
        return self.scratch / "beats.txt"

    def service(self, *overrides: str) -> list[str]:
        words = harness.service_arguments(self.app, self.servers, self.port, "snapshot.every_seconds=0", *overrides)
        return ["-m", "benchmarks.beats", str(self.beats), *words[2:]]

    def load(self, records: int, keys: int, seed: int = 1) -> None:
        harness.load(self.servers, "bench-in", records, keys, seed, pad_bytes=self.value_bytes)

    def moment(self, name: str, process: psutil.Process, since: float) -> Memory:
        """Measure what has happened since this time of day."""
        now = memory_of(name, process)
        return now._replace(seconds=time.time() - since, stop_seconds=longest_since(self.beats, since))


def measure(keys: int, meanwhile: int, value_bytes: int = 0) -> Result:
    with harness.local_broker() as broker, tempfile.TemporaryDirectory() as scratch:
        stage = Stage(broker.bootstrap_servers, harness.free_port(), value_bytes, Path(scratch))
        servers = stage.servers
        harness.create_topics(servers, "bench-in", "bench-out")
        harness.snapreplay("topics", "ensure", stage.app, "--bootstrap-servers", servers)
        harness.snapreplay("init", stage.app, "--bootstrap-servers", servers)
        memories = []
        log = Path(scratch, "first.log")
        with harness.child(log, *stage.service()) as process:
            memories += _first_life(process, stage, keys, meanwhile, log)
        log, since = Path(scratch, "second.log"), time.time()
        with harness.child(log, *stage.service()) as process:
            restore = _live(stage.port, log)
            memories.append(stage.moment("restored, LIVE", process, since))
        return Result(memories, restore["seconds_per_phase"], _copied(stage))


def _copied(stage: Stage) -> float:
    """Return the seconds until a process that starts has a warm copy."""
    log, module = stage.scratch / "copy.log", stage.app.removesuffix(".py").replace("/", ".")
    began = time.perf_counter()
    with harness.child(log, "-m", "benchmarks.copies", stage.servers, "1", module):
        return harness.wait_until(lambda: '"warm": 1' in log.read_text(), f"a copy ({log})", 0.05) - began


def _first_life(process: psutil.Process, stage: Stage, keys: int, meanwhile: int, log: Path) -> list[Memory]:
    """Measure without state, with all of it, in a quiet snapshot, and in one during processing."""
    port, since = stage.port, time.time()
    _live(port, log)
    memories = [stage.moment("no state, LIVE", process, since)]
    since = time.time()
    stage.load(keys, keys)
    _caught_up(port, keys, log)
    memories.append(stage.moment("every key written once", process, since))
    forget_peak(process)
    since = time.time()
    _snapshot(port)
    memories.append(stage.moment("after a snapshot, nothing else", process, since))
    # Written faster than processed: most of them are still to come when the snapshot begins.
    stage.load(meanwhile, keys, seed=2)
    forget_peak(process)
    since = time.time()
    _snapshot(port)
    seconds = time.time() - since
    _caught_up(port, keys + meanwhile, log)
    memories.append(stage.moment("after a snapshot while records came", process, since)._replace(seconds=seconds))
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
