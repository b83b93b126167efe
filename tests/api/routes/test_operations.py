"""Triggering snapshots: every answer of the route, and every bad input it can meet."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from fastapi.testclient import TestClient

from snapreplay.service.core.phase import Phase
from tests.support.fake_control import LIVE, FakeControl

PATHS = pytest.mark.parametrize("path", ["/trigger-snapshot", "/api/v1/snapshots"])
JSON = {"Content-Type": "application/json"}


def problem(response: Any, status: int, name: str) -> dict[str, Any]:
    """The problem document of a response, checked to be one of this status and kind."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = response.json()
    assert document["type"] == f"urn:snapreplay:problem:{name}"
    assert document["status"] == status
    assert document["instance"] == response.request.url.path
    return document


ACCEPTED = {
    "/trigger-snapshot": ({"partitions": [0], "reason": "deploy"}, ("snapshot", "deploy", 0)),
    "/api/v1/snapshots": ({"partitions": [0], "reason": "deploy"}, ("snapshot", "deploy", 0)),
    "/api/v1/partitions/2/retry": (None, ("retry", "", 2)),
    "/api/v1/partitions/0/adopt": ({"manifest_offset": 42}, ("adopt", "manifest at offset 42", 0)),
}


@pytest.mark.parametrize("path", ACCEPTED)
def test_what_is_asked_for_is_accepted_with_location_and_operation(client, path):
    """Of a partition that is live, or failed for a retry: 202, where to follow it, and the operation itself."""
    body, expected = ACCEPTED[path]
    response = client.post(path, json=body)
    assert response.status_code == 202
    operation = response.json()
    (part,) = operation["parts"]
    assert (operation["kind"], operation["reason"], part["partition"]) == expected
    assert response.headers["location"] == f"/api/v1/operations/{operation['id']}"
    assert response.headers["retry-after"] == "1"
    assert client.get(response.headers["location"]).json() == operation


@PATHS
@pytest.mark.parametrize("body", [b"", b"{}", b"null", b'{"partitions": null}'])
def test_trigger_without_partitions_means_all_live_ones(client, path, body):
    """No body, an empty one and null all ask for every live partition, and only those."""
    response = client.post(path, content=body, headers=JSON)
    assert response.status_code == 202
    assert [part["partition"] for part in response.json()["parts"]] == [0]


@pytest.mark.parametrize("partitions", [[0, 0], [0.0]], ids=["twice", "a whole float"])
def test_a_partition_is_asked_once_however_it_is_named(client, partitions):
    """JSON has one kind of number: 0.0 is the integer 0 to it."""
    parts = client.post("/trigger-snapshot", json={"partitions": partitions}).json()["parts"]
    assert [part["partition"] for part in parts] == [0]


def test_unknown_partition_is_404_and_says_how_many_there_are(client, control):
    """A partition beyond the count: 404 with the count; nothing was started."""
    response = client.post("/trigger-snapshot", json={"partitions": [0, 6]})
    document = problem(response, 404, "unknown-partition")
    assert document["detail"] == "partition 6 does not exist: there are 6 (0 to 5)"
    assert document["partition_count"] == 6
    assert control.operations() == []


@pytest.mark.parametrize(
    ("partition", "reason"),
    [(5, "another process owns it"), (1, "it is loading, not live"), (2, "it is failed, not live")],
)
def test_unowned_or_not_live_partition_is_409(client, partition, reason):
    """A partition that exists but cannot be written here and now: 409 with the reason."""
    response = client.post("/trigger-snapshot", json={"partitions": [partition]})
    document = problem(response, 409, "partition-not-live")
    assert document["detail"] == f"partition {partition}: {reason}"
    assert document["partition"] == partition
    assert "restore-status" in document["hint"]


def test_busy_partition_is_409_with_the_running_operation(client, control):
    """A snapshot that runs already: 409 naming the operation to follow."""
    control.running[0] = "op-7"
    document = problem(
        client.post("/trigger-snapshot", json={"partitions": [0]}), 409, "snapshot-running"
    )
    assert document["operation_id"] == "op-7"
    assert document["hint"] == "GET /api/v1/operations/op-7 shows it"


