"""The Spark session: quiet, on loopback, with our interpreter; what is said of a job that Spark
stopped: one line, and what to do."""

import asyncio
import os
import signal
import sys
from contextlib import suppress
from subprocess import DEVNULL

import psutil
import pyarrow as pa
import pytest

from snapreplay.errors import UsageError
from snapreplay.snapshots.jobs.session import cause, local_session
from tests.support.deadlines import scaled
from tests.support.stage import until


def test_workers_run_this_interpreter(spark) -> None:
    """Not the first python3 on the PATH, which lacks our packages."""

    def who(batches):
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"who": [sys.executable]})

    (row,) = spark.range(1).mapInArrow(who, "who STRING").collect()
    assert row.who == sys.executable


def test_it_listens_on_loopback_only(spark) -> None:
    """Driver address and host; no web page."""
    conf = spark.sparkContext.getConf()
    assert conf.get("spark.driver.bindAddress") == "127.0.0.1"
    assert conf.get("spark.driver.host") == "127.0.0.1"
    assert spark.sparkContext.uiWebUrl is None


def test_its_log_settings_are_read(spark) -> None:
    """Named by a URI, which no space in a path cuts in two."""
    jvm = spark.sparkContext._jvm
    named = jvm.System.getProperty("log4j2.configurationFile")
    assert named.startswith("file:///")
    context = jvm.org.apache.logging.log4j.LogManager.getContext(False)
    silent = context.getConfiguration().getLoggerConfig("org.apache.spark.executor").getLevel()
    assert str(silent) == "OFF"


def test_a_process_has_one_session(spark) -> None:
    """A second call gives the running one."""
    assert local_session("another").sparkContext is spark.sparkContext


def test_a_jvm_that_does_not_start_is_one_error(monkeypatch) -> None:
    """For any error of Spark the way out is Java 17."""

    class Failing:
        def __getattr__(self, _):
            return lambda *_: self

        def getOrCreate(self):  # noqa: N802 - Spark's name
            raise RuntimeError("[JAVA_GATEWAY_EXITED]")

    monkeypatch.setattr("pyspark.sql.SparkSession.builder", Failing())
    with pytest.raises(UsageError, match="JAVA_GATEWAY_EXITED") as caught:
        local_session("broken")
    assert "`apt-get install default-jre-headless`" in caught.value.hint


def jvms_of(program: psutil.Process) -> list[psutil.Process]:
    """Spark's, while it starts: not the java that only says its version, and not the launcher before it."""
    found = []
    for child in program.children():
        with suppress(psutil.Error):
            if child.name() == "java" and "org.apache.spark.deploy.SparkSubmit" in child.cmdline():
                found.append(child)
    return found


@pytest.mark.whole
@pytest.mark.spark
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_interrupted_while_it_starts_it_leaves_nothing(tmp_path, number) -> None:
    """In the seconds of the start it ends both processes: who waits for our output gets its end. No file stays."""
    start = "from snapreplay.snapshots.jobs.session import local_session as s; s('interrupted')"
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-c", start, stderr=DEVNULL, env={**os.environ, "TMPDIR": str(tmp_path)}
    )
    seen = psutil.Process(program.pid)
    found: list[psutil.Process] = []

    def starts() -> bool:
        found[:] = jvms_of(seen)
        return found != []

    await until(starts)
    (jvm,) = found
    try:
        program.send_signal(number)
        assert await asyncio.wait_for(program.wait(), scaled(60)) != 0
        jvm.wait(scaled(20))
    finally:
        if jvm.is_running():
            jvm.kill()
    assert list(tmp_path.iterdir()) == []


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


def of_java(*causes):
    """An error whose causes, the last one last, say this."""
    java = None
    for says in reversed(causes):
        java = Java(says, java)
    return JavaError(java)


MISMATCH = "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker"
ABORTED, CANNOT_RUN = "SparkException: Job aborted", 'java.io.IOException: Cannot run program "/no/python"'
WORKERS = {
    "ModuleNotFoundError: No module named 'snapreplay'": "install snapreplay[spark]",
    "ModuleNotFoundError: No module named 'pyarrow'": "install snapreplay[spark]",
    MISMATCH: "set PYSPARK_PYTHON to a Python of the driver's minor version",
    "ValueError: x": "",
}
ENDED = (
    "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)",
    "java.io.IOException: Broken pipe",
    "java.net.SocketException: Connection reset",
    "java.io.EOFException",
)


@pytest.mark.parametrize(
    ("error", "says", "hint"),
    [
        *((RuntimeError(WORKER.format(raised)), raised, hint) for raised, hint in WORKERS.items()),
        *((of_java(ABORTED, last), f"a Python worker of Spark was ended from outside: {last}", "") for last in ENDED),
        (of_java(ABORTED, "java.net.ConnectException: refused\nmore"), "java.net.ConnectException: refused", ""),
        (of_java(ABORTED, CANNOT_RUN, "IOException: error=2"), CANNOT_RUN, "set PYSPARK_PYTHON"),
        (RuntimeError(""), "no reason given", ""),
    ],
)
def test_the_cause_is_printed_in_one_line(error, says, hint) -> None:
    """What a Python worker raised, and not the stack traces; a known cause, else Java's last one; never an empty
    line."""
    told = cause(error)
    assert told[0] == says
    assert told[1].startswith(hint)
    assert ("more memory" in told[1]) is ("ended from outside" in says)
