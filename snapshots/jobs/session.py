"""One local Spark session, quiet, on loopback, with the Kafka connector on its class path."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

from pyspark import SparkContext
from pyspark.sql import SparkSession

from snapreplay.errors import UsageError
from snapreplay.jars.java import INSTALL, environment, find_java
from snapreplay.snapshots.jobs import jars

# For a JVM that ends soon: the quick compiler and the plain collector start twice as fast (28.7 s
# against 19.1 s for a whole suite of tiny jobs). Over gigabytes of chunks the optimising compiler
# wins.
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@contextmanager
def spark_session(name: str, master: str | None = None) -> Iterator[SparkSession]:
    """The session of this process, whichever thread made it; else one that is started here and stopped at the end.

    Raises:
        JavaUnavailable, JarsUnavailable, UsageError: it cannot be started.
    """
    if master is not None:
        raise UsageError(f"master {master}: only local sessions can be started yet")
    is_ours = not _has_session()
    spark = SparkSession.getActiveSession() or local_session(name, short_lived=True)
    try:
        yield spark
    finally:
        if is_ours:
            spark.stop()


def check(master: str | None) -> None:
    """
    Raises:
        JavaUnavailable, JarsUnavailable: `spark_session` would fail at once.
    """
    del master
    if not _has_session():
        jars.check()


def _has_session() -> bool:
    return SparkContext._active_spark_context is not None  # noqa: SLF001 - Spark has no public way to ask


def local_session(name: str, *, short_lived: bool = False) -> SparkSession:
    """Returns the session of this process, started if there is none (about 5 s). The caller stops it.

    Raises:
        JavaUnavailable: there is no java command, or it is older than 17.
        JarsUnavailable: the connector's jars are missing and cannot be fetched.
        UsageError: the JVM does not start.
    """
    java = find_java("Spark")
    connector = jars.ensure()
    _take_over(environment())
    # Otherwise workers would use the first `python3` on the PATH, which lacks our packages.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # As a URI: the path may hold spaces, which separate options.
    log4j = Path(str(files(__package__) / "log4j2.properties")).as_uri()
    java_options = f"-Dlog4j2.configurationFile={log4j} {_SHORT_LIVED if short_lived else ''}"
    builder = SparkSession.builder.appName(name).master("local[*]")
    for key, value in {
        "spark.driver.extraClassPath": ":".join(map(str, connector)),
        "spark.driver.extraJavaOptions": java_options.strip(),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(os.cpu_count() or 1),
        "spark.sql.adaptive.enabled": str(not short_lived).lower(),
        "spark.sql.codegen.wholeStage": str(not short_lived).lower(),
        "spark.sql.session.timeZone": "UTC",
        # Rows may be chunks of 900 kB: a batch of Spark's default 10,000 of them would be 9 GB.
        "spark.sql.execution.arrow.maxRecordsPerBatch": "2000",
        "spark.sql.execution.arrow.maxBytesPerBatch": str(32 * 1024 * 1024),
    }.items():
        builder = builder.config(key, value)
    try:
        with _uninterrupted():
            return builder.getOrCreate()
    except Exception as error:  # py4j's, Spark's or the JVM's: whichever it is, there is no session
        raise UsageError(
            f"Spark does not start with {java}: {error}",
            hint=f"install a complete Java runtime, version 17 or newer: {INSTALL}",
        ) from error


def _take_over(given: dict[str, str]) -> None:
    """Spark starts its JVM with the environment of this process."""
    for name in os.environ.keys() - given.keys():
        del os.environ[name]
    os.environ.update(given)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Holds Ctrl-C back: a JVM that is abandoned while it starts never reports its port and never ends."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[int] = []

    def hold(number: int, _frame: object) -> None:
        held.append(number)

    former = signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is hold:  # Spark sets one of its own
            signal.signal(signal.SIGINT, former)
    if held:
        raise KeyboardInterrupt
