"""The broker's jars: found in a cache directory, or fetched into it once by Maven.

    python -m snapreplay.devbroker.jars [--check] [VERSION]

VERSION is a version of Kafka other than pom.xml's. --check fetches nothing. It reports what is missing to fetch and
run the jars, and needs only the standard library.

The directory holds `lib/` (the class path), `formatted/` (an empty, formatted data directory, so
that a start need not run the storage tool), `stamp.json` (what must be there), and after the first
orderly stop of a broker a class archive that halves the time of later starts; the archive is not in
the stamp. snapreplay/jars.py fills the directory completely or not at all.
"""

import argparse
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.resources import files
from pathlib import Path

from snapreplay import jars
from snapreplay.devbroker import properties
from snapreplay.devbroker.errors import LocalBrokerUnavailable, ToolsMissing
from snapreplay.devbroker.files import KafkaFiles
from snapreplay.jars import JavaUnavailable, find_java

JARS_DIR_VARIABLE = "SNAPREPLAY_JARS_DIR"
_WHAT = "the local broker"
_FORMAT_DEADLINE_S = 120.0
_VERSION = rb"(<artifactId>kafka_2\.13</artifactId>\s*<version>)([^<]+)"

Say = Callable[[str], None]


def to_stderr(line: str) -> None:
    """Report by default: one line to the standard error."""
    print(line, file=sys.stderr, flush=True)


def ensure(report: Say = to_stderr, version: str | None = None) -> KafkaFiles:
    """Return the broker's files, fetched first if any is missing (about 50 ms if none is).

    Args:
        report: called with one line before a fetch and one after it.
        version: of Kafka, such as "3.9.1"; None: the one in pom.xml.

    Raises ToolsMissing: no java, Java older than 17, no mvn to fetch with, or Maven failed.
    """
    started = time.monotonic()
    with _unavailable():
        kafka = KafkaFiles(find_java(_WHAT), cache_dir(version))
        fetched = jars.fill(kafka.root, pom(version), partial(_fetch, kafka, report, version))
    if fetched:
        took_s = time.monotonic() - started
        report(f"local broker: fetched {jars.size_of(kafka.root / 'lib')}, in {took_s:.1f} s")
    return kafka


def check(version: str | None = None) -> None:
    """Raise ToolsMissing if `ensure` could not succeed because java or mvn is missing."""
    with _unavailable():
        jars.check(_WHAT, f"{_WHAT} (Kafka {version or kafka_version()})", cache_dir(version), pom(version))


@contextmanager
def _unavailable() -> Iterator[None]:
    """Turn what is missing into an error of the local broker."""
    try:
        yield
    except JavaUnavailable as error:
        raise ToolsMissing(error.message, error.hint) from error
    except jars.JarsUnavailable as error:
        before = f"{error.hint}; or " if error.hint else ""
        hint = f"{before}set {JARS_DIR_VARIABLE} to a directory that was filled elsewhere"
        raise ToolsMissing(error.message, hint) from error


def cache_dir(version: str | None = None) -> Path:
    """Return $SNAPREPLAY_JARS_DIR, else .jars/kafka of this checkout, else the user's cache directory.

    A version other than pom.xml's has its own directory beside it, kafka-VERSION."""
    usual = jars.jars_dir("kafka", JARS_DIR_VARIABLE, kafka_version())
    if version in (None, kafka_version()):
        return usual
    return usual.with_name(f"kafka-{version}")


def kafka_version() -> str:
    """Return the broker's version, as pom.xml says it."""
    return str(re.findall(_VERSION, pom())[0][1], "utf-8")


def pom(version: str | None = None) -> bytes:
    usual = (files(__package__) / "pom.xml").read_bytes()
    return re.sub(_VERSION, rb"\g<1>%b" % version.encode(), usual) if version else usual


def _fetch(kafka: KafkaFiles, report: Say, version: str | None, fresh: Path) -> None:
    jars.find_maven(_WHAT)  # nothing is announced that cannot begin
    what = f"Kafka {version or kafka_version()} with Maven (about 39 MB, only once)"
    report(f"local broker: fetching {what} to {kafka.root}")
    jars.copy_dependencies(pom(version), fresh / "lib", _WHAT)
    _format(KafkaFiles(kafka.java, fresh), fresh / "format.properties")


def _format(kafka: KafkaFiles, settings: Path) -> None:
    """Run the storage tool once; a start then copies two small files instead, 0.4 s sooner."""
    node = properties.Node(1, 1, 2)
    values = properties.server_properties(node, [node], kafka.formatted_dir)
    settings.write_text(properties.as_file(values))
    tool = [str(kafka.java), "-XX:TieredStopAtLevel=1", "-cp", kafka.class_path]
    placeholder = "AAAAAAAAAAAAAAAAAAAAAQ"
    jars.run_tool(
        [*tool, "kafka.tools.StorageTool", "format", "-t", placeholder, "-c", str(settings)],
        "Kafka's storage tool could not format a data directory",
        hint="",
        deadline_s=_FORMAT_DEADLINE_S,
    )
    settings.unlink()


def main(arguments: list[str] | None = None) -> int:
    """Fetch the jars if they are missing, and print where they are. Returns the exit code."""
    parser = argparse.ArgumentParser(description="Fetch the jars of a Kafka broker.")
    parser.add_argument("version", nargs="?", type=_version, help=f"{kafka_version()} if not given")
    parser.add_argument("--check", action="store_true", help="only say what is missing")
    options = parser.parse_args(arguments)
    try:
        if options.check:
            check(options.version)
            return 0
        kafka = ensure(print, options.version)
    except LocalBrokerUnavailable as error:
        to_stderr(str(error))
        return 1
    print(f"local broker: Kafka {options.version or kafka_version()} is in {kafka.root}")
    return 0


def _version(given: str) -> str:
    if re.fullmatch(r"\d+\.\d+\.\d+", given) is None:
        raise argparse.ArgumentTypeError(f"{given!r} is not a version of Kafka such as 3.9.1")
    return given


if __name__ == "__main__":
    sys.exit(main())
