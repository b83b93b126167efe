"""Load for an app that adds up, and its outputs checked one by one as they are committed."""

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

KEYS = 300
RECORDS_A_SECOND = 300


class Load:
    """Records worth 1 to each of `KEYS` accounts in turn: the n-th output of an account must have the balance n.

    By default these are payments, for examples/ledger.py.
    """

    def __init__(
        self,
        servers: str,
        *,
        topics: tuple[str, str] = ("payments", "balances"),
        value: bytes = b'{"amount": 1}',
        balance_of: Callable[[Any], int] = lambda output: output["balance"],
    ) -> None:
        self._servers = servers
        self._input, self._output = topics
        self._value = value
        self._balance_of = balance_of
        self.sent = 0
        self.received = 0
        self.wrong: list[str] = []
        self._balances: dict[bytes, int] = defaultdict(int)
        self._arrived_at: dict[int, float] = {}
        self._longest_gap_s = 0.0
        self._ended = asyncio.Event()

    async def run(self) -> None:
        """Send until `end` is called, and receive until every payment has its output."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._send())
            tasks.create_task(self._receive())

    def end(self) -> None:
        self._ended.set()

    def gap_s(self) -> float:
        """The longest time without an output from a partition since the last call, seconds."""
        now = time.monotonic()
        waiting = [now - at for at in self._arrived_at.values()]
        longest = max([self._longest_gap_s, *waiting])
        self._longest_gap_s = 0.0
        self._arrived_at = dict.fromkeys(self._arrived_at, now)
        return longest

    async def _send(self) -> None:
        producer = AIOKafkaProducer(bootstrap_servers=self._servers, acks="all")
        await producer.start()
        try:
            while not self._ended.is_set():
                for _ in range(RECORDS_A_SECOND // 10):
                    key = f"account-{self.sent % KEYS}".encode()
                    await producer.send(self._input, key=key, value=self._value)
                    self.sent += 1
                await asyncio.sleep(0.1)
        finally:
            await producer.stop()

    async def _receive(self) -> None:
        consumer = AIOKafkaConsumer(
            self._output,
            bootstrap_servers=self._servers,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        )
        await consumer.start()
        try:
            while not (self._ended.is_set() and self.received >= self.sent):
                fetched = await consumer.getmany(timeout_ms=200)
                now = time.monotonic()
                for partition, records in fetched.items():
                    self._note_arrival(partition.partition, now)
                    for record in records:
                        self._check(record.key, self._balance_of(json.loads(record.value)))
        finally:
            await consumer.stop()

    def _note_arrival(self, partition: int, now: float) -> None:
        last = self._arrived_at.get(partition, now)
        self._longest_gap_s = max(self._longest_gap_s, now - last)
        self._arrived_at[partition] = now

    def _check(self, key: bytes, balance: int) -> None:
        self.received += 1
        self._balances[key] += 1
        if balance != self._balances[key]:
            self.wrong.append(f"{key.decode()}: balance {balance} instead of {self._balances[key]}")
            self._balances[key] = balance
