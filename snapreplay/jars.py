"""Java, and directories of jars that Maven fills once, for the local broker and for Spark.

A directory is `.jars/NAME` of a checkout, else in the user's cache. It is filled under another name and renamed at the
end, so a kill at any moment leaves nothing that looks complete. `stamp.json` records the pom.xml it was filled for, and
the name and size of each file.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from snapreplay.counted import counted
from snapreplay.errors import UsageError

_STAMP = "stamp.json"
_FETCH_DEADLINE_S = 900.0

# Kafka's server and Spark 4 need 17: their classes do not load in an older one.
MIN_JAVA = 17
INSTALL = "`apt-get install default-jre-headless`"
_VERSION_DEADLINE_S = 30.0


class JarsUnavailable(UsageError):
    """The jars are missing and cannot be fetched: mvn or another tool is missing or failed, or the directory cannot
    be written.

    Safe: Nothing was started. An incomplete directory is never used, so you may try again.
    """


def jars_dir(name: str, variable: str, version: str = "") -> Path:
    """Return the directory named by the environment `variable`, else `.jars/NAME` of this checkout, else NAME or
    NAME-VERSION in the user's cache directory."""
    named = os.environ.get(variable)
    if named:
        return Path(named).absolute()
    project = Path(__file__).resolve().parents[1]
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
        return stamp["pom"] == _hash(pom) and all((root / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def fill(root: Path, pom: bytes, filler: Callable[[Path], None]) -> bool:
    """Make `root` complete by calling `filler` with a new directory that then takes its place.

    One process fills it while others wait. Returns whether this call filled it. Raises JarsUnavailable: the directory
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
    sizes = [jar.stat().st_size for jar in lib.glob("*.jar")]
    return f"{counted(len(sizes), 'jar')}, {sum(sizes) / 1e6:.1f} MB"


def find_maven(what: str) -> str:
    """Return the mvn command that fetches the jars of `what`, or raise JarsUnavailable: there is none."""
    maven = shutil.which("mvn")
    if maven is None:
        raise JarsUnavailable(
            f"the jars of {what} have not been fetched yet, and there is no mvn command to fetch them",
            hint="`apt-get install maven`",
        )
    return maven


def copy_dependencies(pom: bytes, lib: Path, what: str) -> None:
    """Copy the runtime dependencies of pom.xml into `lib` with Maven, or raise JarsUnavailable: there is no Maven, or
    it failed; one line with its first error."""
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
    """Run a command that helps to fill the directory; its output is not shown. Raises JarsUnavailable: it failed or
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


# -------------------------------------------------------------------- Java


class JavaUnavailable(UsageError):
    """There is no java command, it does not run, or it is too old."""


def find_java(what: str) -> Path:
    """Return the java command for `what` (a name for messages): JAVA_HOME's if it has one, else the first on the PATH.
    Takes about 40 ms. Raises JavaUnavailable: there is none, it does not run, or it is older than Java 17."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin") if home else None
    found = found or shutil.which("java")
    needed = f"{what} needs Java {MIN_JAVA} or newer"
    if found is None:
        raise JavaUnavailable(f"{needed}, but there is no java command", hint=INSTALL)
    major = _major_version(found)
    if major < MIN_JAVA:
        # What was found may be the distribution's default. Older ones have 17, newer ones 21.
        newer = (
            "`apt-get install openjdk-17-jre-headless` or `apt-get install openjdk-21-jre-headless`,"
            " whichever your distribution has, then set JAVA_HOME to its directory in /usr/lib/jvm"
        )
        raise JavaUnavailable(f"{needed}, but {found} is Java {major}", hint=newer)
    return Path(found)


def environment() -> dict[str, str]:
    """Return this process's environment for a JVM, with the file name encoding of this Python and no stale JAVA_HOME.

    A JVM takes the encoding of file names from the locale. In the plain C locale, or one that is not
    installed, it cannot open a file with an umlaut, while Python reads names as UTF-8.
    """
    given = dict(os.environ)
    if not shutil.which("java", path=f"{given.get('JAVA_HOME')}/bin"):
        given.pop("JAVA_HOME", None)  # stale: `find_java` ignores it, Maven and Spark would not
    if sys.getfilesystemencoding().lower() == "utf-8":
        given["LC_ALL"] = "C.UTF-8"
    return given


def _major_version(java: str) -> int:
    try:
        answer = subprocess.run(
            [java, "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_VERSION_DEADLINE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaUnavailable(f"`{java} -version` does not run: {error}", hint=INSTALL) from error
    # Up to Java 8 the version reads "1.8.0", afterwards "17.0.15" or just "17".
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    if match is None:
        message = f"`{java} -version` prints no version (exit code {answer.returncode})"
        raise JavaUnavailable(message, hint=INSTALL)
    return int(match.group(1))
