"""Balances per account, one output per payment. `snapreplay dev examples/ledger.py` runs it."""

from __future__ import annotations

from typing import Any

from snapreplay import App, MapState, Out, Record, Topic

payments = Topic("payments")
balances = Topic("balances")

app = App(
    "ledger", inputs=[payments], outputs=[balances], state=lambda: MapState(str, dict, default=lambda: {"balance": 0})
)


@app.handler(payments)
def on_payment(record: Record[str, Any], state: MapState[str, dict[str, Any]], out: Out) -> None:
    account = state[record.key]  # default= creates a missing one; changes in place are kept
    account["balance"] += record.value["amount"]
    out.send(balances, key=record.key, value=account)
