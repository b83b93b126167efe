"""A limit order book: orders and cancellations in, trades out. The book is an ordered map, so the best order of a side
is the first of a range.

Input "orders", keyed by symbol. Output "trades".
"""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from snapreplay import App, MapState, Out, Record, Stores, Topic, json, utf8

Side = Literal["buy", "sell"]


class New(Struct, tag="new"):
    """Buy or sell up to `quantity` at `price` (ticks) or better."""

    order_id: str
    side: Side
    price: int
    quantity: int


class Cancel(Struct, tag="cancel"):
    order_id: str


class Trade(Struct):
    """A trade at the price of the order that was there first."""

    buy_id: str
    sell_id: str
    price: int
    quantity: int


class Resting(Struct):
    """An order in the book."""

    order_id: str
    quantity: int


Rank = tuple[str, str, int, int]
"""Symbol, side, price (negated for buyers), offset of the order: the best of a symbol and side comes first."""


class Book(Stores):
    def __init__(self) -> None:
        self.ranked = MapState(Rank, Resting, ordered=True)
        self.ranks = MapState(tuple[str, str], Rank)  # by symbol and order id, for cancellations


orders = Topic("orders", key=utf8, value=json(New | Cancel))
trades = Topic("trades", key=utf8, value=json(Trade))
app = App("order-book", inputs=[orders], outputs=[trades], state=Book)


@app.handler(orders)
def on_order(record: Record[str, New | Cancel], book: Book, out: Out) -> None:
    symbol, order = record.key, record.value
    place = symbol, order.order_id
    if isinstance(order, Cancel):
        if place in book.ranks:  # else it has been filled
            del book.ranked[book.ranks.pop(place)]
        return
    if place in book.ranks or order.quantity <= 0:
        raise ValueError(f"order {order.order_id}: its id is in the book, or its quantity {order.quantity} is below 1")
    left = order.quantity
    other: Side = "sell" if order.side == "buy" else "buy"
    for rank, best in book.ranked.range(prefix=(symbol, other)):
        price = abs(rank[2])
        crosses = price <= order.price if order.side == "buy" else price >= order.price
        if not left or not crosses:
            break
        quantity = min(left, best.quantity)
        buyer, seller = (order, best) if order.side == "buy" else (best, order)
        out.send(trades, key=symbol, value=Trade(buyer.order_id, seller.order_id, price, quantity))
        left -= quantity
        best.quantity -= quantity
        if not best.quantity:
            del book.ranked[rank], book.ranks[symbol, best.order_id]
    if left:
        rank = symbol, order.side, -order.price if order.side == "buy" else order.price, record.offset
        book.ranked[rank] = Resting(order.order_id, left)
        book.ranks[place] = rank
