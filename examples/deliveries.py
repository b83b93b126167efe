"""Delivery costs: joins Avro orders with customers, asks an HTTP service for each price, adds up the costs per hour.

Inputs: "orders", Avro from a schema registry, keyed by order, and "customers", compacted, keyed by customer.
Outputs: "deliveries", one per order of a known customer; "hourly-costs", orders and cents of a customer in an hour.
"""

from __future__ import annotations

import os

import httpx2
import msgspec

import snapreplay as sr
from snapreplay import Out, Record

HOUR_MS = 3_600_000
REGISTRY_URL = os.environ.get("REGISTRY_URL", "http://127.0.0.1:8081")
PRICES_URL = os.environ.get("PRICES_URL", "http://127.0.0.1:8000/prices")


class Order(msgspec.Struct):
    customer: str
    grams: int


class Customer(msgspec.Struct):
    name: str
    country: str


class Parcel(msgspec.Struct):
    order: str
    grams: int
    name: str = ""
    country: str = ""


class Costs(msgspec.Struct):
    orders: int = 0
    cents: int = 0


class Shop(sr.Stores):
    def __init__(self) -> None:
        self.customers = sr.MapState(str, Customer)
        self.hours = sr.MapState(tuple[str, int], Costs, default=Costs)  # customer, start


orders = sr.Topic("orders", value=sr.SchemaRegistry(REGISTRY_URL).avro(Order))
customers = sr.Topic("customers", value=sr.nullable(sr.json(Customer)))
deliveries, hourly_costs = sr.Topic("deliveries"), sr.Topic("hourly-costs")
app = sr.App("deliveries", inputs=[orders, customers], outputs=[deliveries, hourly_costs], state=Shop)
by_customer = app.topic("by-customer", value=sr.json(Parcel))
http = httpx2.AsyncClient(trust_env=False)
known = app.table(customers, store="customers")


@app.handler(orders)
def on_order(record: Record[str, Order], state: Shop, out: Out) -> None:  # noqa: ARG001 - as all handlers
    out.send(by_customer, key=record.value.customer, value=Parcel(record.key, record.value.grams))


@app.call(request=sr.json(Parcel), result=sr.json(int), timeout_ms=5_000, retries=None)
async def price(call: sr.Call[str, Parcel]) -> int:
    query: dict[str, str | int] = {"country": call.request.country, "grams": call.request.grams}
    answer = await http.get(PRICES_URL, params=query, headers={"Idempotency-Key": call.id})
    return int(answer.raise_for_status().text)


@app.join(by_customer, known)
def on_parcel(pair: sr.Pair[str, Parcel, Customer], state: Shop, out: Out) -> None:  # noqa: ARG001 - as all handlers
    out.call(price, pair.key, Parcel(pair.left.order, pair.left.grams, pair.right.name, pair.right.country))


@app.window("costs", size_ms=HOUR_MS, grace_ms=24 * HOUR_MS, store="hours")  # an answer may be a day late
def on_hour(closed: sr.Closed[str, Costs], state: Shop, out: Out) -> None:  # noqa: ARG001 - as all handlers
    out.send(hourly_costs, key=closed.key, value=[closed.start_ms, closed.value.orders, closed.value.cents])


@price.handler
def on_price(record: Record[str, sr.Answer[Parcel, int]], state: Shop, out: Out) -> None:
    parcel, cents = record.value.request, record.value.result or 0
    for hour in on_hour.of(record, state, out):
        state.hours[hour].orders += 1
        state.hours[hour].cents += cents
    out.send(deliveries, key=record.key, value=[parcel.order, parcel.name, cents])
