"""The cause why Spark stopped a job, in one line, and what to do about it. Pure."""

from __future__ import annotations

import re

_TRACEBACK = "Traceback (most recent call last)"
_RAISED = re.compile(
    r"^(?:[\w.]+\.)?\w*(?:Error|Exception|Exit|Interrupt|Failed|NotFound)\b.*", re.MULTILINE
)
_INSTALL = (
    "install snapreplay[spark] of this version for the Python that the executors run (PYSPARK_PYTHON): in their image,"
    " or with `spark-submit --archives`"
)
_KILLED = "a Python worker of Spark was ended from outside"
_ENDED = ("Python worker exited unexpectedly", "Broken pipe", "Connection reset", "EOFException")
"""What Spark says of a worker that is gone, whichever socket noticed it first."""
_HINTS = {
    _KILLED: "by the kernel, perhaps, because memory ran out (`dmesg` shows it). Run the command again with more"
    " memory, or with fewer workers at a time: `--master local[1,3]`",
    "No module named 'snapreplay'": _INSTALL,
    "No module named": _INSTALL,
    "PYTHON_VERSION_MISMATCH": "set PYSPARK_PYTHON to a Python of the driver's minor version that the executors have",
    "Cannot run program": "set PYSPARK_PYTHON to a Python that exists on the executors",
    "Failed to find data source: kafka": "add Spark's Kafka connector: `spark-submit --jars`",
}


def cause(error: BaseException) -> tuple[str, str]:
    """Return (what happened, hint). Spark's own messages are stack traces: the line of the Python error in a worker
    is taken, else the first one of Java's last cause, or of one that is known."""
    text = str(error)
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    causes: list[str] = []
    while java is not None:
        causes.append(str(java.toString()))
        java = java.getCause()
    text = "\n".join([*causes[-1:], text])
    known = [_first(each) for each in causes if _hint_for(_first(each))]
    says = _in_worker(text) or next(iter(known), "") or _first(text)
    if any(each in says for each in _ENDED):
        says = f"{_KILLED}: {says}"
    return says, _hint_for(says)


def _hint_for(says: str) -> str:
    return next((hint for part, hint in _HINTS.items() if part in says), "")


def _in_worker(text: str) -> str:
    """Return what the first traceback of a Python worker ends with."""
    _, found, trace = text.partition(_TRACEBACK)
    raised = _RAISED.search(trace) if found else None
    return raised.group().strip() if raised else ""


def _first(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "no reason given")
