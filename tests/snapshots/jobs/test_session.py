"""The Spark session: quiet, on loopback, with our interpreter; what is told of a job that Spark
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
from snapreplay.snapshots.jobs.session import local_session
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


def test_a_jvm_that_does_not_start_is_one_error(monkeypatch) -> None:
    """Whatever Spark raises, the way out is Java 17."""

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


class Java:
    def __init__(self, says, under=None):
        self._says, self._under = says, under

    def getCause(self):  # noqa: N802 - Java's names
        return self._under

    def toString(self):  # noqa: N802 - as above
        return self._says
