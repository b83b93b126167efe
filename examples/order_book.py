"""A limit order book: a state that is not a map, because matching needs the orders sorted.

Input "orders", keyed by symbol: new limit orders and cancellations. Output "trades".
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from typing import Literal

import msgspec

from snapreplay import App, Out, Record, Topic, json, utf8

Side = Literal["buy", "sell"]


class New(msgspec.Struct, tag="new"):
    """Buy or sell up to `quantity` at `price` (ticks) or better."""

    order_id: str
    side: Side
    price: int
    quantity: int


class Cancel(msgspec.Struct, tag="cancel"):
    """Nothing happens if the order is gone."""

    order_id: str


class Trade(msgspec.Struct):
    """A trade at the price of the order that was there first."""

    buy_id: str
    sell_id: str
    price: int
    quantity: int


class Resting(msgspec.Struct):
    """An order in the book; `sequence` says who came first."""

    symbol: str
    side: Side
    price: int
    sequence: int
    quantity: int


Rank = tuple[int, int, str]
"""Best first: price (negated for buyers), sequence, order id."""

_NEXT_SEQUENCE = b"next_sequence"
_ORDER = b"order/"


class OrderBook:
    """All symbols of a partition. Every change records how to undo it, so a failed record changes nothing."""

    def __init__(self) -> None:
        self._orders: dict[str, Resting] = {}
        self._ranks: dict[tuple[str, Side], list[Rank]] = {}
        self._next_sequence = 0
        self._undo: list[Callable[[], None]] = []

    def place(self, symbol: str, new: New) -> Iterable[Trade]:
        """Trade with the best orders of the other side; what is left of `new` rests in the book.

        Raises:
            ValueError: the order id is already in the book, or the quantity is not positive.
        """
        if new.order_id in self._orders or new.quantity <= 0:
            raise ValueError(f"order {new.order_id}: id is in use, or quantity {new.quantity} < 1")
        trades: list[Trade] = []
        left = new.quantity
        while left and (best_id := self._best_against(symbol, new)):
            best = self._orders[best_id]
            quantity = min(left, best.quantity)
            trades.append(_trade(new, best_id, best.price, quantity))
            self._reduce(best_id, quantity)
            left -= quantity
        if left:
            order = Resting(symbol, new.side, new.price, self._next_sequence, left)
            self._set_next_sequence(self._next_sequence + 1)
            self._insert(new.order_id, order)
        return trades

    def cancel(self, order_id: str) -> None:
        if order_id in self._orders:
            self._remove(order_id)

    # ------------------------------------------------------------ what the service needs

    def begin(self) -> None:
        self._undo.clear()

    def rollback(self) -> None:
        for undo in reversed(self._undo.copy()):
            undo()
        self._undo.clear()

    def snapshot(self) -> Iterable[tuple[bytes, bytes]]:
        encode = msgspec.msgpack.encode
        yield _NEXT_SEQUENCE, encode(self._next_sequence)
        for order_id, order in self._orders.items():
            yield _ORDER + order_id.encode(), encode(order)

    def restore(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        self._orders.clear()
        self._ranks.clear()
        self._undo.clear()
        for key, value in entries:
            if key == _NEXT_SEQUENCE:
                self._next_sequence = msgspec.msgpack.decode(value, type=int)
            else:
                order = msgspec.msgpack.decode(value, type=Resting)
                self._insert(key.removeprefix(_ORDER).decode(), order)
        self._undo.clear()

    # ------------------------------------------------------------ changes, each with its undo

    def _insert(self, order_id: str, order: Resting) -> None:
        self._orders[order_id] = order
        insort(self._side(order), _rank(order_id, order))
        self._undo.append(lambda: self._remove(order_id))

    def _remove(self, order_id: str) -> None:
        order = self._orders.pop(order_id)
        ranks = self._side(order)
        del ranks[bisect_left(ranks, _rank(order_id, order))]
        self._undo.append(lambda: self._insert(order_id, order))

    def _reduce(self, order_id: str, quantity: int) -> None:
        order = self._orders[order_id]
        if quantity == order.quantity:
            self._remove(order_id)
            return
        order.quantity -= quantity

        def undo() -> None:
            order.quantity += quantity

        self._undo.append(undo)

    def _set_next_sequence(self, value: int) -> None:
        before = self._next_sequence
        self._next_sequence = value
        self._undo.append(lambda: setattr(self, "_next_sequence", before))

    def _side(self, order: Resting) -> list[Rank]:
        return self._ranks.setdefault((order.symbol, order.side), [])

    def _best_against(self, symbol: str, new: New) -> str | None:
        other: Side = "sell" if new.side == "buy" else "buy"
        ranks = self._ranks.get((symbol, other))
        if not ranks:
            return None
        best_id = ranks[0][2]
        price = self._orders[best_id].price
        crosses = price <= new.price if new.side == "buy" else price >= new.price
        return best_id if crosses else None


def _rank(order_id: str, order: Resting) -> Rank:
    return (-order.price if order.side == "buy" else order.price, order.sequence, order_id)


def _trade(new: New, best_id: str, price: int, quantity: int) -> Trade:
    buy_id, sell_id = (new.order_id, best_id) if new.side == "buy" else (best_id, new.order_id)
    return Trade(buy_id, sell_id, price, quantity)


orders = Topic("orders", key=utf8, value=json(New | Cancel))
trades = Topic("trades", key=utf8, value=json(Trade))

app = App("order-book", inputs=[orders], outputs=[trades], state=OrderBook)


@app.handler(orders)
def on_order(record: Record[str, New | Cancel], book: OrderBook, out: Out) -> None:
    match record.value:
        case New() as new:
            for trade in book.place(record.key, new):
                out.send(trades, key=record.key, value=trade)
        case Cancel(order_id):
            book.cancel(order_id)
