"""Tests of what HTTP shows of each partition."""

from __future__ import annotations

import msgspec
import pytest

from snapreplay.service.control.status import RejectedProposal
from snapreplay.service.core.phase import Phase
from tests.api.routes.test_operations import problem
from tests.support.fake_control import ASSIGNED, LIVE, NOW


@pytest.mark.parametrize("path", ["/restore-status", "/api/v1/restore"])
def test_restore_status_of_a_finished_recovery(client, path):
    """A live partition shows its recovery whole: mode, snapshot, fallback, phases, proof."""
    shown = client.get(path).json()["partitions"][0]
    named = [shown[name] for name in ("phase", "percent", "mode", "attempts", "owner_epoch")]
    assert named == ["live", 100, "changes", 1, 130]
    assert shown["snapshot"]["snapshot_id"] == "5c1d"
    assert shown["fallback_from"] == "88bb"
    assert "crc32" in shown["fallback_reason"]
    assert shown["seconds_per_phase"] == {"fencing": 0.02, "loading": 0.9}
    assert shown["proof"] == {
        "recorded": "1100:0a:0b",
        "computed": "1100:0a:0b",
        "equal": True,
        "batches_compared": 14,
    }
    assert shown["finished_at"] == "2026-11-18T11:05:01.500000Z"


def test_restore_status_of_a_running_recovery(client):
    """A loading partition shows from, current, target, remaining, percent, rate and ETA."""
    shown = client.get("/restore-status").json()["partitions"][1]
    amounts = {"from": 0, "current": 1024, "target": 4096, "remaining": 3072, "percent": 25.0}
    speed = {"rate_per_second": 512.0, "eta_seconds": 6.0}
    assert shown["progress"] == {"unit": "bytes", **amounts, **speed}
    assert (shown["attempts"], shown["proof"], shown["finished_at"]) == (2, None, None)


def test_restore_status_of_a_failed_partition(client):
    """A failed partition carries the error with record and hint, also before any recovery."""
    shown = client.get("/restore-status").json()["partitions"][2]
    assert shown["error"]["record_id"] == "payments-2-7"
    assert shown["error"]["hint"] == "deploy a fixed handler"
    assert (shown["attempts"], shown["started_at"]) == (0, None)


def test_summary_counts_phases_and_averages(client):
    """The summary: partitions by phase, the mean, and not all live."""
    summary = client.get("/restore-status").json()["summary"]
    assert summary["partitions_by_phase"] == {"live": 1, "loading": 1, "failed": 1, "assigned": 1}
    assert summary["all_live"] is False
    assert summary["percent"] == pytest.approx((100 + 12.5 + 0 + 0) / 4)


def test_summary_leaves_out_what_was_handed_over(client, control):
    """A closed partition is listed, but no reason to call the rest not live."""
    closed = msgspec.structs.replace(ASSIGNED, phase=Phase.CLOSED)
    control.statuses = {0: LIVE, 3: closed}
    status = client.get("/restore-status").json()
    assert status["summary"]["all_live"] is True
    assert [each["phase"] for each in status["partitions"]] == ["live", "closed"]


def test_summary_before_any_assignment(client, control):
    """Without partitions it answers, and a script that waits for `all_live` goes on waiting."""
    control.statuses = {}
    assert client.get("/restore-status").json()["summary"] == {
        "partitions_by_phase": {},
        "all_live": False,
        "percent": None,
    }


def test_partition_shows_position_state_and_age(client):
    """One partition: inputs with lag, sizes, newest snapshot, age of the last progress."""
    shown = client.get("/api/v1/partitions/0").json()
    assert shown["inputs"][0] == {
        "topic": "payments",
        "position": 500,
        "end_offset": 520,
        "lag": 20,
    }
    assert (shown["batch"], shown["state_entries"], shown["state_bytes"]) == (60, 1200, 50_000)
    assert shown["stores"][0] == {
        "name": "carts",
        "entries": 200,
        "size_bytes": 20_000,
        "largest_entry_bytes": 90,
        "next_due_ms": 1_000_500,
    }
    assert shown["snapshot"]["state"] == "pointed"
    assert shown["progress_age_seconds"] == 0.5


