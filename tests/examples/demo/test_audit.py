"""What the demo makes of the audit's words."""

import json
from pathlib import Path

import pytest

from examples.demo import audit
from examples.demo.failed import DemoFailed

FINDING = {"check": "digest", "topic": "t", "partition": 2, "offset": 7, "detail": "is not"}


def report(*findings: object) -> str:
    """A report as `snapreplay audit --output json` prints it."""
    return json.dumps({"findings": findings, "checked": {"claims": 12, "chunks": 0}})


def test_fine() -> None:
    """Code 0 without findings holds, and says what was looked at."""
    findings, looked_at = audit.read_report(report(), 0)
    assert (findings.count, looked_at) == (0, "12 claims")


def test_findings() -> None:
    """Each finding is told with its place."""
    findings, _ = audit.read_report(report(FINDING), 1)
    assert findings.first == ["digest: t-2 offset 7: is not"]


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (report(), 1),
        (report(FINDING), 0),
        ("", 0),
        ("{}", 0),
        (json.dumps({"findings": [], "checked": {}}), 0),
    ],
    ids=["code without finding", "finding without code", "silence", "no report", "nothing checked"],
)
def test_doubtful(said: str, code: int) -> None:
    """A report that contradicts its exit code, or looked at nothing, is no verdict."""
    with pytest.raises(DemoFailed):
        audit.read_report(said, code)


def test_too_slow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An audit that is not done in time is one that did not finish, and is ended; it was said how long it takes."""
    monkeypatch.setattr(audit, "AUDIT_S", 0.3)
    heard: list[str] = []
    with audit.Audit("127.0.0.1:1", "nobody", tmp_path) as slow:
        with pytest.raises(audit.NotFinished, match="it did not end within 0 s"):
            slow.verdict(heard.append)
        assert slow._process is not None
    assert slow._process.poll() is not None
    assert heard[0] == "waiting for Spark's audit, 0 s of at most 0"


def test_not_possible(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An audit that could not run is told by the line in which it says why."""
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    with (
        audit.Audit("127.0.0.1:1", "nobody", tmp_path) as broken,
        pytest.raises(audit.NotFinished) as caught,
    ):
        broken.verdict(lambda _line: None)
    assert str(caught.value) == (
        "it could not run (exit code 2): error: Spark needs Java 17 or newer, but there is no java command"
    )


def test_no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without java the package to install and the way round are named."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(
        DemoFailed, match=r"`apt-get install default-jre-headless`, or --skip-audit"
    ):
        audit.check_possible()
