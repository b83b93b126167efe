"""The application as a whole: names, documents, fuzzing."""

from __future__ import annotations

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error

from snapreplay.api.app import create_app
from tests.support.fake_control import NOW, FakeControl

OPERATIONS = {
    ("POST", "/trigger-snapshot"): "trigger_snapshot",
    ("POST", "/api/v1/snapshots"): "create_snapshots",
    ("GET", "/api/v1/snapshots"): "list_snapshots",
    ("GET", "/restore-status"): "restore_status",
    ("GET", "/api/v1/restore"): "get_restore",
    ("GET", "/api/v1/operations"): "list_operations",
    ("GET", "/api/v1/operations/{operation_id}"): "get_operation",
    ("GET", "/api/v1/partitions"): "list_partitions",
    ("GET", "/api/v1/partitions/{partition}"): "get_partition",
    ("POST", "/api/v1/partitions/{partition}/retry"): "retry_partition",
    ("GET", "/api/v1"): "get_facts",
    ("GET", "/healthz"): "liveness",
    ("GET", "/readyz"): "readiness",
    ("GET", "/startupz"): "startup",
    ("GET", "/metrics"): "metrics",
}

schema = schemathesis.openapi.from_asgi("/openapi.json", create_app(FakeControl(), now=lambda: NOW))


def test_operation_ids_are_stable():
    """Generated clients are built on these names: a change here breaks them."""
    paths = create_app(FakeControl()).openapi()["paths"]
    found = {
        (method.upper(), path): operation["operationId"]
        for path, operations in paths.items()
        for method, operation in operations.items()
    }
    assert found == OPERATIONS


@pytest.mark.parametrize("operation", sorted(OPERATIONS), ids=" ".join)
@given(data=st.data())
@settings(
    max_examples=40,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
def test_answers_are_as_documented(operation, data):
    """No input gives a 500, an undocumented status, media type or shape."""
    method, path = operation
    case = data.draw(schema[path][method].as_strategy())
    # 503 is what a probe says when a partition is not live: the only 5xx that is no defect here.
    expected = [not_a_server_error] if case.operation.path == "/readyz" else []
    case.call_and_validate(excluded_checks=expected)


def test_no_page_fetches_scripts_from_elsewhere():
    """Where this runs there is often no way out, and nobody would check what came in."""
    app = create_app(FakeControl(), now=lambda: NOW)
    assert app.openapi_url == "/openapi.json"
    assert (app.docs_url, app.redoc_url) == (None, None)
