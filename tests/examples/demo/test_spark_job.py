"""A command that runs Spark, beside the demo."""

from pathlib import Path

import pytest

from examples.demo import spark_job
from examples.demo.audit import audit
from examples.demo.failed import DemoFailed


def test_too_slow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An audit that is not done in time is one that did not finish, and is ended; it was said how long it takes."""
    monkeypatch.setattr(spark_job, "JOB_S", 0.3)
    heard: list[str] = []
    with audit("127.0.0.1:1", "examples.flights", tmp_path) as slow:
        with pytest.raises(spark_job.NotFinished, match="it did not end within 0 s"):
            slow.result(heard.append)
        assert slow.process is not None
    assert slow.process.poll() is not None
    assert heard[0] == "waiting for Spark's audit, 0 s of at most 0"


def test_not_possible(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An audit that could not run is told by the line in which it says why."""
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    with audit("127.0.0.1:1", "examples.flights", tmp_path) as broken, pytest.raises(spark_job.NotFinished) as caught:
        broken.result(lambda _line: None)
    assert str(caught.value) == (
        "it could not run (exit code 2): error: Spark needs Java 17 or newer, but there is no java command"
    )


def test_no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without java the package to install and the way round are named."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(DemoFailed, match=r"`apt-get install default-jre-headless`, or --skip-audit"):
        spark_job.check_possible()
