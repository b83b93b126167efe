"""Apps for tests of the running service. Every output names the record it came from, so that a reader that
shares no code with the service can tell what happened how often."""

import asyncio
import random
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from snapreplay import App, MapState, Stores, Topic, json, nullable
from tests.support.deadlines import scaled

Handler = Callable[[Any, Any, Any], None]

ESCAPING = {each.__name__: each for each in (asyncio.CancelledError, SystemExit, KeyboardInterrupt, MemoryError)}

BUSY_SECONDS = 0.005
MODULUS = 1_000_003  # a prime: the fold of the pair below depends on the order of every record


def ledger(
    name: str,
    rule: Callable[[Any, dict[str, int]], None] | None = None,
    sends: Mapping[str, Any] | None = None,
    **options: Any,
) -> App[Any]:
    """Balances per key; topics payments-NAME and balances-NAME. `rule(value, account)` books one payment; `sends` goes
    with each output."""
    topics: dict[str, Any] = {"inputs": [Topic(f"payments-{name}")], "outputs": [Topic(f"balances-{name}")]}
    app: App[Any] = App(name, **{**topics, "state": accounts, **options})
    (balances,) = app.outputs
    book = rule or add
    more = tuple((sends or {}).items())

    @app.handler(app.inputs[0])
    def on_payment(record: Any, state: Any, out: Any) -> None:
        account = state[record.key]
        account["n"] += 1
        book(record.value, account)
        out.send(balances, key=record.key, value={"id": record.id, **account, **dict(more)})

    return app


def unseen(app: App[Any], version: str) -> App[Any]:
    """The same app after a change that its version does not cover: of an installed package, of a file."""
    app.__dict__["version"] = version
    return app


def told(name: str) -> App[Any]:
    """Each record says what becomes of its key: a number is its value, null deletes it."""
    inputs = Topic(f"told-{name}")
    app: App[Any] = App(name, inputs=[inputs], state=lambda: MapState(str, int))

    @app.handler(inputs)
    def on_told(record: Any, state: Any, out: Any) -> None:
        if record.value is None:
            state.pop(record.key, None)
        else:
            state[record.key] = record.value

    return app


def accounts() -> MapState[str, dict[str, int]]:
    return MapState(str, dict, default=lambda: {"n": 0, "sum": 0})


def add(value: Any, account: dict[str, int]) -> None:
    account["sum"] += value["amount"]


def refuse_poison(value: Any, account: dict[str, int]) -> None:
    """Books the amount first and then raises on poison: half a record's effect is there to be undone."""
    account["sum"] += value["amount"]
    if value.get("poison"):
        raise ValueError(f"poison {value['amount']}")


def take_poison(value: Any, account: dict[str, int]) -> None:
    """The hotfix: poison is worth nothing."""
    account["sum"] += 0 if value.get("poison") else value["amount"]


def subtract(value: Any, account: dict[str, int]) -> None:
    """Other code with another result."""
    account["sum"] -= value["amount"]


def sleep_when_told(value: Any, account: dict[str, int]) -> None:
    """Blocks the runners' loop for value["sleep_s"] seconds."""
    time.sleep(value.get("sleep_s", 0.0))
    account["sum"] += value["amount"]


def raise_as_named(value: Any, account: dict[str, int]) -> None:
    """Raises the class that value["raises"] names; it may be no `Exception`."""
    account["sum"] += value["amount"]
    if "raises" in value:
        raise ESCAPING[value["raises"]]


def compute(value: Any, account: dict[str, int]) -> None:
    """Takes about half a millisecond of CPU; with value["until"], five until a file of this name exists: more on a busy
    machine, where who asks meanwhile takes longer, too."""
    account["sum"] += value["amount"] + sum(range(20_000)) % 1
    ends_at = time.monotonic() + scaled(BUSY_SECONDS)
    while "until" in value and time.monotonic() < ends_at and not Path(value["until"]).exists():
        pass


def grow(value: Any, account: dict[str, Any]) -> None:
    account["sum"] += value["amount"]
    account["padding"] = "x" * value.get("padding", 0)


def pair(name: str, left: str = "", **options: Any) -> App[Any]:
    """Two inputs, left-NAME (or `left`) and right-NAME, folded in an order-sensitive way; output merged-NAME."""
    other, right, merged = (Topic(left or f"left-{name}"), Topic(f"right-{name}"), Topic(f"merged-{name}"))
    app: App[Any] = App(
        name, inputs=[other, right], outputs=[merged], state=lambda: MapState(str, int, default=int), **options
    )

    def folding(factor: int) -> Handler:
        def on_record(record: Any, state: Any, out: Any) -> None:
            state[record.key] = (state[record.key] * factor + record.value["amount"]) % MODULUS
            out.send(merged, key=record.key, value={"id": record.id, "value": state[record.key]})

        return on_record

    app.handler(other)(folding(3))
    app.handler(right)(folding(5))
    return app


