"""Stock per SKU, and reservations that expire after 15 minutes of stream time and return the stock.

Input "inventory-commands", keyed by SKU. Output "inventory-events", keyed by SKU: what happened, and answers.
"""

from __future__ import annotations

import msgspec

from snapreplay import App, MapState, Out, Record, Stores, Timer, Topic, json, utf8

HOLD_MS = 15 * 60_000


class Receive(msgspec.Struct, tag="receive"):
    quantity: int


class Reserve(msgspec.Struct, tag="reserve"):
    order: str
    quantity: int


class Confirm(msgspec.Struct, tag="confirm"):
    order: str


class Cancel(msgspec.Struct, tag="cancel"):
    order: str


class Query(msgspec.Struct, tag="query"):
    request: str


Command = Receive | Reserve | Confirm | Cancel | Query


class Event(msgspec.Struct, tag="event", omit_defaults=True):
    """An event; `available` is the stock of the SKU after it; a rejection says why."""

    kind: str
    available: int
    order: str = ""
    quantity: int = 0
    why: str = ""


class Reservation(msgspec.Struct):
    order: str
    quantity: int
    expires_at_ms: int


class Answer(msgspec.Struct, tag="answer"):
    request: str
    available: int
    reservations: list[Reservation]


class Inventory(Stores):
    def __init__(self) -> None:
        self.available = MapState(str, int, default=int)
        self.reservations = MapState(tuple[str, str], Reservation, ordered=True)  # SKU, order


commands = Topic("inventory-commands", key=utf8, value=json(Command))
events = Topic("inventory-events", key=utf8, value=json(Event | Answer))
app = App("inventory", inputs=[commands], outputs=[events], state=Inventory)


@app.handler(commands)
def on_command(record: Record[str, Command], state: Inventory, out: Out) -> None:
    out.send(events, key=record.key, value=handle(state, record.key, record.value))


@app.timer("expire")
def on_expire(timer: Timer[tuple[str, str]], state: Inventory, out: Out) -> None:
    sku, order = timer.key
    quantity = state.reservations.pop(timer.key).quantity
    state.available[sku] += quantity
    out.send(events, key=sku, value=Event("expired", state.available[sku], order, quantity))


def handle(state: Inventory, sku: str, command: Command) -> Event | Answer:
    match command:
        case Receive(quantity):
            state.available[sku] += quantity
            return Event("received", state.available[sku], quantity=quantity)
        case Reserve(order, quantity):
            return reserve(state, sku, order, quantity)
        case Confirm(order) | Cancel(order):
            return close(state, sku, order, is_sold=isinstance(command, Confirm))
        case Query(request):
            found = [each for _, each in state.reservations.range(prefix=(sku,))]
            return Answer(request, state.available[sku], found)


def reserve(state: Inventory, sku: str, order: str, quantity: int) -> Event:
    available = state.available[sku]
    if (sku, order) in state.reservations:
        return Event("rejected", available, order, quantity, "already reserved")
    if quantity > available:
        return Event("rejected", available, order, quantity, "out of stock")
    state.available[sku] -= quantity
    at_ms = state.stream_time_ms + HOLD_MS
    state.reservations[sku, order] = Reservation(order, quantity, at_ms)
    state.reservations.schedule((sku, order), at_ms, timer="expire")
    return Event("reserved", available - quantity, order, quantity)


def close(state: Inventory, sku: str, order: str, *, is_sold: bool) -> Event:
    reservation = state.reservations.pop((sku, order), None)
    if reservation is None:
        return Event("rejected", state.available[sku], order, why="no reservation")
    state.reservations.cancel((sku, order), timer="expire")
    if is_sold:
        return Event("confirmed", state.available[sku], order, reservation.quantity)
    state.available[sku] += reservation.quantity
    return Event("cancelled", state.available[sku], order, reservation.quantity)
