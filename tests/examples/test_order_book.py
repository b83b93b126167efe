"""A state that is not a map: sorted, undoable, restored from entries in any order."""

import random

import pytest

from examples.order_book import Cancel, New, OrderBook, Side, Trade, app, orders, trades
from snapreplay.testing import ErrorPolicy, Harness, check, record

SIDES: tuple[Side, Side] = ("buy", "sell")


def order(value, symbol="ACME"):
    return record(orders, key=symbol, value=value)


def traded(harness):
    return [one.value for one in harness.outputs(trades)]


def test_best_price_then_first_come():
    """A buyer takes the cheapest sellers, of equals the older one, and rests with what is left."""
    harness = Harness(app)
    harness.feed_batch(
        [
            order(New("s1", "sell", 102, 5)),
            order(New("s2", "sell", 101, 5)),
            order(New("s3", "sell", 101, 5)),
            order(New("b1", "buy", 101, 12)),
            order(New("s4", "sell", 100, 9)),
        ]
    )
    assert traded(harness) == [Trade("b1", "s2", 101, 5), Trade("b1", "s3", 101, 5), Trade("b1", "s4", 101, 2)]


def test_cancelled_orders_and_other_symbols_do_not_trade():
    """Cancelling an unknown order is nothing."""
    harness = Harness(app)
    harness.feed_batch([order(New("s1", "sell", 100, 5)), order(Cancel("s1")), order(Cancel("none"))])
    harness.feed_batch([order(New("s2", "sell", 100, 5), "OTHER"), order(New("b1", "buy", 100, 5))])
    assert traded(harness) == []


def test_a_refused_order_leaves_the_book_as_it_was():
    """The second order of an id fails; what it would have taken is still there."""
    harness = Harness(app, policy=ErrorPolicy.DEAD_LETTER)
    harness.feed_batch(
        [
            order(New("s1", "sell", 100, 5)),
            order(New("s1", "sell", 90, 5)),
            order(New("b0", "buy", 100, 0)),
            order(New("b1", "buy", 100, 5)),
        ]
    )
    assert [str(one.record_id) for one in harness.errors] == ["orders-0-1", "orders-0-2"]
    assert traded(harness) == [Trade("b1", "s1", 100, 5)]


@pytest.mark.parametrize("seed", range(5))
def test_rollback_undoes_any_sequence(seed):
    """After begin, random orders and rollback, the book matches as if nothing had been."""
    chance = random.Random(seed)

    def play(book, prefix):
        for number in range(30):
            if chance.random() < 0.3:
                book.cancel(f"{chance.choice('ab')}{chance.randrange(30)}")
            else:
                side = chance.choice(SIDES)
                book.place("ACME", New(f"{prefix}{number}", side, chance.randrange(95, 105), chance.randrange(1, 9)))

    book, plain = OrderBook(), OrderBook()
    chance.seed(seed)
    play(book, "a")
    chance.seed(seed)
    play(plain, "a")
    book.begin()
    play(book, "b")
    book.rollback()
    assert dict(book.snapshot()) == dict(plain.snapshot())
    taker = New("taker", "buy", 1000, 1000)
    assert book.place("ACME", taker) == plain.place("ACME", taker)


def test_state_and_outputs_depend_on_the_records_only():
    """Also when the entries come back shuffled."""
    chance = random.Random(7)
    values = [
        Cancel(f"o{chance.randrange(n + 1)}")
        if chance.random() < 0.2
        else New(f"o{n}", chance.choice(SIDES), chance.randrange(95, 105), chance.randrange(1, 9))
        for n in range(120)
    ]
    assert check(app, [order(value) for value in values]).left_out == ()
