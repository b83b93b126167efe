"""The simulator's Kafka is Kafka: what readers and producers observe is the same as on a real broker."""

import asyncio
import random
from typing import Any

import pytest

from snapreplay.service.config.settings import Settings
from tests.simulation.broker import Broker
from tests.simulation.cluster import undisturbed
from tests.simulation.loop import VirtualLoop
from tests.simulation.stages import BrokerStage, MemoryStage

HISTORIES = {
    "committed": "commit one 3, look, commit one 1, look",
    "plain between transactions": "append 2, commit one 1, append 1, look",
    "aborted": "commit one 2, begin one, write one 3, end one abort, look",
    "fenced with an open transaction": "commit one 1, begin one, write one 2, look, fence one, look,"
    " end one commit, look",
    "bare markers": "commit one 1, " + 3 * "begin one, end one abort, " + "look",
    "bare marker by a fence": "commit one 1, begin one, commit one 1, look",
    "foreign open transaction": "begin foreign, write foreign 1, commit one 2, append 1, look,"
    " end foreign commit, look",
    "foreign transaction aborted behind a commit": "commit one 1, begin foreign, write foreign 2,"
    " commit one 1, look, end foreign abort, look",
    "two open transactions": "begin first, begin second, write second 1, write first 1,"
    " end second commit, look, end first commit, look",
    "joined and empty does not pin": "begin foreign, commit one 1, look",
    "zombie commits": "keep one, use one 1, commit one 1, use one 1, use one 1, look",
    "two commits of one producer": "keep one, use one 2, use one 3, look",
    "deleted up to a record": "commit one 4, commit one 2, delete 5, look",
    "deleted into a transaction": "commit one 4, delete 2, look, delete 1, look",
    "deleted into an aborted transaction": "begin one, write one 4, end one abort, commit one 1,"
    " delete 2, look",
    "deleted completely": "commit one 2, delete 3, look, delete 9, look, commit one 1, look",
    "timed out": "begin one, write one 1, decided, end one commit, look",
}
"""In the words of `stages`."""

SHORT = {"transaction_ms": 1000, "commit_ms": 500}
"""For the history whose transaction times out; the others are not to fail on a busy machine."""


def settings_for(name: str, bootstrap_servers: str) -> Settings:
    short = name == "timed out"
    kafka = {"bootstrap.servers": bootstrap_servers, "request.timeout.ms": 400 if short else 5000}
    return Settings.model_validate({"kafka": kafka, "timeouts": SHORT if short else {}})


def in_memory(name: str) -> list[Any]:
    """The notes of the simulator."""
    loop, rng = VirtualLoop(), random.Random(1)
    broker = Broker(rng, slow_markers=False)
    stage = MemoryStage(undisturbed(loop, broker, settings_for(name, "nowhere:1")), broker)
    try:
        return loop.run_until_complete(stage.play(HISTORIES[name]))
    finally:
        loop.close()


@pytest.mark.parametrize("name", HISTORIES)
async def test_both_give_the_same(broker, unique, name) -> None:
    """Offsets, bounds, records under both isolations, errors by class, step by step."""
    expected = await asyncio.to_thread(in_memory, name)
    stage = BrokerStage(settings_for(name, broker.bootstrap_servers), unique("t"), expected)
    assert await stage.play(HISTORIES[name]) == expected
    assert any(isinstance(note, list) for note in expected)
