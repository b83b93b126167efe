"""`python -m tests.mutants [NAME …]`: apply each mutant to a scratch copy, run the tests that should notice.

Exit code 0 when every one was caught; 1 otherwise. `--clean` runs all their tests on an unchanged copy
instead: they must pass there, or being caught would mean nothing.
"""

import argparse
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

from tests.mutants.mutant import GALLERY, Mutant
from tests.mutants.trial import Fate, Trial, held

CLEAN_SECONDS = 1800.0  # all their tests one after the other
AT_ONCE = 2  # trials wait for brokers more than they compute


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="make mutants", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these")
    parser.add_argument("--clean", action="store_true", help="the same tests, nothing broken")
    chosen = parser.parse_args(arguments)
    unknown = set(chosen.names) - {mutant.name for mutant in GALLERY}
    if unknown:
        parser.error(f"no mutant is called {', '.join(sorted(unknown))}")
    mutants = [one for one in GALLERY if not chosen.names or one.name in chosen.names]
    if chosen.clean:
        return _clean(mutants)
    trials = list(_shown(mutants))
    caught = sum(trial.fate is Fate.CAUGHT for trial in trials)
    print(f"\n{caught} of {len(trials)} caught")
    return 0 if caught == len(trials) else 1


def _shown(mutants: Sequence[Mutant]) -> Iterable[Trial]:
    """Each as soon as it and those before it are done, as a row of a Markdown table."""
    print("| mutant | the rule it breaks | fate | by | seconds |\n| --- | --- | --- | --- | ---: |")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        trials = pool.map(lambda mutant: held(mutant, mutant.tests), mutants)
        for mutant, trial in zip(mutants, trials, strict=True):
            by = trial.by.rpartition("/")[2]
            row = (mutant.name, mutant.rule, trial.fate, f"`{by}`", f"{trial.seconds:.0f}")
            print(f"| {' | '.join(row)} |", flush=True)
            yield trial


def _clean(mutants: Sequence[Mutant]) -> int:
    tests = sorted({test for mutant in mutants for test in mutant.tests})
    trial = held(None, tests, CLEAN_SECONDS)
    passed = trial.fate is Fate.SURVIVED
    print(f"nothing broken: {'all pass' if passed else trial.by} ({trial.seconds:.0f} s)")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
