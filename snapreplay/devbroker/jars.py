"""The broker's jars: found in a cache directory, or fetched into it once by Maven.

    python -m snapreplay.devbroker.jars [--check] [VERSION]

VERSION is a version of Kafka other than pom.xml's. --check fetches nothing: it reports a missing Java or Maven before
`make setup` downloads 660 MB, and so needs only the standard library.

The directory holds `lib/` (the class path), `formatted/` (an empty, formatted data directory, so that a start need not
run the storage tool), a stamp (the pom.xml that it was filled for), and after the first orderly stop of a broker a
class archive that halves the time of later starts.

The directory is `.jars/kafka` of a checkout, else in the user's cache. It is filled under another name and renamed at
the end, so a kill at any moment leaves nothing that looks complete.
"""

import argparse
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.resources import files
from pathlib import Path

from snapreplay.devbroker import properties
from snapreplay.devbroker.files import KafkaFiles, LocalBrokerUnavailable, ToolsMissing
from snapreplay.java import JavaUnavailable, environment, find_java

JARS_DIR_VARIABLE = "SNAPREPLAY_JARS_DIR"
_WHAT = "the local broker"
_FORMAT_DEADLINE_S = 120.0
_FETCH_DEADLINE_S = 900.0
_STAMP = "stamp.json"
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
    kafka = KafkaFiles(_java(), cache_dir(version))
    if fill(kafka.root, pom(version), partial(_fetch, kafka, report, version)):
        report(f"local broker: fetched in {time.monotonic() - started:.1f} s")
    return kafka


def check(version: str | None = None) -> None:
    """Raise ToolsMissing if `ensure` could not succeed because java or mvn is missing."""
    _java()
    if not is_whole(cache_dir(version), pom(version)):
        find_maven(version)


def _java() -> Path:
    try:
        return find_java(_WHAT)
    except JavaUnavailable as error:
        raise ToolsMissing(error.message, error.hint) from error


def _missing(message: str, hint: str = "") -> ToolsMissing:
    other = f"set {JARS_DIR_VARIABLE} to a directory with these jars from another machine"
    return ToolsMissing(message, f"{hint}; or {other}" if hint else other)


def cache_dir(version: str | None = None) -> Path:
    """Return $SNAPREPLAY_JARS_DIR, else .jars/kafka of this checkout, else the user's cache directory.

    A version other than pom.xml's has its own directory beside it, kafka-VERSION. In the user's cache each version has:
    all installations share it, and two versions must not replace each other's jars.
    """
    named, usual = os.environ.get(JARS_DIR_VARIABLE), version in (None, kafka_version())
    project = Path(__file__).resolve().parents[2]
    if named:
        place = Path(named).absolute()
    elif (project / "pyproject.toml").is_file():
        place = project / ".jars/kafka"
    else:
        user_cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        place = Path(user_cache) / "snapreplay" / f"kafka-{kafka_version()}"
    return place if usual else place.with_name(f"kafka-{version}")


def kafka_version() -> str:
    """Return the broker's version, as pom.xml says it."""
    return str(re.findall(_VERSION, pom())[0][1], "utf-8")


def pom(version: str | None = None) -> bytes:
    usual = (files(__package__) / "pom.xml").read_bytes()
    return re.sub(_VERSION, rb"\g<1>%b" % version.encode(), usual) if version else usual


def _fetch(kafka: KafkaFiles, report: Say, version: str | None, fresh: Path) -> None:
    find_maven()  # nothing is announced that cannot begin
    what = f"Kafka {version or kafka_version()} with Maven (about 39 MB, only once)"
    report(f"local broker: fetching {what} to {kafka.root}")
    copy_dependencies(pom(version), fresh / "lib")
    _format(KafkaFiles(kafka.java, fresh), fresh / "format.properties")


def _format(kafka: KafkaFiles, settings: Path) -> None:
    """Run the storage tool once; a start then copies two small files instead, 0.4 s sooner."""
    node = properties.Node(1, 1, 2)
    values = properties.server_properties(node, [node], kafka.formatted_dir)
    settings.write_text(properties.as_file(values))
    tool = [str(kafka.java), "-XX:TieredStopAtLevel=1", "-cp", kafka.class_path]
    placeholder = "AAAAAAAAAAAAAAAAAAAAAQ"
    run_tool(
        [*tool, "kafka.tools.StorageTool", "format", "-t", placeholder, "-c", str(settings)],
        "Kafka's storage tool could not format a data directory",
        hint="",
        deadline_s=_FORMAT_DEADLINE_S,
    )
    settings.unlink()


