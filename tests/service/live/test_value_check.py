"""Tests of stored values that the app's types no longer fit: named before a record meets them."""

import asyncio

import msgspec

from snapreplay.app.app import App
from snapreplay.app.topic import Topic
from snapreplay.errors import SnapreplayError
from snapreplay.service.control.status import StatusBoard
from snapreplay.service.live import value_check as module
from snapreplay.service.live.committer import ProducerSpent
from snapreplay.service.live.value_check import ValueCheck
from snapreplay.service.runtime.report import Reporter
from snapreplay.state.map import MapState
from snapreplay.state.mapstore import MapStore
from snapreplay.state.steps import all_of
from snapreplay.state.stores import store_of
from tests.support.in_memory import virtual
from tests.support.stage import until


class Account(msgspec.Struct):
    """An account as it was."""

    balance: int = 0


class WithLimit(msgspec.Struct):
    """Cannot be read from an Account: the new field has no default."""

    limit: int
    balance: int = 0


class WithNote(msgspec.Struct):
    """Can be."""

    balance: int = 0
    note: str = ""


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
        await bench.feed(40)
        await one.position(40)
    return ledger("typed", value, make or value, key)


@virtual
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
    async with bench.live() as again:
        await bench.feed(20)
        await again.position(60)
        assert again.view()["k0"].balance == 0 + 20 + 40


@virtual
async def test_a_compatible_change_goes_live(bench):
    """As the hint says: new fields with defaults. All values were read, and the status says so."""
    async with bench.live(await deployed(bench, WithNote)) as one:
        await until(lambda: one.status.values_read, "values read")
        values = one.status.values_read
        assert (values.read, values.entries, values.all_read) == (20, 20, True)


@virtual
async def test_another_type_of_keys_is_named_too(bench):
    """By the key as it was stored. The old type, deployed again, goes LIVE."""
    error = (await bench.failure(await deployed(bench, Account, key=int))).error
    assert error.kind == "StoredValueUnreadable"
    assert "the stored key 'k" in error.message
    assert "is not of type int" in error.message
    assert "deploy the version that wrote it, with its types, again; or process" in error.hint
    async with bench.live() as again:
        assert len(again.view()) == 20


@virtual
async def test_what_the_sample_does_not_hold_is_found_while_it_is_live(bench, monkeypatch):
    """Everything before is committed, then FAILED; no record has met the value."""
    monkeypatch.setattr(module, "SAMPLE_EACH_SHARD", 0)
    status = await bench.failure(await deployed(bench, WithLimit, lambda: WithLimit(7)))
    assert status.error.kind == "StoredValueUnreadable"
    assert "live" in bench.owners[-1].phases


@virtual
async def test_a_check_goes_on_where_it_stood_when_the_state_was_kept(bench, monkeypatch):
    """And it is given up when the partition is not LIVE any more."""
    checks, checking = [], MapStore.checking

    def noted(self, *sample):
        checks.append(sample)
        return checking(self, *sample)

    app = await deployed(bench, Account)
    monkeypatch.setattr(MapStore, "checking", noted)
    one = await bench.owner(app=app)
    await one.phase("live")
    epoch = one.status.owner_epoch
    one.committer.check = spent
    await bench.feed(1)
    await until(lambda: one.status.owner_epoch > epoch, "another incarnation")
    await one.phase("live")
    await one.end()
    assert checks == [(module.SAMPLE_EACH_SHARD,), (None,)]


def spent():
    raise ProducerSpent("a new producer")


@virtual
async def test_reading_leaves_the_loop_to_others(bench, monkeypatch):
    """It sleeps nine times as long as it has read."""
    monkeypatch.setattr(module, "YIELD_AFTER_SECONDS", -1.0)
    await bench.prepare(ledger("typed", Account, Account))
    context, ticks, slept = await bench.context(), iter(range(100_000)), list[float]()
    store = store_of(context.app.state())
    for number in range(50):
        store.view[f"k{number}"] = Account(number)
    all_of(store.staging())
    all_of(store.sealing())
    store.merge()
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: float(next(ticks)))

    async def noted(seconds):
        slept.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", noted)
    found = list[SnapreplayError]()
    check, others = ValueCheck(context, Reporter(StatusBoard(), 0)), asyncio.all_tasks()
    await check.sample(store)
    check.begin(found.append)
    await asyncio.wait(asyncio.all_tasks() - others)
    assert found == []
    assert len(slept) >= 10
    assert {each % module.IDLE_TIMES for each in slept} == {0}
