"""The cost of the state, without Kafka: updates, a snapshot during updates, a restore, and the outputs' fingerprint.

Run: `python -m benchmarks.state [--keys 1000000] [--rounds 40] [--seed 1] [--ranges]`. Keys are drawn uniformly,
which is the worst case for the caches, unless a line says Zipf; each figure is the median over rounds, the best
one behind it. Times are CPU time of this thread, which on a machine at rest is the time on the clock.
"""

from __future__ import annotations

import argparse
import gc
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import accumulate, islice, product
from statistics import median
from typing import Any, get_args
from zlib import crc32

import msgspec

from benchmarks.harness import machine
from snapreplay.app.record import Output, hashing
from snapreplay.snapshots.format.chunks import ChunkWriter
from snapreplay.snapshots.format.records import ChunkRef
from snapreplay.state.composite import Store
from snapreplay.state.map import MapState
from snapreplay.state.steps import all_of
from snapreplay.state.stores import Stores, store_of
from tests.support.entries import read_chunk

BATCH = 5000
STAMP_MS = 1_700_000_000_000


class Account(msgspec.Struct):
    """Three numbers per key, as in the prototype."""

    count: int = 0
    total: int = 0
    last_ms: int = 0


def change_struct(state: Any, updates: list[tuple[str, int]]) -> None:
    for key, amount in updates:
        account = state[key]
        account.count += 1
        account.total += amount
        account.last_ms = STAMP_MS + amount


def change_dict(state: Any, updates: list[tuple[str, int]]) -> None:
    for key, amount in updates:
        account = state[key]
        account["count"] += 1
        account["total"] += amount
        account["last_ms"] = STAMP_MS + amount


def change_int(state: Any, updates: list[tuple[str, int]]) -> None:
    for key, amount in updates:
        state[key] += amount


def change_stores(state: Any, updates: list[tuple[str, int]]) -> None:
    change_struct(getattr(state, "accounts", state), updates)


Change = Callable[[Any, list[tuple[str, int]]], None]
SUBJECTS: dict[str, tuple[Callable[[], Any], Change]] = {
    "Struct": (lambda: MapState(str, Account, default=Account), change_struct),
    "ordered": (lambda: MapState(str, Account, default=Account, ordered=True), change_struct),
    "dict": (lambda: MapState(str, dict, default=lambda: {"count": 0, "total": 0, "last_ms": 0}), change_dict),
    "int": (lambda: MapState(str, int, default=int), change_int),
    "Stores": (
        lambda: Stores(accounts=MapState(str, Account, default=Account), others=MapState(str, Account)),
        change_stores,
    ),
}


