"""The examples of the OpenAPI document."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest

from snapreplay.api.examples import BY_SCHEMA
from tests.support.openapi import rendered

DOCUMENT: dict[str, Any] = json.loads(rendered())
Example = tuple[str, dict[str, Any], Any]


def contents() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every media type object of the document, named by operation, status and media type."""
    for operations in DOCUMENT["paths"].values():
        for operation in operations.values():
            name = operation["operationId"]
            bodies = {"request": operation.get("requestBody", {}), **operation["responses"]}
            for status, body in bodies.items():
                for media, content in body.get("content", {}).items():
                    yield f"{name} {status} {media}", content


def examples() -> Iterator[Example]:
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


@pytest.mark.parametrize(
    ("schema", "example"), [each[1:] for each in EXAMPLES], ids=[each[0] for each in EXAMPLES]
)
def test_example_is_valid(schema, example):
    """An example in the document is an instance of its own schema."""
    whole = {**schema, "components": DOCUMENT["components"]}
    validator = jsonschema_rs.Draft202012Validator(whole)
    assert not [error.message for error in validator.iter_errors(example)]


def test_every_json_answer_has_an_example():
    """A reader sees what comes, for each status of each operation, without trying."""
    bare = [
        name
        for name, content in contents()
        if "json" in name and "example" not in content and "examples" not in content
    ]
    assert not bare


def test_every_example_is_used():
    """An example of a schema that is gone goes too."""
    used = {
        content["schema"]["$ref"].rpartition("/")[2]
        for _, content in contents()
        if "$ref" in content["schema"]
    }
    assert set(BY_SCHEMA) <= used
