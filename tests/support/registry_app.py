"""An app with Avro in and out, for a service process: it takes the registry's URL from its environment."""

import os

import msgspec

from snapreplay import App, MapState, Out, Record, SchemaRegistry, Topic
from snapreplay.testing import Expected


class Order(msgspec.Struct):
    id: str
    customer: str
    cents: int


class Total(msgspec.Struct):
    cents: int
    order: str


registry = SchemaRegistry(os.environ.get("REGISTRY_URL", "http://127.0.0.1:8081"), auto_register=True)
orders = Topic("orders", value=registry.avro(Order))
totals = Topic("totals", key=registry.avro(str), value=registry.avro(Total))
app = App("spending", inputs=[orders], outputs=[totals], state=lambda: MapState(str, int, default=int))


@app.handler(orders)
def on_order(record: Record[str, Order], state: MapState[str, int], out: Out) -> None:
    customer = record.value.customer
    state[customer] += record.value.cents
    out.send(totals, key=customer, value=Total(state[customer], record.value.id))


def added_up(records: list[Record[str, Order]]) -> Expected:
    """The same by hand."""
    sums, sent = dict[str, int](), []
    for each in records:
        customer = each.value.customer
        sums[customer] = sums.get(customer, 0) + each.value.cents
        sent.append((customer, Total(sums[customer], each.value.id)))
    return Expected(sums, {totals: sent})
