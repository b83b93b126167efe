"""The floor: a bare aiokafka loop with the same work and none of the guarantees.

Read committed, update a dict, send the outputs and one packed record with the changed keys in a transaction of
5,000 records, commit. No recovery, no proof, no codecs of its own. Run as a child of `benchmarks.pipeline`:
`python -m benchmarks.floor BOOTSTRAP_SERVERS [PREFIX [INPUT]]`. The topics are PREFIX-in, -out and -changes.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import msgspec
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.producer import sender
from aiokafka.structs import TopicPartition

from benchmarks.ledger_app import Balance, Payment

BATCH_RECORDS = 5000

sender.BACKOFF_OVERRIDE = 0.002  # as the service: small batches would wait for 20 ms


async def main(bootstrap_servers: str, prefix: str = "bench", input_topic: str = "") -> None:
    decode = msgspec.json.Decoder(Payment).decode
    encode = msgspec.json.Encoder().encode
    pack = msgspec.msgpack.Encoder().encode
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap_servers,
        group_id=None,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=2 << 20,
    )
    await consumer.start()
    consumer.assign([TopicPartition(input_topic or f"{prefix}-in", 0)])
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap_servers, max_batch_size=1 << 20, linger_ms=0, transactional_id="floor-0"
    )
    await producer.start()
    state: dict[bytes, list[int]] = {}
    while True:
        fetched = await consumer.getmany(timeout_ms=200, max_records=BATCH_RECORDS)
        for records in fetched.values():
            await producer.begin_transaction()
            futures, changed = await _apply(producer, f"{prefix}-out", records, state, decode, encode)
            packed = pack([records[-1].offset + 1, changed])
            futures.append(await producer.send(f"{prefix}-changes", packed, partition=0))
            await asyncio.wait(futures)
            for future in futures:
                future.result()
            await producer.commit_transaction()


async def _apply(
    producer: AIOKafkaProducer, outputs: str, records: Any, state: dict[bytes, list[int]], decode: Any, encode: Any
) -> tuple[list[Any], dict[bytes, list[int]]]:
    futures: list[Any] = []
    changed: dict[bytes, list[int]] = {}
    batch = producer.create_batch()
    for record in records:
        payment, key = decode(record.value), record.key
        account = state.get(key)
        if account is None:
            state[key] = account = [1, payment.amount, payment.ts]
        else:
            account[0] += 1
            account[1] += payment.amount
            account[2] = payment.ts
        changed[key] = account
        value = encode(Balance(account[0], account[1], account[2]))
        if batch.append(key=key, value=value, timestamp=None) is None:
            futures.append(await producer.send_batch(batch, outputs, partition=0))
            batch = producer.create_batch()
            batch.append(key=key, value=value, timestamp=None)
    futures.append(await producer.send_batch(batch, outputs, partition=0))
    return futures, changed


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