def rekeyed(name: str, **options: Any) -> App[Any]:
    """Orders in orders-NAME under their ids; balances of their customers in balances-NAME, by way of an internal
    topic."""
    orders, balances = Topic(f"orders-{name}"), Topic(f"balances-{name}")
    app: App[Any] = App(name, inputs=[orders], outputs=[balances], state=accounts, **options)
    by_customer = app.topic("by-customer")

    @app.handler(orders)
    def on_order(record: Any, state: Any, out: Any) -> None:
        out.send(by_customer, key=customer_of(record.value), value={**record.value, "order": record.id})

    @app.handler(by_customer)
    def on_order_of_customer(record: Any, state: Any, out: Any) -> None:
        account = state[record.key]
        account["n"] += 1
        add(record.value, account)
        out.send(balances, key=record.key, value={"id": record.id, **account})

    return app


def converted(name: str, **options: Any) -> App[Any]:
    """Payments in payments-NAME, and the rates of their currencies in the broadcast table rates-NAME; the sums of what
    they are worth in balances-NAME. A payment without a rate counts as nothing."""
    payments, balances = Topic(f"payments-{name}"), Topic(f"balances-{name}")
    rates = Topic(f"rates-{name}", value=nullable(json(int)))

    def state() -> Stores:
        return Stores(rates=MapState(str, int), accounts=accounts())

    app: App[Any] = App(name, inputs=[payments, rates], outputs=[balances], state=state, **options)
    app.table(rates, store="rates", broadcast=True)

    @app.handler(payments)
    def on_payment(record: Any, state: Any, out: Any) -> None:
        account = state.accounts[record.key]
        account["n"] += 1
        account["sum"] += record.value["amount"] * (state.rates.get(currency_of(record.value)) or 0)
        out.send(balances, key=record.key, value={"id": record.id, **account})

    return app


def topics_of(app: App[Any]) -> tuple[Topic[Any, Any], Topic[Any, Any]]:
    """The payments and the rates of `converted`."""
    payments, rates = (app.input_named(name) for name in (*app.input_names, *app.broadcast_names))
    assert payments is not None
    assert rates is not None
    return payments, rates


def currency_of(payment: Any) -> str:
    return f"currency-{payment['amount'] % 5}"


def customer_of(order: Any) -> str:
    return f"c{order['amount'] % 13}"


def heir(app: App[Any], name: str, **options: Any) -> App[Any]:
    """A ledger of another id with the topics of `app`; `inputs=`, `state=` and so on as for an App."""
    inputs, outputs = ([Topic(topic.name) for topic in topics] for topics in (app.inputs, app.outputs))
    return ledger(name, **{"inputs": inputs, "outputs": outputs, **options})


def priced(
    name: str, function: Callable[[Any], Any] | None = None, call_name: str = "price", **options: Any
) -> App[Any]:
    """Asks for the price of each payment, and adds up the answers of each key. Raises on poison, after it has asked."""
    payments = Topic(f"payments-{name}")
    app: App[Any] = App(
        name, inputs=[payments], state=lambda: MapState(str, dict, default=lambda: {"sum": 0, "errors": [], "seen": 0})
    )

    @app.call(name=call_name, **options)
    async def price(call: Any) -> Any:
        assert function is not None
        return await function(call)

    @app.handler(payments)
    def on_payment(record: Any, state: Any, out: Any) -> None:
        out.call(price, record.key, record.value)
        if record.value.get("poison"):
            raise ValueError("poison")

    @price.handler
    def on_price(record: Any, state: Any, out: Any) -> None:
        account, answer = state[record.key], record.value
        account["seen"] += 1
        account["sum"] += answer.result or 0
        account["errors"] += [answer.error] if answer.error else []

    return app


def price_of(payment: Any) -> int:
    return 2 * int(payment["amount"])


async def price_always(call: Any) -> int:
    return price_of(call.request)


async def price_sometimes(call: Any) -> int:
    """Takes a moment, and fails half of the time."""
    await asyncio.sleep(random.uniform(0, 0.1))
    if random.random() < 0.5:
        raise ConnectionError("try again")
    return price_of(call.request)
