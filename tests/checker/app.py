"""The app that the checker judges: a count and a sum per key, over two inputs; amounts that are held for a while.

`payments-ID` are added, `refunds-ID` subtracted; each record gives one output to `accounts-ID` which says of which
input record it is and what count and sum of its key are after it. A record with `hold_ms` also puts its amount into
another store, where it expires, and sets a timer: if the amount is still there then, it is added, too. Each timer gives
one output, of `releases-ID` and a running number instead of an input record. Importing `app` also installs the journal
of outcomes, if the environment asks for one.

An app that is `wired` has a table, an internal topic and a call, too: amounts are multiplied by the rate that the table
`rates-ID` has for their key; a record with `to` sends its amount to itself under that key, through
`ID-internal-hops`; for one with `ask` the outside says an amount, which comes back through `ID-internal-ask-results`.
What comes back is added, and gives an output like every record.
"""

import os
from typing import Any

import msgspec

from snapreplay import App, MapState, Stores, Topic, json, nullable
from tests.checker import outcomes

APP_ID = "SNAPREPLAY_TEST_CHECKED_APP_ID"
TTL_MS = 400
"""Of an amount that is held."""
RELEASE, RELEASED = "release", "released"


def make(app_id: str, ttl_ms: int = TTL_MS, schema_version: int = 1, *, wired: bool = False) -> App[Any]:
    """`ttl_ms`: another one is another app than the checker's. Each later `schema_version` keeps the entries."""
    payments, refunds = Topic(f"payments-{app_id}"), Topic(f"refunds-{app_id}")
    accounts = Topic(f"accounts-{app_id}")
    rates = Topic(f"rates-{app_id}", value=nullable(json(int)))
    made: App[Any] = App(
        app_id,
        inputs=[payments, refunds, *([rates] if wired else [])],
        outputs=[accounts],
        state=lambda: Stores(
            default=MapState(str, dict, default=lambda: {"n": 0, "sum": 0}),
            holds=MapState(str, int, ttl_ms=ttl_ms),
            counts=MapState(str, int, default=lambda: 0),
            **({"rates": MapState(str, int)} if wired else {}),  # type: ignore[arg-type] # a store, never `ordered`
        ),
        schema_version=schema_version,
    )
    for schema in range(1, schema_version):
        made.upgrade(schema, dict, store="default")(lambda key, old: (key, old))

    hops: Any = made.topic("hops", value=json(dict)) if wired else None

    @made.handler(payments)
    def on_payment(record: Any, state: Any, out: Any) -> None:
        amount = record.value["amount"]
        _book(record, state, out, amount * state.rates.get(record.key, 1) if wired else amount)
        if "to" in record.value:
            out.send(hops, key=record.value["to"], value={"amount": amount, "id": record.id})
        if "ask" in record.value:
            out.call(ask, record.key, amount)

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

    ask: Any = _wire(made, rates, hops, _book) if wired else None

    @made.timer(RELEASE)
    def on_release(timer: Any, state: Any, out: Any) -> None:
        account, number = state.default[timer.key], state.counts[RELEASED]
        account["sum"] += state.holds.pop(timer.key, 0)
        state.counts[RELEASED] = number + 1
        value = {"id": f"releases-{app_id}-{timer.partition}-{number}", **account}
        out.send(accounts, key=timer.key, value=value)

    return made


def _wire(made: App[Any], rates: Any, hops: Any, book: Any) -> Any:
    made.table(rates, store="rates")

    @made.handler(hops)
    def on_hop(record: Any, state: Any, out: Any) -> None:
        book(record, state, out, record.value["amount"])

    @made.call(retries=None)
    async def ask(call: Any) -> int:
        said: int = call.request + 1
        return said

    @ask.handler
    def on_answer(record: Any, state: Any, out: Any) -> None:
        book(msgspec.structs.replace(record, value={}), state, out, record.value.result)

    return ask


def __getattr__(name: str) -> App[Any]:
    """`app` is made when it is asked for: tests import this module without the variable."""
    if name != "app":
        raise AttributeError(name)
    outcomes.install_from_environment()
    made = make(os.environ[APP_ID])
    globals()["app"] = made
    return made
