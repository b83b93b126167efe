"""The app that a child process runs: its environment names the kind, the id and where to pause."""

import os

from tests.support import apps, gates

gates.install_from_environment()

RULES = {
    "ledger": apps.add,
    "poisoned": apps.refuse_poison,
    "fixed": apps.take_poison,
    "sleepy": apps.sleep_when_told,
    "busy": apps.compute,
    "escaping": apps.raise_as_named,
}

OTHERS = {
    "pair": apps.pair,
    "rekeyed": apps.rekeyed,
    "priced": lambda name: apps.priced(name, apps.price_sometimes, retries=None, concurrency=100),
}

kind, app_id = os.environ["TEST_APP_KIND"], os.environ["TEST_APP_ID"]
app = OTHERS[kind](app_id) if kind in OTHERS else apps.ledger(app_id, RULES[kind])
