"""Suspicious card payments: two inputs, a sliding window of payments per card by timers, alerts with their reasons.

Inputs "card-payments" and "account-events", both keyed by card. Output "fraud-alerts": the payments to look at.
Output "fraud-log": one entry per input record, in the order in which the two inputs were processed.
"""

from __future__ import annotations

import msgspec

from snapreplay import App, MapState, Out, Record, Stores, Timer, Topic, json, utf8

WINDOW_MS = 10 * 60_000
PAYMENTS_MAX = 5
LIMIT_CENTS = 100_000


class Payment(msgspec.Struct):
    payment_id: str
    amount_cents: int
    country: str


class LimitChanged(msgspec.Struct, tag="limit-changed"):
    limit_cents: int


class Blocked(msgspec.Struct, tag="blocked"):
    pass


class Unblocked(msgspec.Struct, tag="unblocked"):
    pass


AccountEvent = LimitChanged | Blocked | Unblocked


class Alert(msgspec.Struct):
    payment_id: str
    reasons: list[str]
    payments: int
    sum_cents: int
    limit_cents: int


class Logged(msgspec.Struct):
    topic: str
    offset: int
    alerted: bool


class Account(msgspec.Struct):
    limit_cents: int = LIMIT_CENTS
    blocked: bool = False


class Cards(Stores):
    def __init__(self) -> None:
        self.accounts = MapState(str, Account, default=Account)  # those that differ from a new one
        # Card, timestamp, offset.
        self.window = MapState(tuple[str, int, int], Payment, ordered=True)


card_payments = Topic("card-payments", key=utf8, value=json(Payment))
account_events = Topic("account-events", key=utf8, value=json(AccountEvent))
fraud_alerts = Topic("fraud-alerts", key=utf8, value=json(Alert))
fraud_log = Topic("fraud-log", key=utf8, value=json(Logged))

app = App("fraud", inputs=[card_payments, account_events], outputs=[fraud_alerts, fraud_log], state=Cards)


@app.handler(card_payments)
def on_payment(record: Record[str, Payment], state: Cards, out: Out) -> None:
    card, payment, leaves_at_ms = record.key, record.value, record.timestamp_ms + WINDOW_MS
    account = state.accounts.get(card, Account())
    payments = [each for _, each in state.window.range(prefix=(card,))] + [payment]
    reasons = reasons_of(account, payments)
    if leaves_at_ms > state.stream_time_ms:  # else it is too late for the window
        key = (card, record.timestamp_ms, record.offset)
        state.window[key] = payment
        state.window.schedule(key, leaves_at_ms, timer="leave")
    if reasons:
        total = sum(each.amount_cents for each in payments)
        alert = Alert(payment.payment_id, reasons, len(payments), total, account.limit_cents)
        out.send(fraud_alerts, key=card, value=alert)
    out.send(fraud_log, key=card, value=Logged(record.topic, record.offset, bool(reasons)))


@app.timer("leave")
def on_leave(timer: Timer[tuple[str, int, int]], state: Cards, out: Out) -> None:  # noqa: ARG001 - all handlers have these three
    del state.window[timer.key]


@app.handler(account_events)
def on_account_event(record: Record[str, AccountEvent], state: Cards, out: Out) -> None:
    account = state.accounts[record.key]
    match record.value:
        case LimitChanged(limit_cents):
            account.limit_cents = limit_cents
        case Blocked():
            account.blocked = True
        case Unblocked():
            account.blocked = False
    if account == Account():
        del state.accounts[record.key]
    out.send(fraud_log, key=record.key, value=Logged(record.topic, record.offset, alerted=False))


def reasons_of(account: Account, payments: list[Payment]) -> list[str]:
    """Say why the last of these payments is suspicious."""
    found = {
        "blocked": account.blocked,
        "limit": sum(each.amount_cents for each in payments) > account.limit_cents,
        "travel": any(each.country != payments[-1].country for each in payments),
        "velocity": len(payments) > PAYMENTS_MAX,
    }
    return [reason for reason, holds in found.items() if holds]
