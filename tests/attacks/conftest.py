"""The attacks on the design use the same stages as the tests of the service."""

import pytest

from tests.service.conftest import attentive, children, stage
from tests.support.stage import past

__all__ = ["attentive", "children", "past", "stage"]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No leader is stale here: a log that seems too short is, after half a second."""
    monkeypatch.setattr("snapreplay.service.topics.reading.PATIENCE_SECONDS", 0.5)
