"""All routes: every answer, and every bad input that they can meet."""

from typing import Any

import msgspec
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open
from prometheus_client.parser import text_string_to_metric_families as parse_plain

from snapreplay.api import views
from snapreplay.service.control.protocol import Check
from tests.support.fake_control import LIVE

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
    "/api/v1/partitions/2/retry": (None, ("retry", "", 2)),
    "/api/v1/partitions/0/pause": ({"reason": "repairs"}, ("pause", "repairs", 0)),
    "/api/v1/partitions/0/resume": (None, ("resume", "", 0)),
    "/api/v1/partitions/0/drill": (None, ("drill", "", 0)),
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


def test_an_operation_is_cancelled_once_and_shown_so(client):
    """The same request again finds it cancelled; one that has ended otherwise is refused with the reason."""
    operation = client.post("/api/v1/partitions/0/drill").json()["id"]
    for _ in range(2):
        response = client.delete(f"/api/v1/operations/{operation}")
        assert (response.status_code, response.json()["state"]) == (202, "cancelled")
        assert response.json()["parts"][0]["detail"] == "cancelled by somebody at testclient"
    assert client.get(f"/api/v1/operations/{operation}").json()["state"] == "cancelled"
    pause = client.post("/api/v1/partitions/0/pause").json()["id"]
    document = problem(client.delete(f"/api/v1/operations/{pause}"), 409, "operation-not-cancellable")
    assert "`snapreplay resume` undoes it" in document["detail"]
    assert document["operation_id"] == pause
    problem(client.delete("/api/v1/operations/nothing"), 404, "unknown-operation")


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


@pytest.mark.parametrize(
    ("path", "partition", "body", "what"),
    [
        ("/trigger-snapshot", 0, {"partitions": [0]}, "a snapshot"),
        ("/api/v1/partitions/2/retry", 2, None, "a retry"),
        ("/api/v1/partitions/0/pause", 0, None, "a pause"),
        ("/api/v1/partitions/0/drill", 0, None, "a drill"),
        ("/api/v1/partitions/0/resume", 0, None, "a resume"),
        ("/api/v1/partitions/0/adopt", 0, {"manifest_offset": 42}, "an adoption"),
    ],
)
def test_busy_partition_is_409_with_the_running_operation(client, path, partition, body, what):
    """One of a kind at a time: 409 naming the operation to follow."""
    running = client.post(path, json=body).json()["id"]
    document = problem(client.post(path, json=body), 409, "operation-running")
    assert document["detail"] == f"{what} of partition {partition} is already running"
    assert document["operation_id"] == running
    assert document["hint"] == f"GET /api/v1/operations/{running} shows it"


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
def test_invalid_body_is_422_and_names_the_field(client, control, body, where):
    """A wrong value is refused by the name of its field, never coerced, never a 500, nor echoed: it may be a secret."""
    document = problem(client.post("/trigger-snapshot", content=body, headers=JSON), 422, "invalid-request")
    assert [error["where"] for error in document["errors"]] == [where]
    assert document["detail"].startswith(f"{where}: ")
    assert "hunter2" not in str(document)
    assert control.operations() == []


@pytest.mark.parametrize("body", [b'{"partitions":', b"{'partitions': [0]}", b"\xff\xfe{", b"[" * 100_000, b"9" * 5000])
def test_malformed_json_is_400(client, control, body):
    """Bytes that are no JSON, or too deep or too long to be read: 400, never a 500."""
    problem(client.post("/trigger-snapshot", content=body, headers=JSON), 400, "malformed-body")
    assert control.operations() == []


@pytest.mark.parametrize(
    ("method", "path", "where", "why"),
    [
        ("POST", "/trigger-snapshot?partition=0", "query.partition", "it takes only scope"),
        ("GET", "/api/v1/snapshots?limt=1&limit=1", "query.limt", "it takes only limit, scope"),
        ("GET", "/api/v1/state/default/ada?stal=7", "query.stal", "partition, scope, stale"),
        ("GET", "/api/v1/processes?x", "query.x", "it takes none"),
        ("GET", "/restore-status?scope=app&scope=local", "query.scope", "it is there more than once"),
    ],
)
def test_a_parameter_that_is_unknown_or_twice_there_is_refused(client, control, method, path, where, why):
    """It would be left out silently, and more would be done or told than was meant."""
    answer = client.request(method, path)
    assert answer.status_code == 422
    (error,) = answer.json()["errors"]
    assert (error["where"], why in error["message"]) == (where, True)
    assert control.operations() == []


