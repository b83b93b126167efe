"""A dict consumer without snapreplay, in each way of keeping offsets that docs/how-it-works.md describes.

    plain_consumer.py BOOTSTRAP_SERVERS NAME

For each WAY: each record of the topic NAME-WAY adds 1 to a balance and sends {"offset", "balance"} to NAME-WAY-out.
Records 0 to 49 are one batch, 50 to 99 the next, 100 to 149 the last. A first process ends in or after the second
batch, where it hurts this way most, as by kill -9: nothing is flushed, closed or committed. A second one continues.
Both are forks of this process, which has imported all there is to import.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

RECORDS, BATCH, DIES_AT = 150, 50, 80
KILLED = 137

Records = Sequence[Any]


class Program:
    """The clients, the state, and the steps that all ways share."""

    def __init__(self, bootstrap_servers: str, name: str, way: Way, *, dies: bool) -> None:
        self.name, self.way, self.dies = name, way, dies
        self.input = TopicPartition(name, 0)
        self.balance = 0  # stands for the dict: one key is enough
        self.consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap_servers,
            group_id=name,
            auto_offset_reset="earliest",
            enable_auto_commit=way.auto_commit_ms is not None,
            auto_commit_interval_ms=way.auto_commit_ms or 5000,
        )
        self.producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap_servers, transactional_id=name if way.transactional else None
        )

    async def run(self) -> None:
        await self.producer.start()
        await self.consumer.start()
        self.consumer.assign([self.input])
        if self.way.keeps_file:
            self.load()
        while await self.consumer.position(self.input) < RECORDS:
            fetched = await self.consumer.getmany(timeout_ms=200, max_records=BATCH)
            if records := fetched.get(self.input):
                await self.way.batch(self, records)
        await self.consumer.stop()
        await self.producer.stop()

    async def process(self, records: Records, *, dies_within: bool = False) -> None:
        for record in records:
            if dies_within and record.offset == DIES_AT:
                self.die(records)
            self.balance += 1
            out = {"offset": record.offset, "balance": self.balance}
            await self.producer.send_and_wait(f"{self.name}-out", json.dumps(out).encode())

    def die(self, records: Records) -> None:
        """Die in the second batch only, and only the first time."""
        if self.dies and records[0].offset == BATCH:
            os._exit(KILLED)

    async def until_committed(self, position: int) -> None:
        async with asyncio.timeout(20):
            while await self.consumer.committed(self.input) != position:  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.01)

    async def offsets_into_transaction(self, records: Records) -> None:
        offsets = {self.input: records[-1].offset + 1}
        await self.producer.send_offsets_to_transaction(offsets, self.name)

    def save(self, records: Records) -> None:
        """State and position in one file, replaced at once: as good as a database."""
        new = Path(f"{self.name}.new")
        new.write_text(json.dumps([self.balance, records[-1].offset + 1]))
        new.replace(f"{self.name}.state")

    def load(self) -> None:
        file = Path(f"{self.name}.state")
        self.balance, position = json.loads(file.read_text()) if file.exists() else (0, 0)
        if not self.way.transactional:  # else the position is the group's committed offset
            self.consumer.seek(self.input, position)


async def auto_commit_early(program: Program, records: Records) -> None:
    if program.dies and records[0].offset == BATCH:
        await program.until_committed(2 * BATCH)  # the timer fires while the batch is in hand
    await program.process(records, dies_within=True)


async def auto_commit_late(program: Program, records: Records) -> None:
    if records[0].offset == BATCH:
        # As if the timer had fired between the batches; it does not fire again in time.
        await program.consumer.commit({program.input: BATCH})
    await program.process(records, dies_within=True)


async def commit_before(program: Program, records: Records) -> None:
    await program.consumer.commit()
    await program.process(records, dies_within=True)


async def commit_after(program: Program, records: Records) -> None:
    await program.process(records)
    program.die(records)
    await program.consumer.commit()


async def commit_async(program: Program, records: Records) -> None:
    await program.process(records)
    asked = asyncio.create_task(program.consumer.commit())
    program.die(records)  # asked for, not answered
    await asked


async def transaction(program: Program, records: Records) -> None:
    await program.producer.begin_transaction()
    await program.process(records, dies_within=True)
    await program.offsets_into_transaction(records)
    await program.producer.commit_transaction()


async def state_saved_before(program: Program, records: Records) -> None:
    await program.producer.begin_transaction()
    await program.process(records)
    await program.offsets_into_transaction(records)
    program.save(records)
    program.die(records)
    await program.producer.commit_transaction()


async def state_saved_after(program: Program, records: Records) -> None:
    await program.producer.begin_transaction()
    await program.process(records)
    await program.offsets_into_transaction(records)
    await program.producer.commit_transaction()
    program.die(records)
    program.save(records)


async def self_managed(program: Program, records: Records) -> None:
    await program.process(records)
    program.die(records)
    program.save(records)


@dataclass(frozen=True)
class Way:
    batch: Callable[[Program, Records], Awaitable[None]]
    auto_commit_ms: int | None = None
    transactional: bool = False
    keeps_file: bool = False


WAYS = {
    "auto_commit_early": Way(auto_commit_early, auto_commit_ms=50),
    "auto_commit_late": Way(auto_commit_late, auto_commit_ms=60_000),
    "commit_before": Way(commit_before),
    "commit_after": Way(commit_after),
    "commit_async": Way(commit_async),
    "transaction": Way(transaction, transactional=True),
    "state_saved_before": Way(state_saved_before, transactional=True, keeps_file=True),
    "state_saved_after": Way(state_saved_after, transactional=True, keeps_file=True),
    "self_managed": Way(self_managed, keeps_file=True),
}


async def consume(bootstrap_servers: str, name: str, way: Way, *, dies: bool) -> None:
    await Program(bootstrap_servers, name, way, dies=dies).run()


def start(bootstrap_servers: str, name: str, way: Way, *, dies: bool) -> int:
    """The id of a process of its own."""
    child = os.fork()
    if not child:
        asyncio.run(consume(bootstrap_servers, name, way, dies=dies))
        sys.exit()
    return child


def main(bootstrap_servers: str, name: str) -> None:
    for dies in (True, False):
        children = [start(bootstrap_servers, f"{name}-{word}", way, dies=dies) for word, way in WAYS.items()]
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        assert set(codes) == {KILLED if dies else 0}, codes


if __name__ == "__main__":
    main(*sys.argv[1:])
