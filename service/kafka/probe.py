"""Finds out whether the cluster can commit a transaction, with one small transaction.

An open port and a list of brokers say less: the transaction coordinator creates its topic at first
use, and until then every producer of ours would fail.
"""

import asyncio
import contextlib
import uuid
from collections.abc import Awaitable

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError

from snapreplay.service.kafka.clients import admin_client, producer_client
from snapreplay.service.kafka.shutdown import cut_producer

PROBE_TOPIC_PREFIX = "__snapreplay_probe"
# One attempt; a first transaction takes 0.3 s, up to 3 s on a loaded machine.
_ATTEMPT_S = 10.0
_PAUSE_S = 0.05
_CLOSE_S = 2.0


class ProbeFailed(Exception):
    """No transaction was committed within the deadline; the text names the last error."""


async def commit_probe(bootstrap_servers: str, deadline_s: float) -> None:
    """Commit one transaction of one record, trying again until `deadline_s` seconds have passed.

    Makes a topic of its own (one partition, the cluster's default replication) and deletes it.
    Raises ProbeFailed. Closing connections may take a few seconds beyond the deadline.
    """
    last_error = "no answer"
    try:
        async with asyncio.timeout(deadline_s):
            while True:
                try:
                    async with asyncio.timeout(_ATTEMPT_S):
                        return await _attempt(bootstrap_servers)
                except (KafkaError, OSError, TimeoutError, AssertionError) as error:
                    # AssertionError: from a producer of aiokafka whose background task has died.
                    last_error = f"{type(error).__name__}: {error}"
                await asyncio.sleep(_PAUSE_S)
    except TimeoutError:
        message = f"{bootstrap_servers} committed no transaction in {deadline_s:.1f} s"
        raise ProbeFailed(f"{message} ({last_error})") from None


async def _attempt(bootstrap_servers: str) -> None:
    topic = f"{PROBE_TOPIC_PREFIX}-{uuid.uuid4().hex}"
    admin = admin_client({"bootstrap_servers": bootstrap_servers})
    try:
        await admin.start()
        await _create(admin, topic)
        try:
            await _one_transaction(bootstrap_servers, topic)
        finally:
            await _bounded(admin.delete_topics([topic]))
    finally:
        await _bounded(admin.close())


async def _create(admin: AIOKafkaAdminClient, topic: str) -> None:
    new_topic = NewTopic(topic, num_partitions=1, replication_factor=1)
    # The cluster's own default, which its in-sync minimum fits. The constructor refuses it.
    new_topic.replication_factor = -1
    answer = await admin.create_topics([new_topic])
    for _name, code, *text in answer.topic_errors:
        if code:
            raise KafkaError(f"creating the probe topic: error {code} {text}")


async def _one_transaction(bootstrap_servers: str, topic: str) -> None:
    producer = producer_client(
        {
            "bootstrap_servers": bootstrap_servers,
            "transactional_id": topic,
            "transaction_timeout_ms": 10_000,
            "retry_backoff_ms": 20,
        }
    )
    try:
        await producer.start()
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"probe")
        await producer.commit_transaction()
        await producer.stop()
    except BaseException:
        await cut_producer(producer)
        raise


async def _bounded(closing: Awaitable[object]) -> None:
    # A failure here does not change whether the transaction was committed.
    with contextlib.suppress(KafkaError, OSError, TimeoutError):
        async with asyncio.timeout(_CLOSE_S):
            await closing
