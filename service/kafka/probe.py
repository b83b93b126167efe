"""Finds out whether the cluster can commit a transaction, with one small transaction.

An open port and a list of brokers say less: the transaction coordinator creates its topic at first use, and until then
every producer of ours would fail.
"""

import asyncio
import contextlib
import uuid

from snapreplay.app.record import Output
from snapreplay.errors import SnapreplayError, described
from snapreplay.service.config.settings import Settings
from snapreplay.service.kafka.admin import KafkaAdmin
from snapreplay.service.kafka.feeding import KafkaFeeder
from snapreplay.service.ports import NewTopic

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
    settings, last_error = Settings(kafka={"bootstrap.servers": bootstrap_servers}), "no answer"
    try:
        async with asyncio.timeout(deadline_s):
            while True:
                try:
                    async with asyncio.timeout(_ATTEMPT_S):
                        return await _attempt(settings)
                except (SnapreplayError, TimeoutError) as error:
                    last_error = described(error)
                await asyncio.sleep(_PAUSE_S)
    except TimeoutError:
        message = f"{bootstrap_servers} committed no transaction in {deadline_s:.1f} s"
        raise ProbeFailed(f"{message} ({last_error})") from None


async def _attempt(settings: Settings) -> None:
    topic = f"{PROBE_TOPIC_PREFIX}-{uuid.uuid4().hex}"
    admin, feeder = KafkaAdmin(settings), KafkaFeeder(settings, topic)
    try:
        await admin.create_topics([NewTopic(topic, 1)])
        await feeder.start()
        await feeder.feed([Output(topic, None, b"probe", None, False, None)])
    finally:
        await feeder.close()
        # A failure here does not change whether the transaction was committed.
        with contextlib.suppress(SnapreplayError, TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                await admin.delete_topics([topic])
