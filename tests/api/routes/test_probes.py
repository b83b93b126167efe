"""Probes, metrics and facts."""

from __future__ import annotations

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open
from prometheus_client.parser import text_string_to_metric_families as parse_plain

from snapreplay.service.control.protocol import Check
from tests.support.fake_control import LIVE


def test_liveness_lists_its_checks(client):
    """200 with every check, though partitions are restoring and one failed."""
    response = client.get("/healthz")
    assert response.status_code == 200
    assert response.json()["status"] == "ok"
    assert [check["name"] for check in response.json()["checks"]] == ["loop", "progress"]


@pytest.mark.parametrize("path", ["/healthz", "/startupz"])
def test_liveness_fails_with_the_loop(client, control, path):
    """503 when a check fails, and the failing one says why."""
    control.checks = [Check("loop", ok=False, detail="did not turn for 61 s")]
    response = client.get(path)
    assert response.status_code == 503
    assert response.json()["status"] == "failing"
    assert response.json()["checks"][-1]["detail"] == "did not turn for 61 s"


def test_readiness_follows_the_partitions(client, control):
    """Not ready while one partition is not live, ready when all are, ready without any."""
    assert client.get("/readyz").status_code == 503
    control.statuses = {0: LIVE}
    assert client.get("/readyz").status_code == 200
    control.statuses = {}
    assert client.get("/readyz").json() == {"status": "ok", "checks": []}


def test_startup_does_not_wait_for_restores(client):
    """Started as soon as HTTP answers and the loops turn."""
    assert client.get("/startupz").status_code == 200


def test_facts(client):
    """Who runs here, of which cluster."""
    facts = client.get("/api/v1").json()
    assert (facts["app_id"], facts["cluster_id"], facts["partition_count"]) == (
        "ledger",
        "cluster-1",
        6,
    )


def test_metrics_parse_as_prometheus_text(client):
    """The default format parses, and holds a value of `Control` as it is now."""
    response = client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=")
    samples = {
        (sample.name, sample.labels.get("partition")): sample.value
        for family in parse_plain(response.text)
        for sample in family.samples
    }
    assert samples["snapreplay_input_lag_records", "0"] == 22


def test_metrics_parse_as_openmetrics(client):
    """OpenMetrics is given to who asks for it; its parser is strict about names and units."""
    accept = {"Accept": "application/openmetrics-text; version=1.0.0"}
    response = client.get("/metrics", headers=accept)
    assert response.headers["content-type"].startswith("application/openmetrics-text")
    names = {family.name for family in parse_open(response.text)}
    assert {"snapreplay_partition_phase", "snapreplay_records"} <= names
