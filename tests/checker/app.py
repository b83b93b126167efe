"""The app that the checker judges: a count and a sum per key, over two inputs.

`payments-ID` are added, `refunds-ID` subtracted; each record gives one output to `accounts-ID` which says of which
input record it is and what count and sum of its key are after it. Importing `app` also installs the journal of
outcomes, if the environment asks for one.
"""

from __future__ import annotations

import os
from typing import Any

from snapreplay import App, MapState, Topic
from tests.checker import outcomes

APP_ID = "SNAPREPLAY_CHECKED_APP_ID"


def make(app_id: str) -> App[Any]:
    payments, refunds = Topic(f"payments-{app_id}"), Topic(f"refunds-{app_id}")
    accounts = Topic(f"accounts-{app_id}")
    made: App[Any] = App(
        app_id,
        inputs=[payments, refunds],
        outputs=[accounts],
        state=lambda: MapState(str, dict, default=lambda: {"n": 0, "sum": 0}),
    )

    @made.handler(payments)
    def on_payment(record: Any, state: Any, out: Any) -> None:
        _book(record, state, out, record.value["amount"])

    @made.handler(refunds)
    def on_refund(record: Any, state: Any, out: Any) -> None:
        _book(record, state, out, -record.value["amount"])

    def _book(record: Any, state: Any, out: Any, amount: int) -> None:
        account = state[record.key]
        account["n"] += 1
        account["sum"] += amount
        out.send(accounts, key=record.key, value={"id": record.id, **account})

    return made


def __getattr__(name: str) -> App[Any]:
    """`app` is made when it is asked for: tests import this module without the variable."""
    if name != "app":
        raise AttributeError(name)
    outcomes.install_from_environment()
    made = make(os.environ[APP_ID])
    globals()["app"] = made
    return made
