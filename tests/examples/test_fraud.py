"""fraud.py, and its window."""

import random
from dataclasses import dataclass
from typing import Any

import msgspec

from examples.fraud import (
    AccountEvent,
    Blocked,
    Cards,
    LimitChanged,
    Payment,
    account_events,
    app,
    card_payments,
    fraud_alerts,
)
from snapreplay import Topic
from snapreplay.testing import Harness, check, record

NOW_MS = 1_700_000_000_000
WINDOW_MS = 600_000


@dataclass(frozen=True)
class Sent:
    topic: str
    key: str
    value: dict[str, Any]
    timestamp_ms: int


def generate(seed: int, count: int) -> list[Sent]:
    """Bursts of few cards, quiet stretches, late payments, timestamps that meet exactly."""
    chance = random.Random(seed)
    now_ms, made = 1_700_000_000_000, []
    for number in range(count):
        now_ms += chance.choice([0, 0, 1_000, 5_000, 60_000])
        if chance.random() < 0.01:
            now_ms += chance.choice([WINDOW_MS, 3 * WINDOW_MS, 40 * WINDOW_MS])
        key = f"card-{chance.randrange(12)}"
        if chance.random() < 0.15:
            kind = chance.choice(["limit-changed", "blocked", "unblocked", "unblocked"])
            event: dict[str, Any] = {"type": kind}
            if kind == "limit-changed":
                event["limit_cents"] = chance.choice([30_000, 100_000, 200_000])
            made.append(Sent("account-events", key, event, now_ms))
            continue
        late_ms = chance.choice([1_000, 300_000, WINDOW_MS, 2 * WINDOW_MS])
        at_ms = now_ms - late_ms if chance.random() < 0.05 else now_ms
        payment = {
            "payment_id": f"p{number}",
            "amount_cents": chance.randrange(100, 40_000),
            "country": "NL" if chance.random() < 0.9 else "US",
        }
        made.append(Sent("card-payments", key, payment, at_ms))
    return made


def decoded(sent: Sent) -> tuple[Topic[Any, Any], Any]:
    if sent.topic == "card-payments":
        return card_payments, msgspec.convert(sent.value, Payment)
    event: AccountEvent = msgspec.convert(sent.value, AccountEvent)
    return account_events, event


def raw(sent: Sent) -> Any:
    topic, value = decoded(sent)
    return record(topic, key=sent.key, value=value, timestamp_ms=sent.timestamp_ms)


def pay(harness: Harness[Cards], at_ms: int, cents: int = 100, country: str = "NL") -> None:
    payment = Payment(f"at-{at_ms}", cents, country)
    harness.feed(card_payments, key="c", value=payment, timestamp_ms=NOW_MS + at_ms)


def reasons(harness: Harness[Cards]) -> list[list[str]]:
    return [sent.value.reasons for sent in harness.outputs(fraud_alerts)]


def test_a_payment_leaves_the_window_exactly_when_it_is_over() -> None:
    """At the window's length, not a millisecond before."""
    for gap_ms, expected in [(WINDOW_MS - 1, [["travel"]]), (WINDOW_MS, [])]:
        harness = Harness(app)
        pay(harness, 0)
        pay(harness, gap_ms, country="US")
        assert reasons(harness) == expected


def test_a_limit_counts_from_its_event_on() -> None:
    """As a block does."""
    harness = Harness(app)
    pay(harness, 0, 50_000)
    harness.feed(account_events, key="c", value=LimitChanged(40_000))
    pay(harness, 2, 1)
    harness.feed(account_events, key="c", value=Blocked())
    pay(harness, 4, 1)
    assert reasons(harness) == [["limit"], ["blocked", "limit"]]


def test_it_is_deterministic() -> None:
    """With any batches and crashes."""
    assert check(app, [raw(sent) for sent in generate(7, 40)]).left_out == ()
