"""Inputs wait for each other: what was written before a record of another input is processed before it."""

import pytest

from snapreplay import App, MapState, Topic
from tests.support import reference
from tests.support.stage import Stage

pytestmark = pytest.mark.kafka

CUSTOMERS, ORDERS, RESTARTS = 20_000, 400, 3


def enriching(name, number):
    """Orders with their customer's region, or "unknown"."""
    customers, orders, enriched = (Topic(f"{each}-{name}") for each in ("customers", "orders", "enriched"))
    app = App(f"{name}-{number}", inputs=[orders, customers], outputs=[enriched], state=lambda: MapState(str, str))

    @app.handler(customers)
    def on_customer(record, state, out):
        state[record.key] = record.value

    @app.handler(orders)
    def on_order(record, state, out):
        out.send(enriched, key=record.key, value=[number, state.get(record.key, "unknown")])

    return app


async def test_orders_after_a_backlog_find_their_customers(broker, unique):
    """The customers come first in time, and are fifty times as many, more than one fetch brings: each app that begins
    at the beginning enriches all orders."""
    name = unique("enriched")
    apps = [enriching(name, number) for number in range(RESTARTS)]
    first = Stage(broker.bootstrap_servers, apps[0])
    await first.prepare()
    await first.send(((f"c{n}", "north" * 50) for n in range(CUSTOMERS)), f"customers-{name}")
    await first.send(((f"c{n * 49}", {"n": n}) for n in range(ORDERS)), f"orders-{name}")
    for app in apps:
        here = Stage(broker.bootstrap_servers, app)
        await here.prepare()
        async with here.running() as service:
            await here.all_processed(service)
    (found,) = await first.read(f"enriched-{name}")
    counted = [value for _, value in reference.decoded(found)]
    assert sorted(map(tuple, counted)) == sorted((n, "north" * 50) for n in range(RESTARTS) for _ in range(ORDERS))
