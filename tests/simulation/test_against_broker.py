"""The simulator's Kafka is Kafka: what readers and producers observe is the same as on a real broker, also where a
partition loses its end, or the directory is an older copy."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from snapreplay.devbroker.broker import LocalBroker
from snapreplay.service.config.settings import Settings
from tests.simulation.stages import BrokerStage, MemoryStage
from tests.support.deadlines import scaled
from tests.support.older_disk import OlderDisk
from tests.support.waiting import eventually

HISTORIES = {
    "committed": "commit one 3, look, commit one 1, look",
    "plain between transactions": "append 2, commit one 1, append 1, look",
    "aborted": "commit one 2, begin one, write one 3, end one abort, look",
    "fenced with an open transaction": "commit one 1, begin one, write one 2, look, fence one, look,"
    " end one commit, look",
    "bare markers": "commit one 1, " + 3 * "begin one, end one abort, " + "look",
    "bare marker by a fence": "commit one 1, begin one, commit one 1, look",
    "foreign open transaction": "begin foreign, write foreign 1, commit one 2, look, append 1, look,"
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
    "deleted into an aborted transaction": "begin one, write one 4, end one abort, commit one 1, delete 2, look",
    "deleted completely": "commit one 2, delete 3, look, delete 9, look, commit one 1, look",
    "timed out": "begin one, write one 1, decided, end one commit, look",
}
"""In the words of `stages`."""

LOST = {
    "records": ("append 4", "append 3", "look, append 2, look"),
    "the last transaction": ("commit one 2", "commit one 3", "look, commit one 1, look"),
    "all there was": ("begin one", "write one 2, end one commit", "look, commit one 1, look"),
    "a part of an open transaction": ("begin one, write one 2", "write one 3", "look, end one commit, look"),
    "what a producer has sent": ("keep one", "use one 2, use one 1", "look, use one 1, look"),
    "the middle of what a producer sent": (
        "keep one, use one 2",
        "use one 3",
        "look, use one 1, look, commit one 1, look",
    ),
    "the marker of a commit": ("begin one, write one 2", "end one commit", "look, append 1, look, commit one 1, look"),
    "the marker of an abort": ("begin one, write one 2", "end one abort", "look, append 1, look, commit one 1, look"),
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

SHORT_MS = int(scaled(3) * 1000)
"""Of the transaction that times out: for so long a busy machine does not come to what is written in it."""


def settings_for(name: str, bootstrap_servers: str) -> Settings:
    settings = Settings(kafka={"bootstrap.servers": bootstrap_servers, "request.timeout.ms": 5000})
    if name != "timed out":
        return settings
    return settings.replaced(timeouts=settings.timeouts.replaced(transaction_ms=SHORT_MS))


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
    """The notes of the simulator."""
    stage = Losing(settings_for(name, "nowhere:1"))
    return stage.run(stage.play(HISTORIES[name]) if name in HISTORIES else stage.play_all(*LOST[name]))


@pytest.mark.whole
@pytest.mark.parametrize("name", HISTORIES)
async def test_both_give_the_same(broker, unique, name) -> None:
    """Offsets, bounds, records under both isolations, errors by class, step by step."""
    expected = await asyncio.to_thread(in_memory, name)
    stage = BrokerStage(settings_for(name, broker.bootstrap_servers), unique("t"), expected)
    assert await stage.play(HISTORIES[name]) == expected
    assert any(isinstance(note, list) for note in expected)


def is_alive(broker: LocalBroker) -> bool:
    """Say whether it names itself: its controller takes one that stood still for dead until it hears of it again."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    return bool(admin.list_topics(timeout=scaled(10.0)).brokers)


@pytest.mark.kafka
@pytest.mark.whole
async def test_both_lose_the_same(tmp_path: Path) -> None:
    """Bounds, records under both isolations, the fate of transactions and producers, step by step, for all histories on
    one broker that is killed once."""
    expected = {name: await asyncio.to_thread(in_memory, name) for name in LOST}
    disk = OlderDisk(tmp_path)
    with disk.broker as broker:
        stages = {
            name: BrokerStage(settings_for(name, broker.bootstrap_servers), f"lost-{number}", expected[name])
            for number, name in enumerate(LOST)
        }
        for name, stage in stages.items():
            await stage.prepare()
            await stage.steps(LOST[name][0])
        disk.keep("lost-*")
        await asyncio.to_thread(eventually, lambda: is_alive(broker), "known to its controller")
        for name, stage in stages.items():
            await stage.steps(LOST[name][1])
        disk.put_back("lost-*")
        for name, stage in stages.items():
            await stage.steps(LOST[name][2])
            await stage.close()
        assert {name: stage.notes for name, stage in stages.items()} == expected
