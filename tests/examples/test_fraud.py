"""fraud.py against a fold by hand, by brute force and without snapreplay."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

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


@dataclass
class Judge:
    """One partition. It never forgets a payment, so it cannot forget one too early."""

    stream_time_ms: int = -1
    payments: dict[str, list[tuple[int, int, str]]] = field(default_factory=dict)
    limits: dict[str, int] = field(default_factory=dict)
    blocked: set[str] = field(default_factory=set)

    def fold(self, sent: Sent) -> dict[str, Any] | None:
        """The alert about this record."""
        self.stream_time_ms = max(self.stream_time_ms, sent.timestamp_ms)
        if sent.topic == "account-events":
            kind = sent.value["type"]
            if kind == "limit-changed":
                self.limits[sent.key] = sent.value["limit_cents"]
            elif kind == "blocked":
                self.blocked.add(sent.key)
            else:
                self.blocked.discard(sent.key)
            return None
        amount, country = sent.value["amount_cents"], sent.value["country"]
        past = self.payments.setdefault(sent.key, [])
        window = [p for p in past if p[0] > self.stream_time_ms - WINDOW_MS]
        past.append((sent.timestamp_ms, amount, country))
        total, limit = sum(p[1] for p in window) + amount, self.limits.get(sent.key, 100_000)
        found = {
            "blocked": sent.key in self.blocked,
            "limit": total > limit,
            "travel": any(p[2] != country for p in window),
            "velocity": len(window) >= 5,
        }
        reasons = [name for name, holds in found.items() if holds]
        if not reasons:
            return None
        return {
            "payment_id": sent.value["payment_id"],
            "reasons": reasons,
            "payments": len(window) + 1,
            "sum_cents": total,
            "limit_cents": limit,
        }

    def window_counts(self) -> dict[str, int]:
        """Payments in the window, of each card that has one."""
        since_ms = self.stream_time_ms - WINDOW_MS
        counts = {card: sum(p[0] > since_ms for p in past) for card, past in self.payments.items()}
        return {card: count for card, count in counts.items() if count}

    def worth_keeping(self) -> set[str]:
        """Cards with something to remember; a payment may stay for a minute more than its window."""
        since_ms = self.stream_time_ms - WINDOW_MS - 60_000
        recent = {card for card, past in self.payments.items() if any(p[0] > since_ms for p in past)}
        return recent | self.blocked | {c for c, limit in self.limits.items() if limit != 100_000}


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


def assert_nothing_else_is_remembered(state: Cards, judge: Judge) -> None:
    """Exactly the payments in the window, and the accounts that differ from a new one."""
    assert Counter(card for (card, _, _), _ in state.window.range()) == judge.window_counts()
    limits = {card for card, limit in judge.limits.items() if limit != 100_000}
    assert set(state.accounts) == limits | judge.blocked


@pytest.mark.parametrize("seed", range(3))
def test_the_fold_by_hand_gives_the_same_alerts(seed: int) -> None:
    """And the same payments are remembered, crashes or not, and nothing else."""
    harness, judge, expected = Harness(app), Judge(), []
    for number, sent in enumerate(generate(seed, 500)):
        harness.feed_batch([raw(sent)])
        alert = judge.fold(sent)
        expected += [] if alert is None else [alert]
        if number % 20 == 0:
            assert_nothing_else_is_remembered(harness.state, judge)
        if number % 97 == 0:
            harness.crash(seed=number)
    alerts = harness.outputs(fraud_alerts)
    assert [msgspec.to_builtins(one.value) for one in alerts] == expected
    assert len(expected) > 100


def test_it_is_deterministic() -> None:
    """Whatever the batches and crashes."""
    assert check(app, [raw(sent) for sent in generate(7, 40)]).left_out == ()
