"""Runs histories: `python -m tests.simulation --seeds 10000`, or one of them again: `--seed 4711 --trace`."""

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from functools import partial
from typing import Unpack

from tests.simulation.run import Kind, Tally, replay_command, run_block, run_seed

BLOCK = 50


def main() -> int:
    """1 when a promise was broken, or enough seeds never met something. The last lines say which, and where to look."""
    options = _options()
    kind = Kind(
        losses=options.losses,
        decisions=options.decisions,
        standbys=options.standbys,
        rekeys=options.rekeys,
        calls=options.calls,
        tables=options.tables,
        broadcast=options.broadcast,
    )
    if options.seed is not None:
        return _one(options.seed, trace=options.trace, **kind)
    total, began = Tally(), time.monotonic()
    end = options.start + options.seeds
    blocks = [range(at, min(at + BLOCK, end)) for at in range(options.start, end, BLOCK)]
    for tally in _results(blocks, options.processes, kind):
        total.add(tally)
        for seed, problem in tally.problems.items():
            sys.stdout.write(f"\nseed {seed}: {problem}\n  {replay_command(seed, **kind)}\n")
        sys.stdout.write(f"\r{total.seeds} of {options.seeds}, {len(total.problems)} broken")
        sys.stdout.flush()
    seconds = time.monotonic() - began
    sys.stdout.write(f"\r{total.table()}\n{seconds:.0f} s, never met: {total.missed or 'nothing'}\n")
    failures = total.failures(**kind)
    sys.stdout.writelines(f"{each}\n" for each in failures)
    return 1 if failures else 0


def _results(blocks: list[range], processes: int | None, kind: Kind) -> Iterator[Tally]:
    with multiprocessing.Pool(processes, maxtasksperchild=40) as pool:
        yield from pool.imap_unordered(partial(run_block, **kind), blocks)


def _one(seed: int, *, trace: bool, **kind: Unpack[Kind]) -> int:
    outcome = run_seed(seed, trace=True, **kind)
    if trace:
        sys.stdout.write("\n".join(outcome.lines) + "\n")
    verdict = outcome.problem or "every promise was kept"
    sys.stdout.write(f"seed {seed}: {verdict}\ntrace {outcome.trace_digest}\n")
    return 1 if outcome.problem else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10_000, help="how many (10,000)")
    parser.add_argument("--start", type=int, default=0, help="the first one (0)")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--trace", action="store_true", help="with --seed: one line per event")
    parser.add_argument("--losses", action="store_true", help="brokers lose the end of a log")
    parser.add_argument("--decisions", action="store_true", help="states are upgraded and corrected")
    parser.add_argument("--standbys", action="store_true", help="processes hold copies, and suspect each other")
    parser.add_argument("--rekeys", action="store_true", help="the app has an internal topic")
    parser.add_argument("--calls", action="store_true", help="the app calls the outside")
    parser.add_argument("--tables", action="store_true", help="the app has a table, which is compacted")
    parser.add_argument("--broadcast", action="store_true", help="each partition of the app reads the whole table")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="side by side")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
