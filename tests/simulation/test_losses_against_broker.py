"""A partition that loses its end in the simulator is what it is on a real broker whose directory is an older copy."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from snapreplay.devbroker.broker import LocalBroker
from tests.simulation.broker import Broker
from tests.simulation.cluster import undisturbed
from tests.simulation.loop import VirtualLoop
from tests.simulation.stages import BrokerStage, MemoryStage
from tests.simulation.test_against_broker import settings_for
from tests.support.deadlines import scaled
from tests.support.processes import eventually

pytestmark = [pytest.mark.kafka, pytest.mark.whole]

HISTORIES = {
    "records": ("append 4", "append 3", "look, append 2, look"),
    "the last transaction": ("commit one 2", "commit one 3", "look, commit one 1, look"),
    "all there was": ("begin one", "write one 2, end one commit", "look, commit one 1, look"),
    "a part of an open transaction": (
        "begin one, write one 2",
        "write one 3",
        "look, end one commit, look",
    ),
    "what a producer has sent": ("keep one", "use one 2, use one 1", "look, use one 1, look"),
    "the middle of what a producer sent": (
        "keep one, use one 2",
        "use one 3",
        "look, use one 1, look, commit one 1, look",
    ),
    "the marker of a commit": (
        "begin one, write one 2",
        "end one commit",
        "look, append 1, look, commit one 1, look",
    ),
    "the marker of an abort": (
        "begin one, write one 2",
        "end one abort",
        "look, append 1, look, commit one 1, look",
    ),
    "the marker of a commit, and the next one aborts": (
        "begin one, write one 2",
        "end one commit",
        "begin one, write one 1, end one abort, look, commit one 1, look",
    ),
    "the marker of a commit, and a fence": (
        "begin one, write one 2",
        "end one commit",
        "fence one, look, commit other 1, look",
    ),
    "trimmed records": ("append 4", "delete 2, append 2", "look, append 1, look"),
}
"""What is written before the copy of the directory, what is lost, and what happens to the copy: words of `stages`."""


class Losing(MemoryStage):
    """Loses what was written since `kept`."""

    async def play_all(self, before: str, lost: str, after: str) -> list[Any]:
        await self.steps(before)
        log = self._broker.logs[self._log]
        end, start = log.end, log.start
        await self.steps(lost)
        self._broker.lose(self._log, end, start, None)
        return await self.play(after)


def in_memory(name: str) -> list[Any]:
    loop, rng = VirtualLoop(), random.Random(1)
    broker = Broker(rng, slow_markers=False)
    stage = Losing(undisturbed(loop, broker, settings_for(name, "nowhere:1")), broker)
    try:
        return loop.run_until_complete(stage.play_all(*HISTORIES[name]))
    finally:
        loop.close()


def copied(broker: LocalBroker, topics: Sequence[str], source: Path, target: Path) -> None:
    """The directories of their only partitions, while the broker stands still or is dead."""
    for topic in topics:
        shutil.rmtree(target / f"{topic}-0", ignore_errors=True)
        shutil.copytree(source / f"{topic}-0", target / f"{topic}-0")


def is_alive(broker: LocalBroker) -> bool:
    """Say whether it names itself: its controller takes one that stood still for dead until it hears of it again."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    return bool(admin.list_topics(timeout=scaled(10.0)).brokers)


async def test_both_lose_the_same(tmp_path: Path) -> None:
    """Bounds, records under both isolations, the fate of transactions and producers, step by step, for all histories on
    one broker that is killed once."""
    expected = {name: await asyncio.to_thread(in_memory, name) for name in HISTORIES}
    data, backup = tmp_path / "data", tmp_path / "backup"
    with LocalBroker(data_dir=data) as broker:
        stages = {
            name: BrokerStage(
                settings_for(name, broker.bootstrap_servers), f"lost-{number}", expected[name]
            )
            for number, name in enumerate(HISTORIES)
        }
        topics = [f"lost-{number}" for number in range(len(stages))]
        for name, stage in stages.items():
            await stage.prepare()
            await stage.steps(HISTORIES[name][0])
        os.kill(broker.pid, signal.SIGSTOP)
        copied(broker, topics, data, backup)
        os.kill(broker.pid, signal.SIGCONT)
        await asyncio.to_thread(eventually, lambda: is_alive(broker), "known to its controller")
        for name, stage in stages.items():
            await stage.steps(HISTORIES[name][1])
        broker.kill()
        copied(broker, topics, backup, data)
        broker.restart()
        for name, stage in stages.items():
            await stage.steps(HISTORIES[name][2])
            await stage.close()
        assert {name: stage.notes for name, stage in stages.items()} == expected
