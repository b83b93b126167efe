"""order_book.py against a book that searches a list."""

import random
from typing import Any

from examples.order_book import Cancel, New, Side, Trade, app, orders, trades
from snapreplay.testing import ErrorPolicy, Harness


def searched(orders):
    """Match by searching all orders of a symbol: by the best price, then by arrival."""
    resting: list[list[Any]] = []
    traded = []
    for symbol, order in orders:
        if isinstance(order, Cancel):
            resting = [each for each in resting if (each[0], each[1].order_id) != (symbol, order.order_id)]
            continue
        if order.quantity <= 0 or any((symbol, order.order_id) == (at, each.order_id) for at, each, _ in resting):
            continue
        sign = 1 if order.side == "buy" else -1
        left = order.quantity
        others = [each for each in resting if each[0] == symbol and each[1].side != order.side]
        for each in sorted(others, key=lambda each: sign * each[1].price):
            _, best, available = each
            quantity = min(left, available)
            if not quantity or sign * best.price > sign * order.price:
                break
            ids = (order.order_id, best.order_id) if sign > 0 else (best.order_id, order.order_id)
            traded.append((symbol, Trade(*ids, best.price, quantity)))
            left -= quantity
            each[2] -= quantity
        resting = [each for each in resting if each[2]]
        if left:
            resting.append([symbol, order, left])
    return traded


SIDES: tuple[Side, Side] = ("buy", "sell")


def some_orders(chance):
    for number in range(200):
        symbol = chance.choice(("ACME", "OTHER"))
        if chance.random() < 0.2:
            yield symbol, Cancel(str(chance.randrange(number + 1)))
        else:
            order_id = str(number if chance.random() < 0.9 else chance.randrange(number + 1))
            yield symbol, New(order_id, chance.choice(SIDES), chance.randrange(95, 105), chance.randrange(9))


def test_trades_are_those_of_a_search():
    """Also after crashes; an order that is refused leaves the book as it was."""
    for seed in range(5):
        chance = random.Random(seed)
        sent = list(some_orders(chance))
        harness = Harness(app, policy=ErrorPolicy.DEAD_LETTER)
        for symbol, order in sent:
            harness.feed(orders, key=symbol, value=order)
            if chance.random() < 0.05:
                harness.crash()
        assert [(each.key, each.value) for each in harness.outputs(trades)] == searched(sent)


def test_the_best_price_then_the_first_come():
    harness = Harness(app)
    for order in (
        New("s1", "sell", 102, 5),
        New("s2", "sell", 101, 5),
        New("s3", "sell", 101, 5),
        New("b1", "buy", 101, 12),
        New("s4", "sell", 100, 9),
    ):
        harness.feed(orders, key="ACME", value=order)
    assert [each.value for each in harness.outputs(trades)] == [
        Trade("b1", "s2", 101, 5),
        Trade("b1", "s3", 101, 5),
        Trade("b1", "s4", 101, 2),
    ]
