"""A producer to whom something happens between its last send and its commit."""

import asyncio

from snapreplay.service.kafka.producer import KafkaProducer
from tests.support.deadlines import scaled


class Overtaken(KafkaProducer):
    """A producer to whom something happens when everything is sent and nothing committed."""

    meanwhile = staticmethod(lambda: asyncio.sleep(0))

    async def _send(self, batches):
        bases = await super()._send(batches)
        await self.meanwhile()
        return bases


async def overtaken(cluster, settings, transactional_id, meanwhile):
    producer = Overtaken(settings, transactional_id, cluster.limits_of)
    producer.meanwhile = meanwhile
    await producer.start(scaled(15))
    return producer
