"""The committed OpenAPI document."""

import json
import re
from pathlib import Path
from typing import Any

from tests.support.openapi import rendered

COMMITTED = Path(__file__).parents[2] / "docs" / "openapi.json"
DOCUMENT: dict[str, Any] = json.loads(rendered())


def test_committed_document_is_current():
    """docs/openapi.json is what the code generates."""
    assert COMMITTED.read_text(encoding="utf-8") == rendered(), (
        "the HTTP API changed: python -m tests.support.openapi > docs/openapi.json"
    )


def test_every_error_is_a_problem_document():
    """Each documented error, but for the probes' own 503, is an RFC 9457 problem."""
    for operations in DOCUMENT["paths"].values():
        for operation in operations.values():
            for status, response in operation["responses"].items():
                if status >= "400" and (status != "503" or operation["tags"] != ["process"]):
                    assert set(response["content"]) == {"application/problem+json"}


def test_every_schema_that_is_named_is_there():
    """A generator of clients stops at a missing schema."""
    named = set(re.findall(r'"#/components/schemas/([^"]+)"', rendered()))
    assert named <= set(DOCUMENT["components"]["schemas"])


def test_every_route_is_in_the_guide():
    """docs/http.md names each path with its method, and none that is gone."""
    guide = COMMITTED.with_name("http.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(GET|POST|DELETE) (/[^`]*)`", guide))
    routes = {
        (method.upper(), re.sub(r"{operation_id}", "{id}", path))
        for path, operations in DOCUMENT["paths"].items()
        for method in operations
    }
    assert named == routes | {("GET", "/")}
