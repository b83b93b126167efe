"""The program under measurement with other values: each stored entry is upgraded once."""

from __future__ import annotations

import msgspec

from benchmarks.ledger_app import Account, Balance, Payment, balances, payments
from snapreplay.app.app import App
from snapreplay.app.out import Out
from snapreplay.app.record import Record
from snapreplay.state.map import MapState


class Mean(msgspec.Struct):
    count: int = 0
    mean: float = 0.0
    last_ts: int = 0


app = App(
    "bench", inputs=[payments], outputs=[balances], state=lambda: MapState(str, Mean, default=Mean), schema_version=2
)


@app.upgrade(from_schema=1, value=Account)
def with_mean(key: str, old: Account) -> tuple[str, Mean]:
    return key, Mean(old.count, old.sum / max(1, old.count), old.last_ts)


@app.handler(payments)
def on_payment(record: Record[str, Payment], state: MapState[str, Mean], out: Out) -> None:
    entry, payment = state[record.key], record.value
    entry.mean = (entry.mean * entry.count + payment.amount) / (entry.count + 1)
    entry.count += 1
    entry.last_ts = payment.ts
    out.send(balances, key=record.key, value=Balance(entry.count, round(entry.mean * entry.count), entry.last_ts))
