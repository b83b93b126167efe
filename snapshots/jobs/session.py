"""One Spark session, quiet: in this process on loopback, or on a cluster. And the cause why
Spark stopped a job, in one line, with what to do about it."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

import pandas  # noqa: F401 - else Spark misses it in the middle of a job, as an error of its own
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped] # py4j ships no types
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from snapreplay.errors import StopError, UsageError
from snapreplay.java import INSTALL, environment, find_java

# For a JVM that ends soon: the quick compiler and the plain collector start twice as fast (28.7 s
# against 19.1 s for a whole suite of tiny jobs). Over gigabytes of chunks the optimising compiler
# wins. A third of the heap for new objects would be filled before anything is collected.
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xmn64m"

_OPTIONS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # Rows may be chunks of 900 kB: a batch of Spark's default 10,000 of them would be 9 GB.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "2000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(4 * 1024 * 1024),
}
"""Of every session, wherever it runs."""

_LOCAL = "local[*,3]"
"""All cores, and two more attempts for a task whose Python worker was killed. Each attempt stands for itself."""

_HEAP = "512m"
"""Of a JVM that starts here. The Python tasks hold the states; the JVM passes on batches of a few MB. Spark's own
default of 1 GiB is filled with garbage before it is collected. Spark refuses less than 450 MiB."""

_HELD_BACK = (signal.SIGINT, signal.SIGTERM)

SPARK_ERRORS = (PySparkException, Py4JJavaError)
"""What an action raises; a failed read of Kafka raises the second, unwrapped (4.2.0)."""

_TRACEBACK = "Traceback (most recent call last)"
_RAISED = re.compile(r"^(?:[\w.]+\.)?\w*(?:Error|Exception|Exit|Interrupt|Failed|NotFound)\b.*", re.MULTILINE)
_INSTALL = (
    "install snapreplay[spark] of this version for the Python that the executors run (PYSPARK_PYTHON): in their image,"
    " or with `spark-submit --archives`"
)
_KILLED = "a Python worker of Spark was ended from outside"
_ENDED = ("Python worker exited unexpectedly", "Broken pipe", "Connection reset", "EOFException")
"""What Spark says of a worker that is gone, whichever socket noticed it first."""
_HINTS = {
    _KILLED: "perhaps by the kernel, because memory ran out (`dmesg` shows it). Run the command again with more"
    " memory, or with fewer workers at a time: `spark-submit --master local[1,3]`",
    "No module named 'snapreplay'": _INSTALL,
    "No module named": _INSTALL,
    "PYTHON_VERSION_MISMATCH": "set PYSPARK_PYTHON to a Python of the driver's minor version that the executors have",
    "Cannot run program": "set PYSPARK_PYTHON to a Python that exists on the executors",
}


class SparkFailed(StopError):
    """Spark could not finish; the message has the cause."""


@contextmanager
def stopping(job: str) -> Iterator[None]:
    """Raise SparkFailed if Spark stops the job in this block."""
    try:
        yield
    except SPARK_ERRORS as error:
        says, hint = cause(error)
        raise SparkFailed(f"Spark stopped the {job}: {says}", hint=hint) from error


@contextmanager
def spark_session(name: str) -> Iterator[SparkSession]:
    """Provide the session of this process, whichever thread made it; else one that is started here and stopped at the
    end.

    A new one runs in this process, on all cores, or where `spark-submit` has sent this program.

    Raises:
        JavaUnavailable, UsageError: it cannot be started.
    """
    if SparkContext._active_spark_context is not None:  # noqa: SLF001 - Spark has no public way to ask
        yield SparkSession.builder.getOrCreate()
        return
    submitted = SparkSession.builder.appName(name)
    spark = _opened(submitted, "spark-submit", {}) if _is_submitted() else local_session(name)
    try:
        yield spark
    finally:
        spark.stop()


def check() -> None:
    """Raise JavaUnavailable if `spark_session` would fail at once."""
    if not _is_submitted() and SparkContext._active_spark_context is None:  # noqa: SLF001 - Spark has no public way to ask
        find_java("Spark")


def local_session(name: str) -> SparkSession:
    """Return the session of this process, started if there is none (about 5 s). The caller stops it.

    Raises:
        JavaUnavailable: there is no java command, or it is older than 17.
        UsageError: the JVM does not start.
    """
    java = _prepared()
    _use_this_interpreter()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName(name).master(_LOCAL)
    return _opened(
        builder,
        java,
        {
            "spark.driver.extraJavaOptions": _java_options(),
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.shuffle.partitions": str(os.cpu_count() or 1),
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.codegen.wholeStage": "false",
        },
    )


def _use_this_interpreter() -> None:
    """Let workers on this machine use this interpreter: they would use the first `python3` on the PATH, which lacks
    our packages."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable


def _is_submitted() -> bool:
    """Say whether spark-submit has started the JVM, and this program in it, before."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _prepared() -> str:
    """Say where java is. The environment becomes that of the JVM to be started."""
    java = find_java("Spark")
    _take_over(environment())
    # What Spark asks last: --driver-memory, spark.driver.memory and a user's own variable come before it.
    os.environ.setdefault("SPARK_DRIVER_MEMORY", _HEAP)
    return str(java)


def _java_options() -> str:
    # As a URI: the path may hold spaces, which separate options.
    log4j = Path(str(files(__package__) / "log4j2.properties")).as_uri()
    return f"-Dlog4j2.configurationFile={log4j} {_SHORT_LIVED}"


def _opened(builder: SparkSession.Builder, java: str, options: Mapping[str, str]) -> SparkSession:
    for key, value in {**options, **_OPTIONS}.items():
        builder = builder.config(key, value)
    try:
        with _uninterrupted():
            return builder.getOrCreate()
    except Exception as error:  # py4j's, Spark's or the JVM's: whichever it is, there is no session
        says, _ = cause(error)
        raise UsageError(
            f"Spark does not start with {java}: {says}",
            hint=f"install a complete Java runtime, version 17 or newer: {INSTALL}",
        ) from error


def _take_over(given: dict[str, str]) -> None:
    """Take over the environment, with which Spark starts its JVM."""
    for name in os.environ.keys() - given.keys():
        del os.environ[name]
    os.environ.update(given)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Hold Ctrl-C and SIGTERM back: a JVM that is abandoned while it starts never reports its port and never ends,
    and the directory in which Spark waits for the port would stay."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[int] = []

    def hold(number: int, _frame: object) -> None:
        held.append(number)

    former = {number: signal.signal(number, hold) for number in _HELD_BACK}
    try:
        yield
    finally:
        for number, handler in former.items():
            if signal.getsignal(number) is hold:  # Spark sets one of its own
                signal.signal(number, handler)
    if signal.SIGTERM in held:
        signal.raise_signal(signal.SIGTERM)
    if held:
        raise KeyboardInterrupt


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
