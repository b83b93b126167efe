"""Spark's Kafka connector: four jars, found in a directory or fetched there once by Maven.

python -m snapreplay.snapshots.jobs.jars [--check]

--check fetches nothing: it says what is missing to fetch and use them, by the standard library alone.
"""

from __future__ import annotations

import sys
import time
from importlib.resources import files
from pathlib import Path

from snapreplay.errors import SnapreplayError
from snapreplay.jars import cache

JARS_DIR_VARIABLE = "SNAPREPLAY_SPARK_JARS_DIR"
_WHAT = "Spark's Kafka connector"


def ensure() -> list[Path]:
    """The jars, sorted; fetched first if they are not here whole (said on the standard error).

    Raises:
        JarsUnavailable: not here and not to be had.
    """
    root = cache.jars_dir("spark", JARS_DIR_VARIABLE)
    started = time.monotonic()
    if cache.fill(root, _pom(), _copy):
        took_s = time.monotonic() - started
        print(f"spark: {cache.size_of(root)} in {took_s:.1f} s", file=sys.stderr)
    return sorted(root.glob("*.jar"))


def check() -> None:
    """
    Raises:
        JavaUnavailable, JarsUnavailable: `ensure` and a session could not succeed for want of java or mvn.
    """
    cache.check("Spark", cache.jars_dir("spark", JARS_DIR_VARIABLE), _pom())


def _pom() -> bytes:
    return (files(__package__) / "pom.xml").read_bytes()


def _copy(fresh: Path) -> None:
    cache.find_maven(_WHAT)  # nothing is announced that cannot begin
    print(f"spark: fetching {_WHAT} by Maven (about 10 MB, once)", file=sys.stderr)
    cache.copy_dependencies(_pom(), fresh, _WHAT)


def main() -> int:
    """Fetch the jars if they are not here, and say where they are. Returns the exit code."""
    try:
        if sys.argv[1:] == ["--check"]:
            check()
            return 0
        found = ensure()
    except SnapreplayError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"spark: {cache.size_of(found[0].parent)} in {found[0].parent}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
