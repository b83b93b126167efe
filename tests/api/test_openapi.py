"""The committed OpenAPI document."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from snapreplay.api.openapi import rendered

COMMITTED = Path(__file__).parents[2] / "docs" / "openapi.json"
DOCUMENT: dict[str, Any] = json.loads(rendered())


def test_committed_document_is_current():
    """docs/openapi.json is what the code generates."""
    assert COMMITTED.read_text(encoding="utf-8") == rendered(), (
        "the HTTP API changed: python -m snapreplay.api.openapi > docs/openapi.json"
    )


def test_every_error_is_a_problem_document():
    """Each documented error, but for the probes' own 503, is an RFC 9457 problem."""
    for operations in DOCUMENT["paths"].values():
        for operation in operations.values():
            for status, response in operation["responses"].items():
                if status >= "400" and (status != "503" or operation["tags"] != ["process"]):
                    assert set(response["content"]) == {"application/problem+json"}
