"""Tasks whose Python workers come to harm."""

import os
import signal
from contextlib import nullcontext

import pytest

from snapreplay.snapshots.jobs.session import SPARK_ERRORS, cause
from snapreplay.snapshots.jobs.spark_tasks import for_each
from snapreplay.snapshots.proof.records import Moment

pytestmark = pytest.mark.whole

MOMENT = Moment(0, 0, 0, 0, 0)


def test_a_killed_worker_costs_one_more_attempt(spark, tmp_path) -> None:
    """As when memory runs out: the partition is done by another worker."""

    def once(_client, part):
        marker = tmp_path / "killed"
        if not marker.exists():
            marker.write_text("now")
            os.kill(os.getpid(), signal.SIGKILL)
        return part.partition

    assert for_each(spark, [MOMENT], nullcontext, once, int) == [0]
    assert (tmp_path / "killed").exists()


def test_a_worker_that_is_always_killed_is_named_in_one_line(spark) -> None:
    """With what to do about it."""
    with pytest.raises(SPARK_ERRORS) as error:
        for_each(spark, [MOMENT], nullcontext, lambda *_: os.kill(os.getpid(), 9), int)
    says, hint = cause(error.value)
    assert says.startswith("a Python worker of Spark was ended from outside: ")
    assert "Run the command again" in hint