def test_nothing_live_is_409(client, control):
    """All, when there is none that is live: refused, not an empty success."""
    control.statuses = {0: msgspec.structs.replace(LIVE, phase=Phase.FENCING)}
    problem(client.post("/trigger-snapshot"), 409, "nothing-live")


@pytest.mark.parametrize("body", [{}, {"partitions": [0]}])
def test_cluster_never_reached_is_503_with_retry_after(client, control, body):
    """Before any broker answered, nobody knows the partitions: 503, come back later."""
    control.service_facts = msgspec.structs.replace(control.service_facts, partition_count=None)
    control.statuses = {}
    response = client.post("/trigger-snapshot", json=body)
    problem(response, 503, "cluster-not-reached")
    assert int(response.headers["retry-after"]) > 0


@PATHS
@pytest.mark.parametrize(
    ("body", "where"),
    [
        ('{"partitions": [false]}', "body.partitions.0"),
        ('{"partitions": [1, "0"]}', "body.partitions.1"),
        ('{"partitions": [0.5]}', "body.partitions.0"),
        ('{"partitions": [-1]}', "body.partitions.0"),
        ('{"partitions": [2147483648]}', "body.partitions.0"),
        ('{"partitions": [NaN]}', "body.partitions.0"),
        ('{"partitions": [null]}', "body.partitions.0"),
        ('{"partitions": []}', "body.partitions"),
        ('{"partitions": 0}', "body.partitions"),
        ('{"partition": [0]}', "body.partition"),
        ('{"reason": ["hunter2"]}', "body.reason"),
        ('{"reason": "\\ud800"}', "body.reason"),
        ("[]", "body"),
        ("false", "body"),
    ],
)
def test_invalid_body_is_422_and_names_the_field(client, control, path, body, where):
    """A wrong value is refused by the name of its field, never coerced, never a 500, nor echoed: it may be a secret."""
    document = problem(client.post(path, content=body, headers=JSON), 422, "invalid-request")
    assert [error["where"] for error in document["errors"]] == [where]
    assert document["detail"].startswith(f"{where}: ")
    assert "hunter2" not in str(document)
    assert control.operations() == []


@PATHS
@pytest.mark.parametrize(
    "body", [b'{"partitions":', b"{'partitions': [0]}", b"\xff\xfe{", b"[" * 100_000, b"9" * 5000]
)
def test_malformed_json_is_400(client, control, path, body):
    """Bytes that are no JSON, or too deep or too long to be read: 400, never a 500."""
    problem(client.post(path, content=body, headers=JSON), 400, "malformed-body")
    assert control.operations() == []


def test_body_not_declared_as_json_is_415_with_the_curl_option(client):
    """What `curl -d` sends by default is refused with the option that is missing."""
    response = client.post("/trigger-snapshot", data={"partitions": "0"})
    assert "Content-Type: application/json" in problem(response, 415, "media-type")["hint"]


def test_operation_is_followed_to_its_end(client: TestClient, control: FakeControl):
    """The operation's state changes where Location pointed."""
    location = client.post("/trigger-snapshot").headers["location"]
    assert client.get(location).json()["state"] == "running"
    control.finish(location.rpartition("/")[2], "succeeded")
    after = client.get(location).json()
    assert after["state"] == "succeeded"
    assert after["finished_at"].endswith("Z")
    assert after["parts"][0]["snapshot_id"] == "99cc"


@pytest.mark.parametrize("name", ["nope", "%00", "%ff", "%ED%A0%80"])
def test_unknown_operation_is_404_and_says_how_many_are_kept(client, name):
    """An operation that never was, or was evicted: 404 with the rule, whatever the bytes."""
    response = client.get(f"/api/v1/operations/{name}")
    assert response.status_code == 404
    assert response.json()["type"].endswith("unknown-operation")
    assert "1,000" in response.json()["detail"]


def test_lists_are_newest_first(client):
    """Operations and snapshots come as objects with `items`, so that paging can be added."""
    first = client.post("/trigger-snapshot").json()["id"]
    second = client.post("/trigger-snapshot").json()["id"]
    listed = client.get("/api/v1/operations").json()["items"]
    assert [each["id"] for each in listed] == [second, first]
    snapshots = client.get("/api/v1/snapshots").json()["items"]
    assert [each["snapshot_id"] for each in snapshots] == ["77aa"]
