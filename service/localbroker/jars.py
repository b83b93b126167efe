"""The broker's jars: found in a cache directory, or fetched there once by Maven.

    python -m snapreplay.service.localbroker.jars

The directory holds `lib/` (the class path), `formatted/` (an empty, formatted data directory, so
that a start need not run the storage tool), `stamp.json` (what must be there), and after the first
orderly stop of a broker a class archive that halves the time of later starts; the archive is not in
the stamp. How it is filled, whole or not at all: snapshots/jars.py.
"""

import re
import sys
import time
from collections.abc import Callable
from functools import partial
from importlib.resources import as_file, files
from pathlib import Path

from snapreplay.service.localbroker import properties
from snapreplay.service.localbroker.errors import LocalBrokerUnavailable
from snapreplay.service.localbroker.files import KafkaFiles
from snapreplay.service.localbroker.tools import INSTEAD, find_java
from snapreplay.snapshots import jars

JARS_DIR_VARIABLE = "SNAPREPLAY_JARS_DIR"
_WHAT = "the local broker"
_FORMAT_DEADLINE_S = 120.0

Report = Callable[[str], None]


def to_stderr(line: str) -> None:
    """The default report: one line to the standard error."""
    print(line, file=sys.stderr, flush=True)


def ensure(report: Report = to_stderr) -> KafkaFiles:
    """The broker's files, fetched first if they are not here whole (about 50 ms if they are).

    Raises LocalBrokerUnavailable: no java, Java older than 17, no mvn to fetch with, or Maven
    failed.
    """
    kafka = KafkaFiles(find_java(), cache_dir())
    started = time.monotonic()
    try:
        fetched = jars.fill(kafka.root, pom(), partial(_fetch, kafka, report))
    except jars.JarsUnavailable as error:
        elsewhere = f"{JARS_DIR_VARIABLE}=DIR that was filled elsewhere"
        hint = f"{error.hint}; or {elsewhere}; or {INSTEAD}"
        raise LocalBrokerUnavailable(error.message, hint) from error
    if fetched:
        sizes = [jar.stat().st_size for jar in (kafka.root / "lib").glob("*.jar")]
        took_s = time.monotonic() - started
        report(f"local broker: {len(sizes)} jars, {sum(sizes) / 1e6:.1f} MB, in {took_s:.1f} s")
    return kafka


def cache_dir() -> Path:
    """$SNAPREPLAY_JARS_DIR, else .jars/kafka of this checkout, else the user's cache directory."""
    return jars.jars_dir("kafka", JARS_DIR_VARIABLE, kafka_version())


def kafka_version() -> str:
    """The broker's version, as pom.xml says it."""
    pattern = rb"<artifactId>kafka_2\.13</artifactId>\s*<version>([^<]+)</version>"
    match = re.search(pattern, pom())
    if match is None:
        raise LookupError("pom.xml names no kafka_2.13")
    return match.group(1).decode()


def pom() -> bytes:
    """What the jars are fetched by."""
    return (files(__package__) / "pom.xml").read_bytes()


def _fetch(kafka: KafkaFiles, report: Report, fresh: Path) -> None:
    maven = jars.find_maven(_WHAT)
    what = f"Kafka {kafka_version()} by Maven (about 39 MB, once)"
    report(f"local broker: fetching {what} to {kafka.root}")
    with as_file(files(__package__) / "pom.xml") as pom_file:
        jars.copy_dependencies(maven, pom_file, fresh / "lib", _WHAT)
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
        hint="try again",
        deadline_s=_FORMAT_DEADLINE_S,
    )
    settings.unlink()


def main() -> int:
    """Fetch the jars if they are not here, and say so. Returns the process's exit code."""
    try:
        kafka = ensure(report=print)
    except LocalBrokerUnavailable as error:
        to_stderr(str(error))
        return 1
    print(f"local broker: Kafka {kafka_version()} is in {kafka.root}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
