"""From the broker's log to the likely cause of its failure."""

import re
from pathlib import Path

_TAIL_LINES = 12
_TAIL_BYTES = 65_536
_STARTED = "Kafka Server started"
_PORT_TAKEN = "Address already in use"

# In the order of trust: what stands higher causes what stands lower.
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
    # The last words of a failure that nobody has met yet.
    (r"(?:Exception|Error): (.+)", "the broker says"),
)


def likely_cause(log_path: Path, since: int = 0) -> str:
    """One clause that names the likely cause, from the log's end after byte `since`."""
    text = _end_of(log_path, since)
    for pattern, meaning in _CAUSES:
        match = re.search(pattern, text)
        if match:
            said = next(filter(None, match.groups()), "").strip().rstrip(".")
            return f"{meaning}: {said}" if said else meaning
    return "unknown"


def last_lines(log_path: Path) -> str:
    """The log's last lines that say something: no frames of stack traces, no chatter of a stop."""
    lines = _end_of(log_path).splitlines()
    lines = [line for line in lines if not re.match(r"\s+(at |\.\.\. \d+ more)", line)]
    telling = [line for line in lines if " INFO " not in line]
    return "\n".join((telling or lines)[-_TAIL_LINES:])


def port_was_taken(log_path: Path, since: int = 0) -> bool:
    """Whether the broker failed because its port was taken, by the log from byte `since` on."""
    return _PORT_TAKEN in _end_of(log_path, since)


def says_started(log_path: Path, since: int = 0) -> bool:
    """Whether the broker says, in the log from byte `since` on, that it is started."""
    return _STARTED in _end_of(log_path, since)


def _end_of(log_path: Path, since: int = 0) -> str:
    try:
        with log_path.open("rb") as log:
            size = log.seek(0, 2)
            log.seek(max(since, size - _TAIL_BYTES))
            return log.read().decode("utf-8", "replace")
    except OSError:
        return ""
