"""The cost of the fold per record, without Kafka: the program of `benchmarks.pipeline`, batches of 5,000 records.

Run: `python -m benchmarks.fold [--batches 200] [--keys 100000] [--against DIRECTORY]`. Times are CPU time of a thread.
`--against` compares with the checkout of another version: a process of each, which take turns with every batch, so that
a slow moment of the machine meets both.
"""

from __future__ import annotations

import argparse
import gc
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median, quantiles
from typing import Any

BATCH = 5000
STAMP_MS = 1_700_000_000_000


def seconds_of_batches(keys: int) -> Iterator[float]:
    """Apply one batch for each next one. Every key is in the state already."""
    # Imported here, because with `--against` this file runs on the other version.
    from benchmarks.ledger_app import app
    from snapreplay.app.fold import Fold
    from snapreplay.app.record import RawRecord
    from snapreplay.state.stores import store_of

    def record(offset: int) -> Any:
        number = offset if offset < keys else random_.randrange(keys)
        key, value = b"acct-%08d" % number, b'{"amount":%d,"ts":%d}' % (offset % 100, offset)
        return RawRecord("bench-in", 0, offset, STAMP_MS + offset, key, value)

    random_, store, start = random.Random(1), store_of(app.state()), 0
    fold = Fold(app, store, 0)
    gc.freeze()
    gc.set_threshold(5_000, 8, 2)  # as the service does
    while True:
        batch = [record(offset) for offset in range(start, start + BATCH)]
        began = time.thread_time()
        fold.begin({"bench-in": start})
        fold.feed(batch)
        fold.finish()
        store.merge()
        ended, start = time.thread_time(), start + BATCH
        if start > keys:
            yield ended - began


def answer(keys: int) -> None:
    """Apply a batch for each line that comes in."""
    batches = seconds_of_batches(keys)
    for _ in sys.stdin:
        print(next(batches), flush=True)


def in_turn(trees: list[str], keys: int, batches: int) -> list[list[float]]:
    """Return the seconds of each batch, of each version."""
    children = [
        subprocess.Popen(
            [sys.executable, __file__, "--keys", str(keys), "--answer"],
            cwd=tree,
            env={**os.environ, "PYTHONPATH": tree},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for tree in trees
    ]
    found: list[list[float]] = [[] for _ in trees]
    for _ in range(batches):
        for child, seconds in zip(children, found, strict=True):
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.write("\n")
            child.stdin.flush()
            seconds.append(float(child.stdout.readline()))
    for child in children:
        child.communicate(timeout=60)
    return found


def show(name: str, seconds: list[float]) -> None:
    low, middle, high = (each / BATCH * 1e6 for each in quantiles(seconds, n=4))
    print(f"{name:18} µs per record: median {middle:.2f}, half of the batches {low:.2f} to {high:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--against", type=Path, help="directory of another checkout")
    parser.add_argument("--answer", action="store_true", help="a batch for each line of input")
    options = parser.parse_args()
    if options.answer:
        answer(options.keys)
        return
    here = str(Path(__file__).parent.parent)
    trees = [here] if options.against is None else [here, str(options.against.resolve())]
    found = in_turn(trees, options.keys, options.batches)
    show("this version", found[0])
    if len(found) > 1:
        show("the other version", found[1])
        ratios = [one / other for one, other in zip(*found, strict=True)]
        print(
            f"this one takes {median(found[0]) / median(found[1]) - 1:+.1%} (medians),"
            f" {median(ratios) - 1:+.1%} (median of the pairs)"
        )


if __name__ == "__main__":
    main()
