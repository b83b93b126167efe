"""Tests of stored values that the app's types no longer fit: named before a record meets them."""

import msgspec

from snapreplay.app.app import App
from snapreplay.app.topic import Topic
from snapreplay.service.partition import incarnation
from snapreplay.state.map import MapState


class Account(msgspec.Struct):
    """An account as it was."""

    balance: int = 0


class WithLimit(msgspec.Struct):
    """Cannot be read from an Account: the new field has no default."""

    limit: int
    balance: int = 0


def ledger(app_id, value, make, key=str):
    """Balances as Structs of this type."""
    payments, balances = Topic(f"payments-{app_id}"), Topic(f"balances-{app_id}")
    app = App(
        app_id, inputs=[payments], outputs=[balances], state=lambda: MapState(key, value, default=make), version="1"
    )

    @app.handler(payments)
    def on_payment(record, state, out):
        account = state[record.key]
        account.balance += record.value["amount"]
        out.send(balances, key=record.key, value={"balance": account.balance})

    return app


async def deployed(bench, value, make=None, key=str):
    """An app that has run with Accounts, and then with other types."""
    await bench.prepare(ledger("typed", Account, Account))
    async with bench.live() as one:
        await one.feed(40)
    return ledger("typed", value, make or value, key)


async def test_a_type_that_cannot_read_what_is_stored_never_goes_live(bench):
    """FAILED with key, reason and schema_version; the old type, deployed again as the hint says, goes LIVE."""
    app = await deployed(bench, WithLimit, lambda: WithLimit(7))
    error = (await bench.failure(app)).error
    assert error.kind == "StoredValueUnreadable"
    assert "partition 0: state['k" in error.message
    assert "missing required field `limit`" in error.message
    assert "schema_version 1" in error.message
    assert "deploy the version that wrote it, with its types, again" in error.hint
    assert "live" not in bench.owners[-1].phases
    async with bench.live(records=20) as again:
        assert again.view()["k0"].balance == 0 + 20 + 40


async def test_another_type_of_keys_is_named_too(bench):
    """By the key as it was stored. The old type, deployed again, goes LIVE."""
    error = (await bench.failure(await deployed(bench, Account, key=int))).error
    assert error.kind == "StoredValueUnreadable"
    assert "the stored key 'k" in error.message
    assert "is not of type int" in error.message
    assert "deploy the version that wrote it, with its types, again; or process" in error.hint
    async with bench.live() as again:
        assert len(again.view()) == 20


async def test_what_the_sample_does_not_hold_fails_with_its_record(bench, monkeypatch):
    """The policy skips no record for it: the type is wrong, not the record."""
    monkeypatch.setattr(incarnation, "SAMPLE_EACH_SHARD", 0)
    app = await deployed(bench, WithLimit, lambda: WithLimit(7))
    async with bench.live(app, errors={"policy": "dead_letter"}) as one:
        await bench.feed(1)
        status = await one.phase("failed")
    assert status.error.kind == "StoredValueUnreadable"
    assert "schema_version 1" in status.error.message
