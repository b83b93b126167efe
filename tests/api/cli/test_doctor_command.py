"""The doctor's report on the command line. What it looks at: tests/service/doctor."""

from __future__ import annotations

import json

import pytest

from snapreplay.service.doctor.facts import Diagnosis
from snapreplay.service.doctor.report import DoctorReport

LOOKED_AT = {"checks": 19, "brokers": 3}
FINE = DoctorReport("ledger", LOOKED_AT, [], 0.42)
FINDING = Diagnosis("retention", "ledger-snapshots", "[kept] 7 days", "alter it")
SICK = DoctorReport("ledger", LOOKED_AT, [FINDING], 1)


@pytest.fixture
def reporting(monkeypatch):
    """`reporting(report)`: what the cluster looks like; returns what the command asked with."""

    def make(report):
        asked = []

        async def examine(app, settings):
            asked.append((app, settings))
            if isinstance(report, Exception):
                raise report
            return report

        monkeypatch.setattr("snapreplay.service.doctor.collect.examine", examine)
        return asked

    return make


def test_fine_is_0_and_says_what_was_looked_at(invoke, ledger, reporting):
    """The app is loaded, the settings are those of the options."""
    asked = reporting(FINE)
    result = invoke("doctor", ledger, "--bootstrap-servers", "k:1")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == "ledger: no findings (0.4 s)"
    assert "checks" in result.stdout
    ((app, settings),) = asked
    assert (app.app_id, settings.bootstrap_servers) == ("ledger", ["k:1"])


def test_findings_are_1_each_with_its_remedy(invoke, ledger, reporting):
    """What, where, the value, the remedy, as they are: brackets are no markup. For a script the whole report."""
    reporting(SICK)
    result = invoke("doctor", ledger)
    assert result.exit_code == 1
    shown = result.stdout.splitlines()
    at = shown.index("retention: ledger-snapshots")
    assert shown[at + 1 : at + 3] == ["  [kept] 7 days", "  remedy: alter it"]
    assert "ledger: 1 finding (" in shown[-1]

    document = json.loads(invoke("doctor", ledger, "--output", "json").stdout)
    assert document["findings"][0]["remedy"] == "alter it"
    assert document["looked_at"] == LOOKED_AT


def test_without_an_app_the_cluster_alone(invoke, reporting):
    """No app is loaded."""
    asked = reporting(DoctorReport(None, LOOKED_AT, [], 0.1))
    result = invoke("doctor")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1].startswith("cluster: no findings")
    assert asked[0][0] is None


def test_what_could_not_run_is_2(invoke, reporting, nobody_there):
    """No broker, a wrong app, a defect: never 1, which means findings."""
    nobody = invoke("doctor", "--bootstrap-servers", nobody_there)
    assert nobody.exit_code == 2
    assert "error:" in nobody.stderr
    assert invoke("doctor", "no_such_module:app").exit_code == 2
    reporting(RuntimeError("broken"))
    broken = invoke("doctor")
    assert broken.exit_code == 2
    assert "broken" in broken.stderr
