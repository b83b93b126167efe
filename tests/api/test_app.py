"""The application as a whole: names, documents, fuzzing."""

from __future__ import annotations

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error

from snapreplay.api.app import create_app
from tests.support.fake_control import NOW, FakeControl

DOCUMENTED = create_app(FakeControl()).openapi()["paths"]
OPERATIONS = [(method.upper(), path) for path, each in DOCUMENTED.items() for method in each]

schema = schemathesis.openapi.from_asgi("/openapi.json", create_app(FakeControl(), now=lambda: NOW))


@pytest.mark.parametrize("operation", OPERATIONS, ids=" ".join)
@given(data=st.data())
@settings(max_examples=40, derandomize=True, suppress_health_check=list(HealthCheck))
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
