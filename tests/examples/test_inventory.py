"""inventory.py, and its timers."""

import random
from dataclasses import dataclass
from typing import Any

import msgspec

from examples.inventory import HOLD_MS, Cancel, Command, Confirm, Event, Query, Receive, Reserve, app, commands, events
from snapreplay.testing import Harness, check, record

NOW_MS = 1_700_000_000_000
assert HOLD_MS == 900_000


@dataclass(frozen=True)
class Sent:
    key: str
    value: dict[str, Any]
    timestamp_ms: int


def generate(seed: int, count: int) -> list[Sent]:
    """Few SKUs and order ids, so that ids come again, before and after they expire; jumps of time."""
    chance = random.Random(seed)
    now_ms, made = 1_700_000_000_000, []
    for number in range(count):
        now_ms += chance.choice([0, 0, 500, 30_000, 60_000])
        if chance.random() < 0.01:
            now_ms += chance.choice([HOLD_MS - 60_000, HOLD_MS, 50 * HOLD_MS])
        late_ms = 120_000 if chance.random() < 0.05 else 0
        order = f"o{chance.randrange(8)}"
        kind = chance.choices(["receive", "reserve", "confirm", "cancel", "query"], [15, 50, 12, 10, 13])[0]
        value: dict[str, Any] = {"type": kind}
        if kind in ("reserve", "confirm", "cancel"):
            value["order"] = order
        if kind in ("receive", "reserve"):
            value["quantity"] = chance.randrange(1, 6)
        if kind == "query":
            value["request"] = f"q{number}"
        made.append(Sent(f"sku-{chance.randrange(4)}", value, now_ms - late_ms))
    return made


def raw(sent: Sent) -> Any:
    value: Command = msgspec.convert(sent.value, Command)
    return record(commands, key=sent.key, value=value, timestamp_ms=sent.timestamp_ms)


def play(*steps: tuple[int, str, Command]) -> list[tuple[str, Any]]:
    harness = Harness(app)
    for at_ms, sku, command in steps:
        harness.feed(commands, key=sku, value=command, timestamp_ms=NOW_MS + at_ms)
    return [(sent.key, sent.value) for sent in harness.outputs(events)]


def test_a_reservation_expires_exactly_when_its_time_is_over() -> None:
    """Another SKU's record brings the time; the stock comes back before that record is handled."""
    begin: list[tuple[int, str, Command]] = [(0, "a", Receive(5)), (0, "a", Reserve("o", 3))]
    assert ("a", Event("expired", 5, "o", 3)) not in play(*begin, (HOLD_MS - 1, "b", Query("q")))
    said = play(*begin, (HOLD_MS, "b", Query("q")))
    assert said[2] == ("a", Event("expired", 5, "o", 3))
    assert said[3][0] == "b"


def test_reservations_of_one_millisecond_expire_in_the_order_of_their_stored_keys() -> None:
    """As docs/time.md says: the shorter key first."""
    orders = [("c24", "o1"), ("c8", "o1"), ("c8", "o10"), ("c8", "o9")]
    begin: list[tuple[int, str, Command]] = [(0, sku, Receive(5)) for sku in ("c24", "c8")]
    said = play(*begin, *((0, sku, Reserve(order, 1)) for sku, order in orders), (HOLD_MS, "b", Query("q")))
    expired = [(sku, event.order) for sku, event in said if isinstance(event, Event) and event.kind == "expired"]
    assert expired == [("c8", "o1"), ("c8", "o9"), ("c24", "o1"), ("c8", "o10")]


def test_confirmed_and_cancelled_reservations_do_not_expire() -> None:
    """Also if the order id was reserved again: only the new reservation expires, at its own time."""
    said = play(
        (0, "a", Receive(5)),
        (0, "a", Reserve("sold", 2)),
        (0, "a", Reserve("o", 3)),
        (1, "a", Confirm("sold")),
        (2, "a", Cancel("o")),
        (3, "a", Reserve("o", 1)),
        (HOLD_MS + 2, "a", Query("before")),
        (HOLD_MS + 3, "a", Query("after")),
    )
    assert [one.kind for _, one in said if isinstance(one, Event)].count("expired") == 1
    assert said[-2] == ("a", Event("expired", 3, "o", 1))


def test_it_is_deterministic() -> None:
    """With any batches and crashes."""
    assert check(app, [raw(sent) for sent in generate(7, 100)]).left_out == ()
