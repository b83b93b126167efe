"""Fixtures in memory, in virtual time; on a real broker there is no wait for a stale leader."""

import pytest


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stale leader is believed for half a second."""
    monkeypatch.setattr("snapreplay.service.topics.reading.PATIENCE_SECONDS", 0.5)
