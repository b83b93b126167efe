"""Probes, metrics and facts."""

from __future__ import annotations

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open
from prometheus_client.parser import text_string_to_metric_families as parse_plain

from snapreplay.service.control.protocol import Check
from tests.support.fake_control import LIVE


def test_liveness_lists_its_checks(client):
    """200 with every check, though partitions are restoring and one failed; nor is that waited for at the start."""
    assert client.get("/startupz").status_code == 200
    response = client.get("/healthz")
    assert response.status_code == 200
    assert response.json()["status"] == "ok"
    assert [check["name"] for check in response.json()["checks"]] == [
        "service process",
        "loop",
        "progress",
    ]


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
    (check,) = client.get("/readyz").json()["checks"]
    assert check["name"] == "service process"
    assert check["ok"]


def test_facts(client):
    """Who runs here, of which cluster."""
    facts = client.get("/api/v1").json()
    named = [facts[name] for name in ("app_id", "cluster_id", "partition_count")]
    assert named == ["ledger", "cluster-1", 6]


@pytest.mark.parametrize(
    ("accept", "media", "parse"),
    [
        ("", "text/plain; version=", parse_plain),
        ("application/openmetrics-text; version=1.0.0", "application/openmetrics-text", parse_open),
    ],
)
def test_metrics_are_given_in_the_format_that_is_asked_for(client, accept, media, parse):
    """With a value of `Control` as it is now; OpenMetrics' parser is strict about names and units."""
    response = client.get("/metrics", headers={"Accept": accept})
    assert response.headers["content-type"].startswith(media)
    samples = {
        (sample.name, sample.labels.get("partition")): sample.value
        for family in parse(response.text)
        for sample in family.samples
    }
    assert samples["snapreplay_input_lag_records", "0"] == 22
