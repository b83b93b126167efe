"""The simulator's Kafka is Kafka: what readers and producers observe is the same as on a real broker."""

import asyncio
import random
from typing import Any

import pytest

from snapreplay.service.config.settings import Settings
from snapreplay.service.ports import NewTopic
from tests.simulation.broker import Broker
from tests.simulation.cluster import SimCluster
from tests.simulation.faults import Faults
from tests.simulation.histories import HISTORIES, timed_out
from tests.simulation.loop import VirtualLoop
from tests.simulation.network import Link, Network
from tests.simulation.stages import BrokerStage, MemoryStage

SHORT = {"transaction_ms": 1000, "commit_ms": 500}
"""For the history whose transaction times out; the others are not to fail on a busy machine."""


class Somebody:
    """A process that nothing happens to."""

    name = "somebody"
    dead = packets_lost = False

    def crash(self) -> None:
        raise AssertionError("no fault was asked for")

    stall = crash


def settings_for(history, bootstrap_servers: str) -> Settings:
    short = history is timed_out
    kafka = {"bootstrap.servers": bootstrap_servers, "request.timeout.ms": 400 if short else 5000}
    return Settings.model_validate({"kafka": kafka, "timeouts": SHORT if short else {}})


def in_memory(history) -> list[Any]:
    """The notes of the simulator."""
    loop, rng = VirtualLoop(), random.Random(1)
    broker = Broker(rng, slow_markers=False)
    network = Network(loop, broker, Faults(rng, 0, 0), rng)
    cluster = SimCluster(Link(network, Somebody()), settings_for(history, "nowhere:1"))
    stage = MemoryStage(cluster, broker)
    try:
        loop.run_until_complete(history(stage))
    finally:
        loop.close()
    return stage.notes


@pytest.mark.parametrize("history", HISTORIES, ids=lambda history: history.__name__)
async def test_both_give_the_same(broker, unique, history) -> None:
    """Offsets, bounds, records under both isolations, errors by class, step by step."""
    expected = await asyncio.to_thread(in_memory, history)
    settings, topic = settings_for(history, broker.bootstrap_servers), unique("t")
    stage = BrokerStage(settings, topic, expected)
    await stage._cluster.create_topics([NewTopic(topic, 1)])
    try:
        await history(stage)
    finally:
        await stage.close()
    assert stage.notes == expected
    assert any(isinstance(note, list) for note in expected)
