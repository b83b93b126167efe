"""A scripted schema registry, and its client."""

from collections.abc import Iterator

import pytest

from snapreplay import SchemaRegistry
from tests.support.scripted_registry import ScriptedRegistry, scripted_registry


@pytest.fixture
def scripted() -> Iterator[ScriptedRegistry]:
    with scripted_registry() as started:
        yield started


@pytest.fixture
def registry(scripted: ScriptedRegistry) -> SchemaRegistry:
    return SchemaRegistry(scripted.url, auto_register=True)
