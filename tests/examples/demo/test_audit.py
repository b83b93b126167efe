"""Tests of what the demo makes of the audit's words."""

import json

import pytest

from examples.demo import audit
from examples.demo.failed import DemoFailed

FINDING = {"check": "digest", "topic": "t", "partition": 2, "offset": 7, "detail": "is not"}


def report(*findings: object, replayed: int = 5) -> str:
    """A report as `snapreplay audit --output json` prints it."""
    return json.dumps({"findings": findings, "checked": {"claims": 12, "chunks": 0, "records_replayed": replayed}})


def test_fine() -> None:
    """Code 0 without findings holds, and says what was looked at."""
    findings, looked_at = audit.read_report(report(), 0)
    assert (findings.count, looked_at) == (0, "12 claims, 5 records_replayed")


def test_findings() -> None:
    """Each finding is told with its place."""
    findings, _ = audit.read_report(report(FINDING), 1)
    assert findings.first == ["digest: t-2 offset 7: is not"]


def test_nothing_replayed() -> None:
    """No finding, but the handlers were not run again: that proves less than the demo says."""
    findings, _ = audit.read_report(report(replayed=0), 0)
    assert findings.first == ["no record was replayed"]


@pytest.mark.parametrize(
    ("said", "code"),
    [(report(), 1), (report(FINDING), 0), ("", 0), ("{}", 0), (json.dumps({"findings": [], "checked": {}}), 0)],
    ids=["code without finding", "finding without code", "silence", "no report", "nothing checked"],
)
def test_doubtful(said: str, code: int) -> None:
    """A report that contradicts its exit code, or looked at nothing, is no verdict."""
    with pytest.raises(DemoFailed):
        audit.read_report(said, code)