class Laps:
    """Durations by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = {}

    @contextmanager
    def lap(self, name: str) -> Iterator[None]:
        began = time.thread_time()
        yield
        self.seconds.setdefault(name, []).append(time.thread_time() - began)

    def microseconds(self, per: int) -> str:
        """Show median and best of each name, divided by `per`."""
        return "  ".join(
            f"{name} {median(laps) / per * 1e6:.2f} ({min(laps) / per * 1e6:.2f})"
            for name, laps in self.seconds.items()
        )

    def longest_ms(self) -> str:
        """Return the longest one of each name, and how many there were."""
        return "  ".join(f"{name} {max(laps) * 1e3:.1f} (of {len(laps)})" for name, laps in self.seconds.items())


def drawn(random_: random.Random, keys: int) -> list[tuple[str, int]]:
    return [(f"acct-{random_.randrange(keys):08d}", random_.randrange(100)) for _ in range(BATCH)]


class Skewed:
    """A choice of keys as by `drawn`, but by Zipf's law with exponent 0.99, as in YCSB: a few keys often, most of
    them seldom."""

    def __init__(self, random_: random.Random, keys: int) -> None:
        self._by_rank = list(range(keys))
        random_.shuffle(self._by_rank)
        self._weights = list(accumulate(1 / rank**0.99 for rank in range(1, keys + 1)))

    def __call__(self, random_: random.Random, _: int) -> list[tuple[str, int]]:
        chosen = random_.choices(self._by_rank, cum_weights=self._weights, k=BATCH)
        return [(f"acct-{key:08d}", random_.randrange(100)) for key in chosen]


def one_batch(store: Store, view: Any, change: Change, updates: list[tuple[str, int]], laps: Laps) -> None:
    store.begin()
    with laps.lap("apply"):
        change(view, updates)
    with laps.lap("stage"):
        all_of(store.staging())
    with laps.lap("seal"):
        all_of(store.sealing())
    with laps.lap("merge"):
        store.merge()


def filled(subject: str, keys: int) -> tuple[Store, Any, Change]:
    make, change = SUBJECTS[subject]
    view = make()
    store = store_of(view)
    for start in range(0, keys, BATCH):
        updates = [(f"acct-{i:08d}", i % 100) for i in range(start, min(start + BATCH, keys))]
        one_batch(store, view, change, updates, Laps())
    return store, view, change


def measure_updates(subject: str, keys: int, rounds: int, seed: int, *, skewed: bool = False) -> None:
    store, view, change = filled(subject, keys)
    random_, laps, whole = random.Random(seed), Laps(), Laps()
    draw = Skewed(random_, keys) if skewed else drawn
    for _ in range(rounds):
        updates = draw(random_, keys)
        with whole.lap("update"):
            one_batch(store, view, change, updates, laps)
    # Made last, because a million live objects slow down every garbage collection.
    plain: dict[str, Any] = dict(getattr(view, "accounts", view))
    store.begin()
    for _ in range(rounds):
        updates = draw(random_, keys)
        with whole.lap("plain dict"):
            change(plain, updates)
    law = "Zipf" if skewed else ""
    print(f"{subject:>7} {keys:>9} keys {law:4} µs: {whole.microseconds(BATCH)}")
    print(f"{'':>23}  of which {laps.microseconds(BATCH)}")


def measure_snapshot(keys: int, seed: int) -> list[bytes]:
    """Write a snapshot with one batch after every chunk; return the chunks."""
    store, view, change = filled("Struct", keys)
    random_, laps, chunks = random.Random(seed), Laps(), []
    writer = ChunkWriter("benchmark")
    with laps.lap("mark"):
        cursor = store.mark()
    while True:
        with laps.lap("slices"):
            slices = all_of(cursor.slicing(writer.raw_bytes))
        if not slices:
            break
        steps = writer.chunks(slices)
        with laps.lap("encode"):
            compress = next(filter(None, steps))
        with laps.lap("zstd"):
            value = compress()
        try:
            steps.send(value)
        except StopIteration as end:  # as uniform as the state is, it fits
            chunks += end.value
        del slices
        one_batch(store, view, change, drawn(random_, keys), laps)
    with laps.lap("release"):
        cursor.release()
    for _ in range(10):
        one_batch(store, view, change, drawn(random_, keys), laps)
    reading, encoding, zstd = (sum(laps.seconds[name]) for name in ("slices", "encode", "zstd"))
    size_mb = sum(map(len, chunks)) / 1e6
    print(
        f"{keys:>9} keys  cursor with digest {reading:.3f} s, encode {encoding:.3f} s, zstd {zstd:.3f} s, "
        f"{len(chunks)} chunks, {size_mb:.1f} MB"
    )
    print(f"{'':>14}  longest, ms: {laps.longest_ms()}")
    return chunks


def measure_restore(keys: int, chunks: list[bytes], rounds: int) -> None:
    refs = [ChunkRef(i, i, len(value), crc32(value)) for i, value in enumerate(chunks)]
    whole, steps = Laps(), Laps()
    for _ in range(rounds):
        store = store_of(MapState(str, Account, default=Account))
        gc.collect()
        gc.disable()
        with whole.lap("all"):
            for value, ref in zip(chunks, refs, strict=True):
                with steps.lap("chunk"):
                    store.load(read_chunk(value, ref, "benchmark").slices)
        gc.enable()
        assert store.digest is not None
        assert store.digest.count == keys
    seconds = whole.seconds["all"]
    print(
        f"{keys:>9} keys  checked, decompressed, decoded, loaded in {median(seconds):.3f} s "
        f"(best {min(seconds):.3f}); longest chunk {max(steps.seconds['chunk']) * 1e3:.1f} ms"
    )


KEYS: tuple[tuple[Any, Callable[[int], Any]], ...] = (
    (str, lambda n: f"acct-{n:08d}"),
    (tuple[str, int], lambda n: (f"shop-{n // 100:06d}", n)),
    (tuple[str, str], lambda n: (f"shop-{n // 100:06d}", f"item-{n % 100:02d}")),
)
VALUES: tuple[tuple[type, Callable[[int], Any]], ...] = (
    (int, lambda n: STAMP_MS + n),
    (Account, lambda n: Account(n, n * 7, STAMP_MS + n)),
)


def restored(key_type: Any, value_type: Any, entries: list[tuple[Any, Any]]) -> MapState[Any, Any]:
    """Return an ordered map as it is after a restore, before its keys are sorted."""
    view: MapState[Any, Any] = MapState(key_type, value_type, ordered=True)
    store = view.__snapreplay_store__()
    for start in range(0, len(entries), BATCH):
        store.begin()
        view.update(entries[start : start + BATCH])
        all_of(store.staging())
        all_of(store.sealing())
        store.merge()
    copied: MapState[Any, Any] = MapState(key_type, value_type, ordered=True)
    cursor = store.shards.mark()
    while slices := all_of(cursor.slicing(1 << 22)):
        copied.__snapreplay_store__().load(slices)
    return copied


def measure_ranges(keys: int, rounds: int, seed: int) -> None:
    """Measure 100 entries of an ordered map from a random key on, and sorting its keys after a restore, in steps."""
    for (key_type, made_key), (value_type, made_value) in product(KEYS, VALUES):
        numbers = random.Random(seed).sample(range(keys), keys)
        keys_of = list(map(made_key, numbers))
        values_of = map(made_value, numbers)
        view = restored(key_type, value_type, list(zip(keys_of, values_of, strict=True)))
        store = view.__snapreplay_store__()
        gc.freeze()
        gc.set_threshold(5_000, 8, 2)  # as the service does
        laps, steps, random_ = Laps(), store.indexing(), random.Random(seed)
        while True:
            with laps.lap("sorting"):
                if next(steps, laps) is laps:
                    break
        sorting = laps.seconds.pop("sorting")
        for _ in range(rounds):
            start = random_.choice(keys_of)
            for name in ("range", "again"):
                store.begin()
                with laps.lap(name):
                    _read_100(view, start)
            start = random_.choice(keys_of)
            with laps.lap("view"):
                _read_100(store.committed_view(), start)
        gc.unfreeze()
        print(
            f"{keys:>9} keys of {_name(key_type)}, values {_name(value_type)}, 100 entries,"
            f" µs: {laps.microseconds(1)}; sorting {sum(sorting):.2f} s,"
            f" longest step {max(sorting) * 1e3:.1f} ms"
        )


def _read_100(entries: Any, start: Any) -> None:
    read = sum(1 for _ in islice(entries.range(start=start), 100))
    assert read > 0


def _name(type_: Any) -> str:
    return repr(type_) if get_args(type_) else type_.__name__


def measure_fingerprint(rounds: int) -> None:
    """Measure the fingerprint of the outputs of one batch, each of some 100 bytes."""
    outputs = [
        Output("balances", b"k%06d" % n, b"%0100d" % n, partition=None, same_key=True, timestamp_ms=None)
        for n in range(BATCH)
    ]
    laps = Laps()
    for _ in range(rounds):
        with laps.lap("fingerprint"):
            all_of(hashing(outputs))
    print(f"  µs per output: {laps.microseconds(BATCH)}")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--keys", type=int, default=1_000_000)
    arguments.add_argument("--rounds", type=int, default=40)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--ranges", action="store_true", help="only the ranges")
    given = arguments.parse_args()
    print(f"{machine()}; batches of {BATCH}, seed {given.seed}")
    if given.ranges:
        measure_ranges(given.keys, given.rounds * 5, given.seed)
        return
    print("\nupdates through the whole store (target: 2 µs)")
    for subject in SUBJECTS:
        measure_updates(subject, given.keys, given.rounds, given.seed)
    measure_updates("Struct", given.keys // 10, given.rounds, given.seed)
    for keys in (given.keys, given.keys // 10):
        measure_updates("Struct", keys, given.rounds, given.seed, skewed=True)
    print("\nsnapshot while batches continue (pieces as a whole; a service takes steps: benchmarks.stall)")
    small = measure_snapshot(given.keys // 10, given.seed)
    large = measure_snapshot(given.keys, given.seed)
    print("\nrestore, garbage collector off (target: 0.25 s for 1 M keys)")
    measure_restore(given.keys // 10, small, 5)
    measure_restore(given.keys, large, 5)
    print("\nranges of an ordered map (target: 100 µs for 100 entries)")
    measure_ranges(given.keys, given.rounds * 5, given.seed)
    print("\nfingerprint of a batch's outputs (target: 2 % of the CPU time of a record)")
    measure_fingerprint(given.rounds * 5)


if __name__ == "__main__":
    main()
