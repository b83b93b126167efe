"""The ledger of docs/introduction.md and docs/writing-apps.md."""

from examples.ledger import app, balances, payments
from snapreplay.testing import Harness, check, record


def test_every_payment_gives_the_balance_after_it():
    """Also two payments of one account in one batch, also across a crash."""
    harness = Harness(app)
    harness.feed_batch([record(payments, key=k, value={"amount": n}) for k, n in [("ada", 5), ("ada", 2)]])
    harness.crash()
    harness.feed(payments, key="bob", value={"amount": -1})
    found = [(one.key, one.value["balance"]) for one in harness.outputs(balances)]
    assert found == [("ada", 5), ("ada", 7), ("bob", -1)]


def test_state_and_outputs_depend_on_the_records_only():
    """With any batches and crashes."""
    samples = [record(payments, key=f"k{n % 5}", value={"amount": n}) for n in range(60)]
    assert check(app, samples).left_out == ()
