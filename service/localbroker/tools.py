"""Where java is, and whether it can run the broker."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from snapreplay.service.localbroker.errors import LocalBrokerUnavailable

# Kafka's server needs 17 since 4.0; its classes do not load in an older one.
MIN_JAVA = 17
_VERSION_DEADLINE_S = 30.0
INSTEAD = (
    "do without the local broker: "
    "--bootstrap-servers HOST:PORT of an existing cluster, or deploy/compose.yaml"
)
WAYS_OUT = f"apt-get install openjdk-17-jre-headless maven, or {INSTEAD}"


def find_java() -> Path:
    """The java command to use: JAVA_HOME's if that has one, else the first on the PATH.

    Costs about 40 ms. Raises LocalBrokerUnavailable: there is none, or it is older than Java 17.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin") if home else None
    found = found or shutil.which("java")
    if found is None:
        message = "The local broker needs Java 17 or newer, and there is no java command."
        raise LocalBrokerUnavailable(message, WAYS_OUT)
    major = _major_version(found)
    if major < MIN_JAVA:
        message = f"The local broker needs Java {MIN_JAVA} or newer, and {found} is Java {major}."
        raise LocalBrokerUnavailable(message, WAYS_OUT)
    return Path(found)


def _major_version(java: str) -> int:
    try:
        answer = subprocess.run(
            [java, "-version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_VERSION_DEADLINE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LocalBrokerUnavailable(f"{java} -version does not run: {error}", WAYS_OUT) from error
    # Up to Java 8 the version reads "1.8.0", afterwards "17.0.15" or just "17".
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    if match is None:
        message = f"{java} -version tells no version (exit code {answer.returncode})."
        raise LocalBrokerUnavailable(message, WAYS_OUT)
    return int(match.group(1))
