"""Java, for the local broker and for Spark."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from snapreplay.errors import UsageError

# Kafka's server and Spark 4 need 17: their classes do not load in an older one.
MIN_JAVA = 17
INSTALL = "`apt-get install default-jre-headless`"
_VERSION_DEADLINE_S = 30.0


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
