"""The ledger that the operators' commands are tried on: as a map, or as state that is none. Which one, and under which
id, says its environment. Every output holds the number of its payment and the balance after it.
"""

import os
from collections.abc import Iterable
from typing import Any

import msgspec

from snapreplay import App, MapState, Topic

APP_ID, MAP = os.environ["OPERATED_APP_ID"], os.environ["OPERATED_STATE"] == "map"


class Book:
    """State that is no map, and cannot roll back."""

    def __init__(self) -> None:
        self.accounts: dict[str, dict[str, int]] = {}

    def __getitem__(self, key: str) -> dict[str, int]:
        return self.accounts.setdefault(key, {"n": 0, "sum": 0})

    def snapshot(self) -> Iterable[tuple[bytes, bytes]]:
        encode = msgspec.json.encode
        return [(key.encode(), encode(account)) for key, account in self.accounts.items()]

    def restore(self, entries: Iterable[tuple[bytes, bytes]]) -> None:
        self.accounts = {key.decode(): msgspec.json.decode(value) for key, value in entries}


def a_map() -> MapState[str, dict[str, int]]:
    return MapState(str, dict, default=lambda: {"n": 0, "sum": 0})


payments, balances = Topic(f"payments-{APP_ID}"), Topic(f"balances-{APP_ID}")
app: App[Any] = App(APP_ID, inputs=[payments], outputs=[balances], state=a_map if MAP else Book)


@app.handler(payments)
def on_payment(record: Any, state: Any, out: Any) -> None:
    account = state[record.key]
    account["n"] += 1
    account["sum"] += record.value["number"]
    out.send(balances, key=record.key, value={"number": record.value["number"], **account})
