"""Tests of what an audit and a compaction print, and the request to the service. The jobs themselves:
tests/snapshots/jobs."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from snapreplay.api.cli.output import Format
from snapreplay.api.cli.spark_commands import print_audit, print_compaction
from snapreplay.snapshots.jobs.compaction import CompactionReport, Outcome, PartitionResult
from snapreplay.snapshots.proof.report import AuditReport, Level, RecordedDecision, Violation

CLEAN = AuditReport("ledger", 4, {"increments": 1200}, [], {"orphans": 1}, 8.25)
VIOLATION = Violation("crc32", "ledger-snapshots", 2, 17, "differs")
FOUND = AuditReport("ledger", 4, {"increments": 3}, [VIOLATION], {}, 1)

ROOT = Path(__file__).resolve().parents[3]


def test_table_says_what_was_checked(capsys):
    """A clean audit shows what it looked at: "no findings" alone could mean that it saw nothing."""
    print_audit(CLEAN, Format.TABLE)
    shown = capsys.readouterr().out
    assert "1,200" in shown
    assert "note: orphans" in shown
    assert shown.splitlines()[-1] == "ledger: no findings in 4 partitions (8.2 s)"


def test_table_says_where_a_finding_is(capsys):
    """A finding has topic, partition and offset of the record to look at."""
    print_audit(FOUND, Format.TABLE)
    shown = capsys.readouterr().out
    row = next(line for line in shown.splitlines() if "crc32" in line)
    assert " ".join(row.split()) == "crc32 ledger-snapshots 2 17 differs"
    assert "ledger: 1 finding in" in shown


def test_table_tells_what_operators_accepted(capsys):
    """No findings, but not without a word: partition, offset, who and why."""
    decision = RecordedDecision(2, 17, "input-gap-1", "continues at 130", "outage", "ada@here")
    print_audit(AuditReport("ledger", 4, {}, [], {}, 1, [decision]), Format.TABLE)
    shown = capsys.readouterr().out
    row = next(line for line in shown.splitlines() if "input-gap-1" in line)
    assert " ".join(row.split()) == "2 17 input-gap-1 ada@here outage continues at 130"
    assert "no findings" in shown


def test_an_audit_without_spark_has_the_same_verdicts(invoke, monkeypatch):
    """Its engine is named."""
    asked = []

    def audit(*arguments, **options):
        asked.append((*arguments[1:], options))
        return FOUND

    monkeypatch.setattr("snapreplay.snapshots.jobs.audit.audit", audit)
    assert invoke("audit", "--app-id", "ledger", "--engine", "python").exit_code == 1
    assert asked == [("ledger", "integrity", None, {})]


@pytest.mark.parametrize("command", ["audit", "compact"])
@pytest.mark.parametrize("arguments", [[], ["app.py", "--app-id", "x"]])
def test_app_or_app_id(invoke, command, arguments):
    """Exactly one of them: exit code 2 and how."""
    result = invoke(command, *arguments)
    assert result.exit_code == 2
    assert "--app-id" in result.stderr


@pytest.mark.parametrize("command", ["audit", pytest.param("compact", marks=pytest.mark.whole)])
def test_without_spark_it_says_what_to_install(tmp_path, command):
    """The service's image has no Spark: exit code 2, could not run, and the extra to install."""
    code = (
        "import sys; sys.modules['pyspark'] = None;"
        f"sys.argv[1:] = ['{command}', '--app-id', 'x'];"
        "from snapreplay.api.cli import main; main()"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "snapreplay[spark]" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("job", ["audit", pytest.param("compact", marks=pytest.mark.whole)])
def test_without_java_it_says_so_before_it_asks_anybody(tmp_path, job):
    """Exit code 2. In a process of its own: a session that runs already needs no Java."""
    environment = {**os.environ, "PATH": str(tmp_path), "PYTHONPATH": str(ROOT)}
    environment.pop("JAVA_HOME", None)
    command = [sys.executable, "-m", "snapreplay.api.cli", job, "--app-id", "ledger"]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stderr.splitlines() == [
        "error: Spark needs Java 17 or newer, but there is no java command",
        " hint: `apt-get install default-jre-headless`",
    ]


def test_service_settings_reach_the_audit(invoke, monkeypatch):
    """Cluster, app id and the client's other properties are those of the settings."""
    seen: list[Any] = []

    def audit(*arguments, **options):
        seen.extend([*arguments, options])
        return CLEAN

    monkeypatch.setattr("snapreplay.spark.audit", audit)
    options = ["--bootstrap-servers", "k:1", "--set", "kafka.client.id=me"]
    assert invoke("audit", "--app-id", "ledger", "--level", "changes", *options).exit_code == 0
    settings, app_id, level, app, _ = seen
    assert settings.kafka == {"bootstrap.servers": "k:1", "client.id": "me"}
    assert (app_id, level, app) == ("ledger", Level.CHANGES, None)


PROPOSED = PartitionResult(
    0, Outcome.PROPOSED, 42, 170, "5c1dd0a4", 61, "a0", 12, entries=1500, chunks=3, size_bytes=2048,
    bridged=[123],
)  # fmt: skip
REFUSED = PartitionResult(1, Outcome.NOT_POSSIBLE, reason="no changes", hint="name the app")
REPORT = CompactionReport("ledger", [PROPOSED, REFUSED], 8.25)


def test_compaction_table_says_what_became_of_each_partition(capsys):
    """A row each, the reasons below, and a verdict in the last line."""
    print_compaction(REPORT, Format.TABLE)
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
    print_audit(FOUND, Format.JSON)
    print_compaction(REPORT, Format.JSON)
    audited, compacted = map(json.loads, capsys.readouterr().out.splitlines())
    assert (audited["findings"][0]["offset"], audited["checked"]) == (17, {"increments": 3})
    assert compacted["partitions"][0]["manifest_offset"] == 61
    assert compacted["partitions"][1]["outcome"] == "not possible"


@pytest.mark.parametrize(
    ("outcomes", "code"), [([], 0), (["proposed", "superseded", "nothing to do"], 0), (["not possible"], 1)]
)
def test_exit_code_is_that_of_the_report(invoke, monkeypatch, outcomes, code):
    """0: every partition has a proposal or needs none."""
    results = [PartitionResult(n, Outcome(each)) for n, each in enumerate(outcomes)]
    report = CompactionReport("ledger", results, 1.0)
    monkeypatch.setattr("snapreplay.spark.compact", lambda *_, **__: report)
    assert invoke("compact", "--app-id", "ledger").exit_code == code
