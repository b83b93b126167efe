"""Spark's verdict over what was written: `snapreplay audit --level replay`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from examples.demo.failed import DemoFailed
from examples.demo.spark_job import SparkJob
from examples.demo.verify import Findings


def audit(bootstrap_servers: str, app: str, work_dir: Path) -> SparkJob:
    """Make the job that folds the changes, runs the app's handlers again, and compares both with what was recorded."""
    return SparkJob("audit", [app, "--level=replay", f"--bootstrap-servers={bootstrap_servers}"], work_dir)


def read_report(said: str, code: int) -> tuple[Findings, str]:
    """Return findings and a summary, from what the command printed and its exit code.

    Raises:
        DemoFailed: there is no report, or code and report contradict each other.
    """
    try:
        report: dict[str, Any] = json.loads(said)
        found: list[dict[str, Any]] = report["findings"]
        checked: dict[str, int] = report["checked"]
    except (ValueError, KeyError) as error:
        raise DemoFailed(f"the audit ended with {code} but printed no report: {said!r}") from error
    if bool(found) != bool(code) or not checked:
        raise DemoFailed(f"the audit ended with {code}, but its report says: {said}")
    findings = Findings()
    for each in found:
        place = f"{each['topic']}-{each['partition']} offset {each['offset']}"
        findings.add(f"{each['check']}: {place}: {each['detail']}")
    if not checked.get("records_replayed"):
        findings.add("no record was replayed")
    return findings, ", ".join(f"{count:,} {name}" for name, count in checked.items() if count)
