"""Spark's Kafka connector: four jars, found in a directory or fetched into it once by Maven.

python -m snapreplay.snapshots.jobs.jars [--check]

--check fetches nothing. It reports what is missing to fetch and use them, and needs only the standard library.
"""

from __future__ import annotations

import sys
import time
from importlib.resources import as_file, files
from pathlib import Path

from snapreplay.counted import counted
from snapreplay.errors import SnapreplayError
from snapreplay.jars import cache
from snapreplay.jars.java import find_java

JARS_DIR_VARIABLE = "SNAPREPLAY_SPARK_JARS_DIR"
_WHAT = "Spark's Kafka connector"


def ensure() -> list[Path]:
    """Returns the jars, sorted, and fetches them first if any is missing (reported on standard error).

    Raises:
        JarsUnavailable: they are missing and cannot be fetched.
    """
    root = cache.jars_dir("spark", JARS_DIR_VARIABLE)
    started = time.monotonic()
    if cache.fill(root, _pom(), _copy):
        took_s = time.monotonic() - started
        print(f"spark: fetched {_size(root)} in {took_s:.1f} s", file=sys.stderr)
    return _jars_in(root)


def check() -> None:
    """
    Raises:
        JavaUnavailable, JarsUnavailable: `ensure` or a session would fail, because java or mvn is missing.
    """
    find_java("Spark")
    if not cache.is_whole(cache.jars_dir("spark", JARS_DIR_VARIABLE), _pom()):
        cache.find_maven(_WHAT)


def _pom() -> bytes:
    return (files(__package__) / "pom.xml").read_bytes()


def _copy(fresh: Path) -> None:
    maven = cache.find_maven(_WHAT)
    print(f"spark: fetching {_WHAT} with Maven (about 10 MB, only once)", file=sys.stderr)
    with as_file(files(__package__) / "pom.xml") as pom:
        cache.copy_dependencies(maven, pom, fresh, _WHAT)


def _jars_in(root: Path) -> list[Path]:
    return sorted(root.glob("*.jar"))


def _size(root: Path) -> str:
    found = _jars_in(root)
    return f"{counted(len(found), 'jar')}, {sum(jar.stat().st_size for jar in found) / 1e6:.1f} MB"


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
    print(f"spark: {_size(found[0].parent)} in {found[0].parent}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
