"""`python -m tests.explore`: every interleaving of two owners within bounds, until a problem or the end."""

import argparse
import sys
import time

from tests.explore.explore import explore
from tests.explore.world import beginning

BOUNDS = {"batches": 3, "snapshots_left": 1, "faults": 1, "crashes": 1, "fences": 4, "losses": 0}


def main() -> int:
    """0: no problem was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--states", type=int, default=1_000_000, help="stop after so many")
    for name, bound in BOUNDS.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=bound)
    given = vars(parser.parse_args())
    states_max, began = given.pop("states"), time.monotonic()
    explored = explore(beginning(**given), states_max)
    print(f"{explored.states:,} states in {time.monotonic() - began:.0f} s, {given}")
    if explored.problem:
        print("\n".join((*explored.story, f"PROBLEM: {explored.problem}")))
        return 1
    print("all there are" if explored.is_whole else "there are more")
    return 0


if __name__ == "__main__":
    sys.exit(main())
