"""The broker's jars: found in a cache directory, or fetched there once by Maven.

    python -m snapreplay.service.localbroker.jars

The directory holds `lib/` (the class path), `formatted/` (an empty, formatted data directory, so
that a start need not run the storage tool), `stamp.json` (what must be there), and after the first
orderly stop of a broker a class archive that halves the time of later starts. A fetch fills a
directory beside it and renames that at the end: killed at any moment, it leaves nothing that looks
whole.
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path

from snapreplay.service.localbroker import properties
from snapreplay.service.localbroker.errors import LocalBrokerUnavailable
from snapreplay.service.localbroker.files import KafkaFiles
from snapreplay.service.localbroker.tools import WAYS_OUT, find_java, find_maven

JARS_DIR_VARIABLE = "SNAPREPLAY_JARS_DIR"
_FETCH_DEADLINE_S = 900.0
_FORMAT_DEADLINE_S = 120.0
_STAMP = "stamp.json"

Report = Callable[[str], None]


def to_stderr(line: str) -> None:
    """The default report: one line to the standard error."""
    print(line, file=sys.stderr, flush=True)


def ensure(report: Report = to_stderr) -> KafkaFiles:
    """The broker's files, fetched first if they are not here whole (about 50 ms if they are).

    Raises LocalBrokerUnavailable: no java, Java older than 17, no mvn to fetch with, or Maven
    failed.
    """
    java = find_java()
    root = cache_dir()
    if not is_whole(root):
        with _only_one(root):
            if not is_whole(root):  # nobody else fetched them while we waited
                _fetch(root, java, report)
    return KafkaFiles(java, root)


def cache_dir() -> Path:
    """$SNAPREPLAY_JARS_DIR, else .jars/kafka of this checkout, else the user's cache directory."""
    named = os.environ.get(JARS_DIR_VARIABLE)
    if named:
        return Path(named).absolute()
    project = Path(__file__).resolve().parents[2]
    if (project / "pyproject.toml").is_file():
        return project / ".jars" / "kafka"
    user_cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(user_cache) / "snapreplay" / f"kafka-{kafka_version()}"


def kafka_version() -> str:
    """The broker's version, as pom.xml says it."""
    pattern = rb"<artifactId>kafka_2\.13</artifactId>\s*<version>([^<]+)</version>"
    match = re.search(pattern, _pom())
    if match is None:
        raise LookupError("pom.xml names no kafka_2.13")
    return match.group(1).decode()


def is_whole(root: Path) -> bool:
    """Whether it was fetched for this pom.xml and each file is still there in its size."""
    try:
        stamp = json.loads((root / _STAMP).read_text())
        sizes: dict[str, int] = stamp["sizes"]
        if stamp["pom"] != _pom_hash():
            return False
        return all((root / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _fetch(root: Path, java: Path, report: Report) -> None:
    maven = find_maven()
    for left_by_a_killed_fetch in root.parent.glob(f".{root.name}.new-*"):
        shutil.rmtree(left_by_a_killed_fetch, ignore_errors=True)
    fresh = root.parent / f".{root.name}.new-{os.getpid()}"
    report(f"local broker: fetching Kafka {kafka_version()} by Maven (about 39 MB, once) to {root}")
    started = time.monotonic()
    try:
        fresh.mkdir()
        _copy_dependencies(maven, fresh / "lib")
        _format(KafkaFiles(java, fresh), fresh / "format.properties")
        megabytes, count = _write_stamp(fresh)
        _replace(root, fresh)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    took = time.monotonic() - started
    report(f"local broker: {count} jars, {megabytes:.1f} MB, in {took:.1f} s")


def _copy_dependencies(maven: Path, lib_dir: Path) -> None:
    with as_file(files(__package__) / "pom.xml") as pom:
        goal = [str(maven), "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
        _run(
            [*goal, "-DincludeScope=runtime", f"-DoutputDirectory={lib_dir}"],
            _FETCH_DEADLINE_S,
            "Maven could not fetch the local broker's jars",
        )


def _format(kafka: KafkaFiles, settings: Path) -> None:
    """Run the storage tool once; a start then copies two small files instead, 0.4 s sooner."""
    node = properties.Node(1, 1, 2)
    values = properties.server_properties(node, [node], kafka.formatted_dir)
    settings.write_text(properties.as_file(values))
    tool = [str(kafka.java), "-XX:TieredStopAtLevel=1", "-cp", kafka.class_path]
    placeholder = "AAAAAAAAAAAAAAAAAAAAAQ"
    _run(
        [*tool, "kafka.tools.StorageTool", "format", "-t", placeholder, "-c", str(settings)],
        _FORMAT_DEADLINE_S,
        "Kafka's storage tool could not format a data directory",
    )
    settings.unlink()


def _run(command: list[str], deadline_s: float, what_failed: str) -> None:
    hint = f"Try again, name a directory fetched elsewhere by {JARS_DIR_VARIABLE}, or: {WAYS_OUT}"
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=deadline_s,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise LocalBrokerUnavailable(f"{what_failed} in {deadline_s:.0f} s.", hint) from error
    if done.returncode != 0:
        said = [line for line in done.stdout.splitlines() if line.strip()][:6]
        message = "\n  ".join([f"{what_failed} (exit code {done.returncode}):", *said])
        raise LocalBrokerUnavailable(message, hint)


def _write_stamp(root: Path) -> tuple[float, int]:
    """Record every file's size. Returns the jars' megabytes (10^6 bytes) and their number."""
    found = sorted(path for path in root.rglob("*") if path.is_file())
    sizes = {str(path.relative_to(root)): path.stat().st_size for path in found}
    jars = [size for name, size in sizes.items() if name.endswith(".jar")]
    (root / _STAMP).write_text(json.dumps({"pom": _pom_hash(), "sizes": sizes}, indent=1))
    return sum(jars) / 1e6, len(jars)


def _replace(root: Path, fresh: Path) -> None:
    # A directory cannot be renamed over a full one. A broker that runs from the former jars has
    # them open and goes on.
    former = fresh.with_name(fresh.name + "-former")
    if root.exists():
        root.rename(former)
    fresh.rename(root)
    shutil.rmtree(former, ignore_errors=True)


@contextmanager
def _only_one(root: Path) -> Iterator[None]:
    """One fetch at a time per directory; the lock goes with the process that holds it."""
    try:
        root.parent.mkdir(parents=True, exist_ok=True)
        lock = (root.parent / f".{root.name}.lock").open("w")
    except OSError as error:
        message = f"The local broker's jars cannot be kept in {root}: {error.strerror}."
        hint = f"Name a directory that can be written by {JARS_DIR_VARIABLE}."
        raise LocalBrokerUnavailable(message, hint) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _pom() -> bytes:
    return (files(__package__) / "pom.xml").read_bytes()


def _pom_hash() -> str:
    return hashlib.sha256(_pom()).hexdigest()


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
