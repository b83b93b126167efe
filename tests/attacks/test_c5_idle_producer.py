"""An idle producer is forgotten by its coordinator after days; its next commit is refused."""

import asyncio

import pytest

from snapreplay.devbroker.broker import LocalBroker
from tests.support import apps
from tests.support.stage import Stage, until

pytestmark = [pytest.mark.kafka, pytest.mark.whole]  # a broker of its own, and idle time

# A week is Kafka's default for the first; looked at once an hour.
FORGETFUL = {
    "transactional.id.expiration.ms": "1000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "300",
    "producer.id.expiration.ms": "1000",
    "producer.id.expiration.check.interval.ms": "300",
}


async def test_c5_an_expired_transactional_id_costs_one_recovery(unique):
    """The owner finds out at its next batch, recovers as a new owner, and counts every record once."""
    with LocalBroker(properties=FORGETFUL) as broker:
        here = await Stage(broker.bootstrap_servers, apps.ledger(unique("c5"))).prepare()
        async with here.running(records=10) as service:
            epoch = service.restore_status()[0].owner_epoch
            await asyncio.sleep(4)  # idle time is what this is about
            await here.feed(10)
            await here.assert_exactly_once(service)
            await until(lambda: service.restore_status()[0].phase == "live", "live")
            assert service.restore_status()[0].owner_epoch > epoch, "it had been forgotten"
