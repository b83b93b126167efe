"""The cost of the seal, without Kafka: each batch at its commit and in a recovery, and a snapshot written and read.

Run: `python -m benchmarks.seal [--keys 1000000] [--rounds 200] [--seed 1]`. Times are CPU time of this thread; the
figure is the median over rounds, the best one behind it.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable
from zlib import crc32

import msgspec

from benchmarks.harness import machine
from benchmarks.state import BATCH, Laps, drawn, filled, one_batch
from snapreplay.snapshots.format.changes import check_changes, split_changes
from snapreplay.snapshots.format.chunks import ChunkWriter, open_chunk
from snapreplay.snapshots.format.envelope import RecordKind, encode, enveloped
from snapreplay.snapshots.format.records import ChunkRef
from snapreplay.snapshots.format.seal import OFF, Seals
from snapreplay.state.steps import all_of
from tests.support.entries import increment

REPEATED = 100
ON = Seals({"key": bytes(range(32))}, source="benchmark")


def measure_batches(keys: int, rounds: int, seed: int) -> None:
    """Commit and recovery of batches of `BATCH` records and of one, without and with the seal."""
    store, view, change = filled("Struct", keys)
    random_ = random.Random(seed)
    for size in (BATCH, 1):
        laps = Laps()
        for number in range(rounds):
            kinds = [("off", OFF), ("on", ON)]
            random_.shuffle(kinds)  # the second one finds everything in the caches
            store.begin()
            change(view, drawn(random_, keys)[:size])
            all_of(store.staging())
            sealed = all_of(store.sealing())
            for name, seals in kinds:
                with laps.lap(f"written, {name}"):
                    values, ref = split_changes(number, sealed.changes)
                    ref = msgspec.structs.replace(ref, sha256=seals.sha256(values))
                    value = seals.put_on(encode(increment(number, changes=ref)), 0)
                with laps.lap(f"checked, {name}"):
                    seals.check(value, 0, "an increment")
                    for _ in check_changes(ref, values):
                        pass
            store.merge()
        print(f"batch of {size:>4} records, µs: {laps.microseconds(1)}")


def measure_alone() -> None:
    """Measure each part by itself, many times: a batch pays the first three once, and a recovery the second and the
    third."""
    value, laps = encode(increment(3)), Laps()
    sealed, changes = ON.put_on(value, 0), [b"x" * 100_000]
    parts: dict[str, Callable[[], object]] = {
        "put on": lambda: ON.put_on(value, 0),
        "checked": lambda: ON.check(sealed, 0, "an increment"),
        "SHA-256 of 100 kB": lambda: ON.sha256(changes),
    }
    for _ in range(30):
        for name, part in parts.items():
            with laps.lap(name):
                for _ in range(REPEATED):
                    part()
    print(f"alone, µs: {laps.microseconds(REPEATED)}")


def measure_snapshot(keys: int) -> None:
    """Measure the chunks of the whole state: hashed to be written, opened to be read."""
    store, view, change = filled("Struct", keys)
    random_ = random.Random(1)
    for start in range(0, keys, BATCH):  # values that compress as those of an account do
        updates = [(f"acct-{i:08d}", random_.randrange(10**9)) for i in range(start, start + BATCH)]
        one_batch(store, view, change, updates, Laps())
    writer, cursor, laps, count, size_bytes = ChunkWriter("benchmark"), store.mark(), Laps(), 0, 0
    while slices := all_of(cursor.slicing(writer.raw_bytes)):
        with laps.lap("packed and compressed"):
            value = enveloped(RecordKind.CHUNK, all_of(writer.packing(slices)), compress=True)
        assert not writer.halves_unless_fitting(slices, value), "as uniform as it is, it fits"
        with laps.lap("sha256"):
            sha256 = ON.sha256([value])
        ref = ChunkRef(0, count, len(value), crc32(value))
        with laps.lap("opened, off"):
            open_chunk(value, ref, "benchmark")
        with laps.lap("opened, on"):
            open_chunk(value, msgspec.structs.replace(ref, sha256=sha256), "benchmark")
        count, size_bytes = count + 1, size_bytes + len(value)
    told = "  ".join(f"{name} {sum(laps.seconds[name]):.3f}" for name in laps.seconds)
    print(f"{keys} keys, {count} chunks, {size_bytes / 1e6:.1f} MB, CPU-seconds: {told}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print(machine())
    measure_alone()
    measure_batches(options.keys, options.rounds, options.seed)
    measure_snapshot(options.keys)


if __name__ == "__main__":
    main()
