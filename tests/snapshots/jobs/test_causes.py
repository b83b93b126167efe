"""Tests of what is told of a job that Spark stopped: one line, and what to do."""

import pytest

from snapreplay.snapshots.jobs.causes import cause

WORKER = """An exception was thrown from the Python worker. Please see the stack trace below.
'Traceback (most recent call last):
  File "/x/worker.py", line 1, in main
    raise Error
{}
'. SQLSTATE: 38000
JVM stacktrace:
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
"""


class Java:
    def __init__(self, says, under=None):
        self._says, self._under = says, under

    def getCause(self):  # noqa: N802 - Java's names
        return self._under

    def toString(self):  # noqa: N802 - as above
        return self._says


class JavaError(Exception):
    def __init__(self, java):
        super().__init__("An error occurred while calling o1.collect:\n: stack")
        self.java_exception = java


@pytest.mark.parametrize(
    ("raised", "says", "hint"),
    [
        ("ModuleNotFoundError: No module named 'snapreplay'", None, "install snapreplay[spark]"),
        ("ModuleNotFoundError: No module named 'pyarrow'", None, "install snapreplay[spark]"),
        (
            "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has 3.12.",
            None,
            "set PYSPARK_PYTHON to a Python of the driver's minor version",
        ),
        ("ValueError: x", None, ""),
    ],
)
def test_what_a_worker_raised_is_told(raised, says, hint) -> None:
    """Not the stack trace, and not the JVM's."""
    told = cause(RuntimeError(WORKER.format(raised)))
    assert told[0] == raised
    assert told[1].startswith(hint) or not hint


@pytest.mark.parametrize(
    "says",
    [
        "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)",
        "java.io.IOException: Broken pipe",
        "java.net.SocketException: Broken pipe",
        "java.net.SocketException: Connection reset",
        "java.io.EOFException",
    ],
)
def test_a_worker_that_was_killed_is_named(says) -> None:
    """Spark says only which socket noticed it."""
    told, hint = cause(JavaError(Java("SparkException: Job aborted", Java(says))))
    assert told == f"a Python worker of Spark was ended from outside: {says}"
    assert "Run the command again with more memory" in hint


def test_javas_last_cause_is_told() -> None:
    """What it is caused by in the end; one line of it."""
    under = Java("java.net.ConnectException: refused\nmore")
    assert cause(JavaError(Java("SparkException: Job aborted", under))) == (
        "java.net.ConnectException: refused",
        "",
    )


def test_a_cause_that_is_known_is_told_before_the_last_one() -> None:
    """Java's last word on a missing program does not name it."""
    under = Java(
        'java.io.IOException: Cannot run program "/no/python"', Java("IOException: error=2")
    )
    says, hint = cause(JavaError(Java("org.apache.spark.SparkException: Job aborted", under)))
    assert says == 'java.io.IOException: Cannot run program "/no/python"'
    assert "PYSPARK_PYTHON" in hint


def test_an_error_without_a_text_is_told_as_such() -> None:
    """Never an empty line."""
    assert cause(RuntimeError("")) == ("no reason given", "")
