"""The app that the checker judges: a count and a sum per key, over two inputs; amounts that are held for a while.

`payments-ID` are added, `refunds-ID` subtracted; each record gives one output to `accounts-ID` which says of which
input record it is and what count and sum of its key are after it. A record with `hold_ms` also puts its amount into
another store, where it expires, and sets a timer: if the amount is still there then, it is added, too. Each timer gives
one output, of `releases-ID` and a running number instead of an input record. Importing `app` also installs the journal
of outcomes, if the environment asks for one.
"""

from __future__ import annotations

import os
from typing import Any

from snapreplay import App, MapState, Stores, Topic
from tests.checker import outcomes

APP_ID = "SNAPREPLAY_TEST_CHECKED_APP_ID"
TTL_MS = 400
"""Of an amount that is held."""
RELEASE, RELEASED = "release", "released"


def make(app_id: str, ttl_ms: int = TTL_MS, schema_version: int = 1) -> App[Any]:
    """`ttl_ms`: another one is another app than the checker's. Each later `schema_version` keeps the entries."""
    payments, refunds = Topic(f"payments-{app_id}"), Topic(f"refunds-{app_id}")
    accounts = Topic(f"accounts-{app_id}")
    made: App[Any] = App(
        app_id,
        inputs=[payments, refunds],
        outputs=[accounts],
        state=lambda: Stores(
            default=MapState(str, dict, default=lambda: {"n": 0, "sum": 0}),
            holds=MapState(str, int, ttl_ms=ttl_ms),
            counts=MapState(str, int, default=lambda: 0),
        ),
        schema_version=schema_version,
    )
    for schema in range(1, schema_version):
        made.upgrade(schema, dict, store="default")(lambda key, old: (key, old))

    @made.handler(payments)
    def on_payment(record: Any, state: Any, out: Any) -> None:
        _book(record, state, out, record.value["amount"])

    @made.handler(refunds)
    def on_refund(record: Any, state: Any, out: Any) -> None:
        _book(record, state, out, -record.value["amount"])

    def _book(record: Any, state: Any, out: Any, amount: int) -> None:
        account = state.default[record.key]
        account["n"] += 1
        account["sum"] += amount
        if "hold_ms" in record.value:
            state.holds[record.key] = amount
            state.holds.schedule(record.key, record.timestamp_ms + record.value["hold_ms"], timer=RELEASE)
        out.send(accounts, key=record.key, value={"id": record.id, **account})

    @made.timer(RELEASE)
    def on_release(timer: Any, state: Any, out: Any) -> None:
        account, number = state.default[timer.key], state.counts[RELEASED]
        account["sum"] += state.holds.pop(timer.key, 0)
        state.counts[RELEASED] = number + 1
        value = {"id": f"releases-{app_id}-{timer.partition}-{number}", **account}
        out.send(accounts, key=timer.key, value=value)

    return made


def __getattr__(name: str) -> App[Any]:
    """`app` is made when it is asked for: tests import this module without the variable."""
    if name != "app":
        raise AttributeError(name)
    outcomes.install_from_environment()
    made = make(os.environ[APP_ID])
    globals()["app"] = made
    return made
