"""The attacks on the design use the same stages as the tests of the service."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from snapreplay.service.kafka.cluster import KafkaCluster
from tests.service.conftest import attentive, children, stage
from tests.support.stage import past

__all__ = ["attentive", "children", "past", "stage"]


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No leader is stale here: a log that seems too short is, after half a second."""
    monkeypatch.setattr("snapreplay.service.topics.reading.PATIENCE_SECONDS", 0.5)


@pytest.fixture
def snapshots(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Every snapshot is written when `gate` is set; `asked` says how many there were to write."""
    found, make = SimpleNamespace(gate=asyncio.Event(), asked=0), KafkaCluster.appender

    async def held_back(cluster: KafkaCluster) -> Any:
        found.asked += 1
        await found.gate.wait()
        return await make(cluster)

    monkeypatch.setattr(KafkaCluster, "appender", held_back)
    return found
