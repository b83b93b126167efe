"""Errors as problem documents, also unexpected ones."""

import re
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from snapreplay.api import problems
from snapreplay.api.app import create_app
from snapreplay.api.problems import URN
from snapreplay.errors import PartitionNotLive, UnknownPartition
from snapreplay.service.control.protocol import LoopBlocked, TooManyCommands
from tests.support.fake_control import FakeControl, Local

KINDS = {each for each in vars(problems).values() if isinstance(each, problems.ProblemKind)}


class Broken(FakeControl):
    """A `Control` whose every answer is an exception with a secret in its text."""

    def partitions(self):
        raise RuntimeError("password=hunter2")


def test_unexpected_error_says_nothing_of_itself():
    """A defect is a 500 problem without the exception's text; the server has it, which logs it."""
    client = TestClient(create_app(Local(Broken())), raise_server_exceptions=False)
    response = client.get("/restore-status")
    assert response.status_code == 500
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["type"] == "urn:snapreplay:problem:internal"
    assert "hunter2" not in response.text
    assert "RuntimeError" not in response.text
    with pytest.raises(RuntimeError, match="hunter2"):
        TestClient(create_app(Local(Broken()))).get("/restore-status")


@pytest.mark.parametrize(
    ("method", "path", "status", "title", "allow"),
    [
        ("GET", "/nope", 404, "Not Found", None),
        ("GET", "/api/v1/operations/a/b", 404, "Not Found", None),
        ("GET", "/restore-status/", 404, "Not Found", None),
        ("DELETE", "/healthz", 405, "Method Not Allowed", "GET, HEAD"),
        ("PUT", "/api/v1/savepoints", 405, "Method Not Allowed", "GET, POST, HEAD"),
        ("POST", "/api/v1/events", 405, "Method Not Allowed", "GET"),
        ("GET", "/trigger-snapshot", 405, "Method Not Allowed", "POST"),
    ],
)
def test_routing_errors_are_problems_too(client, method, path, status, title, allow):
    """What the framework refuses has the same form, and says where the list of routes is; 405 names all the
    methods of the path, as HTTP demands."""
    response = client.request(method, path)
    assert (response.status_code, response.headers.get("allow")) == (status, allow)
    assert response.headers["content-type"] == "application/problem+json"
    document = response.json()
    assert (document["type"], document["title"]) == ("about:blank", title)
    assert document["instance"] == path
    assert "openapi.json" in document["hint"]


def test_many_errors_are_counted_and_cut(client):
    """A body with thousands of errors does not become an answer with thousands."""
    response = client.post("/trigger-snapshot", json={"partitions": [False] * 5000})
    document = response.json()
    assert document["detail"].endswith("(and 4999 more)")
    assert len(document["errors"]) == 20


@pytest.mark.parametrize(
    ("error", "status", "name"),
    [
        (UnknownPartition(3, 2), 404, "unknown-partition"),
        (UnknownPartition(3, None), 503, "cluster-not-reached"),
        (PartitionNotLive(1, "closing"), 409, "partition-not-live"),
        (LoopBlocked(2), 503, "loop-blocked"),
        (TooManyCommands(64), 503, "too-many-requests"),
    ],
)
def test_errors_of_control_are_mapped_wherever_they_come_from(error, status, name):
    """What `Control` raises has one answer in every route."""

    class Refusing(FakeControl):
        def perform(self, command):
            raise error

    response = TestClient(create_app(Local(Refusing()))).post("/trigger-snapshot")
    assert response.status_code == status
    assert response.json()["type"] == URN + name


def test_every_kind_is_in_the_guide():
    """docs/http.md has a row for each kind with its status, and none for one that is gone."""
    guide = Path(__file__).parents[2] / "docs" / "http.md"
    rows = re.findall(r"^\| `([a-z-]+)` \| (\d{3}) \|", guide.read_text(), flags=re.MULTILINE)
    assert sorted(rows) == sorted((kind.name, str(kind.status)) for kind in KINDS)