@pytest.mark.parametrize(
    ("partition", "name"), [("5", "partition-not-here"), ("6", "unknown-partition")]
)
def test_partition_elsewhere_or_nowhere_is_404(client, partition, name):
    """Owned by another process and non-existent are told apart."""
    response = client.get(f"/api/v1/partitions/{partition}")
    assert response.status_code == 404
    assert response.json()["type"] == f"urn:snapreplay:problem:{name}"
    assert response.json()["partition_count"] == 6


def test_partition_before_the_cluster_was_reached_is_503(client, control):
    """Nobody knows yet whether it exists: 503, not 404."""
    control.statuses = {}
    control.service_facts = msgspec.structs.replace(control.service_facts, partition_count=None)
    response = client.get("/api/v1/partitions/0")
    assert response.status_code == 503
    assert response.headers["retry-after"] == "5"


@pytest.mark.parametrize("name", ["abc", "false", "1.0", "+1", "1_0", "%201", "00", "-1", "9" * 11])
def test_partition_has_one_spelling(client, name):
    """What int() would take but nobody means is 422, so that each partition has one URL."""
    response = client.get(f"/api/v1/partitions/{name}")
    assert response.status_code == 422
    assert response.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("partition", "status", "name"),
    [
        ("0", 409, "partition-not-failed"),
        ("5", 404, "partition-not-here"),
        ("6", 404, "unknown-partition"),
        ("x", 422, "invalid-request"),
    ],
)
def test_retry_refuses_what_did_not_fail_here(client, control, partition, status, name):
    """By name; nothing was started."""
    problem(client.post(f"/api/v1/partitions/{partition}/retry"), status, name)
    assert control.operations() == []


def test_one_retry_at_a_time(client, control):
    """A second one names the first."""
    control.running[2] = "op-7"
    document = problem(client.post("/api/v1/partitions/2/retry"), 409, "retry-running")
    assert document["detail"] == "a retry of partition 2 is already running"
    assert document["operation_id"] == "op-7"


@pytest.mark.parametrize(
    ("partition", "status", "name"),
    [(9, 404, "unknown-partition"), (4, 409, "partition-not-live"), (1, 409, "partition-not-live")],
)
def test_an_adoption_needs_a_live_partition_here(client, partition, status, name):
    """Only its owner can judge and point."""
    body = {"manifest_offset": 42}
    problem(client.post(f"/api/v1/partitions/{partition}/adopt", json=body), status, name)


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"manifest_offset": -1},
        {"manifest_offset": 2**53},
        {"manifest_offset": "7"},
        {"manifest_offset": None},
    ],
)
def test_an_adoption_needs_an_offset(client, body):
    """Nothing is started otherwise."""
    problem(client.post("/api/v1/partitions/0/adopt", json=body), 422, "invalid-request")


def test_one_adoption_at_a_time(client, control):
    """Another one of the same partition is refused, with the operation to look at."""
    control.running[0] = "op-7"
    response = client.post("/api/v1/partitions/0/adopt", json={"manifest_offset": 42})
    document = problem(response, 409, "adoption-running")
    assert document["detail"] == "an adoption of partition 0 is already running"


def test_a_rejected_proposal_is_shown_with_its_reason(client, control):
    """Offset, reason and sentence."""
    rejected = RejectedProposal(42, "superseded", "it is of batch 3", NOW)
    control.statuses = {0: msgspec.structs.replace(LIVE, rejected_proposals=(rejected,))}
    (shown,) = client.get("/api/v1/partitions/0").json()["rejected_proposals"]
    assert (shown["manifest_offset"], shown["reason"]) == (42, "superseded")
    assert shown["detail"] == "it is of batch 3"
