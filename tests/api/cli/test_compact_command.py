"""What a compaction prints, and the service it tells. The compaction itself: tests/snapshots/jobs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from snapreplay.api.cli.compact_command import Service, print_report
from snapreplay.api.cli.exits import ExitCode, OperationRefused
from snapreplay.api.cli.output import Format
from snapreplay.errors import StopError
from snapreplay.snapshots.jobs.outcomes import CompactionReport, Outcome, PartitionResult

PROPOSED = PartitionResult(
    0, Outcome.PROPOSED, 42, 170, "5c1dd0a4", 61, "a0", 12, entries=1500, chunks=3, size_bytes=2048,
    bridged=[123],
)  # fmt: skip
REFUSED = PartitionResult(1, Outcome.NOT_POSSIBLE, reason="no changes", hint="name the app")
REPORT = CompactionReport("ledger", [PROPOSED, REFUSED], 8.25)


def test_table_says_what_became_of_each_partition(capsys):
    """A row each, the reasons below, and a verdict in the last line."""
    print_report(REPORT, Format.TABLE)
    lines = capsys.readouterr().out.splitlines()
    row = next(line for line in lines if "5c1dd0a4" in line)
    assert " ".join(row.split()) == "0 proposed 42 12 1,500 3 2,048 5c1dd0a4"
    assert lines[-4:] == [
        "partition 0: the increment at offset 123 cannot be read; the digest of a later batch shows that no change is"
        " missing",
        "partition 1: no changes",
        " hint: name the app",
        "ledger: 2 partitions: 1 proposed, 1 not possible (8.2 s)",
    ]


def test_json_is_the_whole_report(capsys):
    """Nothing is lost on the way to a script."""
    print_report(REPORT, Format.JSON)
    document = json.loads(capsys.readouterr().out)
    assert document["partitions"][0]["manifest_offset"] == 61
    assert document["partitions"][1]["outcome"] == "not possible"


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        ([], 0),
        (["proposed", "adopted", "superseded", "nothing to do"], 0),
        (["proposed", "rejected"], 1),
        (["waiting"], 1),
        (["not possible"], 1),
    ],
)
def test_exit_code_is_that_of_the_report(invoke, monkeypatch, outcomes, code):
    """0: every partition has a proposal or needs none."""
    results = [PartitionResult(n, Outcome(each)) for n, each in enumerate(outcomes)]
    report = CompactionReport("ledger", results, 1.0)
    monkeypatch.setattr("snapreplay.spark.compact", lambda *_, **__: report)
    assert invoke("compact", "--app-id", "ledger").exit_code == code


@pytest.mark.parametrize("error", [StopError("Spark stopped"), RuntimeError("the JVM is gone")])
def test_a_job_that_breaks_could_not_run(invoke, monkeypatch, error):
    """Exit code 2, with the reason; never 1, which is about partitions."""

    def broken(*_arguments, **_options):
        raise error

    monkeypatch.setattr("snapreplay.spark.compact", broken)
    result = invoke("compact", "--app-id", "ledger")
    assert result.exit_code == 2
    assert str(error) in result.stderr


@pytest.mark.parametrize("arguments", [[], ["app.py", "--app-id", "x"]])
def test_app_or_app_id(invoke, arguments):
    """Exactly one of them: exit code 2 and how."""
    result = invoke("compact", *arguments)
    assert result.exit_code == 2
    assert "--app-id" in result.stderr


class Client:
    """A service that owns partition 0 only, and rejects."""

    def adopt(self, partition: int, manifest_offset: int) -> Any:
        if partition != 0:
            raise OperationRefused("not mine", hint="", code=ExitCode.FINDINGS)
        return self.operation(f"op-{manifest_offset}")

    def operation(self, operation_id: str) -> Any:
        part = {"partition": 0, "state": "failed", "detail": f"{operation_id}: superseded"}
        return {"id": operation_id, "state": "failed", "parts": [part]}


def test_the_service_is_told_and_asked(capsys):
    """What it does not own is noted, and waited for in the log."""
    client: Any = Client()
    service = Service(client)
    service.tell(0, 61)
    service.tell(1, 70)
    assert service.rejection(0, 61) == "op-61: superseded"
    assert service.rejection(1, 70) is None
    assert "partition 1: its owner was not told: not mine" in capsys.readouterr().err
