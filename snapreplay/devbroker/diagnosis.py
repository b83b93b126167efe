"""Finds the likely cause of a broker's failure in its log."""

import re
from pathlib import Path

_TAIL_LINES = 12
_TAIL_BYTES = 65_536
_STARTED = "Kafka Server started"
_PORT_TAKEN = "Address already in use"

# The order matters: an entry may cause those below it.
_CAUSES: tuple[tuple[str, str], ...] = (
    (r"UnsupportedClassVersionError", "this Java is older than 17"),
    (r"Could not reserve enough|insufficient memory|OutOfMemoryError", "not enough memory"),
    (r"No space left on device", "the disk is full"),
    (_PORT_TAKEN, "the port is taken by another program"),
    (r"Failed to acquire lock on file", "another broker uses this data directory"),
    (
        r"Invalid cluster\.id|InconsistentClusterId|Stored node id|InconsistentBrokerId",
        "the data directory belongs to another broker",
    ),
    (
        r"NoClassDefFoundError|ClassNotFoundException|Could not find or load main class",
        "a jar is missing or damaged",
    ),
    (r"ConfigException: (.+)", "the broker refuses its settings"),
    (
        r"Error occurred during initialization of VM\n(.+)|(Unrecognized VM option.+)",
        "the JVM does not start",
    ),
    # Any failure that is not listed above.
    (r"(?:Exception|Error): (.+)", "the broker says"),
)


def likely_cause(log_path: Path, since: int = 0) -> str:
    """Returns one clause that names the likely cause, from the end of the log after byte `since`."""
    text = _end_of(log_path, since)
    for pattern, meaning in _CAUSES:
        match = re.search(pattern, text)
        if match:
            said = next(filter(None, match.groups()), "").strip().rstrip(".")
            return f"{meaning}: {said}" if said else meaning
    return "unknown"


def last_lines(log_path: Path) -> str:
    """Returns the last lines of the log without stack frames, and without INFO lines if there are others."""
    lines = _end_of(log_path).splitlines()
    lines = [line for line in lines if not re.match(r"\s+(at |\.\.\. \d+ more)", line)]
    telling = [line for line in lines if " INFO " not in line]
    return "\n".join((telling or lines)[-_TAIL_LINES:])


def port_was_taken(log_path: Path, since: int = 0) -> bool:
    """Whether the log, from byte `since` on, says that the port was taken."""
    return _PORT_TAKEN in _end_of(log_path, since)


def says_started(log_path: Path, since: int = 0) -> bool:
    """Whether the log, from byte `since` on, says that the broker has started."""
    return _STARTED in _end_of(log_path, since)


def _end_of(log_path: Path, since: int = 0) -> str:
    try:
        with log_path.open("rb") as log:
            size = log.seek(0, 2)
            log.seek(max(since, size - _TAIL_BYTES))
            return log.read().decode("utf-8", "replace")
    except OSError:
        return ""
