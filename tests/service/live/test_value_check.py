"""Stored values that the app's types no longer fit, on a real broker: named before a record meets them."""

import asyncio

import msgspec
import pytest

from snapreplay.app.app import App
from snapreplay.app.topic import Topic
from snapreplay.errors import SnapreplayError
from snapreplay.service.control.status import StatusBoard
from snapreplay.service.live import value_check as module
from snapreplay.service.live.committer import ProducerSpent
from snapreplay.service.live.value_check import ValueCheck
from snapreplay.service.runtime.report import Reporter
from snapreplay.state.map import MapState
from snapreplay.state.steps import all_of
from tests.support.owner import Owner
from tests.support.stage import Stage, phase, processed, until

pytestmark = pytest.mark.kafka


class Account(msgspec.Struct):
    """As it was."""

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
        app_id,
        inputs=[payments],
        outputs=[balances],
        state=lambda: MapState(key, value, default=make),
        version="1",
    )

    @app.handler(payments)
    def on_payment(record, state, out):
        account = state[record.key]
        account.balance += record.value["amount"]
        out.send(balances, key=record.key, value={"balance": account.balance})

    return app


class Bench:
    """An app that has run with Accounts, and that is then deployed with other types."""

    def __init__(self, here):
        self.here = here
        self.app_id = here.app.app_id

    def deployed(self, value, make=None, key=str):
        return ledger(self.app_id, value, make or value, key)


@pytest.fixture
async def bench(broker, unique):
    app = ledger(unique("typed"), Account, Account)
    here = await Stage(broker.bootstrap_servers, app).prepare()
    async with here.running() as service:
        await here.feed(40)
        await processed(service, {0: 40})
    return Bench(here)


async def test_a_type_that_cannot_read_what_is_stored_never_goes_live(bench):
    """FAILED with key, reason and schema_version; the old type, deployed again as the hint says, goes LIVE."""
    app = bench.deployed(WithLimit, lambda: WithLimit(7))
    service, phases = bench.here.service(app), list[str]()
    service._board.subscribe(lambda status: phases.append(status.phase.value))
    await service.start()
    try:
        error = (await phase(service, "failed")).error
    finally:
        await service.stop()
    assert error.kind == "StoredValueUnreadable"
    assert "partition 0: state['k" in error.message
    assert "missing required field `limit`" in error.message
    assert "schema_version 1" in error.message
    assert "deploy the version that wrote it, with its types, again" in error.hint
    assert "live" not in phases
    async with bench.here.running() as again:
        await bench.here.feed(20)
        await processed(again, {0: 60})
        assert again.view(0)["k0"].balance == 0 + 20 + 40


async def test_a_compatible_change_goes_live(bench):
    """As the hint says: new fields with defaults. All values were read, and the status says so."""
    async with bench.here.running(bench.deployed(WithNote)) as service:
        await until(lambda: service.restore_status()[0].values_read, "values read")
        values = service.restore_status()[0].values_read
        assert (values.read, values.entries, values.all_read) == (20, 20, True)


async def test_another_type_of_keys_is_named_too(bench):
    """By the key as it was stored."""
    status = await bench.here.failure(bench.deployed(Account, key=int))
    assert status.error.kind == "StoredValueUnreadable"
    assert "the stored key 'k" in status.error.message
    assert "is not of type int" in status.error.message


async def test_what_the_sample_does_not_hold_is_found_while_it_is_live(bench, monkeypatch):
    """Everything before is committed, then FAILED; no record has met the value."""
    monkeypatch.setattr(module, "SAMPLE_EACH_SHARD", 0)
    app = bench.deployed(WithLimit, lambda: WithLimit(7))
    one = Owner(bench.here, await Stage(bench.here.bootstrap_servers, app).context())
    status = await one.phase("failed")
    assert status.error.kind == "StoredValueUnreadable"
    assert "live" in one.phases
    await one.end()


async def test_a_check_goes_on_where_it_stood_when_the_state_was_kept(bench, monkeypatch):
    """And it is given up when the partition is not LIVE any more."""
    one = Owner(bench.here, await bench.here.context())
    began = []
    begin = ValueCheck.begin

    def noted(self, unreadable):
        began.append(self)
        begin(self, unreadable)

    monkeypatch.setattr(ValueCheck, "begin", noted)
    await one.phase("live")
    epoch = one.status.owner_epoch
    one.runner._live._committer.check = spent
    await bench.here.feed(1)
    await until(lambda: one.status.owner_epoch > epoch, "another incarnation")
    await one.phase("live")
    assert len(began) == 2
    assert began[0] is began[1]
    await one.end()
    assert began[0]._task is None


def spent():
    raise ProducerSpent("a new producer")


async def test_reading_leaves_the_loop_to_others(bench, monkeypatch):
    """It sleeps nine times as long as it has read."""
    monkeypatch.setattr(module, "YIELD_AFTER_SECONDS", 0.0)
    slept, sleep, reading = list[float](), asyncio.sleep, asyncio.current_task()

    async def noted(seconds):
        if asyncio.current_task() is reading:
            slept.append(seconds)
        await sleep(0)

    context = await bench.here.context()
    store = context.app.state().__snapreplay_store__()
    for number in range(5000):
        store.view[f"k{number}"] = Account(number)
    all_of(store.staging())
    all_of(store.sealing())
    store.merge()
    check = ValueCheck(context, store, Reporter(StatusBoard(), 0))
    monkeypatch.setattr(asyncio, "sleep", noted)
    found = list[SnapreplayError]()
    await check._read_rest(found.append)
    assert found == []
    assert len(slept) >= 10
    assert all(seconds > 0 for seconds in slept)
