"""The Spark session: quiet, on loopback, with our interpreter and the connector."""

import asyncio
import signal
import sys
from subprocess import DEVNULL

import psutil
import pyarrow as pa
import pytest

from snapreplay.errors import UsageError
from snapreplay.snapshots.jobs.session import local_session
from tests.support.kafka import until


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


def test_the_connector_is_on_its_class_path(spark) -> None:
    """All four jars, none of them twice."""
    path = spark.sparkContext.getConf().get("spark.driver.extraClassPath")
    assert len(set(path.split(":"))) == 4


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


@pytest.mark.spark
async def test_interrupted_while_it_starts_it_leaves_no_jvm() -> None:
    """Ctrl-C in the seconds of the start ends both processes: who waits for our output gets its end."""
    start = "from snapreplay.snapshots.jobs.session import local_session as s; s('interrupted')"
    program = await asyncio.create_subprocess_exec(sys.executable, "-c", start, stderr=DEVNULL)
    seen = psutil.Process(program.pid)
    await until(lambda: [child.name() for child in seen.children()] == ["java"], 60)
    (jvm,) = seen.children()
    try:
        program.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(program.wait(), 60) != 0
        jvm.wait(20)
    finally:
        if jvm.is_running():
            jvm.kill()