def test_probes_and_metrics_take_any_parameter(client):
    """Platforms and scrapers add some."""
    for path in ("/healthz", "/startupz", "/metrics"):
        assert client.request("GET", f"{path}?verbose&x=1", json={"partition": 0}).status_code == 200


@pytest.mark.parametrize("name", ["nope", "%00", "%ff", "%ED%A0%80"])
def test_unknown_operation_is_404_and_says_how_many_are_kept(client, name):
    """An operation that never was, or was evicted: 404 with the rule, for any bytes."""
    response = client.get(f"/api/v1/operations/{name}")
    assert response.status_code == 404
    assert response.json()["type"].endswith("unknown-operation")
    assert "1,000" in response.json()["detail"]


def test_the_newest_operations_are_listed_and_older_ones_are_found_by_their_ids(client, monkeypatch):
    """A command for many partitions waits for each by its id."""
    monkeypatch.setattr(views, "LISTED_MAX", 2)
    actions = ("pause", "resume", "drill")
    made = [client.post(f"/api/v1/partitions/0/{each}").json()["id"] for each in actions]
    listed = client.get("/api/v1/operations").json()["items"]
    assert [each["id"] for each in listed] == made[:-3:-1]
    assert [client.get(f"/api/v1/operations/{each}").json()["id"] for each in made] == made


def test_no_secret_is_in_the_configuration(client):
    """The process of these tests has a password."""
    answer = client.get("/api/v1/config")
    (process,) = answer.json()["items"]
    shown = {each["name"]: each["value"] for each in process["settings"]}
    assert shown["kafka.sasl.plain.password"] == "***"
    assert "hunter2" not in answer.text


# ---- partitions


@pytest.mark.parametrize(("partition", "name"), [("5", "partition-not-here"), ("6", "unknown-partition")])
def test_partition_elsewhere_or_nowhere_is_404(client, partition, name):
    """Owned by another process and non-existent differ."""
    response = client.get(f"/api/v1/partitions/{partition}")
    assert response.status_code == 404
    assert response.json()["type"] == f"urn:snapreplay:problem:{name}"
    assert response.json()["partition_count"] == 6


def test_partition_before_the_cluster_was_reached_is_503(client, control):
    """It is not known yet whether it exists: 503, not 404."""
    control.statuses = {}
    control.service_facts = msgspec.structs.replace(control.service_facts, partition_count=None)
    response = client.get("/api/v1/partitions/0")
    assert response.status_code == 503
    assert response.headers["retry-after"] == "5"


@pytest.mark.parametrize("name", ["abc", "false", "1.0", "+1", "1_0", "%201", "00", "-1", "9" * 11])
def test_partition_has_one_spelling(client, name):
    """Other spellings that int() would take are 422, so that each partition has one URL."""
    response = client.get(f"/api/v1/partitions/{name}")
    assert response.status_code == 422
    assert response.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("partition", "status", "name"),
    [
        ("0", 409, "partition-not-failed"),
        ("5", 409, "partition-not-live"),
        ("6", 404, "unknown-partition"),
        ("x", 422, "invalid-request"),
    ],
)
def test_retry_refuses_what_did_not_fail_here(client, control, partition, status, name):
    """By name; nothing was started."""
    problem(client.post(f"/api/v1/partitions/{partition}/retry"), status, name)
    assert control.operations() == []


@pytest.mark.parametrize(
    "body",
    [{}, {"manifest_offset": -1}, {"manifest_offset": 2**53}, {"manifest_offset": "7"}, {"manifest_offset": None}],
)
def test_an_adoption_needs_an_offset(client, body):
    """Nothing is started otherwise."""
    problem(client.post("/api/v1/partitions/0/adopt", json=body), 422, "invalid-request")


# ---- process


def test_liveness_lists_its_checks(client):
    """200 with every check, though partitions are restoring and one failed; nor is that waited for at the start."""
    assert client.get("/startupz").status_code == 200
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
