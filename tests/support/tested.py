"""Apps that another process can load by name: for tests of the real harness and of the dev loop."""

from typing import Any

from snapreplay import App, MapState, Out, Record, Topic
from tests.support import apps

payments, balances = Topic("payments"), Topic("balances")
app = App(
    "tested", inputs=[payments], outputs=[balances], state=lambda: MapState(str, dict, default=lambda: {"sum": 0})
)


@app.handler(payments)
def on_payment(record: Record[str, Any], state: MapState[str, dict[str, int]], out: Out) -> None:
    """Outputs the balance after each payment."""
    account = state[record.key]
    account["sum"] += record.value["amount"]
    out.send(balances, key=record.key, value=account)


def sleep_aloud(value: Any, account: dict[str, int]) -> None:
    """Says so before, in the log of the process."""
    print("asleep", flush=True)  # noqa: T201 - a handler may print
    apps.sleep_when_told(value, account)


sleepy = apps.ledger("tested-sleepy", sleep_aloud)


rekeyed = apps.rekeyed("rekeyed")
priced = apps.priced("tested-priced", apps.price_sometimes, retries=None, concurrency=100)
converted = apps.converted("converted")
