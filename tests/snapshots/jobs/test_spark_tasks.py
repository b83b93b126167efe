"""Tasks whose Python workers come to harm."""

import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import msgspec
import pytest

from snapreplay.snapshots.jobs.session import SPARK_ERRORS, cause
from snapreplay.snapshots.jobs.spark_tasks import for_each
from tests.support.deadlines import scaled


class Numbered(msgspec.Struct, frozen=True):
    partition: int


def test_a_killed_worker_costs_one_more_attempt(spark, tmp_path) -> None:
    """As when memory runs out: the partition is done by another worker."""

    def once(_client, part):
        marker = tmp_path / "killed"
        if not marker.exists():
            marker.write_text("now")
            os.kill(os.getpid(), signal.SIGKILL)
        return part.partition

    assert for_each(spark, [Numbered(0)], nullcontext, once, int) == [0]
    assert (tmp_path / "killed").exists()


def test_a_worker_that_is_always_killed_is_named_in_one_line(spark) -> None:
    """With what to do about it."""
    with pytest.raises(SPARK_ERRORS) as error:
        for_each(spark, [Numbered(0)], nullcontext, lambda *_: os.kill(os.getpid(), 9), int)
    says, hint = cause(error.value)
    assert says.startswith("a Python worker of Spark was ended from outside: ")
    assert "Run the command again" in hint


PROGRAM = """
from contextlib import nullcontext
from snapreplay.snapshots.jobs.session import spark_session
from snapreplay.snapshots.jobs.spark_tasks import for_each
from tests.snapshots.jobs.test_spark_tasks import Numbered, imported

with spark_session("one", "local[1]") as spark:
    print(for_each(spark, [Numbered(0)], nullcontext, imported, str))
"""


def imported(*_: object) -> str:
    """Import, in a worker, the package that is installed for this interpreter only."""
    import snapreplay

    return f"{sys.executable} {snapreplay.__name__}"


@pytest.mark.whole
@pytest.mark.spark
def test_a_local_master_runs_this_interpreter() -> None:
    """The first `python3` on the PATH may have no snapreplay."""
    path = os.pathsep.join(["/usr/bin", "/bin", os.environ["PATH"]])
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYSPARK")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**environment, "PATH": path},
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=scaled(120),
        check=False,
    )
    assert f"['{sys.executable} snapreplay']" in done.stdout, done.stderr[-2000:]
