"""Kills at random moments under a recovery-time objective: `python -m benchmarks.objective`.

A service processes a steady load with `restore.objective_seconds` and is killed with `kill -9` at random moments. A new
process is started at once with the same instance id. The seconds of its restore, from fencing to LIVE, are compared
with the objective, and with what the killed process and the new one have predicted. Then the load stops, and drills are
compared with the restores that follow them.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles
from typing import Any, NamedTuple

from confluent_kafka import Producer

from benchmarks import harness

APP = "benchmarks/ledger_app.py"
LOOK_SECONDS = 0.1
SLICE_SECONDS = 0.1


class Kill(NamedTuple):
    """The seconds that the killed process has predicted last, those of the new one by its constants, the truth, and its
    parts."""

    predicted: float
    by_constants: float
    true: float
    before_loading: float
    loading: float
    advancing: float
    records: int
    snapshots: int


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=200_000)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--drills", type=int, default=3)
    parser.add_argument("--objective", type=float, default=3.0)
    parser.add_argument("--per-second", type=int, default=5000, help="records of the load")
    parser.add_argument("--longest", type=float, default=40.0, help="longest life, in seconds")
    parser.add_argument("--mode", default="changes")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    print(f"{arguments}; {harness.machine()}", flush=True)
    with harness.local_broker() as broker, tempfile.TemporaryDirectory() as scratch:
        _run(arguments, broker.bootstrap_servers, Path(scratch))


def _run(given: argparse.Namespace, servers: str, scratch: Path) -> None:
    port, random_ = harness.free_port(), random.Random(given.seed)
    harness.create_topics(servers, "bench-in", "bench-out")
    harness.snapreplay("topics", "ensure", APP, "--bootstrap-servers", servers)
    harness.snapreplay("init", APP, "--bootstrap-servers", servers)
    harness.load(servers, "bench-in", given.keys, given.keys)
    settings = [
        f"restore.objective_seconds={given.objective}",
        f"restore.mode={given.mode}",
        "snapshot.every_seconds=0",
    ]
    if given.mode == "replay":
        settings += ["changelog.enabled=false"]
    command = harness.service_arguments(APP, servers, port, *settings)
    with harness.child(scratch / "first.log", *command):
        harness.wait_until(lambda: _position(port) >= given.keys, "the first records", 0.1)
        harness.snapreplay("trigger-snapshot", "--wait", "--url", f"http://127.0.0.1:{port}")
    kills = []
    with _steady_load(servers, given):
        before: dict[str, Any] | None = None
        for number in range(given.kills + 1):
            with harness.child(scratch / f"{number}.log", *command):
                restore = _live(port)["restore"]
                if before is not None:
                    kills.append(_kill(before, restore))
                    print(" ".join(f"{name} {value:.2f}" for name, value in kills[-1]._asdict().items()), flush=True)
                before = _watched(port, random_.uniform(0, given.longest))
    _show(kills, given.objective)
    _drill(given.drills, command, port, scratch)


@contextmanager
def _steady_load(servers: str, given: argparse.Namespace) -> Iterator[None]:
    """Load at a steady rate beside the block."""
    stop = threading.Event()

    def run() -> None:
        producer, random_, due = Producer({"bootstrap.servers": servers, "linger.ms": 20}), random.Random(2), 0.0
        while not stop.wait(max(0.0, due - time.monotonic())):
            due = max(due, time.monotonic() - 1) + SLICE_SECONDS
            for _ in range(int(given.per_second * SLICE_SECONDS)):
                value = f'{{"amount": {random_.randrange(1, 1000)}, "ts": 1700000000000, "pad": "{harness.PAD}"}}'
                producer.produce("bench-in", value, b"acct%07d" % random_.randrange(given.keys))
            producer.poll(0)
        producer.flush(60)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _partition(port: int) -> dict[str, Any] | None:
    answer: Any = harness.get(port, "/api/v1/partitions")
    return answer["items"][0] if answer and answer["items"] else None


def _live(port: int) -> dict[str, Any]:
    found: list[dict[str, Any]] = []

    def is_live() -> bool:
        found[:] = [each for each in [_partition(port)] if each and each["phase"] == "live" and each["objective"]]
        return bool(found)

    harness.wait_until(is_live, "LIVE")
    return found[0]


def _position(port: int) -> int:
    found = _partition(port)
    return int(found["inputs"][0]["position"]) if found and found["inputs"] else 0


def _watched(port: int, seconds: float) -> dict[str, Any]:
    """Look at the partition until the time is over; return the last look, and count snapshots."""
    end, taken, last = time.monotonic() + seconds, set(), _live(port)
    while time.monotonic() < end:
        last = _partition(port) or last
        if last["snapshot"] and last["snapshot"]["state"] == "pointed":
            taken.add(last["snapshot"]["snapshot_id"])
        time.sleep(LOOK_SECONDS)  # between two looks
    return {**last, "taken": len(taken)}


def _kill(before: dict[str, Any], restore: dict[str, Any]) -> Kill:
    """Make the report of a kill; `before`: the last look at the killed process."""
    spent: dict[str, float] = restore["seconds_per_phase"]
    true, loading, advancing = sum(spent.values()), spent.get("loading", 0.0), spent.get("advancing", 0.0)
    return Kill(
        before["objective"]["predicted_seconds"],
        restore["predicted_seconds"] or 0.0,
        true,
        true - loading - advancing,
        loading,
        advancing,
        restore["records_advanced"],
        before["taken"],
    )


def _show(kills: list[Kill], objective: float) -> None:
    held = sum(each.true <= objective for each in kills)
    print(f"{len(kills)} kills: {held} restores within {objective:g} s")
    for name in ("true", "before_loading", "loading", "advancing"):
        print(f"{name} seconds, least / median / most: {harness.spread([getattr(each, name) for each in kills])}")
    for name, ratios in (
        ("by the killed process", [each.predicted / each.true for each in kills]),
        ("by the constants of the new one", [each.by_constants / each.true for each in kills]),
    ):
        tenths = quantiles(ratios, n=10)
        print(f"predicted / true {name}: {harness.spread(ratios)}; 1st and 9th tenth {tenths[0]:.2f}, {tenths[-1]:.2f}")


def _drill(times: int, command: list[str], port: int, scratch: Path) -> None:
    """Drill, then kill, and compare with the restore of the same batches that follows."""
    drilled = None
    for number in range(times + 1):
        with harness.child(scratch / f"drill-{number}.log", *command):
            found = _live(port)
            if drilled is not None:
                true = sum(found["restore"]["seconds_per_phase"].values())
                print(
                    f"drill {drilled['seconds']:.3f} s, in {_lasted(drilled):.1f} s; then restored in {true:.3f} s",
                    flush=True,
                )
            harness.wait_until(lambda: _lag(port) == 0, "the end of the input", 0.1)
            harness.snapreplay("drill", "--wait", "--url", f"http://127.0.0.1:{port}")
            drilled = _live(port)["drill"]


def _lasted(drill: dict[str, Any]) -> float:
    return float(drill["seconds"] + drill["rested_seconds"])


def _lag(port: int) -> int:
    found = _partition(port)
    lag = found["inputs"][0]["lag"] if found and found["inputs"] else None
    return 1 if lag is None else int(lag)


if __name__ == "__main__":
    main()
