"""A directory of jars, filled once by Maven: `.jars/NAME` of a checkout, else the user's cache.

It is filled under another name and renamed at the end, so a kill at any moment leaves nothing that
looks complete. `stamp.json` records the pom.xml it was filled for, and the name and size of each file.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from snapreplay.counted import counted
from snapreplay.errors import UsageError
from snapreplay.jars.java import JavaUnavailable, environment, find_java

_STAMP = "stamp.json"
_FETCH_DEADLINE_S = 900.0


class JarsUnavailable(UsageError):
    """The jars are missing and cannot be fetched: mvn or another tool is missing or failed, or the directory cannot
    be written."""


def jars_dir(name: str, variable: str, version: str = "") -> Path:
    """Return the directory named by the environment `variable`, else `.jars/NAME` of this checkout, else NAME or
    NAME-VERSION in the user's cache directory."""
    named = os.environ.get(variable)
    if named:
        return Path(named).absolute()
    project = Path(__file__).resolve().parents[2]
    if (project / "pyproject.toml").is_file():
        return project / ".jars" / name
    user_cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    # All installations share the cache: two versions must not replace each other's jars.
    return Path(user_cache) / "snapreplay" / (f"{name}-{version}" if version else name)


def is_whole(root: Path, pom: bytes) -> bool:
    """Say whether it was filled for this pom.xml, and each file is still there with its size."""
    try:
        stamp = json.loads((root / _STAMP).read_text())
        sizes: dict[str, int] = stamp["sizes"]
        return stamp["pom"] == _hash(pom) and all(
            (root / name).stat().st_size == size for name, size in sizes.items()
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def fill(root: Path, pom: bytes, filler: Callable[[Path], None]) -> bool:
    """Make `root` complete by calling `filler` with a new directory that then takes its place.

    One process fills it while others wait. Returns whether this call filled it.

    Raises:
        JarsUnavailable: the directory cannot be made. What `filler` raises passes through.
    """
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
            _write_stamp(fresh, pom)
            # A directory cannot be renamed over a full one; a JVM that runs from the former jars has
            # them open and goes on.
            if root.exists():
                root.rename(beside / "former")
            fresh.rename(root)
        finally:
            shutil.rmtree(beside, ignore_errors=True)
    return True


def check(user: str, what: str, root: Path, pom: bytes) -> None:
    """Raise JavaUnavailable or JarsUnavailable if `user` lacks java, or the jars of `what` and the mvn to fetch
    them."""
    whole = is_whole(root, pom)
    try:
        find_java(user)
    except JavaUnavailable as error:
        if not whole and not shutil.which("mvn"):
            error.hint += "; mvn is missing, too: `apt-get install maven`"
        raise
    if not whole:
        find_maven(what)


def size_of(lib: Path) -> str:
    """Describe its jars: how many, and how large."""
    sizes = [jar.stat().st_size for jar in lib.glob("*.jar")]
    return f"{counted(len(sizes), 'jar')}, {sum(sizes) / 1e6:.1f} MB"


def find_maven(what: str) -> str:
    """Return the mvn command that fetches the jars of `what`.

    Raises:
        JarsUnavailable: there is none.
    """
    maven = shutil.which("mvn")
    if maven is None:
        raise JarsUnavailable(
            f"the jars of {what} have not been fetched yet, and there is no mvn command to fetch them",
            hint="`apt-get install maven`",
        )
    return maven


def copy_dependencies(pom: bytes, lib: Path, what: str) -> None:
    """Copy the runtime dependencies of pom.xml into `lib` with Maven.

    Raises:
        JarsUnavailable: there is no Maven, or it failed; one line with its first error.
    """
    goal = [find_maven(what), "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime"]
    with tempfile.TemporaryDirectory() as folder:
        pom_file = Path(folder) / "pom.xml"
        pom_file.write_bytes(pom)
        run_tool(
            [*goal, "-f", str(pom_file), f"-DoutputDirectory={lib}"],
            f"Maven could not fetch the jars of {what}",
            hint="check the network and Maven's settings.xml, then try again",
            deadline_s=_FETCH_DEADLINE_S,
        )


def run_tool(command: list[str], what_failed: str, *, hint: str, deadline_s: float) -> None:
    """Run a command that helps to fill the directory; its output is not shown.

    Raises:
        JarsUnavailable: it failed or took too long; one line: `what_failed`, and the first error in
            its output.
    """
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
        raise JarsUnavailable(f"{what_failed} in {deadline_s:.0f} s", hint=hint) from error
    if done.returncode != 0:
        lines = [line for line in done.stdout.splitlines() if line.strip()]
        # A tool that cannot even start does not print the word.
        said = next((line for line in lines if "ERROR" in line), lines[0] if lines else "nothing")
        message = f"{what_failed} (exit code {done.returncode}): {said[:300]}"
        raise JarsUnavailable(message, hint=hint)


def _write_stamp(root: Path, pom: bytes) -> None:
    found = sorted(path for path in root.rglob("*") if path.is_file())
    sizes = {str(path.relative_to(root)): path.stat().st_size for path in found}
    (root / _STAMP).write_text(json.dumps({"pom": _hash(pom), "sizes": sizes}, indent=1))


@contextmanager
def _only_one(root: Path) -> Iterator[None]:
    """Lock the directory; the lock ends with the process that holds it."""
    try:
        root.parent.mkdir(parents=True, exist_ok=True)
        lock = (root.parent / f".{root.name}.lock").open("w")
    except OSError as error:
        raise JarsUnavailable(
            f"the jars cannot be kept in {root}: {error.strerror}",
            hint="make that directory writable, or name another one",
        ) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _hash(pom: bytes) -> str:
    return hashlib.sha256(pom).hexdigest()
