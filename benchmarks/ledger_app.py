"""The program under measurement, a running total per key, as for every peer.

Values of about 95 bytes, state per key {count, sum, last timestamp}, one output per record. With `BENCH_ORDERED=1` in
the environment the map keeps its keys in order. `BENCH_APP` is the app id, and with "-out" the topic of the outputs;
`BENCH_INPUT` is the input.
"""

from __future__ import annotations

import os

import msgspec

from snapreplay.app.app import App
from snapreplay.app.codecs import json, utf8
from snapreplay.app.out import Out
from snapreplay.app.record import Record
from snapreplay.app.topic import Topic
from snapreplay.state.map import MapState


class Payment(msgspec.Struct):
    amount: int
    ts: int


class Account(msgspec.Struct):
    count: int = 0
    sum: int = 0
    last_ts: int = 0


class Balance(msgspec.Struct):
    count: int
    sum: int
    last_ts: int


APP_ID = os.environ.get("BENCH_APP", "bench")
payments = Topic(os.environ.get("BENCH_INPUT", f"{APP_ID}-in"), key=utf8, value=json(Payment))
ORDERED = os.environ.get("BENCH_ORDERED") == "1"
balances = Topic(f"{APP_ID}-out", key=utf8, value=json(Balance))
app = App(
    APP_ID,
    inputs=[payments],
    outputs=[balances],
    state=lambda: MapState(str, Account, default=Account, ordered=ORDERED),
)


@app.handler(payments)
def on_payment(record: Record[str, Payment], state: MapState[str, Account], out: Out) -> None:
    account = state[record.key]
    payment = record.value
    account.count += 1
    account.sum += payment.amount
    account.last_ts = payment.ts
    out.send(balances, key=record.key, value=Balance(account.count, account.sum, account.last_ts))
