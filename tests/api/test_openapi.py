"""The committed OpenAPI document, and its examples."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from snapreplay.api import page
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


def test_every_route_is_in_the_guide():
    """docs/http.md names each path with its method, and none that is gone."""
    guide = COMMITTED.with_name("http.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(GET|POST|DELETE) (/[^`]*)`", guide))
    routes = {
        (method.upper(), re.sub(r"{operation_id}", "{id}", path))
        for path, operations in DOCUMENT["paths"].items()
        for method in operations
    }
    assert named == routes | {("GET", path) for path in page.PAGES}


def contents() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every media type object of the document, named by operation, status and media type."""
    for operations in DOCUMENT["paths"].values():
        for operation in operations.values():
            name = operation["operationId"]
            bodies = {"request": operation.get("requestBody", {}), **operation["responses"]}
            for status, body in bodies.items():
                for media, content in body.get("content", {}).items():
                    yield f"{name} {status} {media}", content


def examples() -> Iterator[tuple[str, dict[str, Any], Any]]:
    """Every example of the document, with a name and the schema it must obey."""
    for name, content in contents():
        if "example" in content:
            yield name, content["schema"], content["example"]
        for key, example in content.get("examples", {}).items():
            yield f"{name} {key}", content["schema"], example["value"]
    for name, schema in DOCUMENT["components"]["schemas"].items():
        for number, example in enumerate(schema.get("examples", ())):
            yield f"{name} {number}", schema, example


EXAMPLES = list(examples())


@pytest.mark.parametrize(("schema", "example"), [each[1:] for each in EXAMPLES], ids=[each[0] for each in EXAMPLES])
def test_example_is_valid(schema, example):
    """An example in the document is an instance of its own schema."""
    whole = {**schema, "components": DOCUMENT["components"]}
    validator = jsonschema_rs.Draft202012Validator(whole)
    assert not [error.message for error in validator.iter_errors(example)]


def test_every_json_answer_has_an_example():
    """A reader sees what comes, for each operation, without trying. Problems are named by their kinds."""
    bare = [
        name
        for name, content in contents()
        if name.endswith(" application/json") and "example" not in content and "examples" not in content
    ]
    assert not bare
