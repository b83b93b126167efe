"""Enrichment after a backlog: which input is fetched first must not decide whether an order meets its customer.

`SNAPREPLAY_TEST_BACKLOG=50000,1000,20` has more customers, orders and rounds.
"""

import json
import operator
import os
import random
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Producer

from snapreplay import App, MapState, Out, Pair, Stores, Topic, nullable
from snapreplay import json as json_codec
from snapreplay.testing import RealHarness
from tests.support.deadlines import scaled
from tests.support.kafka import until_async

CUSTOMERS, ORDERS, ROUNDS = map(int, os.environ.get("SNAPREPLAY_TEST_BACKLOG", "12000,300,3").split(","))
PARTITIONS, PADDED = 2, 400  # more than a fetch of customers


class Shop(Stores):
    def __init__(self) -> None:
        self.customers = MapState(str, str)


orders = Topic("orders", value=json_codec(str))
customers = Topic("customers", value=nullable(json_codec(str)))
named = Topic("named", value=json_codec(dict[str, str | None]))
app = App("backlog", inputs=[orders, customers], outputs=[named], state=Shop)


@app.join(orders, app.table(customers, store="customers"), how="left")
def enrich(pair: Pair[str, str, str | None], state: Shop, out: Out) -> None:
    out.send(named, key=pair.key, value={pair.left: pair.right})


def produce(servers: str, harness: RealHarness[Any], dice: random.Random) -> dict[str, str]:
    """Write the orders first, but with later timestamps. Return the name that each order must get."""
    began_ms, expected = time.time_ns() // 1_000_000 - 86_400_000, {}
    producer = Producer({"bootstrap.servers": servers, "partitioner": "murmur2_random", "linger.ms": 50})
    for number in range(ORDERS):
        customer = dice.randrange(CUSTOMERS)
        expected[f"o{number}"] = f"name {customer}".ljust(PADDED)
        value = json.dumps(f"o{number}")
        producer.produce(harness.prefixed(orders), value, f"c{customer}", timestamp=began_ms + CUSTOMERS + number)
    for number in range(CUSTOMERS):
        value = json.dumps(f"name {number}".ljust(PADDED))
        producer.produce(harness.prefixed(customers), value, f"c{number}", timestamp=began_ms + number)
        producer.poll(0)
    assert producer.flush(scaled(60)) == 0
    return expected


async def sent_by(harness: RealHarness[Any]) -> int:
    return len(await harness.outputs(named))


@pytest.mark.whole
@pytest.mark.timeout(600 + 300 * ROUNDS)
async def test_each_order_gets_the_name_of_its_customer_each_time(broker: Any, unique: Callable[[str], str]) -> None:
    """Each round has a backlog of its own, and a SIGKILL somewhere in it."""
    missed = dict[int, int]()
    for number in range(ROUNDS):
        dice = random.Random(number)
        prefix = f"{unique('backlog')}-"
        harness = RealHarness(app, broker, partitions=PARTITIONS, prefix=prefix, deadline_s=scaled(120))
        async with harness:
            await harness.kill()
            expected = produce(broker.bootstrap_servers, harness, dice)
            await harness.restart()
            some = dice.randrange(ORDERS // 2)
            await until_async(partial(sent_by, harness), partial(operator.le, some))
            await harness.restart()
            await harness.caught_up()
            sent = [pair for each in await harness.outputs(named) for pair in each.value.items()]
        assert sorted(order for order, _ in sent) == sorted(expected)
        missed[number] = sum(expected[order] != name for order, name in sent)
    assert not any(missed.values()), missed
