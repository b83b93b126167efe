"""Apps with windows, a table and a join, for a process of their own."""

from __future__ import annotations

import msgspec

from snapreplay import App, Closed, MapState, Out, Pair, Record, Stores, Topic, json, nullable

SIZE_MS, GRACE_MS, GAP_MS = 60_000, 5_000, 20_000

clicks, counted, ended = Topic("clicks", value=json(int)), Topic("counted"), Topic("ended")
late_clicks = Topic("late-clicks", value=json(int))
Numbers = MapState[tuple[str, int], list[int]]


class Clicks(Stores):
    def __init__(self) -> None:
        self.minutes = Numbers(tuple[str, int], list[int], default=list)
        self.visits = Numbers(tuple[str, int], list[int], default=list, ordered=True)


windowed = App("windowed", inputs=[clicks], outputs=[counted, ended, late_clicks], state=Clicks)


@windowed.window("minutes", size_ms=SIZE_MS, grace_ms=GRACE_MS, store="minutes", late=late_clicks)
def minutes(closed: Closed[str, list[int]], state: Clicks, out: Out) -> None:
    out.send(counted, key=closed.key, value=[closed.start_ms, closed.end_ms, closed.value])


@windowed.session("visits", gap_ms=GAP_MS, grace_ms=GRACE_MS, store="visits", merge=lambda one, other: one + other)
def visits(closed: Closed[str, list[int]], state: Clicks, out: Out) -> None:
    out.send(ended, key=closed.key, value=[closed.start_ms, closed.end_ms, closed.value])


@windowed.handler(clicks)
def on_click(record: Record[str, int], state: Clicks, out: Out) -> None:
    for window in minutes.of(record, state, out):
        state.minutes[window].append(record.value)
    for visit in visits.of(record, state, out):
        state.visits[visit].append(record.value)


class Order(msgspec.Struct):
    customer: str
    amount: int


orders, customers = Topic("orders", value=json(Order)), Topic("customers", value=nullable(json(str)))
named_orders = Topic("named-orders")


class Shop(Stores):
    def __init__(self) -> None:
        self.customers = MapState(str, str)


shop = App("shop", inputs=[orders, customers], outputs=[named_orders], state=Shop)
by_customer = shop.topic("by-customer", value=json(Order))
names = shop.table(customers, store="customers")


@shop.handler(orders)
def rekey(record: Record[str, Order], state: Shop, out: Out) -> None:
    out.send(by_customer, key=record.value.customer, value=record.value)


@shop.join(by_customer, names, how="left")
def enrich(pair: Pair[str, Order, str | None], state: Shop, out: Out) -> None:
    out.send(named_orders, key=pair.key, value=[pair.right, pair.left.amount])
