"""Fixtures in memory, in virtual time; on a real broker nobody waits for a stale leader."""

import pytest

from snapreplay.service.topics import stale_leader
from tests.service.partition.conftest import bench

__all__ = ["bench"]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stale leader is believed for half a second."""
    monkeypatch.setattr(stale_leader, "PATIENCE_SECONDS", 0.5)
