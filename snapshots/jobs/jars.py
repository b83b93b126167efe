"""Spark's Kafka connector: four jars, found in a directory or fetched into it once by Maven.

python -m snapreplay.snapshots.jobs.jars [--check]

--check fetches nothing. It reports what is missing to fetch and use them, and needs only the standard library.
"""

from __future__ import annotations

import sys
import time
from importlib.resources import files
from pathlib import Path

from snapreplay import jars
from snapreplay.errors import SnapreplayError

JARS_DIR_VARIABLE = "SNAPREPLAY_SPARK_JARS_DIR"
_WHAT = "Spark's Kafka connector"


def ensure() -> list[Path]:
    """Return the jars, sorted, fetched first if any is missing (reported on standard error).

    Raises:
        JarsUnavailable: they are missing and cannot be fetched.
    """
    root = jars.jars_dir("spark", JARS_DIR_VARIABLE)
    started = time.monotonic()
    if jars.fill(root, _pom(), _copy):
        took_s = time.monotonic() - started
        print(f"spark: fetched {jars.size_of(root)} in {took_s:.1f} s", file=sys.stderr)
    return sorted(root.glob("*.jar"))


def check() -> None:
    """Raise JavaUnavailable or JarsUnavailable if `ensure` or a session would fail, because java or mvn is missing."""
    jars.check("Spark", _WHAT, jars.jars_dir("spark", JARS_DIR_VARIABLE), _pom())


def _pom() -> bytes:
    return (files(__package__) / "pom.xml").read_bytes()


def _copy(fresh: Path) -> None:
    jars.find_maven(_WHAT)  # nothing is announced that cannot begin
    print(f"spark: fetching {_WHAT} with Maven (about 10 MB, only once)", file=sys.stderr)
    jars.copy_dependencies(_pom(), fresh, _WHAT)


def main() -> int:
    """Fetch the jars if they are missing, and print where they are. Returns the exit code."""
    try:
        if sys.argv[1:] == ["--check"]:
            check()
            return 0
        found = ensure()
    except SnapreplayError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"spark: {jars.size_of(found[0].parent)} in {found[0].parent}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
