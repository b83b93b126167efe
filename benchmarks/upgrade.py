"""Measures the CPU time of each step of an owner's upgrade, in process and without a broker.

`python -m benchmarks.upgrade`. The entries are those of `benchmarks.restore`. The floor is a plain loop that decodes,
calls and encodes.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable
from typing import Any, TypeVar
from zlib import crc32

import msgspec

from benchmarks import harness, ledger_app_2
from benchmarks.ledger_app import Account
from benchmarks.ledger_app import app as before
from snapreplay.app.upgrade import of_maps, upgrading
from snapreplay.snapshots.format.chunks import ChunkWriter, open_chunk, reading_back, unpacking
from snapreplay.snapshots.format.envelope import RecordKind, enveloped
from snapreplay.snapshots.format.records import ChunkRef
from snapreplay.state.contract import Store
from snapreplay.state.digest import DEFAULT_STORE, digest_of
from snapreplay.state.steps import all_of

T = TypeVar("T")
ID = "0" * 32
Chunks = list[tuple[bytes, ChunkRef]]


class Clock:
    """CPU seconds of this process, by what was done."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def timed(self, name: str, work: Callable[..., T], *arguments: Any, **named: Any) -> T:
        began = time.process_time()
        done = work(*arguments, **named)
        self.seconds[name] = self.seconds.get(name, 0.0) + time.process_time() - began
        return done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=1_000_000)
    keys = parser.parse_args().keys
    print(f"{keys:,} entries; {harness.machine()}")
    clock, app = Clock(), ledger_app_2.app
    written = _written(_filled(keys), Clock())
    store = app.new_store()
    clock.timed("load the snapshot", _load, store, written)
    items = [item for _, entries in of_maps(store).stored() for item in entries.items()]
    clock.timed("upgrade the entries, new digest", all_of, upgrading(app.upgrades.values(), 1, store))
    parts = [entries for _, entries in of_maps(store).stored()]
    clock.timed("  of it the digest", lambda: [digest_of(entries.items()) for entries in parts])
    _written(store, clock)
    gc.disable()
    clock.timed("floor: decode, call, encode in a plain loop", _floor, items)
    for name, seconds in clock.seconds.items():
        print(f"{name:46s} {seconds:.2f} s")


def _filled(keys: int) -> Store:
    store = of_maps(before.new_store())
    (found,) = (each for name, each in store.maps.items() if name == DEFAULT_STORE)
    entries: dict[Any, Any] = {f"k{n}": Account(n % 7, n * 3, 1_700_000_000_000 + n) for n in range(keys)}
    store.apply_changes({DEFAULT_STORE: all_of(found.encoding(entries))})
    return store


def _written(store: Store, clock: Clock) -> Chunks:
    """Take the steps of `snapshot_writer`, without the sending."""
    writer, cursor, found = ChunkWriter(ID), store.mark(), Chunks()
    while slices := clock.timed("pack the snapshot", all_of, cursor.slicing(writer.raw_bytes)):
        body = clock.timed("pack the snapshot", all_of, writer.packing(slices, cursor.store))
        value = clock.timed("compress it", enveloped, RecordKind.CHUNK, body, compress=True)
        assert not writer.halves_unless_fitting(slices, value)
        ref = ChunkRef(len(found), len(found), len(value), crc32(value))
        again = clock.timed("decompress it", open_chunk, value, ref, ID)
        clock.timed("read it back, each entry hashed", all_of, reading_back(again, ref, ID))
        found.append((value, ref))
    cursor.release()
    return found


def _load(store: Store, chunks: Chunks) -> None:
    store.clear(1024)
    for value, ref in chunks:
        for found in unpacking(open_chunk(value, ref, ID), ref, ID, verify_sums=False):
            if found is not None:
                store.load([found[1]], found[0])
    store.loaded()


def _floor(items: list[tuple[bytes, bytes]]) -> list[bytes]:
    key_of, value_of = msgspec.msgpack.Decoder(str).decode, msgspec.msgpack.Decoder(Account).decode
    function: Any
    function, encode = ledger_app_2.with_mean, msgspec.msgpack.Encoder().encode
    return [encode(function(key_of(key), value_of(value))[1]) for key, value in items]


if __name__ == "__main__":
    main()