# --------------------------------------------------------------------- a directory, filled whole or not at all


def is_whole(root: Path, pom: bytes) -> bool:
    """Say whether it was filled for this pom.xml: it gets its name when it is whole."""
    try:
        return bool(json.loads((root / _STAMP).read_text())["pom"] == _hash(pom))
    except (OSError, ValueError, KeyError, TypeError):
        return False


def fill(root: Path, pom: bytes, filler: Callable[[Path], None]) -> bool:
    """Make `root` complete by calling `filler` with a new directory that then takes its place.

    One process fills it while others wait. Returns whether this call filled it. Raises ToolsMissing: the directory
    cannot be made. What `filler` raises passes through."""
    if is_whole(root, pom):
        return False
    with _only_one(root):
        if is_whole(root, pom):
            return False
        beside = root.parent / f".{root.name}.new"
        shutil.rmtree(beside, ignore_errors=True)  # left by one that was killed
        try:
            fresh = beside / "fresh"
            fresh.mkdir(parents=True)
            filler(fresh)
            (fresh / _STAMP).write_text(json.dumps({"pom": _hash(pom)}))
            # A directory cannot be renamed over a full one; a JVM that runs from the former jars has
            # them open and continues.
            if root.exists():
                root.rename(beside / "former")
            fresh.rename(root)
        finally:
            shutil.rmtree(beside, ignore_errors=True)
    return True


def find_maven(version: str | None = None) -> str:
    """Return the mvn command that fetches the jars, or raise ToolsMissing: there is none."""
    maven = shutil.which("mvn")
    if maven is None:
        raise _missing(
            f"the jars of {_WHAT} (Kafka {version or kafka_version()}) have not been fetched yet, and there is no mvn"
            " command to fetch them",
            "`apt-get install maven`",
        )
    return maven


def copy_dependencies(pom: bytes, lib: Path) -> None:
    """Copy the runtime dependencies of pom.xml into `lib` with Maven, or raise ToolsMissing: there is no Maven, or
    it failed; one line with its first error."""
    goal = [find_maven(), "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime"]
    with tempfile.TemporaryDirectory() as folder:
        pom_file = Path(folder) / "pom.xml"
        pom_file.write_bytes(pom)
        run_tool(
            [*goal, "-f", str(pom_file), f"-DoutputDirectory={lib}"],
            f"Maven could not fetch the jars of {_WHAT}",
            hint="check the network and Maven's settings.xml, then try again",
            deadline_s=_FETCH_DEADLINE_S,
        )


def run_tool(command: list[str], what_failed: str, *, hint: str, deadline_s: float) -> None:
    """Run a command that helps to fill the directory; its output is not shown. Raises ToolsMissing: it failed or
    took too long; one line: `what_failed`, and the first error in its output."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment(),
            encoding="utf-8",
            errors="replace",
            timeout=deadline_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise _missing(f"{what_failed} in {deadline_s:.0f} s", hint) from error
    if done.returncode != 0:
        lines = [line for line in done.stdout.splitlines() if line.strip()]
        # A tool that cannot even start does not print the word.
        said = next((line for line in lines if "ERROR" in line), lines[0] if lines else "nothing")
        message = f"{what_failed} (exit code {done.returncode}): {said[:300]}"
        raise _missing(message, hint)


@contextmanager
def _only_one(root: Path) -> Iterator[None]:
    """Lock the directory; the lock ends with the process that holds it."""
    try:
        root.parent.mkdir(parents=True, exist_ok=True)
        lock = (root.parent / f".{root.name}.lock").open("w")
    except OSError as error:
        raise _missing(
            f"the jars cannot be kept in {root}: {error.strerror}", "make that directory writable"
        ) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _hash(pom: bytes) -> str:
    return hashlib.sha256(pom).hexdigest()


def main(arguments: list[str] | None = None) -> int:
    """Fetch the jars if they are missing, and print where they are. Returns the exit code."""
    parser = argparse.ArgumentParser(description="Fetch the jars of a Kafka broker.")
    parser.add_argument("version", nargs="?", type=_version, help=f"{kafka_version()} if not given")
    parser.add_argument("--check", action="store_true", help="fetch nothing, and report what is missing for it")
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
